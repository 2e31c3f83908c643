"""The HTTP server of every service (door) of the daemon: Hypercorn with bounds, unencrypted or over TLS.

Runs in ingress for the doors on TCP, and in the daemon for the sockets of the home.

Rules
- Only HTTP/1.1 is supported. Hypercorn would use HTTP/2 with a client that begins with it, and would never end such a
  connection while the client is silent; no client of Aileron uses HTTP/2.
- One request is handled at a time: data that a client sends before it has the response is discarded (one_at_a_time.py). RFC
  9112 section 9.3.2 requires the client to send it again. So no work outlives the connection that requested it.
- Up to twice READ_AHEAD bytes are read before the application needs them.
- Each TCP service has a limited number of connections (connection_places.py); those without an open session are ended first.
- The head of a request must arrive within IDLE_S seconds.

Source: docs/reference/configuration.md; docs/adr/0031-ingress.md; RFC 9112; RFC 8446 through OpenSSL. Not here: the
applications, the choice of addresses (daemon/http/api/, daemon/http/listeners.py), certificates (certificate.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr
from starlette.types import ASGIApp, Receive, Scope

from aileron.ingress.connection_places import ACCEPTED_AT_ONCE, BACKLOG, Bounded, Place, Places
from aileron.ingress.one_at_a_time import AppTasks, OneAtATime
from aileron.ingress.peers import PeerProcess, peer_of_connection, peer_process
from aileron.ingress.request_line import KnownRequests

__all__ = [
    "BODY_S",
    "MAX_BODY_BYTES",
    "READ_AHEAD",
    "drained",
    "peer_of",
    "process_of",
    "serve",
]

MAX_BODY_BYTES: Final = 1 << 20
"""Maximum size of a body in bytes, 1 MiB: arguments of an action fit in a frame header of 64 KiB, a secret is at most
as large, and an action file has at most 256 KiB.
"""
BODY_S: Final = 10.0
"""Seconds to wait for a body: on this machine, a megabyte takes milliseconds."""
GRACE_S: Final = 5.0
IDLE_S: Final = 2.0
"""Seconds to wait for a request on a connection. A connection that its client has closed occupies a descriptor for as long."""
HANDSHAKE_S: Final = 10.0
"""Seconds to wait for the TLS handshake, which takes three seconds over the worst networks."""
SHUTDOWN_S: Final = 1.0
"""Seconds to wait for a client's close_notify at the end of a TLS connection. Many clients send none."""
MAX_HEAD_BYTES: Final = 65536
"""Maximum number of bytes of a request before its body: coding agents put kilobytes of JSON into a header field, and
model providers accept that.
"""
READ_AHEAD: Final = 8192
"""Number of bytes that are read from a connection at once; up to twice as many are stored before the application reads
them. 512 connections that send at full speed take 12 MiB.
"""
_PROCESS: Final = "aileron.process"
_PEER: Final = "aileron.peer"


