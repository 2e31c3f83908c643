"""An estimate of the shared memory that a cell holds although none of its processes has it mapped or open.

A memory file that was sent to a socket and not received keeps all its pages, and so does shared memory of which one
page is still mapped. The kernel does not tell an ordinary user which process holds such pages, but counts them in the
machine's total. So the growth of that total since the cell began counts as the cell's, minus the memory that the cell's
processes and those outside are seen to use. It counts only while the cell can hold such pages: while it has a socket
with descriptors in it, or a mapping of shared memory (memory.py).

    others = Others()                      # before the agent runs
    others.unknown_bytes(cell_bytes)       # the machine's shared memory minus cell_bytes and the initial amount
    others.explain(pids)                   # measure processes outside the cell

Runs on the host. If a process outside frees memory, the cell can use the same amount unnoticed for two seconds.

Source: proc_meminfo(5), tmpfs(5). Not here: memory that a process of the cell has mapped or open (held.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from aileron_sandbox.watch import shared_bytes

__all__ = ["Others", "machine_bytes", "used_bytes"]

_SHMEM: Final = re.compile(rb"^Shmem:\s+(\d+) kB$", re.MULTILINE)
_TMPFS: Final = re.compile(rb"^\S+ \S+ (\S+) \S+ (\S+) .*? - tmpfs ", re.MULTILINE)


class Others:
    """An estimate of the shared memory of all processes outside one cell."""

    def __init__(self) -> None:
        self._bytes = machine_bytes()
        self._shown_bytes = _shown_outside(())

    def unknown_bytes(self, cell_bytes: int) -> int:
        """Return the bytes of the machine's shared memory that may be the cell's without being seen: all bytes, minus
        the estimate for processes outside the cell, minus the `cell_bytes` that the cell is seen to use.
        """
        return max(0, machine_bytes() - cell_bytes - self._bytes)

    def lower(self, most_bytes: int) -> None:
        """Lower the estimate for processes outside the cell to `most_bytes`, if it is higher."""
        self._bytes = min(self._bytes, most_bytes)

    def explain(self, pids: Collection[int]) -> None:
        """Measure the shared memory of the processes outside the cell (10 ms), and add its growth to the estimate.
        `pids` are the cell's processes, which are left out.
        """
        shown_bytes = _shown_outside(pids)
        self._bytes += max(0, shown_bytes - self._shown_bytes)
        self._shown_bytes = shown_bytes


def machine_bytes() -> int:
    """Return the machine's shared memory in bytes: memory files, shared mappings, System V memory and tmpfs. proc_meminfo(5)."""
    found = _SHMEM.search(Path("/proc/meminfo").read_bytes())
    return int(found[1]) << 10 if found is not None else 0


def used_bytes(of: os.statvfs_result) -> int:
    """Return the bytes in use on a file system."""
    return (of.f_blocks - of.f_bfree) * of.f_frsize


def _shown_outside(pids: Collection[int]) -> int:
    everybody = (int(name) for name in os.listdir("/proc") if name.isdigit())
    outside = [pid for pid in everybody if pid not in pids]
    return shared_bytes(outside) + sum(_tmpfs(outside).values())


def _tmpfs(pids: Iterable[int]) -> dict[bytes, int]:
    """Return the used bytes, by device, of each tmpfs in the mount namespaces of these processes, such as those of
    other cells. A namespace or tmpfs that cannot be read is skipped.
    """
    found: dict[bytes, int] = {}
    seen: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace not in seen:
                seen.add(namespace)
                for device, path in _TMPFS.findall(Path(f"/proc/{pid}/mountinfo").read_bytes()):
                    if device not in found:
                        place = path.decode("unicode_escape").encode("latin-1")
                        found[device] = used_bytes(os.statvfs(b"/proc/%d/root%s" % (pid, place)))
    return found
