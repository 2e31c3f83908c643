"""The statements that an approver signs: the exact bytes of each, and the check of their signatures.

Pure. Used on both sides: by the process that holds the unlocked key (approver_key/), by the daemon, and by a program that only
verifies a ledger. A statement is a line that names its kind and version, then the canonical JSON (RFC 8785) of its fields, so
that a signature made for one kind is never valid for another, and no two statements have the same bytes.

Rules
- A decision is about a digest. The signer computes that digest from what it shows, and never trusts the daemon's digest.
- Times are RFC 3339 in UTC with milliseconds, in the one spelling that `moment` makes.
- A signature is 64 bytes of Ed25519 (RFC 8032), in base64; a key is its 32 public bytes, and is named by `key_id_of`.
- A passkey's signature, over the sha256 of the same bytes, is also one text; `key_id` says which kind of key signed (passkey.py).

Source: docs/reference/signed-decisions.md. Not here: the private key (approver_key/), when a decision counts (approvals/,
audit/).
"""

from __future__ import annotations

import base64
import binascii
import datetime
from typing import Any, Final, Literal, Self

import msgspec

from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.sha256 import sha256

__all__ = [
    "PUBLIC_KEY_BYTES",
    "ApproverStatement",
    "DecisionStatement",
    "HeadStatement",
    "MismatchError",
    "PageStatement",
    "PreviewStatement",
    "Signature",
    "Statement",
    "check_signature",
    "digest_with_preview",
    "held_until",
    "key_id_of",
    "moment",
    "parse_moment",
    "preview_digest",
]

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of all statements; it converts a statement to the bytes that are signed."""

    def signed_bytes(self) -> bytes:
        """Return the line that names the statement's kind, then its fields as canonical JSON. An absent field is null."""
        return self._line() + canonical_json(msgspec.to_builtins(self))

    def _line(self) -> bytes:
        raise NotImplementedError


class DecisionStatement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's decision about the bytes with this `digest`. It is valid once, because `approval_id` is never used again."""

    approval_id: str
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None
    at: str
    key_id: str

    def _line(self) -> bytes:
        return b"aileron-decision-v1\n"


class HeadStatement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest row of the ledger (`SEQ:HASH`), as reported to the approver's program when the person decided."""

    head: str
    at: str
    key_id: str

    def _line(self) -> bytes:
        return b"aileron-head-v1\n"


class PreviewStatement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed request of the approver for the preview of one question. Only `recipient` (X25519, hex) can read the response.

    `nonce` is 16 random bytes in hex; a request is answered at most once.
    """

    approval_id: str
    recipient: str
    nonce: str
    at: str
    key_id: str

    def _line(self) -> bytes:
        return b"aileron-preview-v1\n"


class PageStatement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement that the approver is using the page that sent `nonce` (16 random bytes, hex).

    A nonce is answered at most once.
    """

    nonce: str
    at: str
    key_id: str

    def _line(self) -> bytes:
        return b"aileron-page-v1\n"


class ApproverStatement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement that this key decides from now on;
    `inventory` is the digest of everything that already exists and is approved with this statement.

    The statement is signed with the new key, and also with the key that it `replaces`, if any.
    """

    public_key: str
    """Public key: 32 bytes, hex."""
    inventory: str
    replaces: str | None
    at: str
    key_id: str

    def _line(self) -> bytes:
        return b"aileron-approver-v1\n"


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signature of a decision: its key, its time, and the newest row of the ledger if that was reported and signed too."""

    key_id: str
    at: str
    signature: str
    head: str | None = None
    head_signature: str | None = None


class MismatchError(AileronError):
    """Error: the daemon would decide something other than what is shown, so nothing is signed.

    `why` is the likely reason; `fix` is the command that helps.
    """

    def __init__(self, message: str, why: str, fix: str) -> None:
        super().__init__(FailureClass.HASH_MISMATCH, message, boundary=Boundary.USER)
        self.why = why
        self.fix = fix

    @classmethod
    def between(cls, subject: str, named: object, computed: str) -> Self:
        """Return the error for two different digests: `named`, which the daemon sent, and `computed`.

        `computed` is the digest of the content that the daemon sent; `subject` names this content in the message.
        """
        return cls(
            f"{subject} is not what would be decided; nothing was signed",
            f"the daemon says {named}, but what it sent is {computed}; its version may differ, or another "
            "program answers for it",
            "aileron daemon status",
        )


def check_signature(public_key: bytes, statement: Statement, signature: str) -> None:
    """Check that `signature` (base64) was made with this key for this statement. Raises AileronError(unauthorized) if not."""
    from cryptography.exceptions import InvalidSignature  # takes 10 ms; most importers need only the types
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(signature, validate=True)
        if len(raw) != SIGNATURE_BYTES or len(public_key) != PUBLIC_KEY_BYTES:
            raise ValueError("a different length")
        Ed25519PublicKey.from_public_bytes(public_key).verify(raw, statement.signed_bytes())
    except (InvalidSignature, binascii.Error, ValueError):
        raise AileronError(
            FailureClass.UNAUTHORIZED,
            "the signature is not the approver's for this decision; nothing was decided",
            boundary=Boundary.USER,
        ) from None


def key_id_of(public_key: bytes) -> str:
    """Return `ed25519:` and the first 16 bytes of the key's sha256 in hex. People compare this id, and a decision names it."""
    return f"ed25519:{sha256(public_key).hex()[:32]}"


def preview_digest(preview: Any) -> str:
    """Return `sha256:…` over what a preview showed, given as JSON values."""
    return sha256_digest(canonical_json(preview))


def digest_with_preview(plan_digest: str, shown_digest: str) -> str:
    """Return the digest that a decision signs if a preview was shown. It covers the plan and the effect that the person saw."""
    return sha256_digest(canonical_json({"plan": plan_digest, "preview": shown_digest}))


def moment(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC, to the millisecond: `2026-11-21T13:00:00.000Z`."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def held_until(decided_at: float, signed_at: str | None, window_s: float) -> float:
    """Return the time at which an approved run starts, `window_s` seconds after its approval, in seconds since the
    epoch. Until then it can be cancelled.

    The window begins at the signed time, or at the ledger's `decided_at` if decisions are unsigned. Raises ValueError if
    `signed_at` is not in the spelling that `moment` writes.
    """
    return (decided_at if signed_at is None else parse_moment(signed_at)) + window_s


def parse_moment(text: str) -> float:
    """Return the seconds since the epoch for a time that `moment` wrote. Raises ValueError for any other spelling."""
    if len(text) != len("2026-11-21T13:00:00.000Z"):
        raise ValueError(f"{text[:40]!r} is not a time such as 2026-11-21T13:00:00.000Z")
    seconds = datetime.datetime.fromisoformat(text).timestamp()
    if moment(seconds) != text:
        raise ValueError(f"{text!r} is not a time in UTC to the millisecond")
    return seconds
