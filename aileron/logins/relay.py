"""Relays bytes in both directions between a service and a connector after the login, through the protocol's filter and the
mask.

    connector ──► filter.up ──────────► service
    connector ◄── mask ◄── filter.down ◄── service

Runs in the process of one login, in one thread, which waits for both ends at once. Trusts neither end.

Rules
- Bytes that were read during the login and not used are relayed first, through the filter like all others.
- In each direction at most HELD_BYTES wait to be written, plus the filter's output for one read: if one end does not read,
  nothing is read from the other end. A filter's own responses can take the same amount in addition, so that a client that
  sends without reading is stopped at the same point as by the service itself.
- A note is on disk before any byte that goes with it is written.
- If the connector ends its half, the half to the service is ended after all earlier bytes were sent. With TLS that half stays
  open, because Python can end TLS only in both directions at once. If the connector closes both halves, the same happens, and
  then the connection is closed.
- If the service ends its half, the bytes that it sent are written, and the stream ends. TLS that ends without a closing
  alert is an error, since anyone on the network path can cut a connection.

Not here: what the bytes mean (protocols/), how much may pass in all (the daemon counts: egress).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Final

from aileron.logins.login_messages import LoginError, Note, Problem
from aileron.logins.mask import Mask
from aileron.logins.protocol import Filter, Passed
from aileron.logins.side import Side

__all__ = ["HELD_BYTES", "relay"]

HELD_BYTES: Final = 1 << 20
"""Number of bytes that can wait to be written to one end before the other end is no longer read: four pieces."""
_PIECE_BYTES: Final = 248 << 10
"""Maximum number of bytes read from one end at a time: as many as the daemon takes (egress/stream.py), because the
daemon and the jail handle each piece by itself.
"""
_READS: Final = 8
"""Maximum number of reads from one end before the other end has its turn."""
_LEAVING_S: Final = 5.0
"""Seconds to relay the last bytes of a connector that has disconnected."""


def relay(
    client: Side, server: Side, through: Filter, deadline: float, note: Callable[[Note], None], mask: Mask
) -> None:
    """Relay bytes between the connector and the service until the stream ends. `note` records a note of the filter, and
    returns when it is on disk; `deadline` is in the time of `time.monotonic()`.

    Raises LoginError if the filter refuses something, the service's connection breaks (`closed`), or the deadline passes
    (`too_slow`).
    """
    stream = _Relay(_End(client.sock, "the connector"), _End(server.sock, server.who), through, deadline, note, mask)
    stream.run(client.take_waiting(), server.take_waiting())


class _End:
    """A socket at one end of a relay, with a queue of bytes that wait to be written to it. Its operations never block."""

    def __init__(self, sock: socket.socket, who: str) -> None:
        sock.setblocking(False)
        self.sock: Final = sock
        self.who: Final = who
        self.out = bytearray()
        self._buffer: Final = memoryview(bytearray(_PIECE_BYTES))
        self.is_tls: Final = isinstance(sock, ssl.SSLSocket)
        self._end_was_met = False
        """True if the stream from this end is over after the bytes that `read` returned last."""
        self.has_ended = False
        """True if no more bytes can be read from this end."""
        self.has_gone = False
        """True if the peer no longer reads, so that bytes written to this end are lost."""
        self.is_cut = False
        """True if reading from this end failed, or its TLS was cut without the closing alert."""
        self.read_waits_to_write = False
        self.write_waits_to_read = False

    def read(self) -> bytes | None:
        """Return some bytes, b"" at the end of the stream, or None if none are available now. With TLS, return several records
        together, because each piece is searched for the secret.
        """
        if self._end_was_met:
            return b""
        size = self._read_once(0)
        if size is None:
            return None
        if size and self.is_tls:
            while size < _PIECE_BYTES and (more := self._read_once(size)):
                size += more
            self._end_was_met = size < _PIECE_BYTES and more == 0
        return bytes(self._buffer[:size])

    def _read_once(self, at: int) -> int | None:
        """Read into the buffer after its first `at` bytes. Return the number of bytes read, 0 at the end of the stream, or
        None if none are available now.
        """
        self.read_waits_to_write = False
        try:
            return self.sock.recv_into(self._buffer[at:])
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except ssl.SSLWantWriteError:
            self.read_waits_to_write = True
            return None
        except OSError:  # TLS errors too; their messages must not be passed on
            self.is_cut = True
            return 0

    def put(self, data: bytes) -> None:
        """Write as many of the bytes to this end as is possible at once, and queue the rest."""
        if self.has_gone or not data:
            return
        if self.out or len(data) > _PIECE_BYTES:
            was_empty = not self.out
            self.out += data
            if was_empty:
                self.write()
            return
        sent = self._sent(data)
        if sent < len(data) and not self.has_gone:
            self.out += memoryview(data)[sent:]

    def write(self) -> None:
        """Write as much of the queue to this end as is possible without waiting.

        A piece that TLS could not send is sent again with the same number of bytes or more, because OpenSSL does not accept
        fewer (SSL_write(3)).
        """
        while self.out and not self.has_gone:
            with memoryview(self.out) as waiting, waiting[:_PIECE_BYTES] as piece:
                sent = self._sent(piece)
            if not sent:
                break
            del self.out[:sent]
        if self.has_gone:
            self.out.clear()

    def end_writing(self) -> None:
        if not self.is_tls:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def go(self) -> None:
        self.has_gone = True
        self.out.clear()

    @property
    def has_pending(self) -> bool:
        """True if TLS has read more than it returned, or has reached the end of the stream; poll(2) reports neither of
        these.
        """
        return self._end_was_met or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0)

    def _sent(self, data: bytes | memoryview) -> int:
        self.write_waits_to_read = False
        try:
            return self.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLWantReadError:
            self.write_waits_to_read = True
            return 0
        except OSError:
            self.has_gone = True
            return 0


class _Relay:
    def __init__(
        self,
        client: _End,
        server: _End,
        through: Filter,
        deadline: float,
        note: Callable[[Note], None],
        mask: Mask,
    ) -> None:
        self._client: Final = client
        self._server: Final = server
        self._filter: Final = through
        self._deadline = deadline
        self._note: Final = note
        self._mask: Final = mask
        self._has_told_end = False
        self._ended_badly: LoginError | None = None

    def run(self, of_client: bytes, of_server: bytes) -> None:
        self._pass(self._of_server(of_server))
        self._pass(self._of_client(of_client))
        self._read_server()  # TLS may have read more than it returned
        while not self._is_over():
            self._turn()
        if self._ended_badly is not None:
            raise self._ended_badly
        if self._server.is_cut and not self._client.has_ended and not self._filter.has_said_goodbye:
            raise LoginError(Problem.CLOSED, f"{self._server.who} broke the connection off")

    def _turn(self) -> None:
        """Wait until one of the two sockets is ready, then read from and write to both as far as possible."""
        ready = self._ready()
        client, server = self._client, self._server
        if ready.get(client.sock.fileno(), 0) & select.POLLHUP and not client.has_gone:
            client.go()  # its earlier bytes are still read and passed on, for a moment
            self._deadline = min(self._deadline, time.monotonic() + _LEAVING_S)
        if server.out and self._is_ready(ready, server, select.POLLOUT):
            server.write()
        if client.out and self._is_ready(ready, client, select.POLLOUT):
            client.write()
        if self._may_read_client() and self._is_ready(ready, client, select.POLLIN):
            self._read_client()
        if self._may_read_server() and self._is_ready(ready, server, select.POLLIN):
            self._read_server()
        if client.has_ended and not server.out and not self._has_told_end:
            self._has_told_end = True
            server.end_writing()

    def _is_over(self) -> bool:
        if self._client.has_gone and self._client.has_ended:
            return not self._server.out
        return self._server.has_ended and not self._client.out

    def _may_read_client(self) -> bool:
        return (
            not self._client.has_ended
            and not self._server.has_ended
            and len(self._server.out) < HELD_BYTES
            and len(self._client.out) < 2 * HELD_BYTES
        )

    def _may_read_server(self) -> bool:
        return (
            not self._server.has_ended
            and not self._client.has_gone
            and len(self._client.out) < HELD_BYTES
            and len(self._server.out) < 2 * HELD_BYTES
        )

    def _ready(self) -> dict[int, int]:
        """Wait for the sockets, and return the poll(2) events that are ready, by descriptor. Raises
        LoginError(too_slow) when the deadline has passed.
        """
        client, server = self._client, self._server
        poll = select.poll()
        if (events := _events(client, self._may_read_client())) or not client.has_gone:
            poll.register(client.sock, events)  # also without events: poll(2) always reports POLLHUP
        if events := _events(server, self._may_read_server()):
            poll.register(server.sock, events)
        left_ms = self._left_ms()
        if server.has_pending and self._may_read_server():
            return dict(poll.poll(0)) | {server.sock.fileno(): select.POLLIN | select.POLLOUT}
        if self._mask.is_holding:
            if found := poll.poll(0):
                return dict(found)
            client.put(self._mask.settle())
        return dict(poll.poll(left_ms))

    def _left_ms(self) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise LoginError(Problem.TOO_SLOW, f"the stream to {self._server.who} was not over in time")
        return int(left_s * 1000) + 1

    @staticmethod
    def _is_ready(ready: dict[int, int], end: _End, event: int) -> bool:
        """Return whether the socket of `end` is ready for `event`, an event of poll(2), according to `ready`.

        Errors count as ready, because the attempt to read or write reports them. TLS may have to write in order to read, and
        the reverse.
        """
        got = ready.get(end.sock.fileno(), 0)
        crossed = (event == select.POLLIN and end.read_waits_to_write) or (
            event == select.POLLOUT and end.write_waits_to_read
        )
        wanted = (select.POLLIN | select.POLLOUT) if crossed else event
        return bool(got & (wanted | select.POLLERR | select.POLLHUP))

    def _read_client(self) -> None:
        for _ in range(_READS):
            data = self._client.read()
            if data is None:
                return
            if not data:
                self._client.has_ended = True
                self._pass(self._filter.up_ended())
                return
            self._pass(self._of_client(data))
            if not self._may_read_client():
                return

    def _read_server(self) -> None:
        for _ in range(_READS):
            if not self._may_read_server():
                return
            data = self._server.read()
            if data is None:
                return
            if not data:
                self._server.has_ended = True
                try:
                    self._pass(self._filter.down_ended())
                except LoginError as error:  # the connector gets all earlier bytes before the error is raised
                    self._ended_badly = error
                self._client.put(self._mask.finish())
                return
            self._pass(self._of_server(data))

    def _of_client(self, data: bytes) -> Iterable[Passed]:
        if self._filter.is_idle:
            self._server.put(data)
            return ()
        return self._filter.up(data) if data else ()

    def _of_server(self, data: bytes) -> Iterable[Passed]:
        if self._filter.is_idle:
            self._client.put(self._mask.feed(data))
            return ()
        return self._filter.down(data) if data else ()

    def _pass(self, passed: Iterable[Passed]) -> None:
        for to_server, to_client, note in passed:
            if note is not None:
                self._note(note)
            self._server.put(to_server)
            self._client.put(self._mask.feed(to_client))


def _events(end: _End, may_read: bool) -> int:
    events = 0
    if may_read:
        events |= select.POLLOUT if end.read_waits_to_write else select.POLLIN
    if end.out:
        events |= select.POLLIN if end.write_waits_to_read else select.POLLOUT
    return events
