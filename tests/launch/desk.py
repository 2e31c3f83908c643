"""The place where tests launch an agent: a folder, a home directory, stand-ins for the agents, and one daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aileron.launch.agents import AGENTS
from tests.cli.command import Command, Said
from tests.launch.stand_in import placed
from tests.support.home import DaemonHome
from tests.support.waiting import wait_text

__all__ = ["DEADLINE_S", "NAMES", "Desk"]

DEADLINE_S = 30.0
NAMES = list(AGENTS)


class Desk:
    """Place where one agent is started: a folder, a home directory, a record, and the output of `aileron` there."""

    def __init__(self, path: Path, home: DaemonHome) -> None:
        self.path = path
        self.daemon = home
        self.folder = path / "work"
        self.folder.mkdir()
        (path / "person").mkdir()
        self.record_file = path / "record.json"
        bin_path = placed(path / "bin", *NAMES)
        self.environment = {
            "HOME": str(path / "person"),
            "PATH": f"{bin_path}:{os.environ['PATH']}",
            "STAND_IN_RECORD": str(self.record_file),
        }

    def aileron(
        self,
        *words: str,
        folder: bytes | None = None,
        is_exec_ed: bool = False,
        variables: Mapping[str, str] | None = None,
        **environment: str,
    ) -> Said:
        """Run the command in a pipe and in the folder. Set `is_exec_ed` if /proc is read for it, or if it execs itself.

        The environment gets `variables` too.
        """
        around: dict[str, Any] = {**self.environment, **(variables or {}), **environment}
        return self._command(folder, is_exec_ed)(*words, **around)

    def at_terminal(self, *words: str, answers: Any = (), **environment: str) -> Said:
        """Run the command at a terminal."""
        return self._command(None).at_terminal(*words, answers=answers, variables={**self.environment, **environment})

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command and return its running process."""
        program = [sys.executable, "-m", "aileron"]
        return Command(self.daemon.path, program=program).start(*words, **{**self.environment, **environment})

    def _command(self, folder: bytes | None, is_exec_ed: bool = False) -> Command:
        program = [sys.executable, "-m", "aileron"] if is_exec_ed else []
        return Command(self.daemon.path, folder=os.fsdecode(self.folder if folder is None else folder), program=program)

    @property
    def record(self) -> dict[str, Any]:
        """Record that the agent wrote; the property waits for it."""
        found: dict[str, Any] = json.loads(wait_text(self.record_file))
        return found

    def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions, as the daemon lists them."""
        found: list[dict[str, Any]] = self.daemon.must("GET", "/v1/sessions")["sessions"]
        return found
