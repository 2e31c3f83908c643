"""Copies of a vault: taken byte for byte, verified whole, and restored without losing the current file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.vault import Vault, VaultLender
from aileron.vault.copies import read_copy, write_copy
from tests.vault import page_reader
from tests.vault.conftest import BASIC, CANARY, OTHER, PASSPHRASE, Clock, refused, use, verify, write


def put_back(vault: Vault, copy: bytes, passphrase: bytes = PASSPHRASE, above: int = 0) -> Path | None:
    """Verify a copy and restore it; return the path to which the current file was moved."""
    found = vault.copy(copy, Secret(passphrase), "the copy")
    try:
        return vault.put_back(found, above).aside
    finally:
        found.wipe()


def lent(vault: Vault) -> bytes:
    """Return the value that the mail binding is lent."""
    with VaultLender(vault).lend(use(BASIC)) as loan:
        return loan.secret.reveal()


def test_a_backup_needs_an_open_vault_or_the_passphrase(vault: Vault, path: Path, made: bytes) -> None:
    """The backup is the file, byte for byte. A locked vault needs the right passphrase, and stays locked."""
    assert vault.backup().data == made
    vault.lock()
    assert vault.backup(Secret(PASSPHRASE)).data == made
    assert vault.is_locked
    with refused(FailureClass.VAULT_LOCKED):
        vault.backup()
    with refused(FailureClass.UNAUTHORIZED):
        vault.backup(Secret(b"a wrong one"))


def test_a_vault_that_does_not_verify_is_not_backed_up(vault: Vault, path: Path, made: bytes, key: bytes) -> None:
    """A damaged file, an older one, and a value that does not open under a good seal are reported, and nothing is copied."""
    vault.set_secret("mail", Secret(OTHER))
    newest = path.read_bytes()
    damaged = bytearray(newest)
    damaged[200] ^= 1
    spoilt = page_reader.load(path)
    spoilt["secrets"][0]["version"] += 1
    for data in (bytes(damaged), made, page_reader.canonical(page_reader.seal(spoilt, key)) + b"\n"):
        write(path, data)
        with refused(FailureClass.HASH_MISMATCH):
            vault.backup()
    write(path, newest)
    assert vault.backup().data == newest


def test_a_restored_copy_is_locked_and_has_the_newest_generation_and_the_old_file_is_kept(
    vault: Vault, path: Path, made: bytes
) -> None:
    """The copy gets a generation above all earlier ones, so that it is the newest; the replaced file is moved aside."""
    vault.set_secret("mail", Secret(OTHER))
    vault.set_secret("later", Secret(OTHER))
    newest = path.read_bytes()
    aside = put_back(vault, made)

    assert aside is not None
    assert aside.parent == path.parent
    assert (aside.read_bytes(), aside.stat().st_mode & 0o777) == (newest, 0o600)
    assert (vault.is_locked, vault.status().generation) == (True, 8)
    vault.unlock(Secret(PASSPHRASE))
    assert lent(vault) == CANARY
    assert [info.name for info in vault.secrets()] == ["mail", "tickets"]
    verify(vault)
    vault.set_secret("later", Secret(OTHER))
    assert sorted(os.listdir(path.parent)) == sorted(["vault.json", "vault.json.lock", aside.name])


def test_a_file_from_before_a_restore_is_refused_as_older(vault: Vault, path: Path, made: bytes) -> None:
    """Both the replaced file and the backup are older than what this process has seen last."""
    vault.set_secret("mail", Secret(OTHER))
    aside = put_back(vault, made)
    assert aside is not None
    restored = path.read_bytes()
    for older in (aside.read_bytes(), made):
        write(path, older)
        with refused(FailureClass.HASH_MISMATCH) as refusal:
            vault.unlock(Secret(PASSPHRASE))
        assert "older copy" in refusal.message
    write(path, restored)
    vault.unlock(Secret(PASSPHRASE))


def test_the_generation_after_a_restore_exceeds_those_of_the_process_and_the_file(
    vault: Vault, path: Path, made: bytes
) -> None:
    """The larger of the two counts; an impossible generation in the file is believed only up to a bound."""
    put_back(vault, made, above=41)
    assert vault.status().generation == 42
    claims = page_reader.load(path)
    claims["generation"] = 50
    page_reader.store(path, claims)
    put_back(vault, made)
    assert vault.status().generation == 51
    claims["generation"] = 2**53 - 1
    page_reader.store(path, claims)
    put_back(vault, made)
    assert vault.status().generation == 51 + 1_000_000 + 1
    vault.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.INVALID_REQUEST):
        put_back(vault, made, above=2**53 - 1)


def test_a_restored_copy_of_another_vault_has_that_vault_s_passphrase_and_codes(
    vault: Vault, path: Path, tmp_path: Path
) -> None:
    """The old passphrase does not open it."""
    elsewhere = Vault(tmp_path / "other.json", clock=Clock())
    codes = elsewhere.create(Secret(b"of another vault"), recovery_codes=True)
    elsewhere.lock()
    data = (tmp_path / "other.json").read_bytes()
    with refused(FailureClass.UNAUTHORIZED):
        put_back(vault, data)
    assert lent(vault) == CANARY
    put_back(vault, data, codes[3].reveal())
    with refused(FailureClass.UNAUTHORIZED):
        vault.unlock(Secret(PASSPHRASE))
    vault.unlock(Secret(b"of another vault"))
    assert vault.secrets() == ()


def test_a_copy_can_be_restored_where_no_vault_exists(absent: Vault, tmp_path: Path, made: bytes) -> None:
    """An example is another machine: the directory is created with mode 0700."""
    assert put_back(absent, made) is None
    file = tmp_path / "home" / ".aileron" / "vault.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    absent.unlock(Secret(PASSPHRASE))
    assert lent(absent) == CANARY


@pytest.mark.parametrize("how", ["a flipped bit", "cut short", "empty", "another spelling", "a spoilt value"])
def test_an_invalid_copy_is_not_restored(vault: Vault, path: Path, made: bytes, key: bytes, how: str) -> None:
    """The error names the copy; the vault stays open, and its file unchanged."""
    flipped, spoilt = bytearray(made), page_reader.load(path)
    flipped[300] ^= 4
    spoilt["secrets"][1]["updated_ms"] += 1
    copies = {
        "a flipped bit": bytes(flipped),
        "cut short": made[:-40],
        "empty": b"",
        "another spelling": made.replace(b'"format":1', b'"format": 1'),
        "a spoilt value": page_reader.canonical(page_reader.seal(spoilt, key)) + b"\n",
    }
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        put_back(vault, copies[how])
    assert refusal.message.startswith("the copy is not a valid backup of a vault")
    assert path.read_bytes() == made
    assert lent(vault) == CANARY


@pytest.mark.parametrize("how", ["a symbolic link", "open to others", "damaged", "larger than a vault"])
def test_a_restore_moves_any_file_at_the_vault_s_path_aside(path: Path, made: bytes, how: str) -> None:
    """A restore must work for a vault that nobody can open, so the old file is only renamed."""
    if how == "a symbolic link":
        path.rename(path.with_name("real.json"))
        path.symlink_to("real.json")
    elif how == "open to others":
        path.chmod(0o644)
    elif how == "damaged":
        path.write_bytes(b"{")
    else:
        os.truncate(path, (16 << 20) + 1)
    kind = path.lstat().st_mode
    vault = Vault(path, clock=Clock())
    aside = put_back(vault, made)
    assert aside is not None
    assert aside.lstat().st_mode == kind
    assert path.lstat().st_mode & 0o170777 == 0o100600
    vault.unlock(Secret(PASSPHRASE))
    assert lent(vault) == CANARY
    vault.lock()
    if how == "a symbolic link":
        assert path.with_name("real.json").read_bytes() == made


def test_a_copy_is_written_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    """Neither the umask nor a directory that is open to others changes that."""
    tmp_path.chmod(0o777)
    file, before = tmp_path / "copy", os.umask(0)
    try:
        write_copy(file, b"sealed", replace=False, vault=tmp_path / "vault.json")
    finally:
        os.umask(before)
    assert (read_copy(file), file.stat().st_mode & 0o7777) == (b"sealed", 0o600)
    assert os.listdir(tmp_path) == ["copy"]


def test_a_copy_replaces_an_existing_file_only_on_request(tmp_path: Path) -> None:
    """Only a regular file is replaced: never a link, a directory or a pipe, nor the vault itself under any name."""
    file, vault = tmp_path / "copy", tmp_path / "vault.json"
    file.write_bytes(b"old")
    vault.write_bytes(b"vault")
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        write_copy(file, b"new", replace=False, vault=vault)
    assert ("--replace" in refusal.message, file.read_bytes()) == (True, b"old")
    write_copy(file, b"new", replace=True, vault=vault)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)

    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.link(vault, tmp_path / "same")
    for name in ("link", "directory", "pipe", "same", "vault.json"):
        with refused(FailureClass.INVALID_REQUEST):
            write_copy(tmp_path / name, b"new", replace=True, vault=vault)
    assert vault.read_bytes() == b"vault"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("access", [read_copy, lambda file: write_copy(file, b"x", replace=True, vault=file)])
def test_an_unusable_path_for_a_copy_is_reported(tmp_path: Path, access: Callable[[Path], object]) -> None:
    """The directory is missing, the name is invalid, or the path is relative: to which directory would be unclear."""
    with refused(FailureClass.NOT_FOUND):
        access(tmp_path / "none" / "copy")
    for path in (Path("copy"), Path("/"), tmp_path / "a\0b", tmp_path / ("x" * 5000)):
        with refused(FailureClass.INVALID_REQUEST):
            access(path)


def test_a_directory_in_which_no_copy_can_be_created_is_reported(tmp_path: Path) -> None:
    """Directories of the kernel and removed ones report "no such file" when a file is created in them."""
    with refused(FailureClass.NOT_FOUND) as seen:
        write_copy(Path("/proc/self/copy"), b"x", replace=False, vault=tmp_path / "vault.json")
    assert seen.message == "/proc/self is gone, or does not accept files: choose another directory"


def test_a_copy_is_read_only_from_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    """A pipe must not block the reader, and a file larger than any vault is not read to its end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", (16 << 20) + 1)
    for name, words in (("pipe", "not a regular file"), ("large", "larger than"), (".", "")):
        with refused(FailureClass.INVALID_REQUEST) as refusal:
            read_copy(tmp_path / name)
        assert words in refusal.message
