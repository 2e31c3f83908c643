"""Families of processes. A family shows, according to the kernel, which session started a process, directly or through an
ancestor.

Runs in the daemon. Callers are distinguished by facts that they cannot choose: the process of their connection (SO_PEERCRED),
and its ancestors. A process that left its family (two forks, and the end of its parent) belongs to none.

Rules
- A process is identified by its number and its start time (proc_pid_stat(5), field 22): the kernel reuses numbers.
- If a process belongs to several families, `name_of` returns the nearest. A family lasts as long as its first process, even if
  the session has ended.
- Only `/proc/PID/stat` is read. Reading it touches no memory page of the process, so no process can delay the read.
- A process whose descent cannot be determined (it has ended, or has too many ancestors) is reported as such, and not as a
  process without a family. Otherwise a process could let its child connect, take over the connection, and let the child end.

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
"""Value returned in place of a family's name if the family of a process cannot be determined."""

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64
"""Maximum number of processes from a process up to the first process: a shell in a container in a terminal has about twelve
ancestors.
"""
_TRIES: Final = 3
"""Number of attempts to read the ancestors of a process. A parent can end after its child was read and before it is read itself;
the child then has another parent.
"""
_MAX_FAMILIES: Final = 1024
"""Maximum number of families: four times the maximum number of open sessions, because the family of an ended session is kept
while its first process runs.
"""
_PARENT, _STARTED = 1, 19
"""Positions of fields 4 and 22 of `/proc/PID/stat`, counted from field 3, the state."""


class _Process(NamedTuple):
    pid: int
    started: int


class Families:
    """Table of process families. A family is a first process and its descendants; its name is the id of the session."""

    def __init__(self) -> None:
        self._first: OrderedDict[_Process, str] = OrderedDict()

    def add(self, pid: int, name: str) -> None:
        """Add a family that consists of this process and its descendants, if the process exists and is not yet the first
        process of a family. Raises OSError if the process cannot be read.
        """
        try:
            process, _ = _read(pid)
        except (FileNotFoundError, ProcessLookupError):
            return
        self._first.setdefault(process, name)
        if len(self._first) > _MAX_FAMILIES:
            self._first.popitem(last=False)

    def name_of(self, pid: int) -> str | None:
        """Return the name of the nearest family that a process belongs to; None if it belongs to none, UNSEEN if this cannot be
        determined. Takes some microseconds for each ancestor.
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
        """Return the names of all families that a process belongs to, including the families of all its ancestors. None
        if the families cannot be determined.
        """
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
        """Names of all process families in the table."""
        return frozenset(self._first.values())

    def forget_gone(self) -> None:
        """Forget the families whose first process has ended."""
        for process in list(self._first):
            if _is_gone(process):
                self._first.pop(process, None)


def descent_of(pid: int) -> list[int]:
    """Return the process id itself, if the process exists, followed by the ids of its ancestors, the parent first."""
    return [process.pid for process, _ in _descent_of(pid)]


def _descent_of(pid: int) -> Iterator[tuple[_Process, int]]:
    """Yield the process and then each ancestor, with the id of its parent, which is 0 if the parent is not visible here."""
    for _ in range(_MAX_DEPTH):
        try:
            process, pid = _read(pid)
        except OSError:
            return
        yield process, pid


def _is_gone(process: _Process) -> bool:
    """Return whether the process has ended. If no descriptor is free for the check, the process counts as running."""
    try:
        found, _ = _read(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return found != process


def _read(pid: int) -> tuple[_Process, int]:
    """Return the process with this id, and the id of its parent.

    Raises FileNotFoundError or ProcessLookupError if the process has ended, or another OSError if this cannot be determined.
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
