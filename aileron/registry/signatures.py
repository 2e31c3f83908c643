"""Ed25519 keys of publishers, and detached signatures over artifacts.

Pure. The signed message is the artifact itself, not a digest: connector ‖ manifest.toml, or action.md; a signature is 64 raw
bytes. A key comes as the PEM that other tools write (`openssl genpkey -algorithm ed25519`) or as base64 of its 32 bytes.

Used by the daemon to verify, and by `aileron connector sign` on an author's machine. Source: RFC 8032; RFC 8410;
docs/reference/signatures.md. Not here: which key is trusted for which publisher (keyring.py), fetching a repository's key
(forges/).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING, Final, Self, final

from aileron.model.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["FINGERPRINT", "KEY_BYTES", "MAX_KEY_FILE_BYTES", "SIGNATURE_BYTES", "PublicKey", "SigningKey"]

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_KEY_FILE_BYTES: Final = 16 << 10
"""16 KiB: maximum size of a key file. A PEM key has 120 bytes; the rest is room for notes."""
FINGERPRINT: Final = re.compile(r"sha256:[A-Za-z0-9+/]{22}")
_SHOWN: Final = 22
"""Number of base64 characters of a fingerprint: 132 bits, too many to find a second key with the same characters."""
_PEM: Final = re.compile(r"-----BEGIN ([A-Z ]{1,40})-----")


@final
class PublicKey:
    """A public key of 32 bytes. Keys are compared by value."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise ValueError(f"this key has {len(raw)} bytes; an Ed25519 key has {KEY_BYTES}")
        self.raw: Final = raw

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse PEM (SubjectPublicKeyInfo) or base64 of the raw bytes.

        Raises ValueError, whose message says what was found instead.
        """
        if kind := _PEM.search(text):
            return cls._of_pem(text, kind[1])
        return cls(_base64(text, "an Ed25519 public key, as PEM or base64 of its 32 bytes"))

    @classmethod
    def _of_pem(cls, text: str, kind: str) -> Self:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        if "PRIVATE" in kind:
            raise ValueError("it is a private key, with which anyone can sign. Keep it secret, and use the public key")
        try:
            key = load_pem_public_key(text.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("it is not the PEM of a public key") from None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"it is a key of another kind ({type(key).__name__}); expected Ed25519")
        return cls(key.public_bytes_raw())

    @property
    def fingerprint(self) -> str:
        """Fingerprint that people compare: `sha256:` and the first 22 characters of its sha256 in base64."""
        return f"sha256:{base64.b64encode(hashlib.sha256(self.raw).digest()).decode()[:_SHOWN]}"

    def is_signature(self, signature: bytes, message: bytes) -> bool:
        """Return whether a 64-byte signature over the message was made by this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_base64(self) -> str:
        """Return the raw bytes in base64, the form in which files store a key."""
        return base64.b64encode(self.raw).decode()

    def to_pem(self) -> str:
        """Return the key as PEM, the form in which a repository publishes `keys/publisher.pub`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"<key {self.fingerprint}>"


@final
class SigningKey:
    """A publisher's private key, on the publisher's machine. The key's bytes are never printed."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Secret) -> None:
        if len(raw) != KEY_BYTES:
            raise ValueError(f"this key has {len(raw)} bytes; an Ed25519 private key has {KEY_BYTES}")
        self._raw: Final = raw

    @classmethod
    def generate(cls) -> Self:
        """Generate a new key from the kernel's randomness."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Secret(Ed25519PrivateKey.generate().private_bytes_raw()))

    @classmethod
    def parse(cls, text: Secret) -> Self:
        """Parse PEM (PKCS #8, no passphrase) or base64 of the raw bytes.

        Raises ValueError, whose message says what was found, without quoting it.
        """
        try:
            words = text.reveal().decode()
        except UnicodeDecodeError:
            raise ValueError("not text: expected a private key as PEM, or base64 of its 32 bytes") from None
        if _PEM.search(words) is None:
            return cls(Secret(_base64(words, "an Ed25519 private key, as PEM or base64 of its 32 bytes")))
        return cls._of_pem(words)

    @classmethod
    def _of_pem(cls, words: str) -> Self:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(words.encode(), None)
        except TypeError:
            raise ValueError("it is encrypted: decrypt it first (openssl pkcs8 -topk8 -nocrypt -in KEY)") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("it is not the PEM of a private key") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"it is a key of another kind ({type(key).__name__}); expected Ed25519")
        return cls(Secret(key.private_bytes_raw()))

    @property
    def public(self) -> PublicKey:
        """The public half of the key."""
        return PublicKey(self._key().public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return a signature of 64 bytes. The same message gives the same signature."""
        return self._key().sign(message)

    def to_pem(self) -> Secret:
        """Return the key as PEM (PKCS #8), the form in which its owner stores it."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return Secret(self._key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._raw.reveal())

    def __repr__(self) -> str:
        return "<signing key>"


def _base64(text: str, expected: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"it is not {expected}") from None
    if len(raw) != KEY_BYTES:
        raise ValueError(f"it is not {expected}: {len(raw)} bytes")
    return raw
