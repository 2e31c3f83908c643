"""A sign-in at a scripted provider, and a service that accepts its tokens: shared by tests that go through a daemon.

    with signed_world(authority, tmp_path) as world:
        assert world.sign_in()["status"] == "done"
        assert world.ask().status == 200
        assert world.service.tokens == [world.provider.access[-1]]

The provider is token_server.py, the browser a few lines; the real ones are in tests/browser. When the block ends, no file of the
home but the archives of its connectors holds a token.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aileron.client import Answer
from tests.support.home import DaemonHome, daemon_home, probe_action
from tests.support.token_server import CLIENT_SECRET, SCOPES, TokenServer
from tests.support.upstream import Authority, Seen, Upstream, answer

__all__ = ["CONNECTOR", "NAME", "Service", "World", "called_back", "signed_world", "state_of"]

CONNECTOR = "github://aileron-tests/reflector"
NAME = "oauth2/mail/me"
_SOURCE = Path(__file__).parent / "connectors" / "reflector"
_CANARY = re.compile(rb"canary-(access|refresh)-token|canary-client-secret")


class Service:
    """An API that accepts the provider's newest access token and no other, and repeats it in its response."""

    def __init__(self, authority: Authority, provider: TokenServer) -> None:
        self._provider = provider
        self.accepts: set[str] | None = None
        self.tokens: list[str] = []
        self.upstream = Upstream(self._answer, authority.server_context("localhost"))

    def _answer(self, seen: Seen) -> bytes:
        token = " ".join(seen.values("authorization")).removeprefix("Bearer ")
        self.tokens.append(token)
        accepted = {self._provider.access[-1]} if self.accepts is None else self.accepts
        if token not in accepted:
            return answer(b"who are you", "WWW-Authenticate: Bearer error=invalid_token", status="401 Unauthorized")
        return answer(f"hello {token}".encode())


class World:
    """A provider, a service, and a home with a connector for them, before any sign-in."""

    def __init__(self, home: DaemonHome, provider: TokenServer, service: Service, work: Path) -> None:
        self.home = home
        self.provider = provider
        self.service = service
        self._work = work

    def install(
        self, version: str = "1.0.0", scopes: tuple[str, ...] = SCOPES, *, logs_in: str | None = None, **changes: str
    ) -> Answer:
        """Install the reflector as a connector that signs in; `changes` as TokenServer.provider takes them.

        `logs_in`: HOST:PORT of a server to which it logs in by IMAP too.
        """
        source = self._work / version
        shutil.copytree(_SOURCE, source)
        text = self._manifest(version, scopes, changes)
        if logs_in is not None:
            text = text.replace("hosts = [", f'hosts = ["{logs_in}", ').replace("imports = [", 'imports = ["tcp", ')
            text = text.replace('kind = "oauth2"', f'kind = "oauth2"\nlogins = ["imap://{logs_in}"]')
        (source / "manifest.toml").write_text(text)
        return self.home.ask("POST", "/v1/connectors", {"path": str(source)})

    def made_here(self, service: str) -> Path:
        """Write the reflector as a connector of another name, with the action SERVICE-ask. Return its directory."""
        source = self._work / service
        shutil.copytree(_SOURCE, source)
        text = self._manifest("1.0.0", SCOPES, {}).replace(CONNECTOR, f"{CONNECTOR}-{service}")
        (source / "manifest.toml").write_text(text)
        action = source / "actions" / f"{service}-ask" / "action.md"
        action.parent.mkdir(parents=True)
        inputs = ("url:string", "credential:string")
        action.write_text(probe_action("ask", *inputs, name=f"{service}-ask", connector=f"{CONNECTOR}-{service}"))
        return source

    def _manifest(self, version: str, scopes: tuple[str, ...], changes: dict[str, str]) -> str:
        asked = self.provider.provider(**changes)
        return f"""
[connector]
name = "{CONNECTOR}"
version = "{version}"
[capabilities.network]
hosts = ["localhost:{self.service.upstream.port}", "{self.provider.address}"]
[capabilities.credential]
kind = "oauth2"
scope = "Read your mail"
[capabilities.credential.oauth2]
authorize_url = "{asked.authorize_url}"
token_url = "{asked.token_url}"
device_authorization_url = "{asked.device_authorization_url}"
revocation_url = "{asked.revocation_url}"
client_id = "{asked.client_id}"
client_secret = "{CLIENT_SECRET}"
scopes = {json.dumps(list(scopes))}
[capabilities.runtime]
imports = ["http", "log", "audit", "progress"]
"""

    def begin(self, name: str = NAME, **more: Any) -> dict[str, Any]:
        """Begin to sign in."""
        body = {"connector": CONNECTOR, "name": name, "flow": "browser", **more}
        begun: dict[str, Any] = self.home.must("POST", "/v1/sign-ins", body)
        return begun

    def end(self, begun: dict[str, Any], wait: float = 30.0) -> dict[str, Any]:
        """Wait for the end of the sign-in. Return how it ended."""
        path = f"/v1/sign-ins/{begun['id']}?wait={wait:g}"
        ended: dict[str, Any] = self.home.must("GET", path, wait_s=wait)
        return ended

    def sign_in(self, name: str = NAME, **more: Any) -> dict[str, Any]:
        """Sign in completely: the person consents on the provider's page."""
        begun = self.begin(name, **more)
        called_back(begun["authorize_url"])
        return self.end(begun)

    def ask(self, **args: str) -> Answer:
        """Run the action that asks the service with the credential."""
        url = f"https://localhost:{self.service.upstream.port}/"
        return self.home.run("ask", {"url": url, "credential": "oauth2", **args})

    def binding(self, name: str = NAME) -> dict[str, Any]:
        """Return the binding as the daemon shows it."""
        found: dict[str, Any] = self.home.must("GET", f"/v1/bindings/{name}")
        return found

    def types(self, *wanted: str) -> list[str]:
        """Return the recorded events of these types, oldest first."""
        found = self.home.must("GET", "/v1/audit?limit=1000")["events"]
        return [event["type"] for event in reversed(found) if event["type"] in wanted]


