r"""A program of hosts.py with a terminal of its own; the test types, reads the output, sends instructions and gets facts.

>>> with Program("asks") as program:
...     program.heard("begun"); program.tell("go"); program.wait_shown("Passphrase: "); program.type("a phrase\n")
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Final, Self

from tests.approver_key.hosts import UID

__all__ = ["Program"]

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 20.0
_START: Final = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'tests.approver_key.hosts', *sys.argv[1:]])"
)


class Program:
    """A running program, from `with` to its end. With `has_terminal` False its standard input is /dev/null, in a
    session of its own.
    """

    def __init__(self, name: str, *, has_terminal: bool = True) -> None:
        self._name = name
        self._has_terminal = has_terminal
        self.shown = ""
        self._heard = b""

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self.terminal = os.ttyname(slave)
        if os.geteuid() == 0:
            os.chown(self.terminal, UID, UID)
        told, self._tell = os.pipe()
        self._hear, tells = os.pipe()
        start = _START if self._has_terminal else _START.replace("fcntl.ioctl(0, termios.TIOCSCTTY, 0); ", "")
        with contextlib.ExitStack() as given:
            for descriptor in (slave, told, tells):
                given.callback(os.close, descriptor)
            self._slave = os.dup(slave)  # the terminal stays when the program has gone, to be looked at
            self.process = subprocess.Popen(
                [sys.executable, "-c", start, self._name, str(told), str(tells)],
                stdin=slave if self._has_terminal else subprocess.DEVNULL,
                stdout=slave,
                stderr=slave,
                cwd=ROOT,
                pass_fds=(told, tells),
            )
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._tell)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for descriptor in (self._hear, self._slave, self._master):
            os.close(descriptor)

    def tell(self, line: str) -> None:
        """Send the next instruction."""
        os.write(self._tell, line.encode() + b"\n")

    def do(self, *deed: Any) -> Any:
        """Have `attacker` do this, and return the result."""
        self.tell(json.dumps(deed))
        return self.heard("said")["said"]

    def heard(self, key: str) -> dict[str, Any]:
        """Return the next fact, which must have this key."""
        while b"\n" not in self._heard:
            if not select.select([self._hear], [], [], DEADLINE_S)[0]:
                raise TimeoutError(f"{self._name} has not told {key!r}, having shown: {self.shown}{self._rest()}")
            if not (data := os.read(self._hear, 65536)):
                raise EOFError(f"{self._name} has ended, having shown: {self.shown}{self._rest()}")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        fact: dict[str, Any] = json.loads(line)
        assert key in fact, fact
        return fact

    def type(self, text: str) -> None:
        """Type the text at the program's terminal."""
        os.write(self._master, text.encode("latin-1"))

    def wait_shown(self, text: str, times: int = 1) -> None:
        """Wait until the text has been shown this many times, counted from the beginning."""
        until = time.monotonic() + DEADLINE_S
        while self.shown.count(text) < times:
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"{self._name} has not shown {text!r} {times} times, but: {self.shown}")
            self.shown += os.read(self._master, 65536).decode("latin-1")

    def ended(self) -> int:
        """Wait for the end. Return the exit code, or minus the signal's number. All output is in `shown`."""
        code = self.process.wait(DEADLINE_S)
        self.shown += self._rest()
        return code

    def is_held(self) -> bool:
        """Return whether a process holds the terminal exclusively, ioctl_tty(2)."""
        return fcntl.ioctl(self._slave, 0x80045440, bytes(4)) != bytes(4)

    def settings(self) -> list[Any]:
        """Return the settings of the terminal."""
        return termios.tcgetattr(self._slave)

    def set(self, settings: list[Any]) -> None:
        """Set the settings of the terminal."""
        termios.tcsetattr(self._slave, termios.TCSANOW, settings)

    def unread(self) -> bytes:
        """Return input that was typed but not read, as the next program at this terminal would find it."""
        quick = [*self.settings()[:6], list(self.settings()[6])]
        quick[3] &= ~termios.ICANON
        quick[6][termios.VMIN] = quick[6][termios.VTIME] = 0
        before = self.settings()
        self.set(quick)
        try:
            return os.read(self._slave, 4096)
        finally:
            self.set(before)

    def _rest(self) -> str:
        rest = b""
        while select.select([self._master], [], [], 0)[0]:
            rest += os.read(self._master, 65536)
        return rest.decode("latin-1")
