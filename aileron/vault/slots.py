"""The ways to decrypt a vault's data key: the passphrase, recovery codes, and a key in the desktop's keyring. Each way is a
slot in the vault's file.

This module has the values and the cryptography of each kind of slot, and does no I/O. Runs in the daemon. A slot that was read
is not trusted, like the rest of the file, and is checked before any work is done.

Rules
- The first slot, and no other, is the passphrase's; at most 16 others follow, at most one of them the keyring's.
- A passphrase, which people choose, is stretched (Argon2id). A code and a keyring's key are random and long, so HKDF is
  enough.
- Each sealed key is bound to the vault, the kind and all other fields of the slot, so a slot cannot be used in place of
  another slot.
- Opening a slot proves nothing about the file. The seal, which covers all slots, verifies the file (opened.py).

Source: docs/reference/vault-format.md, docs/adr/0022-vault-slots.md. Not here: the form of a code (recovery.py), access to a
keyring (cli/keyring.py: the daemon never talks to one).
"""

from __future__ import annotations

import os
import re
from typing import Final, Literal, TypeVar

import msgspec

import aileron.passphrase
from aileron.model.canonical import canonical_json
from aileron.model.secret import Secret
from aileron.vault import recovery
from aileron.vault.envelope import (
    COST,
    KEY_BYTES,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    Cost,
    DataKey,
    EnvelopeError,
    Sealed,
    unwrap_key,
    unwrap_with_key,
    wrap_key,
    wrap_with_key,
)

__all__ = [
    "MAX_OTHERS",
    "UNSEALED",
    "KeyringKey",
    "KeyringSlot",
    "PassphraseSlot",
    "RecoverySlot",
    "Slot",
    "Unlockers",
    "Way",
    "check_slots",
    "open_with_keyring",
    "open_with_passphrase",
    "open_with_recovery_code",
    "seal_slots",
]

MAX_OTHERS: Final = 16  # more papers would not be found again; each slot costs a wrong passphrase some microseconds
UNSEALED: Final = Sealed(bytes(NONCE_BYTES), b"")
_ID: Final = re.compile(r"[0-9a-f]{32}")
_RECOVERY: Final = b"aileron vault 1: recovery"
_KEYRING: Final = b"aileron vault 1: keyring"

Way = Literal["passphrase", "recovery", "keyring"]
"""The way in which a vault was opened."""


class PassphraseSlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="passphrase"):
    """The passphrase's slot. `key` is the data key, sealed under a key that Argon2id derives from the passphrase and `salt`."""

    argon2id: Cost
    salt: bytes
    key: Sealed

    def context(self, vault: str) -> bytes:
        """Return the context to which the encryption of the data key is bound: this vault, and every parameter of the
        key's derivation.
        """
        cost = msgspec.to_builtins(self.argon2id)
        return _context({"vault": vault, "kind": "passphrase", "argon2id": cost, "salt": self.salt.hex()})


class RecoverySlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="recovery"):
    """The slot of a recovery code. `key` is the data key, sealed under a key that HKDF derives from the code and `salt`."""

    salt: bytes
    key: Sealed

    def context(self, vault: str) -> bytes:
        """Return the context to which the encryption of the data key is bound, as bytes."""
        return _context({"vault": vault, "kind": "recovery", "salt": self.salt.hex()})


class KeyringSlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="keyring"):
    """The keyring's slot. `key` is the data key, sealed under a key that HKDF derives from `salt` and the 32 bytes that the
    keyring stores under the name `id`.
    """

    id: str
    salt: bytes
    key: Sealed

    def context(self, vault: str) -> bytes:
        """Return the context to which the encryption of the data key is bound, as bytes."""
        return _context({"vault": vault, "kind": "keyring", "id": self.id, "salt": self.salt.hex()})


Slot = PassphraseSlot | RecoverySlot | KeyringSlot
_SlotT = TypeVar("_SlotT", PassphraseSlot, RecoverySlot, KeyringSlot)


class KeyringKey(msgspec.Struct, frozen=True):
    """A key of 32 bytes that is stored in a keyring under the name `id` (32 hex digits)."""

    id: str
    key: Secret


class Unlockers(msgspec.Struct, frozen=True):
    """The secrets that open a vault: a passphrase, recovery codes, and a key in a keyring. Each becomes a slot."""

    passphrase: Secret
    recovery: tuple[Secret, ...] = ()
    keyring: KeyringKey | None = None


