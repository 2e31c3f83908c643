"""The five descriptors of a jailed program: 0 = /dev/null, 1 and 2 = the log pipe, 3 = frames in, 4 = frames out."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from aileron_sandbox import kernel

__all__ = ["DOOR", "FRAMES_IN", "FRAMES_OUT", "arrange", "close_all_but", "out_of_the_way", "reserve_targets"]

FRAMES_IN: Final = 3
FRAMES_OUT: Final = 4
DOOR: Final = 63
"""Number of a child's socket to the template, until the child knows its program. The network filter allows `sendmsg`
on this descriptor alone, and every profile refuses it there (filters.py).
"""
_LAST_KEPT: Final = 4
_ASIDE: Final = 64  # above every target, so that no dup2 overwrites a source


def reserve_targets() -> None:
    """Occupy the descriptors 0 to 4 in the template, so that none that is opened or received later has a number that
    `arrange` needs.
    """
    while (fd := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) <= _LAST_KEPT:
        pass
    os.close(fd)


def out_of_the_way(fd: int) -> int:
    """Return a copy of a descriptor at a number that `arrange` does not overwrite. The given descriptor is always closed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
    finally:
        os.close(fd)


def arrange(frames_in: int, frames_out: int, log: int) -> None:
    """Move the jailed program's five descriptors to the numbers 0 to 4. The sources stay open until `close_all_but`.

    /dev/null is opened anew, because all holders of an open file description share its flags, and two children with
    the same description could signal to each other.
    """
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for target, fd in enumerate((null, log, log, frames_in, frames_out)):
        os.dup2(fd, target)


def close_all_but(*kept: int) -> None:
    """Close all descriptors above 4 except `kept`, because every descriptor is a capability."""
    first = _LAST_KEPT + 1
    for fd in sorted(kept):
        if first < fd:
            kernel.close_range(first, fd - 1)
        first = fd + 1
    kernel.close_range(first)
