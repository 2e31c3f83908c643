"""Passkeys: the check of what a WebAuthn authenticator signs in place of the approver's key.

Pure. Used by the daemon, twice for every decision, and by a program that only verifies a ledger. Trusts the key that was
enrolled, and nothing else: a browser, or a program in its place, hands in all three parts.

A passkey's signature is one text, as that of an approver's key is: three parts in base64url (RFC 4648, section 5, no padding)
with dots between, the signature, the authenticator data and the client data, in this order.

An assertion is the passkey's over a statement if
1. its three parts are within their bounds, in their only valid spelling, and can be read
2. it is an assertion, and not what is signed when a passkey is created
3. its challenge is the sha256 of the statement's very bytes
4. the page that asked is the home's own, including the port, and not in a frame of another site
5. it was made for the relying party `localhost`, which every port of this machine shares: hence 4
6. a person was present, and the device verified them: by a finger, a face, a PIN
7. the signature is the enrolled key's over all this, by ES256, EdDSA or RS256

The count of signatures, and whether the passkey is copied between devices, are not checked: docs/adr/0028-passkeys.md.

Source: W3C, Web Authentication Level 3, sections 6.1, 7.1 and 7.2; RFC 9053 (COSE); docs/reference/signed-decisions.md. Not here:
which questions a passkey can decide (consent.py), challenges for creating one (daemon/decisions/passkeys.py).
"""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from aileron.model.decision import Statement
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.sha256 import sha256

if TYPE_CHECKING:
    from fido2.cose import CoseKey
    from fido2.webauthn import AuthenticatorData

__all__ = [
    "ALGORITHMS",
    "RP_ID",
    "Assertion",
    "PasskeyError",
    "PasskeyKey",
    "Registered",
    "Synced",
    "base64url",
    "challenge_of",
    "check_assertion",
    "check_key",
    "check_registration",
    "from_base64url",
    "id_of",
    "is_passkey",
    "passkey_id",
    "said_challenge",
]

RP_ID: Final = "localhost"
"""The relying party of every home: the only name of the loopback address for which browsers use passkeys without TLS."""
ALGORITHMS: Final = {-7: "ES256", -8: "EdDSA", -257: "RS256"}
"""COSE's numbers of algorithms, in the order in which they are requested:
those of phones and security keys, then Windows Hello.
"""
MAX_SIGNATURE_BYTES: Final = 512
"""Bytes of a signature: RSA of 4096 bits."""
MAX_AUTHENTICATOR_BYTES: Final = 1 << 10
"""1 KiB of authenticator data: 37 bytes and extensions, of which none are requested."""
MAX_CLIENT_BYTES: Final = 2 << 10
"""2 KiB of client data: browsers write 130 to 300 bytes."""
MAX_ATTESTATION_BYTES: Final = 16 << 10
"""16 KiB of an attestation: some authenticators send certificates unasked, up to half of this."""
MAX_CREDENTIAL_ID_BYTES: Final = 1023
"""Bytes of a credential id (Web Authentication, section 4, Credential ID)."""
_PREFIX: Final = "webauthn:"
_NAMED_AT: Final = 53
"""Bytes of authenticator data before the credential: relying party, flags, count, model (Web Authentication, section 6.1)."""
_RSA_BYTES: Final = range(256, 513)
"""Bytes of an RSA modulus: 2048 to 4096 bits."""
_RSA_EXPONENT: Final = b"\x01\x00\x01"
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    struct.error,
)
"""Errors that the library raises for malformed bytes: it reads field by field and gives no details."""

Synced = Literal["no", "possible", "yes"]
"""Words of the authenticator about copies of the passkey on other devices: there are none, there can be, or there are."""
Why = Literal[
    "form", "type", "challenge", "origin", "frame", "rp", "presence", "verification", "algorithm", "signature"
]
"""Fault of an assertion, or of a new passkey."""


class PasskeyError(AileronError):
    """The assertion is not this passkey's, or the new passkey is not acceptable; `why` says which check failed."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(
            FailureClass.UNAUTHORIZED, f"the passkey's answer is not valid: {message}", boundary=Boundary.USER
        )
        self.why = why


class PasskeyKey(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that an assertion is checked against."""

    name: str
    """Name that the person gave it."""
    credential_id: str
    """Name that the authenticator gave it: base64url, as browsers have it."""
    public_key: str
    """Public key in COSE, hex."""
    rp_id: str
    origin: str
    """Page that it was created on, the only one whose assertions are accepted: `http://localhost:PORT`."""


class Assertion(NamedTuple):
    """The three parts of a passkey's signature, not yet checked."""

    signature: bytes
    authenticator_data: bytes
    client_data: bytes

    @classmethod
    def parse(cls, text: str) -> Assertion:
        """Parse what `spelled` returned. PasskeyError("form") for any other spelling, or a part that is too long."""
        parts = text.split(".", 3) if len(text) <= _MAX_TEXT else []
        if len(parts) != 3:
            raise PasskeyError("form", "expected three parts separated by dots")
        found = cls(*map(from_base64url, parts))
        for part, most in zip(found, (MAX_SIGNATURE_BYTES, MAX_AUTHENTICATOR_BYTES, MAX_CLIENT_BYTES), strict=True):
            if not 1 <= len(part) <= most:
                raise PasskeyError("form", f"a part has {len(part)} bytes, not 1 to {most}")
        return found

    def spelled(self) -> str:
        """Return the text in which a signature is stored."""
        return ".".join(map(base64url, self))


