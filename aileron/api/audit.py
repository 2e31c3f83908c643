"""The record: events by filter, one run with all of its own, and whether the chain holds.

An event's facts are those of its type (docs/reference/audit-events.md), which a client need not know: they stay JSON.

Source: docs/reference/http-api.md#filters.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.outcome import RunStatus

__all__ = ["AUDIT_FILTERS", "DecisionCounts", "EventList", "RecordOfRun", "Verification", "VerificationFinding"]

AUDIT_FILTERS: Final = (
    *("run", "session", "type", "action", "connector", "class"),
    *("since", "until", "after", "before", "limit", "order", "form"),
)
"""What events are chosen by."""


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """One page. Each has `seq`, `at`, `type`, its facts and `hash`; or `seq`, `record`, `previous` and `hash`."""

    events: list[dict[str, Any]]


class RecordOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or one refused request: its events, the oldest first. `truncated`: there are more."""

    audit_id: str
    events: list[dict[str, Any]]
    status: RunStatus | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class DecisionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many decisions carry a signature that counts, carry none, or could not be checked."""

    signed: int
    unsigned: int
    unchecked: int


class VerificationFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is wrong; `seq` is the row, where it is one."""

    reason: str
    seq: int | None
    message: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, what was found, and what that does not prove."""

    ok: bool
    rows: int
    head: str | None
    signed_head: str | None
    decisions: DecisionCounts
    problem: VerificationFinding | None
    cannot_prove: list[str]
