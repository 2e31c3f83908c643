"""Program that runs as the agent, for comparing sandboxes: it tries two things in the project that it is allowed to write.

    python in_the_project.py        # prints "ready", waits for a line, prints {"name": "ok" | the errno's name}

Neither is an attack on a cell: docs/explanation/limitations.md says that both are possible there. The caller makes
`meanwhile.sock` in the project after "ready" and before the line, as a program of the person's may. Standard library alone.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_SOCKET_S = 5.0


def main() -> dict[str, str]:
    """Return the outcome of each attempt by its name."""
    print("ready", flush=True)
    sys.stdin.readline()
    return {
        "write a git hook of the project": _answer(_write_a_hook),
        "reach a socket that appears in the project": _answer(_connect),
    }


def _answer(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def _write_a_hook() -> None:
    Path(".git/hooks/post-commit").write_text("#!/bin/sh\n")


def _connect() -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(_SOCKET_S)
        made.connect(str(Path("meanwhile.sock").resolve()))


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
