"""Aileron's side of two benchmarks: a fresh jail that echoes one frame (bench_jail.py, bench_peers.py)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from benchmarks.measure import Measured
from benchmarks.peers import FRAME, read_some

__all__ = ["AGAIN", "DEADLINE_S", "PAUSED", "PAUSE_S", "first_frame", "paused_or_again", "program", "reaped"]

PAUSE_S: Final = 0.02
"""Seconds of a pause in which the template prepares a child: it takes some 3 ms; this is enough on a busy machine."""
DEADLINE_S: Final = 30.0
PAUSED, AGAIN = "jail, after a pause", "jail, again at once"


@contextlib.contextmanager
def program(data: bytes) -> Iterator[int]:
    """Yield a descriptor of a program with these bytes."""
    fd = os.memfd_create("echo", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


def reaped(template: Template, echo: int) -> Callable[[], None]:
    """Return a variant that runs one jail from the request until it is reaped."""

    def once() -> None:
        with Child.open(template, echo, Policy()) as child:
            os.write(child.frames_in, FRAME)
            child.wait(DEADLINE_S)
            assert os.read(child.frames_out, 65536) == FRAME

    return once


def first_frame(template: Template, echo: int) -> Callable[[], Measured]:
    """Return a variant that measures from the request to the first frame; the end is waited for after the clock has stopped."""

    def once() -> Measured:
        began = time.perf_counter()
        with Child.open(template, echo, Policy()) as child:
            os.write(child.frames_in, FRAME)
            assert read_some(child.frames_out, DEADLINE_S) == FRAME
            seconds = time.perf_counter() - began
            child.wait(DEADLINE_S)
        return Measured([seconds])

    return once


def paused_or_again(template: Template, echo: int) -> dict[str, Callable[[], object]]:
    """Return the `before` of `interleave` for both variants, so that the template has a child ready, or has none."""
    return {PAUSED: lambda: time.sleep(PAUSE_S), AGAIN: reaped(template, echo)}
