"""Seals a small key under a passphrase, with a key derivation that makes guessing the passphrase expensive.

Shared by the vault (vault/envelope.py, in the daemon) and the approver's key file (approver_key/keyfile.py, in
commands), so that the cost, its limit and the derivation are defined in one place. Knows nothing of files or JSON. The
cost parameters may come from a file that an attacker wrote, so they are checked before any work is done.

    passphrase ── Argon2id(salt, cost) ──▶ wrapping key ── AES-256-GCM ──▶ a key of 32 bytes

Rules
- `context`, the additional data of AES-GCM, states the purpose of a sealed key, and covers all the plain text stored with the
  key.
- `EnvelopeError` never says whether the passphrase, the cost, the context or the bytes were wrong, because the cipher
  cannot tell.
- A key is a `bytearray`, which its holder must overwrite. The wrapping key is overwritten here.
- The library cryptography is imported when it is first used: it takes 9 MB, which a daemon with a locked vault does not need.

Source: RFC 9106 (Argon2), NIST SP 800-38D (GCM). Not here: the values of the contexts, the files of the sealed keys.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from aileron.model.secret import Secret

__all__ = [
    "COST",
    "KEY_BYTES",
    "NONCE_BYTES",
    "SALT_BYTES",
    "TAG_BYTES",
    "Cost",
    "EnvelopeError",
    "Sealed",
    "new_salt",
    "scratch",
    "seal_key",
    "stretch",
    "translated",
    "unseal_key",
]

KEY_BYTES: Final = 32  # AES-256, and the output of SHA-256
SALT_BYTES: Final = 16  # RFC 9106, section 3.1: recommended for password hashing
NONCE_BYTES: Final = 12  # the 96 bits GCM is made for; random ones may serve 2**32 messages (SP 800-38D, section 8.3)
TAG_BYTES: Final = 16  # GCM's full tag


class EnvelopeError(Exception):
    """Error: sealed bytes cannot be decrypted, because the key or the context is not the one with which they were
    sealed, or because the bytes have changed.
    """


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost of one guess of a passphrase: Argon2id's memory in KiB, its number of passes over the memory, and its number of
    lanes.
    """

    memory_kib: int
    passes: int
    lanes: int

    def check(self) -> None:
        """Raise ValueError if the cost is below `COST`, which would make guessing cheap, or above the maximum that a
        machine should spend.
        """
        if not COST.memory_kib <= self.memory_kib <= _MOST.memory_kib:
            raise ValueError(f"argon2id memory of {self.memory_kib} KiB, not {COST.memory_kib} to {_MOST.memory_kib}")
        if not COST.passes <= self.passes <= _MOST.passes:
            raise ValueError(f"{self.passes} argon2id passes, not {COST.passes} to {_MOST.passes}")
        if not 1 <= self.lanes <= _MOST.lanes:
            raise ValueError(f"{self.lanes} argon2id lanes, not 1 to {_MOST.lanes}")


COST: Final = Cost(memory_kib=64 << 10, passes=3, lanes=4)
"""The second recommended option of RFC 9106, section 4: 64 MiB, 3 passes, 4 lanes. About 0.1 s on two cores.

The first option (2 GiB, 1 pass) takes more memory than a daemon on a small machine or in a container can use without being
killed. `COST` is also the lowest cost that is accepted.
"""
_MOST: Final = Cost(memory_kib=1 << 20, passes=8, lanes=16)
"""The highest cost of a guess that is accepted. 1 GiB and 8 passes take about eight seconds: more than any user has
chosen so far, and bearable if an attacker chose this cost.
"""


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output of AES-256-GCM: its nonce, and the ciphertext followed by the tag."""

    nonce: bytes
    ciphertext: bytes


def new_salt() -> bytes:
    """Return a random salt for a new sealed key."""
    return os.urandom(SALT_BYTES)


def stretch(passphrase: Secret, salt: bytes, cost: Cost, wrapping: bytearray) -> None:
    """Derive a key with Argon2id into the 32 bytes of `wrapping`. Raises MemoryError if the machine has too little memory."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    derive = Argon2id(
        salt=salt, length=KEY_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory_kib
    )
    derive.derive_into(passphrase.reveal(), wrapping)


def seal_key(key: bytearray, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> Sealed:
    """Return `key` sealed (encrypted) under a passphrase. The time that this takes depends on `cost`.

    Raise ValueError if the cost is out of its bounds, MemoryError if the machine has too little memory.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    with _stretched(passphrase, salt, cost) as wrapping:
        return Sealed(nonce, AESGCM(wrapping).encrypt(nonce, key, context))


def unseal_key(sealed: Sealed, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> bytearray:
    """Return the key of 32 bytes that `seal_key` sealed. Raises EnvelopeError if the passphrase or any other argument
    differs from the one with which the key was sealed.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(sealed.ciphertext) != KEY_BYTES + TAG_BYTES:
        raise EnvelopeError
    key = bytearray(KEY_BYTES)
    with _stretched(passphrase, salt, cost) as wrapping, translated():
        AESGCM(wrapping).decrypt_into(sealed.nonce, sealed.ciphertext, context, key)
    return key


@contextlib.contextmanager
def scratch() -> Iterator[bytearray]:
    """Yield a zeroed buffer of the size of a key. It is overwritten when the `with` block ends."""
    room = bytearray(KEY_BYTES)
    try:
        yield room
    finally:
        room[:] = bytes(len(room))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn a cipher's errors about bytes that cannot be decrypted into EnvelopeError."""
    from cryptography.exceptions import InvalidTag

    try:
        yield
    except (InvalidTag, ValueError):  # ValueError: a nonce or ciphertext of a length that sealing never makes
        raise EnvelopeError from None


@contextlib.contextmanager
def _stretched(passphrase: Secret, salt: bytes, cost: Cost) -> Iterator[bytearray]:
    cost.check()  # checked again here: no number from a file may cause unbounded work
    with scratch() as wrapping:
        stretch(passphrase, salt, cost, wrapping)
        yield wrapping
