"""`aileron launch`: starts an agent with its own session, and with everything it needs to reach the actions.

In order: find the agent, ask the daemon about the gateway, open the vault if the gateway needs it, open the session, run the
agent, and end the session with the agent's exit code. The session is bound to this process: if it is killed, the daemon ends the
session.

Standard output belongs to the agent; notes go to standard error before it starts.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

from aileron.api.daemon import Status
from aileron.api.sessions import NewSession, OpenSession
from aileron.cli import cell_ahead, output
from aileron.cli.commands.cell_options import (
    AllowEnv,
    AllowHost,
    AllowRead,
    AllowWrite,
    CellWishes,
    Explain,
    Jail,
    OverlayProject,
    PublishPort,
    ReadOnly,
)
from aileron.cli.commands.options import AsJson, Inject, Only, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import FAILED, Problem, local_work, parsed
from aileron.cli.prompts import can_ask, passphrase_from
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from aileron.launch.agent import Agent, Gateway, LaunchRequest, Setup

__all__ = [
    "LOCKED",
    "agent_names",
    "agent_of",
    "asked_of",
    "folder",
    "gateway_of",
    "is_vault_locked",
    "is_vault_needed",
    "launch",
    "program_of",
    "selectors",
]

LOCKED = "the vault is locked: the gateway refuses model requests until you unlock it"
_SHOWN_PATH = "/inject/<name of the session>"
_SHOWN_TOKEN = "<session token>"  # noqa: S105 - a placeholder


def agent_names(incomplete: str) -> list[str]:
    """Return the names of the supported agents, for completion."""
    from aileron.launch.agents import AGENTS

    return [name for name in AGENTS if name.startswith(incomplete)]


def agent_of(name: str) -> Agent:
    """Return the agent with that name. Raises Problem, which lists the supported names, if there is none."""
    from aileron.launch.agents import AGENTS

    if name not in AGENTS:
        raise Problem.usage(f"unknown agent {name!r}; supported: {', '.join(AGENTS)}", fix="aileron launch --help")
    return AGENTS[name]


def launch(
    agent: Annotated[
        str,
        Argument(
            metavar="AGENT", help="Agent to start: claude, codex, opencode, goose or pi.", autocompletion=agent_names
        ),
    ],
    arguments: Annotated[
        list[str] | None, Argument(metavar="-- ARGS", help="Arguments for the agent, after `--`.")
    ] = None,
    program: Annotated[
        str | None, Option("--program", metavar="PATH", help="Path of the agent's program, if it is not in PATH.")
    ] = None,
    no_gateway: Annotated[
        bool, Option("--no-gateway", help="Do not route the model's API through the gateway.")
    ] = False,
    only: Only = None,
    inject: Inject = False,
    jail: Jail = None,
    read_only: ReadOnly = False,
    allow_read: AllowRead = None,
    allow_write: AllowWrite = None,
    allow_host: AllowHost = None,
    allow_env: AllowEnv = None,
    publish: PublishPort = None,
    overlay: OverlayProject = False,
    explain: Explain = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be set, and start nothing.")] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Start a coding agent that has your actions as its tools.

    It runs in its own session. Its files are not changed. The exit code is the agent's. In a cell (--jail), it sees its project
    and what it needs to run, and reaches only the hosts that you allow.
    """
    found = agent_of(agent)
    selected = selectors(only, help_of="launch")
    if as_json and not (dry_run or explain):
        raise Problem.usage(
            "--json requires --dry-run or --explain: otherwise the output is the agent's", fix="aileron launch --help"
        )
    if inject and no_gateway:
        raise Problem.usage("--inject and --no-gateway cannot be used together", fix="aileron launch --help")
    wishes = CellWishes(
        read_only=read_only,
        allow_read=tuple(allow_read or ()),
        allow_write=tuple(allow_write or ()),
        allow_host=tuple(allow_host or ()),
        allow_env=tuple(allow_env or ()),
        publish=tuple(publish or ()),
        overlay=overlay,
    )
    if explain and (dry_run or jail is False):
        raise Problem.usage("--explain is about a cell: leave out --dry-run and --no-jail", fix="aileron launch --help")
    if dry_run and jail:
        raise Problem.usage("--dry-run shows a start without a cell", fix="use --explain instead of --dry-run")
    wishes.check(is_in_cell=bool(jail) or explain or (jail is None and not dry_run))
    path = program_of(found, program)
    words = tuple(arguments or ())
    passphrase = passphrase_from(passphrase_file)
    supervisor = Supervisor(passphrase=passphrase)
    if explain or dry_run:
        seen = supervisor.maybe_fetch(Status, "/v1/status")
        gateway = None if no_gateway or seen is None else gateway_of(seen)
    if explain:
        from aileron.cli.commands import launch_cell

        start = launch_cell.CellStart(
            agent=found, program=path, words=words, folder=folder(), gateway=gateway, running=seen, wishes=wishes
        )
        launch_cell.explain(supervisor, start, as_json=as_json)
        return
    if dry_run:
        gateway = gateway.injecting(_SHOWN_PATH) if gateway is not None and inject else gateway
        _show(path, asked_of(supervisor, found, gateway, words, _SHOWN_TOKEN), found, seen is None, as_json)
        return
    running = supervisor.fetch(Status, "GET", "/v1/status")
    gateway = None if no_gateway else gateway_of(running)
    is_needed = gateway is not None and is_vault_needed(supervisor, gateway)
    _open_vault(supervisor, running, is_given=passphrase() is not None, is_needed=is_needed)
    _forget_passphrase()
    if _is_in_cell(supervisor, running, jail, wishes):
        from aileron.cli.commands import launch_cell

        start = launch_cell.CellStart(
            agent=found,
            program=path,
            words=words,
            folder=folder(),
            gateway=gateway,
            running=running,
            wishes=wishes,
            inject=inject,
        )
        raise Exit(launch_cell.in_cell(supervisor, start, selected))
    cell_ahead.end()
    raise Exit(_in_session(supervisor, found, path, gateway, words, selected, inject=inject))


