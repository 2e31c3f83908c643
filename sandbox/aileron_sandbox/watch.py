"""What a jail's whole tree of processes uses, for the limits that the kernel keeps for single processes only.

Runs on the host, in any thread: a `Tree` is a value that looks when it is asked to. Where a jail has a cgroup, the kernel
counts for all of it (cgroups.py). Elsewhere `ProcessTree` adds up what each process says: memory as PSS, in which a page that
n processes share counts as an nth (proc_pid_smaps(5)). Of a process that is not dumpable only its owner's better may read that;
then a page counts once for each that has it, and a program that forks with much in memory is ended early.

What a watch cannot see is what comes and goes between two looks, and the processor time of a process that nobody waited for.
RLIMIT_DATA and RLIMIT_CPU bound each process meanwhile, and the wall clock all of them.

Not here: what follows from it (jail.py), when to look (the host).
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import psutil

__all__ = ["WATCH_PERIOD_S", "ProcessTree", "Tree", "Used"]

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


@dataclasses.dataclass(frozen=True)
class ProcessTree:
    """The process `pid`, as the host counts, and everything below it. What a jail leaves behind becomes a child of its first."""

    pid: int
    shared_bytes: int = 0
    """What each process has from the template, and shares, before it has anything of its own."""

    def used(self) -> Used:
        """The sums; zeros when nobody is left."""
        import psutil  # 17 ms, and only where there are no cgroups and a program that may need it

        memory_bytes, cpu_s = 0, 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory_bytes += self._memory_bytes(process)
                    cpu_s += sum(process.cpu_times()[:4])  # own and of those that were waited for: user and system
        return Used(memory_bytes, cpu_s)

    def _memory_bytes(self, process: psutil.Process) -> int:
        """PSS; of a process that may not be read, its own and its shared pages but what it has from the template."""
        import psutil

        try:
            return int(process.memory_full_info().pss)
        except psutil.AccessDenied:
            return max(0, _resident_bytes(process.pid) - self.shared_bytes)


def _resident_bytes(pid: int) -> int:
    """Pages in memory that are of no file. 0 when the process is gone. proc_pid_status(5)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem") if name in fields)
