"""The values of a launch: the request to an agent's module, and its answer. No I/O.

An agent's module is a function from the server to be registered and the user's environment, arguments and files to arguments and
variables. The start of the agent (start.py) and the command that only shows what would be set use the same answer.

Rules
- Arguments hold no secret: every user of a machine can read every process's arguments, proc_pid_cmdline(5). The token is a
  variable.
- The user's settings stay: their arguments come last, an address or a server of theirs is left alone, and that is noted.
- No file of the user's is written. Some are read, to know the user's settings.

>>> AileronServer(("/usr/bin/aileron-mcp",), "/home/you/.aileron").environment("<session token>")
{'AILERON_HOME': '/home/you/.aileron', 'AILERON_SESSION_TOKEN': '<session token>'}

Source: docs/adr/0021-launching-agents.md. Not here: the options of each agent (its module), sessions (the daemon).
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
"""Name of our server in every agent: tools are `mcp__aileron__…`, `aileron__…` or `aileron_…`."""
CALL_S = 300
"""Seconds that an agent waits for one call. Our tools answer after 25 s at most, or wait up to a minute if requested; two agents
give up after 60 s by default."""
HOME_VARIABLE = "AILERON_HOME"
TOKEN_VARIABLE = "AILERON_SESSION_TOKEN"  # noqa: S105 - the name of a variable
_INJECT = "/inject/"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOT_THROUGH = "requests to that model do not go through Aileron's gateway"


class AileronServer(msgspec.Struct, frozen=True):
    """The program that an agent starts to get its actions (`command`, its first word absolute), and the home it is for."""

    command: tuple[str, ...]
    home: str

    def environment(self, token: str) -> dict[str, str]:
        """Return the variables that the program needs. A real token begins with `ail_`; a placeholder is only for display."""
        return {HOME_VARIABLE: self.home, TOKEN_VARIABLE: token}


class Gateway(msgspec.Struct, frozen=True):
    """The address by which models' APIs are reached: `url` without a path. `kept` are the providers whose key the vault has."""

    url: str
    kept: frozenset[str] = frozenset()

    def injecting(self, path: str) -> Gateway:
        """Return the gateway for a session with `path` in its addresses, which is a secret of that session."""
        return msgspec.structs.replace(self, url=self.url + path)

    def is_injected(self, address: str) -> bool:
        """Return whether an address is this gateway's with the path of some session in it."""
        return address.startswith(self.url.partition(_INJECT)[0] + _INJECT)


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """The request for one launch. `token` is the session's, or a placeholder to show; `files` are those of `Agent.reads` that
    exist.
    """

    server: AileronServer
    token: str = dataclasses.field(repr=False)
    gateway: Gateway | None
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    arguments: tuple[str, ...] = ()
    files: Mapping[Path, str] = dataclasses.field(default_factory=dict, repr=False)

    def has_kept_key(self, provider: str) -> bool:
        """Return whether the vault has the provider's key, so that the agent uses the session's token in its place."""
        return self.gateway is not None and provider in self.gateway.kept

    def says(self, variable: str) -> bool:
        """Return whether the user has set a variable to an address that is not the gateway's own (as in a launch in a launch)."""
        value = self.environment.get(variable, "")
        ours = () if self.gateway is None else (self.gateway.url, f"{self.gateway.url}/v1")
        is_ours = value.rstrip("/") in ours or (self.gateway is not None and self.gateway.is_injected(value))
        return bool(value) and not is_ours


