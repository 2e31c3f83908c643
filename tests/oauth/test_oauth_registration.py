"""A client that a sign-in registers for itself: the request, the checks of the answer, and the limits of a provider."""

from __future__ import annotations

import logging
import socket
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.credential import TokenSet
from aileron.model.failure import AileronError
from aileron.model.manifest import OAuth2Provider
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.problems import ProviderError
from aileron.oauth.registration import MAX_CLIENT_CHARACTERS, read_registration
from aileron.oauth.signin import GrantedTokens, SignIn
from tests.oauth.conftest import asked_for, callback, endpoints_to, port_of, visit
from tests.support.token_server import (
    Asked,
    Said,
    TokenServer,
    json_answer,
    oauth_error,
    registration_answer,
    tokens_answer,
)
from tests.support.upstream import Authority, answer

pytestmark = pytest.mark.anyio

NOW: Final = 1_795_233_600.0
AGAIN: Final = "aileron binding setup github://you/mail"
REDIRECT: Final = "http://localhost:4242/callback"
RESOURCE: Final = "https://mail.example/mcp"


def unregistered(server: TokenServer, **changes: Any) -> OAuth2Provider:
    """Return a manifest's provider without an application of the publisher."""
    whole = {"client_id": None, "client_secret": None, "registration_url": server.url("/register"), **changes}
    return server.provider(**whole)


def saying(**changes: Any) -> Said:
    """Return a registration's answer with these changes."""
    return lambda asked: json_answer(registration_answer(asked.document, **changes), "201 Created")


async def signed_in(endpoints: Endpoints, provider: OAuth2Provider) -> tuple[GrantedTokens, dict[str, str], str]:
    """Run a whole sign-in; return the grant, the parameters of the browser's address, and the last page."""
    with anyio.fail_after(60):
        async with SignIn(provider, endpoints, flow="browser", again=AGAIN, clock=lambda: NOW) as sign_in:
            asked = asked_for(sign_in.invitation.authorize_url or "")
            pages: list[str] = []

            async def browse() -> None:
                pages.append((await visit(port_of(asked), callback(asked)))[2])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(browse)
                granted = await sign_in.finished()
    return granted, asked, pages[0]


async def refused(endpoints: Endpoints, provider: OAuth2Provider) -> AileronError:
    """Return the error of a sign-in that must not begin."""
    with pytest.raises(AileronError) as caught:
        await signed_in(endpoints, provider)
    return caught.value


def port_registered(asked: Asked) -> int:
    """Return the port of the redirect for which the client was registered."""
    (uri,) = asked.document["redirect_uris"]
    port: int | None = urllib.parse.urlsplit(uri).port
    assert uri == f"http://localhost:{port}/callback"
    assert port is not None
    return port


def is_open(port: int) -> bool:
    """Return whether a program listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.abuse_case("O20")
async def test_a_client_is_registered_only_for_the_port_on_which_the_callback_is_awaited(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The request is sent without a credential; each token request then names that client and the resource."""
    was_open: list[bool] = []

    def registers(asked: Asked) -> bytes:
        was_open.append(is_open(port_registered(asked)))
        return json_answer(registration_answer(asked.document), "201 Created")

    server.says(registers)
    granted, asked, _ = await signed_in(endpoints, unregistered(server, resource=RESOURCE))
    registration, exchange = server.asked
    kept = granted.tokens.sealed().reveal()

    assert registration.document == {
        "client_name": "Aileron",
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [asked["redirect_uri"]],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": "mail.read mail.send",
    }
    assert registration.seen.values("content-type") == ["application/json"]
    assert registration.seen.values("authorization") == []
    assert was_open == [True]
    assert (asked["client_id"], asked["resource"]) == ("client-of-this-sign-in", RESOURCE)
    assert (exchange.form["client_id"], exchange.form["resource"]) == ("client-of-this-sign-in", RESOURCE)
    assert "client_secret" not in exchange.form
    assert b"client-of-this-sign-in" in kept
    assert b"canary-registration-token" not in kept
    assert TokenSet.unsealed(granted.tokens.sealed()).client == granted.tokens.client


