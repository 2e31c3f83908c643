"""The memory and processor time of a jail's whole tree of processes, for limits that the kernel enforces per process only.

Runs on the host, in any thread: a `Tree` measures when its method is called. Where a jail has a cgroup, the kernel
counts for all its processes (cgroups.py). Elsewhere `ProcessTree` adds up the numbers of each process: its page tables,
and its pages as PSS (proportional set size), where a page that n processes share counts as 1/n (proc_pid_smaps(5)). The
PSS of a process that is not dumpable can be read only with more privilege than its owner has; without that privilege a
page counts once for each process that has it, and a program that forks with much in memory is ended early.

Usage that begins and ends between two measurements is not seen. Meanwhile RLIMIT_DATA and RLIMIT_CPU limit each
process, and a deadline limits all processes.

Not here: what follows from the numbers (jail.py), when to measure (the host), memory that a cell holds outside its
processes (cell/held.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import psutil

__all__ = [
    "WATCH_PERIOD_S",
    "Footprint",
    "Object",
    "ProcessTree",
    "Proportional",
    "TooMuchToSeeError",
    "Tree",
    "Used",
    "proportional",
    "shared_bytes",
]

# Bytes, and line by line: a program chooses its name, and only the newline in it is escaped.
_STATUS: Final = re.compile(rb"^(Rss\w+|VmPTE|VmSwap|HugetlbPages|Threads|FDSize):\s+(\d+)( kB)?$", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S+ [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)$|^(?:Swap)?Pss: +(\d+) kB$", re.MULTILINE
)
_MOST_MAPPED: Final = 256 << 20
"""Maximum number of bytes of mapping lists in one measurement: 300,000 mappings, read in a second. A browser has ten thousand."""
_THREAD_BYTES: Final = 32 << 10
"""Kernel memory for each thread, 32 KiB: its kernel stack, 16 KiB, and the scheduler's data."""
_DESCRIPTOR_BYTES: Final = 8  # for each descriptor that a table has room for, fs/file.c
_SHARED: Final = (b"/dev/zero (deleted)", b"/memfd:", b"[anon_shmem:")
"""Prefixes of the names of mappings of shared memory that has no file or an unnamed file, proc_pid_maps(5)."""
Object = tuple[int, int]
"""The identity of a file: (device, inode)."""
WATCH_PERIOD_S: Final = 0.25
"""Seconds between two measurements. One takes 1 to 5 ms, most of it to find the tree among the processes of the machine."""


class Used(NamedTuple):
    """Memory and processor time of a jail's processes together at one measurement."""

    memory_bytes: int
    """Memory in use in bytes; 0 if the kernel enforces the limit; `is_out_of_memory` then says whether it was exceeded.
    """
    cpu_s: float
    is_out_of_memory: bool = False


class Tree(Protocol):
    """A tree of processes whose use of memory and processor time can be read."""

    def used(self) -> Used:
        """Return the memory and processor time that the tree uses now. Blocks for some milliseconds at most."""
        ...


@dataclasses.dataclass
class ProcessTree:
    """The process `pid`, in the host's pid namespace, and all its descendants. Orphans in a jail become children of
    its first process, so they are included.
    """

    pid: int
    shared_bytes: int = 0
    """Bytes that each process shares with the template at its fork. A constant, not measured again."""
    _cpu_seen_s: dict[tuple[int, float], float] = dataclasses.field(default_factory=dict, repr=False)
    """Processor seconds by process id and start time. Processes that ended without being waited for still count."""

    def footprint(self) -> Footprint:
        """Return the current processes and an upper bound of their memory, in which a shared page counts once for each
        process. The kernel has these numbers ready, unlike PSS: to compute PSS, it walks through all pages, 10 ms for
        each GiB, and blocks processes that allocate memory meanwhile.
        """
        pids = [process.pid for process in self._processes()]
        found = [_status(pid) for pid in pids]
        return Footprint(
            tuple(pids),
            sum(_resident_bytes(status, file_pages=True) for status in found),
            sum(_kept_bytes(status) for status in found),
            sum(status.get(b"FDSize", 0) for status in found),
        )

    def used(self) -> Used:
        """Return memory and processor time of the tree; zeros if no process is left."""
        import psutil  # takes 17 ms; needed only where control groups do not count everything

        memory_bytes, cpu_s = 0, 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                memory_bytes += self._memory_bytes(process)
                times = process.cpu_times()
                cpu_s += sum(times[:4])  # user and system time, its own and that of children it waited for
                self._cpu_seen_s[process.pid, process.create_time()] = sum(times[:2])
        return Used(memory_bytes, max(cpu_s, sum(self._cpu_seen_s.values())))

    def _processes(self) -> list[psutil.Process]:
        """Return the tree's processes that exist now; an empty list if the first process has ended."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []

    def _memory_bytes(self, process: psutil.Process) -> int:
        """Return the PSS of a process. If it may not be read, return the process's own and shared pages minus those
        shared with the template.
        """
        import psutil

        status = _status(process.pid)
        with contextlib.suppress(psutil.AccessDenied):
            pss = int(process.memory_full_info().pss)
            if pss:  # it is 0 for a process whose first thread has ended, even while others go on
                return pss + status.get(b"VmPTE", 0)
        return max(0, _resident_bytes(status) + status.get(b"VmPTE", 0) - self.shared_bytes)


class Footprint(NamedTuple):
    """Memory and descriptors that processes have at one measurement."""

    pids: tuple[int, ...]
    resident_bytes: int
    kept_bytes: int
    """Bytes that the kernel keeps for the processes in addition: huge pages of the machine's pool, page tables,
    threads, descriptor tables.
    """
    descriptors: int
    """Total size of the processes' descriptor tables, as a number of descriptors."""


