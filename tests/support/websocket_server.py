"""A real WebSocket server, the `websockets` library over TLS on loopback, that does what the path of a request says.

One thread with an event loop of its own, started once for all tests of a module. Messages of clients are kept under the last
segment of their path, which each test chooses for itself.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import http
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server as WebSockets
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from tests.support.serving import Server

__all__ = ["Asked", "WebSocketServer"]

LARGE_BYTES = 3 << 20
"""Bytes of a message from `/large/…`: more than a frame of the jail holds."""


@dataclasses.dataclass
class Asked:
    """A handshake, and the messages after it."""

    path: str
    headers: Headers
    messages: list[str | bytes] = dataclasses.field(default_factory=list)
    close_code: int | None = None
    close_reason: str | None = None
    is_over: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def query(self) -> dict[str, list[str]]:
        """The query, decoded."""
        return parse_qs(urlsplit(self.path).query)


class WebSocketServer(Server):
    """A server that runs between enter and exit. The path is `/WHAT/NAME`; `asked[NAME]` is the handshake with that name."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="websocket server", daemon=True)
        self.port = 0
        self.asked: dict[str, Asked] = {}
        self.accepted_token = ""
        """Token that `/token/NAME` accepts in a header or a query, and `/first/NAME` in a first message; any other is refused."""
        self.sent = collections.defaultdict[str, threading.Event](threading.Event)
        """Events by name, set once all numbers of `/many/NAME` are sent."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block."""
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        yield
        server.close()
        asyncio.run_coroutine_threadsafe(server.wait_closed(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def closed(self, name: str) -> int | None:
        """Wait until the client has closed. Return its code."""
        assert self.asked[name].is_over.wait(10)
        return self.asked[name].close_code

    async def _start(self) -> WebSockets:
        server = await serve(
            self._handle,
            "127.0.0.1",
            0,
            ssl=self._tls,
            process_request=self._process,
            subprotocols=[Subprotocol("chat.v2"), Subprotocol("chat.v1")],
            select_subprotocol=_select,
            max_size=8 << 20,
            ping_interval=None,
            close_timeout=1,
        )
        self.port = next(iter(server.sockets)).getsockname()[1]
        return server

    def _process(self, connection: ServerConnection, request: Request) -> Response | None:
        what, name = _parts(request.path)
        asked = self.asked[name] = Asked(request.path, request.headers)
        if what == "refuse":
            status = http.HTTPStatus(int(asked.query["status"][0]))
            return connection.respond(status, f"no: {request.headers.get('Authorization', '')}")
        if what == "token" and not self._is_accepted(asked):
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "who are you?")
        return None

    def _is_accepted(self, asked: Asked) -> bool:
        given = [asked.headers.get("Authorization", ""), asked.headers.get("X-Key", ""), *asked.query.get("key", ())]
        return self.accepted_token in given

    async def _handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        what, name = _parts(connection.request.path)
        asked = self.asked[name]
        with contextlib.suppress(ConnectionClosed):  # the client went away
            await getattr(self, f"_{what.replace('-', '_')}", _echo)(connection, asked)
        await connection.close()
        asked.close_code, asked.close_reason = connection.close_code, connection.close_reason
        asked.is_over.set()

    async def _first(self, connection: ServerConnection, asked: Asked) -> None:
        """Require the token in the first message."""
        first = await connection.recv()
        asked.messages.append(first)
        if self.accepted_token not in str(first):
            await connection.close(4401, "who are you?")
            return
        await connection.send("welcome")
        await _echo(connection, asked)

    async def _ping(self, connection: ServerConnection, asked: Asked) -> None:
        """Ping the client, then report its pong."""
        answered = await connection.ping(b"are you there")
        await asyncio.wait_for(answered, 5)
        await connection.send("you are")
        await _echo(connection, asked)

    async def _close(self, connection: ServerConnection, asked: Asked) -> None:
        """Close at once, with the code and reason of the query."""
        await connection.close(int(asked.query["code"][0]), asked.query["reason"][0])

    async def _ping_once(self, connection: ServerConnection, asked: Asked) -> None:
        """Ping the client, report its pong, and close."""
        await asyncio.wait_for(await connection.ping(), 5)
        await connection.send("you are")

    async def _reflect_once(self, connection: ServerConnection, asked: Asked) -> None:
        """Send the request's headers, and close."""
        await connection.send("\n".join(f"{name}: {value}" for name, value in asked.headers.raw_items()))

    async def _deaf(self, connection: ServerConnection, asked: Asked) -> None:
        """Read nothing, so that the client must wait."""
        await connection.wait_closed()

    async def _cut(self, connection: ServerConnection, asked: Asked) -> None:
        """Abort the connection once a message has arrived."""
        await connection.recv()
        connection.transport.abort()

    async def _large(self, connection: ServerConnection, asked: Asked) -> None:
        """Send one binary message, then a text of the same size in fragments."""
        await connection.send(bytes(LARGE_BYTES))
        await connection.send("€" * 1000 for _ in range(LARGE_BYTES // 3000))
        await _echo(connection, asked)

    async def _many(self, connection: ServerConnection, asked: Asked) -> None:
        """Send numbers, as many as the query says."""
        for number in range(int(asked.query["count"][0])):
            await connection.send(str(number))
        self.sent[_parts(asked.path)[1]].set()
        await _echo(connection, asked)

    async def _reflect(self, connection: ServerConnection, asked: Asked) -> None:
        """Send the request's headers and path."""
        await connection.send("\n".join(f"{name}: {value}" for name, value in asked.headers.raw_items()))
        await connection.send(asked.path.encode())
        await _echo(connection, asked)


async def _echo(connection: ServerConnection, asked: Asked) -> None:
    async for message in connection:
        asked.messages.append(message)
        await connection.send(message)


def _parts(path: str) -> tuple[str, str]:
    _, what, name = urlsplit(path).path.split("/")
    return what, name


def _select(connection: ServerConnection, offered: object) -> Subprotocol | None:
    names = [str(protocol) for protocol in offered] if isinstance(offered, list | tuple) else []
    return next((Subprotocol(name) for name in names if name.startswith("chat.")), None)
