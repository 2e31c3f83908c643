"""The five descriptors of a jailed program: 0 = /dev/null, 1 and 2 = the log pipe, 3 = frames in, 4 = frames out."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from aileron_sandbox import kernel

__all__ = ["DOOR", "FRAMES_IN", "FRAMES_OUT", "arrange", "close_all_but", "out_of_the_way"]

FRAMES_IN: Final = 3
FRAMES_OUT: Final = 4
DOOR: Final = 63
"""A child's socket to the template, until it knows its program. The one descriptor on which `sendmsg` is not asked about by the
network filter, and on which every profile refuses it (filters.py)."""
_LAST_KEPT: Final = 4
_ASIDE: Final = 64  # above every target, so that no dup2 overwrites a source


def reserve_targets() -> None:
    """Occupy 0 to 4 in the template, so that nothing it opens or receives later is where `arrange` puts the five."""
    while (fd := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) <= _LAST_KEPT:
        pass
    os.close(fd)


def out_of_the_way(fd: int) -> int:
    """Move a descriptor that the steps still need to where `arrange` does not overwrite it. It is closed either way."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
    finally:
        os.close(fd)


def arrange(frames_in: int, frames_out: int, log: int) -> None:
    """Put the five in place. The sources stay open until `close_all_but`.

    /dev/null is opened anew: the flags of an open file description are shared by all who hold it, and two children that
    held the same one could signal to each other.
    """
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for target, fd in enumerate((null, log, log, frames_in, frames_out)):
        os.dup2(fd, target)


def close_all_but(*kept: int) -> None:
    """Close everything above the five but `kept`, whatever it is: a descriptor is a capability."""
    first = _LAST_KEPT + 1
    for fd in sorted(kept):
        if first < fd:
            kernel.close_range(first, fd - 1)
        first = fd + 1
    kernel.close_range(first)
