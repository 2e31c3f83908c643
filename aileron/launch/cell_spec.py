"""The specification of one agent's cell: the paths that the agent sees in the cell, and its program and environment. They are
determined from the agent's needs, the project, and the person's environment and options.

Runs in the command that starts the cell, outside the cell. It reads the file system to resolve every path, and
changes nothing: `missing` lists the files that must be made first. `aileron launch --explain` prints the same result.

Rules
- A place that is not named does not exist in the cell. Of the home, only the agent's own files, programs, and what the person
  allowed are shown.
- A directory is mounted before the places inside it, which cover it. So Aileron's and the agent's programs stay read-only
  even inside the project, and an agent cannot change a program that a person runs later by its name.
- No option shows Aileron's home. A place of credentials is shown only if a person names it, with a note; if a directory
  around it is shown, the place is masked.
- Files that an agent in an earlier cell could write cannot choose what this cell shows: no link there is followed out of its
  folder (ways.py).
- Every refusal says which command to type instead.

Source: docs/adr/0062-the-agent-in-a-cell.md, docs/reference/cli.md. Not here: how the cell is made (aileron_sandbox.cell), the
programs that answer it (aileron.cell).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from aileron.launch import cell_environment, git_settings, project_links, toolchains
from aileron.launch.agent import (
    Agent,
    AileronServer,
    CellNeeds,
    Executes,
    LaunchRequest,
    Setup,
    home_of,
    xdg_directory,
)
from aileron.launch.agents import AGENTS
from aileron.launch.credential_places import (
    SECRET_IN_HOME,
    SECRET_ON_MACHINE,
    is_like_credentials,
    is_within,
    secret_places,
)
from aileron.launch.system_mounts import SYSTEM, SystemMounts, made_files, system_mounts
from aileron.launch.ways import leads_away, resolved_below, way_of
from aileron.model.placeholder import CELL_PLACEHOLDER
from aileron_sandbox.cell.policy import FILE_BYTES, MEMORY_BYTES, OPEN_FILES, PROCESSES, SCRATCH_BYTES, Bind, CellPolicy

__all__ = [
    "EMPTY_STATE",
    "CellLimits",
    "CellOptions",
    "CellRefused",
    "CellSpec",
    "Machine",
    "Missing",
    "make_cell_spec",
    "server_in_cell",
]

_MAX_BINDS: Final = 200
"""Maximum number of paths outside that a cell shows: a person with every toolchain has sixty. CellPolicy accepts 256."""
_MAX_LINKS: Final = 64
"""Maximum number of symbolic links in an agent's settings that are checked for a target outside the settings. Such
links occur if a person stores the settings in a repository.
"""
_NO_SETTINGS: Final = git_settings.PersonSettings()
_MAX_SAID: Final = 8
"""Maximum number of notes on links in a project: a screen has 24 lines, and a person reads only the first notes."""
_UNFIT_ROOTS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/var", "/tmp", "/home", "/root")  # noqa: S108
"""Directories that cannot be a project, because they contain files of all users or of the system."""
_UNFIT: Final = ("/proc", "/sys", "/dev", "/run", "/boot", "/nix", "/gnu", "/snap")
"""Directories that cannot be or contain a project."""
_OF_THE_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", *_UNFIT)
"""Directories that cannot contain an agent's settings. /opt, /var, /tmp, /home and /root are missing, because a
person's home may be in them.
"""
_MAX_NAMED: Final = 5
"""Maximum number of names in a note."""
EMPTY_STATE: Final = b"{}\n"
"""Initial content of an agent's state file, which is JSON."""


