"""A stored client certificate: the certificate, its chain and its private key, all PEM in one value.

Pure; runs in the daemon, where such a value is bound and where it is lent. The library that parses certificates is loaded
only when a certificate is read.

Rules
- Exactly one private key, not encrypted: nobody is there to type a passphrase. The certificate that it belongs to is the
  client's; the others are its chain, and are put in order, whatever order they have in the file.
- If a certificate has expired or is not valid yet, the error here says so, with the date, because a server's error says less.
- An error says what is wrong and how to fix it, and quotes nothing of the value.

Source: RFC 5280 sections 4.1.2.5 and 4.1.2.6, RFC 8446 section 4.4.2. Not here: blocks and keys (pem.py), TLS with it
(egress/client_certificate.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from aileron.model.pem import NEW_KEY, PemBlock, PemError, pem_blocks, read_private_key
from aileron.model.timestamp import utc

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

__all__ = ["CertificateError", "CertificateFacts", "ClientCertificate"]

MAX_CERTIFICATES: Final = 10
"""Maximum number of certificates in a file. A chain has two or three; OpenSSL verifies at most a hundred, other servers ten."""
_MAX_NAME_CHARACTERS: Final = 300
_PARAMETERS: Final = frozenset({b"EC PARAMETERS"})
"""PEM label of a block that `openssl ecparam -genkey` writes before the key; the key contains the parameters too."""
_TOGETHER: Final = "put the certificate and its private key into one file: `cat client.crt client.key > client.pem`"


class CertificateError(PemError):
    """Error: the stored value is not a usable client certificate."""


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from a certificate, for display to people.

    `subject` and `issuer` are distinguished names (RFC 4514); if a certificate has no subject name, `subject` has its
    alternative names. Times are in UTC.
    """

    subject: str
    issuer: str
    valid_from: str
    valid_until: str


class ClientCertificate:
    """A usable client certificate, except that its dates are not checked. Holds the private key; its `repr` shows nothing.

    `pem` is the client's certificate, then its chain in order, then its private key. Times are in seconds since the epoch.
    """

    __slots__ = ("begins_at", "ends_at", "facts", "pem")

    def __init__(self, stored: bytes) -> None:
        """Parse a stored value. Raises CertificateError if the value is not a usable client certificate."""
        blocks = pem_blocks(stored)
        key = _key_block(blocks)
        certificates = _certificates(blocks)
        client = _belonging_to(_private_key(key), certificates)
        chain = _in_order(client, certificates)
        self.begins_at: Final = client.not_valid_before_utc.timestamp()
        self.ends_at: Final = client.not_valid_after_utc.timestamp()
        self.facts: Final = CertificateFacts(
            subject=_subject_of(client),
            issuer=_shown(client.issuer.rfc4514_string()),
            valid_from=utc(self.begins_at),
            valid_until=utc(self.ends_at),
        )
        self.pem: Final = b"".join((*(_pem_of(certificate) for certificate in chain), key.text))

    def check_valid_at(self, now_s: float) -> None:
        """Raise CertificateError unless the certificate is valid at `now_s`."""
        if now_s > self.ends_at:
            raise CertificateError(
                f"has a certificate that expired on {self.facts.valid_until}",
                "get a new one from whoever issued it",
            )
        if now_s < self.begins_at:
            raise CertificateError(
                f"has a certificate that is not valid before {self.facts.valid_from}",
                "check the clock of this machine, or wait until then",
            )

    def __repr__(self) -> str:
        return f"<client certificate of {self.facts.subject}>"


def _key_block(blocks: list[PemBlock]) -> PemBlock:
    """Return the only private key among the blocks. Raises CertificateError if there is none or more than one."""
    keys = [block for block in blocks if block.is_private_key]
    if not keys:
        is_public = any(label.endswith(b"PUBLIC KEY") for label, _ in blocks)
        raise CertificateError("has a public key, and no private key" if is_public else "has no private key", _TOGETHER)
    if len(keys) > 1:
        raise CertificateError(f"has {len(keys)} private keys", "leave only the one that belongs to the certificate")
    return keys[0]


def _private_key(block: PemBlock) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    try:
        key = read_private_key(block)
    except PemError as error:
        raise CertificateError(error.what, error.fix) from None
    if isinstance(
        key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    ):
        return key
    raise CertificateError("has a private key that TLS does not use: RSA, EC, Ed25519 and Ed448 are supported", NEW_KEY)


def _certificates(blocks: list[PemBlock]) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificate

    found = [text for label, text in blocks if label == b"CERTIFICATE"]
    if not found:
        is_request = any(label.endswith(b"CERTIFICATE REQUEST") for label, _ in blocks)
        problem = "has a certificate request, and no certificate" if is_request else "has no certificate"
        raise CertificateError(problem, _TOGETHER)
    if len(found) > MAX_CERTIFICATES:
        raise CertificateError(f"has {len(found)} certificates; at most {MAX_CERTIFICATES}", "leave only its own chain")
    unknown = [label for label, _ in blocks if label != b"CERTIFICATE" and label not in _PARAMETERS]
    if len(unknown) > 1:
        raise CertificateError("has more in it than certificates and their private key", _TOGETHER)
    try:
        return [load_pem_x509_certificate(text) for text in found]
    except ValueError:
        pass
    raise CertificateError("has a certificate that cannot be read", "store the file as it was issued")


def _belonging_to(key: PrivateKeyTypes, certificates: list[Certificate]) -> Certificate:
    from cryptography.exceptions import UnsupportedAlgorithm

    for certificate in certificates:
        try:
            is_its = certificate.public_key() == key.public_key()
        except (ValueError, UnsupportedAlgorithm):  # the key of another certificate in the chain
            continue
        if is_its:
            return certificate
    raise CertificateError(
        "has a private key that belongs to none of its certificates",
        "look at both: `openssl x509 -in client.crt -noout -pubkey` and `openssl pkey -in client.key -pubout` print the same",
    )


def _in_order(client: Certificate, certificates: list[Certificate]) -> list[Certificate]:
    """Return the client's certificate followed by its issuers in order, without the others in `certificates`."""
    chain, rest = [client], [certificate for certificate in certificates if certificate != client]
    while issuer := next((certificate for certificate in rest if certificate.subject == chain[-1].issuer), None):
        chain.append(issuer)
        rest.remove(issuer)
    return chain


def _pem_of(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _subject_of(certificate: Certificate) -> str:
    """Return the distinguished name of the certificate's subject.

    If the certificate has none, as with SPIFFE certificates, return its alternative names.
    """
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    if named := certificate.subject.rfc4514_string():
        return _shown(named)
    try:
        others = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        return _shown(", ".join(str(other.value) for other in others))
    except (ExtensionNotFound, ValueError):
        return ""


def _shown(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"
