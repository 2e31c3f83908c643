"""The five agents as programs: how each runs without a person, is kept from calling home, and gets a model by hand.

Each runs with a home of its own and sees nothing of the tests' environment. `HTTPS_PROXY` leads into a trap that notes every
request to leave the machine, and refuses it. This module writes what a person would have configured before Aileron (a model's
name, and that this machine is offline); Aileron adds its own part, by `aileron launch` or by what `aileron mcp config` prints.

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
from typing import Any, Final

from tests.agents.install import AGENTS, installed
from tests.agents.llm.wires import Wire
from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["ALL", "Agent", "By", "Desk", "Ended", "Trap", "desk"]

_PROMPT: Final = "Do what has to be done."
_RUN_S: Final = 240.0
"""Seconds for one conversation. It takes 3 to 15 s on a quiet machine, 50 where three others want each processor."""
_MODEL: Final = "scripted"
_KEY: Final = "sk-nothing"


@dataclasses.dataclass(frozen=True)
class By:
    """Variables and arguments that tell an agent where its model is; the arguments go around the agent's own."""

    variables: dict[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Agent:
    """An agent as a program. `words` run it once and print; `wire` is the API that it then speaks to a model.

    `quiet` are variables that keep it from calling home. `own` writes what a person had configured. `follows` is True
    if it lists the tools again when they change. `paste` puts what `aileron mcp config` prints where it belongs; `at`
    leads the agent to a model on a port of this machine without Aileron, by variables and by words before or after
    `words`.
    """

    name: str
    wire: Wire
    words: tuple[str, ...]
    quiet: dict[str, str]
    own: Callable[[Path], None]
    paste: Callable[[Path, str], None]
    at: Callable[[Path, int], By]
    follows: bool = True

    @property
    def version(self) -> str:
        """The agent's installed version."""
        return AGENTS[self.name]


@dataclasses.dataclass(frozen=True)
class Ended:
    """The exit code and the output of an agent's run."""

    code: int
    out: str
    err: str


class Trap(Service):
    """A proxy that notes every name it is asked for, and refuses."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked_for: list[str] = []
        self.url = f"http://127.0.0.1:{self.port}"

    def _answer(self, seen: Seen) -> bytes:
        self.asked_for.append(seen.target)
        return answer(status="403 Forbidden")


class Desk:
    """An agent's workplace: its home, its working folder, its environment. Everything below `path` is the agent's."""

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

    def launch(self, *options: str) -> Ended:
        """Run `aileron launch AGENT … -- …` to its end."""
        return self._run(["aileron", "launch", self.agent.name, *options, "--", *self.agent.words], {})

    def start(self, port: int) -> Ended:
        """Run the agent by itself to its end, with a model on a port of this machine."""
        by = self.agent.at(self.home, port)
        return self._run([self.agent.name, *by.before, *self.agent.words, *by.after], by.variables)

    def doctor(self) -> Ended:
        """Run `aileron doctor AGENT` to its end."""
        return self._run(["aileron", "doctor", self.agent.name], {})

    def files(self) -> dict[str, bytes]:
        """Return every file in the agent's home, by its path there."""
        paths = [path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink()]
        return {str(path.relative_to(self.home)): path.read_bytes() for path in paths}

    def replace(self, file: str, text: str, by: str) -> None:
        """Change what the person had configured."""
        path = self.home / file
        found = path.read_text(encoding="utf-8")
        assert text in found
        path.write_text(found.replace(text, by), encoding="utf-8")

    def paste_configuration(self) -> None:
        """Put what `aileron mcp config AGENT` prints into the agent's own file."""
        said = self._run(["aileron", "mcp", "config", self.agent.name], {})
        assert said.code == 0, said.err
        self.agent.paste(self.home, said.out)

    def _run(self, words: list[str], environment: dict[str, str]) -> Ended:
        """Run a command in a process group of its own, so that everything an agent leaves behind is killed with it."""
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
    """Create an agent's workplace, removed at the end."""
    with tempfile.TemporaryDirectory(prefix=f"{agent.name}-") as path:
        yield Desk(Path(path), agent, aileron_home, trap)


def _nothing(_home: Path) -> None:
    """Write nothing: the agent needs no file."""


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def _add_json(path: Path, text: str) -> None:
    """Add an object to the JSON file, as a person would who was given it; what is in the file stays."""
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    _write(path, {**there, **json.loads(text)})


def _add_lines(path: Path, text: str) -> None:
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    _write(path, f"{there}\n{text}\n")


def _claude_at(_home: Path, port: int) -> By:
    variables = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": _KEY}
    return By(variables, after=("--allowedTools", "mcp__aileron"))


def _codex(home: Path) -> None:
    text = (
        f'model = "{_MODEL}"\n'
        "check_for_update_on_startup = false\n\n"
        "[features]\nplugins = false\n\n"
        "[analytics]\nenabled = false\n"
    )
    _write(home / ".codex" / "config.toml", text)


def _codex_at(_home: Path, port: int) -> By:
    provider = f'{{name = "here", base_url = "http://127.0.0.1:{port}/v1", env_key = "KEY", wire_api = "responses"}}'
    return By({"KEY": _KEY}, before=("-c", f"model_providers.here={provider}", "-c", 'model_provider="here"'))


def _opencode(home: Path) -> None:
    provider: dict[str, Any] = {"anthropic": {"models": {_MODEL: {}}}}
    own = {"model": f"anthropic/{_MODEL}", "provider": provider, "share": "disabled", "autoupdate": False}
    own["$schema"] = "https://opencode.ai/config.json"  # which it would else add to the file itself
    _write(home / ".config" / "opencode" / "opencode.json", own)


def _opencode_at(_home: Path, port: int) -> By:
    return By({"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}/v1", "ANTHROPIC_API_KEY": _KEY})


def _goose_at(_home: Path, port: int) -> By:
    """Return the way to the model by Messages; `aileron launch` uses Chat Completions."""
    return By(
        {"ANTHROPIC_HOST": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": _KEY, "GOOSE_PROVIDER": "anthropic"},
    )


def _pi_at(home: Path, port: int) -> By:
    """Return the way to the model by Chat Completions; `aileron launch` uses Responses."""
    model = {"baseUrl": f"http://127.0.0.1:{port}/v1", "apiKey": _KEY, "api": "openai-completions"}
    _write(home / ".pi/agent/models.json", {"providers": {"here": {**model, "models": [{"id": _MODEL}]}}})
    return By({}, after=("--provider", "here", "--model", _MODEL))


ALL: Final = {
    agent.name: agent
    for agent in (
        Agent(
            "claude",
            "messages",
            ("-p", _PROMPT, "--output-format", "stream-json", "--verbose"),
            {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
            _nothing,
            lambda home, text: _add_json(home / ".claude.json", text),
            _claude_at,
        ),
        Agent(
            "codex",
            "responses",
            ("exec", "--skip-git-repo-check", "--json", _PROMPT),
            {},
            _codex,
            lambda home, text: _add_lines(home / ".codex/config.toml", text),
            _codex_at,
        ),
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
            lambda home, text: _add_json(home / ".config/opencode/opencode.json", text),
            _opencode_at,
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
            lambda home, text: _add_lines(home / ".config/goose/config.yaml", text),
            _goose_at,
            follows=False,
        ),
        Agent(
            "pi",
            "responses",
            ("-p", "--mode", "json", "--provider", "openai", "--model", "gpt-4.1", "--no-session", _PROMPT),
            {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
            _nothing,
            lambda home, text: _add_json(home / ".pi/agent/mcp.json", text),
            _pi_at,
        ),
    )
}
"""The agents by name, in the order of the pages."""
