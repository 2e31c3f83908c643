"""The list of questions: a widget over `PendingList`, with a filter, groups and marks.

Rules
- The list grows at its end. It is rebuilt only when the person sets a filter, or groups the questions.
- The cursor stays on a question when its row moves.

Not here: the questions (waiting.py), the look of a row (rendering.py).
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.style import Style
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from aileron.cards.row import Row, common_asker
from aileron.tui import rendering
from aileron.tui.waiting import PendingEntry, PendingList, matches

__all__ = ["Queue", "Rows"]


class Rows(OptionList):
    """A list in which the keys j and k also move the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """Return the style of a component of the list. Without colours, the row under the cursor is in reverse video.

        The CSS of Textual 8.2 cannot do that.
        """
        style = super().get_visual_style(*component_classes, partial=partial)
        is_marked = self.app.no_color and "option-list--option-highlighted" in component_classes
        return style + Style(reverse=True) if is_marked else style

    def action_cursor_down(self) -> None:
        """Move to the next row; stay on the last."""
        if self.highlighted is None or self.highlighted < self.option_count - 1:
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        """Move to the previous row; stay on the first."""
        if self.highlighted is None or self.highlighted > 0:
            super().action_cursor_up()

    def chosen(self) -> str | None:
        """Return the id of the row under the cursor."""
        return None if self.highlighted is None else self.get_option_at_index(self.highlighted).id


class Queue(Rows):
    """The list of open questions, and of questions settled since the console started.

    `wanted` is the filter; with `is_grouped`, questions that are alike share one row.
    """

    def __init__(self, waiting: PendingList, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._waiting = waiting
        self._names: list[str] = []
        self._is_grouped = False
        self.marked: set[str] = set()
        self.wanted = ""

    def on_resize(self) -> None:
        """Keep the row under the cursor on the screen, because the rows above it may have more lines now."""
        self.call_after_refresh(self.scroll_to_highlight)

    @property
    def names(self) -> list[str]:
        """Ids of the listed questions, in the order of the list."""
        return self._names

    @property
    def marked_open(self) -> list[str]:
        """Ids of the marked questions that are listed and open, in order. Keys for all marked questions act on these only."""
        return [name for name in self._names if name in self.marked and self._waiting[name].is_open]

    def filter(self, wanted: str) -> None:
        """List only the questions that contain all words in `wanted`."""
        self.wanted, self._names = wanted, []

    def group(self) -> None:
        """Switch between one row for all questions that are alike and one row for each question."""
        self._is_grouped, self._names = not self._is_grouped, []

    def show(self, width: int, selected: str | None) -> None:
        """Update the rows of the list for a `width` in cells. Listed rows keep their places; if that is impossible, the
        cursor moves to the question with the id `selected`.
        """
        entries = [entry for entry in self._waiting.entries if not self.wanted or matches(entry, self.wanted)]
        groups = self._groups(entries)
        rows = {
            entry.id: rendering.entry_row(
                entry,
                width,
                is_marked=entry.id in self.marked,
                group=groups.get(entry.id, ()),
                has_asker=common_asker(question.listed for question in entries) is None,
            )
            for entry in entries
            if groups.get(entry.id) != ()
        }
        names = list(rows)
        known = len(self._names)
        if names[:known] == self._names and self.option_count == known:
            for name in self._names:
                self.replace_option_prompt(name, rows[name])
            self.add_options([Option(rows[name], id=name) for name in names[known:]])
        else:
            self.clear_options()
            self.add_options([Option(row, id=name) for name, row in rows.items()])
            if selected in rows:
                self.highlighted = names.index(selected)
        self._names = names
        if self.highlighted is None and names:
            self.highlighted = 0

    def step(self, by: int) -> None:
        """Move to the next open question, or to the previous open question."""
        waiting = [number for number, name in enumerate(self._names) if self._waiting[name].is_open]
        at = self.highlighted if self.highlighted is not None else -1
        found = [number for number in waiting if (number > at if by > 0 else number < at)]
        if found:
            self.highlighted = found[0] if by > 0 else found[-1]

    def mark(self, name: str) -> None:
        """Mark a question as one of several that are decided together, or unmark it."""
        self.marked ^= {name}

    def mark_alike(self, name: str) -> bool:
        """Mark all open questions that are like this question, or unmark them if all were marked.

        Return False if no open question is like this one.
        """
        alike = {entry.id for entry in self._waiting.open if entry.alike and entry.alike == self._waiting[name].alike}
        self.marked = self.marked - alike if alike <= self.marked else self.marked | alike
        return bool(alike)

    def _groups(self, entries: list[PendingEntry]) -> dict[str, tuple[Row, ...]]:
        """Return the groups of alike questions: the rows of all members, by the id of the group's first entry.

        The ids of all other members map to an empty tuple, because these members have no row of their own. The result
        is empty if questions are not grouped.
        """
        if not self._is_grouped:
            return {}
        heads: dict[str, str] = {}
        groups: dict[str, tuple[Row, ...]] = {}
        for entry in entries:
            if entry.alike:
                head = heads.setdefault(entry.alike, entry.id)
                groups[entry.id] = ()
                groups[head] = (*groups[head], entry.listed)
        return groups
