"""The processes of a template, as its host sees them."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import psutil

from aileron_sandbox.ending import Ending
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from tests.support.waiting import wait_until

__all__ = [
    "AHEAD",
    "below",
    "end_beside_a_stopped_template",
    "end_forked_ahead",
    "running",
    "status_of",
    "wait_forked_ahead",
]

AHEAD = 2
"""How many wait, when nothing else is to be done."""
_DEADLINE_S = 10.0


def below(template: Template) -> list[psutil.Process]:
    """The processes below the template itself: the children, those forked ahead among them."""
    return [process for process in psutil.Process(template.pid).children(recursive=True)[1:] if process.is_running()]


def wait_forked_ahead(template: Template) -> list[psutil.Process]:
    """Wait until as many children are there as a template forks ahead, oldest first, and have done what they can do ahead.

    That is when it has the first of its two filters; a child that runs a program has both.
    """

    def waiting() -> list[psutil.Process]:
        found = [process for process in below(template) if _waits(process.pid)]
        return found if len(found) == AHEAD else []

    return sorted(wait_until(waiting, f"{AHEAD} children are forked ahead"), key=lambda process: process.pid)


def end_forked_ahead(template: Template) -> None:
    """See to it that nobody waits, so that the next child is forked when it is asked for. None is forked ahead before that."""
    for process in (waiting := wait_forked_ahead(template)):
        process.kill()
    psutil.wait_procs(waiting, timeout=_DEADLINE_S)


def running(template: Template) -> list[psutil.Process]:
    """The children that have come to their program."""
    return [process for process in below(template) if status_of(process.pid).get("Seccomp_filters") == ["2"]]


def _waits(pid: int) -> bool:
    status = status_of(pid)
    # Asleep: it has nothing more to do that could be done ahead.
    return status.get("Seccomp_filters") == ["1"] and status["State"][0] == "S"


def status_of(pid: int) -> dict[str, list[str]]:
    """proc_pid_status(5) by name; empty when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def end_beside_a_stopped_template(template: Template, program: bytes, policy: Policy) -> Ending:
    """Run a program whose last second passes while the template, which would look at what it tries, is stopped."""
    fd = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        os.write(fd, program)
        with Child.open(template, fd, policy) as child:
            assert select.select([child.frames_out], [], [], _DEADLINE_S)[0], "nothing came"
            (first,) = psutil.Process(template.pid).children()
            first.suspend()
            try:
                os.write(child.frames_in, b"x")
                time.sleep(0.5)
            finally:
                first.resume()
            return child.wait(_DEADLINE_S)
    finally:
        os.close(fd)
