"""The tutorial, followed as it stands: its files are written, its commands run in one shell, and its output is compared.

A fenced `console` block has commands (`$ …`) with their output; any other block is the file that the sentence before it names
last. Output is compared loosely: each shown line must come, in order, and `…` matches anything, such as ids, dates and
hashes. A command must succeed unless the page asks for its status next (`echo $?`).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import http.client
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command import Answers
from tests.cli.command import Command as Typist
from tests.support.ports import reserve_ports
from tests.support.serving import made_folder
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jail, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "tutorial/first-action.md": ("aileron-lesson", 4),
    "tutorial/publish-and-update.md": ("aileron-publishing", 6),
    "how-to/import-an-api.md": ("aileron-import", 0),
    "how-to/import-an-mcp-server.md": ("aileron-mcp", 0),
}
"""Pages with the reader's directory, and the least number of files that they make."""
APPROVER = "nine of swords, reversed"
SIGN: Answers = [("Approver passphrase: ", APPROVER)]
ANSWERS: dict[str, Sequence[tuple[str, Answers]]] = {
    "tutorial/first-action.md": [
        (
            "aileron approver init",
            [
                ("Create the approver's key? [y/N] ", "y"),
                ("New approver passphrase: ", APPROVER),
                ("again: ", APPROVER),
            ],
        ),
        ("aileron approve ", [*SIGN, ("Type delete to approve: ", "delete")]),
        ("aileron connector install notes/", []),
        ("aileron connector install notes/", [("Approve? ", "y"), *SIGN]),
        ("aileron action add list-notes.md", [("Approve? ", "y"), *SIGN]),
    ],
}
"""Answers of a reader, by page and by the beginnings of commands."""
PORT = "8765"
COMMAND_S = 60.0
"""Seconds for one command; the first starts a daemon."""
COLUMNS = 110
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = "\x1e"  # record separator: nothing prints it


class Command(NamedTuple):
    """A command that is typed, and the output lines that the page shows."""

    text: str
    shown: tuple[str, ...]


class File(NamedTuple):
    """A file that the reader makes."""

    path: str
    text: str


def steps(text: str) -> Iterator[Command | File]:
    """Yield what the page asks the reader to do, in order."""
    for block in _BLOCK.finditer(text):
        if block[1] == "text":  # shown, not typed: what another service would bring about
            continue
        if block[1] != "console":
            named = re.findall(r"`([\w./-]+\.\w+)`", text[: block.start()].rstrip().rpartition("\n\n")[2])
            assert named, f"the sentence before a {block[1]} block names no file: {block[2][:60]!r}"
            yield File(named[-1], block[2])
            continue
        assert block[2].startswith("$ "), f"a console block begins with a command: {block[2][:60]!r}"
        for typed in block[2].removeprefix("$ ").split("\n$ "):
            command, *shown = typed.rstrip("\n").split("\n")
            yield Command(command, tuple(shown))


