"""The person's console on its whole screen, at a real terminal, with another process of the same terminal beside it.

    with FullScreen(home) as at:
        at.until("nothing waiting")
        at.press("q")

The leader of the terminal's session is a small program that starts the console, as a shell does, and on a word starts another
process there, which may do whatever a process of that session may. Words are looked for among everything that was drawn since
the last words that were found.

Not here: what stands where (tests/tui).
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Final, Self

import psutil

from tests.attacks.same_user.terminal import environment

__all__ = ["FullScreen"]

_DEADLINE_S: Final = 40.0
_KEY_S: Final = 0.6
"""Seconds before a key is pressed: longer than the console ignores keys."""
_LEADER: Final = """
import fcntl, os, subprocess, sys, termios
os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)
words = os.fdopen(int(sys.argv[1]))
console = subprocess.Popen(sys.argv[2:])
for line in words:
    subprocess.Popen([sys.executable, "-c", *eval(line)])
console.wait()
"""
_DRAWN: Final = re.compile(r"\x1b\[[0-9;?<>=$]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\\\)|\x1b[@-Z\\^_=>c()][B0]?")


class FullScreen:
    """`aileron console` on a screen of 80 by 24, for the length of a with block."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._raw = ""

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self.terminal = os.ttyname(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        told, self._words = os.pipe()
        console = [sys.executable, "-m", "aileron", "console"]
        plain = {
            name: value for name, value in environment(self._home).items() if name not in ("TMUX", "STY", "ZELLIJ")
        }
        self._leader = subprocess.Popen(
            [sys.executable, "-c", _LEADER, str(told), *console],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=[told],
            env=plain,
        )
        os.close(slave)
        os.close(told)
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes, psutil.Process(self._leader.pid)]:
            process.kill()
        self._leader.wait(_DEADLINE_S)
        os.close(self._words)
        os.close(self._master)

    @property
    def processes(self) -> list[psutil.Process]:
        """The console's processes: the command, and the process that holds the key alone."""
        return [
            process
            for process in psutil.Process(self._leader.pid).children(recursive=True)
            if "console" in _words_of(process)
        ]

    def press(self, *keys: str) -> None:
        """Press keys as a person does: no sooner than the console accepts a key."""
        for key in keys:
            time.sleep(_KEY_S)
            os.write(self._master, key.encode())

    def until(self, *wanted: str) -> str:
        """Wait until all of these were drawn. Return what was drawn since the last call, without colours and positions."""
        until = time.monotonic() + _DEADLINE_S
        while not all(part in (text := _DRAWN.sub("", self._raw)) for part in wanted):
            left_s = max(0.0, until - time.monotonic())
            assert select.select([self._master], [], [], left_s)[0], f"{wanted} are not to be seen: {text[-4000:]}"
            self._raw += os.read(self._master, 65536).decode("utf-8", "replace")
        self._raw = ""
        return text

    def beside(self, program: str, *words: str) -> None:
        """Have another process of this terminal run `program`, which is Python."""
        os.write(self._words, (repr((program, *words)) + "\n").encode())


def _words_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[1:4])
    except psutil.Error:  # of one that nobody may look into
        return "console"
