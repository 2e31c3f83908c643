"""Where the vault lies: who may touch it, and that no moment to die in is a bad one."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.vault import Vault
from tests.support import derived
from tests.vault.conftest import OTHER, PASSPHRASE, python, refused, write


def mode(path: Path) -> int:
    """Its permission bits."""
    return path.stat().st_mode & 0o7777


def test_a_vault_is_made_for_its_owner_alone_whatever_the_umask(absent: Vault, tmp_path: Path):
    """Under umask 0: 0600 in directories of 0700, and still so after a change."""
    before = os.umask(0)
    try:
        absent.create(Secret(PASSPHRASE))
        absent.set_secret("mail", Secret(OTHER))
    finally:
        os.umask(before)
    home = tmp_path / "home" / ".aileron"
    assert [mode(path) for path in (home.parent, home, home / "vault.json")] == [0o700, 0o700, 0o600]
    assert sorted(path.name for path in home.iterdir()) == ["vault.json", "vault.json.lock"]
    assert mode(home / "vault.json.lock") == 0o600


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_file_open_to_others_is_refused_with_the_command_that_closes_it(locked: Vault, path: Path, bits: int):
    """Any bit for group or others, for reading as for unlocking; closed again it is read."""
    path.chmod(bits)
    for attempt in (locked.bindings, lambda: locked.unlock(Secret(PASSPHRASE))):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            attempt()
        assert f"chmod 600 {path}" in refusal.message.replace("chmod 400", "chmod 600")
    path.chmod(0o600)
    assert len(locked.bindings()) == 2


@pytest.mark.parametrize("bits", [0o750, 0o705, 0o770, 0o701])
def test_a_directory_open_to_others_is_refused(locked: Vault, path: Path, bits: int):
    """Whoever may write there may replace the file, and whoever may read there may see it come and go."""
    path.parent.chmod(bits)
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        locked.bindings()
    assert f"chmod 700 {path.parent}" in refusal.message
    path.parent.chmod(0o700)
    assert len(locked.bindings()) == 2


def test_permissions_opened_behind_an_open_vault_stop_the_next_change(vault: Vault, path: Path):
    """They are looked at each time, not only once."""
    path.chmod(0o644)
    with refused(FailureClass.INVALID_REQUEST):
        vault.set_secret("mail", Secret(OTHER))
    path.chmod(0o600)
    vault.set_secret("mail", Secret(OTHER))


def planted_link(path: Path) -> None:
    """A link to the real file."""
    path.rename(path.with_name("real.json"))
    path.symlink_to("real.json")


def dangling_link(path: Path) -> None:
    """A link to where a file would be made."""
    path.unlink()
    path.symlink_to(path.with_name("elsewhere.json"))


def fifo(path: Path) -> None:
    """A pipe nobody writes to: opening it must not wait."""
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path: Path) -> None:
    """A directory."""
    path.unlink()
    path.mkdir(0o700)


@pytest.mark.parametrize("plant", [planted_link, dangling_link, fifo, directory])
def test_what_is_not_a_plain_file_is_refused(path: Path, plant: Any):
    """For reading, for unlocking and for making a new one; what is there stays."""
    plant(path)
    vault = Vault(path)
    assert vault.exists
    for attempt in (
        vault.bindings,
        lambda: vault.unlock(Secret(PASSPHRASE)),
        lambda: vault.create(Secret(PASSPHRASE)),
    ):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            attempt()
        assert "symbolic link" in refusal.message or "not a regular file" in refusal.message
    assert not path.with_name("elsewhere.json").exists()


def test_a_directory_that_is_a_link_is_refused(path: Path):
    """The last part of the way is opened without following."""
    link = path.parent.with_name("link")
    link.symlink_to(path.parent)
    with refused(FailureClass.INVALID_REQUEST):
        Vault(link / "vault.json").bindings()
    assert len(Vault(path).bindings()) == 2


def test_a_file_or_directory_of_another_user_is_refused(path: Path):
    """Root gives its own away; anybody else finds root's, whatever user that is where not all of them are there."""
    if os.geteuid() != 0:
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            Vault(Path("/etc/vault.json")).bindings()
        assert f"belongs to user {Path('/etc').stat().st_uid}, not to {os.geteuid()}" in refusal.message
        return
    for owned in (path, path.parent):
        os.chown(owned, 1001, -1)
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            Vault(path).bindings()
        assert f"belongs to user 1001, not to 0: chown 0 {owned}" in refusal.message
        os.chown(owned, 0, -1)
    assert len(Vault(path).bindings()) == 2


def test_a_huge_file_is_refused_and_not_read(path: Path):
    """One byte more than a vault may have; the length alone is enough."""
    os.truncate(path, (16 << 20) + 1)
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        Vault(path).bindings()
    assert "larger than" in refusal.message


def probe(path: Path, how: str, what: str = "set") -> list[dict[str, Any]]:
    """What crash_probe.py reports."""
    told = python(Path(__file__).with_name("crash_probe.py"), path, derived.folder(), how, what)
    return [json.loads(line) for line in told.splitlines()]


