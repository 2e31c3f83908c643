"""Rows of the ledger as frozen values: runs, approvals with their candidates and conversation, and filters for events.

Shared by every backend and its callers. Pure.

Rules
- Times are microseconds since the epoch, UTC, as integers: exact in JSON and in SQL.
- A run's status and an approval's state are current facts; the history of both is in the events.

Not here: SQL (sqlite.py), the events themselves (audit/events.py).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from aileron.model.consent import ConsentKind
from aileron.model.decision import Signature
from aileron.model.invocation import Scope
from aileron.model.json_value import JSONObject
from aileron.model.outcome import RunStatus

__all__ = [
    "ACTION_KIND",
    "ApprovalRow",
    "ApprovalState",
    "CandidateRow",
    "EventFilter",
    "EventRow",
    "RecordRow",
    "RoundRow",
    "RunRow",
]

ACTION_KIND: Final = ConsentKind.ACTION.value
"""Kind of the questions for which a run waits; a question of any other kind is about a consent."""


class ApprovalState(enum.StrEnum):
    """The state of a question to a person. All states but the first two are final; `redeemed` means that the approval
    was used, which is possible only once.
    """

    PENDING = "pending_approval"
    APPROVED = "approved"
    REDEEMED = "redeemed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def status(self) -> RunStatus:
        """The run status that callers see for a question without a run; a redeemed question is shown as completed."""
        return RunStatus.COMPLETED if self is ApprovalState.REDEEMED else RunStatus(self.value)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the ledger stores it: its state, and its outcome if it has ended.

    `connector` is the connector of the step that started last; `outcome` is JSON of model/outcome.py, None until final.
    """

    id: str
    action: str
    session: str
    scope: Scope
    status: RunStatus
    plan_digest: str
    approval: str | None = None
    connector: str | None = None
    created_us: int = 0
    changed_us: int = 0
    outcome: bytes | None = None


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person, with its decision if there is one. It is bound to `digest`; `run` is the run that waits
    for it, if any.

    The subject (for an action, the frozen plan) is read separately, since it can be large. `name` is the name of the action,
    or of the subject of a consent. After the decision, `digest` is the digest that was decided, which can be that of a
    candidate (`CandidateRow`).
    """

    id: str
    kind: str
    run: str | None
    digest: str
    state: ApprovalState
    created_us: int
    expires_us: int
    decided_us: int | None = None
    reason: str | None = None
    surface: str | None = None
    name: str | None = None
    asked: str | None = None
    """Digest that the question had when it was asked, if the decision was about a candidate with another digest; None
    if the question's digest is still `digest`.
    """
    preview: str | None = None
    """Digest of the preview that was shown with the candidate that the decision is about; None if no preview was shown."""
    key_id: str | None = None
    signed_at: str | None = None
    signature: str | None = None
    head: str | None = None
    head_signature: str | None = None

    @property
    def asked_digest(self) -> str:
        """Digest of the question when it was asked."""
        return self.asked or self.digest

    @property
    def signed(self) -> Signature | None:
        """The signature of the decision, with its time and head; None if the decision is not signed."""
        if self.key_id is None or self.signed_at is None or self.signature is None:
            return None
        return Signature(
            key_id=self.key_id,
            at=self.signed_at,
            signature=self.signature,
            head=self.head,
            head_signature=self.head_signature,
        )


class CandidateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate: a digest that a decision can be about in place of the question's own digest. It is the digest of an
    edited plan, or of a plan together with the displayed `preview`.
    """

    digest: str
    plan_digest: str
    preview: str | None
    made_us: int


class RoundRow(msgspec.Struct, frozen=True):
    """A person's question to the agent, numbered from 1; `answer` is None until the agent answers."""

    number: int
    question: str
    answer: str | None


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that selects the events which meet all its conditions. They are returned newest first unless
    `oldest_first` is set.

    `since_us` is inclusive, `until_us` exclusive; `after` and `before` are exclusive row numbers, for paging and tailing.
    """

    run: str | None = None
    session: str | None = None
    type: str | None = None
    action: str | None = None
    connector: str | None = None
    failure_class: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    after: int | None = None
    before: int | None = None
    oldest_first: bool = False
    limit: int = 100


class RecordRow(msgspec.Struct, frozen=True):
    """An event as the hash chain has it: the hashed text, the previous hash, and the event's own hash."""

    seq: int
    record: str
    previous: bytes
    hash: bytes


class EventRow(msgspec.Struct, frozen=True):
    """An event: the facts of its record (including `seq`, `at_us` and `type`), and its hash."""

    seq: int
    facts: JSONObject
    hash: bytes
