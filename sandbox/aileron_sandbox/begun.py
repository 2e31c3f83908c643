"""The process of a template before it knows what for: an interpreter that imports what it needs, and waits to be told.

Runs on the host. For one that has work of its own meanwhile: it executes this process first, and says what it is for as soon as
it knows (`Template.begin`). Imports little, because whoever begins so has imported nothing yet.

Rules
- It holds nothing of the host's but one end of a socket, and ends with the other end: whoever gives it up closes it, and waits.
- It is executed from a thread that lives as long as the template (jail.py).
- Both ends of the socket are of one version: where the files were replaced since the host imported them, nothing is executed.

Not here: what it is told (template/messages.py), what it does then (template/__main__.py).
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["Begun", "interpreter"]

_STOP_DEADLINE_S: Final = 5.0
_BOOT: Final = (
    "import sys; sys.path[:0] = [sys.argv[1]]; "
    "from aileron_sandbox.template.__main__ import main; main(int(sys.argv[2]))"
)
_HERE: Final = os.path.dirname(os.path.realpath(__file__))


def _stamps(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """One for each source file of a package: 60 of this one, in half a millisecond."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _stamps(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns


_IMPORTED: Final = tuple(_stamps(_HERE))


class Begun(NamedTuple):
    """One that was executed: the host's end of its control socket, and the process that has the other."""

    control: socket.socket
    process: subprocess.Popen[bytes]

    @classmethod
    def execute(cls, executable: Path) -> Self:
        """Start this interpreter. OSError, and nothing is left. JailUnavailable where it would not be the host's version."""
        if tuple(_stamps(_HERE)) != _IMPORTED:
            raise JailUnavailable(
                "Aileron was replaced by another version while this process runs",
                "start it again: `aileron daemon restart`",
            )
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs:
                control = str(theirs.fileno())
                # posix_spawn-like: Popen uses vfork(2), whose price does not grow with this process (a fork's does). A session
                # of its own, or Ctrl-C in the host's terminal would end the template while the host has children to end well.
                process = subprocess.Popen(
                    [str(executable), "-I", "-S", "-X", "utf8", "-B", "-c", _BOOT, os.path.dirname(_HERE), control],
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            undo.pop_all()
        return cls(ours, process)

    def end(self) -> None:
        """Close the socket, which ends it, and wait. Idempotent."""
        self.control.close()
        try:
            self.process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_DEADLINE_S)


def interpreter() -> Path:
    """The interpreter that runs this, not the link to it that a virtual environment has."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
