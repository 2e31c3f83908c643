"""The vault's place on disk: who may touch it, and that a crash at any moment does no harm."""

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
    """Return the permission bits of a path."""
    return path.stat().st_mode & 0o7777


def test_a_vault_is_created_for_its_owner_alone_under_any_umask(absent: Vault, tmp_path: Path) -> None:
    """The file has mode 0600 and its directories 0700, also after a change."""
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
def test_a_vault_file_that_others_may_access_is_refused_with_the_fix(locked: Vault, path: Path, bits: int) -> None:
    """Any bit for group or others is refused, for reading and for unlocking; with 0600 it is read."""
    path.chmod(bits)
    for attempt in (locked.bindings, lambda: locked.unlock(Secret(PASSPHRASE))):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            attempt()
        assert f"chmod 600 {path}" in refusal.message.replace("chmod 400", "chmod 600")
    path.chmod(0o600)
    assert len(locked.bindings()) == 2


@pytest.mark.parametrize("bits", [0o750, 0o705, 0o770, 0o701])
def test_a_vault_directory_that_others_may_access_is_refused(locked: Vault, path: Path, bits: int) -> None:
    """A user who may write there could replace the file, and one who may read there could watch it."""
    path.parent.chmod(bits)
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        locked.bindings()
    assert f"chmod 700 {path.parent}" in refusal.message
    path.parent.chmod(0o700)
    assert len(locked.bindings()) == 2


def test_permissions_are_checked_before_every_change(vault: Vault, path: Path) -> None:
    """They may have been changed since the vault was opened."""
    path.chmod(0o644)
    with refused(FailureClass.INVALID_REQUEST):
        vault.set_secret("mail", Secret(OTHER))
    path.chmod(0o600)
    vault.set_secret("mail", Secret(OTHER))


def planted_link(path: Path) -> None:
    """Replace the file by a link to it."""
    path.rename(path.with_name("real.json"))
    path.symlink_to("real.json")


def dangling_link(path: Path) -> None:
    """Replace the file by a link to where a file would be created."""
    path.unlink()
    path.symlink_to(path.with_name("elsewhere.json"))


def fifo(path: Path) -> None:
    """Replace the file by a pipe without a writer: opening it must not wait."""
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path: Path) -> None:
    """Replace the file by a directory."""
    path.unlink()
    path.mkdir(0o700)


@pytest.mark.parametrize("plant", [planted_link, dangling_link, fifo, directory])
def test_a_vault_is_accepted_only_in_a_regular_file(path: Path, plant: Any) -> None:
    """Reading, unlocking and creating are refused, and nothing is created behind a link."""
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


def test_a_directory_that_is_a_link_is_refused(path: Path) -> None:
    """Only the last part of the path is checked: it is opened without following links."""
    link = path.parent.with_name("link")
    link.symlink_to(path.parent)
    with refused(FailureClass.INVALID_REQUEST):
        Vault(link / "vault.json").bindings()
    assert len(Vault(path).bindings()) == 2


def test_a_file_or_directory_of_another_user_is_refused(path: Path) -> None:
    """Root gives its own files away for the test; any other user tries files of root."""
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


def test_a_vault_file_above_the_size_limit_is_refused_and_not_read(path: Path) -> None:
    """A file one byte larger than a vault may be is refused by its length alone."""
    os.truncate(path, (16 << 20) + 1)
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        Vault(path).bindings()
    assert "larger than" in refusal.message


def probe(path: Path, how: str, what: str = "set") -> list[dict[str, Any]]:
    """Return the reports of crash_probe.py."""
    told = python(Path(__file__).with_name("crash_probe.py"), path, derived.folder(), how, what)
    return [json.loads(line) for line in told.splitlines()]


def test_a_kill_at_any_step_of_a_change_leaves_the_old_or_the_new_vault_file(path: Path) -> None:
    """The process is killed before and after each call of a change, and in the middle of a write: the file is whole and
    verified, with nothing in the clear.

    The rename is the step that replaces the old file; the next change removes whatever a crash leaves behind.
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
def test_a_kill_during_a_rotation_or_restore_leaves_the_old_or_the_new_vault(path: Path, what: str) -> None:
    """Each opens with its own passphrase, at every step; a restore never loses the vault that it replaces."""
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
def test_a_failing_system_call_during_a_rotation_or_restore_leaves_a_usable_vault(path: Path, what: str) -> None:
    """An I/O error at any step or a full disk is reported, and the old or the new vault remains usable."""
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


def test_a_failing_system_call_fails_only_the_change_in_progress(path: Path) -> None:
    """An I/O error or a full disk at any step is an AileronError with the old file or the new one, and the next change works."""
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


def test_a_full_disk_leaves_the_vault_and_its_file_unchanged(vault: Vault, path: Path, made: bytes) -> None:
    """A file size limit simulates the full disk. The vault in memory still agrees with the file."""
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


def test_an_unfinished_vault_file_of_a_crash_is_never_read(vault: Vault, path: Path, made: bytes) -> None:
    """An unfinished file beside the vault changes nothing, and the next change removes it."""
    leftover = path.with_name("vault.json.0123456789abcdef.tmp")
    write(leftover, b"{")
    assert len(Vault(path).bindings()) == 2
    vault.set_secret("mail", Secret(OTHER))
    assert not leftover.exists()
    assert path.read_bytes() != made
