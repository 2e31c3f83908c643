"""The event loop of the command that accompanies a cell: descriptors, timers, and the transfer of bytes from one end
to another.

Single-threaded; no callback may block, or a slow terminal would delay downloads. Regular files cannot be registered
with epoll(7) and never block, so they count as always ready.

Rules
- Each direction buffers at most the bytes of one read (BUFFER); no more is read until they are written.
- A descriptor must leave the loop before it is closed.

Source: epoll(7), readv(2), MSG_DONTWAIT in recv(2). Not here: the descriptors at the ends.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final, Literal

__all__ = ["BUFFER", "End", "Loop", "Pump", "PumpEnd", "Timer"]

BUFFER: Final = 256 << 10
"""Maximum number of bytes of one read, and of a pump's buffer while its sink is not writable. More is not faster (measured)."""
_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR


class Timer:
    """A callback that the event loop calls at a later time, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback. Idempotent."""
        self._callback = None

    def fire(self) -> None:
        """Call the callback now, and never again."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Loop:
    """An event loop that calls callbacks when descriptors are ready and when timers expire."""

    def __init__(self) -> None:
        self.buffer: Final = memoryview(bytearray(BUFFER))
        """Shared buffer for callbacks that read. A callback must use the data before it returns."""
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[int, Callable[[int], None]]] = {}
        self._files: set[int] = set()
        self._let_go: set[int] = set()
        """Descriptors that were removed in this turn. Their pending events are skipped, because a new descriptor may
        have the number of a closed one.
        """
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def watch(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        """Call the callback whenever the descriptor has one of these events (EPOLLIN, EPOLLOUT), with the ready events.
        If `events` is 0, stop watching the descriptor.
        """
        before = self._watched.get(descriptor)
        if not events:
            if before is not None:
                del self._watched[descriptor]
                self._forget(descriptor)
            return
        self._watched[descriptor] = (events, callback)
        if before is None:
            try:
                self._epoll.register(descriptor, events)
            except PermissionError:  # a file
                self._files.add(descriptor)
        elif before[0] != events and descriptor not in self._files:
            self._epoll.modify(descriptor, events)

    def _forget(self, descriptor: int) -> None:
        self._let_go.add(descriptor)
        if descriptor in self._files:
            self._files.discard(descriptor)
        else:
            self._epoll.unregister(descriptor)

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call the callback once after this number of seconds. Return its timer."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def turn(self, most_s: float | None = None) -> None:
        """Wait at most `most_s` seconds until a descriptor or timer is ready, and run the callbacks. If `most_s` is
        None, wait without limit.
        """
        timeout = -1.0 if most_s is None else most_s
        if self._timers:
            left = max(0.0, self._timers[0][0] - time.monotonic())
            timeout = left if timeout < 0 else min(timeout, left)
        ready = self._epoll.poll(0 if self._files else timeout)
        self._let_go.clear()
        for descriptor, events in (*ready, *((file, _READ | _WRITE) for file in self._files)):
            wanted, callback = self._watched.get(descriptor, (0, None))
            happened = wanted if events & _GONE else events & wanted
            if happened and callback is not None and descriptor not in self._let_go:
                callback(happened)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2].fire()

    def close(self) -> None:
        """Close the epoll descriptor, which ends all watching."""
        self._epoll.close()


class End:
    """A descriptor that the event loop reads or writes without blocking: it is a socket, or non-blocking, or at most
    `most` bytes are written at a time.
    """

    def __init__(self, loop: Loop, kept: int | socket.socket, *, most: int | None = None) -> None:
        self._loop = loop
        self._socket = kept if isinstance(kept, socket.socket) else None
        self.descriptor = kept if isinstance(kept, int) else kept.fileno()
        self._most = most
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._is_closed = False
        if self._socket is not None and self._socket.family in (socket.AF_INET, socket.AF_INET6):
            # The sender's own buffering has already delayed the bytes.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call the callback whenever the end is readable; None removes the callback."""
        self._on_readable = callback
        self._watch()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call the callback whenever the end is writable; None removes the callback."""
        self._on_writable = callback
        self._watch()

    def _watch(self) -> None:
        if not self._is_closed:
            events = (_READ if self._on_readable else 0) | (_WRITE if self._on_writable else 0)
            self._loop.watch(self.descriptor, events, self._happen)

    def _happen(self, events: int) -> None:
        if events & _READ and self._on_readable is not None:
            self._on_readable()
        if events & _WRITE and self._on_writable is not None:
            self._on_writable()

    def read(self, into: memoryview) -> int | None:
        """Read bytes into a buffer. Return their number: 0 at the end of the stream, None if none are available yet.
        Raises OSError if the read fails.
        """
        with contextlib.suppress(BlockingIOError):
            if self._socket is not None:
                return self._socket.recv_into(into, 0, socket.MSG_DONTWAIT)
            return os.readv(self.descriptor, [into])
        return None

    def write(self, data: memoryview | bytes) -> int:
        """Write bytes, and return the number written: 0 if the write would block. Raises OSError if the write fails."""
        with contextlib.suppress(BlockingIOError):
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            return os.write(self.descriptor, data if self._most is None else data[: self._most])
        return 0

    def finish_writing(self) -> None:
        """Signal to the other side that no more bytes will follow. A socket still receives bytes afterwards; other
        descriptors are closed.
        """
        if self._socket is None:
            self.close()
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Remove this descriptor from the event loop, and close it. Idempotent."""
        if self._is_closed:
            return
        self._on_readable = self._on_writable = None
        self._watch()
        self._is_closed = True
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self.descriptor)


PumpEnd = Literal["all written", "source broke", "sink broke"]
"""Reasons for which a pump ends."""


class Pump:
    """A copy loop in the event loop, from one `End` (source) to another (sink), until the source ends or the sink is
    closed.

    `first` is written before anything else, and `through` filters the bytes of the source. `on_end` is called once,
    with the reason.
    """

    def __init__(
        self,
        loop: Loop,
        source: End,
        sink: End,
        on_end: Callable[[PumpEnd], None],
        *,
        first: bytes = b"",
        through: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._buffer = loop.buffer
        self._source = source
        self._sink = sink
        self._on_end = on_end
        self._through = through
        self._left = first
        self._is_at_end = False
        self.is_over = False
        self.moved = 0
        """Number of bytes written so far."""
        if first:
            sink.on_writable(self._write)
        else:
            source.on_readable(self._read)

    @property
    def is_held_up(self) -> bool:
        """True while this pump has bytes that the sink has not accepted."""
        return bool(self._left)

    def _read(self) -> None:
        try:
            count = self._source.read(self._buffer)
        except OSError:
            self._over("source broke")
            return
        if count is None:
            return
        if count == 0:
            self._over("all written")
            return
        data: memoryview | bytes = self._buffer[:count]
        if self._through is not None:
            data = self._through(bytes(data))
        if not data:
            return
        try:
            written = self._sink.write(data)
        except OSError:
            self._over("sink broke")
            return
        self.moved += written
        if written < len(data):
            self._left = bytes(data[written:])
            self._source.on_readable(None)
            self._sink.on_writable(self._write)

    def _write(self) -> None:
        try:
            written = self._sink.write(self._left)
        except OSError:
            self._over("sink broke")
            return
        self.moved += written
        self._left = self._left[written:]
        if not self._left:
            self._sink.on_writable(None)
            self._source.on_readable(self._read)

    def _over(self, why: PumpEnd) -> None:
        self.is_over = True
        self._left = b""
        self._source.on_readable(None)
        self._sink.on_writable(None)
        self._on_end(why)
