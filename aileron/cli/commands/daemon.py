"""`aileron daemon`: commands for the daemon. Any command that needs the daemon starts it; these commands do everything else."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Annotated, Any

from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Option
from aileron.cli.problem import FAILED, UNREACHABLE, Problem
from aileron.cli.supervisor import Supervisor, read
from aileron.cli.table import import_msgspec
from aileron.client import START_DEADLINE_S, Client, DaemonUnreachable, home_directory
from aileron.model.visible import visible_lines

if TYPE_CHECKING:
    from pathlib import Path

    from aileron.api.daemon import Status

__all__ = ["facts_of", "install", "logs", "not_running", "restart", "start", "status", "stop", "uninstall"]

_STOP_S = 30.0
"""Seconds to wait for the daemon to stop: five for responses in progress, at most thirty to record outcomes on a slow disk.

A longer wait means that it hangs.
"""
_TAIL_BYTES = 1 << 20
_FOLLOW_S = 0.3
_LOOK_AGAIN_S = 0.1


def start() -> None:
    """Start the daemon, unless it is already running."""
    supervisor = Supervisor()
    if (running := _maybe_status(supervisor)) is not None:
        output.note(f"already running, pid {running.pid}")
        return
    client = Client(supervisor.home)
    try:
        client.start()
    except (DaemonUnreachable, OSError) as error:
        raise Problem.unreachable(str(error)) from None
    # A request for its status would make it build the rooms, which no client needs yet.
    pid = client.announced_pid() or _status(supervisor).pid
    output.note(f"started, pid {pid}")


def stop() -> None:
    """Stop the daemon.

    Interrupted runs are recorded as unknown, and the vault is locked.
    """
    supervisor = Supervisor()
    ended: int | None = None
    try:
        running = _maybe_status(supervisor)
    # It runs, but cannot report its status, for instance because the vault's file is damaged
    except Problem as problem:
        if problem.exit_code == UNREACHABLE:
            raise
    else:
        if running is None:
            output.note("no daemon is running")
            return
        ended = _watch(running.pid)
    from aileron.api.daemon import Stopping

    try:
        supervisor.fetch(Stopping, "POST", "/v1/stop", look="aileron daemon status")
        if ended is not None and not select.select([ended], [], [], _STOP_S)[0]:
            raise Problem.unreachable(f"the daemon is still running {_STOP_S:g} s after it was told to stop")
    finally:
        if ended is not None:
            os.close(ended)
    output.note("stopped")


def restart() -> None:
    """Stop the daemon, if it is running, and start it again.

    Interrupted runs are recorded as unknown, and the vault is locked. If a service runs the daemon, the service starts it
    again.
    """
    from aileron.cli.commands.launch import is_vault_locked
    from aileron.cli.service import UNIT, Service

    supervisor, service = Supervisor(), Service()
    stop()
    if service.runs(supervisor.home) and service.has_manager():
        service.ask("start", UNIT)
        output.note(f"started by systemd, pid {_wait_started(supervisor).pid}")
    else:
        start()
    if is_vault_locked(_status(supervisor)):
        output.note("the vault is locked: aileron vault unlock")


def status(as_json: AsJson = False) -> None:
    """Show whether the daemon is running.

    Exit code 69 means that it is not.
    """
    running = _maybe_status(Supervisor())
    if running is None:
        raise not_running()
    output.print_object(running, facts_of(running), as_json=as_json)


def logs(
    lines: Annotated[int, Option("-n", "--lines", metavar="N", min=1, help="Number of lines to show.")] = 50,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new lines until interrupted.")] = False,
) -> None:
    """Print the end of the daemon's log."""
    path = home_directory() / "logs" / "daemon.log"
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _TAIL_BYTES))
            tail = log.read().decode("utf-8", "replace")
            for line in visible_lines(tail.rstrip("\n"))[-lines:]:
                output.write(line)
            if follow:
                _follow(log, path)
    except FileNotFoundError:
        raise Problem.missing(f"no log yet at {path}", fix="aileron daemon start") from None


