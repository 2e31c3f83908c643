r"""PostgreSQL's messages as bytes. During the login they are read one by one; after the login they are cut out of a stream.

    start-up    int32 length, int32 code, body            the first message of a connection, or a request in its place
    else        byte kind, int32 length, body             the length includes its own four bytes

Runs in the process of one login and trusts neither end. Does no I/O except through a `Side`, in which `read` waits; `Cutter`
gets its bytes from the caller.

Rules
- A length is checked before any of the message is awaited or stored.
- Text is UTF-8 without a zero byte.

Source: PostgreSQL's manual, chapters "Message Flow" and "Message Formats" (protocol 3.0). Not here: what a message means
(postgres.py, postgres_frame.py).

>>> message(b"Q", text("SELECT 1"))
b'Q\x00\x00\x00\rSELECT 1\x00'
>>> Cutter({b"Q": 100}, "the connector").cut(b"Q\x00\x00\x00\rSELECT 1\x00H\x00\x00\x00\x04")
[Head(kind=b'Q', size=9, body=b'SELECT 1\x00'), Head(kind=b'H', size=0, body=b'')]
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aileron.logins.login_messages import LoginError, Problem
from aileron.logins.side import Side
from aileron.logins.words import printable

__all__ = [
    "MAX_MESSAGE",
    "Cutter",
    "Fields",
    "Head",
    "Rest",
    "error_response",
    "message",
    "parse_error",
    "read",
    "ready",
    "startup",
    "strings",
    "text",
]

MAX_MESSAGE: Final = 64 << 10
"""Maximum size of a message in bytes during a login; a server's longest message is an error or a row of the check of
rights, of a few KiB.
"""
_LENGTH: Final = struct.Struct("!i")
_MAX_LENGTH: Final = (1 << 30) - 1
"""Length in bytes of the longest message that PostgreSQL itself accepts (PQ_LARGE_MESSAGE_LIMIT)."""


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return the bytes of a PostgreSQL message with this kind and body."""
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(code: int, body: bytes = b"") -> bytes:
    """Return the bytes of a start-up message, which begins a connection and has no kind."""
    return struct.pack("!ii", len(body) + 8, code) + body


def text(*words: str) -> bytes:
    """Return the words as a PostgreSQL message has them: in UTF-8, each followed by a zero byte."""
    return b"".join(word.encode() + b"\0" for word in words)


def strings(body: bytes) -> list[bytes]:
    """Split a body that consists of strings, each followed by a zero byte. Raises LoginError for any other body."""
    if not body.endswith(b"\0"):
        raise LoginError(Problem.PROTOCOL, "a string of the PostgreSQL protocol has no end")
    return body[:-1].split(b"\0")


def ready(status: bytes) -> bytes:
    """Return ReadyForQuery with a status: `I` outside a transaction, `T` in a transaction, `E` in a failed transaction."""
    return message(b"Z", status)


def read(side: Side) -> tuple[bytes, bytes]:
    """Read the next message; return its kind and body. Raises LoginError if the message is invalid or does not arrive."""
    kind, length = struct.unpack("!ci", side.exactly(5))
    if not 4 <= length <= MAX_MESSAGE:
        raise LoginError(
            Problem.PROTOCOL, "the service sent a message that is not PostgreSQL's, or too long for a login"
        )
    return kind, side.exactly(length - 4)


class Fields(NamedTuple):
    """The fields of an ErrorResponse or a NoticeResponse."""

    sqlstate: str
    said: str


def parse_error(body: bytes) -> Fields:
    """Parse an error from the service. Never raises an exception, because this function is called to report an error."""
    found = {part[:1]: part[1:] for part in body.split(b"\0") if part}
    said = found.get(b"M", b"").decode("utf-8", "replace")
    sqlstate = found.get(b"C", b"").decode("ascii", "replace")
    return Fields(sqlstate if sqlstate.isalnum() and len(sqlstate) == 5 else "", printable(said))


def error_response(sqlstate: str, words: str, *, fatal: bool) -> bytes:
    """Return an ErrorResponse of Aileron's own, which a library reports to its user with the message `words`."""
    severity = "FATAL" if fatal else "ERROR"
    return message(b"E", text(f"S{severity}", f"V{severity}", f"C{sqlstate}", f"M{words}") + b"\0")


class Head(NamedTuple):
    """The kind of a message, the size of its body in bytes, and the beginning of its body: as many bytes as the Cutter
    is told to keep of this kind.
    """

    kind: bytes
    size: int
    body: bytes

    @property
    def header(self) -> bytes:
        """The five bytes before the message's body: its kind and its length."""
        return self.kind + struct.pack("!i", self.size + 4)

    @property
    def is_last(self) -> bool:
        """True if the message has no bytes after this Head."""
        return len(self.body) == self.size


class Rest(NamedTuple):
    """Bytes that continue the body of the message before, or a run of complete messages. `is_last` is true if a message
    ends with these bytes.
    """

    data: bytes
    is_last: bool


class Cutter:
    """A parser that cuts one direction of a PostgreSQL stream into messages. It stores at most a header and the requested part
    of one body, and returns the rest in pieces as they arrive.
    """

    def __init__(self, keep: Mapping[bytes, int], who: str, runs: bytes = b"") -> None:
        """Set how many bytes at the beginning of a message's body are returned together (`keep`). `who` names the
        sender of the stream in errors.

        `keep` maps a kind to the number of bytes of the body that are returned together with its head; a shorter body is
        returned completely. `runs` has the kinds that are not needed one by one, such as the rows of a result: consecutive
        complete messages of these kinds are returned as one `Rest`.
        """
        self._keep: Final = keep
        self._runs: Final = frozenset(runs)
        self._who: Final = who
        self._waiting = bytearray()
        self._left = 0

    def cut(self, data: bytes) -> list[Head | Rest]:
        """Take the next bytes of the stream, and return the parts of messages that are complete with them. Raises
        LoginError if the bytes are not messages.
        """
        self._waiting += data
        return list(self._cut())

    def _cut(self) -> Iterator[Head | Rest]:
        at = 0
        waiting = memoryview(bytes(self._waiting))
        while True:
            end = at if self._left or not self._runs else self._end_of_run(waiting, at)
            if end > at:
                yield Rest(bytes(waiting[at:end]), is_last=True)
                at = end
            if self._left:
                if at == len(waiting):
                    break
                piece = waiting[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                yield Rest(bytes(piece), is_last=not self._left)
                continue
            if len(waiting) - at < 5:
                break
            kind, length = struct.unpack_from("!ci", waiting, at)
            if not 4 <= length <= _MAX_LENGTH:
                raise LoginError(
                    Problem.PROTOCOL, f"{self._who} sent bytes that are no message of PostgreSQL's protocol"
                )
            size = length - 4
            wanted = min(size, self._keep.get(kind, 0))
            if len(waiting) - at - 5 < wanted:
                break
            at += 5
            self._left = size - wanted
            body = bytes(waiting[at : at + wanted])
            at += wanted
            yield Head(kind, size, body)
        self._waiting = bytearray(waiting[at:])

    def _end_of_run(self, waiting: memoryview, at: int) -> int:
        """Return the index after the longest sequence of complete messages that begins at `at` and whose kinds are in
        `runs`.
        """
        runs, unpack, last = self._runs, _LENGTH.unpack_from, len(waiting) - 5
        while at <= last and waiting[at] in runs:
            (length,) = unpack(waiting, at + 1)
            if not 4 <= length <= last - at + 4:
                break
            at += length + 1
        return at
