"""One question on the screen: what is never scrolled away, and below it all the rest.

A widget. It shows what it is given, says when all of that has been on the screen, and knows nothing of deciding.

Not here: what is said (review/sheet.py), how it is folded (rendering.py), when it may be decided (guard.py).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.errors import NoWidget
from textual.message import Message
from textual.widgets import Static

from aileron.model.visible import visible
from aileron.tui import rendering

if TYPE_CHECKING:
    from aileron.review.record import Record
    from aileron.review.sheet import Sheet

__all__ = ["MOST_TOP", "View"]

MOST_TOP: Final = 11
"""Rows of what is never scrolled away, so that at 24 some are left for the rest."""
_LEAST_BODY: Final = 3
"""Rows that are left for the rest on any screen: what is never scrolled away has so many fewer."""
_LEAST_WIDTH: Final = 20


class _Rows(Static):
    """Rows that were laid out; what they are part of looks again whenever there are more or fewer of them."""

    def on_resize(self) -> None:
        if isinstance(self.parent, _Body):
            self.parent.check_end()


class _Body(VerticalScroll):
    """The part that scrolls; says when its end is on the screen."""

    class EndSeen(Message):
        """All that matters has been on the screen, of this sheet."""

        def __init__(self, sheet: Sheet) -> None:
            super().__init__()
            self.sheet = sheet

    sheet: Sheet | None = None
    """Whose rows they are: a message is on its way for a while, and they may be others when it arrives."""
    matter_rows: int | None = None
    """How many of its rows have to be read; None: nothing is shown yet. The fine print stands below them."""
    all_rows = 0
    """With the fine print."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
    ]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.check_end()

    def check_end(self) -> None:
        """Tell, if the last row that matters is on the screen."""
        if not self.is_attached or self.matter_rows is None or self.sheet is None:
            return
        seen = self._seen_rows()
        if seen and self.scroll_y + seen >= self.matter_rows + self._rows_too_many():
            self.post_message(self.EndSeen(self.sheet))

    def _seen_rows(self) -> int:
        """How many rows are on the screen: on a small one, some or all lie below its end, or below that of the sheet."""
        try:
            seen = self.screen.find_widget(self).visible_region
        except NoWidget:  # it is laid out nowhere
            return 0
        region = self.region
        is_from_its_corner = (seen.x, seen.y, seen.width) == (region.x, region.y, region.width)
        return min(seen.height, self.size.height) if is_from_its_corner else 0

    def _rows_too_many(self) -> int:
        """Rows by which what stands there is longer than what was laid out: then its end is as much further down."""
        return max(self.query_one("#text").size.height - self.all_rows, 0)


