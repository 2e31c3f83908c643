"""The table of kinds: it has each kind of credential, with what the rules need to know about it."""

from __future__ import annotations

from typing import get_args

import pytest

from aileron.egress.inject import KINDS, RENEWABLE, LentCredential, check_query, inject, needles_for, reserved_fields
from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import RefusedError
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialKind
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from tests.egress.conftest import need, use

ALL: tuple[CredentialKind, ...] = get_args(CredentialKind)
SECRET = b"sesame-/0123456789abcdef"
HANDSHAKE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))


def test_every_kind_is_in_the_table() -> None:
    """A manifest's parser accepts no other kind."""
    assert tuple(KINDS) == ALL
    assert {kind for kind in ALL if kind.startswith("oauth2")} == RENEWABLE


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_says_which_fields_and_parameters_are_reserved(kind: CredentialKind) -> None:
    """Only a certificate uses no field; only a token could also be in the query."""
    assert (reserved_fields(need(kind)) == frozenset()) == (kind == "mtls")
    assert "authorization" in reserved_fields(need(kind)) or kind == "mtls"
    if kind in RENEWABLE:
        with pytest.raises(RefusedError):
            check_query(need(kind), parse_url("https://h/?access_token=mine"))
    else:
        check_query(need(kind), parse_url("https://h/?access_token=mine"))


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "mtls"])
def test_every_kind_that_a_service_could_reveal_is_scrubbed(kind: CredentialKind) -> None:
    """Signing keys and login passwords count too: a service has them. A certificate's private key is never sent."""
    username = "AKIDEXAMPLE0123456789" if kind == "aws_sigv4" else "ann"
    assert needles_for([LentCredential(kind, Secret(SECRET), username)], HostPort("h", 443)).covers({SECRET})


@pytest.mark.parametrize("kind", ALL)
def test_a_loan_of_another_kind_is_never_injected(kind: CredentialKind) -> None:
    """Each kind is tried with a loan of the kind before it in the list."""
    other = ALL[ALL.index(kind) - 1]
    with pytest.raises(AileronError, match=f"is of kind {other}, not {kind}"):
        inject(use(kind), LentCredential(other, Secret(SECRET), "ann"), Outgoing("GET", parse_url("https://h/")))


@pytest.mark.parametrize("is_websocket", [False, True], ids=["request", "websocket"])
@pytest.mark.parametrize(
    ("credential", "goes"),
    [
        (use("basic"), (True, True)),
        (use(), (True, True)),
        (use(first_message="AUTH {key}"), (False, True)),
        (use("digest"), (True, False)),
        (use("login"), (False, False)),
    ],
    ids=["basic", "api_key", "first_message", "digest", "login"],
)
def test_a_credential_without_a_place_in_the_request_is_an_error(
    credential: CredentialUse, goes: tuple[bool, bool], is_websocket: bool
) -> None:
    """The rules refuse it before anything is lent; if they were wrong, the request would leave without its credential."""
    request = Outgoing("GET", parse_url("https://h/"), HANDSHAKE if is_websocket else ())
    lent = LentCredential(credential.need.kind, Secret(SECRET), "ann" if credential.need.kind != "api_key" else None)
    if goes[is_websocket]:
        assert inject(credential, lent, request).roots >= {SECRET}
        return
    with pytest.raises(AileronError) as caught:
        inject(credential, lent, request)
    assert caught.value.failure.failure_class is FailureClass.BINDING_FAILED
    assert "sesame" not in str(caught.value.failure)
