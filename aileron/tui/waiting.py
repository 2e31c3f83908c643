"""The questions that wait for a person, in an order that does not change while the person looks.

Pure. The first questions stand in the order in which they expire, and new ones are added at the end. A question that was
decided, has expired or was withdrawn keeps its place, marked, until newer settled entries displace it; the question under the
cursor is never displaced. So a key or a pointer never acts on an entry that was not in that place when the person last looked.

Not here: what a question says (cards/), when it may be decided (guard.py).
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aileron.cards.question import agent_of, name_of, state_words, title_of
from aileron.cards.row import Row, rows_for
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry

__all__ = ["News", "PendingEntry", "PendingList", "matches", "seconds_left"]

_MAX_SETTLED: Final = 50
"""Maximum number of settled questions in the list; the ledger has all of them."""
_OPEN: Final = "pending_approval"
_UNDER_WAY: Final = ("approved", "running")
_LEFT: Final = "no longer waits"
"""Status of a question that the daemon no longer lists.

The question is shown as settled, and its outcome is requested until it is known.
"""


@dataclasses.dataclass(frozen=True)
class PendingEntry:
    """A question in the list of the console. Its texts have no control characters."""

    id: str
    title: str
    asker: str
    kind: str
    action: str
    status: str
    expires_at: str
    listed: Row
    """Row of the question (cards/row.py), with the same words as on the web page."""

    @property
    def row(self) -> str:
        """Title of the question's row: what the question would allow, in a sentence."""
        return self.listed.title

    @property
    def alike(self) -> str:
        """Key of the group of alike open questions that this question belongs to; empty if it is closed or no other
        question is alike.
        """
        return self.listed.alike if self.is_open else ""

    @property
    def state(self) -> str:
        """State of the question, in words."""
        return state_words(self.status)

    @property
    def is_open(self) -> bool:
        """True while the question waits for a decision."""
        return self.status == _OPEN

    @property
    def is_under_way(self) -> bool:
        """True while the question is approved and, as far as is known, its run has not ended; it may still be held."""
        return self.status in _UNDER_WAY

    @property
    def is_over(self) -> bool:
        """True if the question's status is final."""
        return self.status not in (_OPEN, _LEFT, *_UNDER_WAY)


@dataclasses.dataclass(frozen=True)
class News:
    """The changes that a check of the queue found: ids of new questions, and ids of questions that no longer wait."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class PendingList:
    """The list of all questions seen so far, open or settled."""

    def __init__(self) -> None:
        self._entries: dict[str, PendingEntry] = {}

    @property
    def entries(self) -> list[PendingEntry]:
        """Entries in the order of the list."""
        return list(self._entries.values())

    @property
    def open(self) -> list[PendingEntry]:
        """Entries that wait for a decision."""
        return [entry for entry in self._entries.values() if entry.is_open]

    def __getitem__(self, entry_id: str) -> PendingEntry:
        return self._entries[entry_id]

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._entries

    def take(self, listed: Iterable[ApprovalEntry]) -> News:
        """Update the entries from the daemon's current list. Entries that the daemon no longer lists are returned as `gone`; the
        caller must `settle` them.

        Entries that are `gone` are no longer `open`, although their outcome is not known yet.
        """
        entries = list(listed)
        rows, by_id = rows_for(entries), {entry.approval_id: entry for entry in entries}
        now = {name: by_id[name] for name in rows}
        new = tuple(name for name in now if name not in self._entries)
        gone = tuple(entry.id for entry in self._entries.values() if not entry.is_over and entry.id not in now)
        for name, entry in now.items():
            self._entries[name] = _entry(entry, rows[name])
        for name in gone:
            if self._entries[name].is_open:
                self._entries[name] = dataclasses.replace(self._entries[name], status=_LEFT)
        return News(new, gone)

    def settle(self, entry_id: str, status: str, *, kept: str | None = None) -> None:
        """Record the outcome of an entry, such as decided, expired or withdrawn.

        The entry keeps its place until there are too many settled entries; the entry `kept` is never removed.
        """
        entry = self._entries.get(entry_id)
        if entry is not None:
            self._entries[entry_id] = dataclasses.replace(entry, status=visible(status))
        settled = [candidate.id for candidate in self._entries.values() if candidate.is_over]
        for name in settled[: max(0, len(settled) - _MAX_SETTLED)]:
            if name != kept:
                del self._entries[name]


def matches(entry: PendingEntry, wanted: str) -> bool:
    """Return whether an entry contains all words of a filter.

    A word is text, or `agent:x`, `action:x`, `kind:x` or `status:x`.
    """
    fields = {
        "agent": entry.asker,
        "action": entry.action,
        "kind": entry.kind,
        "status": f"{entry.status} {entry.state}",
    }
    whole = " ".join((entry.id, entry.title, entry.listed.text, *fields.values())).casefold()
    for word in wanted.casefold().split():
        name, colon, value = word.partition(":")
        if value not in fields[name].casefold() if colon and name in fields else word not in whole:
            return False
    return True


def seconds_left(moment: str | None, now: datetime.datetime | None = None) -> float | None:
    """Return the seconds until a moment (RFC 3339), negative for a past moment. None if `moment` is None or cannot be parsed."""
    if moment is None:
        return None
    try:
        until = datetime.datetime.fromisoformat(moment)
        return (until - (now or datetime.datetime.now(datetime.UTC))).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None


def _entry(approval: ApprovalEntry, listed: Row) -> PendingEntry:
    return PendingEntry(
        id=visible(approval.approval_id),
        title=visible(title_of(approval)),
        asker=visible(agent_of(approval)),
        kind=visible(approval.kind),
        action=visible(name_of(approval)),
        status=visible(approval.status),
        expires_at=approval.expires_at,
        listed=listed,
    )
