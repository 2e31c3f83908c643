"""Proofs of a password to MySQL and MariaDB: the response to a server's challenge, for each authentication plugin.

    mysql_native_password     SHA-1 of challenge and twice hashed password, XOR the hashed password
    caching_sha2_password     the same with SHA-256, if the server remembers the password; otherwise the password over TLS
    client_ed25519            a signature of the challenge; the password's hash is the key

Runs in the process of one login. SHA-1 is MySQL's choice, for the response to a random challenge. The signature is computed
with libsodium's Ed25519 arithmetic (PyNaCl), because MariaDB derives keys from passwords of any length, which the signing
functions of libraries do not accept.

Source: MySQL's "Authentication Method" pages; MariaDB's "Authentication Plugin - ed25519"; RFC 8032 section 5.1.6. Not here:
the choice of the proof (mysql.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from nacl.bindings import (
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

__all__ = ["CHALLENGE_BYTES", "PROOFS", "ed25519", "native", "sha2"]

CHALLENGE_BYTES: Final = {"mysql_native_password": 20, "caching_sha2_password": 20, "client_ed25519": 32}


def native(password: bytes, challenge: bytes) -> bytes:
    """Return the proof of the password for the plugin mysql_native_password: 20 bytes."""
    once = hashlib.sha1(password).digest()  # noqa: S324 - MySQL's
    twice = hashlib.sha1(once).digest()  # noqa: S324
    return _over(once, hashlib.sha1(challenge + twice).digest())  # noqa: S324


def sha2(password: bytes, challenge: bytes) -> bytes:
    """Return the proof of the password for the fast path of the plugin caching_sha2_password: 32 bytes."""
    once = hashlib.sha256(password).digest()
    twice = hashlib.sha256(once).digest()
    return _over(once, hashlib.sha256(twice + challenge).digest())


def ed25519(password: bytes, challenge: bytes) -> bytes:
    """Return the proof of the password for the plugin client_ed25519: a signature of 64 bytes.

    The signing key is derived as in RFC 8032, with the password in place of the seed.
    """
    expanded = hashlib.sha512(password).digest()
    clamped = bytearray(expanded[:32])
    clamped[0] &= 0xF8
    clamped[31] = clamped[31] & 0x7F | 0x40
    key = bytes(clamped)
    nonce = crypto_core_ed25519_scalar_reduce(hashlib.sha512(expanded[32:] + challenge).digest())
    commitment = crypto_scalarmult_ed25519_base_noclamp(nonce)
    public = crypto_scalarmult_ed25519_base_noclamp(key)
    hashed = crypto_core_ed25519_scalar_reduce(hashlib.sha512(commitment + public + challenge).digest())
    answer: bytes = crypto_core_ed25519_scalar_add(crypto_core_ed25519_scalar_mul(hashed, key), nonce)
    return bytes(commitment) + answer


PROOFS: Final[dict[str, Callable[[bytes, bytes], bytes]]] = {
    "mysql_native_password": native,
    "caching_sha2_password": sha2,
    "client_ed25519": ed25519,
}
"""Mapping from an authentication plugin's name to the function that returns its proof. No proof reveals the password."""


def _over(digest: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(digest, other, strict=True))
