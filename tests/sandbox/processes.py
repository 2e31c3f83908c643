"""The processes of a template, as its host sees them."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from aileron_sandbox.jail import Template

__all__ = ["below", "status_of", "wait_forked_ahead"]

_DEADLINE_S = 10.0


def below(template: Template) -> list[psutil.Process]:
    """The processes below the template itself: the children, or the one that was forked ahead."""
    return [process for process in psutil.Process(template.pid).children(recursive=True)[1:] if process.is_running()]


def wait_forked_ahead(template: Template) -> psutil.Process:
    """Wait until a child is there that nobody asked for, and has done what it can do ahead. For a template without children.

    That is when its bounding set is empty; one that runs a program has its filter as well.
    """
    until = time.monotonic() + _DEADLINE_S
    while time.monotonic() < until:
        for process in below(template):
            status = status_of(process.pid)
            if status and status["CapBnd"] == ["0" * 16] and status["Seccomp"] == ["0"] and status["State"][0] != "Z":
                return process
    raise TimeoutError("none was forked ahead")


def status_of(pid: int) -> dict[str, list[str]]:
    """proc_pid_status(5) by name; empty when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
