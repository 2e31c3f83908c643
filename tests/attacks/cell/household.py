"""A person's home with everything that an agent of theirs would like to have, and the facts of where each thing is.

    with household(daemon_home) as house:
        house.facts     # what attempts.py is told
        house.launch(*options)      # `aileron launch … --jail` with attempts.py as the agent
        house.outside()             # the same attempts without a cell
        house.tried([*words, str(house.program())])     # and under whatever else starts a program

The sockets, the daemon, the person's process and the files are real, in a directory of their own, so that an attempt that
succeeds does no harm.
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
"""Outcomes of an attempt whose target does not exist."""
REFUSED: Final = {"EACCES", "EPERM", "EROFS"}
"""Outcomes of an attempt that is refused."""
IN_A_HOME_OF_ITS_OWN: Final = {"write the shell's startup file", "put a program in front"}
"""Attempts that can succeed in a home that nobody else sees: `Household.marked` says whether they reached the person's home."""
BY_MACHINE: Final = {
    "push a key into its own terminal",
    "attach to a process of the person's",
    "read the memory of a process of the person's",
    "change Aileron's own code",
    "change a system program",
    "ask on the operator socket by its address in the cell",
}
"""Attempts that other settings of a machine, or another user, may refuse outside of a cell as well."""

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
"""Variables with a credential: one has a name that no agent uses, others have names that begin like one of a list."""
_THEIRS: Final = "the person's\n"


class Household:
    """The person, their things, and the place where an agent of theirs is started."""

    def __init__(self, path: Path, home: DaemonHome, facts: dict[str, Any], terminal: int) -> None:
        self.path = path
        self.project = path / "person" / "project"
        self.facts = facts
        self._home = home
        self._terminal = terminal

    def launch(self, *options: str) -> dict[str, str]:
        """Return the outcome of each attempt in a cell."""
        return self.tried([*self.in_a_cell(*options), "--program", str(self.program())])

    @staticmethod
    def in_a_cell(*options: str) -> list[str]:
        """Return the command that starts in a cell what follows `--program`."""
        return [sys.executable, "-m", "aileron", "launch", "claude", "--jail", "--no-gateway", *options]

    def outside(self) -> dict[str, str]:
        """Return the outcome of each attempt when the agent is started without a cell."""
        return self.tried([str(self.program())])

    @property
    def person(self) -> Path:
        """The person's home directory."""
        return self.path / "person"

    @property
    def environment(self) -> dict[str, str]:
        """The person's environment, in which the agent is started."""
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
        """Names of the attempts that wrote to a file of the person's."""
        places = {
            "write the shell's startup file": Path(self.facts["startup"]),
            "put a program in front": Path(self.facts["bin"]) / "aileron",
        }
        return {name for name, path in places.items() if path.exists() and b"marked" in path.read_bytes()}

    def unmark(self) -> None:
        """Restore the state before the first attempt, so that the next one's marks are its own."""
        Path(self.facts["startup"]).write_text(_THEIRS)
        (Path(self.facts["bin"]) / "aileron").unlink(missing_ok=True)

    def program(self) -> Path:
        """Write the agent and return its path: a script of the project's, which writes its outcomes beside itself."""
        program = self.project / "agent"
        python = Path(sys.executable).resolve()
        program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && exec {python} attempts.py facts.json > answers.json\n')
        program.chmod(0o755)
        return program

    def tried(self, words: list[str], **changed: str) -> dict[str, str]:
        """Return the outcome of each attempt when these words start the program, with some variables changed."""
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
    """Provide a household whose processes, sockets and files exist for the length of the block."""
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
    """Open a terminal whose name no terminal of a cell has: a cell numbers its terminals from 0, and makes one."""
    while True:
        outer, inner = pty.openpty()
        stack.callback(os.close, outer)
        stack.callback(os.close, inner)
        if int(os.path.basename(os.ttyname(inner))) >= _TERMINALS_OF_A_CELL:
            return inner


def _own_address() -> str:
    """Return an address of this machine that is not loopback's; loopback's if there is no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
