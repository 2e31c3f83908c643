"""The table of kinds: it has each kind of credential, with what the rules need to know about it."""

from __future__ import annotations

from typing import Final, get_args

import msgspec
import pytest

from aileron.connector_tests.fake_credentials import fake_credential
from aileron.egress import EgressRequest
from aileron.egress.headers import Field, field_key
from aileron.egress.inject import KINDS, RENEWABLE, LentCredential, check_query, inject, needles_for, reserved_fields
from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.rules import AllowedRequest, admit
from aileron.egress.signing.digest import Challenge, Round
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialKind
from aileron.model.names import HostPort
from aileron.model.plan import CredentialUse, Grant
from aileron.model.request_signing import AwsScope, HmacTemplate
from aileron.model.secret import Secret
from tests.egress.conftest import need, use

ALL: tuple[CredentialKind, ...] = get_args(CredentialKind)
SECRET = b"sesame-/0123456789abcdef"
HANDSHAKE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
URL: Final = "https://h/"
DECLARED: Final[dict[CredentialKind, CredentialUse]] = {
    "api_key": use(header="X-Api-Key", format="{key}"),
    "aws_sigv4": use("aws_sigv4", aws=AwsScope(region="r", service="sns")),
    "hmac": use("hmac", hmac=HmacTemplate(message="{time}", headers=(("X-Time", "{time}"), ("X-Sign", "{signature}")))),
}
"""Uses of the kinds that a manifest declares more of than the kind."""
NO_FIELD: Final = {"mtls": "a certificate is no part of a request", "login": "no request can carry it"}
"""Kinds that add no field, with the reason."""
REPLACED: Final = {"aws_sigv4": {"x-amz-date"}}
"""Fields that a kind takes out of the connector's request instead of refusing them, because client libraries set them."""


def test_every_kind_of_credential_is_in_the_table_of_kinds() -> None:
    """A manifest's parser accepts no other kind."""
    assert tuple(KINDS) == ALL
    assert {kind for kind in ALL if kind.startswith("oauth2")} == RENEWABLE


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_of_credential_says_which_header_fields_and_parameters_are_reserved(kind: CredentialKind) -> None:
    """Only a certificate uses no field; only a token could also be in the query."""
    assert (reserved_fields(need(kind)) == frozenset()) == (kind == "mtls")
    assert "authorization" in reserved_fields(need(kind)) or kind == "mtls"
    if kind in RENEWABLE:
        with pytest.raises(RefusedError):
            check_query(need(kind), parse_url("https://h/?access_token=mine"))
    else:
        check_query(need(kind), parse_url("https://h/?access_token=mine"))


@pytest.mark.parametrize("kind", ALL)
def test_a_connector_can_set_no_field_that_its_credential_adds_or_changes(kind: CredentialKind) -> None:
    """A server could take the connector's own field for the credential. Without a credential the field is sent."""
    added = _added_by(kind)

    assert (added == set()) == (kind in NO_FIELD)
    for name in added:
        own = (name, "mine")
        assert own in _admitted(None, own).fields
        if name in REPLACED.get(kind, set()):
            assert own not in _admitted(_use_of(kind), own).fields
            continue
        with pytest.raises(RefusedError) as caught:
            _admitted(_use_of(kind), own)
        assert caught.value.reason is Reason.HEADER_CREDENTIAL


def _use_of(kind: CredentialKind) -> CredentialUse:
    return DECLARED.get(kind) or use(kind)


def _admitted(credential: CredentialUse | None, *fields: Field) -> AllowedRequest:
    """Return a plain request with these fields, as the rules let it through."""
    named = None if credential is None else credential.need.kind
    request = EgressRequest("GET", URL, fields, named)
    return admit(parse_url(URL), request, Grant(hosts=(HostPort("h", 443),), credential=credential))


def _added_by(kind: CredentialKind) -> set[str]:
    """Return the `field_key`s of the fields of a plain request that a made-up credential of this kind adds or changes."""
    if kind == "login":
        return set()
    credential = _use_of(kind)
    allowed = _admitted(credential, ("Accept", "*/*"))
    lent = msgspec.structs.replace(
        fake_credential(credential.need), round=Round.first(Challenge(realm="a door", nonce="n"))
    )
    made = inject(credential, lent, Outgoing(allowed.method, allowed.url, allowed.fields))
    return {field_key(name) for name, _value in set(allowed.fields) ^ set(made.request.fields)}


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "mtls"])
def test_the_secret_of_every_kind_of_credential_except_a_certificate_is_scrubbed(kind: CredentialKind) -> None:
    """Signing keys and login passwords count too: a service has them. A certificate's private key is never sent."""
    username = "AKIDEXAMPLE0123456789" if kind == "aws_sigv4" else "ann"
    assert needles_for([LentCredential(kind, Secret(SECRET), username)], HostPort("h", 443)).covers({SECRET})


@pytest.mark.parametrize("kind", ALL)
def test_a_loan_whose_kind_of_credential_is_not_that_of_the_grant_is_never_injected(kind: CredentialKind) -> None:
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
