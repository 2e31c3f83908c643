"""Made-up credentials, one of each kind. A test server gets such a credential in place of a real one.

Runs in `aileron connector test`, in place of the vault. A made-up credential has the form in which a person would have stored
a real one, so that it is injected, or signs, like a real one.

    lent = fake_credential(need)

Rules
- The value is `FAKE_SECRET` wherever that is possible, so that an author's test server can know it, and check signatures.
  A client certificate has a new key each time and is self-signed with that key.

Source: docs/reference/connector-manifest.md. Not here: injecting a credential (egress/inject.py), real credentials (vault/).
"""

from __future__ import annotations

import base64
import datetime
from typing import Final, assert_never

from aileron.egress.inject import LentCredential
from aileron.model.manifest import CredentialNeed
from aileron.model.request_signing import HmacTemplate
from aileron.model.secret import Secret

__all__ = ["FAKE_SECRET", "FAKE_USER", "fake_credential"]

FAKE_SECRET: Final = "aileron-connector-test"  # noqa: S105  (what a test server is shown in the place of a credential)
FAKE_USER: Final = "test"
"""Made-up user name, also used as the access key ID."""
_DAY: Final = datetime.timedelta(days=1)


def fake_credential(need: CredentialNeed) -> LentCredential:
    """Return a made-up credential that meets this need."""
    value, username = FAKE_SECRET.encode(), None
    match need.kind:
        case "basic" | "digest" | "login" | "aws_sigv4":
            username = FAKE_USER
        case "hmac":
            value = _hmac_key(need, value)
        case "mtls":
            value = _certificate()
        case "api_key" | "oauth2" | "oauth2_client":
            pass
        case impossible:
            assert_never(impossible)
    return LentCredential(need.kind, Secret(value), username)


def _hmac_key(need: CredentialNeed, value: bytes) -> bytes:
    """Return `value` as an HMAC key in the encoding in which the vault would store it for this need."""
    match need.hmac.key if isinstance(need.hmac, HmacTemplate) else "utf8":
        case "utf8":
            return value
        case "hex":
            return value.hex().encode()
        case "base64":
            return base64.b64encode(value)
        case "whsec":
            return b"whsec_" + base64.b64encode(value)
        case impossible:
            assert_never(impossible)


def _certificate() -> bytes:
    """Return a client certificate that is valid for a day, and its private key, both in PEM."""
    from cryptography import x509  # 40 ms, and only this kind needs it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, FAKE_SECRET)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form)
