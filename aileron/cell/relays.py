"""The doors of a cell: connections that programs in the cell make to certain sockets are accepted outside, and
forwarded byte for byte to a target.

No relay runs inside the cell: its listeners were made inside its network and mount namespaces and passed out, and the
command accepts connections on them here. The bytes that arrive are hostile and are not interpreted: only the door
decides where they go. One door first sends bytes of its own to its target (`preamble`): the session's token, which
never enters the cell.

Rules
- Each direction buffers at most loop.BUFFER bytes. When one side has finished sending, the other side is notified, and
  can still send.
- A side that accepts no more bytes is still read for _LAST_WORD_S seconds, because a response that it sent before may
  still be in the kernel's queue.
- A door has at most MAX_CONNECTIONS at once. The next one waits in the listener's queue, and other doors are not affected.
- If a target cannot be reached (the daemon restarts), connecting is retried for `patience_s` seconds; then the
  connection is closed.
- Silent connections stay open: the servers behind the doors have their own deadlines.

Source: unix(7), listen(2). Not here: the choice of the doors (aileron/launch), the server behind them (the daemon).
"""

from __future__ import annotations

import errno
import functools
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from aileron.cell.loop import End, Loop, Pump, PumpEnd

__all__ = ["MAX_CONNECTIONS", "Door", "Relays", "unix_target"]

MAX_CONNECTIONS: Final = 128
"""Maximum number of open connections through one door. Package managers open about 50, and a browser 32 to a proxy.
Each connection takes two descriptors, so four doors take at most 1024.
"""
_PATIENCE_S: Final = 5.0
"""Seconds for which a failed connection to a door's target is retried. A daemon that restarts is back after one or two."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_LAST_WORD_S: Final = 10.0
"""Seconds until both sides are closed after writing to one side failed. Meanwhile the other direction delivers the
bytes that the kernel still holds, some MiB at most; a peer that reads takes them at once.
"""
_OUT_OF_DESCRIPTORS_S: Final = 0.5
"""Seconds until the next attempt to accept after the process ran out of descriptors or memory. Meanwhile connections
end, which frees descriptors.
"""


@dataclass(frozen=True)
class Door:
    """A named target to which accepted connections are forwarded. `connect` returns a new connection to the target
    without blocking, or raises OSError.
    """

    name: str
    connect: Callable[[], socket.socket]
    preamble: bytes = field(default=b"", repr=False)
    patience_s: float = _PATIENCE_S


def unix_target(path: str) -> Callable[[], socket.socket]:
    """Return a `Door.connect` function that connects to the Unix socket at `path`. Each call looks up the path again."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            made.connect(path)
        except BaseException:
            made.close()
            raise
        return made

    return connect


class Relays:
    """A forwarder of connections from programs in the cell to sockets outside. It can serve any number of doors.

    It owns the connections; the caller owns the listeners.
    """

    def __init__(self, loop: Loop, *, most: int = MAX_CONNECTIONS) -> None:
        self._loop = loop
        self._most = most
        self._served: list[_Served] = []

    def serve(self, listeners: Iterable[socket.socket], door: Door) -> None:
        """Accept connections on the listeners, and forward each to where `door` leads. The caller must close the listeners."""
        self._served.append(_Served(self._loop, list(listeners), door, self._most))

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(len(served.connections) for served in self._served)

    def close(self) -> None:
        """Stop accepting connections, and close all of them. Idempotent."""
        for served in self._served:
            served.close()
        self._served.clear()


class _Served:
    """The listeners and connections of one door."""

    def __init__(self, loop: Loop, listeners: list[socket.socket], door: Door, most: int) -> None:
        self.connections: set[_Connection] = set()
        self._loop = loop
        self._listeners = listeners
        self._door = door
        self._most = most
        self._is_closed = False
        for listener in listeners:
            listener.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        """Accept connections while the door has fewer than its maximum. Other connections wait in the listener's queue."""
        is_open = not self._is_closed and len(self.connections) < self._most
        for listener in self._listeners:
            take = functools.partial(self._accept, listener)
            self._loop.watch(listener.fileno(), 1 if is_open else 0, take)  # 1: EPOLLIN

    def _accept(self, listener: socket.socket, _: int) -> None:
        try:
            accepted, _address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._pause()
            return  # the peer has already disconnected, accept(2)
        self.connections.add(_Connection(self._loop, accepted, self._door, self._ended))
        self._listen()

    def _pause(self) -> None:
        for listener in self._listeners:
            self._loop.watch(listener.fileno(), 0, lambda _: None)
        self._loop.later(_OUT_OF_DESCRIPTORS_S, self._listen)

    def _ended(self, connection: _Connection) -> None:
        self.connections.discard(connection)
        self._listen()

    def close(self) -> None:
        self._is_closed = True
        self._listen()
        for connection in list(self.connections):
            connection.close()


class _Connection:
    """An accepted connection and its connection to the door's target, until both are closed."""

    def __init__(self, loop: Loop, accepted: socket.socket, door: Door, on_end: Callable[[_Connection], None]) -> None:
        self._loop = loop
        self._door = door
        self._on_end = on_end
        self._ends = [End(loop, accepted)]
        self._finished = 0
        self._is_closed = False
        self._until = time.monotonic() + door.patience_s
        self._pause_s = _FIRST_PAUSE_S
        self._timer = loop.later(0, self._connect)

    def _connect(self) -> None:
        try:
            target = self._door.connect()
        except OSError:
            if time.monotonic() >= self._until:
                self.close()
                return
            self._timer = self._loop.later(self._pause_s, self._connect)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return
        here, there = self._ends[0], End(self._loop, target)
        self._ends.append(there)
        Pump(self._loop, here, there, functools.partial(self._over, there), first=self._door.preamble)
        Pump(self._loop, there, here, functools.partial(self._over, here))

    def _over(self, sink: End, why: PumpEnd) -> None:
        """Handle the end of one direction of a connection, which was copied to `sink`. If its source has ended, tell
        the receiving side that no more follows. Close both sides once both directions have ended, at once after a read
        error, and _LAST_WORD_S seconds after a write error.
        """
        self._finished += 1
        if why == "source broke" or self._finished == 2:
            self.close()
        elif why == "sink broke":
            self._timer = self._loop.later(_LAST_WORD_S, self.close)
        else:
            sink.finish_writing()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._timer.cancel()
        for end in self._ends:
            end.close()
        self._on_end(self)
