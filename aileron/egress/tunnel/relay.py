"""A relay of bytes in both directions between two sockets, counted, until both are done, one breaks, or the tunnel is idle.

Runs in the daemon; trusts neither end, and does not interpret the bytes.

Rules
- Each direction relays one piece (the bytes of one read) at a time. So a side that does not read stops the other side
  (back-pressure), with at most one piece in memory. Between the system call that reads a piece and the one that writes
  it, the piece is in a scratch buffer that all relays share.
- Until the HelloWatch has finished, it checks each piece first; a piece that it refuses is not passed on.
- The end of one direction is passed on (shutdown(2)), and the other direction continues, with HALF_IDLE_S as its idle
  limit.
- If a side accepts no more bytes, only the direction to that side ends. Bytes that it sent before it closed, such as an
  early response, are still in the kernel's queue, and are passed on (tcp(7): a reset leaves what was received).
- A piece is counted when the other side's kernel has all of it.
- A side that always has more to send does not block the event loop.

Not here: the watch (hello_watch.py), the opening of both sockets (way_out.py).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final, Literal

import anyio
import anyio.lowlevel

from aileron.egress.refusal import RefusedError
from aileron.egress.tunnel.hello_watch import HelloWatch

__all__ = [
    "ANSWER_S",
    "HALF_IDLE_S",
    "IDLE_S",
    "PIECE_BYTES",
    "Ended",
    "Flow",
    "receive",
    "relay",
    "say_and_end",
    "send_all",
]

IDLE_S: Final = 15 * 60.0  # without a byte either way: longer than clients keep idle connections themselves
HALF_IDLE_S: Final = 60.0  # one side has sent everything: only a response is still to come
ANSWER_S: Final = 2.0  # our response fits into an empty socket: a client that does not take it is not waited for
_DRAIN_BYTES: Final = 64 << 10
PIECE_BYTES: Final = (
    256 << 10
)  # 256 KiB: more than a Unix socket holds by default; what a slow side keeps held each way at most

Ended = Literal["closed", "reset by client", "reset by host", "idle"]
"""The reason why a relay ended. `closed`: each side closed its direction."""

_Check = Callable[[bytes], None]
_Way = tuple[socket.socket, socket.socket, _Check, Callable[[int], None], Ended, Ended]


class Flow:
    """Counters of one relay: the bytes in each direction, and the time of the last bytes, as `anyio.current_time()`."""

    def __init__(self) -> None:
        self.bytes_up = 0
        self.bytes_down = 0
        self.moved_at = anyio.current_time()
        self.open_halves = 2

    def went_up(self, size: int) -> None:
        """Count bytes that have reached the host's socket."""
        self.bytes_up += size
        self.moved_at = anyio.current_time()

    def went_down(self, size: int) -> None:
        """Count bytes that have reached the client's socket."""
        self.bytes_down += size
        self.moved_at = anyio.current_time()

    @property
    def idle_at(self) -> float:
        """Time, as `anyio.current_time()`, at which the relay will have been idle for too long if no more bytes pass."""
        return self.moved_at + (IDLE_S if self.open_halves == 2 else HALF_IDLE_S)


async def receive(sock: socket.socket, size: int) -> bytes:
    """Return some bytes, or none at the end. Raises OSError if the connection broke."""
    waited = False
    while True:
        try:
            data = sock.recv(size)
        except BlockingIOError:
            await anyio.wait_readable(sock)
            waited = True
        else:
            if not waited:
                await anyio.lowlevel.cancel_shielded_checkpoint()
            return data


