"""The values of a launch: the request to an agent's module, and the setup that it returns. No I/O.

An agent's module is a function. It takes the server to be registered and the user's environment, arguments and files,
and returns the agent's arguments and variables. The start of the agent (start.py) and the command that only shows the
setup use the same result.

Rules
- Arguments hold no secret: every user of a machine can read every process's arguments, proc_pid_cmdline(5). The token is in a
  variable.
- The user's settings stay: the user's arguments come last. An address or a server that the user has set is left alone, and a
  note says so.
- No file of the user is written. Some are read, to know the user's settings.

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
"""Name of Aileron's server in every agent: its tools are `mcp__aileron__…`, `aileron__…` or `aileron_…`."""
CALL_S = 300
"""Seconds that an agent waits for one call. Aileron's tools respond after 25 s at most, or wait up to a minute if
requested; two agents abandon a call after 60 s by default.
"""
HOME_VARIABLE = "AILERON_HOME"
TOKEN_VARIABLE = "AILERON_SESSION_TOKEN"  # noqa: S105 - the name of a variable
_INJECT = "/inject/"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOT_THROUGH = "requests to that model do not go through Aileron's gateway"


class AileronServer(msgspec.Struct, frozen=True):
    """The command by which an agent starts Aileron's MCP server. Its first word is an absolute path. `home` is the
    Aileron home that the server is for.
    """

    command: tuple[str, ...]
    home: str

    def environment(self, token: str) -> dict[str, str]:
        """Return the environment variables that the MCP server needs: the home, and the session's `token`. A real token
        begins with `ail_`; a placeholder is only for display.
        """
        return {HOME_VARIABLE: self.home, TOKEN_VARIABLE: token}


class Gateway(msgspec.Struct, frozen=True):
    """The gateway's address, by which an agent reaches models' APIs. `url` has no path. `kept` are the providers whose
    key is in the vault.
    """

    url: str
    kept: frozenset[str] = frozenset()

    def injecting(self, path: str) -> Gateway:
        """Return this gateway with a session's `path` in its address, at which requests get Aileron's tools. The path
        is a secret of that session.
        """
        return msgspec.structs.replace(self, url=self.url + path)

    def is_injected(self, address: str) -> bool:
        """Return whether an address is this gateway's address with the path of any session."""
        return address.startswith(self.url.partition(_INJECT)[0] + _INJECT)


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """The request to launch one agent, from which the agent's module makes the setup. `token` is the session's, or a
    placeholder for display. `files` are those files of `Agent.reads` that exist, with their texts.
    """

    server: AileronServer
    token: str = dataclasses.field(repr=False)
    gateway: Gateway | None
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    arguments: tuple[str, ...] = ()
    files: Mapping[Path, str] = dataclasses.field(default_factory=dict, repr=False)

    def has_kept_key(self, provider: str) -> bool:
        """Return whether the vault has the provider's key; if so, the agent uses the session's token instead."""
        return self.gateway is not None and provider in self.gateway.kept

    def says(self, variable: str) -> bool:
        """Return whether the user has set an environment variable to an address of their own. The gateway's address
        does not count: the variable has it if an agent launches another agent.
        """
        value = self.environment.get(variable, "")
        ours = () if self.gateway is None else (self.gateway.url, f"{self.gateway.url}/v1")
        is_ours = value.rstrip("/") in ours or (self.gateway is not None and self.gateway.is_injected(value))
        return bool(value) and not is_ours


