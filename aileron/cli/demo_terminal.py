"""A simulated person at a separate terminal, for the demo: runs a command there and types answers to its questions.

The command is the real one; its terminal is a pseudo-terminal, and what it shows decides what is typed next. Runs in the demo.
Not here: what the demo claims (demo.py).
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = ["TerminalResult", "at_terminal"]

_DEADLINE_S: Final = 60.0
"""Maximum seconds for the whole dialogue: two key derivations, on a machine under load."""
_MOST_BYTES: Final = 1 << 20
# The new session opens the terminal first, so it becomes the controlling terminal (open(2), tty without O_NOCTTY).
_BEGIN: Final = (
    "import os,sys;t=os.open(sys.argv[1],os.O_RDWR);[os.dup2(t,n) for n in (0,1,2)];os.execv(sys.argv[2],sys.argv[2:])"
)


class TerminalResult(NamedTuple):
    """The exit status of a command, and everything that its terminal showed."""

    status: int
    text: str


def at_terminal(
    words: Sequence[str], environment: Mapping[str, str], answers: Sequence[tuple[str, str]]
) -> TerminalResult:
    """Run a command at a terminal. Whenever the terminal shows the next question in `answers`, type its answer.

    Raises TimeoutError if a question does not appear or the command does not end.
    """
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, os.ttyname(theirs), *words],
            env={**environment, "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            text = _talk(ours, process, list(answers))
            return TerminalResult(process.wait(_DEADLINE_S), text)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(ours)
        os.close(theirs)


def _talk(terminal: int, process: subprocess.Popen[bytes], answers: list[tuple[str, str]]) -> str:
    until = time.monotonic() + _DEADLINE_S
    seen, answered_to = b"", 0
    while len(seen) < _MOST_BYTES:
        if time.monotonic() > until:
            raise TimeoutError(f"the command at the terminal did not go on within {_DEADLINE_S:.0f} s")
        ready, _, _ = select.select([terminal], [], [], 0.1)
        if ready:
            seen += _read(terminal)
        elif process.poll() is not None:
            break
        if answers and (at := seen.find(answers[0][0].encode(), answered_to)) >= 0:
            question, answer = answers.pop(0)
            answered_to = at + len(question)
            os.write(terminal, answer.encode() + b"\n")
    return seen.decode("utf-8", "replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        if error.errno == errno.EIO:  # no process has the other end open
            return b""
        raise
