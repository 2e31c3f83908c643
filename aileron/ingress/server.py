"""The HTTP server under every door: Hypercorn's connections, bounded, in the clear or over TLS.

Runs in ingress, for what is reached over TCP, and in the daemon, for the sockets of the home. The certificate is the one that was
read with the settings, so that what a person agreed to is what is shown; its private key is read here, and must be nobody
else's to read.

Rules
- HTTP/1.1 and nothing else. Hypercorn would speak HTTP/2 to whoever begins with it, and never end such a connection while it is
  silent; no client of ours does.
- One request at a time: a client that sends the next one before it has the answer (pipelining) is told `Connection: close`, and
  what it sent is thrown away. RFC 9112 section 9.3.2 has it send that again. So no work outlives the connection that asked for
  it.
- READ_AHEAD bytes are read before anybody wants them.
- Each door over TCP holds MAX_CONNECTIONS at most, one more is closed at once; of those that have not asked yet
  MAX_SILENT, one more ends the oldest. So who asks at once is served, however many there are that never do.
- A connection has IDLE_S for the head of a request.

Source: docs/reference/configuration.md; docs/adr/0031-ingress.md; RFC 9112; RFC 8446 through OpenSSL. Not here: applications
(daemon/api.py, daemon/ports.py), which addresses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import h11
import hypercorn.asyncio.tcp_server
import hypercorn.protocol
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.task_group import TaskGroup, _handle
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Response
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope
from starlette.types import ASGIApp, Receive

from aileron.ingress.request_line import AsSpelled, KnownRequests
from aileron.model.failure import AileronError, FailureClass

__all__ = [
    "BODY_S",
    "MAX_BODY_BYTES",
    "MAX_CONNECTIONS",
    "MAX_SILENT",
    "certificate_names",
    "drained",
    "serve",
    "tls_context",
]

MAX_BODY_BYTES: Final = 1 << 20
"""1 MiB: arguments of an action travel in one frame header of 64 KiB, a secret is at most that, an action file 256 KiB."""
BODY_S: Final = 10.0
"""For a body to arrive: on this machine, a megabyte takes milliseconds."""
GRACE_S: Final = 5.0
IDLE_S: Final = 2.0
"""A connection without a request; one that its client closed costs a descriptor for as long."""
HANDSHAKE_S: Final = 10.0
"""For TLS to be there; over the worst of networks it takes three."""
SHUTDOWN_S: Final = 1.0
"""For a client's word that a TLS connection ends; many say none."""
MAX_CONNECTIONS: Final = 512
"""Over TCP, of each door: twice what the gateway has under way, an eighth of the descriptors where there are 4,096;
each costs some 50 KiB.
"""
MAX_SILENT: Final = 128
"""Of those, without a request: a client of ours asks as soon as it is connected, or has asked lately."""
MAX_HEAD_BYTES: Final = 65536
"""Of a request before its body: coding agents put kilobytes of JSON into a field, and the providers take that."""
READ_AHEAD: Final = 8192
"""Bytes of a connection that are read at once, and twice as many before anybody wants them: 512 connections that send as fast
as they can are 12 MiB."""
RECEIVE_BUFFER: Final = 65536
"""Bytes of a connection that the kernel holds for us (SO_RCVBUF, of which it takes twice as much for its own bookkeeping)."""
_BACKLOG: Final = 128
_SAY_AGAIN_S: Final = 10.0
_log = logging.getLogger(__name__)


