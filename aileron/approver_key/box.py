"""Encryption for one unlocked approver, with a key that lives as long as their command.

Used on both sides: a command makes a `Recipient` and names its public half in the statement that it signs (model/decision.py,
PreviewStatement); the daemon, which verified that signature, encrypts to that key. Nobody else who asks the daemon, reads its
response in transit, or stores it, can decrypt it: the private half never leaves a process that cannot be read (isolation.py).

    X25519(ephemeral, recipient) ── HKDF-SHA256(salt: both public halves) ──▶ key, nonce ── AES-256-GCM(context) ──▶ sealed

Rules
- The ephemeral half is made for one message, so key and nonce serve one message.
- `context`, the bytes of the requesting statement, is authenticated: a response to one request cannot be opened for another.
- The encryption proves nothing about the sender: anybody can encrypt to a public key. A decision therefore covers the
  digest of what was shown.

Source: RFC 7748 (X25519), RFC 5869 (HKDF), NIST SP 800-38D (GCM); docs/reference/signed-decisions.md (What is sealed).

>>> recipient = Recipient()
>>> recipient.open(seal(recipient.public, b"a preview", b"what asked"), b"what asked")
b'a preview'
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, final

from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = ["MAX_PLAINTEXT_BYTES", "Recipient", "seal"]

MAX_PLAINTEXT_BYTES: Final = (
    4 << 20
)  # 4 MiB: a preview is read by a person; the largest field an action may show is 1 MiB
_PUBLIC_BYTES: Final = 32
_TAG_BYTES: Final = 16
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_INFO: Final = b"aileron box 1"
_HEX: Final = re.compile(r"[0-9a-f]{64}")


@final
class Recipient:
    """A new X25519 key pair. Only this object can open messages sealed to its public half, `public`."""

    __slots__ = ("_key", "public")

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key: Final = X25519PrivateKey.generate()
        self.public: Final = self._key.public_key().public_bytes_raw().hex()

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plaintext of `sealed`, a result of `seal` for this key and the same `context`.

        Raises AileronError(hash_mismatch) if the message was not sealed to this key and in this context.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not _PUBLIC_BYTES + _TAG_BYTES <= len(sealed) <= _PUBLIC_BYTES + _TAG_BYTES + MAX_PLAINTEXT_BYTES:
            raise _not_ours()
        ephemeral, ciphertext = sealed[:_PUBLIC_BYTES], sealed[_PUBLIC_BYTES:]
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            key, nonce = _derived(shared, ephemeral, bytes.fromhex(self.public))
            return AESGCM(key).decrypt(nonce, ciphertext, context)
        except (InvalidTag, ValueError):  # ValueError: a point of low order, RFC 7748, section 6.1
            raise _not_ours() from None

    def __repr__(self) -> str:
        return f"<recipient {self.public[:16]}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a recipient is not pickled or copied")


def seal(recipient: str, plaintext: bytes, context: bytes) -> bytes:
    """Encrypt `plaintext` to `recipient`, which is a `Recipient.public`; return the ephemeral public key, the
    ciphertext and its tag. `context` is authenticated but not part of the result: `Recipient.open` needs the same
    bytes.

    Raises AileronError(invalid_request) for an invalid recipient, (resource_limit_exceeded) for more than MAX_PLAINTEXT_BYTES.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(plaintext) > MAX_PLAINTEXT_BYTES:
        message = f"{len(plaintext)} bytes are more than can be shown to a person ({MAX_PLAINTEXT_BYTES})"
        raise AileronError(FailureClass.RESOURCE_LIMIT_EXCEEDED, message, details={"limit": "output"})
    try:
        if _HEX.fullmatch(recipient) is None:
            raise ValueError("another length, or no hex")
        public = bytes.fromhex(recipient)
        ephemeral = X25519PrivateKey.generate()
        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        message = "the recipient is not an X25519 key: 64 hex digits"
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER) from None
    own = ephemeral.public_key().public_bytes_raw()
    key, nonce = _derived(shared, own, public)
    return own + AESGCM(key).encrypt(nonce, plaintext, context)


def _derived(shared: bytes, ephemeral: bytes, recipient: bytes) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    made = HKDF(SHA256(), _KEY_BYTES + _NONCE_BYTES, salt=ephemeral + recipient, info=_INFO).derive(shared)
    return made[:_KEY_BYTES], made[_KEY_BYTES:]


def _not_ours() -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH, "what came is not sealed to this command, or was changed on the way"
    )
