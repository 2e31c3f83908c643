"""Fixtures of the sign-in and renewal tests: a provider over real TLS, the way to it, and a browser of a few lines."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import pytest

from aileron.config import LiveSettings, Settings
from aileron.egress import Egress
from aileron.model.credential import Client, OAuthGrant, TokenSet
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.vault import Binding, Vault
from tests.support.token_server import SCOPES, TokenServer
from tests.support.upstream import Authority


@pytest.fixture
def start_server(authority: Authority) -> Iterator[Callable[..., TokenServer]]:
    """Return a function that starts a provider with the options of TokenServer."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(TokenServer(authority.server_context("localhost"), **options))


@pytest.fixture
def server(start_server: Callable[..., TokenServer]) -> TokenServer:
    """Return a provider that rotates refresh tokens."""
    return start_server()


@pytest.fixture
async def endpoints(authority: Authority, server: TokenServer) -> AsyncIterator[Endpoints]:
    """Yield the real way to the provider, which the user allowed although it is on this machine."""
    async with endpoints_to(authority, server) as made:
        yield made


class Nobody:
    """A lender that must not be asked: no connector's credential is sent to a provider."""

    def lend(self, use: object) -> Any:
        raise AssertionError("a provider is asked with no connector's credential")


@contextlib.asynccontextmanager
async def endpoints_to(authority: Authority, *servers: TokenServer) -> AsyncIterator[Endpoints]:
    """Yield endpoints on the real egress engine; `servers` may be on this machine."""
    settings = Settings(egress_private=frozenset(server.address for server in servers), egress_ca_pem=authority.ca_pem)
    egress = Egress(settings, Nobody())  # type: ignore[arg-type]
    try:
        yield Endpoints(egress, LiveSettings(settings))
    finally:
        await egress.aclose()


def asked_for(authorize_url: str) -> dict[str, str]:
    """Return the parameters of an authorization request; each must occur once."""
    parsed = parse_qs(urlsplit(authorize_url).query, keep_blank_values=True, strict_parsing=True)
    assert all(len(values) == 1 for values in parsed.values())
    return {name: values[0] for name, values in parsed.items()}


async def visit(port: int, target: str, **options: Any) -> tuple[int, dict[str, str], str]:
    """Send one request to the callback as a browser does; return status, fields by name in lower case, and page."""
    return await anyio.to_thread.run_sync(lambda: visited(port, target, **options))


def visited(
    port: int,
    target: str,
    *,
    host: str | None = None,
    method: str = "GET",
    address: str = "127.0.0.1",
    raw: bytes | None = None,
) -> tuple[int, dict[str, str], str]:
    """Send the request of `visit` from a worker thread. Status 0: closed without a response."""
    head = (
        raw or f"{method} {target} HTTP/1.1\r\nHost: {host or f'localhost:{port}'}\r\nUser-Agent: Test\r\n\r\n".encode()
    )
    with socket.create_connection((address, port), timeout=20) as client:
        client.sendall(head)
        said = bytearray()
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65536):
                said += piece
    top, _, page = bytes(said).partition(b"\r\n\r\n")
    if not top:
        return 0, {}, ""
    first, *lines = top.decode("ascii").split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split(" ")[1]), fields, page.decode()


def callback(asked: dict[str, str], **changes: str | None) -> str:
    """Return the target to which the provider sends a browser: a good answer but for `changes` (None: left out)."""
    given = {"code": "canary-code-of-the-provider", "state": asked["state"], **changes}
    return f"/callback?{urlencode({name: value for name, value in given.items() if value is not None})}"


def port_of(asked: dict[str, str]) -> int:
    """Return the port at which the answer is awaited."""
    port = urlsplit(asked["redirect_uri"]).port
    assert port is not None
    return port


def signed_in(
    vault: Vault, server: TokenServer, name: BindingName, connector: str, at: float, client_secret: str | None = None
) -> None:
    """Store the result of a sign-in at `at` (s since the epoch): one binding, and tokens that `server` renews."""
    server.refresh = "canary-refresh-token-0"
    tokens = TokenSet(
        access=Secret(b"canary-access-token-0"),
        refresh=Secret(server.refresh.encode()),
        expires_at=None,
        scopes=SCOPES,
        client=Client(
            client_id="client-of-the-publisher",
            client_secret=client_secret,
            token_url=server.url("/token"),
            revocation_url=None,
        ),
    )
    grant = OAuthGrant(scopes=SCOPES, obtained_ms=int(at * 1000), refreshable=True)
    vault.set_secret("mail", tokens.sealed())
    vault.bind(Binding(name, connector, "oauth2", None, "mail", at, None, grant))
