"""Creates the JWT that authenticates a token request (RFC 7523). The JWT is signed with a private key that is never sent.

Pure, except for the randomness of a signature. Runs in the daemon, in a worker thread: reading a large RSA key takes a moment.

Rules
- A key is in PEM (PKCS #8, PKCS #1, SEC1) without a passphrase, a JWK, or part of the key file of a Google service account.
- The manifest specifies the algorithm, and a key of another type is refused: the algorithm is never inferred from the key.
- RSA has 2048 bits or more (RFC 7518, section 3.3).
- An error quotes no part of a key.

Source: RFC 7515, 7517, 7518, 8037; docs/adr/0011-dependencies.md has the reason why no JWT library is used. Not here: the
claims (token_request.py).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from typing import Final, Literal

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from aileron.model.pem import check_size, private_key_blocks, read_private_key
from aileron.model.request_signing import SigningAlgorithm
from aileron.model.secret import Secret

__all__ = ["Claims", "ServiceAccount", "SigningKey", "is_json", "read_service_account", "read_signing_key"]

Claims = dict[str, str | int]

_P256_BYTES: Final = 32
_WANTED: Final[dict[SigningAlgorithm, str]] = {
    "RS256": "an RSA key",
    "PS256": "an RSA key",
    "ES256": "an elliptic curve key on P-256",
    "EdDSA": "an Ed25519 key",
}
_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A private key with which JWTs are signed, of the type that `algorithm` requires. `key_id` is the name of the key
    at the server; None if it has none.
    """

    algorithm: SigningAlgorithm
    key_id: str | None
    key: _PrivateKey

    def signed(self, claims: Claims) -> str:
        """Return the JWT with these claims, signed with this key, in JWS Compact Serialization (RFC 7515, section 7.1)."""
        header = {"alg": self.algorithm, "typ": "JWT"} | ({} if self.key_id is None else {"kid": self.key_id})
        signing_input = ".".join(_base64url(msgspec.json.encode(part)) for part in (header, claims))
        return f"{signing_input}.{_base64url(_signature(self, signing_input.encode('ascii')))}"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ServiceAccount:
    """The contents of a Google service account's key file. `token_url` is the endpoint that issues the account's tokens,
    according to the file.
    """

    email: str
    token_url: str
    key: SigningKey


class _KeyFile(msgspec.Struct, frozen=True):
    """The fields of a service account's key file that are read."""

    type: Literal["service_account"]
    client_email: str
    private_key: str
    private_key_id: str
    token_uri: str

    def __repr__(self) -> str:
        return "<key file>"