async def send_all(sock: socket.socket, data: bytes) -> None:
    """Send all bytes. Raises OSError if the connection broke."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(sock)


async def say_and_end(sock: socket.socket, answer: bytes) -> None:
    """Send `answer`, the last bytes for the peer, and wait a moment until the peer has read them. If a socket is closed
    with unread bytes, its sent bytes could be lost, and if it is closed before the peer has written, the peer notices
    only the close. Never raises. The caller still has to close the socket.
    """
    with anyio.move_on_after(ANSWER_S), contextlib.suppress(OSError):
        await send_all(sock, answer)
        sock.shutdown(socket.SHUT_WR)
        left = _DRAIN_BYTES
        while left > 0 and (data := await receive(sock, left)):
            left -= len(data)


class _Relay:
    """The relay of one tunnel."""

    def __init__(
        self, client: socket.socket, host: socket.socket, flow: Flow, watch: HelloWatch, scratch: memoryview
    ) -> None:
        self._client = client
        self._host = host
        self._flow = flow
        self._watch = watch
        self._scratch = scratch
        self._scope = anyio.CancelScope()
        self._ended: Ended = "closed"
        self._refused: RefusedError | None = None

    async def run(self) -> Ended:
        up: _Way = (
            self._client,
            self._host,
            self._watch.from_client,
            self._flow.went_up,
            "reset by client",
            "reset by host",
        )
        down: _Way = (
            self._host,
            self._client,
            self._watch.from_host,
            self._flow.went_down,
            "reset by host",
            "reset by client",
        )
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_idle)
                async with anyio.create_task_group() as both:
                    both.start_soon(self._pump, *up)
                    both.start_soon(self._pump, *down)
                tasks.cancel_scope.cancel()
        if self._refused is not None:
            raise self._refused
        return self._ended

    async def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        check: _Check,
        went: Callable[[int], None],
        source_broke: Ended,
        sink_broke: Ended,
    ) -> None:
        try:
            while size := await self._received(source):
                piece = self._scratch[:size]
                if not self._watch.is_over:
                    check(bytes(piece))
                try:
                    await _passed_on(sink, piece)
                except OSError:
                    self._note(sink_broke)
                    break
                went(size)
                await anyio.lowlevel.cancel_shielded_checkpoint()  # lets other tasks run
        except OSError:
            self._end(source_broke)
        except RefusedError as error:
            self._refused = error
            self._scope.cancel()
        else:
            self._flow.open_halves -= 1
            with contextlib.suppress(OSError):  # it has disconnected, which its own direction reports
                sink.shutdown(socket.SHUT_WR)

    async def _received(self, source: socket.socket) -> int:
        """Read from `source` into the scratch buffer, which all relays share, and return the number of bytes. The
        caller must use or copy the bytes before it waits for anything. Raises OSError if the connection broke.
        """
        while True:
            try:
                return source.recv_into(self._scratch)
            except BlockingIOError:
                await anyio.wait_readable(source)

    async def _end_when_idle(self) -> None:
        while True:
            now, idle_at = anyio.current_time(), self._flow.idle_at
            if now >= idle_at:
                break
            await anyio.sleep_until(min(idle_at, now + HALF_IDLE_S))  # by then, one direction may have ended
        self._end("idle")

    def _end(self, why: Ended) -> None:
        self._note(why)
        self._scope.cancel()

    def _note(self, why: Ended) -> None:
        """Store the reason why the relay ended, unless a reason is stored already: the first reason causes the others."""
        if self._ended == "closed":
            self._ended = why


async def _passed_on(sink: socket.socket, piece: memoryview) -> None:
    """Send all bytes of a piece that was read into the scratch buffer. Bytes that the socket does not take at once are
    copied, because other relays use the scratch buffer meanwhile. Raises OSError if the connection broke.
    """
    try:
        sent = sink.send(piece)
    except BlockingIOError:
        sent = 0
    if sent < len(piece):
        await send_all(sink, bytes(piece[sent:]))


async def relay(
    client: socket.socket, host: socket.socket, flow: Flow, watch: HelloWatch, scratch: memoryview
) -> Ended:
    """Relay bytes between the two sockets until the tunnel ends, and return the reason. Both sockets stay open; the
    caller has to close them. Raises RefusedError if the watch refuses a piece, which is then not sent on.

    `scratch` is a buffer of PIECE_BYTES, which all relays of an event loop can share.
    """
    return await _Relay(client, host, flow, watch, scratch).run()
