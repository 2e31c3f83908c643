"""`aileron doctor`: checks this machine and suggests or applies fixes.

`doctor` starts no daemon, because a check changes nothing. `doctor AGENT` starts one, as the agent would (agent_check.py).
"""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from aileron import __version__
from aileron.api.daemon import Status
from aileron.api.secrets import VaultState
from aileron.cli import output
from aileron.cli.commands.check import ByHand, Check
from aileron.cli.commands.options import AsJson
from aileron.cli.commands.status import kept_back, signed_by
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.narrowing import Narrow, NotNarrowed, narrow, wide
from aileron.cli.problem import FAILED, Problem
from aileron.cli.prompts import can_ask, is_yes
from aileron.cli.supervisor import Supervisor
from aileron.config import SandboxMode, Settings, load_settings
from aileron.files import OTHERS_MAY_USE
from aileron.model.failure import AileronError
from aileron.model.visible import visible
from aileron_sandbox.support import Report, examine

__all__ = ["doctor", "machine_checks", "print_checks"]

_MAX_SOCKET_PATH = 107  # sun_path, unix(7)
_LEAST_FREE_BYTES = 100 << 20
"""Free disk space in bytes below which the check fails, 100 MiB. The ledger refuses runs on a full disk, and grows by
about 2 KiB per run.
"""

_MEMORY = {
    "cgroup-v2": ("limited by a control group (v2) for each compiled connector with all its processes", None),
    "cgroup-v1": ("limited by a control group (v1) for each compiled connector with all its processes", None),
    "rlimit": (
        (
            "limited for each process (rlimits); jails with several processes are checked four times a second. "
            "With systemd, they can be limited as a whole"
        ),
        "systemd-run --user --scope -p Delegate=yes aileron daemon start",
    ),
}


