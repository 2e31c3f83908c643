"""What a jail's whole tree of processes uses, for the limits that the kernel keeps for single processes only.

Runs on the host, in any thread: a `Tree` is a value that looks when it is asked to. Where a jail has a cgroup, the kernel
counts for all of it (cgroups.py). Elsewhere `ProcessTree` adds up what each process says: its page tables, and its pages as PSS,
in which a page that n processes share counts as an nth (proc_pid_smaps(5)). Of a process that is not dumpable only its owner's
better may read that; then a page counts once for each that has it, and a program that forks with much in memory is ended early.

What a watch cannot see is what comes and goes between two looks. RLIMIT_DATA and RLIMIT_CPU bound each process meanwhile, and
the wall clock all of them.

Not here: what follows from it (jail.py), when to look (the host), what a cell holds outside of its processes (cell/held.py).
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
"""Bytes of lists of mappings in one look, a second of reading: 300,000 of them. A browser has ten thousand."""
_THREAD_BYTES: Final = 32 << 10
"""A stack in the kernel, 16 KiB, and what the scheduler keeps."""
_DESCRIPTOR_BYTES: Final = 8  # of a table that grows to twice its size, fs/file.c
_SHARED: Final = (b"/dev/zero (deleted)", b"/memfd:", b"[anon_shmem:")
"""Names of mappings of memory that has no file, or one without a name, proc_pid_maps(5)."""
Object = tuple[int, int]
"""A file: (device, inode)."""
WATCH_PERIOD_S: Final = 0.25
"""Between two looks. One takes 1 to 5 ms, most of it to find the tree among the processes of the machine."""


class Used(NamedTuple):
    """What was seen at one look, of all processes together."""

    memory_bytes: int
    """0 where the kernel holds the limit and says so in `is_out_of_memory`."""
    cpu_s: float
    is_out_of_memory: bool = False


class Tree(Protocol):
    """Something to look at."""

    def used(self) -> Used:
        """What is used now. Blocks for some milliseconds at most."""
        ...


@dataclasses.dataclass
class ProcessTree:
    """The process `pid`, as the host counts, and everything below it. What a jail leaves behind becomes a child of its first."""

    pid: int
    shared_bytes: int = 0
    """What each process has from the template, and shares, before it has anything of its own."""
    _cpu_seen_s: dict[tuple[int, float], float] = dataclasses.field(default_factory=dict, repr=False)
    """By process: number and start. Who has ended, and was waited for by nobody, is not forgotten."""

    def footprint(self) -> Footprint:
        """The processes that there are now, and no less than they have: a shared page counts for each of them. The kernel keeps
        these numbers; PSS is a walk through all pages, 10 ms for each GiB, during which a process that asks for memory waits.
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
        """The sums; zeros when nobody is left."""
        import psutil  # 17 ms, and only where there are no cgroups and a program that may need it

        memory_bytes, cpu_s = 0, 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                memory_bytes += self._memory_bytes(process)
                times = process.cpu_times()
                cpu_s += sum(times[:4])  # own and of those that were waited for: user and system
                self._cpu_seen_s[process.pid, process.create_time()] = sum(times[:2])
        return Used(memory_bytes, max(cpu_s, sum(self._cpu_seen_s.values())))

    def _processes(self) -> list[psutil.Process]:
        """Those that are there now; none where the first has gone."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []

    def _memory_bytes(self, process: psutil.Process) -> int:
        """PSS; of a process that may not be read, its own and its shared pages but what it has from the template."""
        import psutil

        status = _status(process.pid)
        with contextlib.suppress(psutil.AccessDenied):
            pss = int(process.memory_full_info().pss)
            if pss:  # none is said of a process whose first thread has ended, though others of it go on
                return pss + status.get(b"VmPTE", 0)
        return max(0, _resident_bytes(status) + status.get(b"VmPTE", 0) - self.shared_bytes)


class Footprint(NamedTuple):
    """Memory and descriptors that processes have at one look."""

    pids: tuple[int, ...]
    resident_bytes: int
    kept_bytes: int
    """Bytes kept for them besides: huge pages of the machine's pool, page tables, threads, tables of descriptors."""
    descriptors: int
    """Number of descriptors that their tables have room for."""


class TooMuchToSeeError(Exception):
    """More of something than can be looked at in a second or two, in which there would be no limit."""


class Proportional(NamedTuple):
    """PSS of processes, also of what is swapped out, without what they have mapped of files that are counted elsewhere."""

    total_bytes: int
    shared_bytes: int
    """The part of it that is of shared memory."""
    has_shared: bool
    """True if there is such a mapping: it keeps all pages of its memory, also those that nobody has mapped any more."""


def proportional(pids: Iterable[int], files: Collection[Object], devices: Collection[int]) -> Proportional:
    """Counted elsewhere are these files, what is on these devices, and System V memory.

    Of a process that may not be read each page counts that is of no file. TooMuchToSeeError where there are too many mappings.
    """
    found, left = [], _MOST_MAPPED
    for pid in pids:
        data = _smaps(pid, left)
        left -= len(data)
        found.append(_proportional(pid, data, files, devices))
    return Proportional(sum(part[0] for part in found), sum(part[1] for part in found), any(part[2] for part in found))


def _smaps(pid: int, most: int) -> bytes:
    """Empty where it may not be read, or has nothing. proc_pid_smaps(5)."""
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
    """Pages of shared memory, for each process that has them mapped. What cannot be read has none."""
    return sum(_status(pid).get(b"RssShmem", 0) for pid in pids)


def _resident_bytes(status: dict[bytes, int], *, file_pages: bool = False) -> int:
    kinds = (b"RssAnon", b"RssShmem", b"VmSwap", *((b"RssFile",) if file_pages else ()))
    return sum(status.get(kind, 0) for kind in kinds)


def _kept_bytes(status: dict[bytes, int]) -> int:
    tables = status.get(b"VmPTE", 0) + status.get(b"FDSize", 0) * _DESCRIPTOR_BYTES
    return tables + status.get(b"HugetlbPages", 0) + status.get(b"Threads", 0) * _THREAD_BYTES


def _status(pid: int) -> dict[bytes, int]:
    """Sizes in bytes and numbers, as a thread says that is still there. Empty when the process is gone. proc_pid_status(5)."""
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
