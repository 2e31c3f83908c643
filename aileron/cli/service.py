"""The daemon as a service of the user's systemd: the unit's text, its file, and requests to systemctl.

Runs in `aileron daemon install` and `uninstall`.

Rules
- Without systemd nothing is written. Without a user manager (no login session, a bare `su`) the unit is written but not started.
- A file with the unit's name is never replaced or removed if another program or a person wrote it.
- Every word in the unit is quoted for systemd; a word that cannot be quoted is refused.

Source: systemd.unit(5), systemd.service(5), systemd.exec(5), systemctl(1). Not here: what the daemon does (daemon/supervise.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aileron.cli.problem import FAILED, Problem

__all__ = ["UNIT", "Service", "unit_text"]

UNIT: Final = "aileron.service"
_OURS: Final = "# Written by `aileron daemon install`; `aileron daemon uninstall` removes it."
_SYSTEMCTL_S: Final = 60.0
"""Maximum seconds to wait for systemctl, because the daemon takes up to 30 s to stop and systemctl waits for that."""
_MAX_UNIT_BYTES: Final = 64 << 10
"""Maximum number of bytes that are read from a unit to see whether Aileron wrote it; Aileron's unit has 2 KiB."""
_MANAGER_STATES: Final = frozenset({"initializing", "starting", "running", "degraded", "maintenance", "stopping"})
"""Outputs of `systemctl is-system-running` if there is a manager. Without one, the output is `offline`, `unknown` or empty."""
_PATHS: Final = ("AILERON_HOME", "PASSWORD_STORE_DIR", "GNUPGHOME")
"""Variables to copy into the unit, because a service gets nothing that a shell exports: the home, and the paths of the user's
password store and of gpg's keys."""
_TEMPLATE: Final = """\
{ours}
[Unit]
Description=Aileron, the supervisor of what agents do
# A daemon that cannot start says why in the journal; five times in a minute are enough.
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
WorkingDirectory=/
{environment}Restart=on-failure
RestartSec=2
# The daemon alone is told to stop, and ends its jails itself, with their outcomes on record. It takes 30 s at most.
KillMode=mixed
TimeoutStopSec=45
# A jail that runs out of memory ends; the daemon goes on.
OOMPolicy=continue
# Jails get control groups of their own.
Delegate=yes
UMask=0077
LimitCORE=0
# Nothing here takes namespaces, mounts, privileges or system calls away (Private…, Protect…, Restrict…, SystemCallFilter,
# NoNewPrivileges): each jail is built out of them, and has less than any of these would leave.

[Install]
WantedBy=default.target
"""


def unit_text(python: str, home: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the text of the unit that runs the daemon of `home` with the interpreter `python`.

    The unit contains the variables in `_PATHS` that are set in `environment`, because they lead to the user's files.

    Raises Problem for a path that a unit cannot contain.
    """
    command = " ".join(_quoted(word) for word in (python, "-m", "aileron.daemon", str(home)))
    given = {name: path for name in _PATHS if (path := (environment or {}).get(name))}
    lines = [f"Environment={_quoted(f'{name}={Path(path).absolute()}')}\n" for name, path in given.items()]
    return _TEMPLATE.format(ours=_OURS, command=command, environment="".join(lines))


class Service:
    """The systemd unit of this user's daemon."""

    def __init__(self) -> None:
        configured = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
        self.path: Final = base / "systemd" / "user" / UNIT
        self._systemctl: Final = shutil.which("systemctl")

    def check_systemd(self) -> None:
        """Check that systemd runs this machine. Raises Problem otherwise."""
        why = None
        if self._systemctl is None:
            why = "`systemctl` is not installed"
        elif self._state() == "offline":
            why = "this system does not run systemd, as in most containers"
        if why is not None:
            raise Problem(
                "systemd is not running; nothing was written",
                exit_code=FAILED,
                why=f"{why}; without a service, the daemon starts with the first command that needs it",
                fix="aileron daemon start",
            )

    def has_manager(self) -> bool:
        """Return whether this user's service manager answers."""
        return self._systemctl is not None and self._state("--user") in _MANAGER_STATES

    def write(self, home: Path) -> None:
        """Write the unit file. Raises Problem if it cannot be written, or if its path has a file that is not Aileron's."""
        self._check_ours()
        text = unit_text(sys.executable, home, os.environ)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=f".{UNIT}.", delete=False) as made:
                made.write(text)
            Path(made.name).chmod(0o644)
            Path(made.name).replace(self.path)
        except OSError as error:
            raise Problem(f"{self.path}: {error.strerror}", exit_code=FAILED) from error

    def is_written(self) -> bool:
        """Return whether Aileron's unit is installed. Raises Problem if its path has a file that is not Aileron's."""
        self._check_ours()
        return self.path.exists()

    def runs(self, home: Path) -> bool:
        """Return whether Aileron's unit is installed and starts the daemon of this home."""
        try:
            return self.is_written() and _quoted(str(home)) in self.path.read_text(encoding="utf-8")
        except (Problem, OSError, ValueError):  # a foreign file, which is left alone
            return False

    def remove(self) -> None:
        """Remove the unit, and the link that enables it. Raises Problem if that fails."""
        try:
            for path in (self.path.parent / "default.target.wants" / UNIT, self.path):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Problem(f"{self.path}: {error.strerror}", exit_code=FAILED) from error

    def ask(self, *words: str) -> None:
        """Send a command to the user's service manager. Raises Problem with the manager's message if the command fails."""
        command = ["systemctl", "--user", *words]
        try:
            done = self._run("--user", *words)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Problem(
                "systemd reported an error", exit_code=FAILED, why=str(error), fix=" ".join(command)
            ) from error
        if done.returncode != 0:
            why = done.stderr.strip() or f"exit code {done.returncode}"
            raise Problem("systemd reported an error", exit_code=FAILED, why=why, fix=" ".join(command))

    def _state(self, *scope: str) -> str:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return self._run(*scope, "is-system-running").stdout.strip()
        return ""

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._systemctl), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SYSTEMCTL_S,
        )

    def _check_ours(self) -> None:
        if self.path.is_symlink():
            raise self._foreign("a symbolic link")
        try:
            with self.path.open("rb") as unit:
                text = unit.read(_MAX_UNIT_BYTES)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Problem(f"{self.path}: {error.strerror}", exit_code=FAILED) from error
        if not text.startswith(_OURS.encode()):
            raise self._foreign("a unit that `aileron daemon install` did not write")

    def _foreign(self, what: str) -> Problem:
        return Problem(f"{self.path} is {what}", exit_code=FAILED, fix=f"move it away: mv {self.path} {self.path}.old")


def _quoted(word: str) -> str:
    """Quote a word for a line of a unit and escape everything that systemd would replace.

    Raises Problem if the word cannot be quoted.
    """
    if not word.isprintable() or "$" in word:
        raise Problem.usage(f"{word!r} cannot be written to a unit", why="it contains `$` or a hidden character")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
