"""Families: which session started a process, as the kernel has it: by the process itself, or one that it descends from.

Runs in the daemon. Callers are told apart by what they cannot choose: who made their connection (SO_PEERCRED), and whose child
that is. A process that left its family (two forks, and the end of its parent) belongs to none.

Rules
- A process is its number and its beginning (proc_pid_stat(5), field 22): numbers are used again.
- The nearest counts. A family lasts as long as its first process, whatever became of the session.
- `/proc/PID/stat` alone is read: that takes no page of the process, so that nobody can make a look last.
- Whose descent cannot be seen (it has gone, or has more above it than anybody needs) is said so, and is not as one that descends
  from nobody: else a process would have its child connect, take the connection, and see the child end.

Source: proc_pid_stat(5); unix(7), SO_PEERCRED. Not here: what counts against whom (model/shares.py), tokens (sessions.py).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["UNSEEN", "Families", "descent_of"]

UNSEEN: Final = ""
"""In place of a family's name: it cannot be told whether the process belongs to one."""

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64
"""Processes from one to the first of all: a shell in a container in a terminal has a dozen above it."""
_TRIES: Final = 3
"""A parent can end between a look at its child and one at itself; the child has another then."""
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
        """Make a family of this process and what descends from it, if it is there and not the first of another. OSError where
        that cannot be told.
        """
        try:
            process, _ = _read(pid)
        except (FileNotFoundError, ProcessLookupError):
            return
        self._first.setdefault(process, name)
        if len(self._first) > _MAX_FAMILIES:
            self._first.popitem(last=False)

    def name_of(self, pid: int) -> str | None:
        """The family that a process belongs to; None where it belongs to none, and UNSEEN where that cannot be told. Some
        microseconds for each ancestor.
        """
        if not self._first:
            return None
        for _ in range(_TRIES):
            above = pid
            for process, above in _descent_of(pid):  # noqa: B007 - the last one's is looked at below
                if process in self._first:
                    return self._first[process]
            if above == 0 or (above != pid and _is_hidden(above)):
                return None
        return UNSEEN

    def names_of(self, pid: int) -> frozenset[str] | None:
        """Every family that a process belongs to, the nearest and those around it; None where that cannot be told."""
        if not self._first:
            return frozenset()
        for _ in range(_TRIES):
            above, found = pid, set()
            for process, above in _descent_of(pid):  # noqa: B007 - the last one's is looked at below
                if process in self._first:
                    found.add(self._first[process])
            if above == 0 or (above != pid and _is_hidden(above)):
                return frozenset(found)
        return None

    @property
    def names(self) -> frozenset[str]:
        """What the families are called that there are."""
        return frozenset(self._first.values())

    def forget_gone(self) -> None:
        """Forget the families whose first process has ended."""
        for process in list(self._first):
            if _is_gone(process):
                self._first.pop(process, None)


def descent_of(pid: int) -> list[int]:
    """The process, if there is one, its parent, and so on."""
    return [process.pid for process, _ in _descent_of(pid)]


def _descent_of(pid: int) -> Iterator[tuple[_Process, int]]:
    """Each with the number of its parent, which is 0 where that is none that this process sees."""
    for _ in range(_MAX_DEPTH):
        try:
            process, pid = _read(pid)
        except OSError:
            return
        yield process, pid


def _is_gone(process: _Process) -> bool:
    """Return whether the process has ended. Where no descriptor is free to look, it counts as being there."""
    try:
        found, _ = _read(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return found != process


def _read(pid: int) -> tuple[_Process, int]:
    """Return the process of this number, and the number of its parent.

    FileNotFoundError or ProcessLookupError where it has ended; another OSError where that cannot be told.
    """
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()
    return _Process(pid, int(fields[_STARTED])), int(fields[_PARENT])


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process, of another user, and `/proc` does not show it (proc(5), hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not (_PROC / str(pid) / "stat").exists()
    except OSError:
        return False
    return False
