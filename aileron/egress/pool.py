"""Connections that wait for the next request, so that a connector need not pay for TLS each time it runs.

Runs in the daemon. A connection is stored under all conditions that were decided when it was made (`Key`). So a connection to a
private address is no longer used after the user has withdrawn the permission for it, and a connection that carried a credential
never serves a request with another credential or with none. A connection with a client certificate does not serve a request
with another certificate of the same binding either (engine.py compares them), and is not stored if the vault was locked between
the loan of that certificate and the end of the request. The name is resolved, and its addresses are checked, when a connection
is made; a pooled connection stays with the peer that was vetted and proved its name.

Rules
- A connection is stored only after a complete request and a complete response, with no byte left over. Otherwise an
  upstream that was made to respond twice would answer the next invocation's request (response splitting).
- A connection is checked again when it is taken: if the peer closed it, or unexpected bytes came, it is closed and
  discarded. (In HTTP/2, frames of the connection itself, like pings, are expected; frames of a request are not.)
- A connection carries one request at a time, even in HTTP/2 (http2.py says why).
- At most `MAX_IDLE` connections are stored in all, at most `MAX_IDLE_PER_KEY` under one key, and none longer than
  `IDLE_S`; the oldest are discarded first. Time is checked only on every take and put. So in a daemon that sends
  nothing the last connections stay, unused and closed by the peer.

Not here: the number in use at once (engine.py, meter.py).
"""

from __future__ import annotations

from typing import Final

import anyio
import httpcore2
import msgspec

from aileron.egress.dial import Wire
from aileron.egress.http2 import Http2
from aileron.model.names import HostPort

__all__ = ["IDLE_S", "MAX_IDLE", "MAX_IDLE_PER_KEY", "Connection", "Key", "Pool"]

IDLE_S: Final = 60.0  # nginx keeps a client 75 s, Apache and Node 5 s; one that closes first is noticed
MAX_IDLE: Final = 32  # descriptors that may lie idle in the daemon
MAX_IDLE_PER_KEY: Final = 8


class Key(msgspec.Struct, frozen=True):
    """The properties that a pooled connection and a request must share, so that the request can use the connection.
    `identity` is the binding's name; None if the connection carried no credential.
    """

    destination: HostPort
    plain: bool
    private: bool
    identity: str | None


class Connection(msgspec.Struct):
    """A connection to a vetted address. httpcore2 compares the URLs of requests with `origin`."""

    key: Key
    wire: Wire
    address: str
    origin: httpcore2.Origin
    http: httpcore2.AsyncHTTP11Connection | Http2
    certificate: bytes | None = None
    """Tag of the client certificate that the connection was made with (client_certificate.py); None if it has no client
    certificate.
    """
    generation: int | None = None
    """The pool's generation when the client certificate was lent. None if the generation is not known; then a
    connection with a client certificate is not stored.
    """
    idle_since: float = 0.0

    @classmethod
    def over(
        cls, wire: Wire, address: str, key: Key, certificate: bytes | None = None, generation: int | None = None
    ) -> Connection:
        """Return an HTTP connection over a new wire, in the version that the handshake negotiated; HTTP/1.1 without TLS."""
        scheme = b"http" if key.plain else b"https"
        origin = httpcore2.Origin(scheme, key.destination.host.encode("ascii"), key.destination.port)
        http = Http2(wire) if wire.speaks_http2 else httpcore2.AsyncHTTP11Connection(origin, wire)
        return cls(key, wire, address, origin, http, certificate, generation)

    async def send(self, request: httpcore2.Request, head_bytes: int) -> httpcore2.Response:
        """Send a request. Return its response, whose body has not been read yet. `head_bytes` is the maximum size of
        everything that comes before the body.
        """
        if isinstance(self.http, Http2):
            return await self.http.send(request, head_bytes)
        self.wire.limit_reading(head_bytes)
        answer = await self.http.handle_async_request(request)
        self.wire.limit_reading(None)
        return answer

    def is_alive(self) -> bool:
        """Return whether the connection is idle, and the peer has neither closed it nor sent unexpected bytes. Never blocks."""
        return self.http.is_alive() if isinstance(self.http, Http2) else self.wire.is_quiet()

    def is_reusable(self) -> bool:
        """Return whether the last request and response are both complete, and no bytes followed them."""
        return (
            self.wire.is_open() and self.http.is_idle() and (isinstance(self.http, Http2) or not _left_over(self.http))
        )


class Pool:
    """Idle connections, oldest first. `generation` counts how often client certificates were forgotten; read it before
    a client certificate is lent.
    """

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.generation = 0
        self._closed = False

    def take(self, key: Key) -> Connection | None:
        """Take the most recently used live connection for this key out of the pool and return it; None if there is none."""
        self._close_expired()
        for connection in [c for c in reversed(self.idle) if c.key == key]:
            self.idle.remove(connection)
            if connection.is_alive():
                return connection
            connection.wire.close()
        return None

    def put(self, connection: Connection) -> None:
        """Store a connection whose response has ended if it can be reused; close it otherwise."""
        self._close_expired()
        if self._closed or self._is_forgotten(connection) or not connection.is_reusable():
            connection.wire.close()
            return
        same = [c for c in self.idle if c.key == connection.key]
        if len(same) >= MAX_IDLE_PER_KEY:
            self._drop(same[0])
        elif len(self.idle) >= MAX_IDLE:
            self._drop(self.idle[0])
        connection.idle_since = anyio.current_time()
        self.idle.append(connection)

    def forget_certificates(self) -> None:
        """Close the connections whose client certificate was lent before this call: idle connections at once, the
        others when they are returned to the pool.
        """
        self.generation += 1
        for connection in [idle for idle in self.idle if self._is_forgotten(idle)]:
            self._drop(connection)

    def _is_forgotten(self, connection: Connection) -> bool:
        return connection.certificate is not None and connection.generation != self.generation

    def close(self) -> None:
        """Close all idle connections. From now on, also close connections that are returned to the pool."""
        self._closed = True
        while self.idle:
            self._drop(self.idle[0])

    def _close_expired(self) -> None:
        oldest = anyio.current_time() - IDLE_S
        while self.idle and self.idle[0].idle_since < oldest:
            self._drop(self.idle[0])

    def _drop(self, connection: Connection) -> None:
        self.idle.remove(connection)
        connection.wire.close()


def _left_over(http: httpcore2.AsyncHTTP11Connection) -> bool:
    """Return whether the connection has read bytes that belong to no response. httpcore2 has no public API for this;
    returns True if the attribute is missing.

    h11 keeps such bytes, and would parse them as the beginning of the next response. httpcore2's own pool does not
    check.
    """
    parser = getattr(http, "_h11_state", None)
    return parser is None or parser.trailing_data != (b"", False)
