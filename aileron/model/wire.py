"""The daemon's HTTP API as types, shared by the daemon and its clients. JSON by msgspec; unknown keys are refused.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from aileron.model.consent import ConsentKind
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.outcome import RunStatus

__all__ = [
    "Appointment",
    "ConsentAnswer",
    "ConsentsAnswer",
    "Decision",
    "ErrorAnswer",
    "ErrorBody",
    "FetchRequest",
    "PageUnlock",
    "PasskeyMade",
    "PendingAnswer",
    "PreviewRequest",
    "RunAnswer",
    "RunRequest",
    "RunningAnswer",
    "Settled",
]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/actions/{name}/run`. `again` is the run of unknown outcome that this one repeats."""

    args: dict[str, Any] = {}
    dry_run: bool = False
    binding: str | None = None
    again: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Appointment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/approver`: the fields of model/decision.py `ApproverStatement`, signed with the new key and the old one.

    `passphrase` is the vault's.
    """

    passphrase: str
    public_key: str
    inventory: str
    at: str
    signature: str
    replaces: str | None = None
    old_signature: str | None = None

    def __repr__(self) -> str:
        return "Appointment(<secret>)"


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/action-approvals/{id}/preview`: the fields of model/decision.py `PreviewStatement`, and its signature.

    `digest` is of the plan whose preview is asked for, where a person edited the arguments; the original's unless said.
    """

    recipient: str
    nonce: str
    at: str
    key_id: str
    signature: str
    digest: str | None = None


class PasskeyMade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/passkeys`: what a browser made for the options it was given, in base64url without padding.

    Of `navigator.credentials.create(…)`: `response.clientDataJSON`, `response.attestationObject`, `response.getTransports()`.
    """

    client_data: str
    attestation: str
    transports: tuple[str, ...] = ()


class PageUnlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whoever decides is at the page: the fields of model/decision.py `PageStatement`, and its signature, of a passkey or the
    approver's key.
    """

    nonce: str
    at: str
    key_id: str
    signature: str


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/fetches`: something published is to be fetched and shown, so that it can be installed.

    `name` is NAME@VERSION, of an update the installed action's own name. `hash` is for a connector: the pin that it has to have.
    `version` and `prerelease` are for updates: another than the newest, and whether that may be a pre-release; `theirs`: without
    the user's own edits.
    """

    what: Literal["connector", "action", "update", "sync"]
    name: str = ""
    hash: str | None = None
    on_conflict: Literal["refuse", "replace", "keep_both"] = "refuse"
    replace: bool = False
    version: str | None = None
    prerelease: bool = False
    theirs: bool = False


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
    held_until: str | msgspec.UnsetType = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: ErrorBody | msgspec.UnsetType = msgspec.UNSET


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """200: the run completed."""

    audit_id: str
    result: Any


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """202: a person decides first."""

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approval_id: str
    audit_id: str
    review_url: str
    message: str
    expires_at: str
    poll_after_ms: int = 2000


class RunningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """202: still running, or approved and about to, when `wait` was over; it goes on."""

    status: RunStatus = RunStatus.RUNNING
    run_id: str
    poll_after_ms: int = 1000


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """One failure as JSON. `connector`, `requested`, `granted` only for a denied capability."""

    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    retriable: bool
    boundary: Boundary
    audit_id: str | None
    details: dict[str, Any]
    connector: str | msgspec.UnsetType = msgspec.UNSET
    requested: str | msgspec.UnsetType = msgspec.UNSET
    granted: list[str] | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, failure: Failure, audit_id: str | None) -> Self:
        """The body for a failure; what a denied capability names in its details goes on top."""
        details = dict(failure.details)
        on_top: dict[str, Any] = {}
        if failure.failure_class is FailureClass.CAPABILITY_DENIED:
            on_top = {name: details.pop(name) for name in ("connector", "requested", "granted") if name in details}
        return cls(
            failure_class=failure.failure_class,
            message=failure.message,
            retriable=failure.retriable,
            boundary=failure.boundary,
            audit_id=audit_id,
            details=details,
            **on_top,
        )


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer that is not a success."""

    error: ErrorBody