class TooMuchToSeeError(Exception):
    """Error: the processes have more mappings or descriptors than can be read in a second or two, during which no limit
    would be enforced.
    """


class Proportional(NamedTuple):
    """The proportional memory (PSS) of processes, including swapped pages, without mappings of files that are counted
    elsewhere.
    """

    total_bytes: int
    shared_bytes: int
    """The shared memory in the total, in bytes."""
    has_shared: bool
    """True if a process has a mapping of shared memory. Such a mapping keeps all pages of that memory, even pages that
    are no longer mapped.
    """


def proportional(pids: Iterable[int], files: Collection[Object], devices: Collection[int]) -> Proportional:
    """Return the PSS of these processes together, without memory that is counted elsewhere: that of `files`, that of
    all files on `devices`, and System V memory.

    For a process that may not be read, each page that belongs to no file counts in full. Raises TooMuchToSeeError for
    too many mappings.
    """
    found, left = [], _MOST_MAPPED
    for pid in pids:
        data = _smaps(pid, left)
        left -= len(data)
        found.append(_proportional(pid, data, files, devices))
    return Proportional(sum(part[0] for part in found), sum(part[1] for part in found), any(part[2] for part in found))


def _smaps(pid: int, most: int) -> bytes:
    """Return the memory mappings of a process, as in proc_pid_smaps(5); empty if they may not be read or there are
    none. Raises TooMuchToSeeError for more than `most` bytes.
    """
    data = b""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps", "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooMuchToSeeError(f"its processes have more mappings than {_MOST_MAPPED >> 20} MiB can list")
    return data


def _proportional(pid: int, data: bytes, files: Collection[Object], devices: Collection[int]) -> Proportional:
    if not data:
        status = _status(pid)
        return Proportional(_resident_bytes(status), status.get(b"RssShmem", 0), has_shared=b"RssShmem" in status)
    total_kib = shared_kib = 0
    counts = is_shared = has_shared = False
    for major, minor, inode, name, pss in _MAPPING.findall(data):
        if pss:
            total_kib += int(pss) * counts
            shared_kib += int(pss) * (counts and is_shared)
        else:
            device = os.makedev(int(major, 16), int(minor, 16))
            counts = device not in devices and (device, int(inode)) not in files and not name.startswith(b"/SYSV")
            is_shared = name.startswith(_SHARED)
            has_shared |= counts and is_shared
    return Proportional(total_kib << 10, shared_kib << 10, has_shared)


def shared_bytes(pids: Iterable[int]) -> int:
    """Return the bytes of shared memory, counted once for each process that has them mapped. An unreadable process
    counts as 0.
    """
    return sum(_status(pid).get(b"RssShmem", 0) for pid in pids)


def _resident_bytes(status: dict[bytes, int], *, file_pages: bool = False) -> int:
    kinds = (b"RssAnon", b"RssShmem", b"VmSwap", *((b"RssFile",) if file_pages else ()))
    return sum(status.get(kind, 0) for kind in kinds)


def _kept_bytes(status: dict[bytes, int]) -> int:
    tables = status.get(b"VmPTE", 0) + status.get(b"FDSize", 0) * _DESCRIPTOR_BYTES
    return tables + status.get(b"HugetlbPages", 0) + status.get(b"Threads", 0) * _THREAD_BYTES


def _status(pid: int) -> dict[bytes, int]:
    """Return sizes in bytes and other numbers from the status of a process, or of its first thread that still runs,
    proc_pid_status(5). Empty if the process is gone.
    """
    found = _status_at(f"/proc/{pid}/status")
    if b"VmPTE" not in found:  # its first thread has ended
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                found = _status_at(f"/proc/{pid}/task/{thread}/status")
                if b"VmPTE" in found:
                    break
    return found


def _status_at(path: str) -> dict[bytes, int]:
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        said = _STATUS.findall(file.read(1 << 16))
        return {name: int(number) << (10 if unit else 0) for name, number, unit in said}
    return {}
