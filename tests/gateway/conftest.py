r"""A gateway behind the daemon's own server, with both its neighbours as sockets of the test.

The gateway runs in a thread of its own, under `aileron.ingress.server.serve`. The client and the provider are blocking sockets
that the test reads and writes in any order: it reads what must have arrived before it sends anything else. Every read has a
deadline; a read that never ends fails the test.

>>> with gateway(provider.settings()) as port, Line.to(port) as client:
...     client.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
...     with provider.answering() as upstream:
...         upstream.head().start
b'GET /v1/models HTTP/1.1'
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from aileron.config import GatewaySettings, LiveSettings, Settings, Upstream
from aileron.daemon.http.ingress import Ingress, TcpService
from aileron.gateway.inject.exchange import Injection
from aileron.gateway.proxy import Gateway, gateway_app
from aileron.gateway.upstreams import PATHS
from aileron.ingress.known import KnownCallers
from aileron.ingress.server import serve
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret

DEADLINE_S = 20.0
"""Seconds for anything that must happen; a machine may be busy."""
TOKEN = "ail_" + "t" * 43
KEY = b"sk-the-upstreams-own-key"


@dataclasses.dataclass
class ScriptedKeys:
    """Sessions and a vault, as a test sets them."""

    locked: bool = False
    disagreement: AileronError | None = None
    tokens: frozenset[str] = frozenset({TOKEN})
    secrets: dict[str, bytes] = dataclasses.field(default_factory=lambda: {"claude": KEY, "gpt": KEY})

    def check_settings(self) -> None:
        """Raise the disagreement that the test set."""
        if self.disagreement is not None:
            raise self.disagreement

    def vault_is_locked(self) -> bool:
        """Return whether the test locked the vault."""
        return self.locked

    async def upstream_key(self, secret: str) -> Secret:
        """Return one of `secrets`; raise AileronError if it is missing or the vault is locked."""
        if self.locked:
            raise AileronError(FailureClass.VAULT_LOCKED, "the vault is locked")
        if secret not in self.secrets:
            raise AileronError(FailureClass.BINDING_REQUIRED, f"there is no secret {secret!r}")
        return Secret(self.secrets[secret])

    async def check_token(self, token: str) -> None:
        """Raise AileronError(unauthorized) if the token is not one of `tokens`."""
        if token not in self.tokens:
            raise AileronError(FailureClass.UNAUTHORIZED, "no open session has this token")


@dataclasses.dataclass(frozen=True)
class Head:
    """Head of a message: its first line, and its fields in order with names in lower case."""

    start: bytes
    fields: list[tuple[bytes, bytes]]

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """Parse a head; `raw` is without the empty line."""
        start, *lines = raw.split(b"\r\n")
        pairs = [line.partition(b":") for line in lines]
        return cls(start, [(name.lower(), value.strip()) for name, _, value in pairs])

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.start.split(b" ")[1])

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of a field."""
        return [value for found, value in self.fields if found == name]

    def without(self, *names: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields except these."""
        return [(name, value) for name, value in self.fields if name not in names]


class Line(contextlib.AbstractContextManager["Line"]):
    """The test's end of a connection, with received bytes that were not read yet."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(DEADLINE_S)
        self.sock = sock
        self._rest = b""

    @classmethod
    def to(cls, port: int | Path, receive_buffer: int | None = None) -> Line:
        """Open a connection on loopback, or to a Unix socket."""
        sock = socket.socket(socket.AF_INET if isinstance(port, int) else socket.AF_UNIX)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", port) if isinstance(port, int) else str(port))
        return cls(sock)

    def __exit__(self, *_exc: object) -> None:
        self.sock.close()

    def say(self, data: bytes) -> None:
        """Send all of the data."""
        self.sock.sendall(data)

    def exactly(self, size: int) -> bytes:
        """Read that many bytes."""
        while len(self._rest) < size:
            self._more()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def until(self, mark: bytes) -> bytes:
        """Read up to the mark, and drop the mark."""
        while mark not in self._rest:
            self._more()
        found, _, self._rest = self._rest.partition(mark)
        return found

    def some(self) -> bytes:
        """Read the next bytes, however many."""
        self._more()
        found, self._rest = self._rest, b""
        return found

    def head(self) -> Head:
        """Read the next head of a message."""
        return Head.of(self.until(b"\r\n\r\n"))

    def chunk(self) -> bytes:
        """Read the next chunk; the last one is empty."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def chunks(self) -> list[bytes]:
        """Read all chunks up to the last."""
        return list(iter(self.chunk, b""))

    def message(self) -> tuple[Head, bytes]:
        """Read a whole message: by its length, or in chunks."""
        head = self.head()
        if head.all(b"transfer-encoding") == [b"chunked"]:
            return head, b"".join(self.chunks())
        return head, self.exactly(int((head.all(b"content-length") or [b"0"])[0]))

    def is_at_end(self) -> bool:
        """Wait for the next byte or the end, and return whether it is the end. A reset is an end too."""
        try:
            self._rest += (data := self.sock.recv(65536))
        except ConnectionError:
            return True
        return not data and not self._rest

    def reset(self) -> None:
        """Reset the connection (SO_LINGER of zero: socket(7))."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError(f"ended after {self._rest!r}")
        self._rest += data


def refusal(client: Line) -> tuple[int, str, str]:
    """Read a response of the gateway's own, and return its status, class and message."""
    head, body = client.message()
    assert head.all(b"content-type") == [b"application/json"]
    error = json.loads(body)["error"]
    assert sorted(error) == ["audit_id", "boundary", "class", "details", "message", "retriable"]
    return head.status, error["class"], error["message"]


class Provider(contextlib.AbstractContextManager["Provider"]):
    """A listening socket in the place of a provider's API."""

    def __init__(self, receive_buffer: int | None = None) -> None:
        self._listener = socket.socket()
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.settimeout(DEADLINE_S)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self.port: int = self._listener.getsockname()[1]

    def __exit__(self, *_exc: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        """The URL for the settings."""
        return f"http://127.0.0.1:{self.port}"

    def settings(self, *, prefix: str = "", secret: bool = False, require_vault: bool = True) -> Settings:
        """Return settings in which both APIs are this provider."""
        return Settings(
            gateway=GatewaySettings(
                anthropic=Upstream(self.url + prefix, "claude" if secret else None),
                openai=Upstream(self.url + prefix, "gpt" if secret else None),
                require_vault=require_vault,
            )
        )

    def answering(self) -> Line:
        """Accept the next connection."""
        return Line(self._listener.accept()[0])

    @contextlib.contextmanager
    def asked(self, port: int | Path, request: bytes, receive_buffer: int | None = None) -> Iterator[tuple[Line, Line]]:
        """Send a request as a new client of a gateway. Yield the client, and the connection to here, not read yet."""
        with Line.to(port, receive_buffer) as client:
            client.say(request)
            with self.answering() as upstream:
                yield client, upstream

    def answers(self, client: Line) -> Head:
        """Answer what the client has sent, and check that it gets the answer. Return the request's head."""
        with self.answering() as upstream:
            head = upstream.head()
            upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert client.head().status == 200
        return head

    def is_called(self) -> bool:
        """Return whether a client has connected and was not accepted yet."""
        self._listener.settimeout(0)
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        finally:
            self._listener.settimeout(DEADLINE_S)
        return True


def refused(port: int, provider: Provider, request: bytes) -> tuple[int, str, str]:
    """Return the refusal of a request of a new client, and check that nothing was sent."""
    with Line.to(port) as client:
        client.say(request)
        answer = refusal(client)
    assert not provider.is_called()
    return answer


@contextlib.contextmanager
def gateway(
    settings: Settings,
    keys: ScriptedKeys | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    known: KnownCallers | None = None,
    injection: Injection | None = None,
) -> Iterator[int]:
    """Run a gateway, and yield its port. With `tls` it is as on `daemon.listen`; with `known` it is behind an ingress, to which
    those callers are known; with `injection` some sessions' requests get tools.
    """
    listener = socket.create_server(("127.0.0.1", port))
    found: int = listener.getsockname()[1]
    tokens: list[anyio.lowlevel.EventLoopToken] = []
    started, stop = threading.Event(), anyio.Event

    async def run() -> None:
        stopped = stop()
        app = gateway_app(LiveSettings(settings), keys or ScriptedKeys(), [listener.getsockname()], injection)
        tokens.append(anyio.lowlevel.current_token())
        events.append(stopped)
        started.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.serve)
            if known is None:
                await serve(_WithoutLifespan(app), [listener], stopped.wait, tls)
            else:
                await Ingress({"gateway": TcpService([listener], app)}, known, PATHS).serve(stopped.wait)
            tasks.cancel_scope.cancel()
        await app.aclose()

    events: list[anyio.Event] = []
    thread = threading.Thread(target=anyio.run, args=(run,))
    thread.start()
    assert started.wait(DEADLINE_S)
    try:
        yield found
    finally:
        anyio.from_thread.run_sync(events[0].set, token=tokens[0])
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


class _WithoutLifespan:
    """Wrapper for the gateway like the daemon's, but without the checks against browsers."""

    def __init__(self, app: Gateway) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        await self._app(scope, receive, send)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Start a provider that listens."""
    with Provider() as listening:
        yield listening


@pytest.fixture
def port(provider: Provider) -> Iterator[int]:
    """Start a gateway to it without a key of its own."""
    with gateway(provider.settings()) as running:
        yield running
