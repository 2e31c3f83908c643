"""The vault's cryptography: a passphrase opens one key, that key seals secrets and the list of them.

The only module that uses a cipher or a key derivation. It runs in the daemon, knows nothing of files or JSON, and trusts
no number it is given: what an attacker may have written into a file (cost, lengths) is checked before it costs anything.

    passphrase ── Argon2id(salt, cost) ──▶ wrapping key ── AES-256-GCM ──▶ data key (random, 256 bits)
    data key ── HKDF ──▶ entries key ── AES-256-GCM, random nonce ──▶ one secret
                    └──▶ list key ── HMAC-SHA256 ──▶ everything the file says

Rules
- Each use of a key names what it is for (`context`, the additional data of AES-GCM): what was sealed for one place does
  not open in another.
- A key is a `bytearray`, overwritten when it is done with. That is the best Python can do: the passphrase and a revealed
  secret are `bytes`, whose memory is freed and not overwritten, and any page may have been swapped out.
- `EnvelopeError` never says which of key, context and bytes was wrong: nobody could know.

Source: RFC 9106 (Argon2), RFC 5869 (HKDF), NIST SP 800-38D (GCM); docs/reference/vault-format.md. Not here: what the
contexts are (contents.py), when to lock (vault.py).

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

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from aileron.model.secret import Secret

__all__ = ["COST", "SALT_BYTES", "TAG_BYTES", "Cost", "DataKey", "EnvelopeError", "Sealed", "unwrap_key", "wrap_key"]

KEY_BYTES: Final = 32  # AES-256, and the output of SHA-256
SALT_BYTES: Final = 16  # RFC 9106, section 3.1: recommended for password hashing
NONCE_BYTES: Final = 12  # the 96 bits GCM is made for; random ones may serve 2**32 messages (SP 800-38D, section 8.3)
TAG_BYTES: Final = 16  # GCM's full tag

_ENTRIES: Final = b"aileron vault 1: entries"
_LIST: Final = b"aileron vault 1: list"


class EnvelopeError(Exception):
    """The key, the context or the bytes are not those of the sealing."""


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one guess of a passphrase costs: Argon2id's memory in KiB, passes over it, and lanes."""

    memory_kib: int
    passes: int
    lanes: int

    def check(self) -> None:
        """ValueError for less than `COST`, which would make guessing cheap, or for what no machine should be made to pay."""
        if not COST.memory_kib <= self.memory_kib <= _MOST.memory_kib:
            raise ValueError(f"argon2id memory of {self.memory_kib} KiB, not {COST.memory_kib} to {_MOST.memory_kib}")
        if not COST.passes <= self.passes <= _MOST.passes:
            raise ValueError(f"{self.passes} argon2id passes, not {COST.passes} to {_MOST.passes}")
        if not 1 <= self.lanes <= _MOST.lanes:
            raise ValueError(f"{self.lanes} argon2id lanes, not 1 to {_MOST.lanes}")


COST: Final = Cost(memory_kib=64 << 10, passes=3, lanes=4)
"""RFC 9106, section 4, the second recommended option: 64 MiB, 3 passes, 4 lanes. About 0.1 s on two cores. The first (2 GiB,
1 pass) is more than a daemon on a small machine or in a container can take without being killed for it. Also the floor."""
_MOST: Final = Cost(memory_kib=1 << 20, passes=8, lanes=16)
"""1 GiB and 8 passes are some eight seconds: dearer than anybody chose so far, and bearable if an attacker chose it."""


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What AES-256-GCM made: its nonce, and the ciphertext with the tag behind it."""

    nonce: bytes
    ciphertext: bytes


@final
class DataKey:
    """The one key of a vault while it is open. Not safe for threads: its holder takes turns (vault.py)."""

    __slots__ = ("_key",)

    def __init__(self, key: bytearray) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes")
        self._key: Final = key

    @classmethod
    def generate(cls) -> DataKey:
        """A new random key."""
        return cls(bytearray(os.urandom(KEY_BYTES)))

    def seal(self, plaintext: bytes, *, context: bytes) -> Sealed:
        """Encrypt one secret for one place."""
        nonce = os.urandom(NONCE_BYTES)
        with self._derived(_ENTRIES) as key:
            return Sealed(nonce, AESGCM(key).encrypt(nonce, plaintext, context))

    def open(self, sealed: Sealed, *, context: bytes) -> bytes:
        """The inverse of `seal`; EnvelopeError unless it was this key, this context and these bytes."""
        with self._derived(_ENTRIES) as key, _translated():
            return AESGCM(key).decrypt(sealed.nonce, sealed.ciphertext, context)

    def authenticate(self, data: bytes) -> bytes:
        """HMAC-SHA256 over `data` under a key for nothing else, 32 bytes."""
        with self._derived(_LIST) as key:
            return hmac.digest(key, data, "sha256")

    def wipe(self) -> None:
        """Overwrite the key. Nothing made with it opens here again: every other method is a RuntimeError from now on."""
        self._key[:] = bytes(KEY_BYTES)

    @contextlib.contextmanager
    def _derived(self, purpose: bytes) -> Iterator[bytearray]:
        """One key for each purpose, so that no two algorithms share one."""
        with _scratch() as derived:
            HKDFExpand(SHA256(), KEY_BYTES, purpose).derive_into(self._usable(), derived)
            yield derived

    def _usable(self) -> bytearray:
        """The key itself. Sealing with one that anybody knows is worse than any crash, so nobody is trusted to take care."""
        if not any(self._key):
            raise RuntimeError("this key was wiped")
        return self._key

    def __repr__(self) -> str:
        return "<data key>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a data key is not pickled or copied")


def wrap_key(key: DataKey, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> Sealed:
    """Seal `key` under a passphrase. Takes as long as `cost` says; MemoryError if the machine cannot."""
    nonce = os.urandom(NONCE_BYTES)
    with _stretched(passphrase, salt, cost) as wrapping:
        return Sealed(nonce, AESGCM(wrapping).encrypt(nonce, key._usable(), context))


def unwrap_key(sealed: Sealed, passphrase: Secret, salt: bytes, cost: Cost, *, context: bytes) -> DataKey:
    """The inverse of `wrap_key`; EnvelopeError for another passphrase (or any other difference)."""
    if len(sealed.ciphertext) != KEY_BYTES + TAG_BYTES:
        raise EnvelopeError
    key = bytearray(KEY_BYTES)
    with _stretched(passphrase, salt, cost) as wrapping, _translated():
        AESGCM(wrapping).decrypt_into(sealed.nonce, sealed.ciphertext, context, key)
    return DataKey(key)


@contextlib.contextmanager
def _stretched(passphrase: Secret, salt: bytes, cost: Cost) -> Iterator[bytearray]:
    cost.check()  # again, whoever called: no path leads from a number in a file to work that it asks for
    stretch = Argon2id(
        salt=salt, length=KEY_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory_kib
    )
    with _scratch() as wrapping:
        stretch.derive_into(passphrase.reveal(), wrapping)
        yield wrapping


@contextlib.contextmanager
def _scratch() -> Iterator[bytearray]:
    """Room for a key that is overwritten at the end."""
    room = bytearray(KEY_BYTES)
    try:
        yield room
    finally:
        room[:] = bytes(len(room))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (InvalidTag, ValueError):  # ValueError: a nonce or ciphertext of a length that sealing never makes
        raise EnvelopeError from None