_MAX_TEXT: Final = (MAX_SIGNATURE_BYTES + MAX_AUTHENTICATOR_BYTES + MAX_CLIENT_BYTES) * 4 // 3 + 8


class Registered(NamedTuple):
    """A passkey that was just created."""

    credential_id: bytes
    public_key: bytes
    algorithm: str
    synced: Synced
    aaguid: str | None
    """Model of the authenticator, as it says itself; None if it does not say."""


class _ClientData(msgspec.Struct, frozen=True):
    """The facts about the request that a browser reports. It may report more."""

    type: str
    challenge: str
    origin: str
    cross_origin: bool | None = msgspec.field(default=None, name="crossOrigin")
    top_origin: str | None = msgspec.field(default=None, name="topOrigin")


def passkey_id(credential_id: bytes, public_key: bytes) -> str:
    """Return the id that a decision names and a person compares: `webauthn:` and half of a hash, in hex.

    The hash is the sha256 of credential id and key, of which the first 16 bytes are used. They are hashed as an authenticator
    writes them one after the other: the length of the credential id (two bytes, big-endian), the id, and the key in COSE. The
    id alone is no secret, and anybody who knew it could give it to a key of their own. Source: Web Authentication, section
    6.5.1 (attested credential data).
    """
    return f"{_PREFIX}{sha256(_named(credential_id, public_key)).hex()[:32]}"


def id_of(passkey: PasskeyKey) -> str:
    """Return the id computed from the stored key of a passkey, whatever id is stored beside it. PasskeyError("form")."""
    return passkey_id(from_base64url(passkey.credential_id), _from_hex(passkey.public_key))


def _named(credential_id: bytes, public_key: bytes) -> bytes:
    return struct.pack(">H", len(credential_id)) + credential_id + public_key


def is_passkey(key_id: str) -> bool:
    """Return whether this is the id of a passkey, not of an approver's key. The key itself is not checked."""
    return key_id.startswith(_PREFIX)


def base64url(raw: bytes) -> str:
    """Return bytes in WebAuthn's spelling: RFC 4648, section 5, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def from_base64url(text: str) -> bytes:
    """Return the bytes of a text that `base64url` wrote. PasskeyError("form") for any other spelling."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if base64url(raw) != text:
        raise PasskeyError("form", "a part is not base64url without padding")
    return raw


def challenge_of(statement: Statement) -> str:
    """Return the challenge that an authenticator signs for a statement: the sha256 of its bytes, in base64url."""
    return base64url(sha256(statement.signed_bytes()))


def check_assertion(passkey: PasskeyKey, statement: Statement, signature: str) -> None:
    """Check that `signature` is this passkey's over this statement, by the list above. PasskeyError."""
    from cryptography.exceptions import InvalidSignature  # the types are used without it, and without the library

    assertion = Assertion.parse(signature)  # 1
    client = _client_data(assertion.client_data)
    authenticator = _authenticator_data(assertion.authenticator_data)
    _check_client(client, "webauthn.get", challenge_of(statement), passkey.origin)  # 2, 3, 4
    _check_authenticator(authenticator, passkey.rp_id)  # 5, 6
    key = _key(_from_hex(passkey.public_key))  # 7
    signed = assertion.authenticator_data + sha256(assertion.client_data)
    try:
        key.verify(signed, assertion.signature)
    except InvalidSignature:
        raise PasskeyError("signature", "the signature is not from the enrolled key") from None
    except ValueError as error:
        raise PasskeyError("algorithm", f"the enrolled key is not valid: {error}") from None


def check_key(public_key: str, algorithm: str) -> None:
    """Check that this (COSE, hex) is a key of this algorithm, in its only spelling. PasskeyError("algorithm")."""
    key = _key(_from_hex(public_key))
    _check_usable(key)
    if ALGORITHMS[key[3]] != algorithm:
        raise PasskeyError("algorithm", f"its key is not of {algorithm:.20}")


def said_challenge(client_data: bytes) -> str:
    """Return the challenge that a browser says it answers, so that the caller can find it. PasskeyError("form")."""
    return _client_data(client_data).challenge


