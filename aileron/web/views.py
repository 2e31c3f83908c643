"""Rows and lines on the page, except for the question itself: the queue, the outcome of a run, its requests, times and
durations.

Pure. All its input is hostile text; hidden characters are spelled out when it is printed (templating.py).

Rules
- A run's requests are taken from the record. A request without a recorded response is shown as such.

Source: docs/reference/audit-events.md. Not here: the question itself (cards/card.py).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from aileron.api.approvals import ApprovalEntry, Question
from aileron.api.runs import RunState
from aileron.cards.card import Card
from aileron.cards.headline import quoted
from aileron.cards.question import asker_of, is_run, kind_words, state_words
from aileron.cards.record import Left
from aileron.cards.row import Row, group_title, rows_for
from aileron.model.timestamp import local_time, parse_timestamp

__all__ = [
    "AlikeRow",
    "Came",
    "QueueRow",
    "Sent",
    "alike_of",
    "came_of",
    "is_long",
    "mark_of",
    "milliseconds",
    "queue_of",
    "recent_of",
    "sent_of",
    "surface_of",
]

_LONG_ROWS: Final = 40
"""Maximum number of lines of a card that is not long (`is_long`), counted as on a phone with some 48 characters a line."""
_ROW: Final = 48
_MOST_FIELDS: Final = 4
"""Maximum number of fields of an operation's result that `_in_a_line` shows."""
_SURFACES: Final = {"page": "on this page", "operator": "with a command", "agent": "by the agent"}


class QueueRow(msgspec.Struct, frozen=True):
    """A row of the page's list of questions, as template values."""

    id: str
    row: Row
    kind: str
    """Kind of a consent; empty for a run."""
    asker: str
    """Name of the agent or session that asked; empty if it is the same in all rows of the list."""
    status: str
    state: str
    asked_at: str
    expires_at: str
    expires_ms: int
    decided_at: str


class Sent(msgspec.Struct, frozen=True):
    """A request that a run sent, or that was denied, as template values: the request's target, credential and outcome."""

    at: str
    step: str
    method: str
    where: str
    credential: str
    status: str
    up: str
    down: str
    ms: str
    note: str
    is_bad: bool


class Came(msgspec.Struct, frozen=True):
    """The state or outcome of a question, as one-line texts: `words` (the state), the operation's `result`, and what
    can happen `next`.
    """

    words: str
    result: str = ""
    next: str = ""


def came_of(found: RunState) -> Came:
    """Return the state or outcome of a question that can no longer be decided, as lines for its page."""
    why = f"{found.error.message} ({found.error.failure_class})" if found.error else ""
    match found.status:
        case "completed":
            return Came("✓ done", result=_in_a_line(found.result))
        case "failed":
            return Came(f"Approved, but it failed: {why}" if why else "Approved, but it failed")
        case "unknown":
            said = f"Approved, but the outcome is unknown: {why}" if why else "Approved, but the outcome is unknown"
            return Came(said, next="Look at the service before you repeat it.")
        case "approved" if found.held_until:
            return Came(
                "✓ approved", next=f"Held until {local_time(found.held_until)}. You can withdraw it until then."
            )
        case "approved":
            return Came("✓ approved", next=f"Not started yet: {why}" if why else "Not started yet.")
        case "running":
            return Came("✓ approved, running")
        case "denied":
            return Came("Denied: nothing ran")
        case "expired":
            return Came("Expired: nothing ran", next="Nobody decided in time. The agent can ask again.")
        case "cancelled":
            return Came("Withdrawn: nothing ran")
        case _:
            return Came(state_words(found.status))


def _in_a_line(result: Any) -> str:
    """Return as much of an operation's result as fits one line: a value, or the first fields.

    The page shows the complete result below.
    """
    if result is UNSET or result in (None, "", [], {}):
        return ""
    if not isinstance(result, dict):
        return _brief(result)
    more = len(result) - _MOST_FIELDS
    fields = [f"{name}: {_brief(value)}" for name, value in itertools.islice(result.items(), _MOST_FIELDS)]
    return " · ".join([*fields, *([f"{more} more"] if more > 0 else [])])


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} {'item' if len(value) == 1 else 'items'}"
    if isinstance(value, dict):
        return f"{len(value)} {'field' if len(value) == 1 else 'fields'}"
    return quoted(value)


