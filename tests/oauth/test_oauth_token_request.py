"""Requests to a token endpoint without a person: each grant, each way to authenticate, and secrets that do not fit."""

from __future__ import annotations

import base64
import json
from typing import Any, Final
from urllib.parse import unquote_plus

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt.types import Options

from aileron.model.fixes import Stored
from aileron.model.names import BindingName
from aileron.model.request_signing import TokenGrant
from aileron.model.secret import Secret
from aileron.oauth.token_request import ASSERTION_S, ClientCredential, sent_parts, token_request
from tests.oauth.test_oauth_assertion import RSA, pem

URL: Final = "https://auth.example.com/token"
NOW: Final = 1_795_233_600.5
SECRET: Final = b"canary-client-secret:+%/ x"
EXCHANGED: Final = json.dumps({"client_secret": "canary-secret-1", "subject_token": "canary-token-1"}).encode()
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def credential(secret: bytes = SECRET, client_id: str | None = "a client", **grant: Any) -> ClientCredential:
    """Return the credential of a binding with this grant."""
    whole = {"grant": "client_credentials", "token_url": URL, "client_auth": "client_secret_basic", **grant}
    name = BindingName("oauth2_client", "billing", "work")
    return ClientCredential(name, TokenGrant(**whole), client_id, Secret(secret), Stored("billing-work"))


def key_file(**changes: str) -> bytes:
    """Return a service account's key file, with the keys that Google writes."""
    whole = {
        "type": "service_account",
        "project_id": "a-project",
        "private_key_id": "0123abcd",
        "private_key": pem(RSA).decode(),
        "client_email": "robot@a-project.iam.gserviceaccount.com",
        "client_id": "1234",
        "auth_uri": "https://accounts.example.com/o/oauth2/auth",
        "token_uri": URL,
        "universe_domain": "googleapis.com",
    }
    return json.dumps({**whole, **changes}, indent=2).encode()


def test_the_parts_of_basic_credentials_are_form_encoded_before_base64() -> None:
    """RFC 6749, section 2.3.1: client ID and secret are encoded before base64, and are not in the form."""
    request = token_request(credential(), NOW)
    assert request.authorization is not None
    scheme, _, encoded = request.authorization.reveal().decode().partition(" ")
    user, _, password = base64.b64decode(encoded).decode().partition(":")

    assert (scheme, unquote_plus(user), unquote_plus(password)) == ("Basic", "a client", SECRET.decode())
    assert request.form == {"grant_type": "client_credentials"}


def test_scopes_audience_and_resource_are_sent_in_a_token_request() -> None:
    """The client secret is in the form here, which is the other way to authenticate."""
    asked = credential(
        scopes=("b", "a"), audience="https://api", resource="https://r", client_auth="client_secret_post"
    )
    request = token_request(asked, NOW)

    assert request.authorization is None
    assert request.form == {
        "grant_type": "client_credentials",
        "audience": "https://api",
        "resource": "https://r",
        "scope": "b a",
        "client_id": "a client",
        "client_secret": SECRET.decode(),
    }


def test_a_private_key_authenticates_its_client() -> None:
    """RFC 7523, section 2.2: the assertion is for the token endpoint, for five minutes, and different each time."""
    asked = credential(pem(RSA), client_auth="private_key_jwt", audience="https://api")
    first, second = (token_request(asked, NOW).form for _time in range(2))
    claims = jwt.decode(
        first["client_assertion"], RSA.public_key(), algorithms=["RS256"], audience=URL, options={"verify_exp": False}
    )

    assert (first["client_assertion_type"], first["client_id"], first["audience"]) == (
        ASSERTION,
        "a client",
        "https://api",
    )
    assert claims.pop("jti")
    at = int(NOW)
    assert claims == {"iss": "a client", "sub": "a client", "aud": URL, "iat": at, "exp": at + ASSERTION_S}
    assert first["client_assertion"] != second["client_assertion"]


def test_a_service_account_requests_tokens_as_google_requires() -> None:
    """The key file names the issuer; the scopes are in the assertion, and the key's ID is in its header."""
    asked = credential(key_file(), None, grant="jwt_bearer", client_auth="none", scopes=("https://www/auth/drive",))
    form = token_request(asked, NOW).form
    options: Options = {"verify_exp": False}
    claims = jwt.decode(form["assertion"], RSA.public_key(), algorithms=["RS256"], audience=URL, options=options)

    assert (set(form), form["grant_type"]) == ({"grant_type", "assertion"}, BEARER)
    assert claims["iss"] == "robot@a-project.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www/auth/drive"
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "0123abcd"


