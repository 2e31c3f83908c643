"""Bytes both ways between two sockets, counted, until both are done, one breaks, or nothing moves any more.

Runs in the daemon; trusts neither end, and understands nothing of what they say.

Rules
- One piece at a time each way: a side that does not read stops the other one (back-pressure), and what is held is a piece.
- The end of one direction is passed on as that (shutdown(2)), and the other goes on. What half is left has HALF_IDLE_S.
- A piece is counted when the other side's kernel has all of it.
- A side that always has more to say does not keep the loop to itself.

Not here: what is looked at on the way (hello_watch.py), which sockets (way_out.py).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final, Literal

import anyio
import anyio.lowlevel

from aileron.egress.refusal import RefusedError

__all__ = ["HALF_IDLE_S", "IDLE_S", "PIECE_BYTES", "Ended", "Flow", "receive", "relay", "send_all"]

IDLE_S: Final = (
    15 * 60.0
)  # without a byte either way: longer than any client that keeps connections for later waits itself
HALF_IDLE_S: Final = 60.0  # one side has said all it has to: what is still to come is an answer
PIECE_BYTES: Final = 128 << 10  # 128 KiB: about what a Unix socket holds at once; two of them for each tunnel

Ended = Literal["closed", "reset by client", "reset by host", "idle"]
"""Why there is nothing more to pass on. `closed`: each side said so."""

Check = Callable[[bytes], None]
"""Looks at a piece before it is sent on. RefusedError: it is not."""
_Way = tuple[socket.socket, socket.socket, Check, Callable[[int], None], Ended, Ended]


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


class _Relay:
    """One."""

    def __init__(self, client: socket.socket, host: socket.socket, flow: Flow) -> None:
        self._client = client
        self._host = host
        self._flow = flow
        self._scope = anyio.CancelScope()
        self._ended: Ended = "closed"
        self._refused: RefusedError | None = None

    async def run(self, check_up: Check, check_down: Check) -> Ended:
        up: _Way = (self._client, self._host, check_up, self._flow.went_up, "reset by client", "reset by host")
        down: _Way = (self._host, self._client, check_down, self._flow.went_down, "reset by host", "reset by client")
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
        check: Check,
        went: Callable[[int], None],
        source_broke: Ended,
        sink_broke: Ended,
    ) -> None:
        broke = source_broke
        try:
            while data := await receive(source, PIECE_BYTES):
                check(data)
                broke = sink_broke
                await send_all(sink, data)
                broke = source_broke
                went(len(data))
        except OSError:
            self._end(broke)
        except RefusedError as error:
            self._refused = error
            self._scope.cancel()
        else:
            self._flow.open_halves -= 1
            with contextlib.suppress(OSError):  # it has gone meanwhile, and its own direction says so
                sink.shutdown(socket.SHUT_WR)

    async def _end_when_idle(self) -> None:
        while True:
            now, idle_at = anyio.current_time(), self._flow.idle_at
            if now >= idle_at:
                break
            await anyio.sleep_until(min(idle_at, now + HALF_IDLE_S))  # a half may have ended by then
        self._end("idle")

    def _end(self, why: Ended) -> None:
        self._ended = why
        self._scope.cancel()


async def relay(client: socket.socket, host: socket.socket, flow: Flow, check_up: Check, check_down: Check) -> Ended:
    """Until it ends. Both are open afterwards, and the caller's. RefusedError is a check's own."""
    return await _Relay(client, host, flow).run(check_up, check_down)
