"""The messages between the host and a cell: datagrams over one SOCK_SEQPACKET socket, some with descriptors attached.

If the process that will become the cell was told to look for closed files (closed.py), it first sends `Looked` with a
memory file that lists them. The host sends `Go` with a memory file that contains the `Preparation`. From then on the
host sends `Begin`, `Signal` and `Connect`, and the cell `Ready`, `Failed`, `Begun`, `Stopped`, `Continued`, `Ended` and
`Connected`. The cell's first process runs our code; the host checks the form of its messages nevertheless. The agent
has neither end of the socket.

Imported while a cell starts, so imports are few. `marshal` reads the preparation in 0.1 ms, and suffices because both ends
are the same interpreter. msgspec takes 35 ms to import and `typing` 12 (measured), more than the rest of a cell's start.

Source: unix(7), SCM_RIGHTS. Not here: the reaction to an event (door.py).
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
"""Maximum size of a datagram in bytes. The largest is `Failed`, with a message of 4 KiB."""
MAX_DESCRIPTORS: Final = 40
"""Maximum number of descriptors attached to one datagram: two for each of sixteen listeners, the terminal, and the
seven that every cell sends.
"""

# From the host.
GO, BEGIN, SIGNAL, CONNECT = b"G", b"B", b"S", b"C"
# From the cell.
LOOKED, READY, FAILED, BEGUN, NOT_STARTED = b"L", b"R", b"F", b"b", b"N"
STOPPED, CONTINUED, ENDED, CONNECTED = b"T", b"t", b"E", b"c"

_NUMBER: Final = struct.Struct("!i")
_FAILED: Final = struct.Struct("!i32s")


class Preparation:
    """The message with which the host tells a process how to become a cell: the policy, the agent's command, and its
    streams. Paths are as in the policy.
    """

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
    """Binds as (source, target, is_writable, with_mounts); the last says whether mounts below the source are shown, too."""
    command: tuple[str, ...]
    environment: dict[str, str]
    files: tuple[tuple[str, bytes], ...]
    folder: str
    home: str
    limits: dict[int, int]
    """Resource limits by their number (RLIMIT_… of setrlimit(2))."""
    links: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    overlay: tuple[str, str, str, str] | None
    """The overlay as (lower, upper, work, target)."""
    pipes: tuple[int, int, int]
    """Descriptor numbers, in the process that receives them (prepare.py), of the agent's ends of the pipes 0, 1 and 2;
    -1 for a terminal.
    """
    scratch_bytes: int
    streams: tuple[str, str, str]
    tcp_listeners: tuple[tuple[str, int], ...]
    umask: int
    unix_listeners: tuple[tuple[str, str], ...]

    def __init__(self, **fields: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, fields[name])

    def encode(self) -> bytes:
        """Return this message as bytes that a process of the same Python version can decode (marshal)."""
        return marshal.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def decode(cls, data: bytes) -> Preparation:
        """Decode a Preparation from bytes that `encode` returned. They must come from the host, because marshal is not
        safe for other data.
        """
        return cls(**marshal.loads(data))  # noqa: S302 - the bytes come from the host, which decides here anyway


def pack_number(kind: bytes, number: int) -> bytes:
    """Return a datagram of this kind (one of the constants above, such as CONNECTED) that carries one number."""
    return kind + _NUMBER.pack(number)


def number_of(data: bytes) -> int:
    """Return the number in a datagram from `pack_number`. Raises struct.error if the datagram has another form."""
    return int(_NUMBER.unpack(data[1:])[0])


def pack_numbers(kind: bytes, numbers: tuple[int, ...]) -> bytes:
    """Return a datagram of this kind that carries several numbers."""
    return kind + struct.pack(f"!{len(numbers)}i", *numbers)


def unpack_numbers(data: bytes) -> tuple[int, ...]:
    """Return the numbers in a datagram from `pack_numbers`."""
    return struct.unpack(f"!{(len(data) - 1) // 4}i", data[1:])


def pack_failed(number: int, step: str, what: str) -> bytes:
    """Return the datagram that reports a failed step of making a cell: its errno, the step's name, and the error's
    message `what`.
    """
    return FAILED + _FAILED.pack(number, step.encode()[:32]) + what.encode("utf-8", "replace")[:4096]


def unpack_failed(data: bytes) -> tuple[int, str, str]:
    """Return errno, step and message from a datagram of `pack_failed`."""
    number, step = _FAILED.unpack(data[1 : 1 + _FAILED.size])
    return number, step.rstrip(b"\0").decode(), data[1 + _FAILED.size :].decode("utf-8", "replace")
