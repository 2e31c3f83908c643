"""Passkeys: what a WebAuthn authenticator signs in place of the approver's key, and whether it did.

Pure. Used by the daemon, twice for every decision, and by whoever verifies a ledger alone. Trusts the key that was enrolled, and
nothing of what comes with it: a browser, or a program in its place, hands in all three parts.

A passkey's signature is one text, as that of an approver's key is: three parts in base64url (RFC 4648, section 5, no padding)
with dots between, the signature, the authenticator data and the client data, in this order.

An assertion is the passkey's over a statement if
1. its three parts are within their bounds, spelled in the one way there is, and can be read
2. it is an assertion, and not what is signed when a passkey is made
3. its challenge is the sha256 of the statement's very bytes
4. the page that asked is the home's own, to the port, and no frame of another site's
5. it was made for the relying party `localhost`, which every port of this machine shares: hence 4
6. somebody was there, and the device knew them: by a finger, a face, a PIN
7. the signature is the enrolled key's over all this, by ES256, EdDSA or RS256

The count of signatures, and whether the passkey is copied between devices, are not looked at: docs/adr/0028-passkeys.md.

Source: W3C, Web Authentication Level 3, sections 6.1, 7.1 and 7.2; RFC 9053 (COSE); docs/reference/signed-decisions.md. Not here:
which questions a passkey may decide (consent.py), challenges for making one (daemon/decisions/passkeys.py).
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
"""The relying party of every home: the only name of the loopback address for which browsers do this without TLS."""
ALGORITHMS: Final = {-7: "ES256", -8: "EdDSA", -257: "RS256"}
"""COSE's numbers, in the order in which they are asked for: what phones and keys have, and then Windows Hello."""
MAX_SIGNATURE_BYTES: Final = 512
"""RSA of 4096 bits."""
MAX_AUTHENTICATOR_BYTES: Final = 1 << 10
"""37 bytes and what extensions add; nobody asked for any."""
MAX_CLIENT_BYTES: Final = 2 << 10
"""Browsers write 130 to 300."""
MAX_ATTESTATION_BYTES: Final = 16 << 10
"""Some authenticators send certificates unasked, up to half of this."""
MAX_CREDENTIAL_ID_BYTES: Final = 1023
"""Web Authentication, section 4, Credential ID."""
_PREFIX: Final = "webauthn:"
_NAMED_AT: Final = 53
"""Bytes of authenticator data before the credential: relying party, flags, count, model (Web Authentication, section 6.1)."""
_RSA_BYTES: Final = range(256, 513)
"""2048 to 4096 bits."""
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
"""What the library raises for bytes that are not what they are said to be: it reads one after the other and says no more."""

Synced = Literal["no", "possible", "yes"]
"""Whether the passkey is, or can be, on other devices too, as the authenticator says."""
Why = Literal[
    "form", "type", "challenge", "origin", "frame", "rp", "presence", "verification", "algorithm", "signature"
]
"""What is wrong with an assertion, or with what was made."""


class PasskeyError(AileronError):
    """It is not this passkey's, or none that may be one; and why."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(
            FailureClass.UNAUTHORIZED, f"the passkey's answer is not valid: {message}", boundary=Boundary.USER
        )
        self.why = why


class PasskeyKey(msgspec.Struct, frozen=True, kw_only=True):
    """What an assertion is checked against."""

    name: str
    """What the person calls it."""
    credential_id: str
    """What the authenticator calls it: base64url, as browsers have it."""
    public_key: str
    """COSE, hex."""
    rp_id: str
    origin: str
    """The page it was made on, and the only one whose assertions count: `http://localhost:PORT`."""


class Assertion(NamedTuple):
    """The three parts of a passkey's signature, of which nothing is known yet."""

    signature: bytes
    authenticator_data: bytes
    client_data: bytes

    @classmethod
    def parse(cls, text: str) -> Assertion:
        """The inverse of `spelled`. PasskeyError("form") for any other spelling, or a part that is too long."""
        parts = text.split(".", 3) if len(text) <= _MAX_TEXT else []
        if len(parts) != 3:
            raise PasskeyError("form", "expected three parts separated by dots")
        found = cls(*map(from_base64url, parts))
        for part, most in zip(found, (MAX_SIGNATURE_BYTES, MAX_AUTHENTICATOR_BYTES, MAX_CLIENT_BYTES), strict=True):
            if not 1 <= len(part) <= most:
                raise PasskeyError("form", f"a part has {len(part)} bytes, not 1 to {most}")
        return found

    def spelled(self) -> str:
        """As a signature is kept."""
        return ".".join(map(base64url, self))