class View(Container):
    """The question under the cursor."""

    class AllSeen(Message):
        """All of it has been on the screen: of this sheet, of what has this digest."""

        def __init__(self, sheet: Sheet, digest: str) -> None:
            super().__init__()
            self.sheet = sheet
            self.digest = digest

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sheet: Sheet | None = None
        self._digest = ""
        self._why_closed: str | None = None
        self._left_s: float | None = None
        self._record: Record | None = None
        self._is_whole = False
        self._is_cut = False
        self._most_top = MOST_TOP

    def compose(self) -> ComposeResult:
        yield Static(id="essentials")
        with _Body(id="body"):
            yield _Rows(id="text")

    def put(
        self,
        sheet: Sheet,
        digest: str,
        *,
        closed: str | None,
        left_s: float | None,
        record: Record | None = None,
    ) -> None:
        """Show a sheet, of what has this digest; `closed` says why it cannot be decided any more, `record` what came of it."""
        self._digest = digest
        self._sheet, self._why_closed, self._left_s, self._record = sheet, closed, left_s, record
        self.paint()

    def on_resize(self) -> None:
        """More or less room, as by a longer list."""
        self.paint()

    def go_on(self, *, closed: str | None, left_s: float | None) -> None:
        """The same a second later: only what is never scrolled away is put anew."""
        self._why_closed, self._left_s = closed, left_s
        self._paint_top()

    def say(self, text: Text) -> None:
        """Show a line in place of a question."""
        self._sheet = None
        if not self.query("#essentials"):
            return
        self.query_one("#body", _Body).matter_rows = None
        self.remove_class("stale")
        self.query_one("#essentials", Static).update(text)
        self.query_one("#text", Static).update(Text())

    def turn(self, *, is_whole: bool | None = None) -> None:
        """All of it, however long, or as much as is usual; the other of the two unless said."""
        self._is_whole = not self._is_whole if is_whole is None else is_whole
        self.paint()

    def read(self) -> None:
        """Give it the keys."""
        self.query_one("#body", _Body).focus()

    def read_on(self) -> None:
        """A page further, without the keys."""
        self.query_one("#body", _Body).scroll_page_down(animate=False)

    def scroll_to_begin(self) -> None:
        """To the first row of it."""
        self.query_one("#body", _Body).scroll_home(animate=False, immediate=True)

    def rows(self, sheet: Sheet, width: int, most_top: int) -> list[Text]:
        """All that matters of a sheet in the order in which it stands here, as much of each fact as here."""
        cut = rendering.cut_short(sheet, width, most_top)
        matter = [*cut, *(section for section in sheet.sections if not section.is_fine_print)]
        top = rendering.essential_rows(sheet, width, most_top)
        return [*top, Text(), *rendering.body_rows(matter, width, is_whole=self._is_whole)[0][:-1]]

    def paint(self) -> None:
        """Lay it out for the room there is now."""
        if self._sheet is None or not self.query("#essentials"):  # the second: it is being taken down
            return
        width = self._room()
        sheet = self._now(self._sheet)
        self._most_top = min(MOST_TOP, max(self.size.height - _LEAST_BODY, 1))
        cut = rendering.cut_short(sheet, width, self._most_top)
        matter = [*cut, *(section for section in sheet.sections if not section.is_fine_print)]
        fine = [section for section in sheet.sections if section.is_fine_print]
        rows, is_cut = rendering.body_rows(matter, width, is_whole=self._is_whole)
        rows = [*self._outcome(width), *rows]
        self._is_cut = is_cut or self._is_cropped([*self._top(sheet, width), *rows])
        whole = [*rows, *rendering.body_rows(fine, width, is_whole=self._is_whole)[0]]
        body = self.query_one("#body", _Body)
        body.matter_rows, body.all_rows, body.sheet = len(rows) - 1, len(whole), self._sheet  # the last is empty
        self._paint_top()
        self.query_one("#text", Static).update(rendering.joined(whole))
        self.call_after_refresh(body.check_end)

    def _is_cropped(self, rows: list[Text]) -> bool:
        """A row ends in `…` because the screen is not as wide as it needs: nobody has read all of it."""
        return any(rendering.cells(row.plain) > self.size.width - 1 for row in rows)  # one for the scroll bar

    def _paint_top(self) -> None:
        if self._sheet is None or not self.query("#essentials"):
            return
        self.set_class(self._why_closed is not None, "stale")
        self.query_one("#essentials", Static).update(rendering.joined(self._top(self._now(self._sheet), self._room())))

    def _now(self, sheet: Sheet) -> Sheet:
        """Where it is settled: what came of it for a verdict, and no alarms. Whether it can be undone is among the facts."""
        if self._why_closed is None:
            return sheet
        verdict = dataclasses.replace(sheet.verdict, text=f"! {visible(self._why_closed)}")
        return dataclasses.replace(sheet, verdict=verdict, alarms=())

    def _room(self) -> int:
        return max(self.size.width - 2, _LEAST_WIDTH)

    def on__body_end_seen(self, event: _Body.EndSeen) -> None:
        """All of it, unless something was left out."""
        event.stop()
        if self._sheet is not None and not self._is_cut and event.sheet == self._sheet:
            self.post_message(self.AllSeen(self._sheet, self._digest))

    def _top(self, sheet: Sheet, width: int) -> list[Text]:
        is_open = self._why_closed is None and self._left_s is not None
        note = f"expires in {rendering.duration(self._left_s or 0)}" if is_open else ""
        return rendering.essential_rows(sheet, width, self._most_top, note=note)

    def _outcome(self, width: int) -> list[Text]:
        """What became of a run, and every request that left for it."""
        if self._record is None:
            return []
        return [*rendering.record_rows(self._record, width), Text()]
