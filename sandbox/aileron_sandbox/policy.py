"""The limits of a jail as an immutable value, checked when built.

A policy cannot grant network, host files, environment or descriptors, because a jail has none of these.

>>> Policy(memory_bytes=64 << 20, cpu_s=30).processes
16
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

__all__ = ["Mode", "Policy", "Profile"]

Mode = Literal["namespaces", "landlock"]
"""The way in which a jail is confined: `namespaces` uses all layers, `landlock` only those that need no user
namespaces. `landlock` is for machines that forbid user namespaces, and is used only if the user chose it
(template/landlocked.py).
"""

Profile = Literal["python", "elf", "elf-subprocess"]
"""The kind of a program, which selects the system calls that it may make: a zip application in the warm interpreter; a compiled
program; or a program of either kind that may start processes (filters.py).
"""

_MIB: Final = 1 << 20


@dataclasses.dataclass(frozen=True)
class Policy:
    """Limits of one child. A value outside its range raises ValueError and is never clamped."""

    memory_bytes: int = 64 * _MIB
    """Maximum private writable memory in bytes, in addition to that of the bare interpreter (RLIMIT_DATA, getrlimit(2))."""
    cpu_s: int = 30
    """Maximum processor time in seconds, summed over all threads (RLIMIT_CPU)."""
    scratch_bytes: int = 32 * _MIB
    """Size of the private /tmp in bytes. It is memory of the machine, but does not count towards `memory_bytes`."""
    scratch_files: int = 1024
    """Maximum number of inodes of the private /tmp."""
    processes: int = 16
    """Maximum number of threads and, if the program may start them, processes (RLIMIT_NPROC, counted in the child's
    own user namespace).
    """
    open_files: int = 64
    """Maximum number of file descriptors (RLIMIT_NOFILE)."""
    file_bytes: int = 32 * _MIB
    """Maximum size of any one file in bytes (RLIMIT_FSIZE)."""
    profile: Profile = "python"
    """The seccomp profile. A program with the profile `python` cannot start processes."""

    def __post_init__(self) -> None:
        _check_range("memory_bytes", self.memory_bytes, _MIB, 1024 * _MIB)
        _check_range("cpu_s", self.cpu_s, 1, 300)
        _check_range("scratch_bytes", self.scratch_bytes, 4096, 1024 * _MIB)
        _check_range("scratch_files", self.scratch_files, 2, 65536)
        _check_range("processes", self.processes, 1, 256)
        _check_range("open_files", self.open_files, 16, 1024)
        _check_range("file_bytes", self.file_bytes, 4096, 1024 * _MIB)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}, expected {least} to {most}")
