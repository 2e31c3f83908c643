"""A template process (from which jails are forked) that is started early: it imports its modules, then waits for a
Preparation message.

Runs on the host. A host with other work to do starts this process first, and sends the preparation as soon as it is
known (`Template.begin`). This module imports little, because it is loaded before the host has imported anything else.

Rules
- The process inherits one descriptor, its end of a socket, and exits when the host closes the other end. To abandon the
  process, the host closes its end and waits.
- It must be started from a thread that lives as long as the template (jail.py).
- Host and process must run the same version: if the source files changed after the host imported them, the process is not
  used.

Not here: the preparation (template/template_messages.py), what the process does with it (template/__main__.py).
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
    """Yield the path, inode, size and time of each source file of a package. Takes 0.5 ms for this package's 60 files."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _stamps(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns


_IMPORTED: Final = tuple(_stamps(_HERE))


class Begun(NamedTuple):
    """A running template process that waits for its Preparation message, and the host's end of its control socket."""

    control: socket.socket
    process: subprocess.Popen[bytes]

    @classmethod
    def execute(cls, executable: Path) -> Self:
        """Start a template's process with this interpreter. Raises OSError if that fails, and leaves no process or
        descriptor behind. Raises JailUnavailable if the started process would run a version other than the host's.
        """
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
                # Popen uses vfork(2), whose cost does not grow with this process's memory, as that of fork(2) does. A session
                # of its own: otherwise Ctrl-C in the host's terminal would end the template while the host is ending children.
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
        """Close the control socket, which ends the template process, and wait for its end. Idempotent."""
        self.control.close()
        try:
            self.process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_DEADLINE_S)


def interpreter() -> Path:
    """Return the path of the running interpreter itself, not the path of a virtual environment's link to it."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
