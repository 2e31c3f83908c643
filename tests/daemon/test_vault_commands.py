"""`aileron vault` with a real daemon, by script and by hand: ways to unlock, another passphrase, backups, the
desktop's keyring.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.extras import install_command
from tests.cli.command import Command
from tests.support.home import PASSPHRASE, DaemonHome, daemon_home

pytestmark = pytest.mark.jail
NEW = "another horse battery"
QUESTION = "Vault passphrase"
OR_CODE = "Vault passphrase, or a recovery code: "


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """Start a home without a vault."""
    with daemon_home() as made:
        made.ask("GET", "/healthz")
        yield made


@pytest.fixture
def aileron(home: DaemonHome) -> Command:
    """Return the command line of that home."""
    return Command(home.path)


def status(home: DaemonHome) -> dict[str, Any]:
    """Return the vault's status."""
    found: dict[str, Any] = home.must("GET", "/v1/vault/status")
    return found


def test_recovery_codes_are_printed_once_and_unlock_the_vault(home: DaemonHome, aileron: Command) -> None:
    """The codes are on standard output only, so that a script can keep them; a code may be typed in lower case, and
    the terminal does not show it.
    """
    made = aileron("vault", "init", "--recovery-codes", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    codes = made.out.split()
    assert (made.code, len(codes)) == (0, 4)
    assert not any(code in made.err for code in codes)
    assert "4 recovery codes" in aileron("vault", "status").out

    aileron("vault", "lock")
    typed = codes[1].lower()
    said = aileron.at_terminal("vault", "unlock", answers=[(OR_CODE, typed)])
    assert (said.code, typed in said.out, status(home)["locked"]) == (0, False, False)
    aileron("vault", "lock")
    wrong = typed[:-1] + ("2" if typed[-1] != "2" else "3")
    said = aileron.at_terminal("vault", "unlock", answers=[(OR_CODE, wrong)] * 3).exits(6)
    assert "typing mistake in group 7 of the recovery code" in " ".join(said.out.split())


def test_a_recovery_code_replaces_a_forgotten_passphrase(home: DaemonHome, aileron: Command) -> None:
    """A mistyped code is asked for again; afterwards the old passphrase and all codes are invalid."""
    codes = aileron("vault", "init", "--recovery-codes", AILERON_VAULT_PASSPHRASE=PASSPHRASE).out.split()
    aileron("vault", "lock")
    new = "New vault passphrase"
    slip = codes[0][:-1] + ("2" if codes[0][-1] != "2" else "3")
    answers = [(OR_CODE, slip), (f"{new}: ", NEW), (f"{new}, again: ", NEW), (OR_CODE, codes[0])]
    said = aileron.at_terminal("vault", "rotate", answers=answers).exits(0)
    assert NEW not in said.out
    assert "older copies of the vault: the old passphrase, the old recovery codes" in " ".join(said.out.split())
    assert (status(home)["locked"], status(home)["recovery_codes"]) == (False, 0)
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 6
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=codes[1]).code == 6
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=NEW).code == 0


