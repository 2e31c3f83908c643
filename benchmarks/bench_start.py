"""Measure how long a person waits for Aileron to begin, and how much memory it takes while nothing happens.

Each time is a whole process from its start to its end, as a person waits for it, against `python -c pass`. The command is the
installed `aileron`, and the daemon the one that this command starts. Of the daemon's start there is also the processor time of
both, which other work on the machine does not lengthen as much.

- The daemon's start, from the command to its answer, in a home that does not exist yet and in one with a connector, actions, a
  vault and events. Goal: at most 20 times. A first `aileron run` while no daemon runs: at most 57 times, which is a second where
  the daemon may take 350 ms.
- Each command that people and scripts call often, the daemon up. Goal: at most 5 times; `--help` and `--version` 3 times.
- PSS (proc_pid_smaps(5)) of the daemon and all its children, after the start, and again when all that ends for lack of use has
  ended (IDLE_S): after a run, and with an agent beside them that asked for one. Goal: at most 60 MB, and 100 MB with an agent.
  The size directly after use has no goal. The homes for it are used first, and wait while the rest is measured.
- The start of a cell is measured as in bench_cell.py, with fewer turns.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.bench_cell import measure_start
from benchmarks.bench_jail import pss, tree
from benchmarks.loads import processor_s
from benchmarks.measure import Goal, Measured, Question, Samples, Variant, answer, at_most, bytes_at_most, interleave
from tests.support.home import DaemonHome, daemon_home
from tests.support.relay import Agent

DAEMON_STARTS, COMMANDS, CELLS, MEMORIES = 7, 15, 10, 3
"""Rounds of each measurement: a minute in all on two quiet cores, beside IDLE_S."""
IDLE_S: Final = 750.0
"""Seconds after the last use: a template ends after ten or eleven minutes; by then all that ends beside a connected agent has."""
PYTHON: Final = "python -c pass"
FRESH, USED = "`aileron daemon start`, a fresh home", "`aileron daemon start`, a used home"
FIRST_RUN, NOBODY = "`aileron run`, no daemon", "`aileron status`, no daemon"
RUN: Final = "run give-back text=x"
IN_PLACE: Final = (
    "--version",
    "--help",
    "-h",
    "",
    "status --help",
    "action list --help",
    "run --help",
    "audit list --help",
)
"""Command lines that only print something."""
ASKING: Final = (
    "status", "run give-back text=x", "action list", "action list --json", "action show give-back", "approval list",
    "audit list", "audit list --json", "audit verify", "connector list", "binding list", "secret list", "vault status",
    "grant list", "sessions list", "daemon status", "config get",
)  # fmt: skip
"""Command lines that ask the daemon."""
NO_DAEMON: Final = 69
IDLE, USED_ONCE, WITH_AGENT = "idle after the start", "idle after a run", "idle with an agent"
JUST_RAN, JUST_ASKED = "directly after a run", "directly after an agent's call"
BARE_PYTHON: Final = "a Python that waits"
_ECHO: Final = Path(__file__).parent / "echo"
_DEADLINE_S: Final = 60.0
_SETTLED_S: Final = 2.0
"""Seconds after a request: what the daemon starts ahead of the next one runs by then."""


def main() -> None:
    """Measure and report."""
    folder = tempfile.TemporaryDirectory(prefix="aileron-start-", dir="/var/tmp")
    with folder as directory, _idle_homes() as idle, used_home() as home:
        _measure_daemon(home)
        must(home.path, "daemon start")
        _measure_commands(home)
        _measure_memory(home, idle)
        measure_start(home, Path(os.path.realpath(directory)), CELLS)


@contextlib.contextmanager
def used_home() -> Iterator[DaemonHome]:
    """Yield a home with connectors, an action without a credential, a vault, a binding and runs; its daemon is not forked."""
    with daemon_home() as home:
        must(home.path, "daemon start")
        home.unlock()
        home.install(_ECHO)
        home.install_probe()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string", connector="github://aileron-benchmarks/echo")
        for _ in range(5):
            assert not home.run("give-back", {"text": "x"}).is_error
        yield home


def _measure_daemon(home: DaemonHome) -> None:
    with tempfile.TemporaryDirectory(prefix="ail-") as directory:
        fresh = DaemonHome(Path(directory, "h"))

        def clean() -> None:
            fresh.stop()
            shutil.rmtree(fresh.path, ignore_errors=True)

        processor: dict[str, list[float]] = {}
        variants = {
            FRESH: _timed(fresh.path, "daemon start", processor.setdefault(FRESH, []), fresh),
            USED: _timed(home.path, "daemon start", processor.setdefault(USED, []), home),
            FIRST_RUN: _timed(home.path, RUN, processor.setdefault(FIRST_RUN, []), home),
            NOBODY: _timed(home.path, "status", [], code=NO_DAEMON),
            PYTHON: _python(processor.setdefault(PYTHON, [])),
        }
        before: dict[str, Callable[[], object]] = {FRESH: clean, **dict.fromkeys((USED, FIRST_RUN, NOBODY), home.stop)}
        try:
            taken = interleave(variants, DAEMON_STARTS, warm_ups=1, before=before)
        finally:
            fresh.stop()
    goals = {FRESH: at_most(20), USED: at_most(20), FIRST_RUN: at_most(57), NOBODY: at_most(5)}
    _answer("start-daemon.json", "start to end", taken, goals)
    _answer("start-processor.json", "processor time", processor, dict.fromkeys((FRESH, USED, FIRST_RUN)))


def _measure_commands(home: DaemonHome) -> None:
    variants: dict[str, Variant] = {PYTHON: _python([])}
    goals: dict[str, Goal] = {}
    for words in (*IN_PLACE, *ASKING):
        name = f"`{f'aileron {words}'.strip()}`"
        variants[name] = _timed(home.path, words, [], code=0 if words else 2)
        goals[name] = at_most(3 if words in IN_PLACE else 5)
    taken = interleave(variants, COMMANDS, warm_ups=1)
    _answer("start-commands.json", "start to end", taken, goals)


class _Idle:
    """Homes that were used and then left alone, with their memory directly after use and later, by name."""

    def __init__(self) -> None:
        self.homes: dict[str, tuple[DaemonHome, list[int]]] = {}
        self.at_once: dict[str, list[float]] = {}
        self.left_at = 0.0

    def settled(self) -> dict[str, list[float]]:
        """Wait until IDLE_S have passed since the last use. Return the memory samples by home."""
        time.sleep(max(0.0, self.left_at + IDLE_S - time.monotonic()))
        return {name: _memory(home, *others) for name, (home, others) in self.homes.items()}


@contextlib.contextmanager
def _idle_homes() -> Iterator[_Idle]:
    """Yield a home that ran an action, and one with an agent that requested a run; their daemons got no other requests."""
    idle = _Idle()
    with used_home() as alone, used_home() as asked:
        for home in (alone, asked):
            home.stop()
            must(home.path, "daemon start")
        must(alone.path, RUN)
        idle.homes[USED_ONCE] = (alone, [])
        idle.at_once[JUST_RAN] = _memory(alone)
        with Agent(asked.path, program=[str(_command().with_name("aileron-mcp"))]) as agent:
            agent.initialize()
            agent.ask("tools/list", {})
            agent.ask("tools/call", {"name": "give_back", "arguments": {"text": "x"}})
            idle.left_at = time.monotonic()
            idle.homes[WITH_AGENT] = (asked, [agent.process.pid])
            idle.at_once[JUST_ASKED] = _memory(asked, agent.process.pid)
            yield idle


def _measure_memory(home: DaemonHome, idle: _Idle) -> None:
    # Restart: until here, this daemon has served many requests.
    home.stop()
    must(home.path, "daemon start")
    taken = {IDLE: _memory(home), **idle.at_once, **idle.settled()}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bare:
        time.sleep(_SETTLED_S)
        taken[BARE_PYTHON] = [pss(bare.pid) for _ in range(MEMORIES)]
        bare.communicate(b"\n", _DEADLINE_S)
    goals: dict[str, Goal | None] = dict.fromkeys(idle.at_once)
    goals |= {IDLE: bytes_at_most(60e6), USED_ONCE: bytes_at_most(60e6), WITH_AGENT: bytes_at_most(100e6)}
    asked = [Question(f"memory (PSS) of one user: {name}", name, BARE_PYTHON, goal) for name, goal in goals.items()]
    answer("start-memory.json", taken, asked, "bytes")


def _memory(home: DaemonHome, *others: int) -> list[float]:
    """Return a few samples of the PSS of the daemon with its children and of `others`, in bytes."""
    pid = home.daemon_pid
    assert pid is not None, "no daemon is running"
    samples: list[float] = []
    for _ in range(MEMORIES):
        time.sleep(_SETTLED_S)
        samples.append(sum(map(pss, (*tree(pid), *others))))
    return samples


def _answer(file: str, what: str, taken: Samples, goals: Mapping[str, Goal | None]) -> None:
    asked = [Question(f"{name}: {what}", name, PYTHON, goal) for name, goal in goals.items()]
    answer(file, taken, asked)


@functools.cache
def _command() -> Path:
    found = shutil.which("aileron", path=str(Path(sys.executable).parent))
    if found is None:
        raise FileNotFoundError("no `aileron` beside this interpreter: pip install -e .")
    return Path(found)


def must(home: Path, words: str) -> None:
    """Run `aileron WORDS…` in a home. CalledProcessError if it fails."""
    subprocess.run(
        [str(_command()), *words.split()],
        env={**os.environ, "AILERON_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_DEADLINE_S,
        check=True,
    )


def _timed(
    home: Path, words: str, processor: list[float], starts: DaemonHome | None = None, code: int = 0
) -> Callable[[], Measured]:
    """Return a variant that runs a command which must exit with `code`, and appends to `processor` the processor time that the
    command and the daemon that it starts have used.
    """
    arguments, environment = [str(_command()), *words.split()], {**os.environ, "AILERON_HOME": str(home)}

    def once() -> Measured:
        seconds, used = _spawned(arguments, environment, code)
        if starts is not None:
            pid = starts.daemon_pid
            assert pid is not None, "no daemon is running"
            used += sum(map(processor_s, tree(pid)))
        processor.append(used)
        return Measured([seconds])

    return once


def _python(processor: list[float]) -> Callable[[], Measured]:
    def once() -> Measured:
        seconds, used = _spawned([sys.executable, "-c", "pass"], dict(os.environ), 0)
        processor.append(used)
        return Measured([seconds])

    return once


def _spawned(arguments: list[str], environment: Mapping[str, str], code: int) -> tuple[float, float]:
    """Run a program. Return the seconds from start to end, and its processor time."""
    nothing = [
        (os.POSIX_SPAWN_OPEN, fd, os.devnull, how, 0)
        for fd, how in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY))
    ]
    began = time.perf_counter()
    pid = os.posix_spawn(arguments[0], arguments, environment, file_actions=nothing)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - began
    assert os.waitstatus_to_exitcode(status) == code, arguments
    return seconds, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
    page.write()