class CellRefused(Exception):
    """A cell cannot be made as requested. `what` is the reason, and `fix` is the command to type instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


class CellLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resource limits of a cell. The defaults are those of CellPolicy."""

    memory_bytes: int = MEMORY_BYTES
    processes: int = PROCESSES
    open_files: int = OPEN_FILES
    file_bytes: int = FILE_BYTES
    scratch_bytes: int = SCRATCH_BYTES


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A person's choices from options and settings. Paths are absolute. With `overlay`, changes to the project are
    stored apart from it.
    """

    read_only: bool = False
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
    overlay: bool = False
    limits: CellLimits = CellLimits()


class Machine(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The paths and ports of this machine. All paths are resolved: the person's home, and Aileron's home and installation.

    `gateway_port` is the port by which agents reach the daemon on loopback, also in a cell. `earlier_projects` are
    the folders that agents in earlier cells could write to.
    """

    home: str
    aileron_home: str
    installation: tuple[str, ...]
    gateway_port: int
    git_settings: git_settings.PersonSettings = _NO_SETTINGS
    system: Callable[[], SystemMounts] = system_mounts
    """The function that returns the mounts of the system. It is called last, because another process may be preparing its
    result meanwhile.
    """
    earlier_projects: tuple[str, ...] = ()

    @functools.cached_property
    def secrets_of_home(self) -> tuple[str, ...]:
        """Resolved paths in the home at which programs keep credentials, as found at the first access."""
        return tuple(resolved_below(self.home, SECRET_IN_HOME))

    @functools.cached_property
    def secret_places(self) -> tuple[str, ...]:
        """Paths at which programs keep credentials, in the home and elsewhere, each unresolved and resolved, as found
        at the first access.
        """
        resolved = (*self.secrets_of_home, *map(os.path.realpath, SECRET_ON_MACHINE))
        return tuple(dict.fromkeys(itertools.chain(*zip(secret_places(self.home), resolved, strict=True))))


class Missing(msgspec.Struct, frozen=True):
    """A path that must exist before the cell is made: a directory (mode 0700), or a file that contains `{}` (mode 0600)."""

    path: str
    is_directory: bool


class CellSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one cell: its policy, the program executed in it, and notes for the person.

    `executes` are files that the cell can write to and that make code run outside later. `project` is the folder's
    path outside.
    """

    policy: CellPolicy
    program: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables of the agent. They may contain credentials, so the repr omits them."""
    project: str
    missing: tuple[Missing, ...] = ()
    executes: tuple[Executes, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"CellSpec(program={self.program!r}, project={self.project!r}, policy={self.policy!r})"

    @property
    def readable(self) -> tuple[str, ...]:
        """Paths in the cell that are shown read-only."""
        return tuple(bind.target for bind in self.policy.binds if not bind.writable)

    @property
    def writable(self) -> tuple[str, ...]:
        """Paths in the cell to which changes persist after its end."""
        return tuple(bind.target for bind in self.policy.binds if bind.writable)

    @property
    def roots(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Paths outside the cell that are examined for changes when the cell is over, the project first. Each has
        globs that limit the examination.

        Among the agent's own files, only those that make code run later are examined; in the other paths, all files are.
        """
        found: dict[str, tuple[str, ...]] = {}
        for bind in self.policy.binds:
            if bind.writable:
                own = [file.pattern for file in self.executes if is_within(file.pattern, bind.target)]
                found[bind.source] = tuple(
                    pattern[len(bind.target) + 1 :] or os.path.basename(pattern) for pattern in own
                )
        return ((self.project, ()), *((path, only) for path, only in found.items() if path != self.project))


def server_in_cell(server: AileronServer) -> AileronServer:
    """Return the server as an agent in a cell starts it: the same program, for the home as seen inside the cell."""
    return msgspec.structs.replace(server, home=cell_environment.RUN_HOME)


def make_cell_spec(
    agent: Agent, program: str, asked: LaunchRequest, setup: Setup, folder: str, options: CellOptions, machine: Machine
) -> CellSpec:
    """Return the specification of the cell of one launch. `asked` and `setup` are made for the cell, with the placeholder as
    token. Raises CellRefused if no cell can be made as requested.
    """
    project = os.path.realpath(folder)
    needs = agent.cell(asked.environment)
    others = [other for other in AGENTS.values() if other is not agent]
    settings = (
        (agent, _settings_of(needs)),
        *((other, _settings_of(other.cell(asked.environment))) for other in others),
    )
    _check_project(project, machine, agent, settings)
    for setting in (*needs.directories, *needs.files):
        _check_setting(str(setting), machine)
    shown = _Shown(machine)
    written = _written_by_agents(project, settings, options, machine)
    where = toolchains.Where(machine.home, asked.environment, written)
    path = _programs(shown, program, where)
    missing = _settings(shown, needs, asked.environment, machine, written)
    _allowed(shown, options, machine)
    _certificates(shown, asked.environment, machine, written)
    shown.put(project, project, writable=not options.read_only and not options.overlay)
    for place in machine.installation:
        shown.fixed(place)
    shown.notes += [
        f"{place} belongs to Aileron or to the agent's program, and stays read-only"
        for place in shown.fixed_within(project)
    ]
    leads = project_links.leads_of(project)
    for lead in leads:
        shown.lead(lead, _brought_by(lead, shown, where))
    shown.notes += _said_of_links(leads, shown, where)
    keys = _hidden_keys(needs, asked, setup)
    shown.notes += keys.notes
    _git(shown, project)
    system = machine.system()
    hidden = [(_target(path, asked.environment, machine), EMPTY_STATE) for path in keys.files if os.path.isfile(path)]
    files = (*made_files(), *_git_files(shown, where), *hidden)
    binds = (*(Bind(source, target, mounts=True) for source, target in system.directories), *shown.binds())
    masked = [place for place in system.masked if not shown.is_named(place)]
    policy = CellPolicy(
        folder=project,
        home=machine.home,
        binds=binds,
        masked=tuple(dict.fromkeys([*masked, *shown.masked(machine)])),
        links=(*system.links, *shown.links([path for path, _ in files])),
        files=files,
        tcp_listeners=(("gateway", machine.gateway_port), ("tunnel", cell_environment.PROXY_PORT)),
        unix_listeners=tuple((name, f"{cell_environment.RUN_HOME}/run/{name}.sock") for name in ("mcp", "agent")),
        **msgspec.structs.asdict(options.limits),
    )
    passed = cell_environment.passed(
        asked.environment,
        names=needs.names,
        prefixes=needs.prefixes,
        own_keys=frozenset(name for names, _ in needs.keys.values() for name in names),
        kept_keys=keys.variables,
        allowed=frozenset(options.allow_env),
    )
    environment = {
        **passed.variables,
        **needs.variables,
        **setup.variables,
        **cell_environment.made(home=machine.home, path=path, folder=project),
        **asked.server.environment(CELL_PLACEHOLDER),
    }
    for name in setup.unset:
        environment.pop(name, None)
    return CellSpec(
        policy=policy,
        program=program if shown.has(program) or _is_system(program) else os.path.realpath(program),
        arguments=(*needs.arguments, *setup.arguments),
        environment=environment,
        project=project,
        missing=missing,
        executes=needs.executes,
        notes=(
            *setup.notes,
            *needs.notes,
            *_own_questions(needs, asked.arguments),
            *_unread_variables(options, asked.environment),
            *_held_back(passed, setup),
            *system.notes,
            *shown.notes,
        ),
    )


class _Shown:
    """The paths outside a cell that it will show, collected with the rules for each kind of path."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._secret = machine.secret_places
        self._named: set[str] = set()
        self._settings: set[str] = set()
        self._places: dict[str, Bind] = {}
        self._fixed: dict[str, Bind] = {}
        self._links: dict[str, str] = {}
        self.led_out: list[project_links.Lead] = []
        """Symbolic links in the agent's settings that lead out of the settings, and are not followed."""
        self.notes: list[str] = []

    def read(self, source: str, *, target: str = "") -> None:
        """Show a path read-only. Skip a path that is missing, belongs to the system, or is shown only if a person names it."""
        if os.path.exists(source) and not self.is_kept_back(source) and not _is_system(target or source):
            self._places.setdefault(target or source, Bind(source, target or source))

    def fixed(self, source: str, *, target: str = "") -> None:
        """Show a path read-only even if it is inside a writable directory."""
        if os.path.exists(source) and not _is_system(source) and not is_within(self.machine.home, source):
            self._fixed[target or source] = Bind(source, target or source)

    def fixed_within(self, path: str) -> list[str]:
        """Return the paths inside `path` that stay read-only even if `path` is writable."""
        return [place for place in self._fixed if is_within(place, path)]

    def put(self, source: str, target: str, *, writable: bool) -> None:
        """Show the path `source` at the path `target` in the cell, without further checks."""
        self._places[target] = Bind(source, target, writable)

    def settings(self, source: str, target: str) -> None:
        """Show the agent's own settings as writable, except for programs in them."""
        self._settings.add(target)
        self.put(source, target, writable=True)

    def name(self, path: str, *, writable: bool) -> None:
        """Show a path that a person named, even if programs keep credentials there."""
        self._named.add(path)
        self.put(path, path, writable=writable)

    def lead(self, lead: project_links.Lead, places: Iterable[str]) -> None:
        """Show `places` read-only: the paths that the project needs because of a lead, a link out of the project
        (project_links.py). Also make the person's links on the path to the lead's target.
        """
        for place in places:
            self.read(place)
        if self.has(lead.target):
            for link in lead.links:
                with contextlib.suppress(OSError):  # the link may be gone meanwhile
                    self._links.setdefault(link, "" if self.is_kept_back(link) else os.readlink(link))

    def links(self, files: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield each symbolic link to make in the cell, as its path and target. Left out are links inside a shown path,
        and links above a shown path or above one of `files`, the files that are made in the cell.
        """
        targets = (*self._places, *self._fixed, *files)
        for link, said in self._links.items():
            if (
                said
                and not _is_system(link)
                and not self.has(link)
                and not any(is_within(target, link) for target in targets)
            ):
                yield link, said

    def is_named(self, path: str) -> bool:
        """Return whether a person named exactly this path in an option or a setting."""
        return path in self._named

    def has(self, path: str) -> bool:
        """Return whether a path is shown or inside a shown directory, masked or not."""
        return any(is_within(path, place) for place in (*self._places, *self._fixed))

    def is_readable(self, path: str) -> bool:
        """Return whether the cell can read a path, because it belongs to the system, or is shown and not masked."""
        masked = (*self._secret, self.machine.aileron_home)
        hidden = [secret for secret in masked if is_within(path, secret) and secret not in self._named]
        shown = [place for place in (*self._places, *self._fixed) if is_within(path, place)]
        return _is_system(path) or any(all(is_within(place, secret) for secret in hidden) for place in shown)

    def binds(self) -> tuple[Bind, ...]:
        """Return the bind mounts of the shown paths, without those that have no effect, each directory before the paths
        inside it. Raises CellRefused if there are too many.
        """
        found: list[Bind] = []
        for bind in sorted([*self._places.values(), *self._fixed.values()], key=lambda mount: mount.target.count("/")):
            above = next((parent for parent in reversed(found) if is_within(bind.target, parent.target)), None)
            if above is None or not self._is_shown_by(bind, above):
                found.append(bind)
        if len(found) > _MAX_BINDS:
            raise CellRefused(
                f"{len(found)} places would have to be shown; at most {_MAX_BINDS}",
                "shorten PATH, or give fewer options",
            )
        return tuple(found)

    def _is_shown_by(self, bind: Bind, above: Bind) -> bool:
        """Return whether the bind `above` makes `bind` unnecessary. It does if both show the same files and are equally
        writable. If only one of them is writable, `bind` is still unnecessary unless that difference is intended; for a
        directory of PATH in a writable project, it is not intended.
        """
        below = bind.target[len(above.target.rstrip("/")) :]
        if bind.source != above.source.rstrip("/") + below:
            return False
        if bind.writable == above.writable:
            return True
        is_meant = (
            bind.writable or bind.target in self._fixed or bind.target in self._named or above.target in self._settings
        )
        return not is_meant

    def masked(self, machine: Machine) -> Iterator[str]:
        """Yield the paths inside shown directories at which programs keep credentials, and Aileron's home, unless a
        person named them.
        """
        for place in (*self._secret, machine.aileron_home):
            if place in self._named or not os.path.lexists(place):
                continue
            if any(place != shown and is_within(place, shown) for shown in (*self._places, *self._fixed)):
                yield place

    def is_kept_back(self, path: str) -> bool:
        """Return whether a path is never shown, or is shown only if a person names it."""
        machine = self.machine
        if (
            is_within(machine.aileron_home, path)
            or is_within(path, machine.aileron_home)
            or is_within(machine.home, path)
        ):
            return True
        return any(is_within(path, place) for place in self._secret)


class _Keys(msgspec.Struct, frozen=True):
    variables: tuple[str, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]


def _check_project(project: str, machine: Machine, agent: Agent, settings: _SettingsOf) -> None:
    fix = "cd into the folder of one project"
    if is_within(machine.home, project):
        raise CellRefused(f"{project} is or contains your home, which a cell does not show", fix)
    if project in _UNFIT_ROOTS or project == "/" or any(is_within(project, place) for place in _UNFIT):
        raise CellRefused(f"{project} is a place of the system, and not a project", fix)
    if is_within(machine.aileron_home, project) or is_within(project, machine.aileron_home):
        raise CellRefused(f"{project} contains Aileron's home, or is in it", fix)
    for place in machine.secrets_of_home:
        if is_within(project, place):
            raise CellRefused(f"{project} is in {place}, a place of credentials", fix)
    for owner, places in settings:
        whose = "the agent's own settings" if owner is agent else f"the settings of {owner.title}"
        for place in places:
            # Each link on the way counts: an agent that can replace it chooses where the settings are, for the next launch.
            if any(is_within(step, project) for step in way_of(place)):
                raise CellRefused(f"{project} contains {whose} ({place})", fix)


_SettingsOf = tuple[tuple[Agent, list[str]], ...]
"""The paths of each agent's settings. The agent to be started comes first."""


def _settings_of(needs: CellNeeds) -> list[str]:
    return [os.path.abspath(path) for path in (*needs.directories, *needs.files)]


def _check_setting(place: str, machine: Machine) -> None:
    """Raise CellRefused if a cell cannot show the agent's settings at the path `place`, or an agent could have chosen
    the path to which it leads.
    """
    source = os.path.realpath(place)
    fix = f"make {place} a folder or a file of its own, or set the agent's variable for another place"
    if is_within(machine.home, source) or is_within(source, machine.aileron_home):
        raise CellRefused(
            f"the agent's settings are in {source}, which a cell does not show", "unset the agent's variable"
        )
    if is_within(machine.aileron_home, source):
        raise CellRefused(f"the agent's settings, {place}, are in {source}, which contains Aileron's home", fix)
    for secret in machine.secret_places:
        if is_within(machine.home, secret):
            continue  # a home in /var/lib, as services have
        if is_within(source, secret) or is_within(secret, source):
            raise CellRefused(
                f"the agent's settings, {place}, lead to {source}: {secret} is a place of credentials", fix
            )
    if source == "/" or source in _UNFIT_ROOTS or any(is_within(source, root) for root in _OF_THE_SYSTEM):
        raise CellRefused(f"the agent's settings, {place}, lead to {source}, a place of the system", fix)
    if leads_away(place, machine.earlier_projects):
        raise CellRefused(
            f"the agent's settings, {place}, lead to {source} by a link in a folder that an agent in a cell could write",
            fix,
        )


def _written_by_agents(project: str, settings: _SettingsOf, options: CellOptions, machine: Machine) -> tuple[str, ...]:
    """Return the folders in which an agent may have left files: those that this cell or earlier ones let agents write to."""
    places = (
        project,
        *(place for _, of_one in settings for place in of_one),
        *options.allow_write,
        *machine.earlier_projects,
    )
    return tuple(dict.fromkeys(map(os.path.realpath, places)))


def _programs(shown: _Shown, program: str, where: toolchains.Where) -> list[str]:
    """Show the agent's program and the programs in PATH, with the files that they need. Return the directories for
    the cell's PATH.
    """
    kept: list[str] = []
    for said in toolchains.path_directories(where.environment):
        directory = os.path.realpath(said)
        if is_within(where.home, directory):
            shown.notes.append(f"{directory} is in PATH but contains your home, so it is not shown")
            continue
        kept.append(directory)
        for place in toolchains.brought_by(directory, where):
            shown.read(place)
        if not _is_system(directory):
            if where.leads_away(said):
                shown.notes.append(
                    f"{said} is in PATH and leads to {directory} by a link that an agent could have made"
                )
            for place in toolchains.installation_of(said, where):
                shown.read(place)
    for said in toolchains.toolchain_variables(where.environment):
        for place in toolchains.installation_of(said, where):
            shown.read(place)
    for place in toolchains.installation_of(program, where):
        if not _is_system(place):
            shown.fixed(place)
    return list(dict.fromkeys(kept))


def _brought_by(lead: project_links.Lead, shown: _Shown, where: toolchains.Where) -> tuple[str, ...]:
    """Return the paths to show because of a lead, a link that leads out of the project (project_links.py): parts of a
    toolchain, or the Python of a readable virtual environment.
    """
    if shown.is_readable(lead.target) and os.path.isfile(f"{lead.target}/pyvenv.cfg"):
        return toolchains.installation_of(f"{lead.target}/bin", where)
    return toolchains.toolchain_of(lead.target, where)


def _certificates(shown: _Shown, environment: Mapping[str, str], machine: Machine, written: tuple[str, ...]) -> None:
    """Show the certificates that variables refer to: a file, or a directory outside the home if the variable is one
    for directories. In the home, no link is followed.
    """
    for named, is_directory in cell_environment.certificate_files(environment):
        said = os.path.normpath(named)
        *links, real = way_of(_target(said, environment, machine))
        if _is_system(real) or not os.path.exists(real):
            continue
        is_in_home = is_within(real, machine.home)
        is_led = leads_away(said, written) or any(is_within(link, machine.home) for link in links)
        is_fit = (is_directory and not is_in_home and os.path.isdir(real)) or os.path.isfile(real)
        if (is_fit and not is_led) or shown.is_named(real):
            shown.read(real, target=said)
        elif not shown.is_readable(real) or is_led:
            why = "by a link" if is_led else "which is no file"
            shown.notes.append(f"{said} leads to {real} {why}, and is not shown{_remedy(real, shown.machine)}")


def _settings(
    shown: _Shown, needs: CellNeeds, environment: Mapping[str, str], machine: Machine, written: tuple[str, ...]
) -> tuple[Missing, ...]:
    """Show the agent's own files at the paths where the agent looks for them, even if these are links. Return the
    files that are missing.
    """
    missing: list[Missing] = []
    for is_directory, places in ((True, needs.directories), (False, needs.files)):
        for place in places:
            source = os.path.realpath(place)
            target = _target(str(place), environment, machine)
            if source != target:
                shown.notes.append(f"{place} leads to {source}, which the agent can write")
            if not os.path.exists(source):
                missing.append(Missing(source, is_directory))
            shown.settings(source, target)
            if is_directory:
                shown.led_out += _links_out_of(source, place)
    for place in needs.readable:
        if leads_away(os.path.abspath(place), written):
            shown.led_out.append(project_links.Lead(str(place), os.path.realpath(place)))
            continue
        shown.read(os.path.realpath(place), target=_target(str(place), environment, machine))
    for place in needs.fixed:
        source = os.path.realpath(place)
        if os.path.isdir(source) and any(is_within(source, os.path.realpath(above)) for above in needs.directories):
            shown.fixed(source, target=_target(str(place), environment, machine))
    return tuple(missing)


def _target(path: str, environment: Mapping[str, str], machine: Machine) -> str:
    """Return the path at which a cell shows a path: links are followed if it is outside the home; below the home, only
    the home itself is resolved.
    """
    normal = os.path.normpath(path)
    said = os.path.normpath(home_of(environment))
    return machine.home + normal[len(said) :] if is_within(normal, said) else os.path.realpath(normal)


def _links_out_of(source: str, place: Path) -> Iterator[project_links.Lead]:
    """Yield the symbolic links in a directory of settings that lead out of it, which occur if a person stores their
    settings in a repository.

    These links are not followed: an agent could make one, and so choose what the next cell shows.
    """
    try:
        with os.scandir(source) as entries:
            links = [entry.name for entry in entries if entry.is_symlink()]
    except OSError:
        return
    for name in sorted(links)[:_MAX_LINKS]:
        target = os.path.realpath(f"{source}/{name}")
        if not is_within(target, source) and os.path.exists(target):
            yield project_links.Lead(f"{place}/{name}", target)


def _said_of_links(leads: Iterable[project_links.Lead], shown: _Shown, where: toolchains.Where) -> Iterator[str]:
    """Yield notes about links in the settings and the project that lead to paths that are not shown, one for each target."""
    machine = shown.machine
    for lead in shown.led_out:
        if not shown.is_readable(lead.target):
            yield f"{lead.path} leads to {lead.target}, which is not shown{_remedy(lead.target, machine)}"
    by_tree: dict[str, project_links.Lead] = {}
    for lead in leads:
        if not shown.is_readable(lead.target):
            by_tree.setdefault(toolchains.tree_of(lead.target, where.home), lead)
    for tree, lead in itertools.islice(by_tree.items(), _MAX_SAID):
        what = ", so the environment does not work" if os.path.basename(lead.path) == "pyvenv.cfg" else ""
        yield f"{lead.path} leads to {lead.target}, which is not shown{what}{_remedy(tree, machine)}"
    if len(by_tree) > _MAX_SAID:
        yield f"{len(by_tree) - _MAX_SAID} more links of the project lead to what is not shown"


def _remedy(path: str, machine: Machine) -> str:
    """Return the end of a note about a path that the cell cannot see: the option that makes it visible.

    For a path that may hold credentials no option is named, because the path may come from a symbolic link that an agent made.
    """
    closed = [place for place in (*machine.secret_places, machine.aileron_home) if not is_within(machine.home, place)]
    if is_like_credentials(path) or any(is_within(path, place) or is_within(place, path) for place in closed):
        return ", and may hold credentials"
    if is_within(machine.home, path) or (not is_within(path, machine.home) and _is_machines(path)):
        return ""
    return f"; if it is yours: --allow-read {shlex.quote(path)}"


def _is_machines(path: str) -> bool:
    return any(is_within(path, place) for place in (*_OF_THE_SYSTEM, "/root"))


def _allowed(shown: _Shown, options: CellOptions, machine: Machine) -> None:
    """Show the paths that the person named in options or settings. Raises CellRefused for a path that cannot be shown."""
    for writable, name, paths in (
        (False, "--allow-read", options.allow_read),
        (True, "--allow-write", options.allow_write),
    ):
        for said in paths:
            path = os.path.realpath(said)
            if not os.path.exists(path):
                raise CellRefused(
                    f"{name} {said}: no such file or directory", "create it first, or leave the option out"
                )
            if is_within(machine.aileron_home, path) or is_within(path, machine.aileron_home):
                what = "is in" if is_within(path, machine.aileron_home) else "contains"
                raise CellRefused(
                    f"{name} {said}: it {what} Aileron's home, which no agent may see", "name a folder beside it"
                )
            if path == "/" or (writable and is_within(machine.home, path)):
                raise CellRefused(
                    f"{name} {said}: it is or contains your home", "name the folders in it that the agent needs"
                )
            shown.name(path, writable=writable)
            if any(is_within(path, place) for place in secret_places(machine.home)):
                shown.notes.append(f"WARNING: {path} is a place of credentials, and the agent can read all of it")


def _hidden_keys(needs: CellNeeds, asked: LaunchRequest, setup: Setup) -> _Keys:
    """Return the variables and files with the agent's own credentials that the cell does not show, because the gateway
    adds the key to requests; and notes about these files.
    """
    variables: list[str] = []
    files: list[str] = []
    notes: list[str] = []
    for provider, (names, paths) in needs.keys.items():
        if provider in setup.from_vault:
            variables += names
            files += map(str, paths)
    for file in needs.key_files if setup.from_vault else ():
        providers = file.providers(asked.files[file.path]) if file.path in asked.files else None
        if providers is None and os.path.isfile(file.path):
            notes.append(f"{file.path} is not understood, so it is not shown: see what is wrong with it")
        if providers is None or (providers and providers <= setup.from_vault):
            files.append(str(file.path))
        elif needless := providers & setup.from_vault:
            notes.append(
                f"{file.path} is shown, because it logs in to {_some(providers - needless)}: remove from it what the vault has, "
                f"the key for {_some(needless)}"
            )
    return _Keys(tuple(variables), tuple(files), tuple(notes))


def _some(names: Iterable[str]) -> str:
    """Return the names as text for a sentence. At most _MAX_NAMED are named, because the agent can make any number of them."""
    found = sorted(names)
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return ", ".join(found[:_MAX_NAMED]) + more


def _git(shown: _Shown, project: str) -> None:
    outside = git_settings.outside_of_project(project)
    if outside is None or shown.is_readable(outside.path):
        return
    path = outside.path
    if "--allow-read" not in _remedy(path, shown.machine):
        shown.notes.append(f"{outside.why}, in {path}, which is not shown, so git does not work")
    elif outside.leads_back:
        shown.notes.append(f"{outside.why} and not shown, so git does not work: --allow-write {shlex.quote(path)}")
    else:
        shown.notes.append(
            f"the file .git of this folder names {path}, which does not name this folder and is not shown; "
            f"if it is the repository of this folder: --allow-write {shlex.quote(path)}"
        )


def _git_files(shown: _Shown, where: toolchains.Where) -> tuple[tuple[str, bytes], ...]:
    """Return git's files for the cell: the person's harmless settings, and their global ignore patterns and attributes.
    Without the patterns an agent would commit ignored files.
    """
    machine, files, named = shown.machine, dict[str, bytes](), dict[str, str]()
    configuration = xdg_directory(where.environment, "XDG_CONFIG_HOME", ".config")
    for file in git_settings.pattern_files(machine.git_settings, str(home_of(where.environment)), str(configuration)):
        target = _target(file.path, where.environment, machine)
        if not shown.is_readable(target):
            content = file.content()
            if content is None or _is_chosen_by_agent(file, where) or shown.is_kept_back(os.path.realpath(file.path)):
                shown.notes.append(
                    f"{file.path} of your git is not shown: it is too long, or an agent could have chosen it"
                )
                continue
            files[target] = content
        if file.key in machine.git_settings.values:
            named[file.key] = target
    path = f"{machine.home}/.gitconfig"
    settings = git_settings.cleaned_settings(machine.git_settings.values, named)
    if settings and not shown.has(path):
        files[path] = settings
    return tuple(files.items())


def _is_chosen_by_agent(file: git_settings.PatternFile, where: toolchains.Where) -> bool:
    """Return whether an agent could have chosen which pattern file git uses, by a link, or by a configuration that the
    agent could write to.
    """
    said = os.path.realpath(file.said_in) if file.said_in else ""
    return where.leads_away(file.path) or (bool(said) and (where.leads_away(file.said_in) or where.is_written(said)))


def _unread_variables(options: CellOptions, environment: Mapping[str, str]) -> Iterator[str]:
    for name in options.allow_env:
        if cell_environment.is_refused(name):
            yield f"{name} is never passed into a cell"
        elif name not in environment:
            yield f"{name} is not set, so there is nothing to pass"


def _own_questions(needs: CellNeeds, arguments: Iterable[str]) -> Iterator[str]:
    given = {argument.partition("=")[0] for argument in arguments}
    own = needs.own_questions
    if own is not None and not given.isdisjoint(own.unasked) and given.isdisjoint(own.settled):
        yield own.note


def _held_back(passed: cell_environment.Passed, setup: Setup) -> Iterator[str]:
    names = [name for name in passed.held_back if name not in setup.variables and name not in setup.unset]
    if names:
        yield f"not passed, as they can hold a credential or run code: {_some(names)}; --allow-env NAME passes one"


def _is_system(path: str) -> bool:
    return any(is_within(path, place) for place in SYSTEM)
