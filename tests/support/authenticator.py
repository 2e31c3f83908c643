"""A passkey of a test's own: what an authenticator and the browser before it make, byte for byte, without either.

It does what it is told, and lies in any field that a test names: a `Told` is all that a page, a browser and a device say. Its
CBOR is written here and not by the library that reads it, so that each checks the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from aileron.model.decision import Statement
from aileron.model.passkey import Assertion, PasskeyKey, base64url, challenge_of, from_base64url, passkey_id

__all__ = ["ORIGIN", "Algorithm", "Authenticator", "Told", "cbor"]

ORIGIN: Final = "http://localhost:24100"
"""Origin of a home's page, for tests that need no real page."""
Algorithm = Literal["ES256", "EdDSA", "RS256"]
_UP, _UV, _BE, _BS, _AT = 0x01, 0x04, 0x08, 0x10, 0x40


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Claims of page, browser and device. None stands for the truth; any other value is a lie."""

    type: str | None = None
    challenge: str | None = None
    origin: str | None = None
    client: dict[str, Any] = {}
    """Members that are added to the client data or replace its own."""
    client_data: bytes | None = None
    rp_id: str = "localhost"
    is_there: bool = True
    is_verified: bool = True
    is_synced: bool = False
    flags: int | None = None
    count: int = 0
    more: bytes = b""
    """Bytes that follow the authenticator data."""
    key: dict[int, Any] | None = None
    """The public key, in COSE, in place of the device's own."""
    credential_id: bytes | None = None
    attestation: bytes | None = None


def cbor(value: Any) -> bytes:
    """Encode the types that are needed here as CBOR (RFC 8949); maps keep their order."""
    match value:
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int():
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        case bytes():
            return _head(2, len(value)) + value
        case str():
            return _head(3, len(value.encode())) + value.encode()
        case list():
            return _head(4, len(value)) + b"".join(map(cbor, value))
        case dict():
            return _head(5, len(value)) + b"".join(cbor(name) + cbor(of) for name, of in value.items())
    raise TypeError(type(value))


def _head(major: int, number: int) -> bytes:
    first = major << 5
    if number < 24:
        return bytes([first | number])
    for width, (code, form) in enumerate(((24, ">B"), (25, ">H"), (26, ">I"), (27, ">Q"))):
        if number < 1 << (8 << width):
            return bytes([first | code]) + struct.pack(form, number)
    raise ValueError(number)


class Authenticator:
    """A device with one passkey, for the page at `origin`."""

    def __init__(self, algorithm: Algorithm = "ES256", origin: str = ORIGIN) -> None:
        self.algorithm = algorithm
        self.origin = origin
        self.credential_id: Final = os.urandom(32)
        match algorithm:
            case "ES256":
                self._key: Any = ec.generate_private_key(ec.SECP256R1())
            case "EdDSA":
                self._key = ed25519.Ed25519PrivateKey.generate()
            case "RS256":
                self._key = rsa.generate_private_key(65537, 2048)
        self.key_id: Final = passkey_id(self.credential_id, cbor(self.cose))

    @property
    def cose(self) -> dict[int, Any]:
        """The public key, in the order of CTAP 2 (canonical CBOR)."""
        public = self._key.public_key()
        match self.algorithm:
            case "ES256":
                numbers = public.public_numbers()
                return {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
            case "EdDSA":
                return {1: 1, 3: -8, -1: 6, -2: public.public_bytes_raw()}
            case "RS256":
                return {1: 3, 3: -257, -1: public.public_numbers().n.to_bytes(256, "big"), -2: b"\x01\x00\x01"}

    def enrolled(self, name: str = "laptop") -> PasskeyKey:
        """Return the passkey as the daemon stores it after enrollment."""
        return PasskeyKey(
            name=name,
            credential_id=base64url(self.credential_id),
            public_key=cbor(self.cose).hex(),
            rp_id="localhost",
            origin=self.origin,
        )

    def make(self, options: dict[str, Any], told: Told = Told()) -> dict[str, Any]:  # noqa: B008 - frozen
        """Return what a page sends on from `navigator.credentials.create(options)`."""
        public = options["publicKey"]
        assert public["rp"]["id"] == "localhost"
        assert {"type": "public-key", "alg": self.cose[3]} in public["pubKeyCredParams"]
        assert base64url(self.credential_id) not in [descriptor["id"] for descriptor in public["excludeCredentials"]]
        client = self._client("webauthn.create", public["challenge"], told)
        name = self.credential_id if told.credential_id is None else told.credential_id
        key = cbor(self.cose if told.key is None else told.key)
        data = self._data(told, _AT) + bytes(16) + struct.pack(">H", len(name)) + name + key + told.more
        made = cbor({"fmt": "none", "attStmt": {}, "authData": data}) if told.attestation is None else told.attestation
        return {"client_data": base64url(client), "attestation": base64url(made), "transports": ["internal"]}

    def sign(self, statement: Statement, told: Told = Told()) -> str:  # noqa: B008 - frozen
        """Sign a statement with the passkey, in the form that the page sends on from `navigator.credentials.get(…)`."""
        return self.answer(challenge_of(statement), told).spelled()

    def answer(self, challenge: str, told: Told = Told()) -> Assertion:  # noqa: B008 - frozen
        """Sign the challenge that a page passes to the passkey."""
        client, data = self._client("webauthn.get", challenge, told), self._data(told) + told.more
        return Assertion(self._signature(data + hashlib.sha256(client).digest()), data, client)

    def chosen(self, asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the entry for this passkey from those that the daemon offers, after a check of its options."""
        (entry,) = [entry for entry in asked if entry["key_id"] == self.key_id]
        public = entry["publicKey"]
        assert [from_base64url(descriptor["id"]) for descriptor in public["allowCredentials"]] == [self.credential_id]
        assert (public["rpId"], public["userVerification"]) == ("localhost", "required")
        return entry

    def _signature(self, message: bytes) -> bytes:
        match self.algorithm:
            case "ES256":
                signature: bytes = self._key.sign(message, ec.ECDSA(hashes.SHA256()))
            case "EdDSA":
                signature = self._key.sign(message)
            case "RS256":
                signature = self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        return signature

    def _client(self, kind: str, challenge: str, told: Told) -> bytes:
        if told.client_data is not None:
            return told.client_data
        said = {
            "type": told.type or kind,
            "challenge": told.challenge or challenge,
            "origin": told.origin or self.origin,
            "crossOrigin": False,
        }
        return json.dumps({**said, **told.client}, separators=(",", ":")).encode()

    def _data(self, told: Told, also: int = 0) -> bytes:
        flags = also | _UP * told.is_there | _UV * told.is_verified | (_BE | _BS) * told.is_synced
        flags = flags if told.flags is None else told.flags
        return hashlib.sha256(told.rp_id.encode()).digest() + struct.pack(">BI", flags, told.count)