def test_a_script_rotates_the_vault_with_variables_or_files(home: DaemonHome, aileron: Command, tmp_path: Path) -> None:
    """A file has precedence over its variable, for both passphrases; without a new one, the error names the ways to give it."""
    old, new = tmp_path / "old", tmp_path / "new"
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    said = aileron("vault", "rotate", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    assert (said.code, "AILERON_NEW_VAULT_PASSPHRASE, --new-passphrase-file" in said.err) == (2, True)
    both = {"AILERON_VAULT_PASSPHRASE": PASSPHRASE, "AILERON_NEW_VAULT_PASSPHRASE": NEW}
    assert aileron("vault", "rotate", **both).code == 0
    old.write_text(NEW + "\n")
    new.write_text(PASSPHRASE + "\n")
    words = ("vault", "rotate", "--passphrase-file", str(old), "--new-passphrase-file", str(new))
    assert aileron(*words, **both).code == 0
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
    old.unlink()


def test_vault_rotate_passes_no_passphrase_on_to_the_daemon(home: DaemonHome, aileron: Command) -> None:
    """The daemon that the command starts has neither variable in its environment."""
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    home.stop()
    both = {"AILERON_VAULT_PASSPHRASE": PASSPHRASE, "AILERON_NEW_VAULT_PASSPHRASE": PASSPHRASE}
    assert aileron("vault", "rotate", **both, AILERON_SEEN="yes").code == 0
    environment = Path(f"/proc/{home.daemon_pid}/environ")
    if os.geteuid() == 0:  # not dumpable: other processes of the user cannot read it
        read = environment.read_bytes()
        assert b"VAULT_PASSPHRASE" not in read
    else:
        with pytest.raises(PermissionError):
            environment.read_bytes()


def test_a_vault_backup_is_written_and_restored(home: DaemonHome, aileron: Command, tmp_path: Path) -> None:
    """A backup overwrites a file only with --replace; a locked vault needs its passphrase, and stays locked."""
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    copy = tmp_path / "copy"
    assert aileron("vault", "backup", str(copy)).code == 0
    assert (copy.stat().st_mode & 0o777, copy.read_bytes()) == (0o600, (home.path / "vault.json").read_bytes())
    said = aileron("vault", "backup", str(copy))
    assert (said.code, "--replace" in said.err) == (2, True)
    aileron("vault", "lock")
    said = aileron("vault", "backup", str(copy), "--replace")
    assert (said.code, "--passphrase-file" in said.err) == (2, True)
    assert aileron("vault", "backup", str(copy), "--replace", AILERON_VAULT_PASSPHRASE="a wrong one").code == 6
    assert aileron("vault", "backup", str(copy), "--replace", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
    assert status(home)["locked"]

    assert aileron("secret", "set", "later", given="some value", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
    said = aileron("vault", "restore", str(copy), AILERON_VAULT_PASSPHRASE=PASSPHRASE).exits(0)
    assert "vault.until-" in said.err
    assert (status(home)["locked"], status(home)["secrets"]) == (True, 0)
    asked = [("Passphrase of the backup, or a recovery code: ", PASSPHRASE)]
    assert aileron.at_terminal("vault", "restore", str(copy), answers=asked).code == 0
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0


def test_a_vault_backup_can_be_restored_on_another_machine(home: DaemonHome, aileron: Command, tmp_path: Path) -> None:
    """The other home had no vault before, and the restored one can be unlocked."""
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
    aileron("secret", "set", "mail", given="some value")
    copy = tmp_path / "copy"
    aileron("vault", "backup", str(copy))
    with daemon_home() as elsewhere:
        there = Command(elsewhere.path)
        assert there("vault", "restore", str(copy), AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
        assert there("vault", "unlock", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
        assert there("secret", "list").out.split("\t")[0] == "mail"


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("keyring.backends.fail.Keyring", "no keyring found"),
        ("keyring.backends.null.Keyring", "did not return the stored key"),
    ],
)
def test_vault_creation_with_keyring_fails_without_a_usable_keyring(
    home: DaemonHome, aileron: Command, backend: str, words: str
) -> None:
    """The machine has no desktop, or its keyring stores nothing: the vault can be created without --keyring."""
    given = {"AILERON_VAULT_PASSPHRASE": PASSPHRASE, "PYTHON_KEYRING_BACKEND": backend}
    said = aileron("vault", "init", "--keyring", **given).exits(2)
    assert words in " ".join(said.err.split())
    assert "leave out --keyring" in said.err
    assert not status(home)["exists"]
    assert aileron("vault", "init", **given).code == 0
    said = aileron("vault", "unlock", "--keyring", **given)
    assert (said.code, "aileron vault rotate --keyring" in said.err) == (2, True)


def test_without_the_keyring_package_the_command_says_how_to_install_it(
    home: DaemonHome, aileron: Command, tmp_path: Path
) -> None:
    """The package is optional; everything else works without it."""
    (tmp_path / "keyring.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    said = aileron("vault", "init", "--keyring", AILERON_VAULT_PASSPHRASE=PASSPHRASE, PYTHONPATH=path)
    assert (said.code, install_command("keyring") in said.err) == (2, True)
    assert not status(home)["exists"]


def in_session(home: DaemonHome, script: str, tmp_path: Path) -> list[dict[str, Any]]:
    """Return what a script prints, each line parsed as JSON, in a desktop session of its own with a real Secret Service."""
    if missing := [name for name in ("dbus-run-session", "gnome-keyring-daemon") if shutil.which(name) is None]:
        if os.environ.get("CI"):  # a skip is not a pass
            pytest.fail(f"not installed: {missing}")
        pytest.skip(f"not installed: {missing}")
    unlock = 'eval "$(printf %s session-pw | gnome-keyring-daemon --unlock --components=secrets 2>/dev/null)"\n'
    for name in ("run", "home"):
        (tmp_path / name).mkdir(mode=0o700)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "AILERON_HOME": str(home.path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "aileron": f"{sys.executable} -m aileron",
        "python": sys.executable,
    }
    file = tmp_path / "session.sh"  # not an argument, which every process of this machine can read
    file.write_text(unlock + script)
    done = subprocess.run(
        ["dbus-run-session", "--", "bash", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


_SCRIPT = """
set -e
say() { printf '{"code": %d}\\n' "$1"; }
export AILERON_VAULT_PASSPHRASE='correct horse battery'
$aileron vault init --keyring
$aileron vault lock
unset AILERON_VAULT_PASSPHRASE
$aileron vault unlock --keyring && say $?
$aileron vault status --json | tr -d '\\n'; echo
id=$($aileron vault status --json | $python -c 'import json,sys; print(json.load(sys.stdin)["keyring"])')
export AILERON_VAULT_PASSPHRASE='correct horse battery' AILERON_NEW_VAULT_PASSPHRASE='correct horse battery'
$aileron vault rotate --keyring
$aileron vault status --json | tr -d '\\n'; echo
$python -c "import keyring; print('{\\"old\\": %d}' % (keyring.get_password('aileron vault', '$id') is not None))"
$aileron vault lock
$aileron vault unlock --keyring && say $?
$aileron vault rotate
$aileron vault unlock --keyring || say $?
"""


IN_A_FILE = """
import json, pathlib
from keyring.backend import KeyringBackend

PLACE = pathlib.Path(__file__).with_suffix(".json")


class Keyring(KeyringBackend):
    priority = 1
    get_password = lambda self, service, name: json.loads(PLACE.read_text()).get(name)
    set_password = lambda self, service, name, value: PLACE.write_text(json.dumps({name: value}))
"""


def test_a_command_offers_to_unlock_the_vault_with_the_keyring(
    home: DaemonHome, aileron: Command, tmp_path: Path
) -> None:
    """Enter alone accepts, for `vault unlock` and other commands; without a key there, the passphrase works."""
    (tmp_path / "in_a_file.py").write_text(IN_A_FILE)
    ring = {"PYTHON_KEYRING_BACKEND": "in_a_file.Keyring", "PYTHONPATH": str(tmp_path)}
    aileron("vault", "init", "--keyring", AILERON_VAULT_PASSPHRASE=PASSPHRASE, **ring).exits(0)
    or_enter = ", or Enter to use the desktop's keyring: "
    for words in (("vault", "unlock"), ("secret", "remove", "nothing")):
        aileron("vault", "lock")
        aileron.at_terminal(*words, answers=[(or_enter, "")], variables=ring)
        assert status(home)["locked"] is False

    aileron("vault", "lock")
    (tmp_path / "in_a_file.json").write_text("{}")
    said = aileron.at_terminal("vault", "unlock", answers=[(or_enter, ""), (or_enter, PASSPHRASE)], variables=ring)
    assert (said.code, status(home)["locked"]) == (0, False), said
    assert "it has no key for this vault; try again (2 left)" in " ".join(said.out.split())


def test_a_real_keyring_unlocks_the_vault_until_it_is_rotated(home: DaemonHome, tmp_path: Path) -> None:
    """The Secret Service over D-Bus, as on a desktop, stores the key, returns it, replaces it by another, and removes it."""
    first, before, after, old, second, third = in_session(home, _SCRIPT, tmp_path)

    assert (first, second, third) == ({"code": 0}, {"code": 0}, {"code": 2})
    assert before["keyring"] is not None
    assert before["keyring"] != after["keyring"]
    assert old == {"old": 0}
    assert status(home)["keyring"] is None