def test_a_bare_key_requests_tokens_for_the_named_client() -> None:
    """The assertion has an audience of its own, and the scopes are in the form."""
    grant = {"grant": "jwt_bearer", "client_auth": "none", "scopes": ("a",), "audience": "https://issuer"}
    form = token_request(credential(pem(RSA), "me", **grant), NOW).form
    options: Options = {"verify_exp": False}
    claims = jwt.decode(
        form["assertion"], RSA.public_key(), algorithms=["RS256"], audience="https://issuer", options=options
    )

    assert (claims["iss"], claims["sub"]) == ("me", "me")
    assert (form["scope"], "audience" in form) == ("a", False)


@pytest.mark.parametrize("auth", ["none", "client_secret_basic", "client_secret_post"])
def test_a_token_is_exchanged_with_and_without_a_client(auth: str) -> None:
    """RFC 8693, section 2.1. If a token and a client secret are needed, one document holds both."""
    secret = b"canary-token-1" if auth == "none" else EXCHANGED
    request = token_request(credential(secret, grant="token_exchange", client_auth=auth, audience="api"), NOW)
    form = request.form

    assert form["subject_token"] == "canary-token-1"
    assert form["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert form["audience"] == "api"
    assert (form.get("client_id"), form.get("client_secret"), request.authorization is None) == {
        "none": ("a client", None, True),
        "client_secret_basic": (None, None, False),
        "client_secret_post": ("a client", "canary-secret-1", True),
    }[auth]


REFUSED: Final[dict[str, tuple[ClientCredential, str]]] = {
    "no-id": (credential(client_id=None), "has no client ID; give it with --username"),
    "lines": (credential(b"one\ntwo"), "is not a client secret or token"),
    "long": (credential(b"x" * 8193), "is not a client secret or token"),
    "not-ascii": (credential("gehéim-und-länger".encode()), "is not a client secret or token"),
    "one-of-two": (credential(grant="token_exchange"), 'is not {"client_secret"'),
    "no-issuer": (credential(pem(RSA), None, grant="jwt_bearer", client_auth="none"), "has no issuer"),
    "half": (
        credential(b'{"type": "service_account"}', None, grant="jwt_bearer", client_auth="none"),
        "is a service account's key file that is not whole",
    ),
    "elsewhere": (
        credential(key_file(token_uri="https://evil.example/token"), None, grant="jwt_bearer", client_auth="none"),
        "is the key file of a service account whose tokens are not issued at https://auth.example.com/token",
    ),
    "another": (
        credential(key_file(), "me", grant="jwt_bearer", client_auth="none"),
        "is the key file of another account than --user",
    ),
    "wrong-type": (
        credential(pem(RSA), client_auth="private_key_jwt", algorithm="ES256"),
        "is a key of the wrong type: ES256",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsuitable_secret_is_refused_with_the_reason(name: str) -> None:
    """The message quotes no part of the secret."""
    asked, words = REFUSED[name]
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(")) as caught:
        token_request(asked, NOW)

    assert caught.value.__cause__ is None
    assert "canary" not in str(caught.value)
    assert "evil" not in str(caught.value)


def test_the_function_sent_parts_returns_every_form_in_which_a_secret_is_sent() -> None:
    """They include the value of `Authorization: Basic` if there is a client ID; a private key is never sent."""
    basic = token_request(credential(), NOW).authorization
    assert basic is not None
    sent = {part.reveal() for part in sent_parts(Secret(SECRET), "a client")}

    assert {SECRET, basic.reveal().removeprefix(b"Basic ")} <= sent
    assert {part.reveal() for part in sent_parts(Secret(EXCHANGED), None)} == {b"canary-secret-1", b"canary-token-1"}
    assert sent_parts(Secret(pem(RSA)), "a client") == ()


@given(st.binary(max_size=200), st.none() | st.text(max_size=20))
def test_no_sent_part_of_any_secret_contains_a_line_end(data: bytes, client_id: str | None) -> None:
    """A line end would end a header."""
    assert all(b"\n" not in part.reveal() for part in sent_parts(Secret(data), client_id))
