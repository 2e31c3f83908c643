"""The command line as a program: in a pipe, or at a terminal with a person who answers.

`Command` runs `python -m aileron` with one home. In a pipe it is given standard input and gives back what it wrote and its exit
code. At a terminal (a pty of 80 columns that is its controlling terminal) a person waits for each question and types the answer.

Each command is started for real the first time that it is used in a run of the tests; later it is forked from a process that has
imported everything (tests/support/forks.py), which takes a tenth of that.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support import derived, forks
from tests.support.waiting import DEADLINE_S, wait_until

__all__ = ["Answer", "Answers", "Command", "Said"]

Answer = tuple[str, str | Callable[[], str]]
Answers = Sequence[Answer]
"""Pairs of a question to wait for and the text to type; a function is called when the question appears, and returns it."""

_MODULE: Final = "aileron.__main__"
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Said:
    """Output of a command, and its exit code. At a terminal everything is in `out`."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """Standard output, parsed; it has to be JSON."""
        return json.loads(self.out)

    def exits(self, code: int) -> Said:
        """Check the exit code. Return this, for a look at its output."""
        assert self.code == code, self
        return self

    def __repr__(self) -> str:
        return f"[{self.code}]\n{self.out}\n{self.err}"


class Command:
    """The `aileron` command with one home, in `folder` or the current directory. `program` replaces the source's, `module`
    the main module, and `deadline_s` the default deadline.
    """

    def __init__(
        self,
        home: Path,
        *,
        folder: str | None = None,
        program: Sequence[str] = (),
        module: str = "aileron",
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.home = home
        self._folder = folder
        self.program: Final = [*(program or (sys.executable, "-m", module))]
        self._module = _MODULE if module == "aileron" else module
        self._is_ours = not program
        self._deadline_s = deadline_s

    def __call__(self, *words: str, given: str | bytes | None = None, **environment: str) -> Said:
        """Run the command in a pipe, with `given` on standard input."""
        typed = given.encode() if isinstance(given, str) else given
        around = self._environment(environment)
        if self._can_fork(words, around):
            done = forks.run(
                self._module, words, given=typed, environment=around, timeout=self._deadline_s, directory=self._folder
            )
        else:
            done = subprocess.run(
                self._words(words),
                input=typed,
                stdin=None if typed is not None else subprocess.DEVNULL,
                capture_output=True,
                env=around,
                cwd=self._folder,
                timeout=self._deadline_s,
            )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command in a pipe and return it while it runs; the caller ends it (`with`)."""
        return subprocess.Popen(
            self._words(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(environment),
            cwd=self._folder,
        )

    def at_terminal(
        self,
        *words: str,
        answers: Answers = (),
        whenever: Answers = (),
        ahead: str = "",
        variables: Mapping[str, str] | None = None,
        **environment: str,
    ) -> Said:
        """Run the command at a terminal; each of `answers` is a question to wait for and the text to type. Type `ahead` first.

        Questions of `whenever` are answered each time that they come, in any order, if the next of `answers` does not come first.
        The environment gets `variables` too.
        """
        master, slave = pty.openpty()
        os.write(master, ahead.encode())
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        around = self._environment({"TERM": "xterm-256color", **(variables or {}), **environment})
        process: forks.Child | subprocess.Popen[bytes]
        try:
            if self._can_fork(words, around):
                streams = dict.fromkeys((0, 1, 2), slave)
                process = forks.start(
                    self._module,
                    words,
                    descriptors=streams,
                    environment=around,
                    directory=self._folder,
                    has_terminal=True,
                )
            else:
                process = subprocess.Popen(
                    [sys.executable, "-c", _AT_TERMINAL, *self._words(words)],
                    stdin=slave,
                    stdout=slave,
                    stderr=slave,
                    env=around,
                    cwd=self._folder,
                )
        finally:
            os.close(slave)
        try:
            with process:
                try:
                    shown = _converse(master, process, list(answers), whenever, self._deadline_s)
                except (
                    BaseException
                ):  # also of what a test does to have something to type: nobody waits for its end then
                    process.send_signal(signal.SIGKILL)
                    raise
        finally:
            os.close(master)
        return Said(process.returncode or 0, shown.replace("\r\n", "\n"), "")

    def _words(self, words: Sequence[str]) -> list[str]:
        return [*self.program, *words]

    def _can_fork(self, words: Sequence[str], environment: dict[str, str]) -> bool:
        """Return False for the first use, for another program, and if the interpreter would be set up differently."""
        command = tuple(itertools.takewhile(lambda word: word.isidentifier() or "-" in word[1:], words))[:2]
        is_first = derived.is_first(self._module, *command)
        return self._is_ours and not is_first and forks.can_fork(environment)

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AILERON_", "NO_COLOR"))}
        here = {} if self._folder is None else {"PWD": self._folder}
        return {**kept, **here, "AILERON_HOME": str(self.home), "TZ": "UTC", **more}


def _converse(
    master: int,
    process: forks.Child | subprocess.Popen[bytes],
    answers: list[Answer],
    whenever: Answers,
    deadline_s: float,
) -> str:
    """Type each answer when its question has appeared. Return everything that was shown until the end."""
    shown, seen_to = "", 0
    until = time.monotonic() + deadline_s
    while select.select([master], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: the last one on the other side has gone, pty(7)
            return shown
        shown += data.decode("utf-8", "replace")
        known = [*answers[:1], *whenever]
        places = [
            (at, number) for number, (question, _) in enumerate(known) if (at := shown.find(question, seen_to)) >= 0
        ]
        if places:
            at, number = min(places)
            question, typed = known[number]
            seen_to = at + len(question)
            if answers and number == 0:
                answers.pop(0)
            # A question for a passphrase appears a moment before input is kept.
            wait_until(lambda: termios.tcgetattr(master)[3] & termios.ICANON, "the terminal takes lines")
            os.write(master, (typed() if callable(typed) else typed).encode() + b"\n")
    raise TimeoutError(f"still running after {deadline_s} s, having shown: {shown}")
