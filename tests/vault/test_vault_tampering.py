"""The harm that an agent with a shell, or a failing disk, can do to the file, and that it is detected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.vault import Vault, VaultLender
from tests.vault import page_reader
from tests.vault.conftest import BASIC, CANARY, OTHER, PASSPHRASE, Clock, refused, use, verify, write

Json = dict[str, Any]


def outcome(vault: Vault) -> FailureClass:
    """Return how an open vault judges its file: not_found stands for verified (see `verify`)."""
    with pytest.raises(AileronError) as caught:
        vault.remove_secret("never-stored")
    return caught.value.failure.failure_class


def test_every_flipped_bit_of_the_vault_file_is_detected(vault: Vault, path: Path, made: bytes) -> None:
    """An open vault compares with the key in memory: of all variants only the file itself verifies."""
    assert outcome(vault) == FailureClass.NOT_FOUND
    found = set()
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(made):
            for bit in range(8):
                file.seek(at)
                file.write(bytes([byte ^ 1 << bit]))
                found.add(outcome(vault))
            file.seek(at)
            file.write(bytes([byte]))
    # invalid_request: the format number itself, become another number.
    assert found == {FailureClass.HASH_MISMATCH, FailureClass.INVALID_REQUEST}
    assert outcome(vault) == FailureClass.NOT_FOUND
    with VaultLender(vault).lend(use(BASIC)) as loan:
        assert loan.secret.reveal() == CANARY  # verified memory, whatever happened to the file


def to(*where: str | int, value: Any) -> Callable[[Json], None]:
    """Return a change that sets the part at `where` to `value`, or to the result of calling `value` with it."""

    def change(vault: Any) -> None:
        for step in where[:-1]:
            vault = vault[step]
        old = vault[where[-1]]
        vault[where[-1]] = value(old) if callable(value) else value

    return change


def other_base64(text: str) -> str:
    """Return base64 of other bytes of the same length."""
    return ("B" if text[0] == "A" else "A") + text[1:]


CHANGES = {
    "another user name": to("bindings", 1, "username", value="mallory"),
    "another connector": to("bindings", 1, "connector", value="github://mallory/aileron-connector-mail"),
    "another secret for a binding": to("bindings", 1, "secret", value="tickets"),
    "another name for a binding": to("bindings", 1, "name", value="basic/mail/work"),
    "a binding removed": to("bindings", value=lambda all_: all_[:1]),
    "a binding added": to("bindings", value=lambda all_: [*all_, {**all_[1], "name": "basic/zoo/x"}]),
    "another name for a secret": to("secrets", 1, "name", value="tickets2"),
    "another date": to("secrets", 0, "updated_ms", value=1_750_000_001_000),
    "another version": to("secrets", 0, "version", value=2),
    "another value": to("secrets", 0, "sealed", "ciphertext", value=other_base64),
    "another nonce": to("secrets", 0, "sealed", "nonce", value=other_base64),
    "another generation": to("generation", value=6),
    "another seal": to("seal", value=other_base64),
}
SLOT_CHANGES = {
    "another vault": to("vault", value="0" * 32),
    "another salt": to("slots", 0, "salt", value=other_base64),
    "another wrapped key": to("slots", 0, "key", "ciphertext", value=other_base64),
    "a dearer cost": to("slots", 0, "argon2id", "passes", value=4),
    "fewer lanes": to("slots", 0, "argon2id", "lanes", value=1),
}


def changed(path: Path, what: str) -> None:
    """Make one of the changes, well spelled and well formed."""
    vault = page_reader.load(path)
    CHANGES[what](vault)
    if what == "another name for a secret":
        vault["bindings"][0]["secret"] = "tickets2"
    page_reader.store(path, vault)


def test_a_change_of_the_file_of_an_open_vault_is_detected_before_the_next_write(
    vault: Vault, path: Path, made: bytes
) -> None:
    """Whichever part was changed, the file is not overwritten, and the message names the seal."""
    for what in CHANGES:
        changed(path, what)
        Vault(path).bindings()  # well formed: without a key nobody can tell
        with refused(FailureClass.HASH_MISMATCH) as refusal:
            vault.set_secret("mail", Secret(OTHER))
        assert "seal" in refusal.message, what
        write(path, made)
        verify(vault)


@pytest.mark.parametrize("what", ["a binding removed", "another value", "another generation"])
def test_a_change_while_the_vault_was_locked_is_detected_on_unlock(path: Path, what: str) -> None:
    """The message says that the file was changed, and not that the passphrase is wrong."""
    changed(path, what)
    attacked = Vault(path)
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        attacked.unlock(Secret(PASSPHRASE))
    assert "seal" in refusal.message
    assert attacked.is_locked


@pytest.mark.parametrize("what", SLOT_CHANGES)
def test_a_changed_key_slot_cannot_be_opened_by_the_right_passphrase(path: Path, what: str) -> None:
    """The derivation's parameters are bound to the key. The message says that the passphrase may be right."""
    vault = page_reader.load(path)
    SLOT_CHANGES[what](vault)
    page_reader.store(path, vault)
    with refused(FailureClass.UNAUTHORIZED) as refusal:
        Vault(path).unlock(Secret(PASSPHRASE))
    assert "or its slot was changed" in refusal.message


