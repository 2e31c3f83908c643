"""The ways to one key: each opens the vault, none replaces another, and a new key ends them all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.vault import Vault, VaultLender
from aileron.vault.slots import KeyringKey
from tests.vault import page_reader
from tests.vault.conftest import BASIC, CANARY, OTHER, PASSPHRASE, Clock, refused, use, verify

NEW = b"another horse battery"
KEY = KeyringKey("0123456789abcdef" * 2, Secret(bytes(range(32))))
OTHER_KEY = KeyringKey("fedcba9876543210" * 2, Secret(bytes(range(1, 33))))


@pytest.fixture
def codes(vault: Vault) -> tuple[Secret, ...]:
    """Give the vault every way in (passphrase, recovery codes, keyring key); return the codes."""
    return vault.rotate(Secret(PASSPHRASE), Secret(PASSPHRASE), recovery_codes=True, keyring=KEY).codes


def opened(path: Path) -> Vault:
    """Return another process's vault on the file."""
    return Vault(path, clock=Clock())


def lent(vault: Vault) -> bytes:
    """Return the value that the mail binding is lent."""
    with VaultLender(vault).lend(use(BASIC)) as loan:
        return loan.secret.reveal()


def test_the_passphrase_recovery_codes_and_keyring_key_open_the_same_vault(
    vault: Vault, path: Path, codes: tuple[Secret, ...]
) -> None:
    """A code may be typed in any style, and the result says which way was used."""
    assert len({code.reveal() for code in codes}) == 4
    typed = [(PASSPHRASE, "passphrase"), (codes[0].reveal().lower().replace(b"-", b""), "recovery")]
    typed += [(code.reveal(), "recovery") for code in codes]
    for text, way in typed:
        again = opened(path)
        assert again.unlock(Secret(text)) == way
        assert lent(again) == CANARY
        again.lock()
        assert vault.check_opens(Secret(text)) == way
    again = opened(path)
    again.unlock_with_keyring(KEY.key)
    assert lent(again) == CANARY
    again.lock()
    vault.check_opens_with_keyring(KEY.key)
    assert (vault.status().recovery_codes, vault.status().keyring) == (4, KEY.id)


def test_a_reader_written_from_the_format_page_opens_the_vault_in_each_way(
    path: Path, codes: tuple[Secret, ...]
) -> None:
    """A reader written from the page alone gets the same key by passphrase, code and keyring."""
    vault = page_reader.load(path)
    key = page_reader.data_key(vault, PASSPHRASE)
    assert page_reader.data_key_by_code(vault, codes[3].reveal().decode().lower()) == key
    assert page_reader.data_key_by_keyring(vault, KEY.key.reveal()) == key
    assert page_reader.seal(vault, key) == vault


def test_a_recovery_code_passphrase_or_keyring_key_is_not_accepted_in_place_of_another(
    vault: Vault, path: Path, codes: tuple[Secret, ...]
) -> None:
    """A code is not accepted as the passphrase, for example, nor a keyring's key as a code."""
    vault.check_passphrase(Secret(PASSPHRASE))
    for other in (codes[0], KEY.key, Secret(KEY.key.reveal().hex().encode())):
        with refused(FailureClass.UNAUTHORIZED):
            vault.check_passphrase(other)
    for other in (KEY.key, Secret(KEY.key.reveal().hex().encode())):
        with refused(FailureClass.UNAUTHORIZED):
            opened(path).unlock(other)
    for other in (codes[0], Secret(PASSPHRASE), OTHER_KEY.key):
        with refused(FailureClass.UNAUTHORIZED) as refusal:
            opened(path).unlock_with_keyring(other)
        assert "keyring's key" in refusal.message
    with refused(FailureClass.UNAUTHORIZED):
        vault.rotate(KEY.key, Secret(NEW))


def test_the_error_for_a_mistyped_recovery_code_names_the_wrong_group_and_not_the_code(
    path: Path, codes: tuple[Secret, ...]
) -> None:
    """The right code opens the vault."""
    typed = codes[0].reveal().decode()
    wrong = typed[:12] + ("2" if typed[12] != "2" else "3") + typed[13:]
    with refused(FailureClass.UNAUTHORIZED) as refusal:
        opened(path).unlock(Secret(wrong.encode()))
    assert "typing mistake in group 3 of the recovery code" in refusal.message
    assert wrong[:5] not in refusal.message
    opened(path).unlock(codes[0])


def test_the_message_for_a_wrong_passphrase_offers_a_recovery_code(
    vault: Vault, path: Path, codes: tuple[Secret, ...]
) -> None:
    """The offer is made only where a code would help, and not where the passphrase itself is required."""
    with refused(FailureClass.UNAUTHORIZED) as refusal:
        opened(path).unlock(Secret(b"not the passphrase"))
    assert "if you forgot it, use a recovery code" in refusal.message
    with refused(FailureClass.UNAUTHORIZED) as refusal:
        vault.check_passphrase(Secret(b"not the passphrase"))
    assert "recovery code" not in refusal.message