def milliseconds(text: Any) -> int:
    """Return a time as milliseconds since 1970, for a countdown; 0 for text that is not a time."""
    at = parse_timestamp(text)
    return 0 if at is None else int(at.timestamp() * 1000)


def surface_of(surface: Any) -> str:
    """Return a description of the surface (such as the page or the terminal) on which a question was decided or withdrawn."""
    return _SURFACES.get(str(surface), str(surface))


class AlikeRow(msgspec.Struct, frozen=True):
    """A group of requests that are alike: their ids, and the name of the group in a list."""

    names: list[str]
    title: str

    @property
    def of(self) -> str:
        """Ids joined with commas, as in the address of the group's page."""
        return ",".join(self.names)


def queue_of(entries: Sequence[ApprovalEntry]) -> tuple[list[QueueRow], str]:
    """Return the table rows of these questions, in the given order, and the name of the requester that all of them
    share; empty if there are several.
    """
    rows, by_id = rows_for(entries), {entry.approval_id: entry for entry in entries}
    askers = {asker_of(entry) for entry in entries}
    common = askers.pop() if len(askers) == 1 and len(entries) > 1 else ""
    return [_queue_row(by_id[name], row, has_asker=not common) for name, row in rows.items()], common


def alike_of(entries: Sequence[ApprovalEntry]) -> list[AlikeRow]:
    """Return the groups of waiting requests that are alike (cards/listed.py).

    The group's page checks again whether they are alike.
    """
    actions = {entry.approval_id: str(entry.action) for entry in entries}
    groups: dict[str, list[Row]] = {}
    for row in rows_for(entries).values():
        if row.alike:
            groups.setdefault(row.alike, []).append(row)
    return [
        AlikeRow([row.id for row in group], group_title(group, actions[group[0].id]))
        for group in groups.values()
        if len(group) > 1
    ]


def recent_of(entries: Sequence[ApprovalEntry]) -> list[QueueRow]:
    """Return the rows of questions that can no longer be decided, in the given order."""
    rows = rows_for(entries)
    return [_queue_row(entry, rows[entry.approval_id]) for entry in entries]


def _queue_row(row: ApprovalEntry, listed: Row, *, has_asker: bool = True) -> QueueRow:
    return QueueRow(
        id=row.approval_id,
        row=listed,
        kind="" if is_run(row) else kind_words(row.kind),
        asker=asker_of(row) if has_asker else "",
        status=row.status,
        state=state_words(row.status),
        asked_at=local_time(row.created_at),
        expires_at=local_time(row.expires_at),
        expires_ms=milliseconds(row.expires_at),
        decided_at=local_time(row.decided_at) if row.decided_at else "",
    )


def mark_of(rows: Iterable[ApprovalEntry]) -> str:
    """Return a string that changes whenever one of these questions changes, or the list has other questions."""
    told = [
        (
            row.approval_id,
            row.status,
            row.digest,
            *((row.conversation or (), len(row.edits or ())) if isinstance(row, Question) else ()),
        )
        for row in rows
    ]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]


def is_long(card: Card) -> bool:
    """Return whether a card is longer than a screen. If it is, a person must say whether they read all of it."""
    rows = 0
    for section in card.sections:
        for fact in section.facts:
            rows += sum(1 + len(line.text) // _ROW for line in fact.lines)
    return rows > _LONG_ROWS


def sent_of(left: Left) -> Sent:
    """Return the table row for a request that was sent, or that egress refused."""
    account = f"as {left.credential}" if left.credential else "without a credential"
    return Sent(
        at=local_time(left.at),
        step=left.step,
        method=left.method,
        where=f"{left.where}{left.path}",
        credential="" if left.is_denied else account,
        status=left.ended,
        up=_size(left.bytes_up),
        down=_size(left.bytes_down),
        ms="" if left.ms is None else f"{left.ms} ms",
        note=left.note or "",
        is_bad=left.is_bad,
    )


def _size(count: Any) -> str:
    if not isinstance(count, int):
        return ""
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1024:.0f} KiB" if count < 10 << 20 else f"{count / (1 << 20):.0f} MiB"