def install() -> None:
    """Install a systemd user service that starts the daemon at login.

    The service starts at once. It stops when you log out, unless you run `loginctl enable-linger`.
    """
    from aileron.cli.service import UNIT, Service

    supervisor, service = Supervisor(), Service()
    service.check_systemd()
    running = _maybe_status(supervisor)
    service.write(supervisor.home)
    output.note(f"written: {service.path}")
    if not service.has_manager():
        raise Problem(
            "the unit is written, but nothing starts it yet",
            exit_code=FAILED,
            why="no user service manager is running: it needs a login session, which `su` does not start",
            fix=f"systemctl --user enable --now {UNIT}",
        )
    service.ask("daemon-reload")
    if running is not None:
        service.ask("enable", UNIT)
        output.note(f"enabled, starts at your next login; a daemon is already running, pid {running.pid}")
        output.note("to switch now: aileron daemon restart")
        return
    service.ask("enable", "--now", UNIT)
    output.note(f"enabled and started, pid {_wait_started(supervisor).pid}")


def uninstall() -> None:
    """Stop the systemd user service and remove it.

    Interrupted runs are recorded as unknown, and the vault is locked.
    """
    from aileron.cli.service import UNIT, Service

    service = Service()
    if not service.is_written():
        raise Problem.missing(f"no unit at {service.path}", fix="aileron daemon install")
    has_manager = service.has_manager()
    if has_manager:
        service.ask("disable", "--now", UNIT)
    service.remove()
    if has_manager:
        service.ask("daemon-reload")
    output.note(f"removed: {service.path}")


def facts_of(running: Status) -> list[tuple[str, str]]:
    """Return the facts about a running daemon that `aileron daemon status` prints."""
    return [
        ("daemon", f"running, pid {running.pid}"),
        ("version", running.version),
        ("since", output.local_time(running.started_at)),
        ("home", running.home),
        ("jail", f"{len(running.jail.layers)} layers in force"),
    ]


def not_running() -> Problem:
    """Return the problem for a daemon that is not running: exit code 69."""
    return Problem(
        "no daemon is running",
        exit_code=UNREACHABLE,
        name="daemon_unreachable",
        why="it starts with the first command that needs it",
        fix="aileron daemon start",
    )


def _status(supervisor: Supervisor) -> Status:
    return supervisor.fetch(_type_of_status(), "GET", "/v1/status")


def _maybe_status(supervisor: Supervisor) -> Status | None:
    """Return the daemon's status; None if none runs."""
    answer = supervisor.maybe_look("/v1/status")
    return None if answer is None else read(_type_of_status(), answer.body)


def _type_of_status() -> type[Status]:
    """Return the type Status, imported only once a daemon runs, because the command then starts in half the time."""
    import_msgspec()
    from aileron.api.daemon import Status

    return Status


def _wait_started(supervisor: Supervisor) -> Status:
    """Wait until the service's daemon responds, and return its status. Raises Problem if that takes too long."""
    until = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < until:
        if (running := _maybe_status(supervisor)) is not None:
            return running
        time.sleep(_LOOK_AGAIN_S)
    raise Problem.unreachable(
        f"the service was started, but no daemon answered within {START_DEADLINE_S:g} s",
        fix="systemctl --user status aileron.service",
    )


def _watch(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, pidfd_open(2); None if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def _follow(log: Any, path: Path) -> None:
    """Print new lines of the log, and continue with the new file when the log is rotated."""
    unfinished = b""
    while True:
        data = log.read(1 << 16)
        *whole, unfinished = (unfinished + data).split(b"\n")
        for line in whole:
            output.write("\n".join(visible_lines(line.decode("utf-8", "replace"))))
        if data:
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino != os.fstat(log.fileno()).st_ino:
                with path.open("rb") as newer:
                    return _follow(newer, path)
        time.sleep(_FOLLOW_S)
