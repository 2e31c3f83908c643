"""Helpers that read a template's processes as its host sees them."""

from __future__ import annotations

import functools
import os
import select
from pathlib import Path

import psutil

from aileron_sandbox.ending import Ending
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from tests.support.waiting import unread, wait_until

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
"""Number of children that an idle template has forked ahead."""
_DEADLINE_S = 10.0


def below(template: Template) -> list[psutil.Process]:
    """Return the processes below the template itself: its children, including those forked ahead."""
    return [process for process in psutil.Process(template.pid).children(recursive=True)[1:] if process.is_running()]


def wait_forked_ahead(template: Template) -> list[psutil.Process]:
    """Wait until a template has all its children forked ahead, and each has done what it can do ahead. Return them, oldest first.

    Such a child has the first of its two filters; a child that runs a program has both.
    """

    def waiting() -> list[psutil.Process]:
        found = [process for process in below(template) if _waits(process.pid)]
        return found if len(found) == AHEAD else []

    return sorted(wait_until(waiting, f"{AHEAD} children are forked ahead"), key=lambda process: process.pid)


def end_forked_ahead(template: Template) -> None:
    """Kill the children forked ahead, so that the next child is forked when it is requested. None is forked ahead before that."""
    for process in (waiting := wait_forked_ahead(template)):
        process.kill()
    psutil.wait_procs(waiting, timeout=_DEADLINE_S)


def running(template: Template) -> list[psutil.Process]:
    """Return the children that have reached their program."""
    return [process for process in below(template) if status_of(process.pid).get("Seccomp_filters") == ["2"]]


def _waits(pid: int) -> bool:
    status = status_of(pid)
    # Asleep: it has no more work that can be done ahead.
    return status.get("Seccomp_filters") == ["1"] and status["State"][0] == "S"


def status_of(pid: int) -> dict[str, list[str]]:
    """Return the fields of proc_pid_status(5) by name, or an empty dict if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def end_beside_a_stopped_template(template: Template, program: bytes, policy: Policy) -> Ending:
    """Run a program that attempts at one word and ends at another, while the template, which checks attempts, is stopped."""
    fd = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        os.write(fd, program)
        with Child.open(template, fd, policy) as child:
            assert select.select([child.frames_out], [], [], _DEADLINE_S)[0], "nothing came"
            while not child.is_born:
                assert select.select([template], [], [], _DEADLINE_S)[0]
                template.pump()
            (first,) = psutil.Process(template.pid).children()
            first.suspend()
            try:
                for word in (b"1", b"2"):
                    os.write(child.frames_in, word)
                    wait_until(functools.partial(_has_done, child), "it waits for the template, or for the next word")
            finally:
                first.resume()
            return child.wait(_DEADLINE_S)
    finally:
        os.close(fd)


def _has_done(child: Child) -> bool:
    """Return whether a child has taken its word and all its threads and processes sleep."""
    if unread(child.frames_in):
        return False
    first = psutil.Process(child.pid)
    tasks = [task for process in (first, *first.children()) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    return all((task / "stat").read_text("utf-8").rpartition(")")[2].split()[0] == "S" for task in tasks)
