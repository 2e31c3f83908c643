"""Verification of the signatures that a WebAuthn authenticator makes with a passkey, in place of the approver's key.

Pure. Used by the daemon, twice for every decision, and by a program that only verifies a ledger. Trusts only the enrolled
key, because a browser, or a program in its place, supplies all three parts of a signature.

Like an approver's signature, a passkey's signature is one text. It has three parts in base64url (RFC 4648, section 5, no
padding), separated by dots: the signature, the authenticator data and the client data.

An assertion is accepted as the passkey's signature of a statement if
1. its three parts are within their bounds, in their only valid spelling, and can be parsed
2. its type is the type of an assertion, not the type of the data that is signed when a passkey is created
3. its challenge is the sha256 of exactly the statement's bytes
4. the requesting page is the home's own, including the port, and not in a frame of another site
5. it was made for the relying party `localhost`, which all ports of this machine share; hence check 4
6. a person was present, and the device verified them: by a finger, a face, a PIN
7. the signature over all of this was made with the enrolled key, by ES256, EdDSA or RS256

The count of signatures, and whether the passkey is copied between devices, are not checked (docs/adr/0028-passkeys.md).

Source: W3C, Web Authentication Level 3, sections 6.1, 7.1 and 7.2; RFC 9053 (COSE); docs/reference/signed-decisions.md. Not here:
which questions a passkey can decide (consent.py), challenges for creating one (daemon/consent_service/passkeys.py).
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
    "MAX_CREDENTIAL_ID_BYTES",
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
"""The relying party of every home, because browsers use passkeys without TLS only for this name of the loopback address."""
ALGORITHMS: Final = {-7: "ES256", -8: "EdDSA", -257: "RS256"}
"""COSE's numbers of algorithms, in the order in which they are requested.

The algorithms of phones and security keys come first, then the algorithm of Windows Hello.
"""
MAX_SIGNATURE_BYTES: Final = 512
"""Maximum size of a signature in bytes: the size of an RSA signature with a 4096-bit key."""
MAX_AUTHENTICATOR_BYTES: Final = 1 << 10
"""1 KiB: maximum size of authenticator data, which has 37 bytes without extensions; no extensions are requested."""
MAX_CLIENT_BYTES: Final = 2 << 10
"""2 KiB: maximum size of client data; browsers write 130 to 300 bytes."""
MAX_ATTESTATION_BYTES: Final = 16 << 10
"""16 KiB: maximum size of an attestation; some authenticators send unrequested certificates, up to half of this size."""
MAX_CREDENTIAL_ID_BYTES: Final = 1023
"""Maximum size of a credential id in bytes (Web Authentication, section 4, Credential ID)."""
_PREFIX: Final = "webauthn:"
_NAMED_AT: Final = 53
"""Number of bytes of authenticator data before the credential id's length: relying party, flags, count, model (WebAuthn,
section 6.1).
"""
_RSA_BYTES: Final = range(256, 513)
"""Allowed sizes of an RSA modulus in bytes: 2048 to 4096 bits."""
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
"""Errors that the library raises for malformed bytes, because it reads field by field without checks."""

Synced = Literal["no", "possible", "yes"]
"""The authenticator's statement about copies of the passkey on other devices: none exist, they are possible, or they exist."""
Why = Literal[
    "form", "type", "challenge", "origin", "frame", "rp", "presence", "verification", "algorithm", "signature"
]
"""Name of the failed check of an assertion or a new passkey."""


class PasskeyError(AileronError):
    """Error: the assertion is not this passkey's, or the new passkey is not acceptable. `why` says which check failed."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(
            FailureClass.UNAUTHORIZED, f"the passkey's answer is not valid: {message}", boundary=Boundary.USER
        )
        self.why = why


class PasskeyKey(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a passkey that an assertion is checked against."""

    name: str
    """Name of the passkey, given by the person."""
    credential_id: str
    """Id of the credential, given by the authenticator; base64url, as browsers use."""
    public_key: str
    """Public key in COSE encoding, in hex."""
    rp_id: str
    origin: str
    """Origin of the page where the passkey was created, `http://localhost:PORT`. Assertions from other origins are refused."""


class Assertion(NamedTuple):
    """The three parts of a passkey's signature, not yet checked."""

    signature: bytes
    authenticator_data: bytes
    client_data: bytes

    @classmethod
    def parse(cls, text: str) -> Assertion:
        """Parse a text that `spelled` returned.

        Raises PasskeyError("form") for any other spelling, or a part that is too long.
        """
        parts = text.split(".", 3) if len(text) <= _MAX_TEXT else []
        if len(parts) != 3:
            raise PasskeyError("form", "expected three parts separated by dots")
        found = cls(*map(from_base64url, parts))
        for part, most in zip(found, (MAX_SIGNATURE_BYTES, MAX_AUTHENTICATOR_BYTES, MAX_CLIENT_BYTES), strict=True):
            if not 1 <= len(part) <= most:
                raise PasskeyError("form", f"a part has {len(part)} bytes, not 1 to {most}")
        return found

    def spelled(self) -> str:
        """Return the text in which the signature is stored."""
        return ".".join(map(base64url, self))


