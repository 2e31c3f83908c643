"""Questions to a person: list, show, decide and edit them, ask the agent something, get a preview.

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
from aileron.model.json_value import JSONObject
from aileron.model.outcome import RunStatus

__all__ = [
    "AllowedHost",
    "AnswerQuestion",
    "Answered",
    "ApprovalEntry",
    "ApprovalList",
    "ApprovedFile",
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
    "SettingsApproved",
    "Settled",
    "ToolAccepted",
]


class ChallengeRequest(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/action-approvals/{id}/challenge`: the decision that the passkeys are asked to sign.
    `decision`, `digest` and `reason` must be the same when the decision is sent.
    """

    decision: Literal["approve", "deny"]
    digest: str
    reason: str | None = None


class Decision(ChallengeRequest, frozen=True, kw_only=True):
    """Request body of `POST /v1/action-approvals/{id}/decide`: a person's decision about exactly what `digest`
    identifies. The last five fields are for a home with an approver; model/decision.py says what is signed. `at` (UTC,
    such as `2026-11-21T13:00:00.000Z`), `key_id` and `signature` must be given together, and so must `head` and
    `head_signature`, which require the first three.
    """

    at: str | None = None
    key_id: str | None = None
    signature: str | None = None
    head: str | None = None
    head_signature: str | None = None

    def signed(self) -> Signature | None:
        """Return the signature, or None if the body has none. Raises AileronError (invalid_request) if only a part of it is
        given.
        """
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
    """Request body of `POST /v1/action-approvals/{id}/edit`: the new arguments."""

    args: JSONObject


class AskBack(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/action-approvals/{id}/ask`: the person's question to the agent."""

    question: str


class AnswerQuestion(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/action-approvals/{id}/answer`: the agent's answer to the person's question."""

    answer: str


class PreviewRequest(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/action-approvals/{id}/preview`: a signed request for the current state.
    `recipient` is the X25519 public key that the response is encrypted to, and `nonce` is 16 random bytes, both in
    hexadecimal. `at` is the current time (UTC). `signature` is made with the key `key_id` over the id in the path and
    these fields (`PreviewStatement`, model/decision.py). `digest` is not signed. It selects the plan to preview: an
    edited one, or the original if it is absent.
    """

    recipient: str
    nonce: str
    at: str
    key_id: str
    signature: str
    digest: str | None = None


class ApprovalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person. `name` is the action of a run, or the name of a consent's subject. Only a question about a run
    has `audit_id`, `action` and `session`, and only one from an agent's session has `agent` and `folder`. Fields about
    the decision, from `decided_at` to `preview`, are absent where they do not apply. Only an entry of a list has the
    fields from `headline` to `differs`. Times are in UTC.
    """

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
    """The digest of the preview that the decision covers together with the plan."""
    audit_id: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    folder: str | UnsetType = UNSET
    headline: str | UnsetType = UNSET
    """Summary of what would be done or allowed, at most 160 characters; for a run, built from the agent's arguments. Present
    only in lists.
    """
    verdict: str | UnsetType = UNSET
    """Verdict of the card in a word or two, such as `! PAYS`, `+ creates` or `! LASTING`. Lists only."""
    weight: Literal["light", "marked", "heavy"] | UnsetType = UNSET
    """Prominence of the verdict; to approve a question with a `heavy` verdict, a person must type a confirmation word.
    Lists only.
    """
    alarm: str | UnsetType = UNSET
    """Worst alarm that follows from the plan or subject of the question alone, in a few words; absent if there is none.
    Lists only.
    """
    asked_back: Literal["waiting", "answered"] | UnsetType = UNSET
    """State of the person's latest question to the agent; absent if there is none. Lists only."""
    alike: str | UnsetType = UNSET
    """Identifier shared by runs that are alike: they differ in at most two arguments. Absent if no other run is like
    this one. Lists only.
    """
    differs: list[str] | UnsetType = UNSET
    """Names of the arguments, at most two, in which runs that are alike differ. Lists only."""


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the open questions. The first to expire comes first."""

    approvals: list[ApprovalEntry]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """An edited plan that can be approved in place of the original. `made_at` is in UTC."""

    digest: str
    plan: JSONObject
    made_at: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a person asked the agent. `answer` is the agent's answer. It is absent until there is one."""

    question: str
    answer: str | UnsetType = UNSET


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the requested call and the most similar call of this action that a person approved.
    `problem` says why the calls cannot be compared; it is null if they can.
    """

    approval_id: str
    decided_at: str | None
    changes: list[Change]
    problem: str | None


class Question(ApprovalEntry, frozen=True, kw_only=True):
    """Response body (200): one complete question, with exactly the data that its digest covers. Only a question about a run can
    have the fields from `plan` to `asked_today`, and only a consent has `subject`. `head` is the newest row of the ledger, as
    `SEQ:HASH`, to be signed together with the decision. `asked_digest` is the digest of the original plan; present only if the
    decision was about an edited plan. `difference` is null if there is no earlier call to compare with. `asked_today` is the
    number of runs that the agent's session has requested since midnight, local time, including this one. A question about a
    grant also has `granted_text`, the text of the action's file, if that file still has the digest that the subject names. The
    signature covers that digest, not the text.
    """

    head: str
    plan: JSONObject | UnsetType = UNSET
    has_preview: bool | UnsetType = UNSET
    edits: list[Edit] | UnsetType = UNSET
    conversation: list[Round] | UnsetType = UNSET
    asked_digest: str | UnsetType = UNSET
    difference: Difference | UnsetType | None = UNSET
    asked_today: int | UnsetType = UNSET
    subject: JSONObject | UnsetType = UNSET
    granted_text: str | UnsetType = UNSET


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the edited plan, which can now be approved in place of the original, and the differences
    between the two plans.
    """

    digest: str
    plan: JSONObject
    changes: list[Change]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the person's question is stored, and waits for the agent's answer."""

    approval_id: str
    question: str


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the agent's answer is stored, and the person can read it."""

    approval_id: str
    answer: str


class SealedPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): a `Preview` (model/preview.py), encrypted, in base64. Only the holder of `recipient` can
    open it.
    """

    sealed: str


class ConsentsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (202): nothing changed, because a person must approve each of these questions first."""

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approvals: tuple[ConsentAnswer, ...]


class ConsentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (202): nothing changed, because a person must approve this question first. A page for it is at
    `review_url`. `expires_at` is in UTC, `poll_after_ms` in milliseconds.
    """

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approval_id: str
    kind: ConsentKind
    digest: str
    review_url: str
    message: str
    expires_at: str
    poll_after_ms: int = 2000


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the question was decided or withdrawn. `audit_id` is the run that waited for it; null for a
    consent. An approved run starts at `held_until` (UTC), and can be cancelled until then; without that field, it can
    start at once. An approved consent is `completed`, with the `result` that the route which created the question would
    have returned, or `failed`, with an `error`.
    """

    status: RunStatus
    approval_id: str
    audit_id: str | None
    held_until: str | UnsetType = UNSET
    result: Any = UNSET
    error: ErrorBody | UnsetType = UNSET


class ApprovedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of an action file that is already installed: the file can run as it is."""

    name: str
    digest: str


class GrantMade(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of a standing grant. `until` is in UTC."""

    id: str
    action: str
    uses: int
    until: str


class PasskeyEnrolled(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of a passkey."""

    id: str
    name: str
    origin: str


class SettingsApproved(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of settings. With `restart`, some of them take effect only at the next start of the
    daemon.
    """

    settings: JSONObject
    restart: bool


class ToolAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of a changed tool: runs can use the operation again. `digest` is that of the accepted
    definition of the tool, and `action` the action whose run found the change.
    """

    connector: str
    op: str
    action: str
    digest: str


class AllowedHost(msgspec.Struct, frozen=True, kw_only=True):
    """The `result` of an approval of a host: the session can connect to `host` (`HOST:PORT`) until it ends."""

    session: str
    host: str
