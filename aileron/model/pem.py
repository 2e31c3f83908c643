r"""PEM: blocks of text in a stored value, and the private keys among them.

Pure; runs in the daemon and in commands. No error quotes a value. The library that parses keys is loaded only when a key is
read.

Rules
- A private key must have no passphrase, because nobody is there to type it.
- An error about a key includes the command that fixes the key.
- RSA keys have at least 2048 bits, as required by OpenSSL at Debian's security level, and by RFC 7518 section 3.3.

Source: RFC 7468, RFC 1421 section 4.6, OpenSSH's PROTOCOL.key. Not here: certificates (client_certificate.py), JWK
(oauth/assertion.py).

>>> pem_blocks(b"Bag Attributes\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
[PemBlock(label=b'CERTIFICATE', text=b'-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n')]
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aileron.model.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

__all__ = [
    "NEW_KEY",
    "PemBlock",
    "PemError",
    "check_size",
    "is_document",
    "maybe_private_key",
    "pem_blocks",
    "pem_without_text",
    "private_key_blocks",
    "read_private_key",
]

MIN_RSA_BITS: Final = 2048
_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")
_PRINTABLE: Final = re.compile(rb"[\x20-\x7e\n]+")
_BUNDLE: Final = re.compile(
    rb"(?:-----BEGIN ([A-Z0-9 ]{1,64})-----\n(?:[A-Za-z0-9-]{1,64}: [\x20-\x7e]*\n)*[A-Za-z0-9+/=\n]+\n-----END \1-----\n+){1,16}"
)
"""Pattern of certificates and their private key, in any order, with no text between them.

A block with an encrypted key may begin with header fields (RFC 1421).
"""
_OPENSSH: Final = b"openssh-key-v1\0"
_NO_CIPHER: Final = b"\0\0\0\x04none"
"""Beginning of an unencrypted OpenSSH key: the name of the cipher comes first (PROTOCOL.key, section 1)."""
_DECRYPT: Final = "remove the passphrase from a copy: `openssl pkey -in client.key -out plain.key`"
_FROM_OPENSSH: Final = "convert a copy: `ssh-keygen -p -N '' -m PKCS8 -f COPY`"
NEW_KEY: Final = "make a key: `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out client.key`"


class PemError(ValueError):
    """Error: the value cannot be used. `what` says what is wrong, as the end of a sentence, and `fix` how to fix it."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.what: Final = what
        self.fix: Final = fix


class PemBlock(NamedTuple):
    """A PEM block: its label and its own lines, each ending in a line feed."""

    label: bytes
    text: bytes

    @property
    def is_private_key(self) -> bool:
        """True for a block with a private key of any kind, encrypted or not."""
        return self.label.endswith(b"PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        """True for a block with a private key that needs a passphrase."""
        if (
            self.label == b"ENCRYPTED PRIVATE KEY" or b"ENCRYPTED" in self.text.partition(b"\n\n")[0]
        ):  # RFC 1421, Proc-Type
            return True
        if self.label != b"OPENSSH PRIVATE KEY":
            return False
        try:
            decoded = binascii.a2b_base64(b"".join(self.text.splitlines()[1:-1]), strict_mode=True)
        except binascii.Error:
            return False
        return decoded.startswith(_OPENSSH) and not decoded.startswith(_OPENSSH + _NO_CIPHER)


def pem_blocks(data: bytes) -> list[PemBlock]:
    """Return the complete PEM blocks in `data`, without the text between the blocks."""
    found: list[PemBlock] = []
    lines: list[bytes] = []
    label = b""
    for line in data.splitlines():
        line = line.rstrip()
        if (begin := _BEGIN.fullmatch(line)) is not None:
            label, lines = begin[1], []
        if not label:
            continue
        lines.append(line + b"\n")
        if line == b"-----END " + label + b"-----":
            found.append(PemBlock(label, b"".join(lines)))
            label = b""
    return found


def private_key_blocks(data: bytes) -> list[PemBlock]:
    """Return the PEM blocks in `data` that are private keys."""
    return [block for block in pem_blocks(data) if block.is_private_key]


def pem_without_text(data: bytes) -> bytes:
    """Return only the PEM blocks of a file with certificates, without the text that tools print between the blocks.

    Data that is not such a file is returned unchanged.
    """
    blocks = pem_blocks(data)
    if not any(label == b"CERTIFICATE" for label, _ in blocks):
        return data
    return b"".join(text for _, text in blocks)


def maybe_private_key(value: Secret) -> PemBlock | None:
    """Return the private key, encrypted or not, in PEM or OpenSSH's format, if `value` consists of nothing else; None
    otherwise.
    """
    data = value.reveal()
    match pem_blocks(data):
        case [key] if key.is_private_key and key.text == data.rstrip(b"\n") + b"\n" and _PRINTABLE.fullmatch(data):
            return key
    return None


def is_document(value: Secret) -> bool:
    """Return whether `value` is of a kind that can have several lines: PEM blocks, or a JSON object."""
    data = value.reveal()
    if (
        maybe_private_key(value) is not None
        or _BUNDLE.fullmatch(data if data.endswith(b"\n") else data + b"\n") is not None
    ):
        return True
    return b"\n" in data and _is_json_object(data)


def _is_json_object(data: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(data, type=dict[str, msgspec.Raw]), dict)
    except (ValueError, RecursionError):
        return False


def read_private_key(block: PemBlock) -> PrivateKeyTypes:
    """Return the private key in the block, whatever its type. Raises PemError if the key cannot be used.

    That an RSA key's numbers are primes is not checked, because it is the person's own key and the check takes up to half a
    second.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if block.label == b"OPENSSH PRIVATE KEY":
        raise PemError("has a private key in OpenSSH's format; PKCS #8 is required", _FROM_OPENSSH)
    if block.is_encrypted:
        raise PemError("has a private key with a passphrase, which nobody could type", _DECRYPT)
    try:
        key = load_pem_private_key(block.text, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if key is None:
        raise PemError("has a private key that cannot be read", NEW_KEY)
    check_size(key)
    return key


def check_size(key: PrivateKeyTypes) -> None:
    """Raise PemError if the key is an RSA key with too few bits."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < MIN_RSA_BITS:
        raise PemError(f"has an RSA key of {key.key_size} bits; at least {MIN_RSA_BITS} are required", NEW_KEY)