async def test_no_client_is_registered_if_the_manifest_has_an_application_of_the_publisher(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """A manifest may have both: then nothing is registered."""
    _, asked, _ = await signed_in(endpoints, unregistered(server, client_id="client-of-the-publisher"))

    assert asked["client_id"] == "client-of-the-publisher"
    assert server.to("/register") == []


async def test_a_device_sign_in_registers_a_client_without_a_redirect(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """A manifest without scopes sends none; the granted scopes are those of the provider's answer."""
    server.says(server._good, server._good, json_answer(tokens_answer(scope="whatever it is")))
    provider = unregistered(server, scopes=(), resource=RESOURCE)
    async with SignIn(provider, endpoints, flow="device", sleep=lambda _: anyio.lowlevel.checkpoint()) as sign_in:
        granted = await sign_in.finished()
    registration, device, exchange = server.asked

    assert registration.document == {
        "client_name": "Aileron",
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "grant_types": ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
        "response_types": [],
    }
    assert device.form == {"client_id": "client-of-this-sign-in", "resource": RESOURCE}
    assert (exchange.form["resource"], exchange.form["client_id"]) == (RESOURCE, "client-of-this-sign-in")
    assert granted.grant.scopes == ("is", "it", "whatever")


SECRET: Final = "canary-secret-of-this-client"
SECRETS: Final[dict[str, tuple[dict[str, Any], str | None]]] = {
    "given and no method named": ({"token_endpoint_auth_method": None, "client_secret": SECRET}, SECRET),
    "to be sent in the form": (
        {"token_endpoint_auth_method": "client_secret_post", "client_secret": SECRET, "client_secret_expires_at": 0},
        SECRET,
    ),
    "that ends later": (
        {"token_endpoint_auth_method": None, "client_secret": SECRET, "client_secret_expires_at": NOW + 60},
        SECRET,
    ),
    "of a public client": ({"client_secret": SECRET}, None),
    "none": ({"token_endpoint_auth_method": None}, None),
}


@pytest.mark.parametrize(("changes", "sent"), SECRETS.values(), ids=SECRETS.keys())
async def test_the_secret_of_a_registered_client_is_stored_with_its_tokens(
    changes: dict[str, Any], sent: str | None, server: TokenServer, endpoints: Endpoints
) -> None:
    """The secret is sent in the form, only if the provider requires it, and is not in the repr."""
    server.says(saying(**changes))
    granted, _, _ = await signed_in(endpoints, unregistered(server))

    assert server.asked[-1].form.get("client_secret") == sent
    assert granted.tokens.client.client_secret == sent
    assert "canary" not in repr(granted.tokens.client)


HOSTILE: Final[dict[str, tuple[Said, str]]] = {
    "no client": (saying(client_id=None), "bad_answer"),
    "a number": (saying(client_id=7), "bad_answer"),
    "empty": (saying(client_id=""), "bad_answer"),
    "a line of its own": (saying(client_id="canary\r\nX-Evil: yes"), "bad_answer"),
    "for a terminal": (saying(client_id="canary\x1b[2J"), "bad_answer"),
    "turned round": (saying(client_id="canary\u202e"), "bad_answer"),
    "a blank": (saying(client_id="canary canary"), "bad_answer"),
    "longer than an address": (saying(client_id="c" * 2049), "bad_answer"),
    "a key twice": (json_answer(b'{"client_id":"canary-1","client_id":"canary-2"}'), "bad_answer"),
    "huge": (saying(x="y" * 70_000), "bad_answer"),
    "deep": (json_answer(b'{"client_id":' * 9000 + b"1" + b"}" * 9000), "bad_answer"),
    "NaN": (json_answer(b'{"client_id":"canary-1","client_secret_expires_at":NaN}'), "bad_answer"),
    "a page": (answer(b"<h1>canary</h1>"), "bad_answer"),
    "another way back": (saying(redirect_uris=["https://evil.example/callback"]), "bad_answer"),
    "a way back that is none": (saying(redirect_uris="http://localhost/callback"), "bad_answer"),
    "a secret in the header": (
        saying(token_endpoint_auth_method="client_secret_basic", client_secret=SECRET),
        "unsupported_client",
    ),
    "a key": (saying(token_endpoint_auth_method="private_key_jwt"), "unsupported_client"),
    "a method that is none": (saying(token_endpoint_auth_method=["none"]), "unsupported_client"),
    "a secret that is none": (saying(token_endpoint_auth_method=None, client_secret=7), "bad_answer"),
    "a secret with a line": (saying(token_endpoint_auth_method=None, client_secret="canary\n"), "bad_answer"),
    "no secret": (saying(token_endpoint_auth_method="client_secret_post"), "bad_answer"),
    "a secret that has ended": (
        saying(token_endpoint_auth_method=None, client_secret=SECRET, client_secret_expires_at=NOW),
        "bad_answer",
    ),
    "a secret without a time": (
        saying(token_endpoint_auth_method=None, client_secret=SECRET, client_secret_expires_at="soon"),
        "bad_answer",
    ),
    "elsewhere": (
        answer(b"", "Location: https://evil.example/register", status="307 Temporary Redirect"),
        "redirected",
    ),
    "members only": (oauth_error("invalid_token", "401 Unauthorized"), "registration_closed"),
    "no way back to a machine": (oauth_error("invalid_redirect_uri"), "invalid_redirect_uri"),
    "no such client": (oauth_error("invalid_client_metadata", error_description="canary"), "invalid_client_metadata"),
    "an error with 200": (json_answer({"error": "invalid_client_metadata"}), "invalid_client_metadata"),
    "down": (answer(b"canary", status="503 Service Unavailable"), "unavailable"),
}


@pytest.mark.abuse_case("O20")
@pytest.mark.parametrize(("said", "code"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_an_invalid_registration_response_is_not_quoted_and_leaves_no_port_open(
    said: Said, code: str, server: TokenServer, endpoints: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """The sign-in did not begin: no address to open, no token request. With a good answer the same provider signs in."""
    caplog.set_level(logging.DEBUG)
    server.says(said)
    error = await refused(endpoints, unregistered(server))

    assert error.failure.details["code"] == code
    assert AGAIN in str(error)
    assert "canary" not in f"{error!r}{error.failure!r}{caplog.text}"
    assert error.__cause__ is None
    assert not is_open(port_registered(server.asked[0]))
    assert server.to("/token") == []
    assert (await signed_in(endpoints, unregistered(server)))[0].grant.refreshable


_ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(REDIRECT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_METHODS: Final = st.sampled_from(["none", "client_secret_post", "client_secret_basic", None])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "client_id": _ANYTHING,
            "client_secret": _ANYTHING,
            "client_secret_expires_at": _ANYTHING,
            "redirect_uris": _ANYTHING | st.just([REDIRECT]),
            "token_endpoint_auth_method": _ANYTHING | _METHODS,
        },
    )
)
def test_any_registration_response_gives_a_usable_client_or_an_error(found: dict[str, Any]) -> None:
    """Any other exception is a failure, and a kept client fits into a form and an address."""
    provider = OAuth2Provider(
        authorize_url="https://id.example/a",
        token_url="https://id.example/t",
        registration_url="https://id.example/r",
        scopes=(),
    )
    try:
        client = read_registration(found, provider, REDIRECT, "id.example", NOW)
    except ProviderError:
        return
    kept = [client.client_id, *([] if client.client_secret is None else [client.client_secret])]
    assert all(1 <= len(value) <= MAX_CLIENT_CHARACTERS and value.isascii() for value in kept)
    assert all(value.isprintable() and " " not in value for value in kept)
    assert REDIRECT in found.get("redirect_uris", [REDIRECT]) or found["redirect_uris"] is None


@pytest.mark.abuse_case("O20")
async def test_a_client_id_with_markup_stays_one_parameter_and_is_on_no_page(
    server: TokenServer, endpoints: Endpoints
) -> None:
    """The provider chooses any visible ASCII for it; no page shows it, and in an address it is encoded."""
    markup = '"><script>alert(1)</script>&redirect_uri=https://evil.example/#'
    server.says(saying(client_id=markup))
    _, asked, page = await signed_in(endpoints, unregistered(server))

    assert asked["client_id"] == markup
    assert asked["redirect_uri"].startswith("http://localhost:")
    assert server.asked[-1].form["client_id"] == markup
    assert "script" not in page


@pytest.mark.abuse_case("O20")
async def test_cancelling_during_a_registration_leaves_no_port_open(server: TokenServer, endpoints: Endpoints) -> None:
    """The person cancels before there is an address to open."""
    server.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(signed_in, endpoints, unregistered(server))
        await anyio.to_thread.run_sync(server.wait_asked)
        port = port_registered(server.asked[0])
        was_open = is_open(port)
        tasks.cancel_scope.cancel()
    server.release()

    assert was_open
    assert not is_open(port)


async def test_a_client_registration_is_not_sent_to_a_local_address_without_the_user_s_permission(
    authority: Authority, server: TokenServer, start_server: Callable[..., TokenServer]
) -> None:
    """A manifest cannot direct it at the machine's own network."""
    other = start_server()
    async with endpoints_to(authority, server) as endpoints:
        error = await refused(endpoints, unregistered(server, registration_url=other.url("/register")))
        good = await signed_in(endpoints, unregistered(server))

    assert error.failure.details["code"] == "not_allowed_yet"
    assert f"aileron config add egress.private {other.address}" in str(error)
    assert other.connections == 0
    assert good[0].grant.refreshable
