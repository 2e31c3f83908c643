r"""PostgreSQL's messages, as bytes: read one by one during the login, cut out of a stream after it.

    start-up    int32 length, int32 code, body            the first of a connection, and what may come in its place
    else        byte kind, int32 length, body             the length counts itself

Runs in the process of one login and trusts neither end. No I/O of its own: `read` waits in a `Side`, `Cutter` is fed.

Rules
- A length is checked before anything is waited for or kept.
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

from aileron.logins.messages import LoginError, Problem
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
"""Bytes of one message of a login; a server's longest is an error or the row of a check, of a few KiB."""
_LENGTH: Final = struct.Struct("!i")
_MAX_LENGTH: Final = (1 << 30) - 1
"""What PostgreSQL itself takes for a message (PQ_LARGE_MESSAGE_LIMIT)."""


def message(kind: bytes, body: bytes = b"") -> bytes:
    """One message."""
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(code: int, body: bytes = b"") -> bytes:
    """One without a kind, as a connection begins."""
    return struct.pack("!ii", len(body) + 8, code) + body


def text(*words: str) -> bytes:
    """Each with its end."""
    return b"".join(word.encode() + b"\0" for word in words)


def strings(body: bytes) -> list[bytes]:
    """A body that is strings, each with its end; LoginError where it is not."""
    if not body.endswith(b"\0"):
        raise LoginError(Problem.PROTOCOL, "a string of the PostgreSQL protocol has no end")
    return body[:-1].split(b"\0")


def ready(status: bytes) -> bytes:
    """ReadyForQuery: `I` outside of a transaction, `T` in one, `E` in one that failed."""
    return message(b"Z", status)


def read(side: Side) -> tuple[bytes, bytes]:
    """The next message's kind and body. LoginError."""
    kind, length = struct.unpack("!ci", side.exactly(5))
    if not 4 <= length <= MAX_MESSAGE:
        raise LoginError(
            Problem.PROTOCOL, "the service sent a message that is not PostgreSQL's, or too long for a login"
        )
    return kind, side.exactly(length - 4)


class Fields(NamedTuple):
    """Of an ErrorResponse or a NoticeResponse."""

    sqlstate: str
    said: str


def parse_error(body: bytes) -> Fields:
    """What a service says of an error: never fails, as there is one already."""
    found = {part[:1]: part[1:] for part in body.split(b"\0") if part}
    said = found.get(b"M", b"").decode("utf-8", "replace")
    sqlstate = found.get(b"C", b"").decode("ascii", "replace")
    return Fields(sqlstate if sqlstate.isalnum() and len(sqlstate) == 5 else "", printable(said))


def error_response(sqlstate: str, words: str, *, fatal: bool) -> bytes:
    """An error of ours, as a library shows it."""
    severity = "FATAL" if fatal else "ERROR"
    return message(b"E", text(f"S{severity}", f"V{severity}", f"C{sqlstate}", f"M{words}") + b"\0")


class Head(NamedTuple):
    """A message begins: `size` bytes of body, of which the first are here, as many as were asked for of this kind."""

    kind: bytes
    size: int
    body: bytes

    @property
    def header(self) -> bytes:
        """The five bytes before the body."""
        return self.kind + struct.pack("!i", self.size + 4)

    @property
    def is_last(self) -> bool:
        """Nothing of the message is still to come."""
        return len(self.body) == self.size


class Rest(NamedTuple):
    """More of the body whose head came before, or a run of whole messages. `is_last`: the message is over."""

    data: bytes
    is_last: bool


class Cutter:
    """Messages out of a stream. Keeps at most a header and what was asked for of one body; the rest passes in pieces."""

    def __init__(self, keep: Mapping[bytes, int], who: str, runs: bytes = b"") -> None:
        """`keep`: kind → bytes of a body that come together with its head, or the whole of it if it is shorter. `runs`: the kinds
        of which nobody looks at one alone, as the rows of a result; as many as are here as a whole come as one `Rest`.
        """
        self._keep: Final = keep
        self._runs: Final = frozenset(runs)
        self._who: Final = who
        self._waiting = bytearray()
        self._left = 0

    def cut(self, data: bytes) -> list[Head | Rest]:
        """What has become known with these bytes. LoginError where they are no messages."""
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
        """Behind the last of the messages that come in a run, begin here, and are here as a whole."""
        runs, unpack, last = self._runs, _LENGTH.unpack_from, len(waiting) - 5
        while at <= last and waiting[at] in runs:
            (length,) = unpack(waiting, at + 1)
            if not 4 <= length <= last - at + 4:
                break
            at += length + 1
        return at
