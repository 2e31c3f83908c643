"""`aileron daemon install` and `uninstall`, with a scripted `systemctl` that records its arguments and starts the unit's command.
systemd-analyze checks that systemd itself accepts the unit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.cli.problem import Problem
from aileron.cli.service import unit_text
from tests.cli.command import Command, Said

SYSTEMCTL = """\
#!{python}
import os, pathlib, shlex, subprocess, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
if words[-1] == "is-system-running":
    print((here / ("user" if "--user" in words else "system")).read_text())
    sys.exit(1)  # as for `degraded`
with (here / "asked").open("a") as asked:
    print(*words, file=asked)
unit = pathlib.Path(os.environ["HOME"], ".config/systemd/user/aileron.service")
if words[1:3] == ["enable", "--now"] or words[1] == "start":
    command = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    process = subprocess.Popen(
        shlex.split(command.partition("=")[2]), cwd="/", stdin=-3, stdout=-3, stderr=-3, start_new_session=True, env={{}}
    )
    (here / "pid").write_text(str(process.pid))
if (here / "broken").exists():
    sys.exit("Failed to do it: \\x1b[31mno")
"""


class Machine:
    """A person's home directory, and a scripted systemctl first on PATH."""

    def __init__(self, folder: Path, aileron_home: Path) -> None:
        self.folder = folder
        self.unit = folder / ".config/systemd/user/aileron.service"
        self._bin = folder / "bin"
        self._bin.mkdir()
        program = self._bin / "systemctl"
        program.write_text(SYSTEMCTL.format(python=sys.executable))
        program.chmod(0o755)
        self.is_("running", user="degraded")
        self._command = Command(aileron_home)

    def is_(self, system: str, *, user: str) -> None:
        """Set the states that the system manager and the user manager report."""
        (self._bin / "system").write_text(system)
        (self._bin / "user").write_text(user)

    def __call__(self, *words: str, **more: str) -> Said:
        """Run `aileron daemon WORDS…`."""
        given = {"HOME": str(self.folder), "PATH": f"{self._bin}:{os.environ['PATH']}", "XDG_CONFIG_HOME": "", **more}
        return self._command("daemon", *words, **given)

    def breaks(self) -> None:
        """Make every later systemctl command fail."""
        (self._bin / "broken").touch()

    @property
    def asked(self) -> list[str]:
        """Commands that systemctl got, in order."""
        asked = self._bin / "asked"
        return asked.read_text().splitlines() if asked.exists() else []

    @property
    def started(self) -> int | None:
        """Process that the unit started."""
        pid = self._bin / "pid"
        return int(pid.read_text()) if pid.exists() else None


@pytest.fixture
def machine(tmp_path: Path, home: Path) -> Iterator[Machine]:
    """A machine with systemd and a user manager; a daemon that was started is stopped."""
    made = Machine(tmp_path, home)
    yield made
    made("stop")


def test_the_systemd_service_is_installed_started_and_removed(machine: Machine, home: Path) -> None:
    """The unit's own command starts the daemon of this home; uninstalling leaves nothing behind."""
    installed = machine("install")
    running = machine("status", "--json").json
    again = machine("install")
    restarted = machine("restart")
    first, second = running["pid"], machine("status", "--json").json["pid"]
    removed = machine("uninstall")

    assert installed.code == 0, installed
    assert (first != second == machine.started, running["home"]) == (True, str(home))
    assert restarted.err == f"stopped\nstarted by systemd, pid {second}\n"
    assert "a daemon is already running" in again.err
    assert removed.code == 0, removed
    assert not machine.unit.exists()
    assert machine.asked == [
        "--user daemon-reload",
        "--user enable --now aileron.service",
        "--user daemon-reload",
        "--user enable aileron.service",
        "--user start aileron.service",
        "--user disable --now aileron.service",
        "--user daemon-reload",
    ]


