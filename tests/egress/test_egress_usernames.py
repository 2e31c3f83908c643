"""User names that a header field could not carry as they are: a kind that sends them encodes them, or is not bound with them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, unquote_plus

import pytest

from aileron.egress.headers import is_field_value
from aileron.egress.inject import LentCredential, inject
from aileron.egress.outgoing import Outgoing
from aileron.egress.signing.digest import Challenge, Round
from aileron.egress.url import parse_url
from aileron.model.credential_kind import CREDENTIAL_KINDS
from aileron.model.fixes import Stored
from aileron.model.manifest import CredentialKind
from aileron.model.names import BindingName
from aileron.model.request_signing import TokenGrant
from aileron.model.secret import Secret
from aileron.model.username import check_username, has_username
from aileron.oauth.token_request import ClientCredential, token_request
from aileron.vault.bindings import Binding
from aileron.vault.secret_form import check_fits
from tests.egress.conftest import use

NAMES: Final = ("Ann Bö", " ann", "ann ", "日本", 'a"b\\c', "a%20+&=é")
SECRET: Final = Secret(b"sesame-0123456789/+abcdefghijklmnopqrstu")


def _authorization(kind: CredentialKind, username: str) -> str:
    """Return the value of `Authorization`, which a header field can carry."""
    lent = LentCredential(kind, SECRET, username, round=Round.first(Challenge(realm="a door", nonce="n")))
    made = inject(use(kind), lent, Outgoing("GET", parse_url("https://h/")))
    ((_name, value),) = made.request.fields
    assert is_field_value(value)
    return value


def _in_basic(username: str) -> str:
    pair = base64.b64decode(_authorization("basic", username).removeprefix("Basic "))
    return pair.decode().rpartition(":")[0]


def _in_digest(username: str) -> str:
    value = _authorization("digest", username)
    if extended := re.search(r"username\*=UTF-8''([^,]*)", value):
        return unquote(extended[1])
    quoted = re.search(r'username="((?:[^"\\]|\\.)*)"', value)
    assert quoted is not None
    return re.sub(r"\\(.)", r"\1", quoted[1])


def _in_a_token_request(username: str) -> str:
    grant = TokenGrant(grant="client_credentials", token_url="https://h/t", client_auth="client_secret_basic")
    name = BindingName("oauth2_client", "a", "b")
    asked = token_request(ClientCredential(name, grant, username, SECRET, Stored("s")), 0.0)
    assert asked.authorization is not None
    value = asked.authorization.reveal().decode("ascii")
    assert is_field_value(value)
    return unquote_plus(base64.b64decode(value.removeprefix("Basic ")).decode("ascii").partition(":")[0])


SENT: Final[dict[CredentialKind, Callable[[str], str]]] = {
    "basic": _in_basic,
    "digest": _in_digest,
    "oauth2_client": _in_a_token_request,
}
"""Functions that send a user name as a credential of a kind, and return it as the service reads it."""
NOT_BOUND: Final = "aws_sigv4"
"""The one kind whose user name is sent as it is, in `Authorization` and what is signed."""
IN_NO_REQUEST: Final = "login"
"""The kind whose user name is in no request: its protocols send UTF-8 (aileron/logins)."""


def test_every_kind_of_credential_with_a_user_name_is_tested_in_this_file() -> None:
    """A kind that sends the user name as it is must refuse, when it is bound, what cannot be sent."""
    assert {*SENT, NOT_BOUND, IN_NO_REQUEST} == set(filter(has_username, CREDENTIAL_KINDS))


@pytest.mark.parametrize("username", NAMES)
@pytest.mark.parametrize("kind", SENT)
def test_a_user_name_of_any_visible_characters_reaches_the_service(kind: CredentialKind, username: str) -> None:
    """Therefore it may be bound: base64, RFC 8187 or percent-encoding carry it."""
    check_username(kind, username)
    assert SENT[kind](username) == username


@pytest.mark.parametrize("username", NAMES)
def test_an_access_key_id_that_a_field_cannot_carry_is_not_bound(username: str) -> None:
    """The key decides, since the ID may be in its document instead. An ID of AWS's form is bound."""
    name = BindingName(NOT_BOUND, "a", "b")
    with pytest.raises(ValueError, match="an access key ID that is none"):
        check_fits(Binding(name, "github://a/b", NOT_BOUND, username, "s", 0.0), SECRET, Stored("s"), 0.0)

    check_fits(Binding(name, "github://a/b", NOT_BOUND, "AKIDEXAMPLE", "s", 0.0), SECRET, Stored("s"), 0.0)
