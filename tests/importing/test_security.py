"""The import takes a credential that the chosen operations accept, in a place where no agent sees it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from aileron.importing.reading import DocumentError
from aileron.importing.repository import Made
from aileron.model.request_signing import TokenGrant
from aileron.registry.manifest import parse_connector_manifest
from tests.importing.documents import Json, action_of, document, imported, one_operation, reason_of

BEARER = {"type": "http", "scheme": "bearer"}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
QUERY = {"type": "apiKey", "in": "query", "name": "key"}
BASIC = {"type": "http", "scheme": "Basic"}
OAUTH: Json = {
    "type": "oauth2",
    "flows": {
        "authorizationCode": {"authorizationUrl": "https://id.example/auth", "tokenUrl": "https://tok.example/token"}
    },
}
CLIENT: Json = {
    "type": "oauth2",
    "flows": {"clientCredentials": {"tokenUrl": "https://tok.example/token", "scopes": {}}},
}
SIGN_IN = "a sign-in (OAuth 2) at id.example and tok.example"
PASTED = "a token, as Authorization: Bearer"


def secured(schemes: Json, security: Any, **operation: Any) -> Json:
    """Return a document with one operation that needs these schemes."""
    return one_operation(
        {"operationId": "one", "security": security, **operation}, components={"securitySchemes": schemes}
    )


@pytest.mark.parametrize(
    ("scheme", "kind", "words"),
    [
        (BEARER, "api_key", "a token, as Authorization: Bearer"),
        (KEY, "api_key", "an API key, as the header X-Key"),
        (QUERY, "api_key", "an API key, as the query parameter key"),
        (BASIC, "basic", "a user name and a password"),
        ({"type": "openIdConnect"}, "api_key", "a token, as Authorization: Bearer"),
        ({"type": "apiKey", "in": "header", "name": "Authorization"}, "api_key", "a token, as Authorization: Bearer"),
        (OAUTH, "oauth2", "a sign-in (OAuth 2) at id.example and tok.example, scopes read"),
        (
            CLIENT,
            "oauth2_client",
            "tokens that Aileron gets as a client of its own (OAuth 2) at tok.example, scopes read",
        ),
        ({"type": "oauth2", "flows": CLIENT["flows"] | OAUTH["flows"]}, "oauth2", f"{SIGN_IN}, scopes read"),
        ({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "http://tok.example/t"}}}, "api_key", PASTED),
        ({"type": "oauth2", "flows": {"implicit": {}}}, "api_key", "a token, as Authorization: Bearer"),
    ],
)
def test_a_security_scheme_becomes_a_credential_with_a_description(scheme: Json, kind: str, words: str) -> None:
    """The description says where the credential is sent, and at which hosts of the document a person signs in."""
    made = imported(secured({"it": scheme}, [{"it": ["read"]}]))

    assert made.credential.kind == kind
    assert made.credential.words == words
    need = parse_connector_manifest(made.files["manifest.toml"], file="manifest.toml", allow_unbound=True).credential
    assert need is not None
    assert need.kind == kind


AUTHORIZATION: Json = {"type": "apiKey", "in": "header", "name": "Authorization"}


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("The API Key with format `Token token=<API_KEY>`", "Token token={key}"),
        ('Authorization: Token token="y_NbAkKc66ryYTWUXYEu"', 'Token token="{key}"'),
        ("Use `Bot <token>`.", "Bot {key}"),
        ("Authorization: GenieKey {apiKey}", "GenieKey {key}"),
        ('API tokens must be prepended with "token" followed by a space.', "token {key}"),
        ('The string "OAuth" followed by the user\'s token: OAuth ACCESS_TOKEN', "OAuth {key}"),
        ("API Key - NetworkInsight {token}", "NetworkInsight {key}"),
        ("Send it as `Authorization: YOUR_API_KEY`.", "{key}"),
        ("The token itself, without the prefix Bearer.", "{key}"),
        ("Enter 'Bearer' [space] and then your token", None),
        ("In the format **Bearer {token}**", None),
    ],
)
def test_the_form_of_an_authorization_key_comes_from_the_description_of_its_scheme(
    words: str, form: str | None
) -> None:
    """The form is, for example, `token KEY`. Without one, it is a manifest's default, `Bearer KEY`."""
    credential = imported(secured({"it": {**AUTHORIZATION, "description": words}}, [{"it": []}])).credential

    assert (credential.format, credential.is_guess) == (form, False)


