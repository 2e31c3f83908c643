"""The TCP connections of one TCP service (door): their maximum number, and which connection is closed to make room for
a new one.

    accepted ──► silent ──(a request)──► asking ──(its response begins)──► answered ──(response ends)──► silent
                    └──────────── in any state: a request has an open session's token ──────► known

Rules
- There are at most MAX_CONNECTIONS at once. At the maximum, one stranger's connection is ended for each new one: the
  oldest that waits (for TLS, a head, a body, or its turn). If no more than MAX_SILENT wait, the oldest of all
  strangers' connections is ended instead, so that a client that has just connected has time to send a request.
- At most MAX_SILENT connections have no request. If there is one more, the oldest of them is ended. A connection whose
  TLS is not established counts as having no request.
- A known caller's connection is never ended to make room. The caller becomes a stranger with its first request without
  the token or cookie of an open session.
- If all callers are known, a new connection is closed at once.

Source: docs/adr/0031-ingress.md. Not here: which callers are known (admission.py), deadlines (server.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope

__all__ = ["ACCEPTED_AT_ONCE", "BACKLOG", "MAX_CONNECTIONS", "MAX_SILENT", "Bounded", "Place", "Places", "place_of"]

MAX_CONNECTIONS: Final = 512
"""Maximum number of TCP connections to each TCP service of the daemon: twice the number of requests in progress through
the gateway, and an eighth of the descriptors if there are 4,096. Each costs some 50 KiB.
"""
MAX_SILENT: Final = 128
"""Maximum number of connections to a TCP service that have no request at the moment. Aileron's own clients send a
request as soon as they are connected, or have just sent one.
"""
ACCEPTED_AT_ONCE: Final = 8
"""Number of connections accepted in one turn of the event loop. A request is read five turns after its connection is
accepted. In those five turns, too few newer connections are accepted to make it the oldest of MAX_SILENT connections.
"""
BACKLOG: Final = 128
RECEIVE_BUFFER: Final = 65536
"""Bytes of a connection that the kernel buffers (SO_RCVBUF, which the kernel doubles for its own bookkeeping)."""
_SAY_AGAIN_S: Final = 10.0
_PLACE: Final = "aileron.place"
"""Key of a connection's `Place` in the ASGI state of its requests."""
_log = logging.getLogger(__name__)


class Places:
    """The open TCP connections to one TCP service of the daemon. Each occupies one of MAX_CONNECTIONS places."""

    def __init__(self) -> None:
        self._taken: dict[int, Place] = {}
        self._strangers: dict[Place, None] = {}
        self._waiting: dict[Place, None] = {}
        self._silent: dict[Place, None] = {}
        self._said_at = -_SAY_AGAIN_S
        self._used_at = time.monotonic()

    def is_unused_since(self, moment: float) -> bool:
        """Return whether the TCP service has no connection now, and had none since `moment`, in seconds of
        time.monotonic().
        """
        return not self._taken and self._used_at <= moment

    def make_room(self) -> bool:
        """Make room for one more TCP connection: if all places are taken, end a connection of a caller without an open
        session. Return False if there is no such connection.
        """
        if len(self._taken) < MAX_CONNECTIONS:
            return True
        oldest = next(iter(self._waiting if len(self._waiting) > MAX_SILENT else self._strangers), None)
        if oldest is None:
            self._say("all with an open session: more are turned away")
            return False
        self._say("for each more, the oldest without an open session ends")
        oldest.end()
        return True

    def at(self, descriptor: int) -> Place | None:
        """Return the TCP connection with this file descriptor; None if the connection has ended."""
        return self._taken.get(descriptor)

    def take(self, place: Place) -> None:
        """Record a new TCP connection."""
        self._taken[place.fileno()] = place

    def leave(self, place: Place) -> None:
        """Record that a TCP connection has ended."""
        self.mark_known(place)
        del self._taken[place.fileno()]
        self._used_at = time.monotonic()

    def mark_silent(self, place: Place) -> None:
        """Record that a connection has no request, and belongs to a caller without an open session. If there are too
        many such connections, end the oldest.
        """
        self._strangers[place] = self._waiting[place] = self._silent[place] = None
        if len(self._silent) > MAX_SILENT:
            next(iter(self._silent)).end()

    def mark_asking(self, place: Place) -> None:
        """Record that a connection has a request, and belongs to a caller without an open session."""
        self._silent.pop(place, None)
        self._strangers[place] = self._waiting[place] = None

    def mark_answered(self, place: Place) -> None:
        """Record that the response to a connection's request has begun."""
        self._waiting.pop(place, None)

    def mark_known(self, place: Place) -> None:
        """Record that a connection belongs to a caller with an open session, so that it is not ended to make room."""
        for group in (self._strangers, self._waiting, self._silent):
            group.pop(place, None)

    def _say(self, outcome: str) -> None:
        if time.monotonic() - self._said_at >= _SAY_AGAIN_S:
            self._said_at = time.monotonic()
            _log.warning("%s connections over TCP are open: %s", MAX_CONNECTIONS, outcome)


