"""The Inspector's command line: one method of the protocol, asked of a server, and what it printed.

    asked = Inspector(tools, tmp_path).over_stdio(home.path, token)
    asked("tools/call", "--tool-name", "greet", "--tool-arg", "name=Mira").result["structuredContent"]

Each question is a process of its own, which starts `aileron-mcp` or connects to `/mcp`, asks and ends. Its home is a folder of
the test's. Not here: what must be true of the answers (test_inspector.py).
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.conformance.install import Tools

__all__ = ["Answered", "Inspector"]

_ASK_S: Final = 60.0
"""Seconds for one question; measured: 1 s."""


@dataclasses.dataclass(frozen=True)
class Answered:
    """The answer to one question: `result` as the server gave it, {} if there is none; `err` is the rest of what was printed."""

    code: int
    result: dict[str, Any]
    err: str


@dataclasses.dataclass(frozen=True)
class Inspector:
    """The Inspector for one server, named by the words `server`; `era` is `legacy` (2025-11-25), `modern` (2026-07-28)
    or `auto`.
    """

    tools: Tools
    folder: Path
    server: tuple[str, ...] = ()
    era: str = "modern"

    def over_stdio(self, home: Path, token: str, era: str = "modern") -> Inspector:
        """Return the Inspector over stdio, as an agent does it: `aileron-mcp` is started, with a session's token."""
        relay = Path(sys.executable).with_name("aileron-mcp")
        words = (str(relay), "-e", f"AILERON_HOME={home}", "-e", f"AILERON_SESSION_TOKEN={token}")
        return dataclasses.replace(self, server=words, era=era)

    def over_http(self, web: str, token: str, era: str = "modern") -> Inspector:
        """Return the Inspector over HTTP, with `/mcp` of the daemon's loopback port."""
        words = ("--server-url", f"{web}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}")
        return dataclasses.replace(self, server=words, era=era)

    def __call__(self, method: str, *words: str) -> Answered:
        """Ask one question."""
        done = subprocess.run(
            [
                *(str(self.tools.node), str(self.tools.inspector), "--cli", *self.server),
                *("--method", method, "--protocol-era", self.era, "--format", "json", *words),
            ],
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": f"{self.tools.node.parent}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
        )
        printed = done.stdout.strip()
        return Answered(done.returncode, json.loads(printed)["result"] if printed else {}, done.stderr)
