"""The program itself, when it is compiled: a confined child becomes it by an exec.

Its bytes were copied from the host's sealed memory file to a mount of the child's own, which is read-only by then; the child
could not be attached to while it did that. The child is a Python process until the exec, in a root without Python: whatever
it imports late, it must have imported before the root was entered.

Rules
- The status pipe is close-on-exec and stays open until the program is there: an exec that the kernel refuses can still be told.
- Signals are as a program expects them: Python ignores two, and what is ignored stays so through an exec, execve(2).
- One argument, `connector`; no environment.

Source: execve(2), fexecve(3). Not here: where the program lies and why (mounts.py, places.py), what it may read
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
"""(address space, data) that is allowed for before a program's own limit, for limits.apply_limits. Of data it has none of ours.
Address space is plenty, because RLIMIT_DATA is the limit that counts: Go's runtime reserves 1.2 GiB of which it uses nothing,
and gives up where it can have half (measured, Go 1.26)."""
_ARGUMENTS: Final = ("connector",)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_ENCODINGS: Final = ("ascii", "utf-8", "backslashreplace")


def get_ready() -> None:
    """In the template, before its root is entered: import what is imported late."""
    for name in _ENCODINGS[:2]:
        codecs.lookup(name)
    codecs.lookup_error(_ENCODINGS[2])
    gc.collect()
    gc.freeze()
    gc.disable()


def run(program: str) -> NoReturn:
    """Become the program at a path. OSError where the kernel refuses it: it is still the child that returns here."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, _ARGUMENTS, {})  # noqa: S606 - there is no shell to start it with