def _connected(address: str, port: int) -> socket.socket:
    return socket.create_connection((address, port), timeout=30)


def called_back(authorize_url: str, connect: Callable[[str, int], socket.socket] = _connected, **query: str) -> bytes:
    """Do a browser's part after the person consented: request the redirect to the loopback port. Return the response.

    The request has this query or, without one, a code and the state that belongs to it. `connect` reaches the browser's machine.
    """
    asked = {name: values[0] for name, values in parse_qs(urlsplit(authorize_url).query).items()}
    back = urlsplit(asked["redirect_uri"])
    words = urlencode(query or {"code": "a-code-of-the-provider", "state": asked["state"]})
    with connect("127.0.0.1", back.port or 0) as connection:
        request = f"GET {back.path}?{words} HTTP/1.1\r\nHost: {back.netloc}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        with connection.makefile("rb") as reader:
            return reader.read()


def state_of(authorize_url: str) -> str:
    """Return the state that the provider must send back."""
    return parse_qs(urlsplit(authorize_url).query)["state"][0]


@contextlib.contextmanager
def signed_world(authority: Authority, work: Path) -> Iterator[World]:
    """Yield a world with the connector installed and an action `ask` for it; `work` is an empty directory."""
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(TokenServer(authority.server_context("localhost")))
        service = Service(authority, provider)
        stack.enter_context(service.upstream)
        home = stack.enter_context(daemon_home())
        private = f'["localhost:{service.upstream.port}", "{provider.address}"]'
        home.configure(f'[egress]\nprivate = {private}\nca_file = "{authority.ca_file}"\n')
        home.unlock()
        made = World(home, provider, service, work)
        assert not made.install().is_error
        inputs = ("url:string?", "method:string?", "header:string?", "credential:string?")
        home.add_probe_action("ask", *inputs, connector=CONNECTOR)
        yield made
        for path in home.path.rglob("*"):
            if path.is_file() and "store" not in path.parts:
                assert not _CANARY.search(path.read_bytes()), f"{path} holds a token"
