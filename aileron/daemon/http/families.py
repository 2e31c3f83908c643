"""Families of processes: which session started a process, according to the kernel, itself or through an ancestor.

Runs in the daemon. Callers are told apart by what they cannot choose: the process of their connection (SO_PEERCRED), and its
ancestors. A process that left its family (two forks, and the end of its parent) belongs to none.

Rules
- A process is identified by its number and its start time (proc_pid_stat(5), field 22): numbers are used again.
- The nearest family counts. A family lasts as long as its first process, even if the session has ended.
- `/proc/PID/stat` alone is read: that touches no memory page of the process, so that no process can delay it.
- A process whose descent cannot be determined (it has gone, or has too many ancestors) is reported as such, not as one that
  descends from none: else a process could have its child connect, take the connection, and let the child end.

Source: proc_pid_stat(5); unix(7), SO_PEERCRED. Not here: shares (model/shares.py), tokens (sessions.py).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["UNSEEN", "Families", "descent_of"]

UNSEEN: Final = ""
"""Value in place of a family's name if the family of a process cannot be determined."""

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64
"""Most processes from one to the first of all: a shell in a container in a terminal has a dozen above it."""
_TRIES: Final = 3
"""Tries, as a parent can end between the reading of its child and its own; the child then has another."""
_MAX_FAMILIES: Final = 1024
"""Most families, four times as many as sessions: they include those of ended sessions whose process goes on."""
_PARENT, _STARTED = 1, 19
"""Positions of fields 4 and 22, counted from the state, which is field 3."""


class _Process(NamedTuple):
    pid: int
    started: int


class Families:
    """The first process and the name of each family."""

    def __init__(self) -> None:
        self._first: OrderedDict[_Process, str] = OrderedDict()

    def add(self, pid: int, name: str) -> None:
        """Make a family of this process and its descendants, if it exists and heads no family yet. OSError if that fails."""
        try:
            process, _ = _read(pid)
        except (FileNotFoundError, ProcessLookupError):
            return
        self._first.setdefault(process, name)
        if len(self._first) > _MAX_FAMILIES:
            self._first.popitem(last=False)

    def name_of(self, pid: int) -> str | None:
        """Return the family that a process belongs to; None if there is none, and UNSEEN if that cannot be determined. Some
        microseconds for each ancestor.
        """
        if not self._first:
            return None
        for _ in range(_TRIES):
            above = pid
            for process, above in _descent_of(pid):  # noqa: B007 - the last one's is used below
                if process in self._first:
                    return self._first[process]
            if above == 0 or (above != pid and _is_hidden(above)):
                return None
        return UNSEEN

    def names_of(self, pid: int) -> frozenset[str] | None:
        """Return every family that a process belongs to, the nearest and those around it; None if that cannot be determined."""
        if not self._first:
            return frozenset()
        for _ in range(_TRIES):
            above, found = pid, set()
            for process, above in _descent_of(pid):  # noqa: B007 - the last one's is used below
                if process in self._first:
                    found.add(self._first[process])
            if above == 0 or (above != pid and _is_hidden(above)):
                return frozenset(found)
        return None

    @property
    def names(self) -> frozenset[str]:
        """Names of the present families."""
        return frozenset(self._first.values())

    def forget_gone(self) -> None:
        """Forget the families whose first process has ended."""
        for process in list(self._first):
            if _is_gone(process):
                self._first.pop(process, None)


def descent_of(pid: int) -> list[int]:
    """Return the number of the process, if it exists, then its parent's, and so on."""
    return [process.pid for process, _ in _descent_of(pid)]


def _descent_of(pid: int) -> Iterator[tuple[_Process, int]]:
    """Yield each process with its parent's number, which is 0 if this process cannot see a parent."""
    for _ in range(_MAX_DEPTH):
        try:
            process, pid = _read(pid)
        except OSError:
            return
        yield process, pid


def _is_gone(process: _Process) -> bool:
    """Return whether the process has ended. If no descriptor is free to check, it counts as running."""
    try:
        found, _ = _read(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return found != process


def _read(pid: int) -> tuple[_Process, int]:
    """Return the process of this number, and the number of its parent.

    FileNotFoundError or ProcessLookupError if it has ended; another OSError if that cannot be determined.
    """
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()
    return _Process(pid, int(fields[_STARTED])), int(fields[_PARENT])


def _is_hidden(pid: int) -> bool:
    """Return whether the process exists, belongs to another user, and is hidden from `/proc` (proc(5), hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not (_PROC / str(pid) / "stat").exists()
    except OSError:
        return False
    return False