def _is_in_cell(supervisor: Supervisor, running: Status, jail: bool | None, wishes: CellWishes) -> bool:
    """Return whether the agent starts in a cell: as the option `jail` says, or else as the setting or the person says.

    Raises Problem if options about cells are given, but the agent does not start in a cell.
    """
    if jail is None:
        from aileron.cli.cells import ask_about_cells
        from aileron.cli.commands.launch_cell import are_cells_possible

        jail = ask_about_cells(supervisor.home / "config.toml", running, is_possible=are_cells_possible)
    wishes.check(is_in_cell=bool(jail))
    return bool(jail)


def program_of(agent: Agent, given: str | None) -> str:
    """Return the path of the agent's program, either `given` or the one in PATH.

    Raises Problem, with the command that installs the program, if there is none.
    """
    from aileron.launch import programs
    from aileron.model.failure import AileronError

    try:
        return programs.program_of(agent, given, os.environ)
    except AileronError as missing:
        fix = agent.install if given is None else f"aileron launch {agent.name}"
        raise Problem.missing(str(missing), fix=fix) from None


def gateway_of(running: Status) -> Gateway:
    """Return the gateway to the models' APIs, with the providers whose key is in the vault, from the daemon's status."""
    from aileron.launch.agent import Gateway

    return Gateway(running.web, frozenset(name for name, upstream in running.gateway.items() if upstream.has_key))


def selectors(given: list[str] | None, *, help_of: str) -> list[str]:
    """Return the selectors of `--only`, each once. Raises Problem for an invalid selector."""
    from aileron.model.selecting import parse_selectors

    return [*map(str, parsed("--only:", parse_selectors, given, fix=f"aileron {help_of} --help"))] if given else []


def _open_vault(supervisor: Supervisor, running: Status, *, is_given: bool, is_needed: bool) -> None:
    """Unlock the vault if the passphrase was given, or if the gateway needs it and a person can be asked."""
    if not is_vault_locked(running):
        return
    if is_given or (is_needed and can_ask()):
        supervisor.open_vault()
    elif is_needed:
        output.note(f"{LOCKED}\n  fix: aileron vault unlock")


def is_vault_locked(running: Status) -> bool:
    """Return whether the daemon's status reports a locked vault."""
    return running.vault.exists and running.vault.locked


def is_vault_needed(supervisor: Supervisor, gateway: Gateway) -> bool:
    """Return whether the gateway refuses requests to the model while the vault exists and is locked."""
    return bool(gateway.kept) or _is_vault_required(supervisor.home)


def _is_vault_required(home: Path) -> bool:
    """Return whether the gateway needs the vault even if the vault contains no key for it.

    With invalid settings, the default applies here; the daemon reports the errors.
    """
    from aileron.config import Settings, load_settings
    from aileron.model.failure import AileronError

    try:
        return load_settings(home / "config.toml").gateway.require_vault
    except AileronError:
        return Settings().gateway.require_vault


