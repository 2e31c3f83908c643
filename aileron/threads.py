"""Run blocking work in a worker thread, and report a thread that cannot be started as a lack of resources.

Runs in the daemon. clone(2) fails with EAGAIN if the user has as many threads as RLIMIT_NPROC allows, or the container
as many as pids.max; an agent's build can cause that. Python then raises RuntimeError, which looks like a bug of ours.

Source: pthread_create(3), EAGAIN; CPython, Modules/_threadmodule.c. Not here: look-ups of names (egress/lookup.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread

__all__ = ["in_thread"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(
    work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments, limiter: anyio.CapacityLimiter | None = None
) -> T:
    """Run `work` in a thread and return its result. The work cannot be cancelled halfway.

    Raises OSError(EAGAIN) if no thread can be started, in which case `work` has not begun; otherwise the errors of
    `work`.
    """
    try:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        raise OSError(errno.EAGAIN, str(error)) from error