async def serve(
    app: ASGIApp,
    listeners: list[socket.socket],
    stopped: Callable[[], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
    *,
    tells_peers: bool = False,
    places: Places | None = None,
) -> None:
    """Serve `app` on the listening sockets, which this function closes, until `stopped` returns. Responses in
    progress then have GRACE_S seconds.

    `places` limits TCP connections. `tells_peers` is for sockets of the home: for each request, `peer_of` then returns
    the process that made the connection.
    """
    config = _config()
    context = WorkerContext(None)
    loop = asyncio.get_running_loop()
    wrapped = ASGIWrapper(KnownRequests(app))  # type: ignore[arg-type] # Starlette's types of ASGI and Hypercorn's are two
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        accepted = writer.get_extra_info("socket")
        place = counted.at(accepted.fileno())
        if place is not None:
            place.mark_served(writer.transport, task)
        elif accepted.family != socket.AF_UNIX:
            writer.transport.abort()  # the connection was ended meanwhile
            return
        state: dict[str, object] = {_PROCESS: peer_process(accepted)} if place is None else place.state()
        if tells_peers:
            state = {**state, _PEER: _peer_or_why(accepted)}
        with contextlib.suppress(
            asyncio.CancelledError
        ):  # its place went to another; asyncio would say that in the log
            await _Connection(place, wrapped, loop, config, context, state, reader, writer)

    counted = places or Places()
    servers = [
        await asyncio.start_server(
            connected,
            sock=listener,
            limit=READ_AHEAD,
            backlog=ACCEPTED_AT_ONCE if isinstance(listener, Bounded) else BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
            ssl_shutdown_timeout=None if tls is None else SHUTDOWN_S,
        )
        # Only the user can connect to a socket of the home, so it has no limit.
        for listener in (
            listener if listener.family == socket.AF_UNIX else Bounded(listener, counted) for listener in listeners
        )
    ]
    try:
        await stopped()
    finally:
        await context.terminated.set()
        for server in servers:
            server.close()
        if connections:
            _, late = await asyncio.wait(set(connections), timeout=GRACE_S)
            for task in late:
                task.cancel()


def _config() -> Config:
    config = Config()
    config.keep_alive_timeout = IDLE_S
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.include_date_header = False  # responses from the gateway already have one
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    return config


def process_of(scope: Scope) -> int | None:
    """Return the id of the process that made a request's connection to a socket of the home; None for a request over TCP."""
    found: int | None = scope.get("state", {}).get(_PROCESS)
    return found


def peer_of(scope: Scope) -> PeerProcess | None:
    """Return the process that made a request's connection, if the server records it; None if the process had already ended.

    Raises OSError if the process could not be determined.
    """
    found: PeerProcess | OSError | None = scope.get("state", {}).get(_PEER)
    if isinstance(found, OSError):
        raise found
    return found


def _peer_or_why(connection: socket.socket) -> PeerProcess | OSError | None:
    try:
        return peer_of_connection(connection)
    except OSError as error:  # such as no free descriptor: `peer_of` raises it for each request
        return error


async def drained(receive: Receive) -> None:
    """Read and discard the body of a request that will be refused, up to MAX_BODY_BYTES and for at most BODY_S seconds.

    A client that still writes when its connection is closed gets a broken pipe instead of the refusal.
    """
    size = 0
    with anyio.move_on_after(BODY_S):
        while size <= MAX_BODY_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


class _Connection(TCPServer):
    """A connection that speaks HTTP/1.1 alone, and reports to its `Place` (connection_places.py) whether it has a
    request or a response.
    """

    protocol: OneAtATime  # type: ignore[assignment] # Hypercorn would choose among its own

    def __init__(self, place: Place | None, *given: Any) -> None:
        super().__init__(*given)
        self._place = place

    async def run(self) -> None:
        """Serve the requests of the connection until it ends."""
        accepted = self.writer.get_extra_info("socket")
        try:
            ends = [parse_socket_addr(accepted.family, end()) for end in (accepted.getpeername, accepted.getsockname)]
            is_tls = self.writer.get_extra_info("ssl_object") is not None
            async with AppTasks(self.loop) as tasks:
                self._task_group = tasks
                state = ConnectionState(self.state)
                self.protocol = OneAtATime(
                    self.app, self.config, self.context, tasks, state, is_tls, *ends, self.protocol_send
                )
                await self.idle_task.restart(tasks, self._idle_timeout)
                await self._read_data()
        except OSError:  # the client has gone
            pass
        finally:
            await self._close()

    async def _read_data(self) -> None:
        with contextlib.suppress(OSError):  # as at the end of the data; ssl.SSLError is one
            while not self.reader.at_eof():
                await self.protocol.handle(RawData(await self.reader.read(READ_AHEAD)))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()  # the client has closed: no need to wait for another request

    async def protocol_send(self, event: Event) -> None:
        if self._place is not None:
            match event:
                case Updated(idle=True):
                    self._place.mark_idle()
                case Updated():
                    self._place.asks()
                case RawData():
                    self._place.mark_answered()
        await super().protocol_send(event)

    async def _close(self) -> None:
        try:
            await super()._close()
        except OSError:  # the client sent no close_notify, or it is gone
            self.writer.transport.abort()