def check_registration(client_data: bytes, attestation: bytes, *, challenge: str, origin: str) -> Registered:
    """Return the new passkey if it was created for this challenge, on this page, by a device that verified the person.
    PasskeyError otherwise. The kind of device is not proved: an authenticator's attestation is ignored, since none is requested.
    """
    from fido2.webauthn import AttestationObject

    if len(client_data) > MAX_CLIENT_BYTES or len(attestation) > MAX_ATTESTATION_BYTES:
        raise PasskeyError("form", "it is longer than an authenticator's answer can be")
    client = _client_data(client_data)
    try:
        made = AttestationObject(attestation).auth_data
        credential = made.credential_data
    except _UNREADABLE:
        raise PasskeyError("form", "the attestation cannot be read") from None
    _check_client(client, "webauthn.create", challenge, origin)
    _check_authenticator(made, RP_ID)
    if credential is None or not 1 <= len(credential.credential_id) <= MAX_CREDENTIAL_ID_BYTES:
        raise PasskeyError("form", "it contains no credential")
    public_key = _spelled(credential.public_key)
    if not bytes(made)[_NAMED_AT:].startswith(
        _named(credential.credential_id, public_key)
    ):  # the bytes from which the browser computed the id
        raise PasskeyError("form", "its key is not in CTAP 2 form")
    _check_usable(_key(public_key))
    if made.is_backed_up() and not made.is_backup_eligible():
        raise PasskeyError("form", "its flags contradict each other: backed up, but not eligible for backup")
    return Registered(
        credential_id=bytes(credential.credential_id),
        public_key=public_key,
        algorithm=ALGORITHMS[credential.public_key[3]],
        synced="yes" if made.is_backed_up() else "possible" if made.is_backup_eligible() else "no",
        aaguid=str(credential.aaguid) if credential.aaguid else None,
    )


def _client_data(raw: bytes) -> _ClientData:
    try:
        return msgspec.json.decode(raw, type=_ClientData)
    except (ValueError, RecursionError):
        raise PasskeyError("form", "the client data cannot be read") from None


def _authenticator_data(raw: bytes) -> AuthenticatorData:
    from fido2.webauthn import AuthenticatorData

    try:
        found = AuthenticatorData(raw)
    except _UNREADABLE:
        raise PasskeyError("form", "the authenticator data cannot be read") from None
    if found.credential_data is not None:
        raise PasskeyError("form", "it contains a credential, which only an enrollment may")
    return found


def _check_client(client: _ClientData, kind: str, challenge: str, origin: str) -> None:
    if client.type != kind:  # 2
        raise PasskeyError("type", f"its type is {client.type!r:.40}; expected {kind}")
    if client.challenge != challenge:  # 3
        raise PasskeyError("challenge", "it answers a different challenge")
    if client.origin != origin:  # 4
        raise PasskeyError("origin", f"it is from the page {client.origin!r:.80}; expected {origin}")
    if client.cross_origin or client.top_origin is not None:
        raise PasskeyError("frame", "the page was embedded in a page of another site")


def _check_authenticator(data: AuthenticatorData, rp_id: str) -> None:
    if data.rp_id_hash != sha256(rp_id.encode()):  # 5
        raise PasskeyError("rp", f"it is not for {rp_id}")
    if not data.is_user_present():  # 6
        raise PasskeyError("presence", "the device did not check that a person was present")
    if not data.is_user_verified():
        raise PasskeyError("verification", "the device did not verify the person")


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _spelled(key: Any) -> bytes:
    """Return a key in the encoding that the enrollment stores. PasskeyError if it cannot be encoded."""
    from fido2 import cbor

    try:
        return cbor.encode(dict(key))
    except _UNREADABLE:
        raise PasskeyError("form", "its key cannot be encoded") from None


def _key(spelled: bytes) -> CoseKey:
    """Return the key if it has the parameters of its algorithm and no others. PasskeyError("algorithm")."""
    from fido2 import cbor
    from fido2.cose import CoseKey

    try:
        found = cbor.decode(spelled)
        is_spelled = cbor.encode(found) == spelled
    except _UNREADABLE:
        found, is_spelled = None, False
    if not (isinstance(found, dict) and is_spelled and _is_known(found)):
        raise PasskeyError("algorithm", f"its key is not one of {', '.join(ALGORITHMS.values())}")
    return CoseKey.parse(found)


def _is_known(cose: dict[Any, Any]) -> bool:
    """Return whether a COSE key has exactly the parameters of its algorithm.

    Source: RFC 9053, sections 7.1 and 7.2; RFC 8230, section 4.
    """
    if any(isinstance(value, bool) for value in (*cose, *cose.values())):  # True would equal 1
        return False
    match cose:
        case {1: 2, 3: -7, -1: 1, -2: bytes(x), -3: bytes(y)}:
            return len(cose) == 5 and len(x) == len(y) == 32
        case {1: 1, 3: -8, -1: 6, -2: bytes(x)}:
            return len(cose) == 4 and len(x) == 32
        case {1: 3, 3: -257, -1: bytes(n), -2: bytes(e)}:
            return len(cose) == 4 and len(n) in _RSA_BYTES and n[0] != 0 and e == _RSA_EXPONENT
        case _:
            return False


def _check_usable(key: CoseKey) -> None:
    """Check that a key is usable. PasskeyError("algorithm").

    Well-formed numbers can still be no key, such as a point that is not on the curve: only using it shows that.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(b"", b"")
    except InvalidSignature:
        return
    except ValueError as error:
        raise PasskeyError("algorithm", f"its key is not valid: {error}") from None
    raise PasskeyError("algorithm", "its key accepts any signature")
