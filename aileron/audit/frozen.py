"""The stored subject of a question: frozen (encoded) when the question is asked, and thawed (decoded) unchanged for the
review and for the run.

Pure. Trusts the digest, not the bytes: thawing fails unless the subject has exactly the digest of the question. The
digest is computed from the stored JSON. So a plan that was stored before plans got a new field still has the digest
that was shown. But it cannot run, because the plan that would run now has another digest.

The frozen form keeps numbers as they were written (canonical JSON would turn `1e17` into an integer that has no
canonical form). So it is not itself the canonical JSON from which the digest is computed, but has the same digest.

Source: docs/adr (approval bound to a plan digest).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from aileron.ledger import ApprovalRow, ApprovalState, CandidateRow
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject

if TYPE_CHECKING:  # a verifier hashes plans without building them
    from aileron.model.plan import Plan
    from aileron.model.preview import SeenEffects

__all__ = ["Frozen", "Question", "StoredDecision", "decision_of", "freeze", "is_frozen", "subject_of", "thaw"]


class StoredDecision(msgspec.Struct, frozen=True):
    """A person's decision as stored in the ledger; `signed` is its signature, None if decisions are not signed.

    `digest` is the digest that the decision is about, and `preview` the digest of the preview that was shown with the plan.
    Times are in seconds since the epoch.
    """

    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None
    preview: str | None
    signed: Signature | None
    surface: str
    decided_at: float


class Frozen(msgspec.Struct, frozen=True):
    """The stored plan of a run that waits for a person: the plan that was decided, or the requested one. Times are in
    seconds since the epoch.

    `digest` is the digest in the approval's row, which differs from the plan's digest if there is a preview.
    `asked_digest` is the digest of the requested plan.
    """

    run_id: str
    plan: Plan
    asked_at: float
    digest: str
    asked_digest: str
    decision: StoredDecision | None
    effects: SeenEffects | None = None
    """Effects (changes) in the preview that was approved together with the plan; None if the preview showed none."""

    @property
    def is_edited(self) -> bool:
        """True if a person changed the arguments before they approved."""
        return self.plan.digest != self.asked_digest


class Question(msgspec.Struct, frozen=True):
    """A question to a person that can be decided now. `candidates` has the digests that a decision can name; the
    question's own digest is the first.
    """

    row: ApprovalRow
    candidates: tuple[CandidateRow, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests that a decision of this question can name."""
        return tuple(candidate.digest for candidate in self.candidates)

    @property
    def created_at(self) -> float:
        """Time when the question was asked, in seconds since the epoch."""
        return self.row.created_us / 1_000_000


def decision_of(row: ApprovalRow) -> StoredDecision | None:
    """Return the decision of a question while it is in force; None for a question that is open, expired or withdrawn."""
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


def freeze(subject: Plan | JSONObject) -> tuple[bytes, str]:
    """Return the subject of a question (a plan or a consent) as JSON to store, which `thaw` and `subject_of` can read,
    and its digest. Raises ValueError if it has no canonical form.
    """
    value = subject if isinstance(subject, dict) else subject.to_json()
    return msgspec.json.encode(value, order="sorted"), sha256_digest(canonical_json(value))


def subject_of(stored: bytes, digest: str, approval_id: str) -> JSONObject:
    """Return the subject in the stored bytes of a question, as JSON values. Raises AileronError(hash_mismatch) if the
    subject does not have this digest.
    """
    try:
        value = msgspec.json.decode(stored, type=JSONObject)
        if sha256_digest(canonical_json(value)) == digest:
            return value
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise AileronError(
        FailureClass.HASH_MISMATCH,
        f"the stored plan of {approval_id} is not the one that a person was shown: run `aileron audit verify`",
    )


def is_frozen(stored: bytes, digest: str) -> bool:
    """Return whether `stored` is exactly what `freeze` returns for the subject with this digest. Other bytes can be
    JSON of the same subject.
    """
    try:
        return msgspec.json.encode(subject_of(stored, digest, ""), order="sorted") == stored
    except AileronError:
        return False


def thaw(stored: bytes, digest: str, approval_id: str) -> Plan:
    """Return the plan in the stored bytes of a question. Raises AileronError(hash_mismatch) if the plan does not have
    this digest, or can no longer run.
    """
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
