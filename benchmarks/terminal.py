"""Run a program at a terminal of its own: a pty of 80 by 24."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

__all__ = ["at_own_terminal"]

_END_S: Final = 30.0


@contextlib.contextmanager
def at_own_terminal(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[int]:
    """Yield the terminal's other end while the program runs. At the end, kill the program and its process group."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.execvpe(words[0], [*words], environment)
        finally:
            os._exit(127)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        yield master
    finally:
        os.killpg(pid, signal.SIGKILL)  # of its own session: the console is two processes
        _drain(master)
        os.waitpid(pid, 0)
        os.close(master)


def _drain(master: int) -> None:
    """Read until the end: an ending program draws once more, and would block if its output were not read."""
    until = time.monotonic() + _END_S
    while select.select([master], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            if not os.read(master, 65536):
                return
        except OSError:  # EIO: no process has the other side open
            return