@pytest.mark.parametrize("state", ["offline", "no systemctl"])
def test_without_systemd_no_unit_file_is_written(machine: Machine, state: str) -> None:
    """The error says why, and how to start the daemon without systemd."""
    machine.is_("offline", user="")
    said = machine("install", **({"PATH": str(machine.folder)} if state != "offline" else {})).exits(1)
    assert "systemd is not running; nothing was written" in said.err
    assert ("does not run systemd" if state == "offline" else "`systemctl` is not installed") in said.err
    assert "fix: aileron daemon start" in said.err
    assert not machine.unit.exists()


def test_without_a_systemd_user_manager_the_unit_is_written_but_not_started(machine: Machine) -> None:
    """The error names the command that starts it; uninstalling works without the manager and removes the enabling link too."""
    machine.is_("running", user="")
    said = machine("install")
    wants = machine.unit.parent / "default.target.wants"
    wants.mkdir()
    (wants / "aileron.service").symlink_to(machine.unit)

    assert (said.code, machine.unit.exists(), machine.asked) == (1, True, [])
    assert "fix: systemctl --user enable --now aileron.service" in said.err
    assert machine("uninstall").code == 0
    assert not machine.unit.exists()
    assert list(wants.iterdir()) == []


def test_errors_of_systemctl_are_shown_with_control_characters_escaped(machine: Machine) -> None:
    """The fix is the command that failed."""
    machine.breaks()
    said = machine("install").exits(1)
    assert "Failed to do it: \\x1b[31mno" in said.err
    assert "fix: systemctl --user daemon-reload" in said.err


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_systemd_unit_of_another_program_is_neither_replaced_nor_removed(machine: Machine, kind: str) -> None:
    """The unit is a file of another program, or a link to one."""
    machine.unit.parent.mkdir(parents=True)
    other = machine.unit if kind == "file" else machine.folder / "other"
    other.write_text("[Service]\nExecStart=/bin/true\n")
    if kind == "link":
        machine.unit.symlink_to(other)

    for words in ("install", "uninstall"):
        said = machine(words)
        assert (said.code, "mv " in said.err) == (1, True), said
    assert other.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert machine.asked == []


def test_uninstalling_a_missing_unit_exits_with_3(machine: Machine) -> None:
    """The exit code is that of anything not found."""
    assert machine("uninstall").code == 3


def test_words_in_the_systemd_unit_are_quoted(tmp_path: Path) -> None:
    """Percent signs and quotes keep their meaning; characters that systemd would replace are refused."""
    text = unit_text("/opt/my py/python", Path('/h/50% "x"\\y'), {"AILERON_HOME": "/h/50%"})

    assert 'ExecStart="/opt/my py/python" "-m" "aileron.daemon" "/h/50%% \\"x\\"\\\\y"\n' in text
    assert 'Environment="AILERON_HOME=/h/50%%"\n' in text
    assert text.count("Environment=") == 1
    for name in ("$HOME", "a\nExecStartPre=x", "a\x1b"):
        with pytest.raises(Problem, match="cannot be written to a unit"):
            unit_text("/usr/bin/python3", Path("/h") / name)


def test_the_systemd_unit_passes_on_the_location_of_the_password_store() -> None:
    """The installing shell's store is used; nothing else of its environment is written to the file."""
    paths = {"PASSWORD_STORE_DIR": "/mail/store", "GNUPGHOME": "/mail/keys"}
    text = unit_text("/usr/bin/python3", Path("/h"), {**paths, "AILERON_VAULT_PASSPHRASE": "a canary", "HOME": "/h"})

    given = [line for line in text.splitlines() if line.startswith("Environment=")]
    assert given == [f'Environment="{name}={path}"' for name, path in paths.items()]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """systemd-analyze finds no unknown key and drops no word. Positive control: it reports a broken unit."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    unit = tmp_path / "aileron.service"
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    found = []
    for text in (unit_text(sys.executable, tmp_path / "a b"), "[Service]\nExecStart=/nowhere/at-all\nRestrt=no\n"):
        unit.write_text(text)
        done = subprocess.run(
            [analyze, "--user", "verify", "--man=no", str(unit)], env=given, capture_output=True, text=True, timeout=60
        )
        found.append(f"{done.stdout}{done.stderr}")

    assert "aileron.service" not in found[0], found[0]
    assert "aileron.service" in found[1]
