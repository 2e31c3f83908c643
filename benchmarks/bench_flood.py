"""Measure what a person loses while 500 hostile clients flood the loopback port: whole commands, beside a flood and beside a
program that only computes.

The daemon is real, and so is the flood: tests/attacks/flooder.py, one process, one kind of flood at a time. Beside it, in turn,
- a person's `aileron run` and `aileron approve`, each a process from its start to its end,
- an agent's `POST …/run` on the agent socket.
Each is compared with the same beside one process that computes, which has the same processors. Goal: at most 2 times.
tests/attacks/test_floods.py asserts the memory that a flood takes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.door import Door
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from tests.support.home import DaemonHome, asking_home

KINDS: Final = ("pipelined", "refused", "forms", "agents", "models", "heads", "dripping", "bodies", "churn")
ROUNDS: Final = 3
COMMANDS: Final = 2
CALLS: Final = 8
"""Calls in a row beside one neighbour, which was started for them."""
COMPUTES: Final = "beside one that computes"
_COMPUTE: Final = ("-c", "print('begun', flush=True)\nwhile True: pass")
_FLOODER: Final = Path(__file__).parents[1] / "tests" / "attacks" / "flooder.py"
_LONGEST_S: Final = 120.0
_BEGIN_S: Final = 0.5  # until a flood is at it


def main() -> None:
    """Measure and report."""
    with asking_home() as home:
        port = home.must("GET", "/v1/status")["web"].rpartition(":")[2]
        variants: dict[str, Variant] = {}
        for what, measure in _measures(home).items():
            variants[f"{what} {COMPUTES}"] = _beside(_COMPUTE, measure)
            for kind in KINDS:
                flood = ("-I", str(_FLOODER), port, kind, str(_LONGEST_S))
                variants[f"{what} beside a flood: {kind}"] = _beside(flood, measure)
        taken = interleave(variants, ROUNDS, warm_ups=0)
    asked = [
        Question(f"{what} beside a flood: {kind}", f"{what} beside a flood: {kind}", f"{what} {COMPUTES}", at_most(2))
        for what in _WHAT
        for kind in KINDS
    ]
    answer("flood.json", taken, asked)


_WHAT: Final = ("aileron run", "aileron approve", "an agent's call")


def _measures(home: DaemonHome) -> dict[str, Callable[[], Measured]]:
    def command(*words: str) -> float:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "aileron", *words],
            env={**os.environ, "AILERON_HOME": str(home.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=_LONGEST_S,
        )
        return time.perf_counter() - began

    def run() -> Measured:
        return Measured([command("run", "give-back", "text=x") for _ in range(COMMANDS)])

    def approve() -> Measured:
        waiting = [home.asked("ask-first", {"text": "x"})["approval_id"] for _ in range(COMMANDS)]
        return Measured([command("approve", approval_id, "--yes") for approval_id in waiting])

    def call() -> Measured:
        taken = []
        with Door(home.path) as door:
            for _ in range(CALLS):
                began = time.perf_counter()
                door.run()
                taken.append(time.perf_counter() - began)
        return Measured(taken)

    return dict(zip(_WHAT, (run, approve, call), strict=True))


def _beside(neighbour: tuple[str, ...], measure: Callable[[], Measured]) -> Callable[[], Measured]:
    def window() -> Measured:
        with _running(neighbour):
            return measure()

    return window


@contextlib.contextmanager
def _running(words: tuple[str, ...]) -> Iterator[None]:
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(_BEGIN_S)
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
    page.write()
