"""What a launch of an agent is: what its module is asked, and what it answers. Values, no I/O.

An agent's module is one function from what is to be registered, the user's environment, arguments and files to arguments and
variables; whoever starts the agent (start.py) and whoever only shows what would be set print or use the same answer.

Rules
- Arguments hold no secret: every user of a machine reads every process's arguments, proc_pid_cmdline(5). The token is a variable.
- What the user said stays: their arguments come last, an address or a server of theirs is left alone, and that is noted.
- No file of the user's is written. Some are read, to know what the user said there.

>>> AileronServer(("/usr/bin/aileron-mcp",), "/home/you/.aileron").environment("<session token>")
{'AILERON_HOME': '/home/you/.aileron', 'AILERON_SESSION_TOKEN': '<session token>'}

Source: docs/adr/0021-launching-agents.md. Not here: what each agent understands (its module), sessions (the daemon).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

__all__ = [
    "CALL_S",
    "HOME_VARIABLE",
    "NAME",
    "TOKEN_VARIABLE",
    "Agent",
    "AileronServer",
    "CellNeeds",
    "Executes",
    "Gateway",
    "KeyFile",
    "LaunchRequest",
    "OwnQuestions",
    "Setup",
    "Snippet",
    "base_url_of",
    "home_of",
    "is_not_through",
    "not_through",
    "providers_of_json",
    "without_proxy",
    "xdg_directory",
]

NAME = "aileron"
"""What the server is called in every agent: tools are `mcp__aileron__…`, `aileron__…` or `aileron_…`."""
CALL_S = 300
"""Seconds an agent waits for one call. Ours answer after 25 at most, or wait up to a minute where that is asked for; two agents
give up after 60 unless told."""
HOME_VARIABLE = "AILERON_HOME"
TOKEN_VARIABLE = "AILERON_SESSION_TOKEN"  # noqa: S105 - the name of a variable
_INJECT = "/inject/"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOT_THROUGH = "requests to that model do not go through Aileron's gateway"


class AileronServer(msgspec.Struct, frozen=True):
    """The program an agent starts to see actions (`command`, its first word absolute), and the home it is for."""

    command: tuple[str, ...]
    home: str

    def environment(self, token: str) -> dict[str, str]:
        """What the program needs; a token begins with `ail_`, or is a placeholder that is shown."""
        return {HOME_VARIABLE: self.home, TOKEN_VARIABLE: token}


class Gateway(msgspec.Struct, frozen=True):
    """Where models' APIs are reached: `url` without a path. `kept` are the providers whose key the vault has."""

    url: str
    kept: frozenset[str] = frozenset()

    def injecting(self, path: str) -> Gateway:
        """The same for a session with `path` in its addresses, which is a secret of that session's."""
        return msgspec.structs.replace(self, url=self.url + path)

    def is_injected(self, address: str) -> bool:
        """Whether an address is this gateway's, of some session with a name in its addresses."""
        return address.startswith(self.url.partition(_INJECT)[0] + _INJECT)


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """One launch. `token` is the session's, or what is shown in its place; `files` are those of `Agent.reads` that are there."""

    server: AileronServer
    token: str = dataclasses.field(repr=False)
    gateway: Gateway | None
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    arguments: tuple[str, ...] = ()
    files: Mapping[Path, str] = dataclasses.field(default_factory=dict, repr=False)

    def has_kept_key(self, provider: str) -> bool:
        """Whether the provider's key is in the vault, and the session's token is shown in its place."""
        return self.gateway is not None and provider in self.gateway.kept

    def says(self, variable: str) -> bool:
        """Whether the user has set a variable, to an address that is not the gateway's own (a launch inside a launch)."""
        value = self.environment.get(variable, "")
        ours = () if self.gateway is None else (self.gateway.url, f"{self.gateway.url}/v1")
        is_ours = value.rstrip("/") in ours or (self.gateway is not None and self.gateway.is_injected(value))
        return bool(value) and not is_ours


@dataclasses.dataclass(frozen=True)
class Setup:
    """What the agent is started with: arguments, and how its environment differs from the user's. `notes` are for the user.

    `from_vault` are the providers to which it gets with the vault's key: a key of its own is of no use for them.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = dataclasses.field(repr=False)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    from_vault: frozenset[str] = frozenset()


class Snippet(msgspec.Struct, frozen=True):
    """What a user pastes to have the server registered always: into `path` (as a user would write it), in the file's format."""

    path: str
    text: str