class _Jwk(msgspec.Struct, frozen=True):
    """The fields that are read from a private JWK: RFC 7518 section 6, RFC 8037 section 2."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    crv: str | None = None
    x: str = ""
    y: str = ""
    d: str = ""
    n: str = ""
    e: str = ""
    p: str = ""
    q: str = ""
    dp: str = ""
    dq: str = ""
    qi: str = ""

    def __repr__(self) -> str:
        return "<JWK>"


def is_json(value: Secret) -> bool:
    """Return whether a stored secret looks like a JSON object."""
    return value.reveal().lstrip().startswith(b"{")


def read_signing_key(value: Secret, algorithm: SigningAlgorithm) -> SigningKey:
    """Read a private key in PEM or as a JWK. Raise ValueError for an unusable key, with the reason and without quoting the
    key.
    """
    if not is_json(value):
        return _fitting(_from_pem(value.reveal()), algorithm, None)
    try:
        jwk = msgspec.json.decode(value.reveal(), type=_Jwk)
    except (ValueError, RecursionError):
        raise ValueError("is JSON, but not a private JWK (RFC 7517)") from None
    if jwk.alg is not None and jwk.alg not in (algorithm, "Ed25519"):
        raise ValueError(f"is a JWK for another algorithm than {algorithm}, which the connector declares")
    return _fitting(_from_jwk(jwk), algorithm, jwk.kid)


def read_service_account(value: Secret, algorithm: SigningAlgorithm) -> ServiceAccount | None:
    """Read the key file of a service account, or return None if the value is no such file. Raises ValueError as
    `read_signing_key` does.
    """
    if not is_json(value):
        return None
    try:
        found = msgspec.json.decode(value.reveal(), type=_KeyFile)
    except (ValueError, RecursionError):
        return None
    key = _fitting(_from_pem(found.private_key.encode()), algorithm, found.private_key_id)
    return ServiceAccount(found.client_email, found.token_uri, key)


def _from_pem(data: bytes) -> PrivateKeyTypes:
    match private_key_blocks(data):
        case [block]:
            return read_private_key(block)
        case []:
            raise ValueError("is not a private key in PEM (PKCS #8, PKCS #1 or SEC1), and not a JWK")
        case several:
            raise ValueError(f"has {len(several)} private keys; leave only one")


def _from_jwk(jwk: _Jwk) -> PrivateKeyTypes:
    try:
        match jwk:
            case _Jwk(kty="RSA"):
                return _rsa(jwk)
            case _Jwk(kty="EC", crv="P-256"):
                public = ec.EllipticCurvePublicNumbers(_number(jwk.x), _number(jwk.y), ec.SECP256R1())
                return ec.EllipticCurvePrivateNumbers(_number(jwk.d), public).private_key()
            case _Jwk(kty="OKP", crv="Ed25519"):
                return _ed25519(jwk)
    except (ValueError, UnsupportedAlgorithm):
        pass
    else:
        raise ValueError("is a JWK of a type that signs with none of RS256, PS256, ES256 and EdDSA")
    raise ValueError("is a JWK that is not a whole private key (RFC 7518, section 6)")


def _rsa(jwk: _Jwk) -> rsa.RSAPrivateKey:
    public = rsa.RSAPublicNumbers(e=_number(jwk.e), n=_number(jwk.n))
    return rsa.RSAPrivateNumbers(
        p=_number(jwk.p),
        q=_number(jwk.q),
        d=_number(jwk.d),
        dmp1=_number(jwk.dp),
        dmq1=_number(jwk.dq),
        iqmp=_number(jwk.qi),
        public_numbers=public,
    ).private_key()


def _ed25519(jwk: _Jwk) -> ed25519.Ed25519PrivateKey:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(_decoded(jwk.d))
    if key.public_key().public_bytes_raw() != _decoded(jwk.x):
        raise ValueError("the halves do not belong together")
    return key


def _fitting(key: PrivateKeyTypes, algorithm: SigningAlgorithm, key_id: str | None) -> SigningKey:
    match algorithm, key:
        case (("RS256" | "PS256"), rsa.RSAPrivateKey()):
            check_size(key)  # for a JWK too
            return SigningKey(algorithm, key_id, key)
        case "ES256", ec.EllipticCurvePrivateKey(curve=ec.SECP256R1()):
            return SigningKey(algorithm, key_id, key)
        case "EdDSA", ed25519.Ed25519PrivateKey():
            return SigningKey(algorithm, key_id, key)
    raise ValueError(
        f"is a key of the wrong type: {algorithm}, which the connector declares, needs {_WANTED[algorithm]}"
    )


def _signature(signer: SigningKey, data: bytes) -> bytes:
    match signer.key:
        case rsa.RSAPrivateKey() as key if signer.algorithm == "PS256":
            return key.sign(
                data, padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH), hashes.SHA256()
            )
        case rsa.RSAPrivateKey() as key:
            return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        case ec.EllipticCurvePrivateKey() as key:  # RFC 7518, section 3.4: both numbers, not DER
            numbers = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
            return b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers)
        case ed25519.Ed25519PrivateKey() as key:
            return key.sign(data)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError("not base64url") from None


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")
