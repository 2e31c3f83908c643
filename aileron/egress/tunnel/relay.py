"""Bytes both ways between two sockets, counted, until both are done, one breaks, or nothing moves any more.

Runs in the daemon; trusts neither end, and understands nothing of what they say.

Rules
- One piece at a time each way: a side that does not read stops the other one (back-pressure). What is held then is a piece at
  most; what moves is in the one scratch of all relays, from one system call to the next.
- Until the watch is over, it looks at each piece first; what it refuses is not sent on.
- The end of one direction is passed on as that (shutdown(2)), and the other goes on. What half is left has HALF_IDLE_S.
- A side that takes nothing more ends the direction to it alone. What it said before it went, such as an early answer, is still
  in the kernel's queue, and is passed on (tcp(7): a reset leaves what was received).
- A piece is counted when the other side's kernel has all of it.
- A side that always has more to say does not keep the loop to itself.

Not here: what the watch looks for (hello_watch.py), which sockets (way_out.py).
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

IDLE_S: Final = (
    15 * 60.0
)  # without a byte either way: longer than any client that keeps connections for later waits itself
HALF_IDLE_S: Final = 60.0  # one side has said all it has to: what is still to come is an answer
ANSWER_S: Final = 2.0  # an answer of ours fits into an empty socket: who does not take it is not waited for
_DRAIN_BYTES: Final = 64 << 10
PIECE_BYTES: Final = (
    256 << 10
)  # 256 KiB: more than a Unix socket holds by default; what a slow side keeps held each way at most

Ended = Literal["closed", "reset by client", "reset by host", "idle"]
"""Why there is nothing more to pass on. `closed`: each side said so."""

_Check = Callable[[bytes], None]
_Way = tuple[socket.socket, socket.socket, _Check, Callable[[int], None], Ended, Ended]


class Flow:
    """What went which way, in bytes, and when the last of it did, as `anyio.current_time()`."""

    def __init__(self) -> None:
        self.bytes_up = 0
        self.bytes_down = 0
        self.moved_at = anyio.current_time()
        self.open_halves = 2

    def went_up(self, size: int) -> None:
        """So many bytes are at the host's side."""
        self.bytes_up += size
        self.moved_at = anyio.current_time()

    def went_down(self, size: int) -> None:
        """So many bytes are at the client's side."""
        self.bytes_down += size
        self.moved_at = anyio.current_time()

    @property
    def idle_at(self) -> float:
        """When it has been idle for too long, if nothing moves until then."""
        return self.moved_at + (IDLE_S if self.open_halves == 2 else HALF_IDLE_S)


async def receive(sock: socket.socket, size: int) -> bytes:
    """Some bytes, or none at the end. OSError."""
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
    """All of it. OSError."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(sock)


async def say_and_end(sock: socket.socket, answer: bytes) -> None:
    """The last that is said, and a moment's wait until it has been taken: closed with bytes unread, it could be lost on its way,
    and closed before the peer has written, the peer hears of that alone. Never raises; the socket stays the caller's.
    """
    with anyio.move_on_after(ANSWER_S), contextlib.suppress(OSError):
        await send_all(sock, answer)
        sock.shutdown(socket.SHUT_WR)
        left = _DRAIN_BYTES
        while left > 0 and (data := await receive(sock, left)):
            left -= len(data)


class _Relay:
    """One."""

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
                await anyio.lowlevel.cancel_shielded_checkpoint()  # whoever always has more to say
        except OSError:
            self._end(source_broke)
        except RefusedError as error:
            self._refused = error
            self._scope.cancel()
        else:
            self._flow.open_halves -= 1
            with contextlib.suppress(OSError):  # it has gone meanwhile, and its own direction says so
                sink.shutdown(socket.SHUT_WR)

    async def _received(self, source: socket.socket) -> int:
        """How much there is in the scratch now: to be taken out of it before anything is waited for. OSError."""
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
            await anyio.sleep_until(min(idle_at, now + HALF_IDLE_S))  # a half may have ended by then
        self._end("idle")

    def _end(self, why: Ended) -> None:
        self._note(why)
        self._scope.cancel()

    def _note(self, why: Ended) -> None:
        """Keep why it ended: the first reason has the others behind it."""
        if self._ended == "closed":
            self._ended = why


async def _passed_on(sink: socket.socket, piece: memoryview) -> None:
    """All of it: what does not fit at once is copied, as the scratch is others' when this waits. OSError."""
    try:
        sent = sink.send(piece)
    except BlockingIOError:
        sent = 0
    if sent < len(piece):
        await send_all(sink, bytes(piece[sent:]))


async def relay(
    client: socket.socket, host: socket.socket, flow: Flow, watch: HelloWatch, scratch: memoryview
) -> Ended:
    """Until it ends. Both are open afterwards, and the caller's. RefusedError is the watch's own: that piece was not sent on.

    `scratch` has PIECE_BYTES, and may be one for all relays of the loop.
    """
    return await _Relay(client, host, flow, watch, scratch).run()