def test_killed_at_any_step_the_old_file_or_the_new_one_is_there(path: Path):
    """Before, after, and for a write in the middle of each call of a change: whole, verified, with nothing in the clear.

    The rename is where the one becomes the other, and what a crash leaves behind is removed by the next change.
    """
    reports = probe(path, "kill")

    for when in ("before", "half", "after"):
        calls = [(report["call"], report["found"]) for report in reports if report["when"] == when]
        assert {"open", "unlink", "write", "fchmod", "fsync", "rename", "close"} <= {call for call, _ in calls}
        turn = [call for call, _ in calls].index("rename") + (when != "after")
        assert {found for _, found in calls[:turn]} == {"old"}
        assert {found for _, found in calls[turn:]} == {"new"}
    assert any(report["left"] for report in reports)
    assert not any(report["leaks"] for report in reports)
    vault = Vault(path)
    vault.unlock(Secret(PASSPHRASE))
    vault.set_secret("mail", Secret(OTHER))
    vault.lock()
    assert sorted(os.listdir(path.parent)) == ["vault.json", "vault.json.lock"]


@pytest.mark.parametrize("what", ["rotate", "restore"])
def test_killed_while_it_is_rotated_or_put_back_the_old_vault_or_the_new_one_opens(path: Path, what: str):
    """Each with its own passphrase, at every step; and of a vault that is put back, the one before is never lost."""
    copy = Vault(path.with_name("copy.json"))
    copy.create(Secret(PASSPHRASE))
    copy.set_secret("mail", Secret(OTHER))
    copy.lock()
    reports = [report for report in probe(path, "kill", what) if report["when"] != "half" or report["call"] == "write"]

    assert {"open", "write", "fsync", "rename"} <= {report["call"] for report in reports}
    for when in ("before", "half", "after"):
        mine = [report for report in reports if report["when"] == when]
        if when == "half":
            assert {report["found"] for report in mine} == {"old"}
            continue
        turn = [report["call"] for report in mine].index("rename") + (when != "after")
        assert {report["found"] for report in mine[:turn]} == {"old"}
        assert {report["found"] for report in mine[turn:]} == {"new"}
        if what == "restore":
            assert all(any(name.startswith("vault.until-") for name in report["left"]) for report in mine[turn:])


@pytest.mark.parametrize("what", ["rotate", "restore"])
def test_a_failing_call_leaves_a_rotated_or_restored_vault_whole(path: Path, what: str):
    """An I/O error or a full disk at any step: a failure that says so, and the old vault or the new one, which goes on."""
    copy = Vault(path.with_name("copy.json"))
    copy.create(Secret(PASSPHRASE))
    copy.set_secret("mail", Secret(OTHER))
    copy.lock()
    for report in probe(path, "fail", what):
        if report["when"] == "again":  # a change after it, by whoever holds the vault
            assert report["again"] == ("fine" if what == "rotate" and report["raised"] else ""), report
        else:
            assert report["found"] in {"old", "new"}, report
        if report["call"] not in {"close", "open"}:  # open: also of a file that need not be there
            assert report["raised"] == "internal_error", report


def test_a_failing_call_fails_the_change_and_nothing_else(path: Path):
    """An I/O error or a full disk at any step: an AileronError, the old file or the new one, and the next change works."""
    reports = probe(path, "fail")

    once = [report for report in reports if report["when"] == "before"]
    again = [report for report in reports if report["when"] == "again"]
    assert {"open", "listdir", "write", "fchmod", "fsync", "rename"} <= {report["call"] for report in once}
    renamed = [report["call"] for report in once].index("rename")
    for at, report in enumerate(once):
        assert report["found"] == ("old" if at <= renamed else "new"), report
    tidied = [report["call"] for report in once].index("unlink") + 1
    assert [report["left"] for report in once[tidied:]] == [[]] * len(once[tidied:])
    for report in once + again:
        if report["call"] != "close":  # of a descriptor that was only read from: nothing is lost with it
            assert report["raised"] == "internal_error", report
    assert {(report["found"], report["again"]) for report in again if report["raised"]} == {("new", "fine")}


def test_a_full_disk_leaves_everything_as_it_was(vault: Vault, path: Path, made: bytes):
    """A real one, as far as a limit on file sizes goes: refused, told, and memory still agrees with the file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(AileronError) as caught:
            vault.set_secret("third", Secret(OTHER))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.failure.failure_class == FailureClass.INTERNAL_ERROR
    assert path.read_bytes() == made
    assert [info.name for info in vault.secrets()] == ["mail", "tickets"]
    assert sorted(os.listdir(path.parent)) == ["vault.json", "vault.json.lock"]
    vault.set_secret("third", Secret(OTHER))
    assert [info.name for info in vault.secrets()] == ["mail", "third", "tickets"]


def test_a_leftover_of_a_crash_is_never_read(vault: Vault, path: Path, made: bytes):
    """An unfinished file beside the vault changes nothing, and the next change takes it away."""
    leftover = path.with_name("vault.json.0123456789abcdef.tmp")
    write(leftover, b"{")
    assert len(Vault(path).bindings()) == 2
    vault.set_secret("mail", Secret(OTHER))
    assert not leftover.exists()
    assert path.read_bytes() != made
