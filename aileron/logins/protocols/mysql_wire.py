r"""The packets of MySQL and MariaDB as bytes. During the login they are read one by one; after the login only their heads are
inspected.

    3 bytes length, 1 byte number, body        with length 2^24-1, the next packet continues the body

Runs in the process of one login and trusts neither end. Does no I/O except through a `Side`, in which `read` waits.

Source: MySQL's "Client/Server Protocol", chapters "MySQL Packets" and "Generic Response Packets"; MariaDB's protocol pages.
Not here: what a packet means (mysql.py).

>>> packet(0, b"\x03SELECT 1")
b'\t\x00\x00\x00\x03SELECT 1'
"""

from __future__ import annotations

import struct
from typing import Final

from aileron.logins.login_messages import LoginError, Problem
from aileron.logins.side import Side
from aileron.logins.words import printable

__all__ = ["GOES_ON", "Failure", "Reader", "failure_of", "failure_packet", "packet", "read"]

GOES_ON: Final = 0xFFFFFF
"""Body length in bytes that says that the packet's body is continued in the following packet."""
MAX_PACKET: Final = 64 << 10
"""Maximum size of a packet in bytes during a login; the longest packet is a row of SHOW GRANTS."""


def packet(number: int, body: bytes) -> bytes:
    """Return a MySQL packet with this body. `number` is its sequence number within a command, sent modulo 256."""
    return struct.pack("<I", len(body) | (number & 0xFF) << 24) + body


def read(side: Side, number: int) -> bytes:
    """Return the body of the packet with this number. Raises LoginError if the packet has another number, is empty or
    has more than MAX_PACKET bytes, or does not arrive.
    """
    (head,) = struct.unpack("<I", side.exactly(4))
    size, found = head & 0xFFFFFF, head >> 24
    if size > MAX_PACKET or not size or found != number & 0xFF:
        raise LoginError(Problem.PROTOCOL, f"what {side.who} sent is no packet of MySQL's, or too long for a login")
    return side.exactly(size)


class Reader:
    """A parser that takes values from the front of a packet's body. Its methods raise LoginError if too few bytes are left."""

    def __init__(self, body: bytes) -> None:
        self._body: Final = body
        self._at = 0

    def take(self, size: int) -> bytes:
        """Take the next `size` bytes from the front, and return them."""
        found = self._body[self._at : self._at + size]
        if len(found) < size:
            raise LoginError(Problem.PROTOCOL, "a packet of MySQL's protocol is shorter than what it should hold")
        self._at += size
        return found

    def number(self, size: int) -> int:
        """Take the next `size` bytes, and return them as a little-endian integer."""
        return int.from_bytes(self.take(size), "little")

    def string(self) -> bytes:
        """Return the bytes up to a zero byte, which is skipped, or all remaining bytes if there is no zero byte."""
        found, _, _ = self._body[self._at :].partition(b"\0")
        self._at = min(self._at + len(found) + 1, len(self._body))
        return found

    def counted(self) -> bytes | None:
        """Take the next length-encoded string, and return it without its length, or None for NULL."""
        first = self.number(1)
        if first == 0xFB:
            return None
        return self.take(first if first < 0xFB else self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 9)))

    def rest(self) -> bytes:
        """Return all bytes of the packet's body that are left."""
        return self.take(len(self._body) - self._at)


class Failure(Exception):
    """The contents of an ERR packet: the server's error number, its SQLSTATE or "", and its message in printable characters."""

    def __init__(self, number: int, sqlstate: str, said: str) -> None:
        super().__init__(f"error {number}")
        self.number: Final = number
        self.sqlstate: Final = sqlstate
        self.said: Final = said


def failure_of(body: bytes) -> Failure:
    """Parse an ERR packet. Never raises an exception, because this function is called to report a failure."""
    number = int.from_bytes(body[1:3], "little")
    has_state = body[3:4] == b"#"
    state = body[4:9].decode("ascii", "replace") if has_state else ""
    said = body[9 if has_state else 3 :].decode("utf-8", "replace")
    return Failure(number, state, printable(said))


def failure_packet(number: int, code: int, sqlstate: str, words: str) -> bytes:
    """Return an ERR packet that Aileron itself sends, and that a library reports as an error."""
    return packet(number, b"\xff" + struct.pack("<H", code) + f"#{sqlstate}{words}".encode())