class Shell:
    """A reader's shell that prints to a terminal of its own, so that commands print as they do for a person."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._output, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        os.close(terminal)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command. Return its exit status and its output, without the terminal's own characters."""
        script = f"{{ {command}\n}} < /dev/null\n__s=$?; printf '{_MARK}%s{_MARK}' \"$__s\"; (exit $__s)\n"
        assert self._shell.stdin is not None
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()
        printed, until = "", time.monotonic() + COMMAND_S
        while (found := re.search(f"{_MARK}(\\d+){_MARK}", printed)) is None:
            left = until - time.monotonic()
            assert left > 0, f"{command}: not over after {COMMAND_S} s; it printed {printed!r}"
            assert select.select([self._output], [], [], left)[0], f"{command}: nothing more comes after {printed!r}"
            printed += os.read(self._output, 1 << 16).decode("utf-8", "replace")
        # What a command erased again, as it does the clock of one that takes its time, nobody reads.
        left_standing = re.sub(r"[^\n]*\x1b\[K", "", printed[: found.start()])
        return int(found[1]), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", left_standing).replace("\r", "")

    def at_terminal(self, command: str, answers: Answers) -> tuple[int, str]:
        """Run a command at a terminal of its own, where a person answers every question. Return its exit status and its output.

        It has the folder and the variables of the shell, and changes neither; its exit status is the shell's.
        """
        here = base64.b64decode(self.must("env -0 | base64 -w 0")).decode()
        variables = dict(pair.split("=", 1) for pair in here.split("\0") if pair)
        typist = Typist(
            Path(variables.get("AILERON_HOME", f"{variables['HOME']}/.aileron")),
            folder=variables["PWD"],
            program=["bash", "--norc", "--noprofile", "-c", 'eval "$1"', "bash"],
            deadline_s=COMMAND_S,
        )
        left = [question for question, _ in answers]

        def typed(text: str | Callable[[], str]) -> str:
            left.pop(0)
            return text() if callable(text) else text

        typing = [(question, functools.partial(typed, text)) for question, text in answers]
        said = typist.at_terminal(command, answers=typing, variables=variables)
        assert not left, f"{command}: no question {left[0]!r} in {said}"
        self.run(f"(exit {said.code})")  # for `echo $?`
        return said.code, re.sub(r"[^\n]*\x1b\[K|\x1b\[[0-9;?]*[A-Za-z]", "", said.out)

    def must(self, command: str) -> str:
        """Run a command that must succeed. Return its output."""
        status, printed = self.run(command)
        assert status == 0, f"{command}: {printed}"
        return printed

    def begin(self, *places: str, ca_file: Path) -> None:
        """Set up what a reader has before a page about a service: it may be reached at these places, and a vault is open."""
        self.must(f"aileron config add egress.private {' '.join(places)}")
        self.must(f"aileron config set egress.ca_file {ca_file}")
        self.must("export AILERON_VAULT_PASSPHRASE=correct-horse-battery-staple && aileron vault init")

    def follow(
        self,
        text: str,
        folder: Path,
        says: Callable[[], object] = str,
        answers: Sequence[tuple[str, Answers]] = (),
    ) -> Iterator[tuple[Command, str]]:
        """Do what the page asks the reader to do: write its files into the folder, and type its commands.

        `answers` are beginnings of commands, in the page's order, each with what the person answers: the next command that begins
        so is typed at a terminal. Yield each command with its output, once the output has what the page shows. A failure has
        what the service `says`.
        """
        asking = list(answers)
        todo = list(steps(text))
        for step, after in zip(todo, [*todo[1:], None], strict=True):
            if isinstance(step, File):
                (folder / step.path).write_text(step.text, encoding="utf-8")
                continue
            if asking and step.text.startswith(asking[0][0]):
                status, printed = self.at_terminal(step.text, asking.pop(0)[1])
            else:
                status, printed = self.run(step.text)
            is_asked = isinstance(after, Command) and after.text == "echo $?"
            assert (status == 0) or is_asked, f"{step.text}: {printed} {says()}"
            assert (line := missing(step.shown, printed)) is None, f"{step.text}: no {line!r} in {printed}"
            yield step, printed
        assert not asking, f"no command begins with {asking[0][0]!r}"

    def close(self) -> None:
        """End the shell and everything it left running in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait(COMMAND_S)
        os.close(self._output)


@pytest.fixture
def home() -> Iterator[Path]:
    """Provide the reader's home directory; in a short path, because a socket's path is short."""
    with made_folder("reader-") as path:
        yield path


@pytest.fixture
def shell(home: Path) -> Iterator[Shell]:
    """Provide a shell in which `aileron` is the one under test."""
    programs = home / "bin"
    programs.mkdir()
    launcher = programs / "aileron"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aileron "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    opened = Shell({**kept, "HOME": str(home), "PATH": path, "TERM": "xterm", "NO_COLOR": "1"}, home)
    yield opened
    with contextlib.suppress(AssertionError, OSError):
        opened.run("aileron daemon stop")
    opened.close()


FOLDS = 3
"""Lines of a terminal that one shown line may take."""


def pattern(line: str) -> re.Pattern[str]:
    """Return a pattern for a shown line: `…` matches anything, and runs of blanks match each other."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
    return re.compile(r"\s*" + r".*".join(parts) + r"\s*")


def missing(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first shown line that is missing, in order; None if all are there. A terminal folds a line into at most
    FOLDS lines.
    """
    lines, at = printed.splitlines(), 0
    for wanted in shown:
        for first in range(at, len(lines)):
            taken = [
                first + n for n in range(1, FOLDS + 1) if pattern(wanted).fullmatch(" ".join(lines[first : first + n]))
            ]
            if taken:
                at = taken[0]
                break
        else:
            return wanted
    return None


def with_its_own(page: Path, *replaced: tuple[str, str]) -> str:
    """Return the page's text with what the test has in place of an example's; each example is there."""
    text = page.read_text(encoding="utf-8")
    for shown, own in replaced:
        assert shown in text
        text = text.replace(shown, own)
    return text


def script(text: str) -> str:
    """Return the commands that a page has for a script: they stand in a `text` block, since they are another way of a step."""
    (commands,) = re.findall(r"^```text\n(\$ .*?)^```$", text, re.DOTALL | re.MULTILINE)
    return f"```console\n{commands}```\n"


def wait_answering(port: str, *, over_tls: bool) -> None:
    """Wait until the reader's server responds, as it does for a reader who types the next command; over TLS, until it listens."""

    def is_answering() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if over_tls:
                socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
                return True
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=1)
            with contextlib.closing(connection):
                connection.request("HEAD", "/")
                connection.getresponse()
                return True
        return False

    wait_until(is_answering, f"somebody answers on {port}", within_s=COMMAND_S)


@pytest.mark.parametrize("page", PAGES)
def test_every_step_of_the_tutorial_works(shell: Shell, home: Path, page: str) -> None:
    """The test makes every file and runs every command, from nothing to the audit trail, on a clean home."""
    port, (folder, files) = str(*reserve_ports(1)), PAGES[page]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert sum(isinstance(step, File) for step in steps(text)) >= files
    for step, _printed in shell.follow(text.replace(PORT, port), home / folder, answers=ANSWERS.get(page, ())):
        if step.text.endswith("&"):
            wait_answering(port, over_tls="demo-server" not in step.text)

    assert not (home / folder).exists()
