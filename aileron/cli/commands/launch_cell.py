"""`aileron launch --jail`: starts the agent in a cell, with a session that belongs to this process; and `--explain`.

Runs in the command, which stays outside the cell. It combines functions of other packages: the agent's view (aileron/launch),
the session (the daemon), the cell and its connections (aileron/cell).

Not here: the options themselves (cell_options.py), the choice of a cell without an option (cli/cells.py).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from aileron.api.daemon import Status
from aileron.api.sessions import CellFacts, NewSession, OpenSession
from aileron.cli import cell_ahead, output
from aileron.cli.commands.cell_options import CellWishes
from aileron.cli.problem import FAILED, USAGE, Problem, local_work
from aileron.home import Home
from aileron.launch.agent import Agent, Gateway, LaunchRequest, is_not_through
from aileron.model.placeholder import CELL_PLACEHOLDER
from aileron.model.visible import visible
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron.cli.supervisor import Supervisor
    from aileron.launch.cell_spec import CellSpec
    from aileron.launch.in_cell import LaunchSession
    from aileron_sandbox.cell.stub import Stub

__all__ = ["CellStart", "are_cells_possible", "explain", "in_cell"]

_DEFAULT_PORT = 8721
"""Port that `--explain` shows if no daemon runs."""


class CellStart(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one launch of an agent in a cell.

    `running` is the daemon's status, or None without a daemon; `gateway` is None if the gateway is not used.
    """

    agent: Agent
    program: str
    words: tuple[str, ...]
    folder: str
    gateway: Gateway | None
    running: Status | None
    wishes: CellWishes
    inject: bool = False

    @property
    def hosts(self) -> list[str]:
        """Hosts that the agent can reach without a question to a person."""
        return self.wishes.hosts(None if self.running is None else self.running.launch.cell)

    @property
    def is_asking(self) -> bool:
        """True if a person is asked before the agent can reach other hosts."""
        return self.running is not None and self.running.launch.cell.ask_hosts

    @property
    def port(self) -> int:
        """Port of the gateway and of the daemon on loopback, which is the same in the cell and outside."""
        return _DEFAULT_PORT if self.running is None else urlsplit(self.running.web).port or _DEFAULT_PORT


def are_cells_possible() -> bool:
    """Try to make a cell, and return whether this machine can."""
    from aileron_sandbox.cell.support import examine_cell

    return examine_cell().available


def in_cell(supervisor: Supervisor, start: CellStart, only: list[str]) -> int:
    """Run the agent in a cell, in a session of its own, and return its exit code.

    Everything that can be refused is checked before the session is opened.
    """
    with cell_ahead.taken() or _started() as stub:
        spec = _cell_spec(supervisor, start, stub)
        if start.inject:
            _check_injected(start, spec)
        for note in _notes(start, spec):
            output.note(visible(note))
        session = _Session(supervisor, start, only)
        code: int | None = None
        try:
            code = _run(supervisor, start, spec, session, stub)
            return code
        finally:
            session.end(code)


class _Session:
    """The session of a launch in a cell. It is opened while the cell is being made, and ended even if the launch fails."""

    def __init__(self, supervisor: Supervisor, start: CellStart, only: list[str]) -> None:
        self._supervisor = supervisor
        self._start = start
        self._only = only
        self._id: str | None = None

    def open(self) -> LaunchSession:
        """Open the session and return it. Raises Problem if the daemon refuses."""
        from aileron.launch.in_cell import LaunchSession

        start = self._start
        body = OpenSession(
            agent=start.agent.name,
            folder=start.folder,
            pid=os.getpid(),
            only=self._only,
            inject=start.inject,
            cell=CellFacts(hosts=start.hosts, ask=start.is_asking),
        )
        opened = self._supervisor.fetch(NewSession, "POST", "/v1/sessions", body)
        self._id = opened.id
        return LaunchSession(opened.id, opened.token)

    def end(self, code: int | None) -> None:
        """End the session, if it was opened, with the agent's exit code."""
        if self._id is not None:
            self._supervisor.end_session(self._id, code)


def _started() -> Stub:
    """Start the process of the cell, which prepares itself while this process determines what the agent will see.

    Raises Problem if that is impossible.
    """
    try:
        return cell_ahead.start()
    except JailUnavailable as error:
        raise _unavailable(error.what, error.fix) from None
    except OSError as error:
        raise _unavailable(error.strerror or str(error), "end what runs here, or raise its limits") from None


def _check_injected(start: CellStart, spec: CellSpec) -> None:
    """Check that the agent's requests will go to the gateway that adds tools. Raises Problem otherwise.

    In a cell, the connection identifies the session, so the gateway's address need not be secret.
    """
    around = [note for note in spec.notes if is_not_through(note)]
    if around:
        why = visible("; ".join(around))
        raise Problem.usage(f"--inject does not work here: {why}", fix=f"aileron launch {start.agent.name} --jail")


def _run(supervisor: Supervisor, start: CellStart, spec: CellSpec, session: _Session, stub: Stub) -> int:
    from aileron.cell.publish import PublishRefused
    from aileron.launch.in_cell import CellLaunch, run_in_cell

    launch = CellLaunch(
        spec=spec,
        is_overlay=start.wishes.overlay,
        publish=start.wishes.published(),
        home=Home(supervisor.home),
        open_session=session.open,
    )
    try:
        with local_work():
            return run_in_cell(launch, stub, lambda line: output.note(visible(line)))
    except JailUnavailable as error:
        raise _unavailable(error.what, error.fix) from None
    except PublishRefused as refused:
        raise Problem.usage(refused.what, fix=refused.fix) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Problem(f"cannot start {spec.program}", exit_code=FAILED, name="invalid_request", why=why) from None


