"""The messages between host and template: datagrams over one SOCK_SEQPACKET socket, as fixed structs with descriptors
attached.

The host trusts the template as much as itself; the template trusts the host. A jailed program has neither end of the
socket. The first datagram is the preparation, as JSON; every later one is a `Group`, `Spawn`, `Born`, `Listening`,
`Asked`, `Attempted`, `Ended` or `Failed`.

Source: unix(7), SCM_RIGHTS. Not here: the messages of a connector (frames/).
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final, Self

from aileron_sandbox.policy import Mode, Profile

__all__ = [
    "FAILED_SIZE",
    "MAX_DATAGRAM",
    "MAX_REQUEST",
    "Asked",
    "Attempted",
    "Born",
    "Ended",
    "Failed",
    "Group",
    "Listening",
    "Preparation",
    "Ready",
    "Spawn",
    "decode",
]

MAX_DATAGRAM: Final = 128 << 10
"""Maximum size of a datagram in bytes. The largest is the preparation: some hundred paths and a BPF program of a few
KiB. The kernel's own default socket buffer is 208 KiB.
"""

MAX_REQUEST: Final = 512
"""Maximum size in bytes of any datagram after the first two. An attempt to reach the longest possible name takes 277."""

_SPAWN: Final = struct.Struct("!c16sQ13Q")
_GROUP: Final = struct.Struct("!cQQQ")
_BORN: Final = struct.Struct("!cQQ")
_ENDED: Final = struct.Struct("!cQqQQQ")
_FAILED: Final = struct.Struct("!cQi32s")
_OF_CHILD: Final = struct.Struct("!cQ")


@dataclasses.dataclass(frozen=True)
class Preparation:
    """The message with which the host tells the template all facts that it needs before it confines itself. Paths are
    host paths.
    """

    stdlib: str
    libraries: list[str]
    packages: dict[str, str]
    zones: str | None
    preload: list[str]
    profiles_hex: dict[Profile, str]
    """The allow list of each profile that the children can have, as hexadecimal BPF."""
    watched_hex: str
    """The network filter that notifies the template of calls that reach for a network (filters.py), as hexadecimal BPF."""
    unwatched_hex: str
    """The network filter that refuses these calls, as hexadecimal BPF. It is for a kernel that cannot notify the template."""
    rehearsal_hex: str
    """A hexadecimal zip application to rehearse with. The host builds it, because zipfile is slow to import."""
    mode: Mode = "namespaces"
    has_groups: bool = False
    """True if each child has a control group; no child is then forked without one."""
    is_compiled: bool = False
    """True for programs that are exec'ed. The root then has no Python, and of the fields above only libraries and
    filters matter.
    """

    def encode(self) -> bytes:
        """Encode the preparation as JSON, because the template knows no other form yet."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a preparation from bytes that `encode` returned."""
        return cls(**json.loads(data))


@dataclasses.dataclass(frozen=True)
class Ready:
    """Message that the template is confined. `layers` are those in force for every child, as doctor and the audit trail
    list them.
    """

    layers: list[str]
    landlock_abi: int
    data_bytes: int
    """Private memory of the template itself in bytes, which a child shares until it writes to it; 0 for programs that
    are exec'ed.
    """

    def encode(self) -> bytes:
        """Encode the message as JSON, because it is sent only once."""
        return b"R" + json.dumps(dataclasses.asdict(self)).encode()


@dataclasses.dataclass(frozen=True)
class Spawn:
    """Message of the host that requests a child, sent with the descriptors of the program, the frame pipes (in, out)
    and the log pipe. Sizes are in bytes.
    """

    profile: Profile
    child: int
    memory_bytes: int
    cpu_s: int
    scratch_bytes: int
    scratch_files: int
    processes: int
    open_files: int
    file_bytes: int
    program_bytes: int
    group_bytes: int
    """Memory limit of the child's control group in bytes; 0 if there are no groups."""
    listens: bool
    """True if the host wants to receive the listener of the child's filter (`Listening`)."""
    group: int = 0
    """Number of a control group that comes with this request instead of a separate `Group`; 0 for none. Its
    descriptors follow the others. This saves the wake-up for another datagram.
    """
    doors: int = 0
    bounds: int = 0

    def encode(self) -> bytes:
        """Encode the message as 129 bytes."""
        profile, *numbers = dataclasses.astuple(self)
        return _SPAWN.pack(b"S", profile.encode(), *numbers)