def test_a_vault_without_a_keyring_slot_says_how_to_add_it(vault: Vault, path: Path, made: bytes) -> None:
    """A code of another vault is just a wrong passphrase, and there is no slot for a keyring's key."""
    with refused(FailureClass.UNAUTHORIZED) as refusal:
        opened(path).unlock(Secret(b"5JS66-5PWM4-9YHNA-X5YAG-2JEP3-E43QW-RBWSZ"))
    assert "recovery code" not in refusal.message
    with refused(FailureClass.INVALID_REQUEST) as refusal:
        opened(path).unlock_with_keyring(KEY.key)
    assert "aileron vault rotate --keyring" in refusal.message
    assert [sorted(slot) for slot in json.loads(made)["slots"]] == [["argon2id", "key", "kind", "salt"]]


def test_a_vault_can_be_created_with_passphrase_recovery_codes_and_keyring_key(absent: Vault, tmp_path: Path) -> None:
    """They are passphrase, recovery codes and keyring key, as after a rotation."""
    codes = absent.create(Secret(PASSPHRASE), recovery_codes=True, keyring=KEY)
    file = tmp_path / "home" / ".aileron" / "vault.json"
    for text in (PASSPHRASE, codes[2].reveal()):
        opened(file).unlock(Secret(text))
    opened(file).unlock_with_keyring(KEY.key)
    assert not any(code.reveal() in file.read_bytes() for code in codes)


def test_a_rotation_invalidates_the_old_passphrase_the_codes_and_the_keyring_key_and_keeps_contents(
    vault: Vault, path: Path, codes: tuple[Secret, ...]
) -> None:
    """Key and ciphertexts change; values, names and bindings stay. The vault is open and one generation later."""
    before, old_key = page_reader.load(path), page_reader.data_key(page_reader.load(path), PASSPHRASE)
    rotated = vault.rotate(Secret(PASSPHRASE), Secret(NEW))
    after = page_reader.load(path)

    assert (rotated.way, rotated.codes) == ("passphrase", ())
    assert after["generation"] == before["generation"] + 1
    assert page_reader.data_key(after, NEW) != old_key
    kept = ("id", "name", "version", "created_ms", "updated_ms")
    assert [[entry[k] for k in kept] for entry in after["secrets"]] == [[e[k] for k in kept] for e in before["secrets"]]
    olds = {entry["sealed"][part] for entry in before["secrets"] for part in entry["sealed"]}
    assert olds.isdisjoint({entry["sealed"][part] for entry in after["secrets"] for part in entry["sealed"]})
    assert (after["bindings"], after["vault"]) == (before["bindings"], before["vault"])
    assert [slot["kind"] for slot in after["slots"]] == ["passphrase"]
    assert lent(vault) == CANARY
    verify(vault)
    vault.set_secret("mail", Secret(OTHER))
    for old in (Secret(PASSPHRASE), *codes):
        with refused(FailureClass.UNAUTHORIZED):
            opened(path).unlock(old)
    again = opened(path)
    again.unlock(Secret(NEW))
    assert lent(again) == OTHER
    again.lock()


def test_a_recovery_code_replaces_a_forgotten_passphrase(vault: Vault, path: Path, codes: tuple[Secret, ...]) -> None:
    """The rotation that sets a new passphrase also gives new codes."""
    vault.lock()
    vault.unlock(codes[1])
    rotated = vault.rotate(codes[1], Secret(NEW), recovery_codes=True, keyring=OTHER_KEY)
    assert rotated.way == "recovery"
    assert {code.reveal() for code in rotated.codes}.isdisjoint({code.reveal() for code in codes})
    opened(path).unlock(Secret(NEW))
    opened(path).unlock(rotated.codes[0])
    opened(path).unlock_with_keyring(OTHER_KEY.key)
    with refused(FailureClass.UNAUTHORIZED):
        opened(path).unlock_with_keyring(KEY.key)


def test_a_failed_rotation_leaves_the_file_unchanged(vault: Vault, path: Path) -> None:
    """The causes are a wrong passphrase, a short new one, a locked vault, and a key of another length."""
    before = path.read_bytes()
    short = KeyringKey(KEY.id, Secret(b"short"))
    attempt: Callable[[], object]
    for attempt, failure_class in (
        (lambda: vault.rotate(Secret(b"a wrong one"), Secret(NEW)), FailureClass.UNAUTHORIZED),
        (lambda: vault.rotate(Secret(PASSPHRASE), Secret(b"short")), FailureClass.BAD_INPUT),
        (lambda: vault.rotate(Secret(PASSPHRASE), Secret(NEW), keyring=short), FailureClass.BAD_INPUT),
        (lambda: opened(path).rotate(Secret(PASSPHRASE), Secret(NEW)), FailureClass.VAULT_LOCKED),
    ):
        with refused(failure_class):
            attempt()
    assert path.read_bytes() == before
    assert lent(vault) == CANARY