def test_the_form_of_a_key_is_also_found_in_examples_and_descriptions() -> None:
    """A header parameter's example, or a command with the header, gives the form. That parameter is no input."""
    header = {
        "name": "Authorization",
        "in": "header",
        "schema": {"type": "string", "example": "Bot MTk4NjIyNDgzNDcx.Cl2FMQ"},
    }
    whole = secured({"it": AUTHORIZATION}, [{"it": []}])
    words = "Use `curl -H 'Authorization: Key 0123456789abcdef'`. A token is text."

    assert imported(secured({"it": AUTHORIZATION}, [{"it": []}], parameters=[header])).credential.format == "Bot {key}"
    assert imported({**whole, "info": {**whole["info"], "description": words}}).credential.format == "Key {key}"


@pytest.mark.parametrize(("name", "form"), [("it", None), ("BotToken", "Bot {key}")])
def test_an_undocumented_form_of_a_key_is_marked_as_a_guess(name: str, form: str | None) -> None:
    """The scheme's name decides at best. A form that the author chooses is no guess."""
    whole = secured(
        {name: {**AUTHORIZATION, "description": "See the token section [here](https://a.example)"}}, [{name: []}]
    )
    chosen = imported(whole, auth="header:Authorization=Token token={key}")
    need = parse_connector_manifest(chosen.files["manifest.toml"], file="manifest.toml", allow_unbound=True).credential

    assert (imported(whole).credential.format, imported(whole).credential.is_guess) == (form, True)
    assert need is not None
    assert (need.header, need.format, chosen.credential.is_guess) == ("Authorization", "Token token={key}", False)
    assert imported(whole, auth="header:X-Key=v1 {key}").credential.words == "an API key, as the header X-Key: v1 KEY"
    with pytest.raises(DocumentError, match=r"expected .key. once"):
        imported(whole, auth="header:Authorization=Token")


def test_a_client_credentials_scheme_becomes_a_credential_of_a_client() -> None:
    """The document says where its tokens come from and what for. The client authenticates in the standard's default way."""
    made = imported(secured({"it": CLIENT}, [{"it": ["write", "read"]}]))
    need = parse_connector_manifest(made.files["manifest.toml"], file="manifest.toml", allow_unbound=True).credential
    bare = imported(secured({"it": CLIENT}, [{"it": []}]))

    assert need is not None
    assert need.token == TokenGrant(
        grant="client_credentials",
        token_url="https://tok.example/token",
        client_auth="client_secret_basic",
        scopes=("read", "write"),
    )
    assert made.credential.asked_at == ("https://tok.example",)
    assert b"scopes = " not in bare.files["manifest.toml"]


@pytest.mark.parametrize(
    "scheme",
    [
        {"type": "mutualTLS"},
        {"type": "apiKey", "in": "cookie", "name": "sid"},
        *(
            {"type": "apiKey", "in": "header", "name": name}
            for name in (
                "Host",
                "Content-Length",
                "Transfer-Encoding",
                "Cookie",
                "Connection",
                "X-Forwarded-For",
                "a\r\nb",
                "",
            )
        ),
        {"type": "apiKey", "in": "query", "name": "a&b"},
        {"type": "http", "scheme": "digest"},
        {"type": [], "scheme": {}},
        {"type": "apiKey", "in": [], "name": {}},
        {"$ref": "#/nowhere"},
        {"$ref": "http://["},
        [],
        None,
    ],
)
def test_operations_with_an_unsupported_security_scheme_are_not_imported(scheme: Any) -> None:
    """Operations that need no credential are imported."""
    whole = document(
        {"/a": {"get": {"operationId": "one", "security": [{"it": []}]}}, "/b": {"get": {"security": []}}},
        components={"securitySchemes": {"it": scheme}},
    )

    assert "needs a credential (it)" in reason_of(imported(whole), "one")
    with pytest.raises(DocumentError, match="security scheme it:"):
        imported(whole, auth="it")


