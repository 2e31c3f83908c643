"""Measure what `aileron run` costs by itself: processor time of the client process, against `python -c pass`.

The daemon is warm and its time is not counted: the question is what every command that an agent types costs before and after the
run. It counts user and system time of the process as the kernel does, getrusage(2) by way of wait4(2). Goal: at most 4 times.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import page
from benchmarks.measure import Measured, Question, answer, at_most, interleave
from tests.support.home import daemon_home
from tests.support.probed import lend_probe

ROUNDS = 100
CLIENT, PYTHON = "aileron run", "python -c pass"


def main() -> None:
    """Measure and report."""
    command = shutil.which("aileron", path=str(Path(sys.executable).parent))
    if command is None:
        raise FileNotFoundError("no `aileron` beside this interpreter: pip install -e .")
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", "text:string")
        environment = {**os.environ, "AILERON_HOME": str(home.path)}
        variants = {
            CLIENT: _cpu_of([command, "run", "give-back", "text=x"], environment),
            PYTHON: _cpu_of([sys.executable, "-c", "pass"], environment),
        }
        taken = interleave(variants, ROUNDS)
    asked = [Question("`aileron run`: processor time of the client", CLIENT, PYTHON, at_most(4))]
    answer("client.json", taken, asked)


def _cpu_of(arguments: list[str], environment: dict[str, str]) -> Callable[[], Measured]:
    def once() -> Measured:
        quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(arguments[0], arguments, environment, file_actions=quiet)
        _, status, usage = os.wait4(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, arguments
        return Measured([usage.ru_utime + usage.ru_stime])

    return once


if __name__ == "__main__":
    main()
    page.write()
