r"""A program at a pseudo-terminal, and a typist at it, also while it is raw: every byte that it shows is kept.

    with RawTerminal(["bash", "-i"], environment) as at:
        at.until(b"$ ")
        at.type(b"\x1a")

It is the program's controlling terminal, 80 by 24, and answers `CSI 5 n` and `CSI c` in order, as terminals do. A slow one
answers all pending questions at the next `CSI 5 n`, or when told to. tmux.py draws a screen; this module does not, and tests
check the bytes shown.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["RawTerminal"]

_DEADLINE_S: Final = 40.0
_BEGIN: Final = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_ANSWERS: Final = {b"\x1b[5n": b"\x1b[0n", b"\x1b[c": b"\x1b[?62;22c"}
_QUESTION: Final = re.compile(rb"\x1b\[5n|\x1b\[c")


class RawTerminal(contextlib.AbstractContextManager["RawTerminal"]):
    """A terminal with its program, for the length of a with block; the program is killed at its end."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], *, is_slow: bool = False) -> None:
        self.shown = b""
        self._is_slow = is_slow
        self._answers: list[bytes] = []
        self._looked_at = 0
        self.descriptor, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BEGIN, *words],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env={"TERM": "xterm-256color", **environment},
            )
        finally:
            os.close(slave)

    def type(self, data: bytes) -> None:
        """Type bytes, unchanged."""
        os.write(self.descriptor, data)

    def line(self, text: str) -> None:
        """Type a line and Enter."""
        self.type(text.encode() + b"\r")

    def until(self, wanted: bytes) -> bytes:
        """Wait until `wanted` is shown after the previous match. Return everything from there to its end."""
        until = time.monotonic() + _DEADLINE_S
        while (at := self.shown.find(wanted, self._looked_at)) < 0:
            left = until - time.monotonic()
            assert left > 0, f"{wanted!r} was not shown: {self.shown[self._looked_at :]!r}"
            assert self._read(left), f"ended before {wanted!r} was shown: {self.shown[self._looked_at :]!r}"
        begin, self._looked_at = self._looked_at, at + len(wanted)
        return self.shown[begin : self._looked_at]

    def end(self) -> int:
        """Wait for the end of the program. Return its exit code."""
        until = time.monotonic() + _DEADLINE_S
        while self._read(max(0.0, until - time.monotonic())):
            pass
        return self.process.wait(max(0.1, until - time.monotonic()))

    def _read(self, most_s: float) -> bool:
        if not select.select([self.descriptor], [], [], most_s)[0]:
            return False
        try:
            read = os.read(self.descriptor, 65536)
        except OSError:  # EIO: nobody has it open any more
            return False
        for question in _QUESTION.findall(self.shown[-3:] + read):
            self._answers.append(_ANSWERS[question])
            if question == b"\x1b[5n" or not self._is_slow:
                self.answer()
        self.shown += read
        return bool(read)

    def answer(self) -> int:
        """Answer all pending questions to the terminal. Return how many there were."""
        answers, self._answers = self._answers, []
        os.write(self.descriptor, b"".join(answers))
        return len(answers)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.descriptor)
