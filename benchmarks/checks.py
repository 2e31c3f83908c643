"""Measure how much slower this repository's `make check` is in a cell. Goal: at most 1.05 times, the median of seven pairs.

    python -m benchmarks.checks [PAIRS]        as an ordinary user

It takes eleven minutes for each pair on two cores, and so is not part of `make bench`. In a clone of the last commit, with
an environment of its own, in AILERON_BENCH_DIR (/var/tmp), `make check` is run by the same command in a cell and without one, in
turns; the time that the run reports itself counts. Files that only a first run makes (compiled files, mypy's cache) are made in
the clone before. Each time is printed as soon as it is known, so that a failure of the last does not lose 80 minutes.
It refuses to run as root: a cell has no second user, so root's own tests fail in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.launched import TIMES, script, told
from benchmarks.measure import Measured, Question, answer, in_pairs_at_most, interleave
from benchmarks.peers import PYTHON
from tests.support.home import daemon_home

ROOT: Final = Path(__file__).resolve().parents[1]
PAIRS: Final = 7
IN_CELL, OUTSIDE = "make check, in a cell", "make check, outside"
_COLLECT: Final = [".venv/bin/python", "-m", "pytest", "--collect-only", "-q", "tests"]
DEADLINE_S: Final = 3600.0
"""Seconds for one `make check`, which takes five minutes on two quiet cores."""


def main(words: Sequence[str]) -> int:
    """Measure and report. Return 0, or 2 for root, after printing what to type."""
    if os.geteuid() == 0:
        print(
            "not as root: in a cell its tests have no second user; sudo -u USER, in a checkout of theirs",
            file=sys.stderr,
        )
        return 2
    where = os.environ.get("AILERON_BENCH_DIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="aileron-checks-", dir=where) as directory, daemon_home() as home:
        place = Path(os.path.realpath(directory))
        project = place / "copy"
        subprocess.run(["git", "clone", "--quiet", f"file://{ROOT}", str(project)], check=True)
        for words_of_one in (["make", f"PYTHON={PYTHON}", ".venv/.dev", "lint"], _COLLECT):
            subprocess.run(words_of_one, cwd=project, check=True, stdout=subprocess.DEVNULL)
        home.must("GET", "/v1/status")
        agent = script(place, "checks", TIMES.format(command="make check"))
        outside = _said("outside", told(home, project, agent, "--no-jail", DEADLINE_S))
        in_cell = _said("in a cell", told(home, project, agent, "--jail", DEADLINE_S))
        taken = interleave({IN_CELL: in_cell, OUTSIDE: outside}, int(words[0]) if words else PAIRS, warm_ups=0)
    answer("cell-checks.json", taken, [Question("in a cell: make check", IN_CELL, OUTSIDE, in_pairs_at_most(1.05))])
    page.write()
    return 0


def _said(where: str, run: Callable[[], Measured]) -> Callable[[], Measured]:
    """Wrap `run` so that it prints how long it took. A run in which a test failed does not count and is repeated once."""

    def once() -> Measured:
        try:
            (seconds,) = measured = run()
        except AssertionError as failed:
            print(f"{where}: failed, once more\n{failed}", flush=True)
            (seconds,) = measured = run()
        print(f"{where}: {seconds:.1f} s", flush=True)
        return measured

    return once


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
