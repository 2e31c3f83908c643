"""A person's home with everything in it that an agent of theirs would like to have, and the facts of where it is.

    with household(daemon_home) as house:
        house.facts     # what attempts.py is told
        house.launch(*options)      # `aileron launch … --jail` with attempts.py as the agent
        house.outside()             # the same attempts without a cell
        house.tried([*words, str(house.program())])     # and under whatever else starts a program

Real sockets, a real daemon, a real process of the person's, real files: in a directory of its own, so that an attempt that works
harms nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.home import DaemonHome

__all__ = ["BY_MACHINE", "IN_A_HOME_OF_ITS_OWN", "NOT_THERE", "REFUSED", "Household", "household"]

NOT_THERE: Final = {"ENOENT", "ESRCH", "ECONNREFUSED", "ENETUNREACH", "absent", "ENXIO"}
"""Answers to an attempt that has no object."""
REFUSED: Final = {"EACCES", "EPERM", "EROFS"}
"""And to one that is refused."""
IN_A_HOME_OF_ITS_OWN: Final = {"write the shell's startup file", "put a program in front"}
"""Attempts that can work in a home that nobody else sees: `Household.marked` says whether the person's was reached."""
BY_MACHINE: Final = {
    "push a key into its own terminal",
    "attach to a process of the person's",
    "read the memory of a process of the person's",
    "change Aileron's own code",
    "change a system program",
    "ask on the operator socket by its address in the cell",
}
"""What other settings of a machine, or another user, may refuse outside as well."""

_ATTEMPTS: Final = Path(__file__).with_name("attempts.py")
_RUN_S: Final = 100.0
_TERMINALS_OF_A_CELL: Final = 4
_VARIABLES: Final = {
    "SOME_SERVICES_TOKEN": "secret",
    "MCP_GITHUB_TOKEN": "secret",
    "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer secret",
    "LC_SECRET": "secret",
    "GRADLE_OPTS": "-Dhttps.proxyPassword=secret",
}
"""Variables with a credential: one has no name of an agent's, others have names that begin like one of a list."""
_THEIRS: Final = "the person's\n"


class Household:
    """The person, their things, and where an agent of theirs is started."""

    def __init__(self, path: Path, home: DaemonHome, facts: dict[str, Any], terminal: int) -> None:
        self.path = path
        self.project = path / "person" / "project"
        self.facts = facts
        self._home = home
        self._terminal = terminal

    def launch(self, *options: str) -> dict[str, str]:
        """What each attempt came to in a cell."""
        return self.tried([*self.in_a_cell(*options), "--program", str(self.program())])

    @staticmethod
    def in_a_cell(*options: str) -> list[str]:
        """The command that starts what follows `--program` in a cell."""
        return [sys.executable, "-m", "aileron", "launch", "claude", "--jail", "--no-gateway", *options]

    def outside(self) -> dict[str, str]:
        """And as the agent would be started without one."""
        return self.tried([str(self.program())])

    @property
    def person(self) -> Path:
        """Their home."""
        return self.path / "person"

    @property
    def environment(self) -> dict[str, str]:
        """The person's, in which the agent is started."""
        return {
            **os.environ,
            "HOME": str(self.person),
            "AILERON_HOME": str(self._home.path),
            "PATH": f"{self.facts['bin']}:{os.environ['PATH']}",
            "TERM": "xterm",
            **_VARIABLES,
        }

    @property
    def marked(self) -> set[str]:
        """By its attempt, what of the person's was written to."""
        places = {
            "write the shell's startup file": Path(self.facts["startup"]),
            "put a program in front": Path(self.facts["bin"]) / "aileron",
        }
        return {name for name, path in places.items() if path.exists() and b"marked" in path.read_bytes()}

    def unmark(self) -> None:
        """As before the first attempt, so that the next one's marks are its own."""
        Path(self.facts["startup"]).write_text(_THEIRS)
        (Path(self.facts["bin"]) / "aileron").unlink(missing_ok=True)

    def program(self) -> Path:
        """The agent: a script of the project's, which writes what it found beside itself."""
        program = self.project / "agent"
        python = Path(sys.executable).resolve()
        program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && exec {python} attempts.py facts.json > answers.json\n')
        program.chmod(0o755)
        return program

    def tried(self, words: list[str], **changed: str) -> dict[str, str]:
        """What each attempt came to when these words started the program, with some variables changed."""
        answers = self.project / "answers.json"
        answers.unlink(missing_ok=True)
        (self.project / "facts.json").write_text(json.dumps(self.facts))
        shutil.copy(_ATTEMPTS, self.project)
        ended = subprocess.run(
            words,
            cwd=self.project,
            env={**self.environment, **changed},
            stdin=self._terminal,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
        assert answers.exists(), ended.stdout + ended.stderr
        found: dict[str, str] = json.loads(answers.read_text())
        return found


@contextlib.contextmanager
def household(home: DaemonHome) -> Iterator[Household]:
    """Everything is there for the length of the block."""
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="house-")))
        person = path / "person"
        (person / "project").mkdir(parents=True)
        for name in (".ssh", ".config/chromium", "bin", ".local"):
            (person / name).mkdir(parents=True)
        files = {
            "history": ".bash_history",
            "ssh_key": ".ssh/id_ed25519",
            "token_file": ".netrc",
            "profile": ".config/chromium/Cookies",
            "startup": ".bashrc",
        }
        for file in files.values():
            (person / file).write_text(_THEIRS)
        sockets = {name: str(path / f"{name}.sock") for name in ("multiplexer", "x_socket", "bus")}
        for address in (*sockets.values(), f"\0aileron-cell-{path.name}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        port = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        victim = stack.enter_context(subprocess.Popen(["sleep", "600"]))
        stack.callback(victim.kill)
        inner = _terminal(stack)
        home.install_probe()
        home.add_probe_action("give_back", "text:string")
        facts = {
            "home": str(home.path),
            "daemon": home.daemon_pid,
            "victim": victim.pid,
            "variables": list(_VARIABLES),
            "terminal": os.ttyname(inner),
            "abstract": f"aileron-cell-{path.name}",
            "port": port.getsockname()[1],
            "address": _own_address(),
            "bin": str(person / "bin"),
            "code": str(Path(__file__).resolve().parents[3] / "aileron" / "__init__.py"),
            **sockets,
            **{name: str(person / file) for name, file in files.items()},
        }
        yield Household(path, home, facts, inner)


def _terminal(stack: contextlib.ExitStack) -> int:
    """One whose name no terminal of a cell has: those are numbered from 0 on, and a cell makes one."""
    while True:
        outer, inner = pty.openpty()
        stack.callback(os.close, outer)
        stack.callback(os.close, inner)
        if int(os.path.basename(os.ttyname(inner))) >= _TERMINALS_OF_A_CELL:
            return inner


def _own_address() -> str:
    """One of this machine's that is not loopback's; loopback's where there is no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
