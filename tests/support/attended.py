"""A program in a real cell, attended as `aileron launch --jail` does, without a daemon: for tests of terminals and signals.

    python -m tests.support.attended [--publish HOSTPORT:PORT] [--door PATH] [--patience SECONDS] -- WORD…

The cell shows /usr, this Python, and nothing else. With `--door` a TCP listener at port 7000 leads to the Unix socket at PATH.
The exit code is the ending's. If the agent did not end by itself, the reason is on standard error. The terminal has longer to
answer than with the command: a test may stand still for some seconds.

`agent(NAME)` gives the words of a small program (attended_agents.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from aileron.cell import terminal
from aileron.cell.attend import PATIENCE_S, attend
from aileron.cell.publish import Published, parse_publish
from aileron.cell.relays import Door, unix_target
from aileron.cell.terminal import streams_of_ours
from aileron_sandbox.cell.door import Cell
from aileron_sandbox.cell.policy import Bind, CellPolicy

__all__ = ["DOOR_PORT", "agent", "attended"]

DOOR_PORT: Final = 7000
_PYTHON: Final = os.path.realpath(sys.executable)
_AGENTS: Final = Path(__file__).with_name("attended_agents.py")
_INSIDE: Final = "/agents.py"
_ANSWER_S: Final = 20.0


def agent(name: str, *words: str) -> list[str]:
    """Return the words that start a program of attended_agents.py in a cell."""
    return [_PYTHON, "-I", "-S", _INSIDE, name, *words]


def attended(*words: str, **options: str) -> list[str]:
    """Return the words that attend a program, with options by name."""
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [sys.executable, "-P", "-m", "tests.support.attended", *given, "--", *words]


def main() -> int:
    """Attend the program that the command line names. Return the exit code."""
    terminal._ANSWER_S = _ANSWER_S  # type: ignore[misc]
    at = sys.argv.index("--")
    options, words = sys.argv[1:at], sys.argv[at + 1 :]
    given = dict(zip(options[::2], options[1::2], strict=True))
    base = os.path.realpath(sys.base_prefix)
    binds = [Bind("/usr", "/usr", mounts=True), Bind(str(_AGENTS), _INSIDE)]
    if not base.startswith("/usr"):
        binds.append(Bind(base, base))
    links = tuple((f"/{name}", f"usr/{name}") for name in ("bin", "lib", "lib64") if os.path.exists(f"/usr/{name}"))
    policy = CellPolicy(
        folder="/tmp",
        home="/home/you",
        binds=tuple(binds),
        links=links,
        tcp_listeners=(("door", DOOR_PORT),) if "--door" in given else (),
    )
    doors = [Door("door", unix_target(given["--door"]), preamble=b"token\n")] if "--door" in given else []
    published = [Published(parse_publish(given["--publish"]))] if "--publish" in given else []
    streams = streams_of_ours()
    environment = {"PATH": "/usr/bin", "TERM": os.environ.get("TERM", "xterm")}
    patience_s = float(given.get("--patience", PATIENCE_S))
    ending = attend(Cell.start(policy, words, environment, streams), streams, doors, published, patience_s=patience_s)
    if ending.why is not None:
        print(f"attended: {ending.why}", file=sys.stderr)
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(main())
