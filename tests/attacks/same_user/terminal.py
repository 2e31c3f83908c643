"""A user at a terminal: the person, who knows both passphrases, or an attacker in a pseudo-terminal of its own.

The real command runs on a pty that is its controlling terminal. The user answers prompts by their words, as people do, not by
their order: the end of what is shown is compared with the questions that they know.

    said = at_terminal(home, PERSON, "approve", approval_id)
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.cli.command import Said
from tests.support.home import PASSPHRASE

__all__ = ["APPROVER", "PERSON", "Someone", "at_terminal", "environment"]

APPROVER: Final = "a phrase of my own, 7 herons"
"""The approver's passphrase. No test may leave it in any file."""
DEADLINE_S: Final = 40.0
_AT_TERMINAL: Final = (
    "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "sys.argv[1] and os.kill(os.getpid(), signal.SIGSTOP); os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclasses.dataclass(frozen=True)
class Someone:
    """A user's replies: patterns for the end of what is shown, each with the typed text; the first match is used."""

    replies: tuple[tuple[str, str], ...]

    def reply(self, shown: str) -> str | None:
        """Return what the user types now; None if they wait."""
        return next((typed for question, typed in self.replies if re.search(question + r"\s*\Z", shown, re.I)), None)

    def but(self, *replies: tuple[str, str]) -> Someone:
        """Return the same user with other replies to some questions."""
        return Someone((*replies, *self.replies))


PERSON: Final = Someone(
    (
        (r"vault[^\n]*passphrase[^\n]*:|passphrase of the vault[^\n]*:", PASSPHRASE),
        (r"passphrase[^\n]*:", APPROVER),
        (r"\[y/N\]:?|\[y\]es[^\n]*:", "y"),
        *((rf"Type {word} to approve:", word) for word in ("allow", "delete", "pay", "yes")),
    )
)
"""The person: knows both passphrases, confirms, and types the word that a heavy question asks for."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command: the home, and no variable that answers a prompt unless `more` has it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
    return {**kept, "AILERON_HOME": str(home), "TZ": "UTC", "TERM": "xterm-256color", "NO_COLOR": "1", **more}


def at_terminal(
    home: Path,
    someone: Someone,
    *words: str,
    variables: Mapping[str, str] | None = None,
    standing: bool = False,
    begun: Callable[[int, str], None] = lambda _pid, _terminal: None,
    at_prompt: Callable[[int, str, str], None] = lambda _pid, _terminal, _shown: None,
    after: Callable[[int], None] = lambda _pid: None,
) -> Said:
    """Run `aileron WORDS` until it ends. Return what was shown, and the exit code.

    `begun` is called with the process id and the path of the terminal as soon as the command runs, `at_prompt` also with what
    is shown before each reply, `after` with the process id after each reply was typed. With `standing` the process is stopped
    (SIGSTOP) before the command's program begins, until `begun` continues it.
    """
    master, slave = pty.openpty()
    terminal = os.ttyname(slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _AT_TERMINAL,
                "standing" if standing else "",
                sys.executable,
                "-m",
                "aileron",
                *words,
            ],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(home, **(variables or {})),
        )
    finally:
        os.close(slave)
    with process:
        try:
            if standing:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            begun(process.pid, terminal)
            shown = _typed(master, process, someone, lambda s: at_prompt(process.pid, terminal, s), after)
        finally:
            os.close(master)
            if process.poll() is None:
                process.wait(DEADLINE_S)
    return Said(process.returncode, shown.replace("\r\n", "\n"), "")


def _typed(
    master: int,
    process: subprocess.Popen[bytes],
    someone: Someone,
    at_prompt: Callable[[str], None],
    after: Callable[[int], None],
) -> str:
    shown, answered_to = "", 0
    until = time.monotonic() + DEADLINE_S
    while select.select([master], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: the last one on the other side has gone, pty(7)
            return shown
        shown += data.decode("utf-8", "replace")
        typed = someone.reply(shown[answered_to:])
        if typed is not None:
            answered_to = len(shown)
            at_prompt(shown)
            os.write(master, typed.encode() + b"\n")
            after(process.pid)
    process.send_signal(signal.SIGKILL)
    raise TimeoutError(f"still running after {DEADLINE_S} s, having shown: {shown}")
