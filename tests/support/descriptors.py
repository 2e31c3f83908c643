"""A limit on a process's open descriptors, lowered for a while; descriptors that are open stay open.

    with at_most(home.daemon_pid, 64):
        ...  # the daemon finds no number below 64 free, and EMFILE where none is

Runs in the process of the tests. Source: prlimit(2), RLIMIT_NOFILE, of which only the soft limit is changed.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

__all__ = ["at_most", "room_for"]


@contextlib.contextmanager
def at_most(pid: int, descriptors: int) -> Iterator[None]:
    """Let the process open only descriptors below this number. 3 leaves none to a process that has its standard streams."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def room_for(descriptors: int) -> Iterator[None]:
    """Let this process open `descriptors` more descriptors, and no more."""
    free = [os.dup(0) for _ in range(descriptors)]
    for descriptor in free:
        os.close(descriptor)
    with at_most(os.getpid(), max(free) + 1):
        yield
