"""Resource limits of one child, setrlimit(2). Hard and soft alike: a child cannot raise what it cannot lower.

RLIMIT_DATA is the memory limit: it counts private writable pages, which is what an allocation is. RLIMIT_AS backs it up
against mappings that are not private, with room for thread stacks and allocator arenas that are reserved but never used.
RLIMIT_NPROC is counted in the child's own user namespace, so it must be set after unshare(CLONE_NEWUSER): before, it would
also bound the host user's other processes.
"""

from __future__ import annotations

import resource
from typing import Final

from aileron_sandbox.template.messages import Spawn

__all__ = ["apply_limits", "measure_base"]

_AS_ROOM_BYTES: Final = 1 << 30  # 16 threads x 64 MiB glibc arena reservation (mallopt(3), M_ARENA_MAX)
_SIGNALS: Final = 16  # queued signals: nothing to queue them for
_PAGE: Final = resource.getpagesize()


def measure_base(statm: str) -> tuple[int, int]:
    """(virtual size, data size) in bytes of this process, from the text of proc_pid_statm(5)."""
    fields = statm.split()
    return int(fields[0]) * _PAGE, int(fields[5]) * _PAGE


def apply_limits(spawn: Spawn, base: tuple[int, int]) -> None:
    """Bind this process; `base` is what the template itself uses, which a child starts with."""
    base_as, base_data = base
    for kind, value in (
        (resource.RLIMIT_DATA, base_data + spawn.memory_bytes),
        (resource.RLIMIT_AS, base_as + spawn.memory_bytes + _AS_ROOM_BYTES),
        (resource.RLIMIT_CPU, spawn.cpu_s),
        (resource.RLIMIT_NPROC, spawn.processes),
        (resource.RLIMIT_NOFILE, spawn.open_files),
        (resource.RLIMIT_FSIZE, spawn.file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, _SIGNALS),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
    ):
        resource.setrlimit(kind, (value, value))