async def serve(
    app: ASGIApp,
    listeners: list[socket.socket],
    stopped: Callable[[], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve `app` on the listening sockets, which are taken over, until `stopped` returns; then GRACE_S for answers under way."""
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
        await _Connection(wrapped, loop, config, context, {}, reader, writer)

    places = _Places()
    handshake_s = None if tls is None else HANDSHAKE_S
    servers = [
        await asyncio.start_server(
            connected,
            sock=_bounded(listener, places),
            limit=READ_AHEAD,
            backlog=_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=None if tls is None else SHUTDOWN_S,
        )
        for listener in listeners
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
    config.include_date_header = False  # what the gateway passes on has one already
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    return config


def tls_context(certificate_pem: str, key: Path) -> ssl.SSLContext:
    """What a server shows: TLS 1.2 or newer, HTTP/1.1. AileronError(invalid_request) where the two do not fit each other."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        if stat.S_IMODE(key.stat().st_mode) & 0o077:
            raise _refused(key, f"others may read it: chmod 600 {key}")
        with open(os.memfd_create("certificate", os.MFD_CLOEXEC), "w", encoding="utf-8") as certificate:
            certificate.write(certificate_pem)
            certificate.flush()
            context.load_cert_chain(f"/proc/self/fd/{certificate.fileno()}", key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise _refused(key, f"it does not serve with daemon.certificate ({why})") from None
    return context


def certificate_names(certificate_pem: str) -> list[str]:
    """The DNS names and addresses that a certificate is for, as a Host field has them, without a port; wildcards not."""
    from cryptography import x509  # only where the daemon listens

    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [name.lower() for name in names.get_values_for_type(x509.DNSName) if "*" not in name] + [
        f"[{address}]" if address.version == 6 else str(address) for address in addresses
    ]


async def drained(receive: Receive) -> None:
    """Take the body of a request that is refused whatever it says: a client that still writes when its connection is closed hears
    of a broken pipe, and not of the refusal. As far as a body may go, and as long.
    """
    size = 0
    with anyio.move_on_after(BODY_S):
        while size <= MAX_BODY_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


class _Ended:
    """In the place of h11's connection once no more is answered on ours: takes what still comes, and finds nothing in it."""

    our_state = None
    their_state = None
    they_are_waiting_for_100_continue = False
    trailing_data = (b"", False)

    def receive_data(self, data: bytes) -> None:
        """Nobody reads it."""

    def next_event(self) -> type[h11.NEED_DATA]:
        """None, ever."""
        return h11.NEED_DATA

    def send(self, event: object) -> bytes:
        """Nobody is told."""
        return b""


class _Inbox:
    """What an application receives: one piece of a body at a time, and then, once, that its client has gone.

    Hypercorn's own queue holds ten pieces, and whoever puts one more waits for an application that may have ended: for ever.
    """

    def __init__(self) -> None:
        self._piece: ASGIReceiveEvent | None = None
        self._end: ASGIReceiveEvent | None = None
        self._is_over = False
        self._moved = asyncio.Event()

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Wait until there is room for a piece; for the end there always is, and behind it nothing is taken any more."""
        if message["type"] == "http.disconnect":
            self._is_over, self._end = True, message
            self._move()
            return
        while self._piece is not None and not self._is_over:
            await self._moved.wait()
        if not self._is_over:
            self._piece = message
            self._move()

    async def get(self) -> ASGIReceiveEvent:
        """The next."""
        while self._piece is None and self._end is None:
            await self._moved.wait()
        if self._piece is not None:
            message, self._piece = self._piece, None
        else:
            assert self._end is not None
            message, self._end = self._end, None
        self._move()
        return message

    def _move(self) -> None:
        """Wake who waits."""
        self._moved.set()
        self._moved = asyncio.Event()


class _Apps:
    """The tasks of a connection, with an inbox of ours for each application."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: Callable[[ASGISendEvent | None], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Begin an application; what is returned puts into its inbox."""
        inbox = _Inbox()
        self.spawn(_handle, app, config, scope, inbox.get, send, _no_threads, _no_threads)
        return inbox.put

    def spawn(self, what: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Begin a task."""
        self._tasks.spawn(what, *arguments)


def _no_threads(*_: object) -> None:
    raise NotImplementedError("for WSGI, which is not served")


class _OneAtATime(AsSpelled):
    """Answers one request at a time, and what asks for another version of HTTP as if it had not asked, RFC 9110 section 7.8."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.task_group = _Apps(self.task_group)  # type: ignore[assignment, arg-type]

    async def _check_protocol(self, event: h11.Request) -> None:
        return

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response) and event.status_code >= 200 and self._has_next():
            event = Response(
                stream_id=event.stream_id,
                headers=[*event.headers, (b"connection", b"close")],
                status_code=event.status_code,
            )
        await super().stream_send(event)

    async def _maybe_recycle(self) -> None:
        if not self._has_next():
            await super()._maybe_recycle()
            return
        await self._close_stream()
        self.connection = _Ended()  # type: ignore[assignment] # as Hypercorn does for WebSockets
        await self.can_read.set()
        await self.send(Closed())

    def _has_next(self) -> bool:
        """Whether the client sent more than the request that is being answered."""
        return self.connection.their_state is h11.DONE and bool(self.connection.trailing_data[0])


# There are no settings for these; tests see that they hold.
hypercorn.protocol.H11Protocol = _OneAtATime  # type: ignore[attr-defined, assignment]
hypercorn.asyncio.tcp_server.MAX_RECV = READ_AHEAD


class _Connection(TCPServer):
    """One connection. Over TCP it counts as silent until it asks, and between its requests."""

    async def run(self) -> None:
        _SILENT.add(self)
        try:
            await super().run()
        finally:
            _SILENT.discard(self)

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()  # nothing more can come: it has not to wait for what does not

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            (_SILENT.add if event.idle else _SILENT.discard)(self)
        await super().protocol_send(event)

    async def _close(self) -> None:
        try:
            await super()._close()
        except OSError:  # the client did not say that TLS ends, or nobody is there
            self.abort()

    @property
    def is_over_tcp(self) -> bool:
        """Whether others than the user of this home can make such a one."""
        return bool(self.writer.get_extra_info("socket").family != socket.AF_UNIX)

    def abort(self) -> None:
        """End it now."""
        self.writer.transport.abort()


class _Silent:
    """The connections over TCP that ask nothing, in the order in which they began to."""

    def __init__(self) -> None:
        self._all: dict[_Connection, None] = {}

    def add(self, connection: _Connection) -> None:
        """It waits for a request. The oldest goes where there are too many."""
        if not connection.is_over_tcp:
            return
        self._all[connection] = None
        if len(self._all) > MAX_SILENT:
            oldest = next(iter(self._all))
            del self._all[oldest]
            oldest.abort()

    def discard(self, connection: _Connection) -> None:
        """It has asked, or has gone."""
        self._all.pop(connection, None)


_SILENT: Final = _Silent()


class _Places:
    """How many connections there are over TCP, and when that there are too many was last said."""

    def __init__(self) -> None:
        self.taken = 0
        self._said = -_SAY_AGAIN_S

    def say(self) -> None:
        if time.monotonic() - self._said >= _SAY_AGAIN_S:
            self._said = time.monotonic()
            _log.warning("%s connections over TCP are open: more are turned away", MAX_CONNECTIONS)


class _Accepted(socket.socket):
    """A connection that has a place until it is closed."""

    def __init__(self, accepted: socket.socket, places: _Places) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._places = places
        self._has_place = True
        places.taken += 1

    def close(self) -> None:
        self._leave()
        super().close()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.taken -= 1


class _Bounded(socket.socket):
    """A listener that closes what it has no place for."""

    def __init__(self, listener: socket.socket, places: _Places) -> None:
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._places = places

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        if self._places.taken >= MAX_CONNECTIONS:
            accepted.close()
            self._places.say()
            raise BlockingIOError  # others have their turn before the next
        return _Accepted(accepted, self._places), address


def _bounded(listener: socket.socket, places: _Places) -> socket.socket:
    """The same listener, taken over; a socket of the home is only the user's own, and is left as it is."""
    if listener.family == socket.AF_UNIX:
        return listener
    # What is accepted has it too (tcp(7)); asyncio sets it only on sockets that know their protocol, which these do not. Without
    # it the second piece of an answer waits for the acknowledgement of the first, which a client may put off for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Else the kernel takes megabytes of each connection that nobody reads, and they have to be read before its end is found.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return _Bounded(listener, places)


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted: store it without a passphrase, readable by you alone")


def _refused(key: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"daemon.certificate_key {key}: {why}")