@dataclasses.dataclass(frozen=True)
class Group:
    """Message with a control group for the child that is forked next. Sent with `doors` and then `bounds` descriptors.

    A process that writes "0" to each of the doors enters the group. A number written to the bounds becomes the
    group's limit (limits.py). Each child has a group. The host sends two at first, and one with every `Spawn`, so
    that children forked ahead have a group.
    """

    group: int
    doors: int
    bounds: int

    def encode(self) -> bytes:
        """Encode the message as 25 bytes."""
        return _GROUP.pack(b"G", self.group, self.doors, self.bounds)


@dataclasses.dataclass(frozen=True)
class Born:
    """Message that a child exists. Sent with the child's pidfd, and with the listener of its filter if that exists
    already. `group` is the number of its control group, 0 for none.
    """

    child: int
    group: int

    def encode(self) -> bytes:
        """Encode the message as 17 bytes."""
        return _BORN.pack(b"B", self.child, self.group)


@dataclasses.dataclass(frozen=True)
class Listening:
    """Message that a child's filter has a listener, which is sent with it. The host neither reads from the listener nor
    answers on it: since Linux 6.11 the listener hangs up when no process of the child will make another system call,
    which is before any of them is reaped.
    """

    child: int

    def encode(self) -> bytes:
        """Encode the message as 9 bytes."""
        return _OF_CHILD.pack(b"L", self.child)


@dataclasses.dataclass(frozen=True)
class Asked:
    """Message that a child made a system call that would reach a network. The destination is being determined, and is
    reported before `Ended`.
    """

    child: int

    def encode(self) -> bytes:
        """Encode the message as 9 bytes."""
        return _OF_CHILD.pack(b"Q", self.child)


@dataclasses.dataclass(frozen=True)
class Attempted:
    """Message that a child tried to reach a network by itself, and is being ended. `destination` has the form of
    ending.NetworkAttempt.
    """

    child: int
    destination: str

    def encode(self) -> bytes:
        """Encode the message as 9 bytes and the text, which is ASCII."""
        return _OF_CHILD.pack(b"A", self.child) + self.destination.encode("ascii")


@dataclasses.dataclass(frozen=True)
class Ended:
    """Message that every process of a child has been reaped. `status` is a wait status, wait(2).

    `group` is the number of a group that is returned, 0 for none. `child` is 0 if no request had the child because it
    was forked ahead and lost. If `status` is 0, too, there was no child, and only the group is returned.
    """

    child: int
    status: int
    cpu_ms: int
    max_rss_kib: int
    group: int

    def encode(self) -> bytes:
        """Encode the message as 41 bytes."""
        return _ENDED.pack(b"E", self.child, self.status, self.cpu_ms, self.max_rss_kib, self.group)


@dataclasses.dataclass(frozen=True)
class Failed:
    """Message that a step of the preparation (`child` is 0) or of one child failed. In the latter case the child ends, too."""

    child: int
    errno: int
    step: str

    def encode(self) -> bytes:
        """Encode the message as 45 bytes, so that a child can write it to a shared pipe in one piece (PIPE_BUF is 4096)."""
        return _FAILED.pack(b"F", self.child, self.errno, self.step.encode()[:32])


FAILED_SIZE: Final = _FAILED.size


def decode(data: bytes) -> Spawn | Group | Born | Listening | Asked | Attempted | Ended | Failed | Ready:
    """Decode a datagram. Raises ValueError for anything else, which would be a bug, because both ends run this package."""
    kind = data[:1]
    match kind:
        case b"S":
            _, profile, *numbers = _SPAWN.unpack(data)
            return Spawn(profile.rstrip(b"\0").decode(), *numbers)
        case b"G":
            return Group(*_GROUP.unpack(data)[1:])
        case b"B":
            return Born(*_BORN.unpack(data)[1:])
        case b"L":
            return Listening(_OF_CHILD.unpack(data)[1])
        case b"Q":
            return Asked(_OF_CHILD.unpack(data)[1])
        case b"A":
            child = _OF_CHILD.unpack_from(data)[1]
            return Attempted(child, data[_OF_CHILD.size :].decode("ascii"))
        case b"E":
            return Ended(*_ENDED.unpack(data)[1:])
        case b"F":
            child, number, step = _FAILED.unpack(data)[1:]
            return Failed(child, number, step.rstrip(b"\0").decode())
        case b"R":
            fields: dict[str, Any] = json.loads(data[1:])
            return Ready(**fields)
        case _:
            raise ValueError(f"unknown datagram {kind!r}")
