"""The exec with which a confined child becomes a compiled program.

The program's bytes were copied from the host's sealed memory file to a mount of the child's own, which is read-only
by then; no process could attach to the child while it copied them. The child is a Python process until the exec, in a
root without Python, so all modules that it imports late must have been imported before the root was entered.

Rules
- The status pipe is close-on-exec and stays open until the exec, so that an exec that the kernel refuses can still be
  reported.
- Signal handling is reset to the default: Python ignores two signals, and an ignored signal stays ignored through an exec,
  execve(2).
- One argument, `connector`; no environment.

Source: execve(2), fexecve(3). Not here: where the program is and why (mounts.py, program_places.py), what it may read
(aileron_sandbox/elf.py), confinement (confine.py).
"""

from __future__ import annotations

import array  # noqa: F401 - socket.send_fds and recv_fds import it when they are called
import codecs
import gc
import os
import signal
from typing import Final, NoReturn

__all__ = ["BASE_BYTES", "get_ready", "run"]

BASE_BYTES: Final = (2 << 30, 0)
"""Bytes of (address space, data) that a program gets in addition to its limit, for limits.apply_limits. The program has
none of the template's data. Address space is plenty, because RLIMIT_DATA is the limit that counts: Go's runtime
reserves 1.2 GiB that it does not use, and fails if it can reserve only half of that (measured, Go 1.26).
"""
_ARGUMENTS: Final = ("connector",)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_ENCODINGS: Final = ("ascii", "utf-8", "backslashreplace")


def get_ready() -> None:
    """Load the text encodings that Python would import later, when their files are no longer visible. Must be called in
    the template, before its root is entered.
    """
    for name in _ENCODINGS[:2]:
        codecs.lookup(name)
    codecs.lookup_error(_ENCODINGS[2])
    gc.collect()
    gc.freeze()
    gc.disable()


def run(program: str) -> NoReturn:
    """Execute the program at a path, which replaces this process. Raises OSError if the kernel refuses; the caller's
    process then continues.
    """
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, _ARGUMENTS, {})  # noqa: S606 - there is no shell to start it with