def _unavailable(what: str, fix: str) -> Problem:
    return Problem(
        f"cannot make a cell: {what}",
        exit_code=FAILED,
        name="sandbox_unavailable",
        fix=f"{fix}, or start it with --no-jail",
    )


def _cell_spec(supervisor: Supervisor, start: CellStart, stub: Stub | None = None) -> CellSpec:
    """Return the specification of the agent's cell: its files, programs and environment. Raises Problem if the
    requested one is not possible.
    """
    from aileron.cell.changes import earlier_roots
    from aileron.launch.cell_spec import CellRefused, Machine, make_cell_spec, server_in_cell
    from aileron.launch.git_settings import person_settings
    from aileron.launch.programs import installation, read_files, server_of
    from aileron.launch.system_mounts import system_mounts

    environment = os.environ
    with local_work():
        earlier = earlier_roots(Home(supervisor.home).cells)
    machine = Machine(
        home=os.path.realpath(os.path.expanduser("~")),
        aileron_home=os.path.realpath(supervisor.home),
        installation=installation(),
        gateway_port=start.port,
        git_settings=person_settings(environment, os.path.realpath(start.folder)),
        system=lambda: system_mounts(None if stub is None else stub.closed),
        earlier_projects=earlier,
    )
    server = server_in_cell(server_of(supervisor.home))
    files = read_files(start.agent, environment)
    asked = LaunchRequest(server, CELL_PLACEHOLDER, start.gateway, environment, start.words, files)
    settings = None if start.running is None else start.running.launch.cell
    try:
        with local_work():
            setup = start.agent.setup(asked)
        return make_cell_spec(
            start.agent, start.program, asked, setup, start.folder, start.wishes.options(settings), machine
        )
    except CellRefused as refused:
        raise Problem(refused.what, exit_code=USAGE, fix=refused.fix) from None


def _notes(start: CellStart, spec: CellSpec) -> Iterator[str]:
    from aileron.model.host_pattern import HostPattern
    from aileron.model.names import HostPort

    yield from spec.notes
    if start.gateway is None or any(map(is_not_through, spec.notes)):
        allowed = [HostPattern.parse(host) for host in start.hosts]
        wanted = [
            host
            for host in start.agent.cell(os.environ).hosts
            if not any(pattern.matches(HostPort(host, 443)) for pattern in allowed)
        ]
        if wanted:
            options = " ".join(f"--allow-host {host}" for host in wanted)
            yield f"without the gateway, {start.agent.name} needs hosts that are not allowed: {options}"
    if start.running is not None and start.running.launch.problem:
        yield f"additional settings for cells are not used: {start.running.launch.problem}"


# What it would be


def explain(supervisor: Supervisor, start: CellStart, *, as_json: bool) -> None:
    """Print what the agent would see, may change and can reach.

    A cell is prepared to determine its layers, but no program runs in the cell.
    """
    from aileron.launch.layers import layers_of

    spec = _cell_spec(supervisor, start)
    problem: JailUnavailable | None = None
    layers: tuple[str, ...] = ()
    try:
        layers = layers_of(spec)
    except JailUnavailable as error:
        problem = error
    notes = list(_notes(start, spec))
    if start.running is None:
        notes.append("no daemon is running: the settings for cells and the gateway's address are not shown")
    output.print_object(_as_json(start, spec, layers, notes), _facts(start, spec, layers, notes), as_json=as_json)
    if problem is not None:
        raise _unavailable(problem.what, problem.fix)


def _as_json(start: CellStart, spec: CellSpec, layers: tuple[str, ...], notes: list[str]) -> dict[str, object]:
    return {
        "agent": start.agent.name,
        "command": [spec.program, *spec.arguments],
        "project": {"path": spec.project, "access": _access(start)},
        "writable": list(spec.writable),
        "readable": list(spec.readable),
        "masked": list(spec.policy.masked),
        "environment": dict(spec.environment),
        "hosts": start.hosts,
        "asks": start.is_asking,
        "publish": [msgspec.structs.asdict(port) for port in start.wishes.published()],
        "layers": list(layers),
        "notes": notes,
    }


def _facts(
    start: CellStart, spec: CellSpec, layers: tuple[str, ...], notes: list[str]
) -> list[tuple[str, str | list[str] | None]]:
    published = [f"{port.host_port} on this machine: {port.port} in the cell" for port in start.wishes.published()]
    writable = [path for path in spec.writable if path != spec.project]
    readable = [path for path in spec.readable if path != spec.project]
    return [
        ("command", [visible(shlex.quote(word)) for word in (spec.program, *spec.arguments)]),
        ("project", f"{visible(spec.project)} ({_access(start)})"),
        ("writable", list(map(visible, writable)) or None),
        ("readable", list(map(visible, readable))),
        ("masked", list(map(visible, spec.policy.masked)) or None),
        ("private", f"{visible(spec.policy.home)}, /tmp, /run, /var: empty at first, gone at the end"),
        ("hosts", start.hosts or "none"),
        ("other hosts", "you are asked" if start.is_asking else "refused"),
        ("published", published or None),
        ("variables", " ".join(sorted(map(visible, spec.environment)))),
        ("layers", ", ".join(layers) or None),
        ("note", list(map(visible, notes)) or None),
    ]


def _access(start: CellStart) -> str:
    if start.wishes.read_only:
        return "read-only"
    return "changes are kept aside" if start.wishes.overlay else "writable"
