"""How the host and the template talk: datagrams over one SOCK_SEQPACKET socket, fixed structs, descriptors beside them.

The host trusts the template as much as itself; the template trusts the host. A jailed program has neither end. The
first datagram is the preparation, as JSON; every later one is a `Spawn`, `Born`, `Ended` or `Failed`.

Source: unix(7), SCM_RIGHTS. Not here: what a connector says (frames/).
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final, Self

__all__ = ["MAX_DATAGRAM", "MAX_REQUEST", "Born", "Ended", "Failed", "Preparation", "Ready", "Spawn", "decode"]

MAX_DATAGRAM: Final = 128 << 10
"""Bytes. The preparation is the largest: some hundred paths and a BPF program of a few KiB; the kernel's own default
socket buffer is 208 KiB."""

MAX_REQUEST: Final = 256
"""Bytes of any datagram after the first two."""

_SPAWN: Final = struct.Struct("!cQ8Q")
_BORN: Final = struct.Struct("!cQ")
_ENDED: Final = struct.Struct("!cQqQQ")
_FAILED: Final = struct.Struct("!cQi32s")


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Everything the template needs to know before it shuts itself in. Paths are host paths."""

    stdlib: str
    libraries: list[str]
    packages: dict[str, str]
    zones: str | None
    preload: list[str]
    filter_hex: str
    trivial_hex: str
    """A zip application that does nothing, to rehearse with: built by the host, as zipfile is dear to import."""

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

    def encode(self) -> bytes:
        """JSON, sent once."""
        return b"R" + json.dumps(dataclasses.asdict(self)).encode()


@dataclasses.dataclass(frozen=True)
class Spawn:
    """Fork a child. Beside it: descriptors of the program, the frame pipes (in, out) and the log pipe. Sizes in bytes."""

    child: int
    memory_bytes: int
    cpu_s: int
    scratch_bytes: int
    scratch_files: int
    processes: int
    open_files: int
    file_bytes: int
    program_bytes: int

    def encode(self) -> bytes:
        """74 bytes."""
        return _SPAWN.pack(b"S", *dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class Born:
    """The child exists; its pidfd is beside this."""

    child: int

    def encode(self) -> bytes:
        """9 bytes."""
        return _BORN.pack(b"B", self.child)


@dataclasses.dataclass(frozen=True)
class Ended:
    """Every process of the child is gone and reaped. `status` is a wait status, wait(2)."""

    child: int
    status: int
    cpu_ms: int
    max_rss_kib: int

    def encode(self) -> bytes:
        """33 bytes."""
        return _ENDED.pack(b"E", self.child, self.status, self.cpu_ms, self.max_rss_kib)


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


def decode(data: bytes) -> Spawn | Born | Ended | Failed | Ready:
    """One datagram. ValueError for anything else: it would be a bug of ours, since both ends are."""
    kind = data[:1]
    match kind:
        case b"S":
            return Spawn(*_SPAWN.unpack(data)[1:])
        case b"B":
            return Born(*_BORN.unpack(data)[1:])
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