def doctor(
    agent: Annotated[
        str | None,
        Argument(metavar="AGENT", help="Check whether this agent can reach your actions, instead of this machine."),
    ] = None,
    program: Annotated[
        str | None, Option("--program", metavar="PATH", help="Path of the agent's program, if it is not in PATH.")
    ] = None,
    fix: Annotated[bool, Option("--fix", help="Fix permissions that are too wide. Asks before each change.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --fix, do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, or an agent's connection to your actions.

    Exit code 1 means that a check failed.
    """
    if agent is not None:
        if fix or yes:
            raise Problem.usage(
                "--fix checks this machine and cannot be used with an agent", fix="aileron doctor --fix"
            )
        _doctor_of(agent, program, as_json)
        return
    if program is not None:
        raise Problem.usage("--program needs an agent: aileron doctor AGENT", fix="aileron doctor --help")
    if yes and not fix:
        raise Problem.usage("--yes requires --fix", fix="aileron doctor --fix --yes")
    if fix and not yes and (as_json or not can_ask()):
        raise Problem.usage("no terminal to confirm each fix at", fix="aileron doctor --fix --yes")
    supervisor = Supervisor()
    report, checks = machine_checks(supervisor)
    tried = [_carried_out(check, yes=yes) for check in checks if isinstance(check.repair, Narrow)] if fix else []
    if tried:
        report, checks = machine_checks(supervisor)
    is_well = all(check.state != "bad" for check in checks)
    if as_json:
        told = {"ok": is_well, "version": __version__, "checks": [check.to_json() for check in checks]}
        output.print_json({**told, "machine": report.to_json(), **({"fixed": tried} if fix else {})})
    else:
        if fix and not tried:
            output.note("nothing to fix automatically")
        print_checks(checks, explained=fix)
    if not is_well:
        raise Exit(FAILED)


_FOR_LOGINS = {"asyncssh": "ssh", "scramp": "SCRAM"}
"""Python packages that some logins need, each with the name of the logins that need it."""


def machine_checks(supervisor: Supervisor) -> tuple[Report, list[Check]]:
    """Return the report about this machine's jails, and all checks of this machine and the supervisor's home."""
    mode = _sandbox_mode(supervisor.home)
    report = examine(mode)
    return report, [
        *_machine(report, mode),
        *([] if report.available or mode == "landlock" else _weaker(supervisor.home)),
        *_home(supervisor.home),
        *_daemon(supervisor),
    ]


class _CarriedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one fix that `doctor --fix` applied or tried, for `--json`."""

    name: str
    fix: str | None
    done: bool = False
    problem: str | None = None


def _carried_out(check: Check, *, yes: bool) -> _CarriedOut:
    """Apply the check's fix after the person confirms it. Print what happened, and return it for `--json`."""
    assert isinstance(check.repair, Narrow)
    command = visible(str(check.fix))
    told = _CarriedOut(name=check.name, fix=check.fix)
    if not yes:
        output.note(visible(check.found))
        if not is_yes(f"  {command} [y/N]: "):
            return told
    try:
        narrow(check.repair)
    except NotNarrowed as error:
        output.note(f"failed: {command}: {visible(str(error))}")
        return msgspec.structs.replace(told, problem=str(error))
    output.note(f"done: {command}")
    return msgspec.structs.replace(told, done=True)


def _doctor_of(agent: str, program: str | None, as_json: bool) -> None:
    from aileron.cli.commands.agent_check import checks_of

    checks = list(checks_of(agent, program))
    is_well = all(check.state != "bad" for check in checks)
    if as_json:
        found = [check.to_json() for check in checks]
        output.print_json({"ok": is_well, "version": __version__, "agent": agent, "checks": found})
    else:
        print_checks(checks)
    if not is_well:
        raise Exit(FAILED)


def _sandbox_mode(home: Path) -> SandboxMode:
    try:
        return load_settings(home / "config.toml").sandbox_mode
    except AileronError:  # `_settings` reports what is wrong with it
        return Settings().sandbox_mode


def _weaker(home: Path) -> Iterator[Check]:
    """Yield a note if the mode `landlock` is available, for a machine that cannot make a jail. The mode is weaker, so
    a person must choose it.
    """
    if examine("landlock").available:
        found = (
            "a weaker mode without namespaces is available; first read what it does not protect: "
            "docs/explanation/jail.md"
        )
        fix = f'set mode = "landlock" under [sandbox] in {home / "config.toml"}'
        yield Check("jail", "note", found, fix, ByHand.WIDENS)


def _machine(report: Report, mode: SandboxMode) -> Iterator[Check]:
    if report.available and mode == "landlock":
        yield Check("jail", "note", f"weaker mode without namespaces, as configured: {', '.join(report.layers)}")
    elif report.available:
        yield Check("jail", "ok", f"{len(report.layers)} layers active: {', '.join(report.layers)}")
    else:
        yield Check("jail", "bad", str(report.what), report.fix, ByHand.ADMINISTRATOR)
    yield _cells()
    if not report.libseccomp:
        fix = "sudo apt-get install libseccomp2"
        yield Check("libseccomp", "bad", "cannot be loaded", fix, ByHand.ADMINISTRATOR)
    if missing := [name for name in _FOR_LOGINS if importlib.util.find_spec(name) is None]:
        from aileron.extras import repair_command

        ways = " or ".join(_FOR_LOGINS[name] for name in missing)
        words = f"{' and '.join(missing)} cannot be imported: connectors that log in by {ways} fail"
        yield Check("logins", "bad", words, repair_command(*missing))
    if report.memory is not None:
        found, command = _MEMORY[report.memory]
        yield Check("memory", "note" if report.memory == "rlimit" else "ok", found, command)
    landlock = "no Landlock" if report.landlock_abi is None else f"Landlock ABI {report.landlock_abi}"
    user = "root" if report.uid == 0 else f"uid {report.uid}"
    yield Check("machine", "ok", f"Linux {report.kernel_release}, {landlock}, Python {report.python}, {user}")


def _cells() -> Check:
    """Check whether agents can start in cells, by making one."""
    from aileron_sandbox.cell.support import examine_cell

    found = examine_cell()
    if not found.available:
        return Check("cells", "note", f"agents cannot start in a cell: {found.what}", found.fix, ByHand.ADMINISTRATOR)
    layers = found.layers
    return Check("cells", "ok", f"agents can start in a cell of {len(layers)} layers: {', '.join(layers)}")


def _home(home: Path) -> Iterator[Check]:
    try:
        found = home.stat()
    except FileNotFoundError:
        yield Check("home", "note", f"{home} does not exist yet; the first command creates it")
        return
    except OSError as error:
        yield Check("home", "bad", f"{home}: {error.strerror}", "set AILERON_HOME to a directory of your own")
        return
    yield from _owned(home, found)
    socket = str(home / "run" / "operator.sock")
    if len(os.fsencode(socket)) > _MAX_SOCKET_PATH:
        yield Check(
            "sockets", "bad", f"{socket} is longer than {_MAX_SOCKET_PATH} bytes", "set AILERON_HOME to a shorter path"
        )
    yield _space(home)
    yield _settings(home)


def _owned(home: Path, found: os.stat_result) -> Iterator[Check]:
    """Check the home, and find files and directories in it that other users can use or write, because the daemon refuses each of
    these.
    """
    if not stat.S_ISDIR(found.st_mode):
        yield Check("home", "bad", f"{home} is not a directory", "set AILERON_HOME to a directory of your own")
        return
    if found.st_uid != os.geteuid():
        words = f"{home} belongs to uid {found.st_uid}"
        yield Check("home", "bad", words, f"sudo chown -R {os.geteuid()} {home}", ByHand.ADMINISTRATOR)
        return
    if home.is_symlink():
        words = f"{home} is a symbolic link, which is not accepted"
        yield Check("home", "bad", words, "set AILERON_HOME to the directory itself")
        return
    checks = [_too_open(repair) for repair in wide(home)]
    if not any(check.name == "home" for check in checks):
        yield Check("home", "ok", str(home))
    yield from checks


def _too_open(repair: Narrow | tuple[Path, str]) -> Check:
    if not isinstance(repair, Narrow):
        path, why = repair
        return Check(
            "files", "bad", f"{path} is not accepted: {why}", f"check what {path} is, and restore what belongs there"
        )
    may = "use" if repair.kept.forbidden == OTHERS_MAY_USE else "write"
    name = "home" if repair.kept.path == repair.home else "files"
    return Check(
        name, "bad", f"{repair.kept.path} has mode {repair.mode:04o}: other users can {may} it", repair.command, repair
    )


def _space(home: Path) -> Check:
    found = os.statvfs(home)
    free = found.f_bavail * found.f_frsize
    words = f"{free >> 20} MiB free"
    if free < _LEAST_FREE_BYTES:
        return Check("disk", "bad", words, f"free up space on the disk of {home}")
    return Check("disk", "ok", words)


def _settings(home: Path) -> Check:
    path = home / "config.toml"
    try:
        load_settings(path)
    except AileronError as failed:
        return Check("settings", "bad", str(failed), f"edit {path}")
    return Check("settings", "ok", str(path) if path.exists() else "the defaults")


def _daemon(supervisor: Supervisor) -> Iterator[Check]:
    try:
        running = supervisor.maybe_fetch(Status, "/v1/status")
    except Problem as problem:
        yield Check("daemon", "bad", problem.why or problem.what, problem.fix)
        return
    if running is None:
        yield Check("daemon", "note", "not running; it starts with the first command that needs it")
        yield Check(
            "vault",
            "note",
            "there" if (supervisor.home / "vault.json").exists() else "none; to create it: aileron vault init",
        )
        yield Check(
            "decisions", "note", "unlock the vault in a running daemon to see who signs", "aileron daemon start"
        )
        return
    if running.version == __version__:
        yield Check("daemon", "ok", f"running, pid {running.pid}")
    else:
        words = f"version {running.version}, but this command is version {__version__}"
        yield Check("daemon", "bad", words, "aileron daemon restart", ByHand.INTERRUPTS)
    yield _vault(running.vault)
    yield _decisions(running)
    if (waiting := kept_back(running)) is not None:
        yield Check("settings", "note", waiting, "aileron approval list")


def _decisions(running: Status) -> Check:
    """Check whether decisions are signed, as the daemon reports."""
    words = signed_by(running)
    match running.approver.status:
        case "none":
            return Check("decisions", "note", words, "aileron approver init", ByHand.VAULT)
        case "ready":
            return Check("decisions", "ok", words)
        case "locked":
            return Check("decisions", "note", words, "aileron vault unlock", ByHand.VAULT)
        case _:
            return Check("decisions", "bad", words, "aileron approver status")


def _vault(found: VaultState) -> Check:
    if not found.exists:
        words = "none; connectors that use a credential need one"
        return Check("vault", "note", words, "aileron vault init", ByHand.VAULT)
    if found.problem:
        return Check("vault", "bad", found.problem, "aileron vault status")
    if found.locked:
        return Check("vault", "note", "locked", "aileron vault unlock", ByHand.VAULT)
    return Check("vault", "ok", "unlocked")


def print_checks(checks: list[Check], *, explained: bool = False) -> None:
    """Print all checks. With `explained`, print for each failed check the reason why its fix is left to the person."""
    if not output.is_terminal():
        output.print_table((), [(check.state, check.name, check.found, check.fix or "") for check in checks], empty="")
        return
    words = {"ok": output.styled("ok", "bold"), "note": "--", "bad": output.styled("no", "red")}
    width = max(len(check.name) for check in checks)
    indent = " " * (width + 6)
    for check in checks:
        first, *rest = output.folded(visible(check.found), len(indent))
        output.write(f"{words[check.state]}  {check.name.ljust(width)}  {first}")
        for line in rest:
            output.write(indent + line)
        if check.fix:
            for line in output.labelled(f"{indent}fix: ", visible(check.fix)):
                output.write(line)
            if explained and check.state == "bad" and isinstance(check.repair, ByHand):
                output.write(f"{indent}left to you: {check.repair.value}")
