"""What does a cell cost an agent? Its start, and what it does while it is there, with and without one, by the same command.

- How much later does an agent begin? `aileron launch --jail` against `--no-jail`, from starting the command to the first byte of
  the agent. Goal: at most 60 ms more. The agent is a shell script, and everything else is real: the daemon, the session, the
  gateway, what is looked for on this machine.
- How much longer does its work take? A C compiler on a generated file, and a part of this repository's own tests in a copy of it,
  timed by the agent itself, so without its start. Goal: at most 1.05 times each. All of `make check` is checks.py.
- A cell by itself, without a command, a daemon and a session, against bubblewrap with the same directories: from asking to the
  first byte. No goal: the cell makes a memory limit, listeners and a filter of three hundred calls, and watches who asked for it.
"""

from __future__ import annotations

import contextlib
import os
import select
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
from benchmarks.measure import Measured, Question, Variant, adds_at_most, answer, at_most, interleave
from benchmarks.peers import BWRAP_MISSING, read_some, spawned
from tests.support.home import DaemonHome, daemon_home

ROOT: Final = Path(__file__).resolve().parents[1]
STARTS, WORKS, BARE = 40, 7, 60
IN_CELL, OUTSIDE = "aileron launch --jail", "aileron launch --no-jail"
CELL, BWRAP = "a cell, by itself", "bubblewrap with the same directories"
DEADLINE_S: Final = 120.0
"""For one turn; the longest takes ten seconds on two busy cores."""
FUNCTIONS: Final = 600
"""Of the file that is compiled: 3 s."""
TESTS: Final = "tests/frames"
"""Of these, some compute and some start processes; none needs a jail or a second user, of which there is none in a cell."""
_GREETS: Final = "#!/bin/sh\necho here\n"
_TIMES: Final = """#!/bin/sh
began=$(date +%s%N)
{command} >made.log 2>&1 || {{ tail -n 20 made.log >&2; exit 1; }}
echo $(( $(date +%s%N) - began ))
"""


def main() -> None:
    """Measure and report."""
    with tempfile.TemporaryDirectory(prefix="aileron-cell-", dir="/var/tmp") as directory, daemon_home() as home:
        place = Path(os.path.realpath(directory))
        home.must("GET", "/v1/status")
        _measure_start(home, place)
        _measure_work(home, place)
        _measure_bare(place)


def _measure_start(home: DaemonHome, place: Path) -> None:
    agent = _agent(place, "greets", _GREETS)
    project = place / "project"
    project.mkdir()
    variants: dict[str, Variant] = {
        IN_CELL: _first_byte(home, project, agent, "--jail"),
        OUTSIDE: _first_byte(home, project, agent, "--no-jail"),
    }
    asked = [Question("`aileron launch`: to the agent's first byte", IN_CELL, OUTSIDE, adds_at_most(0.06))]
    answer("cell-start.json", interleave(variants, STARTS), asked)


def _measure_work(home: DaemonHome, place: Path) -> None:
    source = place / "source"
    source.mkdir()
    (source / "made.c").write_text("\n".join(_functions()), encoding="ascii")
    compiles = _agent(place, "compiles", _TIMES.format(command="cc -O2 -c made.c -o made.o"))
    copy = place / "copy"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(copy)], check=True)
    python = f"PYTHONPATH={copy} {sys.executable} -m pytest -q -p no:cacheprovider {TESTS}"
    tests = _agent(place, "tests", _TIMES.format(command=python))
    asked = []
    taken: dict[str, list[float]] = {}
    for what, project, agent in (("compiling C", source, compiles), ("a test run", copy, tests)):
        inside, outside = f"{what}, in a cell", f"{what}, outside"
        variants = {inside: _told(home, project, agent, "--jail"), outside: _told(home, project, agent, "--no-jail")}
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


def _agent(place: Path, name: str, text: str) -> Path:
    """A program in a directory of its own, beside the project: in it, an agent's program stays read-only."""
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
    """The person's own, but for a home in which no agent of theirs has settings."""
    own = project.parent / "home"
    own.mkdir(exist_ok=True)
    return {**os.environ, "AILERON_HOME": str(home.path), "HOME": str(own)}


def _first_byte(home: DaemonHome, project: Path, program: Path, way: str) -> Callable[[], Measured]:
    """Its end is not measured: the person waits for the beginning."""

    def once() -> Measured:
        with _started(home, project, program, way) as (process, began):
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no word of the agent"
            assert os.read(process.stdout.fileno(), 64) == b"here\n"
            return Measured([time.perf_counter() - began])

    return once


def _told(home: DaemonHome, project: Path, program: Path, way: str) -> Callable[[], Measured]:
    """By the agent, in nanoseconds."""

    def once() -> Measured:
        with _started(home, project, program, way) as (process, _):
            out, error = process.communicate(timeout=DEADLINE_S)
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
