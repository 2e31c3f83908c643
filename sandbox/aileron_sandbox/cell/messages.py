"""How the host and a cell talk: datagrams over one SOCK_SEQPACKET socket, and one file beside the first.

The file is the `Preparation`, a memory file that comes with `Go`. Before it the process that will be the cell says `Looked`, with
such a file too, where it was to look for something (closed.py). After it the host says `Begin`, `Signal` and `Connect`, and
the cell `Ready`, `Failed`, `Begun`, `Stopped`, `Continued`, `Ended` and `Connected`, some with descriptors
beside them. The host trusts the cell's first process to be ours and nothing else: what it says has a fixed form. The agent has
neither end.

Imported where a cell starts, so that each import counts: `marshal` reads the preparation in 0.1 ms, and both ends are the same
interpreter. msgspec takes 35 ms to import and `typing` 12 (measured), which is more than the rest of a cell.

Source: unix(7), SCM_RIGHTS. Not here: what follows from an event (door.py).
"""

from __future__ import annotations

import marshal
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = [
    "BEGIN",
    "BEGUN",
    "CONNECT",
    "CONNECTED",
    "CONTINUED",
    "ENDED",
    "FAILED",
    "GO",
    "LOOKED",
    "MAX_DATAGRAM",
    "MAX_DESCRIPTORS",
    "NOT_STARTED",
    "READY",
    "SIGNAL",
    "STOPPED",
    "Preparation",
    "number_of",
    "pack_failed",
    "pack_number",
    "pack_numbers",
    "unpack_failed",
    "unpack_numbers",
]

MAX_DATAGRAM: Final = 8 << 10
"""Bytes. The largest is `Failed`, with 4 KiB of words."""
MAX_DESCRIPTORS: Final = 40
"""Beside one datagram: two for each of sixteen listeners, the terminal, the seven of every cell."""

# From the host.
GO, BEGIN, SIGNAL, CONNECT = b"G", b"B", b"S", b"C"
# From the cell.
LOOKED, READY, FAILED, BEGUN, NOT_STARTED = b"L", b"R", b"F", b"b", b"N"
STOPPED, CONTINUED, ENDED, CONNECTED = b"T", b"t", b"E", b"c"

_NUMBER: Final = struct.Struct("!i")
_FAILED: Final = struct.Struct("!i32s")


class Preparation:
    """Everything that a cell needs to know. Paths are as in the policy."""

    __slots__ = (
        "binds",
        "command",
        "environment",
        "files",
        "folder",
        "home",
        "limits",
        "links",
        "masked",
        "overlay",
        "pipes",
        "scratch_bytes",
        "streams",
        "tcp_listeners",
        "umask",
        "unix_listeners",
    )

    binds: tuple[tuple[str, str, bool, bool], ...]
    """(source, target, is writable, shows what is mounted below it)"""
    command: tuple[str, ...]
    environment: dict[str, str]
    files: tuple[tuple[str, bytes], ...]
    folder: str
    home: str
    limits: dict[int, int]
    """By number of the limit, setrlimit(2)."""
    links: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    overlay: tuple[str, str, str, str] | None
    """(lower, upper, work, target)"""
    pipes: tuple[int, int, int]
    """The agent's ends, -1 where a stream is the terminal: by the numbers that they have where they arrived (prepare.py)."""
    scratch_bytes: int
    streams: tuple[str, str, str]
    tcp_listeners: tuple[tuple[str, int], ...]
    umask: int
    unix_listeners: tuple[tuple[str, str], ...]

    def __init__(self, **fields: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, fields[name])

    def encode(self) -> bytes:
        """For the same interpreter on the other end."""
        return marshal.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def decode(cls, data: bytes) -> Preparation:
        """The inverse of `encode`, of bytes that come from the host."""
        return cls(**marshal.loads(data))  # noqa: S302 - the host is who says what happens here


def pack_number(kind: bytes, number: int) -> bytes:
    """A datagram of a kind that says one number."""
    return kind + _NUMBER.pack(number)


def number_of(data: bytes) -> int:
    """The number of such a datagram. struct.error where it has another form."""
    return int(_NUMBER.unpack(data[1:])[0])


def pack_numbers(kind: bytes, numbers: tuple[int, ...]) -> bytes:
    """A datagram of a kind that says several."""
    return kind + struct.pack(f"!{len(numbers)}i", *numbers)


def unpack_numbers(data: bytes) -> tuple[int, ...]:
    """The inverse."""
    return struct.unpack(f"!{(len(data) - 1) // 4}i", data[1:])


def pack_failed(number: int, step: str, what: str) -> bytes:
    """A step of the preparation did not work: errno, step, and the words of the error."""
    return FAILED + _FAILED.pack(number, step.encode()[:32]) + what.encode("utf-8", "replace")[:4096]


def unpack_failed(data: bytes) -> tuple[int, str, str]:
    """The inverse."""
    number, step = _FAILED.unpack(data[1 : 1 + _FAILED.size])
    return number, step.rstrip(b"\0").decode(), data[1 + _FAILED.size :].decode("utf-8", "replace")
