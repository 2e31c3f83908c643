"""Shared memory that no process of a cell shows, told apart from that of others.

A memory file that waits in a socket keeps all its pages, and so does shared memory of which one page is still mapped. The kernel
tells no ordinary user who holds them, but it counts them for the machine. So growth of the machine's shared memory since the cell
began that neither the cell shows nor any process outside is the cell's, if the cell has means to hold it: a socket with
descriptors in it, or such a mapping (memory.py).

    others = Others()                      # before the agent runs
    others.unknown_bytes(cell_bytes)       # the machine's shared memory beyond that and the initial amount
    others.explain(pids)                   # look outside of the cell

Runs on the host. If a process outside frees memory, the cell may hide as much for two seconds.

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
    """The shared memory of all processes outside of one cell."""

    def __init__(self) -> None:
        self._bytes = machine_bytes()
        self._shown_bytes = _shown_outside(())

    def unknown_bytes(self, cell_bytes: int) -> int:
        """Return the bytes of shared memory that belong neither to the others nor to `cell_bytes` of the cell."""
        return max(0, machine_bytes() - cell_bytes - self._bytes)

    def lower(self, most_bytes: int) -> None:
        """Record that the others have no more than this."""
        self._bytes = min(self._bytes, most_bytes)

    def explain(self, pids: Collection[int]) -> None:
        """Add the growth of the others' memory that a look of 10 ms shows. `pids` are the cell's."""
        shown_bytes = _shown_outside(pids)
        self._bytes += max(0, shown_bytes - self._shown_bytes)
        self._shown_bytes = shown_bytes


def machine_bytes() -> int:
    """Return the machine's shared memory: memory files, shared mappings, System V memory and tmpfs. proc_meminfo(5)."""
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
    """Return used bytes by device of the tmpfs that these processes have mounted, as other cells do. Skip unreadable ones."""
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
