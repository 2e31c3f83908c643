"""What a person is asked about, at rest: frozen when they are asked, thawed when they look and when it counts, and the same.

Pure. Trusts its digest, not the bytes: what is thawed has exactly the digest asked about, or is an error. The digest is of
the JSON as it lies there, so that a plan frozen before plans had a field more is still the one that was shown; it runs no more,
because what would run has another digest.

The frozen form keeps numbers as they were (canonical JSON would turn `1e17` into an integer that has no canonical form), so
it is not the canonical JSON of which the digest is made, but has the same digest.

Source: docs/adr (approval bound to a plan digest).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from aileron.ledger import ApprovalRow, ApprovalState, CandidateRow
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, FailureClass

if TYPE_CHECKING:  # a verifier makes no plan of what it hashes
    from aileron.model.plan import Plan
    from aileron.model.preview import SeenEffects

__all__ = ["Frozen", "Question", "StoredDecision", "decision_of", "freeze", "is_frozen", "subject_of", "thaw"]


class StoredDecision(msgspec.Struct, frozen=True):
    """What a person decided, as the ledger has it; `signed` is what it was signed with, None where nobody signs.

    `digest` is the candidate they decided, `preview` the digest of what they were shown with it. Times in s since the epoch.
    """

    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None
    preview: str | None
    signed: Signature | None
    surface: str
    decided_at: float


class Frozen(msgspec.Struct, frozen=True):
    """The plan that a run waits with: the decided one, or the one it was asked with. Times in seconds since the epoch.

    `digest` is that of the row: with a preview it is not the plan's. `asked_digest` is the plan's that was asked about first.
    """

    run_id: str
    plan: Plan
    asked_at: float
    digest: str
    asked_digest: str
    decision: StoredDecision | None
    effects: SeenEffects | None = None
    """What the preview that was decided about showed to change, as it is on record."""

    @property
    def is_edited(self) -> bool:
        """A person changed the arguments before they approved."""
        return self.plan.digest != self.asked_digest


class Question(msgspec.Struct, frozen=True):
    """A question that may be decided now, and the digests a decision may be about, that of the question itself first."""

    row: ApprovalRow
    candidates: tuple[CandidateRow, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        """What a decision may be about."""
        return tuple(candidate.digest for candidate in self.candidates)

    @property
    def created_at(self) -> float:
        """When it was asked, seconds since the epoch."""
        return self.row.created_us / 1_000_000


def decision_of(row: ApprovalRow) -> StoredDecision | None:
    """What was decided, as long as it stands: None for a question that is open, that expired or was taken back."""
    if row.decided_us is None or row.state not in _DECISIONS:
        return None
    return StoredDecision(
        decision=_DECISIONS[row.state],
        digest=row.digest,
        reason=row.reason,
        preview=row.preview,
        signed=row.signed,
        surface=row.surface or "",
        decided_at=row.decided_us / 1_000_000,
    )


_DECISIONS: dict[ApprovalState, Literal["approve", "deny"]] = {
    ApprovalState.APPROVED: "approve",
    ApprovalState.REDEEMED: "approve",
    ApprovalState.DENIED: "deny",
}


def freeze(subject: Plan | dict[str, Any]) -> tuple[bytes, str]:
    """What is asked about as JSON, for `thaw` and `subject_of`, and its digest. ValueError if it has no canonical form."""
    value = subject if isinstance(subject, dict) else subject.to_json()
    return msgspec.json.encode(value, order="sorted"), sha256_digest(canonical_json(value))


def subject_of(stored: bytes, digest: str, approval_id: str) -> dict[str, Any]:
    """What was frozen, as JSON values. AileronError(hash_mismatch) if it is not what has this digest."""
    try:
        value = msgspec.json.decode(stored, type=dict[str, Any])
        if sha256_digest(canonical_json(value)) == digest:
            return value
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise AileronError(
        FailureClass.HASH_MISMATCH,
        f"the stored plan of {approval_id} is not the one that a person was shown: run `aileron audit verify`",
    )


def is_frozen(stored: bytes, digest: str) -> bool:
    """Whether it is what has this digest, byte for byte as it was frozen: JSON has many spellings of one value."""
    try:
        return msgspec.json.encode(subject_of(stored, digest, ""), order="sorted") == stored
    except AileronError:
        return False


def thaw(stored: bytes, digest: str, approval_id: str) -> Plan:
    """The plan that was frozen. AileronError(hash_mismatch) if it is not the one of this digest, or may not run any more."""
    from aileron.model.plan import Plan

    value = subject_of(stored, digest, approval_id)
    try:
        plan = Plan.from_json(value)
        if plan.digest == digest:
            return plan
    except (msgspec.MsgspecError, ValueError):
        pass
    raise AileronError(
        FailureClass.HASH_MISMATCH,
        f"the plan of {approval_id} was made by another version of aileron and cannot run with this one: request it again",
    )
