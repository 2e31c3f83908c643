"""Measure what a cell costs an agent: its start and its work, in a cell and without one, by the same command.

- How much later does an agent begin? `aileron launch --jail` against `--no-jail`, from starting the command to the first byte of
  the agent. Goal: at most 35 ms more. The agent is a shell script, and everything else is real: the daemon, the session, the
  gateway, the search for the agent's files on this machine.
- How much longer does its work take? A C compiler on a generated file, and a part of this repository's own tests in a copy of it,
  timed by the agent itself, so without its start. Goal: at most 1.05 times each. All of `make check` is checks.py.
- A cell by itself, without a command, a daemon and a session, against bubblewrap with the same directories: from the request to
  the first byte. No goal: the cell sets up a memory limit, listeners and a filter of three hundred calls, and watches its parent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aileron_sandbox.cell.door import Cell
from aileron_sandbox.cell.policy import Bind, CellPolicy
from benchmarks import page
from benchmarks.launched import GREETS, TIMES, first_byte, script, told
from benchmarks.measure import Measured, Question, Variant, adds_at_most, answer, at_most, interleave
from benchmarks.peers import BWRAP_MISSING, read_some, spawned
from tests.support.home import DaemonHome, daemon_home

ROOT: Final = Path(__file__).resolve().parents[1]
STARTS, WORKS, BARE = 40, 7, 60
IN_CELL, OUTSIDE = "aileron launch --jail", "aileron launch --no-jail"
CELL, BWRAP = "a cell, by itself", "bubblewrap with the same directories"
FUNCTIONS: Final = 600
"""Functions in the file that is compiled, which takes 3 s."""
TESTS: Final = "tests/frames"
"""Tests that are timed: some compute, some start processes; none needs a jail, or a second user, which a cell does not have."""


def main() -> None:
    """Measure and report."""
    with tempfile.TemporaryDirectory(prefix="aileron-cell-", dir="/var/tmp") as directory, daemon_home() as home:
        place = Path(os.path.realpath(directory))
        home.must("GET", "/v1/status")
        measure_start(home, place, STARTS)
        _measure_work(home, place)
        _measure_bare(place)


def measure_start(home: DaemonHome, place: Path, starts: int) -> None:
    """Measure, over `starts` rounds, how much later an agent begins in a cell."""
    agent = script(place, "greets", GREETS)
    project = place / "project"
    project.mkdir()
    variants: dict[str, Variant] = {
        IN_CELL: first_byte(home, project, agent, "--jail"),
        OUTSIDE: first_byte(home, project, agent, "--no-jail"),
    }
    asked = [Question("`aileron launch`: to the agent's first byte", IN_CELL, OUTSIDE, adds_at_most(0.035))]
    answer("cell-start.json", interleave(variants, starts), asked)


def _measure_work(home: DaemonHome, place: Path) -> None:
    source = place / "source"
    source.mkdir()
    (source / "made.c").write_text("\n".join(_functions()), encoding="ascii")
    compiles = script(place, "compiles", TIMES.format(command="cc -O2 -c made.c -o made.o"))
    copy = place / "copy"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(copy)], check=True)
    python = f"PYTHONPATH={copy} {sys.executable} -m pytest -q -p no:cacheprovider {TESTS}"
    tests = script(place, "tests", TIMES.format(command=python))
    asked = []
    taken: dict[str, list[float]] = {}
    for what, project, agent in (("compiling C", source, compiles), ("a test run", copy, tests)):
        inside, outside = f"{what}, in a cell", f"{what}, outside"
        variants = {inside: told(home, project, agent, "--jail"), outside: told(home, project, agent, "--no-jail")}
        taken |= interleave(variants, WORKS, warm_ups=1)
        asked.append(Question(f"in a cell: {what}", inside, outside, at_most(1.05)))
    answer("cell-work.json", taken, asked)


def _functions() -> Iterator[str]:
    yield "#include <stdio.h>\n#include <string.h>"
    for number in range(FUNCTIONS):
        yield (
            f"int f{number}(int x, char *y) {{ for (int i = 0; i < x; i++) {{ y[i] = (char)(x * {number} + i);"
            f" if (y[i] == 'a') snprintf(y, 8, \"%d\", i); }} return (int)strlen(y) + {number}; }}"
        )


# A cell, and nothing around it


def _measure_bare(place: Path) -> None:
    project = place / "bare"
    project.mkdir()
    variants: dict[str, Variant] = {CELL: _cell(_policy(project))}
    if BWRAP_MISSING is None:
        variants[BWRAP] = _bwrap(project)
    asked = [Question("a cell by itself: to its program's first byte", CELL, BWRAP)]
    missing = {} if BWRAP_MISSING is None else {BWRAP: BWRAP_MISSING}
    answer("cell-bare.json", interleave(variants, BARE), asked, missing=missing)


def _roots() -> tuple[list[str], list[tuple[str, str]]]:
    directories, links = ["/usr", "/etc"], []
    for path in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            directories.append(path)
    return directories, links


def _policy(project: Path) -> CellPolicy:
    directories, links = _roots()
    binds = [*(Bind(path, path, mounts=True) for path in directories), Bind(str(project), str(project), writable=True)]
    return CellPolicy(folder=str(project), home="/home/you", binds=tuple(binds), links=tuple(links))


def _cell(policy: CellPolicy) -> Callable[[], Measured]:
    def once() -> Measured:
        began = time.perf_counter()
        with Cell.start(policy, ["sh", "-c", "echo here"], {"PATH": "/usr/bin:/bin"}, ("pipe", "pipe", "pipe")) as cell:
            cell.begin()
            assert cell.pipes[1] is not None
            assert read_some(cell.pipes[1]) == b"here\n"
            return Measured([time.perf_counter() - began])

    return once


def _bwrap(project: Path) -> Callable[[], Measured]:
    directories, links = _roots()
    words = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    for path in directories:
        words += ["--ro-bind", path, path]
    for path, target in links:
        words += ["--symlink", target, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(project), str(project)]
    words += ["--chdir", str(project), "/bin/sh", "-c", "echo here"]

    def once() -> Measured:
        began = time.perf_counter()
        with spawned(*words) as process:
            assert read_some(process.stdout) == b"here\n"
            return Measured([time.perf_counter() - began])

    return once


if __name__ == "__main__":
    main()
    page.write()
