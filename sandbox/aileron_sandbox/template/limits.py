"""Resource limits of one child, setrlimit(2). Hard and soft limits are equal, so a child cannot raise them.

RLIMIT_DATA is the memory limit: it counts private writable pages, which allocations consist of. It does not count
shared mappings, mappings that grow down, or pages made read-only after they were written (mprotect(2)). So RLIMIT_AS,
which counts every mapping, is only a little higher: enough for the stack and for libraries loaded late. If the host
sent control groups, these bound all processes of the child together, and also memory that no rlimit counts: scratch,
pages of shared mappings, and the kernel's own data on the child. RLIMIT_DATA is the smaller bound, so a program that
allocates too much gets an error, and is not killed. RLIMIT_NPROC is counted in the child's own user namespace, so it
must be set after unshare(CLONE_NEWUSER). If it were set before, it would also limit the host user's other processes.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aileron_sandbox.template.template_messages import Spawn

__all__ = ["Group", "apply_limits", "measure_base"]

_AS_ROOM_BYTES: Final = 64 << 20
"""Address space for read-only mappings, 64 MiB: ssl, sqlite3, asyncio and the codecs together map 20 MiB. Thread
arenas are off (kernel.py).
"""
_STACK_BYTES: Final = 8 << 20  # what Linux gives by default; the host's own may be without limit
_SIGNALS: Final = 16  # queued signals: nothing to queue them for
_PAGE: Final = resource.getpagesize()


def measure_base(statm: str) -> tuple[int, int]:
    """Return (virtual size, data size) in bytes of this process, from the text of proc_pid_statm(5)."""
    fields = statm.split()
    return int(fields[0]) * _PAGE, int(fields[5]) * _PAGE


class Group(NamedTuple):
    """A control group as descriptors of its files. The host opened them, so the kernel checks the host's rights, cgroups(7)."""

    doors: tuple[int, ...]
    """Descriptors of the group's `cgroup.procs` in each hierarchy; the first is for memory."""
    bounds: tuple[int, ...]
    """Descriptors of the files for the memory limit and, in v1 if the kernel accounts for swap, for the limit on
    memory and swap together.
    """

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors of the control group: those in `doors` and those in `bounds`."""
        return *self.doors, *self.bounds

    def enter(self) -> None:
        """Enter the control group that counts memory, and close its descriptor."""
        os.write(self.doors[0], b"0")
        os.close(self.doors[0])

    def enter_all(self) -> None:
        """Enter the control groups of the other hierarchies, which in v1 count resources other than memory."""
        for door in self.doors[1:]:
            os.write(door, b"0")

    def bound(self, limit_bytes: int) -> None:
        """Set the control group's memory limit. The limit on memory and swap together must never be the smaller one, so
        it is lifted first. memory.rst of cgroup-v1.
        """
        limit, *with_swap = self.bounds
        for fd in with_swap:
            os.pwrite(fd, b"-1", 0)
        for fd in (limit, *with_swap):
            os.pwrite(fd, b"%d" % limit_bytes, 0)


def apply_limits(spawn: Spawn, base: tuple[int, int], *, counts_processes: bool = True) -> None:
    """Set the resource limits of this process; `base` is the memory (address space, data) that the template itself
    uses, which a child starts with.

    `counts_processes` limits the number of processes. It is for a process in its own user namespace; elsewhere all
    other processes of the user would count, too.
    """
    base_as, base_data = base
    for kind, value in (
        (resource.RLIMIT_DATA, base_data + spawn.memory_bytes),
        (resource.RLIMIT_AS, base_as + spawn.memory_bytes + _AS_ROOM_BYTES),
        (resource.RLIMIT_STACK, _STACK_BYTES),
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
        if counts_processes or kind != resource.RLIMIT_NPROC:
            resource.setrlimit(kind, (value, value))