def _forget_passphrase() -> None:
    """Execute this command again without the vault's passphrase in its environment, if the passphrase was an environment
    variable of this process.

    Removing it from the environment does not remove it from /proc/PID/environ. Every process of the user can read that, the
    agent above all, and this process lives as long as the agent. The vault is open at this point, or not needed.
    """
    if passphrase_from(None)() is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very command


def asked_of(
    supervisor: Supervisor, agent: Agent, gateway: Gateway | None, words: tuple[str, ...], token: str
) -> LaunchRequest:
    """Return the request for a launch, which the agent's module uses: this process's environment, the agent's files,
    and this installation of Aileron.
    """
    from aileron.launch.agent import LaunchRequest
    from aileron.launch.programs import read_files, server_of

    files = read_files(agent, os.environ)
    return LaunchRequest(server_of(supervisor.home), token, gateway, os.environ, words, files)


def folder() -> str:
    """Return the path of the folder in which the agent works. Raises Problem if the folder no longer exists."""
    try:
        return os.fsencode(os.getcwd()).decode("utf-8", "replace")
    except FileNotFoundError:
        raise Problem.usage("the current directory no longer exists", fix="cd") from None


def _in_session(
    supervisor: Supervisor,
    agent: Agent,
    path: str,
    gateway: Gateway | None,
    words: tuple[str, ...],
    only: list[str],
    *,
    inject: bool,
) -> int:
    """Open a session, run the agent in it, and end the session. Return the agent's exit code."""
    body = OpenSession(agent=agent.name, folder=folder(), pid=os.getpid(), only=only, inject=inject)
    session = supervisor.fetch(NewSession, "POST", "/v1/sessions", body)
    code: int | None = None
    try:
        if gateway is not None and session.inject_path is not None:
            gateway = gateway.injecting(session.inject_path)
        asked = asked_of(supervisor, agent, gateway, words, session.token)
        with local_work():
            setup = agent.setup(asked)
        if session.inject_path is not None:
            _check_injected(agent, session.inject_path, setup)
        for note in setup.notes:
            output.note(visible(note))
        code = _run(path, asked, setup)
        return code
    finally:
        supervisor.end_session(session.id, code)


def _check_injected(agent: Agent, path: str, setup: Setup) -> None:
    """Check that the agent's requests will go to the gateway that adds tools. The gateway's address must be in the
    agent's environment, and not in its arguments, which others can read. Raises Problem otherwise.
    """
    if any(path in word for word in setup.arguments):
        raise Problem.usage(
            f"--inject does not work with {agent.name}: its address would be an argument, which every user of this machine "
            "can read",
            fix=f"aileron launch {agent.name}",
        )
    if not any(path in value for value in setup.variables.values()):
        why = "; ".join(setup.notes) or "its requests do not go through the gateway"
        raise Problem.usage(f"--inject does not work here: {visible(why)}", fix=f"aileron launch {agent.name}")


def _run(path: str, asked: LaunchRequest, setup: Setup) -> int:
    from aileron.launch.start import child_environment, run

    environment = child_environment(os.environ, _variables(asked, setup), setup.unset)
    try:
        return run(path, setup.arguments, environment)
    except OSError as error:
        why = error.strerror or str(error)
        raise Problem(f"cannot start {path}", exit_code=FAILED, name="invalid_request", why=why) from None


def _variables(asked: LaunchRequest, setup: Setup) -> dict[str, str]:
    return {**asked.server.environment(asked.token), **setup.variables}


def _show(path: str, asked: LaunchRequest, agent: Agent, is_without_daemon: bool, as_json: bool) -> None:
    """Print the command, the environment and the notes of a launch, for `--dry-run`."""
    with local_work():
        setup = agent.setup(asked)
    variables = _variables(asked, setup)
    ours = {name for name in os.environ if name.startswith("AILERON_")} - variables.keys()
    unset = sorted({*setup.unset, *ours} & os.environ.keys())
    notes = list(setup.notes)
    if is_without_daemon:
        notes.append("no daemon is running, so the gateway's address is not shown")
    if as_json:
        command = [path, *setup.arguments]
        environment = {"set": variables, "unset": unset}
        output.print_json(
            {"agent": agent.name, "command": command, "environment": environment, "files": [], "notes": notes}
        )
        return
    output.print_facts(
        [
            ("command", [visible(shlex.quote(word)) for word in (path, *setup.arguments)]),
            ("set", [visible(f"{name}={shlex.quote(value)}") for name, value in sorted(variables.items())]),
            ("unset", unset or None),
            ("files", "no files changed"),
            ("note", notes or None),
        ]
    )
