"""The five descriptors of a jailed program: 0 = /dev/null, 1 and 2 = the log pipe, 3 = frames in, 4 = frames out."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from aileron_sandbox import kernel

__all__ = ["FRAMES_IN", "FRAMES_OUT", "arrange", "close_all_but", "out_of_the_way"]

FRAMES_IN: Final = 3
FRAMES_OUT: Final = 4
_LAST_KEPT: Final = 4
_ASIDE: Final = 64  # above every target, so that no dup2 overwrites a source


def out_of_the_way(fd: int) -> int:
    """Move a descriptor that the steps still need to where `arrange` does not overwrite it."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
    os.close(fd)
    return moved


def arrange(null: int, frames_in: int, frames_out: int, log: int) -> None:
    """Put the five in place. The sources stay open until `close_all_but`."""
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ASIDE) for fd in (null, log, log, frames_in, frames_out)]
    for target, fd in enumerate(aside):
        os.dup2(fd, target, inheritable=True)


def close_all_but(status: int) -> None:
    """Close everything else, whatever it is: a descriptor is a capability. `status` is closed by the very last step."""
    kernel.close_range(_LAST_KEPT + 1, status - 1)
    kernel.close_range(status + 1)
