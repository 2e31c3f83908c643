"""The vault's cryptography: a passphrase opens one key, and that key seals the secrets and their list.

The only module of the vault that uses a cipher or a key derivation. It runs in the daemon, knows nothing of files or JSON, and
trusts no number that it is given: a number that an attacker may have written into a file (cost, lengths) is checked before any
work is done. The derivation from a passphrase is in passphrase.py, which the approver's key file also uses.

    passphrase ── passphrase.py ──▶ data key (random, 256 bits)
    another key ── HKDF, AES-256-GCM ──▶ the same data key
    data key ── HKDF ──▶ entries key ── AES-256-GCM, random nonce ──▶ one secret
                    └──▶ list key ── HMAC-SHA256 ──▶ all contents of the file

Rules
- Each use of a key states its purpose (`context`, the additional data of AES-GCM), so that a value that was sealed for one
  place cannot be decrypted in another.
- A key is a `bytearray`, which is overwritten when it is no longer needed. Python allows no more than that: the passphrase and
  a revealed secret are `bytes`, whose memory is freed and not overwritten, and any page may have been swapped out.
- `EnvelopeError` never says which of key, context and bytes was wrong, because the cipher cannot tell.
- The library cryptography is imported when it is first used: it takes 9 MB, which a daemon with a locked vault does not need.

Source: RFC 5869 (HKDF), NIST SP 800-38D (GCM), RFC 2104 (HMAC); docs/reference/vault-format.md. Not here: the contexts
(contents.py), when to lock (vault.py).

>>> key = DataKey.generate()
>>> key.open(key.seal(b"a secret", context=b"here"), context=b"here")
b'a secret'
"""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Iterator
from typing import Final, NoReturn, final

from aileron.model.secret import Secret
from aileron.passphrase import (
    COST,
    KEY_BYTES,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    Cost,
    EnvelopeError,
    Sealed,
    scratch,
    seal_key,
    translated,
    unseal_key,
)

__all__ = [
    "COST",
    "KEY_BYTES",
    "NONCE_BYTES",
    "SALT_BYTES",
    "TAG_BYTES",
    "Cost",
    "DataKey",
    "EnvelopeError",
    "Sealed",
    "unwrap_key",
    "unwrap_with_key",
    "wrap_key",
    "wrap_with_key",
]

_ENTRIES: Final = b"aileron vault 1: entries"
_LIST: Final = b"aileron vault 1: list"


@final
class DataKey:
    """The data key of an open vault, which encrypts its secrets and authenticates its contents. Not thread-safe: the
    owner of the key must serialize its use (vault.py).
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytearray) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes")
        self._key: Final = key

    @classmethod
    def generate(cls) -> DataKey:
        """Return a new random data key for a vault."""
        return cls(bytearray(os.urandom(KEY_BYTES)))

    def seal(self, plaintext: bytes, *, context: bytes) -> Sealed:
        """Encrypt `plaintext`, such as a secret, and bind it to `context`: `open` then needs the same context."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(NONCE_BYTES)
        with self._derived(_ENTRIES) as key:
            return Sealed(nonce, AESGCM(key).encrypt(nonce, plaintext, context))

    def open(self, sealed: Sealed, *, context: bytes) -> bytes:
        """Decrypt bytes that `seal` encrypted. Raise EnvelopeError unless the key, the context and the encrypted bytes
        are the same as in the call of `seal`.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        with self._derived(_ENTRIES) as key, translated():
            return AESGCM(key).decrypt(sealed.nonce, sealed.ciphertext, context)

    def authenticate(self, data: bytes) -> bytes:
        """Return the HMAC-SHA256 of `data` (32 bytes) under a key that is derived from this one and used for nothing
        else.
        """
        with self._derived(_LIST) as key:
            return hmac.digest(key, data, "sha256")

    def wipe(self) -> None:
        """Overwrite the data key in memory. Afterwards every other method raises RuntimeError."""
        self._key[:] = bytes(KEY_BYTES)

    @contextlib.contextmanager
    def _derived(self, purpose: bytes) -> Iterator[bytearray]:
        """Yield a key that is derived from the data key for `purpose`, so that no two algorithms share a key."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        with scratch() as derived:
            HKDFExpand(SHA256(), KEY_BYTES, purpose).derive_into(self._usable(), derived)
            yield derived

    def _usable(self) -> bytearray:
        """Return the bytes of the data key. Raise RuntimeError if the key was wiped, because encryption with a key of
        zeros, which anybody knows, is worse than a crash.
        """
        if not any(self._key):
            raise RuntimeError("this key was wiped")
        return self._key

    def __repr__(self) -> str:
        return "<data key>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a data key is not pickled or copied")


def wrap_key(key: DataKey, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> Sealed:
    """Encrypt a vault's data key with a key derived from a passphrase. The time that this takes depends on `cost`.
    Raises MemoryError if the machine has too little memory.
    """
    return seal_key(key._usable(), passphrase, salt, cost, context=context)


def unwrap_key(sealed: Sealed, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> DataKey:
    """Decrypt a data key that `wrap_key` encrypted. Raise EnvelopeError if the passphrase or another argument is not
    the same as in that call.
    """
    return DataKey(unseal_key(sealed, passphrase, salt, cost, context=context))


def wrap_with_key(key: DataKey, other: Secret, salt: bytes, purpose: bytes, *, context: bytes) -> Sealed:
    """Encrypt a vault's data key with a key derived from `other`, which must be random and have at least 128 bits. A
    passphrase is not suitable.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    with _extracted(other, salt, purpose) as wrapping:
        return Sealed(nonce, AESGCM(wrapping).encrypt(nonce, key._usable(), context))


def unwrap_with_key(sealed: Sealed, other: Secret, salt: bytes, purpose: bytes, *, context: bytes) -> DataKey:
    """Decrypt a data key that `wrap_with_key` encrypted. Raise EnvelopeError if `other` or another argument is not the
    same as in that call.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(sealed.ciphertext) != KEY_BYTES + TAG_BYTES:
        raise EnvelopeError
    key = bytearray(KEY_BYTES)
    with _extracted(other, salt, purpose) as wrapping, translated():
        AESGCM(wrapping).decrypt_into(sealed.nonce, sealed.ciphertext, context, key)
    return DataKey(key)


@contextlib.contextmanager
def _extracted(other: Secret, salt: bytes, purpose: bytes) -> Iterator[bytearray]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    with scratch() as wrapping:
        HKDF(SHA256(), KEY_BYTES, salt, purpose).derive_into(other.reveal(), wrapping)
        yield wrapping