def test_a_vault_file_that_was_planted_by_an_attacker_is_not_rotated(vault: Vault, path: Path) -> None:
    """The planted vault's own passphrase does not help: it does not verify under the key in memory."""
    path.unlink()
    planted = opened(path)
    planted.create(Secret(b"mallory's own"))
    planted.lock()
    before = path.read_bytes()
    with refused(FailureClass.HASH_MISMATCH):
        vault.rotate(Secret(b"mallory's own"), Secret(NEW))
    assert path.read_bytes() == before


def test_every_flipped_bit_of_a_key_slot_is_detected(vault: Vault, path: Path, codes: tuple[Secret, ...]) -> None:
    """An open vault compares with the key in memory: of all variants only the file itself verifies."""
    data = path.read_bytes()
    start, end = data.index(b'"slots":'), data.index(b'"vault":')
    with path.open("r+b", buffering=0) as file:
        for at in range(start, end):
            for bit in range(8):
                file.seek(at)
                file.write(bytes([data[at] ^ 1 << bit]))
                with refused(FailureClass.HASH_MISMATCH):
                    vault.remove_secret("never-stored")
            file.seek(at)
            file.write(data[at : at + 1])
    verify(vault)


def exchanged(vault: Any) -> None:
    """Exchange the sealed keys of two codes' slots."""
    slots = vault["slots"]
    slots[1]["key"], slots[2]["key"] = slots[2]["key"], slots[1]["key"]


def renamed(vault: Any) -> None:
    """Turn a code's slot into a keyring's."""
    vault["slots"][1] = {**vault["slots"][1], "kind": "keyring", "id": KEY.id}
    del vault["slots"][-1]


def other_id(vault: Any) -> None:
    """Give the keyring's slot another id."""
    vault["slots"][-1]["id"] = OTHER_KEY.id


def other_vault(vault: Any) -> None:
    """Put the slots under another vault's id."""
    vault["vault"] = "0" * 32


@pytest.mark.parametrize("change", [exchanged, renamed, other_id, other_vault])
def test_a_key_slot_opens_only_in_its_own_place_even_under_a_forged_seal(
    path: Path, codes: tuple[Secret, ...], change: Any
) -> None:
    """A key sealed for one slot opens in no other, nor beside another name; unchanged, it opens."""
    vault = page_reader.load(path)
    key = page_reader.data_key(vault, PASSPHRASE)
    opened(path).unlock(codes[0])
    change(vault)
    page_reader.store(path, page_reader.seal(vault, key))
    if change is not other_id:
        with refused(FailureClass.UNAUTHORIZED):
            opened(path).unlock(codes[0])
    if change is not exchanged:
        with refused(FailureClass.UNAUTHORIZED):
            opened(path).unlock_with_keyring(codes[0] if change is renamed else KEY.key)


def test_a_key_slot_that_was_removed_or_added_is_detected(path: Path, codes: tuple[Secret, ...]) -> None:
    """An attacker without the key cannot end a way in, or add a slot again."""
    before = page_reader.load(path)
    fewer = {**before, "slots": before["slots"][:-1]}
    more = {**before, "slots": [*before["slots"][:2], before["slots"][1], *before["slots"][2:]]}
    for vault in (fewer, more):
        page_reader.store(path, vault)
        with refused(FailureClass.HASH_MISMATCH):
            opened(path).unlock(Secret(PASSPHRASE))
    page_reader.store(path, before)
    opened(path).unlock(Secret(PASSPHRASE))


def test_the_old_key_is_wiped_after_rotating(vault: Vault) -> None:
    """The old key is overwritten when the new one takes its place."""
    was = vault._opened
    assert was is not None
    vault.rotate(Secret(PASSPHRASE), Secret(NEW))
    with pytest.raises(RuntimeError, match="wiped"):
        was.verified(was.contents)
    assert lent(vault) == CANARY


def test_a_vault_locked_during_its_rotation_stays_locked(vault: Vault, path: Path) -> None:
    """The new vault is on disk, and opens with its passphrase."""
    real = os.rename

    def locking(*args: Any, **kwargs: Any) -> None:
        vault.lock()
        real(*args, **kwargs)

    os.rename = locking
    try:
        vault.rotate(Secret(PASSPHRASE), Secret(NEW))
    finally:
        os.rename = real
    assert vault.is_locked
    vault.unlock(Secret(NEW))
    assert lent(vault) == CANARY