class Executes(msgspec.Struct, frozen=True):
    """Files of an agent's settings that make it, or a shell, run something the next time, outside of a cell too.

    `pattern` is an absolute path with globs in it, where `**` stands for everything below a folder. `how` says what runs.
    """

    pattern: str
    how: str


class KeyFile(msgspec.Struct, frozen=True):
    """A file with credentials of several providers. `providers` reads from its text whose: None where it is not understood.

    A name that is none of the gateway's is one that only the file has a credential for. `Agent.reads` names the file too.
    """

    path: Path
    providers: Callable[[str], frozenset[str] | None]


class OwnQuestions(msgspec.Struct, frozen=True):
    """An agent asks before each command, in a cell too, and refuses it where it cannot ask: with one of the options `unasked`.

    `note` says so, unless one of `settled` was given as well.
    """

    unasked: tuple[str, ...]
    settled: tuple[str, ...]
    note: str


class CellNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs of the person's home and environment in a cell. What is not named here is not there.

    `directories` and `files` are its settings and state, writable, and made if they are missing. A file on its own cannot be
    replaced by a rename in a cell (EBUSY), so one is named only where the agent was seen to write it in place then. `fixed` stays
    read-only inside of them; `readable` is read-only and may be missing. `keys` are, by provider, its variables and files with a
    credential that are not shown where the gateway has the key; `key_files` are shown only where they hold another. `names`
    are variables that are its own, `prefixes` those of others, which are passed as far as they hold no credential
    (cell_environment.py). `arguments` and `variables` turn off what cannot work in a cell, a sandbox inside of it
    above all, and `notes` say so. `hosts` are where it goes without the gateway, to be named in messages.
    """

    directories: tuple[Path, ...]
    files: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    keys: Mapping[str, tuple[tuple[str, ...], tuple[Path, ...]]] = msgspec.field(default_factory=dict)
    key_files: tuple[KeyFile, ...] = ()
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    executes: tuple[Executes, ...] = ()
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    own_questions: OwnQuestions | None = None


class Agent(msgspec.Struct, frozen=True):
    """One agent. `program` is looked for in PATH; `install` is the command that brings it."""

    name: str
    title: str
    program: str
    install: str
    reads: Callable[[Mapping[str, str]], tuple[Path, ...]]
    setup: Callable[[LaunchRequest], Setup]
    snippet: Callable[[AileronServer], Snippet]
    cell: Callable[[Mapping[str, str]], CellNeeds]


def base_url_of(asked: LaunchRequest, variable: str, path: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    """`variable` set to the gateway, `path` behind it; nothing and a note where the user set it; nothing without a gateway."""
    if asked.gateway is None:
        return {}, ()
    if asked.says(variable):
        return {}, (not_through(f"{variable} is set"),)
    return {variable: asked.gateway.url + path}, ()


def not_through(why: str) -> str:
    """The note about a model that is reached as the user said, and not through the gateway."""
    return f"{why}: {_NOT_THROUGH}"


def is_not_through(note: str) -> bool:
    """Whether a note is one of these."""
    return note.endswith(_NOT_THROUGH)


def providers_of_json(text: str) -> frozenset[str] | None:
    """For `KeyFile.providers`, of an object with the providers' names for its keys."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return frozenset(found) if isinstance(found, dict) else None


def home_of(environment: Mapping[str, str]) -> Path:
    """The user's home directory as agents see it."""
    return Path(environment.get("HOME") or Path.home())


def xdg_directory(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """What a variable of the XDG base directories says, or `default` below the home."""
    said = environment.get(variable, "")
    return Path(said) if said.startswith("/") else home_of(environment) / default


def without_proxy(asked: LaunchRequest) -> dict[str, str]:
    """The gateway is on this machine: where a proxy is set for plain HTTP, it is not asked for it."""
    if asked.gateway is None or not any(asked.environment.get(name) for name in _PROXIES):
        return {}
    said = next((value for name in _NO_PROXY if (value := asked.environment.get(name, ""))), "")
    if said.strip() == "*":
        return {}
    hosts = [host.strip() for host in said.split(",") if host.strip()]
    all_of_them = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    return dict.fromkeys(_NO_PROXY, all_of_them)
