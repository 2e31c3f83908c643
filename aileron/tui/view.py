"""The widget that shows a question: a top part that never scrolls, and below it a body that scrolls.

It shows a card, reports when all of the card has been on the screen, and knows nothing of decisions.

Not here: the content of a card (cards/card.py), its rows (rendering.py), when a question can be decided (guard.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.errors import NoWidget
from textual.message import Message
from textual.widgets import Static

from aileron.cards.question import state_words
from aileron.model.visible import visible
from aileron.tui import rendering

if TYPE_CHECKING:
    from aileron.cards.card import Card
    from aileron.cards.record import Record

__all__ = ["MOST_TOP", "View"]

MOST_TOP: Final = 11
"""Maximum number of rows of the top part of a card, which never scrolls. The limit leaves room for the body on a screen
of 24 rows.
"""
_LEAST_BODY: Final = 3
"""Minimum number of rows for the body of a card, which scrolls. The top part is shortened if necessary."""
_LEAST_WIDTH: Final = 20
_FOLDED: Final = Text("▸ proof: how it runs, and what you sign (P)", style="dim")
"""Line that replaces the folded proof; a decision does not require reading the proof."""


class _Rows(Static):
    """The text widget in a `_Body`. Whenever its size changes, the body checks again whether its end is on the screen."""

    def on_resize(self) -> None:
        if isinstance(self.parent, _Body):
            self.parent.check_end()


class _Body(VerticalScroll):
    """The part of a card that scrolls. It posts `EndSeen` when all rows that must be read have been on the screen."""

    class EndSeen(Message):
        """Message: all rows of this card that must be read have been on the screen."""

        def __init__(self, card: Card) -> None:
            super().__init__()
            self.card = card

    card: Card | None = None
    """Card to which the rows belong. When a message arrives, the widget may already show another card."""
    matter_rows: int | None = None
    """Number of rows that must be read; None before anything is shown. The proof stands below these rows."""
    all_rows = 0
    """Number of rows including the proof."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
    ]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.check_end()

    def check_end(self) -> None:
        """Send `EndSeen` if the last row that must be read is on the screen."""
        if not self.is_attached or self.matter_rows is None or self.card is None:
            return
        seen = self._seen_rows()
        if seen and self.scroll_y + seen >= self.matter_rows + self._rows_too_many():
            self.post_message(self.EndSeen(self.card))

    def _seen_rows(self) -> int:
        """Return the number of rows of this widget that are on the screen; 0 if its top or left edge is not.

        On a small screen, the widget can extend below the screen or its container.
        """
        try:
            seen = self.screen.find_widget(self).visible_region
        except NoWidget:  # the widget is not laid out
            return 0
        region = self.region
        is_from_its_corner = (seen.x, seen.y, seen.width) == (region.x, region.y, region.width)
        return min(seen.height, self.size.height) if is_from_its_corner else 0

    def _rows_too_many(self) -> int:
        """Return by how many rows the text widget is higher than `all_rows`, for example because the terminal wraps rows."""
        return max(self.query_one("#text").size.height - self.all_rows, 0)