@dataclasses.dataclass(frozen=True)
class Setup:
    """The setup that the agent is started with: arguments, and changes to the user's environment. `notes` are for the user.

    `from_vault` are the providers that it reaches with the vault's key: it needs no key of its own for them.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = dataclasses.field(repr=False)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    from_vault: frozenset[str] = frozenset()


class Snippet(msgspec.Struct, frozen=True):
    """A text that a user pastes to register the server permanently: into `path` (as a user would write it), in its format."""

    path: str
    text: str


class Executes(msgspec.Struct, frozen=True):
    """Files of an agent's settings that make it, or a shell, run code the next time, outside of a cell too.

    `pattern` is an absolute path with globs, where `**` stands for everything below a folder. `how` says what runs.
    """

    pattern: str
    how: str


class KeyFile(msgspec.Struct, frozen=True):
    """A file with credentials of several providers. `providers` returns their names from its text, or None if it cannot read it.

    Names that the gateway does not know are those of providers that only the file has a credential for. `Agent.reads` includes
    the file.
    """

    path: Path
    providers: Callable[[str], frozenset[str] | None]


class OwnQuestions(msgspec.Struct, frozen=True):
    """The questions that an agent itself asks before commands, in a cell too. With an option of `unasked` it cannot ask, and
    refuses commands.

    `note` tells the user so, unless an option of `settled` was given as well.
    """

    unasked: tuple[str, ...]
    settled: tuple[str, ...]
    note: str


class CellNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's needs of the person's home and environment in a cell, where nothing else of them exists.

    `directories` and `files` are its settings and state, writable, and made if they are missing. A single file cannot be
    replaced by a rename in a cell (EBUSY), so a file is named only if the agent is known to write it in place then. `fixed` stays
    read-only inside of them; `readable` is read-only and may be missing. `keys` are, by provider, its variables and files with a
    credential, which are not shown if the gateway has the key; `key_files` are shown only if they hold another key. `names` are
    whole names of its variables, and `prefixes` are those of further ones, which are passed if they hold no credential
    (cell_environment.py). `arguments` and `variables` turn off features that cannot work in a cell, above all a sandbox of its
    own, and `notes` say so. `hosts` are those it contacts without the gateway, to be named in messages.
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
    """An agent that can be launched. `program` is looked for in PATH; `install` is the command that installs it."""

    name: str
    title: str
    program: str
    install: str
    reads: Callable[[Mapping[str, str]], tuple[Path, ...]]
    setup: Callable[[LaunchRequest], Setup]
    snippet: Callable[[AileronServer], Snippet]
    cell: Callable[[Mapping[str, str]], CellNeeds]


def base_url_of(asked: LaunchRequest, variable: str, path: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    """Return `variable` set to the gateway's address and `path`, and notes. If the user set the variable, return only a note; if
    there is no gateway, neither.
    """
    if asked.gateway is None:
        return {}, ()
    if asked.says(variable):
        return {}, (not_through(f"{variable} is set"),)
    return {variable: asked.gateway.url + path}, ()


def not_through(why: str) -> str:
    """Return the note about a model that is reached by the user's own settings, not through the gateway."""
    return f"{why}: {_NOT_THROUGH}"


def is_not_through(note: str) -> bool:
    """Return whether a note comes from `not_through`."""
    return note.endswith(_NOT_THROUGH)


def providers_of_json(text: str) -> frozenset[str] | None:
    """Return the keys of a JSON object, which are providers' names; None if it is not one. Used as `KeyFile.providers`."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return frozenset(found) if isinstance(found, dict) else None


def home_of(environment: Mapping[str, str]) -> Path:
    """Return the user's home directory as agents see it."""
    return Path(environment.get("HOME") or Path.home())


def xdg_directory(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the directory that a variable of the XDG base directories names, or `default` below the home."""
    said = environment.get(variable, "")
    return Path(said) if said.startswith("/") else home_of(environment) / default


def without_proxy(asked: LaunchRequest) -> dict[str, str]:
    """Return variables that exempt loopback from a proxy for plain HTTP, if one is set: the gateway is on this machine."""
    if asked.gateway is None or not any(asked.environment.get(name) for name in _PROXIES):
        return {}
    said = next((value for name in _NO_PROXY if (value := asked.environment.get(name, ""))), "")
    if said.strip() == "*":
        return {}
    hosts = [host.strip() for host in said.split(",") if host.strip()]
    all_of_them = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    return dict.fromkeys(_NO_PROXY, all_of_them)
