"""Readers of the processes below another one, any of which may end while it is read: a spare, a rehearsal, a finished run.

environments = read_descendants(home.daemon_pid, lambda process: process.environ())
assert environments                        # the positive control: something was read
assert not any(environments.values())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import psutil

__all__ = ["read_descendants"]

_Read = TypeVar("_Read")
_MAY_HAVE_ENDED: Final = (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError)


def read_descendants(pid: int | None, read: Callable[[psutil.Process], _Read]) -> dict[psutil.Process, _Read]:
    """Return what `read` returns for each process below this one, without those that end before or while they are read.

    Raises whatever `read` raises for a process that still runs.
    """
    assert pid is not None, "the process that is above them has ended"
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            found[process] = read(process)
        except _MAY_HAVE_ENDED:
            if _runs(process):
                raise
    return found


def _runs(process: psutil.Process) -> bool:
    """Return whether a process exists and is no zombie: the files of a zombie are there, and hold nothing."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