_MAX_TEXT: Final = (MAX_SIGNATURE_BYTES + MAX_AUTHENTICATOR_BYTES + MAX_CLIENT_BYTES) * 4 // 3 + 8


class Registered(NamedTuple):
    """A passkey that was just made."""

    credential_id: bytes
    public_key: bytes
    algorithm: str
    synced: Synced
    aaguid: str | None
    """Which model made it, as it says itself; None: it does not say."""


class _ClientData(msgspec.Struct, frozen=True):
    """What a browser says of who asked. It may say more."""

    type: str
    challenge: str
    origin: str
    cross_origin: bool | None = msgspec.field(default=None, name="crossOrigin")
    top_origin: str | None = msgspec.field(default=None, name="topOrigin")


def passkey_id(credential_id: bytes, public_key: bytes) -> str:
    """What a decision names, and a person compares: `webauthn:` and the first 16 bytes, in hex, of the sha256 of both.

    They are hashed as an authenticator writes them one after the other: the length of the credential id (two bytes, big-endian),
    the id, and the key in COSE. The id alone is no secret, and whoever knew it could give it to a key of their own. Source: Web
    Authentication, section 6.5.1 (attested credential data).
    """
    return f"{_PREFIX}{sha256(_named(credential_id, public_key)).hex()[:32]}"


def id_of(passkey: PasskeyKey) -> str:
    """The id that what is kept of a passkey comes to, whatever id is kept beside it. PasskeyError("form")."""
    return passkey_id(from_base64url(passkey.credential_id), _from_hex(passkey.public_key))


def _named(credential_id: bytes, public_key: bytes) -> bytes:
    return struct.pack(">H", len(credential_id)) + credential_id + public_key


def is_passkey(key_id: str) -> bool:
    """Whether this is said to be a passkey's, and no approver's key."""
    return key_id.startswith(_PREFIX)


def base64url(raw: bytes) -> str:
    """As WebAuthn spells bytes: RFC 4648, section 5, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def from_base64url(text: str) -> bytes:
    """The inverse, of that one spelling. PasskeyError("form")."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if base64url(raw) != text:
        raise PasskeyError("form", "a part is not base64url without padding")
    return raw


def challenge_of(statement: Statement) -> str:
    """What an authenticator signs for a statement: the sha256 of its bytes, in base64url."""
    return base64url(sha256(statement.signed_bytes()))


def check_assertion(passkey: PasskeyKey, statement: Statement, signature: str) -> None:
    """Return if `signature` is this passkey's over this statement, by the list above. PasskeyError."""
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
    """Return if this (COSE, hex) is a key of this algorithm, in its one spelling. PasskeyError("algorithm")."""
    key = _key(_from_hex(public_key))
    _check_usable(key)
    if ALGORITHMS[key[3]] != algorithm:
        raise PasskeyError("algorithm", f"its key is not of {algorithm:.20}")


def said_challenge(client_data: bytes) -> str:
    """The challenge that a browser says it answers, for who has to find out which it was. PasskeyError("form")."""
    return _client_data(client_data).challenge


def check_registration(client_data: bytes, attestation: bytes, *, challenge: str, origin: str) -> Registered:
    """What was made, if it was made for this challenge, on this page, by a device that knew who was there. PasskeyError.

    Which device it was is not proved: what an authenticator attests is passed over, since none is asked to.
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
    ):  # which the browser counted
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
    """A key as the enrolment keeps it. PasskeyError where it has no spelling."""
    from fido2 import cbor

    try:
        return cbor.encode(dict(key))
    except _UNREADABLE:
        raise PasskeyError("form", "its key cannot be encoded") from None


def _key(spelled: bytes) -> CoseKey:
    """The key, with the parameters that its algorithm has and no others. PasskeyError("algorithm")."""
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
    """RFC 9053, sections 7.1 and 7.2; RFC 8230, section 4."""
    if any(isinstance(value, bool) for value in (*cose, *cose.values())):  # which would pass for 1
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
    """Numbers may still be no key, as a point beside the curve: only using it shows that. PasskeyError("algorithm")."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(b"", b"")
    except InvalidSignature:
        return
    except ValueError as error:
        raise PasskeyError("algorithm", f"its key is not valid: {error}") from None
    raise PasskeyError("algorithm", "its key accepts any signature")
