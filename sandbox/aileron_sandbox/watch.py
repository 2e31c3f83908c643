"""What a jail's whole tree of processes uses, for the limits that the kernel keeps for single processes only.

Runs on the host, in any thread: a `Tree` is a value that looks when it is asked to. Where a jail has a cgroup, the kernel
counts for all of it (cgroups.py). Elsewhere `ProcessTree` adds up what each process says: memory as PSS, in which a page that
n processes share counts as an nth (proc_pid_smaps(5)). Of a process that is not dumpable only its owner's better may read that;
then a page counts once for each that has it, and a program that forks with much in memory is ended early.

What a watch cannot see is what comes and goes between two looks. RLIMIT_DATA and RLIMIT_CPU bound each process meanwhile, and
the wall clock all of them.

Not here: what follows from it (jail.py), when to look (the host).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import psutil

__all__ = ["WATCH_PERIOD_S", "ProcessTree", "Tree", "Used"]

_RESIDENT: Final = re.compile(rb"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
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

    def has_more_than(self, memory_bytes: int) -> bool:
        """Whether all of it together has more memory than that.

        What is resident counts a shared page for each that has it, and so is no less than PSS; the kernel keeps it. PSS is a walk
        through all pages, 10 ms for each GiB, during which the process stands still where it asks for memory: it is asked for
        only where the other is over.
        """
        import psutil

        resident_bytes = 0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                # None is said of a process whose first thread has ended, though others of it go on.
                resident_bytes += process.memory_info().rss or _resident_bytes(process.pid)
        return resident_bytes > memory_bytes and self.used().memory_bytes > memory_bytes

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

        with contextlib.suppress(psutil.AccessDenied):
            pss = int(process.memory_full_info().pss)
            if pss:  # none is said of a process whose first thread has ended, though others of it go on
                return pss
        return max(0, _resident_bytes(process.pid) - self.shared_bytes)


def _resident_bytes(pid: int) -> int:
    """Pages in memory that are of no file, by a thread that is still there. 0 when the process is gone. proc_pid_status(5)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            # Bytes, and line by line: a program chooses its name, and only the newline in it is escaped.
            found = _RESIDENT.findall((thread / "status").read_bytes())
            if found:
                return sum(int(kib) << 10 for kib in found)
    return 0
