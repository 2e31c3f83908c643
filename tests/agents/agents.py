"""The five agents as programs: how each is run without a person, kept from calling home, and told of a model by hand.

Each runs with a home of its own and sees nothing of the tests' environment. `HTTPS_PROXY` leads into a trap that notes who
wanted to leave the machine and lets nobody. What a person would have configured before Aileron comes (a model's name, and that
this machine is offline) is written here; what Aileron adds is Aileron's to add, by `aileron launch` or by what `aileron mcp
config` prints.

Source: each agent's own help and configuration reference. Not here: what the model then does (script.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from tests.agents.install import AGENTS, installed
from tests.agents.llm.wires import Wire
from tests.support.upstream import Seen, Upstream, answer

__all__ = ["ALL", "Agent", "Desk", "Ended", "Trap"]

_PROMPT: Final = "Do what has to be done."
_RUN_S: Final = 100.0
"""One conversation: 3 to 15 s where this was measured."""
_MODEL: Final = "scripted"


@dataclasses.dataclass(frozen=True)
class Agent:
    """One agent. `words` run it once and print; `wire` is what it then speaks to a model.

    `quiet` are variables that keep it from calling home. `own` writes what a person had configured. `follows` says whether it
    lists the tools again when they change.
    """

    name: str
    wire: Wire
    words: tuple[str, ...]
    quiet: dict[str, str]
    own: Callable[[Path], None]
    follows: bool = True

    @property
    def version(self) -> str:
        """As installed."""
        return AGENTS[self.name]


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a run of an agent left."""

    code: int
    out: str
    err: str


class Trap:
    """A proxy that notes every name it is asked for, and refuses; a context manager."""

    def __init__(self) -> None:
        self._upstream = Upstream(self._refuse)
        self.asked_for: list[str] = []
        self.url = f"http://127.0.0.1:{self._upstream.port}"

    def __enter__(self) -> Self:
        self._upstream.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._upstream.__exit__(*exc_info)

    def _refuse(self, seen: Seen) -> bytes:
        self.asked_for.append(seen.target)
        return answer(status="403 Forbidden")


class Desk:
    """Where an agent works: its home, the folder it is started in, its environment. Everything below `path` is the agent's."""

    def __init__(self, path: Path, agent: Agent, aileron_home: Path, trap: Trap) -> None:
        self.path = path
        self.agent = agent
        self.home = path / "home"
        self.folder = path / "work"
        self.home.mkdir()
        self.folder.mkdir()
        self.environment = {
            "AILERON_HOME": str(aileron_home),
            "HOME": str(self.home),
            "HTTPS_PROXY": trap.url,
            "LANG": "C.UTF-8",
            "NO_PROXY": "localhost,127.0.0.1",
            "PATH": f"{installed()}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "TERM": "dumb",
            **agent.quiet,
        }
        agent.own(self.home)

    def launch(self, *words: str, **environment: str) -> Ended:
        """`aileron launch AGENT -- …`, to its end."""
        return self._run(["aileron", "launch", self.agent.name, "--", *(words or self.agent.words)], environment)

    def start(self, *words: str, **environment: str) -> Ended:
        """The agent by itself, to its end."""
        return self._run([self.agent.name, *(words or self.agent.words)], environment)

    def aileron(self, *words: str) -> Ended:
        """Another command, as the person types it here."""
        return self._run(["aileron", *words], {})

    def _run(self, words: list[str], environment: dict[str, str]) -> Ended:
        """In a process group of its own, so that what an agent leaves behind goes with it."""
        everything = {**self.environment, **environment}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=everything,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                code = process.wait(_RUN_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read(), err.read())


@contextlib.contextmanager
def desk(agent: Agent, aileron_home: Path, trap: Trap) -> Iterator[Desk]:
    """A new one, in a short path below the user's cache: codex refuses a home in `/tmp`."""
    with tempfile.TemporaryDirectory(prefix=f"{agent.name}-") as path:
        yield Desk(Path(path), agent, aileron_home, trap)


def _nothing(_home: Path) -> None:
    """An agent that needs no file."""


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def _codex(home: Path) -> None:
    text = (
        f'model = "{_MODEL}"\n'
        "check_for_update_on_startup = false\n\n"
        "[features]\nplugins = false\n\n"
        "[analytics]\nenabled = false\n"
    )
    _write(home / ".codex" / "config.toml", text)


def _opencode(home: Path) -> None:
    provider = {"anthropic": {"models": {_MODEL: {}}}}
    own = {"model": f"anthropic/{_MODEL}", "provider": provider, "share": "disabled", "autoupdate": False}
    _write(home / ".config" / "opencode" / "opencode.json", own)


ALL: Final = {
    agent.name: agent
    for agent in (
        Agent(
            "claude",
            "messages",
            ("-p", _PROMPT, "--output-format", "stream-json", "--verbose"),
            {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
            _nothing,
        ),
        Agent("codex", "responses", ("exec", "--skip-git-repo-check", "--json", _PROMPT), {}, _codex),
        Agent(
            "opencode",
            "messages",
            ("run", "--format", "json", _PROMPT),
            {
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "npm_config_offline": "true",
            },
            _opencode,
        ),
        Agent(
            "goose",
            "chat",
            ("run", "-q", "--no-session", "--output-format", "stream-json", "-t", _PROMPT),
            {
                "GOOSE_DISABLE_KEYRING": "1",
                "GOOSE_MODEL": _MODEL,
                "GOOSE_PROVIDER": "openai",
                "GOOSE_TELEMETRY_OFF": "1",
            },
            _nothing,
            follows=False,
        ),
        Agent(
            "pi",
            "responses",
            ("-p", "--mode", "json", "--provider", "openai", "--model", "gpt-4.1", "--no-session", _PROMPT),
            {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
            _nothing,
        ),
    )
}
"""By name, in the order of the pages."""
