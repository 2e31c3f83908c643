"""The program itself, when it is compiled: a confined child becomes it by execveat(2) of the very descriptor that was verified.

The host's descriptor is a sealed memory file, so what was hashed is what the kernel loads: there is no copy, and no path under
which something else could be put. The child is a Python process until then, in a root without Python: whatever it imports
late, it must have imported before the root was entered.

Rules
- The descriptor is close-on-exec, and so is the status pipe, which stays open until the program is there: an exec that the
  kernel refuses can still be told.
- Signals are as a program expects them: Python ignores two, and what is ignored stays so through an exec, execve(2).
- One argument, `connector`; no environment.

Source: execveat(2), fexecve(3). Not here: what the program may read (aileron_sandbox/elf.py), confinement (confine.py).
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


def run(program: int) -> NoReturn:
    """Become the program. OSError where the kernel refuses it: it is still the child that returns here."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(program, False)
    os.execve(program, _ARGUMENTS, {})  # noqa: S606 - what has no shell is a descriptor