class Place(socket.socket):
    """An accepted TCP connection, which occupies a place in `Places` until it is closed or ended."""

    def __init__(self, accepted: socket.socket, places: Places) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._places = places
        self._has_place = True
        self._is_known = False
        self._ends: Callable[[], object] | None = None
        places.take(self)
        places.mark_silent(self)

    def mark_served(self, transport: asyncio.WriteTransport, task: asyncio.Task[None]) -> None:
        """Record the transport and the task that serve this connection. `end` stops both, even while they wait."""

        def end() -> None:
            transport.abort()
            task.cancel()

        self._ends = end

    def asks(self) -> None:
        """Record that a request has arrived on this connection. Until it is known that the request has the token or
        cookie of an open session, the caller counts as unknown.
        """
        if self._has_place:
            self._is_known = False
            self._places.mark_asking(self)

    def shows_session(self) -> None:
        """Record that the current request has the token or cookie of an open session."""
        self._is_known = True
        self._places.mark_known(self)

    def mark_answered(self) -> None:
        """Record that data of the response was sent on this connection."""
        self._places.mark_answered(self)

    def mark_idle(self) -> None:
        """Record that this connection has no request now."""
        if self._has_place and not self._is_known:
            self._places.mark_silent(self)

    def end(self) -> None:
        """End the connection now, without sending a response. Its place is free at once."""
        self._leave()
        if self._ends is not None:
            self._ends()
        elif (transport := _transport_at(self.fileno())) is not None:  # while TLS is being established
            transport.abort()

    def close(self) -> None:
        """Close the connection's socket, and free its place."""
        self._leave()
        super().close()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.leave(self)

    def state(self) -> dict[str, object]:
        """Return the entries to add to the ASGI state of each request on this connection."""
        return {_PLACE: self}


def place_of(scope: Scope) -> Place | None:
    """Return the TCP connection that a request came on; None if it came on one of the Unix sockets of the home."""
    found: Place | None = scope["state"].get(_PLACE)
    return found


def _transport_at(descriptor: int) -> asyncio.WriteTransport | None:
    """Return asyncio's transport for a connection on which TLS is not established yet, from asyncio's private attributes.

    There is no other way to end the connection: the seccomp filter forbids shutdown(2) for reading, because that could
    also end listeners (aileron_sandbox/filters.py).
    """
    transport: asyncio.WriteTransport | None = asyncio.get_running_loop()._transports.get(descriptor)  # type: ignore[attr-defined]
    if transport is None or transport.get_extra_info("socket").fileno() != descriptor:  # of an earlier connection
        return None
    return transport


class Bounded(socket.socket):
    """A TCP listener that accepts a connection only if there is a place for it. This object owns the listener's socket."""

    def __init__(self, listener: socket.socket, places: Places) -> None:
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._places = places
        # Otherwise the kernel buffers megabytes of each connection, which must all be read before its end is detected.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)

    def listen(self, backlog: int = 0) -> None:
        """Listen with a fixed backlog, and ignore `backlog`: asyncio passes the number of connections that it accepts
        at once.
        """
        super().listen(BACKLOG)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection, if there is a place. Raises BlockingIOError if there is no connection or no place."""
        accepted, address = super().accept()
        if not self._places.make_room():
            accepted.close()
            raise BlockingIOError  # asyncio then runs other tasks before it accepts again
        # asyncio does not set the option, because these sockets do not state a protocol. Without it, the second piece of a
        # response waits for the acknowledgement of the first, which can take 40 ms. A listener's option would not be inherited
        # by a connection that waited in its backlog before.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Place(accepted, self._places), address