def check_slots(slots: tuple[Slot, ...]) -> None:
    """Raise ValueError for slots of a vault's file that this program would not have written."""
    kinds = [type(slot) for slot in slots]
    _expect(kinds.count(PassphraseSlot) == 1 and kinds[0] is PassphraseSlot, "not one passphrase slot, and it first")
    _expect(len(slots) - 1 <= MAX_OTHERS, f"{len(slots) - 1} slots beside the passphrase's, more than {MAX_OTHERS}")
    _expect(kinds.count(KeyringSlot) <= 1, f"{kinds.count(KeyringSlot)} keyring slots, more than 1")
    for slot in slots:
        if isinstance(slot, PassphraseSlot):
            slot.argon2id.check()
        if isinstance(slot, KeyringSlot):
            _expect(_ID.fullmatch(slot.id) is not None, "the id of the keyring's key is not 32 hex digits")
        _expect(len(slot.salt) == SALT_BYTES, "the salt has another length")
        _expect(len(slot.key.nonce) == NONCE_BYTES, "the nonce of the wrapped key has another length")
        length = len(slot.key.ciphertext) - TAG_BYTES
        _expect(length == KEY_BYTES, f"the wrapped key has {length} bytes, not {KEY_BYTES}")


def seal_slots(key: DataKey, ways: Unlockers, vault: str) -> tuple[Slot, ...]:
    """Return a slot for each way to open the vault, with `key` encrypted in each. This takes as long as opening a
    vault.

    Raises MemoryError if the machine has too little memory, ValueError for an invalid keyring key, or for too many
    recovery codes.
    """
    first = PassphraseSlot(COST, aileron.passphrase.new_salt(), UNSEALED)
    slots: list[Slot] = [
        _with_key(first, wrap_key(key, ways.passphrase, first.salt, COST, context=first.context(vault)))
    ]
    for code in ways.recovery:
        slot = RecoverySlot(os.urandom(SALT_BYTES), UNSEALED)
        slots.append(_with_key(slot, wrap_with_key(key, code, slot.salt, _RECOVERY, context=slot.context(vault))))
    if ways.keyring is not None:
        _expect(len(ways.keyring.key) == KEY_BYTES, f"a keyring's key has {KEY_BYTES} bytes")
        other = KeyringSlot(ways.keyring.id, os.urandom(SALT_BYTES), UNSEALED)
        sealed = wrap_with_key(key, ways.keyring.key, other.salt, _KEYRING, context=other.context(vault))
        slots.append(_with_key(other, sealed))
    check_slots(tuple(slots))
    return tuple(slots)


def open_with_passphrase(slots: tuple[Slot, ...], passphrase: Secret, vault: str) -> DataKey:
    """Decrypt the vault's data key with the passphrase and return it; the vault's contents are not verified. Raises
    EnvelopeError for a wrong passphrase.
    """
    slot = slots[0]
    assert isinstance(slot, PassphraseSlot)
    return unwrap_key(slot.key, passphrase, slot.salt, slot.argon2id, context=slot.context(vault))


def open_with_recovery_code(slots: tuple[Slot, ...], typed: Secret, vault: str) -> DataKey:
    """Decrypt the vault's data key with a recovery code and return it; the vault's contents are not verified. Raises
    EnvelopeError if the text is not a recovery code of this vault, MistypedError for a code with a typing mistake.
    """
    try:
        code = recovery.read(typed.reveal().decode())
    except UnicodeDecodeError:
        raise EnvelopeError from None
    if code is not None:
        for slot in slots:
            if isinstance(slot, RecoverySlot):
                try:
                    return unwrap_with_key(slot.key, code, slot.salt, _RECOVERY, context=slot.context(vault))
                except EnvelopeError:
                    continue
    raise EnvelopeError


def open_with_keyring(slots: tuple[Slot, ...], key: Secret, vault: str) -> DataKey:
    """Decrypt the vault's data key with the key from the keyring and return it; the vault's contents are not verified.
    Raises EnvelopeError for a wrong key, and if the vault has no keyring slot.
    """
    for slot in slots:
        if isinstance(slot, KeyringSlot):
            return unwrap_with_key(slot.key, key, slot.salt, _KEYRING, context=slot.context(vault))
    raise EnvelopeError


def _with_key(slot: _SlotT, sealed: Sealed) -> _SlotT:
    return msgspec.structs.replace(slot, key=sealed)


def _context(fields: dict[str, object]) -> bytes:
    return canonical_json({"use": "aileron vault 1: slot", **fields})


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)
