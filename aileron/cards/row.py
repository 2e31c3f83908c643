"""Text of a row in a list, for every surface: the verdict, the worst alarm, and the question's title, in this order.

    Row.lead         ! PAYS  ! look-alike letters
    Row.title        Transfer 1,840.5 EUR to “N<U+043E>rthwind”

Pure, and fast, because the console lists questions before it reads any of them. The facts come from the daemon (listed.py) and
are not signed; the card of a question is made from signed content.

Rules
- Surfaces lay rows out, and neither omit nor add a mark. If there is too little room, the first part of a row is cut last.
- Rows that expire first come first.
- A row without a verdict says that its question was not read for the list.

Source: docs/reference/console.md (The list). Not here: columns, colours, keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aileron.cards.question import agent_of, tags_of, title_of
from aileron.model.visible import visible, without_gaps

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry

__all__ = ["Row", "common_asker", "group_title", "in_order", "rows_for"]

_MAX_TITLE: Final = 400
"""Maximum number of characters of a title: the daemon sends at most 160, and escaping makes them more. No list is wider."""
_MAX_WORDS: Final = 40
"""Maximum number of characters of a verdict or an alarm, which are in Aileron's words."""
_NOT_READ: Final = "! UNREAD"


class Row(NamedTuple):
    """The row of one question. Every text is safe to show, and fits on one line.

    `weight` is the value of a `Weight` (cards/weight.py). `alarm` is empty, or begins with `! `.
    """

    id: str
    title: str
    verdict: str
    weight: str
    alarm: str
    tags: str
    asker: str
    alike: str
    differs: tuple[str, ...]

    @property
    def marks(self) -> str:
        """Text before a row's title: the alarm and the tags."""
        return "  ".join(part for part in (self.alarm, self.tags) if part)

    @property
    def text(self) -> str:
        """The complete row in one line."""
        return "  ".join(part for part in (self.verdict, self.marks, self.title) if part)


def rows_for(entries: Sequence[ApprovalEntry]) -> dict[str, Row]:
    """Return the row of each entry by id, in the order of `in_order`."""
    tags = tags_of(entries)
    return {entry.approval_id: _row(entry, tags.get(entry.approval_id, "")) for entry in in_order(entries)}


def in_order(entries: Iterable[ApprovalEntry]) -> list[ApprovalEntry]:
    """Return the entries sorted by expiry, soonest first; entries that expire together are sorted by creation."""
    return sorted(entries, key=lambda entry: (entry.expires_at, entry.created_at, entry.approval_id))


def common_asker(rows: Iterable[Row]) -> str | None:
    """Return the asker that all rows share, to be shown only once; None if there are several askers, or no rows."""
    askers = {row.asker for row in rows}
    return askers.pop() if len(askers) == 1 else None


def group_title(rows: Sequence[Row], name: str) -> str:
    """Return the title of a group of rows that are alike. `name` is the name of their action.

    The title of one row is never used for the group, because it would suggest that all rows have the same values.
    """
    differs = rows[0].differs
    difference = f"{' and '.join(differs)} differ{'' if len(differs) > 1 else 's'}" if differs else "identical"
    return f"{name}, {difference}"


def _row(entry: ApprovalEntry, tags: str) -> Row:
    verdict, alarm = entry.verdict or _NOT_READ, entry.alarm or ""
    return Row(
        id=visible(entry.approval_id),
        title=_line(entry.headline or title_of(entry), _MAX_TITLE),
        verdict=_line(verdict, _MAX_WORDS),
        weight=entry.weight or "heavy",
        alarm=f"! {_line(alarm, _MAX_WORDS)}" if alarm else "",
        tags=f"[{tags}]" if tags else "",
        asker=_line(agent_of(entry), _MAX_TITLE),
        alike=visible(entry.alike or ""),
        differs=tuple(_line(name, _MAX_WORDS) for name in (entry.differs or ())[:2]),
    )


def _line(text: str, most: int) -> str:
    """Return a text escaped, on one line of at most `most` characters; a cut ends with an ellipsis."""
    shown = without_gaps(visible(text[: most + 1]))
    return shown if len(text) <= most else f"{shown[: most - 1]}…"