class View(Container):
    """The widget that shows the card of the question under the cursor: a top part that never scrolls, and a body."""

    class AllSeen(Message):
        """Message: this card, about the plan or subject with this digest, has been on the screen in full."""

        def __init__(self, card: Card, digest: str) -> None:
            super().__init__()
            self.card = card
            self.digest = digest

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._card: Card | None = None
        self._digest = ""
        self._why_closed: str | None = None
        self._left_s: float | None = None
        self._record: Record | None = None
        self._is_whole = False
        self._is_cut = False
        self._has_proof = False
        self._most_top = MOST_TOP

    def compose(self) -> ComposeResult:
        yield Static(id="essentials")
        with _Body(id="body"):
            yield _Rows(id="text")

    def put(
        self,
        card: Card,
        digest: str,
        *,
        closed: str | None,
        left_s: float | None,
        record: Record | None = None,
    ) -> None:
        """Show the card of a question; `digest` is the digest of the question's plan or subject.

        `closed` says why the question can no longer be decided; `left_s` is the time until it expires, in seconds; `record` is
        the record of its run.
        """
        self._digest = digest
        self._card, self._why_closed, self._left_s, self._record = card, closed, left_s, record
        self.paint()

    def on_resize(self) -> None:
        """Lay out the card again after the widget's size changed, for example because the list grew."""
        self.paint()

    def go_on(self, *, closed: str | None, left_s: float | None) -> None:
        """Update the time left, and the reason why the question is `closed` if it is. Only the top part is drawn again."""
        self._why_closed, self._left_s = closed, left_s
        self._paint_top()

    def say(self, text: Text) -> None:
        """Show a line in place of a question."""
        self._card = None
        if not self.query("#essentials"):
            return
        self.query_one("#body", _Body).matter_rows = None
        self.remove_class("stale")
        self.query_one("#essentials", Static).update(text)
        self.query_one("#text", Static).update(Text())

    def turn(self, *, is_whole: bool | None = None) -> None:
        """Show values in full or shortened; if `is_whole` is None, switch between the two."""
        self._is_whole = not self._is_whole if is_whole is None else is_whole
        self.paint()

    def unfold(self) -> None:
        """Show or hide the proof."""
        self._has_proof = not self._has_proof
        self.paint()

    def read(self) -> None:
        """Move the keyboard focus to the body."""
        self.query_one("#body", _Body).focus()

    def read_on(self) -> None:
        """Scroll a page down, without the keyboard focus."""
        self.query_one("#body", _Body).scroll_page_down(animate=False)

    def scroll_to_begin(self) -> None:
        """Scroll to the first row."""
        self.query_one("#body", _Body).scroll_home(animate=False, immediate=True)

    def rows(self, card: Card, width: int, most_top: int) -> list[Text]:
        """Return all rows of `card` that must be read, top part and body, laid out as in this view."""
        cut = rendering.cut_short(card, width, most_top)
        matter = [*cut, *card.sections]
        top = rendering.essential_rows(card, width, most_top)
        return [*top, Text(), *rendering.body_rows(matter, width, is_whole=self._is_whole)[0][:-1]]

    def paint(self) -> None:
        """Lay the card out for the present size of the view."""
        if self._card is None or not self.query("#essentials"):  # without #essentials, the view is being removed
            return
        width = self._room()
        card = self._now(self._card)
        self._most_top = min(MOST_TOP, max(self.size.height - _LEAST_BODY, 1))
        cut = rendering.cut_short(card, width, self._most_top)
        matter = [*cut, *card.sections]
        rows, is_cut = rendering.body_rows(matter, width, is_whole=self._is_whole)
        rows = [*self._outcome(width), *rows]
        self._is_cut = is_cut or self._is_cropped([*self._top(card, width), *rows])
        proof = rendering.body_rows(card.proof, width, is_whole=self._is_whole)[0] if self._has_proof else [_FOLDED]
        whole = [*rows, *proof]
        body = self.query_one("#body", _Body)
        body.matter_rows, body.all_rows, body.card = len(rows) - 1, len(whole), self._card  # the last row is empty
        self._paint_top()
        self.query_one("#text", Static).update(rendering.joined(whole))
        self.call_after_refresh(body.check_end)

    def _is_cropped(self, rows: list[Text]) -> bool:
        """Return whether the screen is narrower than a row and cuts it, so that the person has not read all of the row."""
        return any(rendering.cells(row.plain) > self.size.width - 1 for row in rows)  # one for the scroll bar

    def _paint_top(self) -> None:
        if self._card is None or not self.query("#essentials"):
            return
        self.set_class(self._why_closed is not None, "stale")
        self.query_one("#essentials", Static).update(rendering.joined(self._top(self._now(self._card), self._room())))

    def _now(self, card: Card) -> Card:
        """Return the card to draw: for a closed question, with the reason or outcome as its verdict and without alarms."""
        if self._why_closed is None:
            return card
        is_done = self._why_closed == state_words("completed")
        verdict = msgspec.structs.replace(card.verdict, text=f"{'✓' if is_done else '!'} {visible(self._why_closed)}")
        return msgspec.structs.replace(card, verdict=verdict, alarms=())

    def _room(self) -> int:
        return max(self.size.width - 2, _LEAST_WIDTH)

    def on__body_end_seen(self, event: _Body.EndSeen) -> None:
        """Send `AllSeen`, unless the card was shown with parts left out."""
        event.stop()
        if self._card is not None and not self._is_cut and event.card == self._card:
            self.post_message(self.AllSeen(self._card, self._digest))

    def _top(self, card: Card, width: int) -> list[Text]:
        is_open = self._why_closed is None and self._left_s is not None
        note = f"expires in {rendering.duration(self._left_s or 0)}" if is_open else ""
        return rendering.essential_rows(card, width, self._most_top, note=note)

    def _outcome(self, width: int) -> list[Text]:
        """Return the rows about the outcome of a run and every request that was sent for it."""
        if self._record is None:
            return []
        return [*rendering.record_rows(self._record, width), Text()]
