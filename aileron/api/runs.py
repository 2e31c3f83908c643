"""A run of an action: start it, wait for it, and get its state.

Source: docs/reference/http-api.md#running, #states.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.failures import ErrorBody
from aileron.model.json_value import JSONObject
from aileron.model.outcome import RunStatus

__all__ = ["PendingAnswer", "PlanAnswer", "Progress", "RunAnswer", "RunRequest", "RunState", "RunningAnswer"]


class RunRequest(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/actions/{name}/run`. With `dry_run`, the request is only resolved to a plan. `binding`
    selects the credential if several match. `again` is the id of the run with an unknown outcome that this request
    repeats.
    """

    args: JSONObject = msgspec.field(default_factory=dict)
    dry_run: bool = False
    binding: str | None = None
    again: str | None = None


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200) of a dry run: the plan, with its `digest`. Nothing runs, and nothing is recorded."""

    plan: JSONObject


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the run completed. `audit_id` is its id."""

    audit_id: str
    result: Any


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (202): a person must decide first. A page for it is at `review_url`, and `message` is for the
    person. `expires_at` is in UTC, `poll_after_ms` in milliseconds.
    """

    status: RunStatus = RunStatus.PENDING_APPROVAL
    approval_id: str
    audit_id: str
    review_url: str
    message: str
    expires_at: str
    poll_after_ms: int = 2000


class RunningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (202): the run had not ended when the time `wait` was over; it continues. `status` is `running`, or
    `approved` if the run has not started yet. `poll_after_ms` is in milliseconds.
    """

    status: RunStatus = RunStatus.RUNNING
    run_id: str
    poll_after_ms: int = 1000


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest progress report of a run's connector. `message` is the connector's own text, and is safe to display:
    hidden characters are escaped. `number` counts the run's reports, starting at 1.
    """

    number: int
    done: int | float
    total: int | float | None = None
    message: str | None = None


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the state of a run or of a question. A consent has `kind` and `name` in place of `audit_id`
    and `action`. Other fields are present only if they apply. `reason` and `question` come from a person; `question` is
    present while it waits for an answer. `executed_arguments` is present if a person changed the arguments.
    `held_until` (UTC) is when an approved run starts; it can be cancelled until then. `error` says why the run failed
    or, with status `approved`, why it has not started.
    """

    status: RunStatus
    audit_id: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    approval_id: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    question: str | UnsetType = UNSET
    executed_arguments: JSONObject | UnsetType = UNSET
    held_until: str | UnsetType = UNSET
    result: Any = UNSET
    error: ErrorBody | UnsetType = UNSET
    progress: Progress | UnsetType = UNSET
