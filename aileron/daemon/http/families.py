"""Families: which session started a process, as the kernel has it: by the process itself, or one that it descends from.

Runs in the daemon. Callers are told apart by what they cannot choose: who made their connection (SO_PEERCRED), and whose child
that is. A process that left its family (two forks, and the end of its parent) belongs to none.

Rules
- A process is its number and its beginning (proc_pid_stat(5), field 22): numbers are used again.
- The nearest counts. A family lasts as long as its first process, whatever became of the session.
- `/proc/PID/stat` alone is read: that takes no page of the process, so that nobody can make a look last.

Source: proc_pid_stat(5); unix(7), SO_PEERCRED. Not here: what counts against whom (model/shares.py), tokens (sessions.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Families", "descent_of"]

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64
"""Processes from one to the first of all: a shell in a container in a terminal has a dozen above it."""
_MAX_FAMILIES: Final = 1024
"""Four times as many as there may be sessions: those that ended while their process goes on are among them."""
_PARENT, _STARTED = 1, 19
"""Fields 4 and 22, counted from the state, which is field 3."""


class _Process(NamedTuple):
    pid: int
    started: int


class Families:
    """The first process of each family, and what the family is called."""

    def __init__(self) -> None:
        self._first: OrderedDict[_Process, str] = OrderedDict()

    def add(self, pid: int, name: str) -> None:
        """This process and what descends from it are a family, if it is there and not the first of another."""
        process = next(_descent_of(pid), None)
        if process is not None:
            self._first.setdefault(process, name)
            if len(self._first) > _MAX_FAMILIES:
                self._first.popitem(last=False)

    def name_of(self, pid: int) -> str | None:
        """The family that a process belongs to; None where it belongs to none. Some microseconds for each ancestor."""
        if not self._first:
            return None
        return next((self._first[one] for one in _descent_of(pid) if one in self._first), None)

    def forget_gone(self) -> None:
        """Forget the families whose first process has ended."""
        for process in list(self._first):
            if next(_descent_of(process.pid), None) != process:
                self._first.pop(process, None)


def descent_of(pid: int) -> list[int]:
    """The process, if there is one, its parent, and so on."""
    return [process.pid for process in _descent_of(pid)]


def _descent_of(pid: int) -> Iterator[_Process]:
    for _ in range(_MAX_DEPTH):
        try:
            line = (_PROC / str(pid) / "stat").read_bytes()
        except OSError:  # it is gone, or above the first that this one sees
            return
        fields = line.rpartition(b") ")[2].split()
        yield _Process(pid, int(fields[_STARTED]))
        pid = int(fields[_PARENT])
