"""`aileron-mcp`, the process that an agent starts as its MCP server. It forwards lines from standard input to the daemon,
and lines back.

The server itself is in a process that the daemon starts, behind `$AILERON_HOME/run/mcp.sock`. The relay knows no tool
and decides nothing. It trusts neither side's bytes, holds no secret but the session's token, and outlives the daemon:
if the daemon is restarted, the relay connects again, and the client keeps its connection (relay_requests.py handles
open requests). If no daemon runs, the relay starts one, at the beginning and whenever a request waits. The end of a
daemon alone is no reason to start another, since a person may have stopped it. While the first daemon starts, the
client gets the answers that the last daemon would have given (relay_early.py).

Rules
- Only complete lines are forwarded, in both directions, so that a line truncated by the end of a daemon is never
  continued with another line. A line is sent to the next daemon only if none of its bytes was sent before.
- The relay reads only as much as it can forward: for each direction it stores at most one line and the data that was
  read together with it. Until it is connected to its first daemon, it stores requests of at most 1 MiB together.
- Standard output carries only the protocol. A problem is reported as one line on standard error. While it lasts, it is also
  the answer to each request.
- When standard input ends, this process ends at once. Runs that it has begun continue in the daemon.
- Agents wait for this process before each session, so parsers are only imported after the first answer was forwarded.
  Until then, lines are stored unparsed (`_notes`).

If AILERON_URL is set, relay_http.py relays over HTTP instead.

Source: the MCP specification, stdio transport; docs/explanation/relay.md. Not here: the protocol (server.py), the rights of a
token (the daemon).
"""

from __future__ import annotations

import _socket as socket  # what `socket` wraps, without the enumerations it makes: 3 ms of 22
import os
import select
import sys
import time

from aileron import UNSUPPORTED
from aileron.mcp.relay_process import MAX_LINE_BYTES, say, token_of

TYPE_CHECKING = False  # as in typing, without importing it
if TYPE_CHECKING:
    from typing import Final

    from aileron.mcp.relay_early import Early
    from aileron.mcp.relay_requests import ClientConversation, TooLong
    from aileron.mcp.relay_start import Starting

__all__ = ["MAX_ASKED_BYTES", "Relay", "home_directory", "main", "preamble"]

OK: Final = 0
MISUSED: Final = 2
UNAVAILABLE: Final = 69
INTERRUPTED: Final = 130

MAX_ASKED_BYTES: Final = 1 << 20
"""Maximum size in bytes of a client's message that the daemon's server accepts. A longer message would end the connection,
and with it all other requests.
"""
_TOO_LONG: Final = f"a message of more than {MAX_ASKED_BYTES >> 20} MiB is not passed on"
_CHUNK: Final = 1 << 18
_PIPE_BUF: Final = 4096
"""Number of bytes that a writable pipe takes without blocking, pipe(7). Standard output is not made non-blocking,
because other processes may share it.
"""
_NOTED_BYTES: Final = 1 << 16
"""Number of bytes of forwarded lines above which the lines are parsed even before the first answer. An agent sends some
hundred bytes.
"""
_SOON_S: Final = 0.05
_AGAIN_S: Final = 1.0
"""Maximum number of seconds between two checks for a daemon while no request needs one. The interval starts at `_SOON_S`
and doubles.
"""
_READY_S: Final = 20.0
"""Maximum seconds from the daemon's report that it is ready until its socket accepts the relay. The socket exists by then,
but its backlog may be full.
"""
_LIST_S: Final = 1.0
"""Seconds from the start of a daemon after which a request for the list of tools is answered with the last daemon's
list. A daemon that starts in its usual time answers before that. The shortest time that an agent is known to wait is
five seconds (docs/adr/0040-answers-before-the-daemon.md).
"""
_REFUSING_S: Final = 5.0
"""Seconds after a failed start during which requests are answered with the reason. After that, another start is attempted."""
_FUTILE: Final = 3
"""Number of futile connections in a row after which the relay waits longer before the next. A connection is futile if
the daemon ends it within `_AGAIN_S` without sending anything.
"""
_WATCH: Final = 0  # poll(2) tells of a hang-up without being asked


