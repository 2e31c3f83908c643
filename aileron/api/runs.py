"""One run of an action: asked for, waited for, and where it is.

Source: docs/reference/http-api.md#running, #states.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.failures import ErrorBody
from aileron.model.outcome import RunStatus

__all__ = ["PendingAnswer", "PlanAnswer", "Progress", "RunAnswer", "RunRequest", "RunState", "RunningAnswer"]


class RunRequest(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/actions/{name}/run`. `again` is the run of unknown outcome that this one repeats."""

    args: dict[str, Any] = msgspec.field(default_factory=dict)
    dry_run: bool = False
    binding: str | None = None
    again: str | None = None


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """200: what would be done, with its `digest`. Nothing runs, and nothing is recorded."""

    plan: dict[str, Any]


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


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a connector reported last of its run: its own words, harmless to show. `number` counts its reports from 1."""

    number: int
    done: int | float
    total: int | float | None = None
    message: str | None = None


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run, or what became of a question, is. A consent has `kind` and `name` in place of `audit_id` and `action`."""

    status: RunStatus
    audit_id: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    approval_id: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """A person's."""
    question: str | UnsetType = UNSET
    """A person's, while it waits for an answer."""
    executed_arguments: dict[str, Any] | UnsetType = UNSET
    """Where a person changed them."""
    held_until: str | UnsetType = UNSET
    result: Any = UNSET
    error: ErrorBody | UnsetType = UNSET
    """Beside `approved`: why it has not begun."""
    progress: Progress | UnsetType = UNSET
