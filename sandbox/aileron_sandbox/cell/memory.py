"""The memory limit of a cell that no control group bounds: a thread that measures the cell's memory at intervals, and
ends the cell if it is over the limit.

Runs on the host. A measurement adds up the memory of processes and what held.py finds in addition. The sum is an upper
bound, because shared pages count more than once. If the sum is over the limit, the memory is added up again page by
page, with each page counted once. Shared memory that no process has mapped or open counts as the cell's, unless
processes outside the cell account for it (shared.py).

Memory that is allocated and freed between two measurements is not seen: in a second, an agent that allocates as fast
as it can gets a GiB or two.

Not here: control groups (cgroups.py), the report of the end (door.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from typing import Final

from aileron_sandbox.cell.held import Held
from aileron_sandbox.cell.shared import Others, machine_bytes, used_bytes
from aileron_sandbox.watch import WATCH_PERIOD_S, Footprint, ProcessTree, TooMuchToSeeError, proportional

__all__ = ["MemoryWatch"]

_STOP_DEADLINE_S: Final = 10.0  # a measurement of thousands of processes takes a second
_MOST_LOOKS: Final = 8
"""Number of measurements after which the cell's descriptors are listed again, which takes 10 ms for a browser."""
_MOST_FAILURES: Final = 8
"""Maximum number of measurements in a row that may fail, because the machine may be short of descriptors or memory
for a moment.
"""
_NEW_BYTES: Final = 64 << 20
_NEW_DESCRIPTORS: Final = 4096
"""Growth of the descriptor tables, in descriptors, at which the cell's descriptors are listed again at once. The same
happens if the machine's shared memory grows by `_NEW_BYTES`.
"""


class MemoryWatch(threading.Thread):
    """A thread that measures the cell's memory every WATCH_PERIOD_S seconds, and kills the cell if it exceeds its
    limit. Call `start`, and at the end `close`.
    """

    def __init__(self, pidfd: int, scratch: Sequence[int], held: Held, memory_bytes: int) -> None:
        """Set up the watch. `scratch` are descriptors of the cell's private file systems. The caller keeps ownership
        of these and of `pidfd`.
        """
        super().__init__(name="cell-memory", daemon=True)
        self._pidfd: Final = pidfd
        self._tree: Final = ProcessTree(_pid_of(pidfd))
        self._scratch: Final = scratch
        self._devices: Final = frozenset(os.fstat(fd).st_dev for fd in scratch)
        self._held: Final = held
        self._memory_bytes: Final = memory_bytes
        self._others: Final = Others()
        self._over = threading.Event()
        self._looks = self._shared_bytes = self._descriptors = 0
        self.why: str | None = None
        """Reason why the watch ended the cell; None if it did not."""

    def run(self) -> None:
        """Measure the cell's memory at intervals until `close` is called or the cell is ended."""
        failures = 0
        while self.why is None and not self._over.wait(WATCH_PERIOD_S):
            try:
                is_over, failures = self._has_too_much(), 0
            except TooMuchToSeeError as error:
                self._end(f"its memory cannot be looked at: {error}")
            except Exception as error:  # noqa: BLE001 - the end of a thread: without it there is no limit, so the cell ends
                failures += 1
                if not isinstance(error, OSError) or failures > _MOST_FAILURES:
                    self._end(f"nobody could look at its memory: {error!r}")
            else:
                if is_over:
                    self._end(f"over its limit of {self._memory_bytes >> 20} MiB of memory")

    def _end(self, why: str) -> None:
        self.why = why
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Stop measuring the cell's memory. Waits for a measurement in progress."""
        self._over.set()
        if self.is_alive():
            self.join(_STOP_DEADLINE_S)
        self._held.close()

    def _has_too_much(self) -> bool:
        seen = self._tree.footprint()
        self._held.look_at_kernel()
        if not self._is_due(seen) and self._is_surely_below(seen):
            return False
        self._look_at_descriptors(seen)
        return not self._is_surely_below(seen) and not self._is_below(seen)

    def _is_surely_below(self, seen: Footprint) -> bool:
        """Return whether the cell's memory is below its limit even if shared memory is counted once for each process,
        as in `seen`.
        """
        return seen.resident_bytes + self._unknown_bytes() <= self._left_bytes(seen)

    def _is_below(self, seen: Footprint) -> bool:
        """Return whether the cell's memory is below its limit, counted page by page for the processes in `seen`. Must
        be called right after `look_at_descriptors`.
        """
        pages, left = proportional(seen.pids, self._held.memory_files, self._devices), self._left_bytes(seen)
        if pages.total_bytes > left:
            return False
        if not pages.has_shared and not self._held.sends_descriptors(seen.pids):
            return True
        self._others.explain(seen.pids)
        return pages.total_bytes + self._unknown_bytes(pages.shared_bytes) <= left

    def _left_bytes(self, seen: Footprint) -> int:
        """Return the bytes of the cell's memory limit that remain for the pages of its processes, after its other
        memory is subtracted.
        """
        return self._memory_bytes - seen.kept_bytes - self._held.total_bytes - self._scratch_bytes()

    def _unknown_bytes(self, more_bytes: int = 0) -> int:
        return self._others.unknown_bytes(self._held.shared_bytes + self._scratch_bytes() + more_bytes)

    def _look_at_descriptors(self, seen: Footprint) -> None:
        before = machine_bytes()
        self._held.look_at_descriptors(seen.pids)
        most = max(before, machine_bytes())  # memory may be allocated or freed meanwhile
        self._others.lower(most - self._held.shared_bytes - self._scratch_bytes())

    def _scratch_bytes(self) -> int:
        return sum(used_bytes(os.fstatvfs(fd)) for fd in self._scratch)

    def _is_due(self, seen: Footprint) -> bool:
        shared = machine_bytes()
        is_due = (
            self._looks == 0
            or shared > self._shared_bytes + _NEW_BYTES
            or seen.descriptors > self._descriptors + _NEW_DESCRIPTORS
        )
        if is_due:
            self._shared_bytes, self._descriptors = shared, seen.descriptors
        self._looks = (1 if is_due else self._looks + 1) % _MOST_LOOKS
        return is_due


def _pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