class Relay:
    """A relay between a client on standard input and output and the daemon of one home, across the daemon's restarts."""

    def __init__(self, home: str, first: bytes) -> None:
        self._home = home
        self._first = first  # the first line of every connection
        self._link: socket.socket | None = None
        self._is_taking = False  # False if the daemon no longer reads
        self._starting: Starting | None = None
        self._early: Early | None = None  # None once connected to a daemon
        self._list_at = 0.0  # time from which `_early` answers the list of tools
        self._look_at = 0.0
        self._pause_s = _SOON_S
        self._give_up_at = 0.0  # deadline for a daemon that runs but accepts no connections; else 0
        self._refuse_until = 0.0
        self._problem = ""
        self._futile = 0
        self._linked_at = 0.0
        self._is_wanted = True
        self._is_over = False
        # From the client: an incomplete line; complete lines, bytes sent of the first; and data to send before them.
        self._asking = bytearray()
        self._skipped: TooLong | None = None  # the line that is being received, if it is too long
        self._lines: list[bytes] = []  # in reverse order
        self._sent = 0
        self._ahead = b""
        # From the daemon: an incomplete line, and complete lines that are not written to standard output yet.
        self._saying = bytearray()
        self._out = bytearray()
        self._has_told = False
        self._notes: list[tuple[bool, bytes]] = []
        self._noted_bytes = 0
        self._book: ClientConversation | None = None
        self._writable = select.poll()
        self._writable.register(1, select.POLLOUT)

    def run(self) -> int:
        """Relay until standard input ends or standard output is closed. Return 0, or 69 if there is no daemon."""
        self._find_daemon()
        while not self._is_over:
            for fd, events in self._poll():
                self._handle(fd, events)
            if self._link is None:
                self._find_daemon()
            if self._link is None:
                self._answer_early()
            if self._notes and (self._has_told or self._noted_bytes > _NOTED_BYTES):
                self._read_notes()
        if self._link is not None:
            self._link.close()
        return UNAVAILABLE if self._problem else OK

    # Waiting

    def _poll(self) -> list[tuple[int, int]]:
        waits = select.poll()
        if self._may_read():
            waits.register(0, select.POLLIN)
        elif self._link is None:
            waits.register(0, _WATCH)
        waits.register(1, select.POLLOUT if self._out else _WATCH)
        timeout_s = None
        if self._link is not None:
            events = 0 if self._out else select.POLLIN
            if self._is_taking and (self._ahead or self._lines):
                events |= select.POLLOUT
            if events:
                waits.register(self._link, events)
        elif self._starting is not None:
            waits.register(self._starting.done, select.POLLIN)
            left_s = self._list_at - time.monotonic()
            timeout_s = left_s if self._early is not None and self._lines and left_s > 0 else None
        else:
            timeout_s = max(0.0, self._look_at - time.monotonic())
        return waits.poll(None if timeout_s is None else timeout_s * 1000 + 1)

    def _may_read(self) -> bool:
        if self._book is not None and self._book.is_full:
            return False
        if self._lines and (self._early is None or sum(map(len, self._lines)) > MAX_ASKED_BYTES):
            return False
        # Without a daemon the answers are ours, and wait for their reader.
        return self._link is not None or not self._out

    def _handle(self, fd: int, events: int) -> None:
        if self._link is not None and fd == self._link.fileno():
            if events & ~select.POLLOUT:
                self._hear()
            if events & select.POLLOUT and self._link is not None:
                self._send()
        elif fd == 1:
            if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                self._is_over = True  # nobody reads the answers
            else:
                self._tell()
        elif fd == 0:
            if events & select.POLLIN:
                self._ask()
            else:
                self._is_over = True
        elif self._starting is not None:
            self._started(self._starting)

    # From the client to the daemon

    def _ask(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._is_over = True
            return
        *lines, rest = data.split(b"\n")
        fresh = []
        for line in lines:
            if self._skipped is not None:
                self._skipped.feed(line)
                self._say_long(self._skipped.refusal(_TOO_LONG))
                self._skipped = None
                continue
            whole = bytes(self._asking) + line + b"\n" if self._asking else line + b"\n"
            self._asking.clear()
            if len(whole) > MAX_ASKED_BYTES:
                self._refuse_long(whole)
            else:
                fresh.append(whole)
        self._lines = fresh[::-1] + self._lines  # older lines are left only before the first daemon
        if self._skipped is None:
            self._asking += rest
        else:
            self._skipped.feed(rest)
        if len(self._asking) > MAX_LINE_BYTES:
            from aileron.mcp.relay_requests import TooLong

            self._skipped = TooLong(bytes(self._asking))
            self._asking.clear()
        self._put_aside()
        self._send()

    def _put_aside(self) -> None:
        """Drop waiting lines that are neither requests nor cancellations of requests, if there is no daemon. Other
        notifications are no reason to start a daemon.
        """
        if self._link is not None or self._book is None:
            return
        from aileron.mcp.relay_requests import takes_back, wants_answer

        waiting: list[bytes] = []
        for line in reversed(self._lines):
            if wants_answer(line) or (waiting and takes_back(line)):
                waiting.append(line)
            else:
                self._book.sent(line)
        self._lines = waiting[::-1]

    def _refuse_long(self, line: bytes) -> None:
        from aileron.mcp.relay_requests import as_line, failed, refusal

        self._say_long(refusal(line, _TOO_LONG) or as_line(failed(None, _TOO_LONG)))

    def _say_long(self, answer: bytes) -> None:
        say(_TOO_LONG)
        self._out += answer
        self._tell()

    def _send(self) -> None:
        """Send as many waiting lines to the daemon as it accepts now. If the connection is closed, do not end it here:
        there may be unread answers, and the next read notices the end.
        """
        if self._link is None:
            return
        try:
            while self._ahead:
                self._ahead = self._ahead[self._link.send(self._ahead) :]
            while self._lines and self._is_taking:
                line = self._lines[-1]
                taken = self._link.send(memoryview(line)[self._sent :] if self._sent else line)
                if not self._sent:
                    self._note(line, is_asked=True)
                self._sent += taken
                if self._sent == len(line):
                    self._sent = 0
                    self._lines.pop()
        except BlockingIOError:
            pass
        except OSError:
            self._is_taking = False

    # From the daemon to the client

    def _hear(self) -> None:
        if self._link is None:
            return
        try:
            data = self._link.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._saying) > MAX_LINE_BYTES:
            self._lose()
            return
        end = data.rfind(b"\n") + 1
        if not end:
            self._saying += data
            return
        lines = bytes(self._saying) + data[:end] if self._saying else data[:end]
        self._saying = bytearray(data[end:])
        self._futile = 0
        if self._book is not None and self._book.is_resuming:
            self._read_notes()
            for line in _lines_of(lines):
                self._out += self._book.heard(line)
        else:
            self._out += lines
            self._note(lines, is_asked=False)
        self._tell()
        if self._book is not None and self._book.broken:
            self._break(self._book.broken)

    def _break(self, problem: str) -> None:
        """End the relay, because the new daemon does not support what the old daemon promised the client in the handshake."""
        self._fail(problem)
        self._tell()
        self._is_over = True

    def _answer_early(self) -> None:
        """Answer waiting requests with the stored answers of the last daemon while the first daemon starts. A request
        for the list of tools is answered only after `_LIST_S`.
        """
        if self._early is None or not self._lines:
            return
        from aileron.mcp.relay_early import LIST

        waiting = []
        for line in reversed(self._lines):
            method = self._early.method(line)
            if method is None or (method == LIST and time.monotonic() < self._list_at):
                waiting.append(line)
                continue
            book = self._read_notes()
            book.sent(line)
            self._out += book.heard(self._early.answer(line))
            book.is_early = book.is_early or method == LIST
        self._lines = waiting[::-1]
        self._tell()

    def _tell(self) -> None:
        """Write as much output for the client to standard output as it takes without blocking."""
        try:
            while self._out and self._writable.poll(0):
                del self._out[: os.write(1, self._out[:_PIPE_BUF])]
        except BlockingIOError:
            return
        except OSError:
            self._is_over = True
            return
        self._has_told = self._has_told or not self._out

    def _note(self, lines: bytes, *, is_asked: bool) -> None:
        self._notes.append((is_asked, lines))
        self._noted_bytes += len(lines)

    def _read_notes(self) -> ClientConversation:
        """Parse the lines that were forwarded in both directions, in their order, and return the record of the client's
        open requests.
        """
        if self._book is None:
            from aileron.mcp.relay_requests import ClientConversation

            self._book = ClientConversation()
        for is_asked, lines in self._notes:
            for line in _lines_of(lines):
                if is_asked:
                    self._book.sent(line)
                else:
                    self._book.heard(line)
        self._notes.clear()
        self._noted_bytes = 0
        return self._book

    # The daemon comes and goes

    def _lose(self) -> None:
        """Handle the end of the connection to the daemon: answer or keep the open requests, and prepare for another
        connection.
        """
        assert self._link is not None
        self._link.close()
        self._link = None
        book = self._read_notes()
        if self._sent:  # the daemon may have read the part that was sent, so the line counts as sent
            self._sent = 0
            self._lines.pop()
        self._ahead = b""
        self._saying.clear()
        self._out += book.lost()
        self._put_aside()
        self._is_wanted = False
        now = time.monotonic()
        self._futile = self._futile + 1 if now - self._linked_at < _AGAIN_S else 0
        self._pause_s = _SOON_S
        self._look_at = now + _SOON_S
        if self._futile >= _FUTILE:
            self._fail(f"the daemon ends the connection at once: see {self._home}/logs/daemon.log")
        self._tell()

    def _find_daemon(self) -> None:
        """Connect to a daemon, start one if one is needed, or report why there is none."""
        now = time.monotonic()
        if self._starting is not None:
            return
        if now >= self._look_at and not self._connect():
            self._look_at = now + (_SOON_S if self._give_up_at else self._pause_s)
            self._pause_s = min(2 * self._pause_s, _AGAIN_S)
            if self._give_up_at and now >= self._give_up_at:
                self._fail(
                    f"no connection to {self._home}/run/mcp.sock: end the daemon that runs, aileron daemon restart"
                )
            elif not self._give_up_at and now >= self._refuse_until and self._needs_daemon():
                self._start_daemon()
        if self._link is None and self._lines:
            if now < self._refuse_until:
                self._refuse()
            elif not self._give_up_at:
                self._look_at = now  # a request waits: check for a daemon at once

    def _start_daemon(self) -> None:
        from aileron.mcp.relay_early import Early
        from aileron.mcp.relay_start import Starting

        self._starting = Starting(self._home)
        if not self._linked_at:
            self._early = Early(self._home, token_of(os.environ))
            self._list_at = time.monotonic() + _LIST_S

    def _needs_daemon(self) -> bool:
        return self._is_wanted or bool(self._lines) or (self._book is not None and self._book.is_waiting)

    def _connect(self) -> bool:
        if self._futile >= _FUTILE and not self._needs_daemon():
            return False
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            link.connect(f"{self._home}/run/mcp.sock")
        except BlockingIOError:  # its backlog is full: there is a daemon
            link.close()
            self._give_up_at = self._give_up_at or time.monotonic() + _READY_S
            return False
        except OSError:
            link.close()
            return False
        self._link, self._is_taking, self._linked_at = link, True, time.monotonic()
        self._early = None
        self._give_up_at = self._refuse_until = 0.0
        self._problem = ""
        self._ahead = self._first + (self._book.resumed() if self._book is not None else b"")
        self._send()
        return True

    def _started(self, starting: Starting) -> None:
        problem = starting.finish()
        self._starting = None
        self._look_at = 0.0
        if problem:
            self._fail(problem)
        else:
            self._give_up_at = time.monotonic() + _READY_S

    def _fail(self, problem: str) -> None:
        """Record that no daemon could be started, and answer waiting requests with the reason."""
        if problem != self._problem:
            say(problem)
        self._problem = problem
        self._is_wanted = False
        self._early = None
        self._give_up_at = 0.0
        self._refuse_until = time.monotonic() + _REFUSING_S
        self._look_at = max(self._look_at, time.monotonic() + (_REFUSING_S if self._futile >= _FUTILE else _AGAIN_S))
        self._out += self._read_notes().give_up(problem)
        self._refuse()

    def _refuse(self) -> None:
        if not self._lines:
            return
        from aileron.mcp.relay_requests import refusal

        for line in reversed(self._lines):
            self._out += refusal(line, self._problem)
        self._lines.clear()
        self._tell()


