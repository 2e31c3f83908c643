"""JWTs signed by Aileron and verified by PyJWT; keys in each stored form, and keys that do not fit."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.request_signing import SIGNING_ALGORITHMS, SigningAlgorithm
from aileron.model.secret import Secret
from aileron.oauth.assertion import read_service_account, read_signing_key

RSA: Final = rsa.generate_private_key(65537, 2048)
KEYS: Final[dict[SigningAlgorithm, Any]] = {
    "RS256": RSA,
    "PS256": RSA,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
PKCS8, TRADITIONAL = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
CLAIMS: Final[dict[str, str | int]] = {
    "iss": "me",
    "sub": "me",
    "aud": "https://id.example/token",
    "exp": 9_999_999_999,
    "iat": 1,
    "jti": "x",
}


def pem(key: Any, form: serialization.PrivateFormat = PKCS8, passphrase: bytes | None = None) -> bytes:
    """Return the key as openssl writes it."""
    cipher = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    written: bytes = key.private_bytes(serialization.Encoding.PEM, form, cipher)
    return written


def jwk(algorithm: SigningAlgorithm, **more: str) -> dict[str, Any]:
    """Return the private JWK as PyJWT writes it."""
    kind = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}[algorithm]
    makers: dict[str, Any] = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }
    return {**json.loads(makers[kind].to_jwk(KEYS[algorithm])), **more}


def stored(algorithm: SigningAlgorithm, form: str) -> Secret:
    """Return the key of an algorithm in one of the stored forms."""
    match form:
        case "pkcs8":
            return Secret(pem(KEYS[algorithm]))
        case "traditional":
            return Secret(pem(KEYS[algorithm], TRADITIONAL))
        case _:
            return Secret(json.dumps(jwk(algorithm, kid="the-key")).encode())


FORMS: Final = [
    (algorithm, form)
    for algorithm in SIGNING_ALGORITHMS
    for form in ("pkcs8", "traditional", "jwk")
    if (algorithm, form) != ("EdDSA", "traditional")  # OpenSSL has no older form of it
]


@pytest.mark.parametrize(("algorithm", "form"), FORMS)
def test_a_jwt_signature_of_aileron_is_verified_by_another_library(algorithm: SigningAlgorithm, form: str) -> None:
    """Each algorithm is tried with each form of its key; the key's ID is in the header if it has one."""
    signed = read_signing_key(stored(algorithm, form), algorithm).signed({**CLAIMS})

    public = KEYS[algorithm].public_key()
    assert jwt.decode(signed, public, algorithms=[algorithm], audience=str(CLAIMS["aud"])) == CLAIMS
    header = jwt.get_unverified_header(signed)
    assert header == {"alg": algorithm, "typ": "JWT"} | ({"kid": "the-key"} if form == "jwk" else {})


@pytest.mark.parametrize(("algorithm", "other"), [("RS256", "ES256"), ("ES256", "EdDSA"), ("EdDSA", "PS256")])
@pytest.mark.parametrize("form", ["pkcs8", "jwk"])
def test_a_signing_key_of_the_wrong_type_is_refused(
    algorithm: SigningAlgorithm, other: SigningAlgorithm, form: str
) -> None:
    """The message names the type that is needed; a key of the right type is accepted."""
    assert read_signing_key(stored(other, form), other)
    with pytest.raises(ValueError, match=f"wrong type: {algorithm}, which the connector declares, needs an? "):
        read_signing_key(stored(other, form), algorithm)


SHORT: Final = rsa.generate_private_key(65537, 1024)
REFUSED: Final = {
    "passphrase": (pem(RSA, passphrase=b"correct horse"), "with a passphrase"),
    "short": (pem(SHORT), "an RSA key of 1024 bits; at least 2048 are required"),
    "short-jwk": (
        jwt.algorithms.RSAAlgorithm.to_jwk(SHORT).encode(),
        "an RSA key of 1024 bits; at least 2048 are required",
    ),
    "openssh": (pem(RSA, serialization.PrivateFormat.OpenSSH), "ssh-keygen -p -N '' -m PKCS8"),
    "two": (pem(RSA) + pem(RSA), "has 2 private keys; leave only one"),
    "curve": (pem(ec.generate_private_key(ec.SECP384R1())), "of the wrong type"),
    "public": (
        RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "is not a private key in PEM",
    ),
    "text": (b"hunter2-hunter2", "is not a private key in PEM"),
    "public-jwk": (
        json.dumps({name: value for name, value in jwk("RS256").items() if name in ("kty", "n", "e")}).encode(),
        "not a whole private key",
    ),
    "other-halves": (json.dumps(jwk("EdDSA", x="AAAA")).encode(), "not a whole private key"),
    "symmetric": (b'{"kty": "oct", "k": "aHVudGVyMg"}', "a JWK of a type that signs with none"),
    "for-another": (json.dumps(jwk("RS256", alg="PS256")).encode(), "for another algorithm than RS256"),
    "json": (b'{"kty": 1}', "is JSON, but not a private JWK"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusable_signing_key_is_refused_with_the_reason(name: str) -> None:
    """The message quotes no part of the key."""
    data, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as caught:
        read_signing_key(Secret(data), "RS256")

    assert not any(word in str(caught.value) for word in data.decode().split() if len(word) > 12)
    assert caught.value.__cause__ is None


@given(
    st.binary(max_size=300)
    | st.builds(lambda at, byte: _changed(pem(RSA), at, byte), st.integers(0), st.integers(0, 255))
)
def test_any_bytes_are_parsed_as_a_signing_key_or_refused(data: bytes) -> None:
    """The only error is ValueError."""
    with contextlib.suppress(ValueError):
        read_signing_key(Secret(data), "RS256")
    with contextlib.suppress(ValueError):
        read_service_account(Secret(data), "RS256")


@given(
    st.dictionaries(
        st.sampled_from(("kty", "crv", "x", "y", "d", "n", "e", "p", "q", "dp", "dq", "qi", "kid", "alg")),
        st.sampled_from(("RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "", "é", "====", jwk("ES256")["d"]))
        | st.text(),
    )
)
def test_any_json_is_parsed_as_a_signing_key_or_refused(members: dict[str, str]) -> None:
    """The numbers of a JWK need not belong together."""
    with contextlib.suppress(ValueError):
        read_signing_key(Secret(json.dumps(members).encode()), "ES256")


def _changed(data: bytes, at: int, byte: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([byte]) + data[at + 1 :]