def test_the_security_scheme_of_most_operations_is_used() -> None:
    """Other operations are listed with the reason. An author's choice applies to all but those with `security: []`."""
    paths = {
        "/a": {"get": {"operationId": "a", "security": [{"key": []}]}},
        "/b": {"get": {"operationId": "b", "security": [{"key": []}, {"token": []}]}},
        "/c": {"get": {"operationId": "c", "security": [{"token": []}]}},
        "/d": {"get": {"operationId": "d", "security": [{"token": [], "key": []}]}},
        "/e": {"get": {"operationId": "e", "security": [{"key": []}, {}]}},
        "/f": {"get": {"operationId": "f", "security": []}},
    }
    whole = document(paths, components={"securitySchemes": {"token": BEARER, "key": KEY}})
    made, other = imported(whole), imported(whole, auth="bearer")

    assert made.credential.scheme == "key"
    assert _credential_of(made) == {"a": True, "b": True, "e": True, "f": False}
    assert "several credentials in one request (token and key)" in reason_of(made, "d")
    assert _credential_of(other) == {"a": True, "b": True, "c": True, "d": True, "e": True, "f": False}


def test_the_author_s_credential_applies_to_every_operation_of_a_document_without_credentials() -> None:
    """Kinto's document has `security: []` everywhere, because OpenAPI cannot express how it authenticates."""
    whole = document({"/a": {"get": {"operationId": "a", "security": []}}})

    assert _credential_of(imported(whole)) == {"a": False}
    assert _credential_of(imported(whole, auth="basic")) == {"a": True}


def _credential_of(made: Made) -> dict[str, bool]:
    manifest = parse_connector_manifest(made.files["manifest.toml"], file="manifest.toml", allow_unbound=True)
    assert manifest.operations is not None
    return {operation.name: operation.credential for operation in manifest.operations}


@pytest.mark.parametrize(
    "security", [None, [None], [[]], [{"it": 1}], [{"it": None}], {}, "x", [1, {"it": [1, None, "a b"]}]]
)
def test_any_security_value_is_read_or_refused(security: Any) -> None:
    """DocumentError is the only exception."""
    with contextlib.suppress(DocumentError):
        imported(secured({"it": BEARER}, security))


@pytest.mark.parametrize(
    "auth", ["Bearer", "header:", "header:Host", "header:a b", "query:a&b", "cookie:x", "nope", "\x1b[2J"]
)
def test_an_invalid_auth_option_is_refused(auth: str) -> None:
    """The refusal lists the valid ones."""
    with pytest.raises(DocumentError, match=r"--auth|key"):
        imported(secured({"it": BEARER}, []), auth=auth)


@pytest.mark.parametrize(
    ("parameter", "is_given"),
    [
        ({"name": "limit", "in": "query"}, True),
        ({"name": "key", "in": "query"}, True),
        ({"name": "key", "in": "query", "description": "Your API key."}, False),
        ({"name": "X-Key", "in": "header"}, False),
        ({"name": "x-key", "in": "header"}, False),
        ({"name": "X-Other", "in": "header"}, False),
        ({"name": "Authorization", "in": "header"}, False),
        ({"name": "X-Auth-Token", "in": "header"}, False),
        ({"name": "PRIVATE-TOKEN", "in": "header"}, False),
        ({"name": "access_token", "in": "query"}, False),
        ({"name": "client_secret", "in": "query"}, False),
    ],
)
def test_a_credential_is_never_an_argument(parameter: Json, is_given: bool) -> None:
    """The importer also recognizes credentials of other schemes, and parameters whose name suggests one."""
    schemes = {"it": KEY, "other": {"type": "apiKey", "in": "header", "name": "X-Other"}}
    made = imported(secured(schemes, [{"it": []}], parameters=[{"schema": {"type": "string"}, **parameter}]))

    assert ("[[inputs]]" in action_of(made, "x-one")) is is_given


def test_a_parameter_that_looks_like_a_credential_is_left_out() -> None:
    """An agent would have to know the key. The reason names the option that makes it a credential instead."""
    secret = {"name": "api_key", "in": "query", "schema": {"type": "string"}}
    made = imported(one_operation({"operationId": "one", "parameters": [secret]}))

    assert "give --auth query:api_key" in made.left_out["one"][0]
    assert imported(one_operation({"parameters": [secret]}), auth="query:api_key").credential.query == "api_key"
    with pytest.raises(DocumentError, match="give --auth query:api_key"):
        imported(one_operation({"parameters": [{**secret, "required": True}]}))


def test_the_number_of_security_schemes_is_bounded() -> None:
    """Each is compared with each operation."""
    with pytest.raises(DocumentError, match="security schemes; at most"):
        imported(secured({f"s{n}": KEY for n in range(201)}, [{"s1": []}]))
    assert imported(secured({f"s{n}": KEY for n in range(200)}, [{"s1": []}])).credential.scheme == "s1"
