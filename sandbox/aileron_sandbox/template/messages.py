"""How the host and the template talk: datagrams over one SOCK_SEQPACKET socket, fixed structs, descriptors beside them.

The host trusts the template as much as itself; the template trusts the host. A jailed program has neither end. The
first datagram is the preparation, as JSON; every later one is a `Group`, `Spawn`, `Born`, `Listening`, `Asked`,
`Attempted`, `Ended` or `Failed`.

Source: unix(7), SCM_RIGHTS. Not here: what a connector says (frames/).
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final, Self

from aileron_sandbox.policy import Mode, Profile

__all__ = [
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
"""Bytes. The preparation is the largest: some hundred paths and a BPF program of a few KiB; the kernel's own default
socket buffer is 208 KiB."""

MAX_REQUEST: Final = 512
"""Bytes of any datagram after the first two. An attempt to reach the longest of names takes 277."""

_SPAWN: Final = struct.Struct("!c16sQ13Q")
_GROUP: Final = struct.Struct("!cQQQ")
_BORN: Final = struct.Struct("!cQQ")
_ENDED: Final = struct.Struct("!cQqQQQ")
_FAILED: Final = struct.Struct("!cQi32s")
_OF_CHILD: Final = struct.Struct("!cQ")


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Everything the template needs to know before it shuts itself in. Paths are host paths."""

    stdlib: str
    libraries: list[str]
    packages: dict[str, str]
    zones: str | None
    preload: list[str]
    profiles_hex: dict[Profile, str]
    """The allow list of each profile that its children can have, as BPF."""
    watched_hex: str
    """What comes before it: the calls that reach for a network, asked about (filters.py) …"""
    unwatched_hex: str
    """… or refused, where this kernel does not let the template be asked."""
    rehearsal_hex: str
    """A zip application to rehearse with: built by the host, as zipfile is dear to import."""
    mode: Mode = "namespaces"
    has_groups: bool = False
    """Whether each child has a control group, and none is forked without."""
    is_compiled: bool = False
    """For programs that are exec'ed: then there is no Python in the root, and of the above only libraries and filters matter."""

    def encode(self) -> bytes:
        """JSON, because the template knows nothing else yet."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The inverse of `encode`."""
        return cls(**json.loads(data))


@dataclasses.dataclass(frozen=True)
class Ready:
    """The template is shut in; `layers` are those in force for every child, as doctor and the audit list them."""

    layers: list[str]
    landlock_abi: int
    data_bytes: int
    """Private memory of the template itself, which a child shares until it writes to it; 0 for what is exec'ed."""

    def encode(self) -> bytes:
        """JSON, sent once."""
        return b"R" + json.dumps(dataclasses.asdict(self)).encode()


@dataclasses.dataclass(frozen=True)
class Spawn:
    """Fork a child. Beside it: descriptors of the program, the frame pipes (in, out) and the log pipe. Sizes in bytes."""

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
    """The limit of the child's control group; 0 where there are none."""
    listens: bool
    """Whether the host wants the listener of its filter (`Listening`)."""
    group: int = 0
    """As a `Group` that came just before, whose descriptors are beside these: one datagram less to wake up for."""
    doors: int = 0
    bounds: int = 0

    def encode(self) -> bytes:
        """129 bytes."""
        profile, *numbers = dataclasses.astuple(self)
        return _SPAWN.pack(b"S", profile.encode(), *numbers)


@dataclasses.dataclass(frozen=True)
class Group:
    """A control group for one child, whichever is forked next. Beside this: `doors` and then `bounds` descriptors.

    Whoever writes "0" to each of the doors is in the group, and a number written to the bounds is its limit (limits.py). Each
    child has one. Two are given at first, and one with every `Spawn`, so that children forked ahead have theirs.
    """

    group: int
    doors: int
    bounds: int

    def encode(self) -> bytes:
        """25 bytes."""
        return _GROUP.pack(b"G", self.group, self.doors, self.bounds)


@dataclasses.dataclass(frozen=True)
class Born:
    """The child exists; its pidfd is beside this, and its listener where there is one already. `group` is the one it is in, 0 for
    none.
    """

    child: int
    group: int

    def encode(self) -> bytes:
        """17 bytes."""
        return _BORN.pack(b"B", self.child, self.group)


@dataclasses.dataclass(frozen=True)
class Listening:
    """The listener of the child's filter is beside this. The host asks and answers nothing there: since Linux 6.11 it hangs up
    when no process of the child will make another system call, which is before any of them is reaped.
    """

    child: int

    def encode(self) -> bytes:
        """9 bytes."""
        return _OF_CHILD.pack(b"L", self.child)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The child made a call that reaches for a network, and what it wanted is being found out: that is told before `Ended`."""

    child: int

    def encode(self) -> bytes:
        """9 bytes."""
        return _OF_CHILD.pack(b"Q", self.child)


@dataclasses.dataclass(frozen=True)
class Attempted:
    """The child tried to reach a network by itself, and is being ended. `destination` as in ending.NetworkAttempt."""

    child: int
    destination: str

    def encode(self) -> bytes:
        """9 bytes and the text, which is ASCII."""
        return _OF_CHILD.pack(b"A", self.child) + self.destination.encode("ascii")


@dataclasses.dataclass(frozen=True)
class Ended:
    """Every process of the child is gone and reaped. `status` is a wait status, wait(2).

    `group` is given back, 0 for none. `child` is 0 for one that was forked ahead and lost, and then `status` is 0 where
    it is only the group that is given back.
    """

    child: int
    status: int
    cpu_ms: int
    max_rss_kib: int
    group: int

    def encode(self) -> bytes:
        """41 bytes."""
        return _ENDED.pack(b"E", self.child, self.status, self.cpu_ms, self.max_rss_kib, self.group)


@dataclasses.dataclass(frozen=True)
class Failed:
    """A step did not work: of the preparation (`child` 0) or of one child, which then also ends."""

    child: int
    errno: int
    step: str

    def encode(self) -> bytes:
        """45 bytes, so that a child can write it to a shared pipe in one piece (PIPE_BUF is 4096)."""
        return _FAILED.pack(b"F", self.child, self.errno, self.step.encode()[:32])


FAILED_SIZE: Final = _FAILED.size


def decode(data: bytes) -> Spawn | Group | Born | Listening | Asked | Attempted | Ended | Failed | Ready:
    """One datagram. ValueError for anything else: it would be a bug of ours, since both ends are."""
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