@dataclasses.dataclass(frozen=True)
class Setup:
    """The setup with which the agent is started: arguments, and changes to the user's environment. `notes` are for the user.

    `from_vault` are the providers that the agent reaches with the vault's key. It needs no key of its own for them.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = dataclasses.field(repr=False)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    from_vault: frozenset[str] = frozenset()


class Snippet(msgspec.Struct, frozen=True):
    """A text that a user pastes into the file `path` to register the server permanently. `path` is written as a user
    would type it.
    """

    path: str
    text: str


class Executes(msgspec.Struct, frozen=True):
    """Settings files that can make the agent, or a shell, execute code at its next start, even outside a cell.

    `pattern` is an absolute path with globs, where `**` stands for all paths below a folder. `how` says which code is executed.
    """

    pattern: str
    how: str


class KeyFile(msgspec.Struct, frozen=True):
    """A file with credentials of several providers. `providers` returns the providers' names from the file's text, or
    None if it cannot read the text.

    Names that the gateway does not know are providers for which only the file has a credential. `Agent.reads`
    includes the file.
    """

    path: Path
    providers: Callable[[str], frozenset[str] | None]


class OwnQuestions(msgspec.Struct, frozen=True):
    """The questions that an agent itself asks before it runs commands, even in a cell. With an option in `unasked` the
    agent cannot ask, and refuses commands.

    `note` tells the user that the agent cannot ask, unless an option in `settled` was given, too.
    """

    unasked: tuple[str, ...]
    settled: tuple[str, ...]
    note: str


class CellNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the person's home and environment that an agent needs in a cell. A cell contains no other part of
    them.

    `directories` and `files` are the agent's settings and state. They are writable, and are made if they are missing. A
    single file cannot be replaced by a rename in a cell (EBUSY), so a file is listed only if the agent is known to write it
    in place then. `fixed` are paths inside these that stay read-only; `readable` are read-only paths that may be missing.
    `keys` are, by provider, the agent's variables and files with a credential, which are not shown if the gateway has the
    key. `key_files` are shown only if they contain another key. `names` are complete names of the agent's variables, and
    `prefixes` those of further variables, which are passed if they contain no credential (cell_environment.py). `arguments`
    and `variables` turn off features that cannot work in a cell, above all the agent's own sandbox, and `notes` say so.
    `hosts` are the hosts that the agent contacts without the gateway, for use in messages.
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
    """An agent that can be launched. `program` is searched in PATH; `install` is the command that installs the agent."""

    name: str
    title: str
    program: str
    install: str
    reads: Callable[[Mapping[str, str]], tuple[Path, ...]]
    setup: Callable[[LaunchRequest], Setup]
    snippet: Callable[[AileronServer], Snippet]
    cell: Callable[[Mapping[str, str]], CellNeeds]


def base_url_of(asked: LaunchRequest, variable: str, path: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a dict that sets `variable` to the gateway's address plus `path`, and notes for the user. If the user set
    the variable, return an empty dict and a note. If there is no gateway, both are empty.
    """
    if asked.gateway is None:
        return {}, ()
    if asked.says(variable):
        return {}, (not_through(f"{variable} is set"),)
    return {variable: asked.gateway.url + path}, ()


def not_through(why: str) -> str:
    """Return the note about a model that is reached through the user's own settings, not through the gateway."""
    return f"{why}: {_NOT_THROUGH}"


def is_not_through(note: str) -> bool:
    """Return whether a note was made by `not_through`."""
    return note.endswith(_NOT_THROUGH)


def providers_of_json(text: str) -> frozenset[str] | None:
    """Return the keys of a JSON object, which are providers' names; None if the text is no JSON object. Used as
    `KeyFile.providers`.
    """
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return frozenset(found) if isinstance(found, dict) else None


def home_of(environment: Mapping[str, str]) -> Path:
    """Return the user's home directory as agents determine it."""
    return Path(environment.get("HOME") or Path.home())


def xdg_directory(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the directory that an XDG base directory variable contains, or `default` below the home."""
    said = environment.get(variable, "")
    return Path(said) if said.startswith("/") else home_of(environment) / default


def without_proxy(asked: LaunchRequest) -> dict[str, str]:
    """Return variables that exempt loopback from a proxy for plain HTTP, if one is set, because the gateway is on
    this machine.
    """
    if asked.gateway is None or not any(asked.environment.get(name) for name in _PROXIES):
        return {}
    said = next((value for name in _NO_PROXY if (value := asked.environment.get(name, ""))), "")
    if said.strip() == "*":
        return {}
    hosts = [host.strip() for host in said.split(",") if host.strip()]
    all_of_them = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    return dict.fromkeys(_NO_PROXY, all_of_them)