def swapped_values(vault: Json) -> None:
    """Exchange the sealed values of the two secrets."""
    first, second = vault["secrets"]
    first["sealed"], second["sealed"] = second["sealed"], first["sealed"]


def test_swapped_secrets_are_detected_even_under_a_forged_seal(path: Path, key: bytes) -> None:
    """The seal detects them on unlock; under a forged seal the entry itself does when it is lent."""
    vault = page_reader.load(path)
    swapped_values(vault)
    page_reader.store(path, vault)
    with refused(FailureClass.HASH_MISMATCH):
        Vault(path).unlock(Secret(PASSPHRASE))

    page_reader.store(path, page_reader.seal(vault, key))
    forged = Vault(path)
    forged.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.HASH_MISMATCH) as refusal, VaultLender(forged).lend(use(BASIC)):
        pass
    assert "secret mail does not open" in refusal.message
    forged.lock()


def test_putting_back_the_former_value_of_a_secret_is_detected_even_under_a_forged_seal(
    vault: Vault, path: Path, key: bytes
) -> None:
    """The former value of a secret, put back into the newer file, does not open."""
    old = page_reader.load(path)
    vault.set_secret("mail", Secret(OTHER))
    new = page_reader.load(path)
    new["secrets"][0] = old["secrets"][0]
    page_reader.store(path, new)
    with refused(FailureClass.HASH_MISMATCH):
        Vault(path).unlock(Secret(PASSPHRASE))

    new["secrets"][0]["version"] = 2
    page_reader.store(path, page_reader.seal(new, key))
    forged = Vault(path)
    forged.unlock(Secret(PASSPHRASE))
    with refused(FailureClass.HASH_MISMATCH), VaultLender(forged).lend(use(BASIC)):
        pass
    forged.lock()


def test_an_older_file_is_refused_by_a_vault_that_has_seen_a_newer_one(vault: Vault, path: Path, made: bytes) -> None:
    """An open vault refuses the next change and lends the newer value; a locked one refuses to unlock. Then the fix works."""
    vault.set_secret("mail", Secret(OTHER))
    newer = path.read_bytes()
    write(path, made)
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        vault.set_secret("mail", Secret(CANARY))
    assert "older copy (generation 5; this daemon has seen 6)" in refusal.message
    with refused(FailureClass.HASH_MISMATCH):
        vault.rotate(Secret(PASSPHRASE), Secret(PASSPHRASE))
    assert path.read_bytes() == made
    with VaultLender(vault).lend(use(BASIC)) as loan:
        assert loan.secret.reveal() == OTHER
    vault.lock()
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        vault.unlock(Secret(PASSPHRASE))
    assert f"aileron vault restore {path}" in refusal.message
    write(path, newer)
    vault.unlock(Secret(PASSPHRASE))
    verify(vault)
    # A new process has seen nothing, so it takes the older file: what `generation` in status() is for.
    write(path, made)
    fresh = Vault(path)
    fresh.unlock(Secret(PASSPHRASE))
    assert fresh.status().generation == 5
    fresh.lock()


def test_a_file_with_another_history_of_the_same_length_is_refused(vault: Vault, path: Path, made: bytes) -> None:
    """The file is a backup with as many changes since as the vault that it replaces."""
    vault.set_secret("mail", Secret(OTHER))
    mine = path.read_bytes()
    write(path, made)
    elsewhere = Vault(path, clock=Clock())
    elsewhere.unlock(Secret(PASSPHRASE))
    elsewhere.set_secret("mail", Secret(CANARY))
    elsewhere.lock()
    with refused(FailureClass.HASH_MISMATCH):
        vault.set_secret("mail", Secret(CANARY))
    write(path, mine)
    verify(vault)


def test_a_change_of_the_vault_by_another_process_with_the_passphrase_is_kept(vault: Vault, path: Path) -> None:
    """A later generation under the same key is accepted, and the next change builds on it."""
    elsewhere = Vault(path, clock=Clock())
    elsewhere.unlock(Secret(PASSPHRASE))
    elsewhere.set_secret("new", Secret(OTHER))
    elsewhere.lock()
    vault.revoke(BASIC.name)
    assert [info.name for info in vault.secrets()] == ["mail", "new", "tickets"]


def test_another_vault_in_place_of_the_open_vault_is_refused_until_its_own_passphrase_unlocks_it(
    vault: Vault, path: Path
) -> None:
    """The other vault does not verify under our key. Unlocked by its own passphrase it is simply another vault."""
    path.unlink()
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        vault.revoke(BASIC.name)
    assert "it is gone" in refusal.message
    planted = Vault(path)
    planted.create(Secret(b"mallory's own"))
    planted.lock()
    with refused(FailureClass.HASH_MISMATCH):
        vault.revoke(BASIC.name)
    with refused(FailureClass.UNAUTHORIZED):
        vault.unlock(Secret(PASSPHRASE))
    vault.unlock(Secret(b"mallory's own"))
    assert vault.secrets() == ()


def test_the_removal_of_the_vault_s_directory_is_reported(vault: Vault, path: Path) -> None:
    """The change is not made in memory alone, and no directory is created."""
    elsewhere = path.parent.rename(path.parent.with_name("elsewhere"))
    with refused(FailureClass.HASH_MISMATCH) as refusal:
        vault.revoke(BASIC.name)
    assert "its directory with it" in refusal.message
    elsewhere.rename(path.parent)
    vault.revoke(BASIC.name)