_MAX_TEXT: Final = (MAX_SIGNATURE_BYTES + MAX_AUTHENTICATOR_BYTES + MAX_CLIENT_BYTES) * 4 // 3 + 8


class Registered(NamedTuple):
    """A passkey that was just created."""

    credential_id: bytes
    public_key: bytes
    algorithm: str
    synced: Synced
    aaguid: str | None
    """Model of the authenticator, as the authenticator itself claims; None if it claims none."""


class _ClientData(msgspec.Struct, frozen=True):
    """The facts about the request that a browser reports. Further fields are ignored."""

    type: str
    challenge: str
    origin: str
    cross_origin: bool | None = msgspec.field(default=None, name="crossOrigin")
    top_origin: str | None = msgspec.field(default=None, name="topOrigin")


def passkey_id(credential_id: bytes, public_key: bytes) -> str:
    """Return the id that a decision names and a person compares: `webauthn:` and half of a hash, in hex.

    The hash is the sha256 of credential id and key, of which the first 16 bytes are used. The input is laid out
    as an authenticator writes it: the length of the credential id (two bytes, big-endian), the id, and the key in COSE. The
    credential id alone is not secret, and anybody who knows it could use it for another key. Source: Web Authentication, section
    6.5.1 (attested credential data).
    """
    return f"{_PREFIX}{sha256(_named(credential_id, public_key)).hex()[:32]}"


def id_of(passkey: PasskeyKey) -> str:
    """Return a passkey's id, computed from its credential id and key, without trusting an id that is stored with them.

    Raises PasskeyError("form") if these cannot be decoded.
    """
    return passkey_id(from_base64url(passkey.credential_id), _from_hex(passkey.public_key))


def _named(credential_id: bytes, public_key: bytes) -> bytes:
    return struct.pack(">H", len(credential_id)) + credential_id + public_key


def is_passkey(key_id: str) -> bool:
    """Return whether `key_id` is the id of a passkey rather than of an approver's key. The key itself is not checked."""
    return key_id.startswith(_PREFIX)


def base64url(raw: bytes) -> str:
    """Return the bytes as base64url: RFC 4648, section 5, without padding, as WebAuthn uses it."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def from_base64url(text: str) -> bytes:
    """Return the bytes of a text that `base64url` wrote. Raises PasskeyError("form") for any other spelling."""
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
    """Check that `signature` is this passkey's signature of this statement, by the seven checks listed for the module.
    Raises PasskeyError if not.
    """
    from cryptography.exceptions import InvalidSignature  # most importers need only the types, without the library

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
    """Check that `public_key` (COSE, hex) is a key for `algorithm`, in its only spelling.

    Raises PasskeyError("algorithm") if not.
    """
    key = _key(_from_hex(public_key))
    _check_usable(key)
    if ALGORITHMS[key[3]] != algorithm:
        raise PasskeyError("algorithm", f"its key is not of {algorithm:.20}")


def said_challenge(client_data: bytes) -> str:
    """Return the challenge in a browser's client data, so that the caller can look it up.

    Raises PasskeyError("form") if the data cannot be parsed.
    """
    return _client_data(client_data).challenge


def check_registration(client_data: bytes, attestation: bytes, *, challenge: str, origin: str) -> Registered:
    """Return the new passkey if it was created for this challenge, on this page, by a device that verified the person.
    Raises PasskeyError otherwise. The kind of device is not proved: an authenticator's attestation is ignored, since none is
    requested.
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
    """Return a COSE key in the encoding that an enrollment stores. Raises PasskeyError if the key cannot be encoded."""
    from fido2 import cbor

    try:
        return cbor.encode(dict(key))
    except _UNREADABLE:
        raise PasskeyError("form", "its key cannot be encoded") from None


def _key(spelled: bytes) -> CoseKey:
    """Decode a COSE key that has exactly the parameters of its algorithm. Raises PasskeyError("algorithm") for any
    other bytes.
    """
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
    """Check that a public key can verify signatures. Raises PasskeyError("algorithm") if not.

    Well-formed numbers can still be an invalid key, such as a point that is not on the curve; only using the key shows that.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(b"", b"")
    except InvalidSignature:
        return
    except ValueError as error:
        raise PasskeyError("algorithm", f"its key is not valid: {error}") from None
    raise PasskeyError("algorithm", "its key accepts any signature")