def main() -> int:
    """Run the relay with the environment's settings. Return the exit code."""
    if not _has_standard_streams():
        return MISUSED
    if UNSUPPORTED is not None:
        say(UNSUPPORTED)
        return UNAVAILABLE
    if os.environ.get("AILERON_URL"):
        from aileron.mcp.relay_http import main as over_http

        return over_http()
    try:
        return Relay(home_directory(), preamble(token_of(os.environ))).run()
    except ValueError as error:
        say(str(error))
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def home_directory() -> str:
    """Return `$AILERON_HOME`, else `~/.aileron`, by the same rule as aileron.client but without its imports. Raises
    ValueError if there is no home.
    """
    configured = os.environ.get("AILERON_HOME")
    home = os.path.join(os.getcwd(), configured) if configured else os.path.expanduser("~/.aileron")
    if not home.startswith("/"):
        raise ValueError("there is no home directory: set AILERON_HOME")
    return home


def preamble(token: str) -> bytes:
    """Return the first line of every connection to the daemon: it contains the session's token. Return empty bytes if
    there is no session.
    """
    message = '{"jsonrpc":"2.0","method":"notifications/aileron/session","params":{"token":"%s"}}\n'
    return (message % token).encode() if token else b""


def _has_standard_streams() -> bool:
    """Return whether standard input and output are open. If one is closed, the next socket would take its descriptor."""
    try:
        os.fstat(0)
        os.fstat(1)
    except OSError:
        say("standard input and output are needed: an agent starts this program")
        return False
    return True


def _lines_of(block: bytes) -> list[bytes]:
    """Return complete lines, each with its line end. Only a line feed ends a line."""
    return [line + b"\n" for line in block.split(b"\n")[:-1]]


if __name__ == "__main__":
    sys.exit(main())
