"""A shell script as agent, launched by the real command in a cell or without one, and timed outside or by itself.

agent = script(place, "works", TIMES.format(command="make"))
interleave({"in a cell": told(home, project, agent, "--jail"), "outside": told(home, project, agent, "--no-jail")}, 7)
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.measure import Measured
from tests.support.home import DaemonHome

__all__ = ["DEADLINE_S", "GREETS", "TIMES", "first_byte", "script", "told"]

DEADLINE_S: Final = 120.0
"""Seconds for one turn; the longest of `make bench` takes ten seconds on two busy cores."""
GREETS: Final = "#!/bin/sh\necho here\n"
TIMES: Final = """#!/bin/sh
began=$(date +%s%N)
{command} >made.log 2>&1 || {{ tail -n 20 made.log >&2; exit 1; }}
echo $(( $(date +%s%N) - began ))
"""


def script(place: Path, name: str, text: str) -> Path:
    """Write a program into a directory beside the project, so that it stays read-only for the agent. Return its path."""
    program = place / "agents" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(text, encoding="ascii")
    program.chmod(0o755)
    return program


def _command(program: Path, way: str) -> list[str]:
    aileron = [sys.executable, "-m", "aileron"]
    read = ["--allow-read", sys.base_prefix] if way == "--jail" else []
    return [*aileron, "launch", "claude", way, *read, "--program", str(program)]


def _environment(home: DaemonHome, project: Path) -> dict[str, str]:
    """Return the person's environment with a HOME in which no agent has settings."""
    own = project.parent / "home"
    own.mkdir(exist_ok=True)
    return {**os.environ, "AILERON_HOME": str(home.path), "HOME": str(own)}


def first_byte(home: DaemonHome, project: Path, program: Path, way: str) -> Callable[[], Measured]:
    """Return a variant that measures the time to the agent's first byte; its end is not measured, as no person waits for it."""

    def once() -> Measured:
        with _started(home, project, program, way) as (process, began):
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no word of the agent"
            assert os.read(process.stdout.fileno(), 64) == b"here\n"
            return Measured([time.perf_counter() - began])

    return once


def told(
    home: DaemonHome, project: Path, program: Path, way: str, deadline_s: float = DEADLINE_S
) -> Callable[[], Measured]:
    """Return a variant that takes the seconds which the agent has measured itself."""

    def once() -> Measured:
        with _started(home, project, program, way) as (process, _):
            out, error = process.communicate(timeout=deadline_s)
            assert process.returncode == 0, error.decode("utf-8", "replace")
            return Measured([int(out) / 1e9])

    return once


@contextlib.contextmanager
def _started(
    home: DaemonHome, project: Path, program: Path, way: str
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    environment = _environment(home, project)
    began = time.perf_counter()
    with subprocess.Popen(
        _command(program, way),
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process, began
            process.communicate(timeout=DEADLINE_S)
        except BaseException:
            process.kill()
            raise
