"""The audit trail: events by filter, one run with all its events, and whether the chain is intact.

An event has the facts of its type (docs/reference/audit-events.md). The facts stay JSON, because a client need not know
the types.

Source: docs/reference/http-api.md#filters.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.json_value import JSONObject
from aileron.model.outcome import RunStatus

__all__ = ["AUDIT_FILTERS", "DecisionCounts", "EventList", "RecordOfRun", "Verification", "VerificationFinding"]

AUDIT_FILTERS: Final = (
    *("run", "session", "type", "action", "connector", "class"),
    *("since", "until", "after", "before", "limit", "order", "form"),
)
"""The query parameters that select events, and that set the order, number and form of the events in a response."""


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): one page of events. In the form `facts`, each event has `seq`, `at` (UTC), `type`, its facts
    and `hash`. In the form `record`, it has `seq`, `record`, `previous` and `hash`.
    """

    events: list[JSONObject]


class RecordOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): one run, or one refused request, with its events, oldest first. `status` is absent for a
    refused request. `truncated` is present, and true, if there are more events.
    """

    audit_id: str
    events: list[JSONObject]
    status: RunStatus | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class DecisionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of decisions with a valid signature, without a signature, and with one that could not be checked."""

    signed: int
    unsigned: int
    unchecked: int


class VerificationFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The first problem in the ledger. `seq` is the row, or null if the problem is not in one row."""

    reason: str
    seq: int | None
    message: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what was checked, what was found, and what the check cannot prove. `rows` is the number of
    intact rows, and `head` the last of them, as `SEQ:HASH`, or null if there are none. `signed_head` is the newest head
    that was signed with a decision, or null. `problem` is null if the chain is intact.
    """

    ok: bool
    rows: int
    head: str | None
    signed_head: str | None
    decisions: DecisionCounts
    problem: VerificationFinding | None
    cannot_prove: list[str]
