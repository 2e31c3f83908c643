"""What waits for a person: listed, shown, decided, edited, asked back, previewed.

Source: docs/reference/http-api.md#deciding, #a-question.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.failures import ErrorBody
from aileron.model.consent import Change, ConsentKind
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus

__all__ = [
    "AgreedFile",
    "AnswerQuestion",
    "Answered",
    "ApprovalEntry",
    "ApprovalList",
    "AskBack",
    "Asked",
    "ChallengeRequest",
    "ConsentAnswer",
    "ConsentsAnswer",
    "Decision",
    "Difference",
    "Edit",
    "EditRequest",
    "Edited",
    "GrantMade",
    "PasskeyEnrolled",
    "PreviewRequest",
    "Question",
    "Round",
    "SealedPreview",
    "SettingsAgreed",
    "Settled",
]


class Decision(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/decide`: what a person says about the bytes of `digest`.

    The last five where an approver exists: model/decision.py says what is signed. All of the first three of them, or none.
    """

    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None = None
    at: str | None = None
    key_id: str | None = None
    signature: str | None = None
    head: str | None = None
    head_signature: str | None = None

    def signed(self) -> Signature | None:
        """What was signed with, if anything. AileronError(invalid_request) where only a part of it is there."""
        parts = (self.key_id, self.at, self.signature)
        if parts == (None, None, None) and self.head is None and self.head_signature is None:
            return None
        if self.key_id is None or self.at is None or self.signature is None:
            raise AileronError(FailureClass.INVALID_REQUEST, "at, key_id and signature go together")
        if (self.head is None) != (self.head_signature is None):
            raise AileronError(FailureClass.INVALID_REQUEST, "head and head_signature go together")
        return Signature(
            key_id=self.key_id,
            at=self.at,
            signature=self.signature,
            head=self.head,
            head_signature=self.head_signature,
        )


class EditRequest(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/edit`: other arguments."""

    args: dict[str, Any]


class AskBack(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/ask`."""

    question: str


class AnswerQuestion(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/answer`."""

    answer: str


class ChallengeRequest(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/challenge`: a decision as it will be sent."""

    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None = None


class PreviewRequest(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/action-approvals/{id}/preview`: the fields of model/decision.py `PreviewStatement`, and its signature.

    `digest` is of the plan whose preview is asked for, where a person edited the arguments; the original's unless said.
    """

    recipient: str
    nonce: str
    at: str
    key_id: str
    signature: str
    digest: str | None = None


class ApprovalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `audit_id`, `action` and `session` are of a run, `name` is of every other kind."""

    approval_id: str
    kind: str
    name: str | UnsetType = UNSET
    status: RunStatus
    digest: str
    created_at: str
    expires_at: str
    decided_at: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    surface: str | UnsetType = UNSET
    key_id: str | UnsetType = UNSET
    signed_at: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    """The digest of the preview that was decided with it."""
    audit_id: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    folder: str | UnsetType = UNSET
    headline: str | UnsetType = UNSET
    """In a list: what a run would do, in at most 160 characters, as the agent's arguments say it."""
    asked_back: Literal["waiting", "answered"] | UnsetType = UNSET
    """In a list: a person asked whoever asked, who has not answered yet, or has."""
    group: str | UnsetType = UNSET
    """In a list: questions with the same one are agreed to together, or not at all."""


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """The first to expire first."""

    approvals: list[ApprovalEntry]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Other arguments that may be approved in place of the original."""

    digest: str
    plan: dict[str, Any]
    made_at: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked back, and the agent's answer once there is one."""

    question: str
    answer: str | UnsetType = UNSET


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Against the most similar call of this action that a person approved. `problem`: why it cannot be compared."""

    approval_id: str
    decided_at: str | None
    changes: list[Change]
    problem: str | None


class Question(ApprovalEntry, frozen=True, kw_only=True):
    """One, whole: exactly what its digest covers. From `plan` on of a run; from `subject` on of a consent."""

    head: str
    """The newest row of the record, for a signature over it."""
    plan: dict[str, Any] | UnsetType = UNSET
    has_preview: bool | UnsetType = UNSET
    edits: list[Edit] | UnsetType = UNSET
    conversation: list[Round] | UnsetType = UNSET
    asked_digest: str | UnsetType = UNSET
    """Of what it was asked with, where another was decided."""
    difference: Difference | UnsetType | None = UNSET
    asked_today: int | UnsetType = UNSET
    """How many runs the session that asks has asked for since midnight, this one counted."""
    subject: dict[str, Any] | UnsetType = UNSET
    granted_text: str | UnsetType = UNSET
    """Of a grant: the action's file, where it is still the one whose digest the subject names. Not signed: that digest is."""


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """200: what may be approved too."""

    digest: str
    plan: dict[str, Any]
    changes: list[Change]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """200: it waits for the agent."""

    approval_id: str
    question: str


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """200: a person can read it."""

    approval_id: str
    answer: str


class SealedPreview(msgspec.Struct, frozen=True, kw_only=True):
    """200: for the holder of `recipient` only, in base64: a Preview (model/preview.py)."""

    sealed: str


class ConsentsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """202: nothing is changed, a person must agree to each of these first; to all of them, where they are of one group."""

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approvals: tuple[ConsentAnswer, ...]


class ConsentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """202: nothing is changed, a person must agree first."""

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approval_id: str
    kind: ConsentKind
    digest: str
    review_url: str
    message: str
    expires_at: str
    poll_after_ms: int = 2000


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """200: a question was decided or taken back. `audit_id` is the run that waited for it.

    `held_until`: an approved run begins then, and can be cancelled until then. For a consent that was agreed to: `completed` with
    the `result` that the route which asked would have answered, or `failed` with its `error`.
    """

    status: RunStatus
    approval_id: str
    audit_id: str | None
    held_until: str | UnsetType = UNSET
    result: Any = UNSET
    error: ErrorBody | UnsetType = UNSET


class AgreedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a yes to an action's file: it may run as it is."""

    name: str
    digest: str


class GrantMade(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a yes to a standing grant."""

    id: str
    action: str
    uses: int
    until: str


class PasskeyEnrolled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a yes to a passkey."""

    id: str
    name: str
    origin: str


class SettingsAgreed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a yes to settings. `restart`: some are in force at the next start."""

    settings: dict[str, Any]
    restart: bool
