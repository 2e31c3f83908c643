"""Shared memory that no process of a cell shows, distinguished from the shared memory of processes outside.

A memory file that waits in a socket keeps all its pages, and so does shared memory of which one page is still mapped.
The kernel does not tell an ordinary user which process holds them, but counts them in the machine's total. So if that
total has grown since the cell began, and neither the cell nor a process outside shows the memory, it counts as the
cell's, provided that the cell has means to hold it: a socket with descriptors in it, or such a mapping (memory.py).

    others = Others()                      # before the agent runs
    others.unknown_bytes(cell_bytes)       # the machine's shared memory minus cell_bytes and the initial amount
    others.explain(pids)                   # measure processes outside the cell

Runs on the host. If a process outside frees memory, the cell may hide the same amount for two seconds.

Source: proc_meminfo(5), tmpfs(5). Not here: the memory that a cell shows (held.py).
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
    """The shared memory of all processes outside one cell."""

    def __init__(self) -> None:
        self._bytes = machine_bytes()
        self._shown_bytes = _shown_outside(())

    def unknown_bytes(self, cell_bytes: int) -> int:
        """Return the bytes of shared memory that belong neither to processes outside nor to the `cell_bytes` of the cell."""
        return max(0, machine_bytes() - cell_bytes - self._bytes)

    def lower(self, most_bytes: int) -> None:
        """Record that processes outside have at most this number of bytes of shared memory."""
        self._bytes = min(self._bytes, most_bytes)

    def explain(self, pids: Collection[int]) -> None:
        """Measure the processes outside (takes 10 ms), and add the growth of their memory. `pids` are the cell's processes."""
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
    """Return the used bytes, by device, of each tmpfs that these processes have mounted, as other cells do.
    Unreadable ones are skipped.
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
