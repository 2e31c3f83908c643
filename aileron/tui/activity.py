"""The activity screen: the last hour of each agent, and below it a story for each run; or every event, row by row.

A widget. The person switches between stories and the ledger. The newest story is first, the newest event last.

Rules
- The cursor stays on its story or event when new rows arrive. Only a cursor at the end where new rows appear moves to
  them.
- When a row arrives in the ledger, existing rows are not drawn again.

Not here: what happened (story.py), how it looks (story_rows.py, rendering.py), where events come from (news.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static
from textual.widgets.option_list import Option

from aileron.model.json_value import JSON, JSONObject
from aileron.tui import rendering
from aileron.tui.queue import Rows

if TYPE_CHECKING:
    from aileron.tui.story import Hour, Told

__all__ = ["Activity"]

MOST_EVENTS: Final = 500
_NOTHING: Final = "no runs yet: aileron launch AGENT starts an agent"


class Activity(Container):
    """The activity screen. `is_ledger` is true while the screen shows every event and no stories."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.is_ledger = False
        self._events: list[JSONObject] = []
        self._runs: dict[str, str] = {}
        self._drawn: list[tuple[str | None, str]] = []

    def compose(self) -> ComposeResult:
        yield Static(id="hour")
        yield Rows(id="stories", markup=False)
        yield Rows(id="ledger", markup=False)

    @property
    def rows(self) -> Rows:
        """The visible list: the stories or the ledger."""
        return self.query_one("#ledger" if self.is_ledger else "#stories", Rows)

    def turn(self) -> None:
        """Switch from the stories to the ledger, or back."""
        self.is_ledger = not self.is_ledger
        self.set_class(self.is_ledger, "ledger")
        self.rows.focus()

    def run_of(self, list_id: str | None, option_id: str | None) -> str | None:
        """Return the run that a row of a list on this screen is about, or None."""
        if list_id == "stories":
            return self._runs.get(str(option_id))
        run = next((event.get("run") for event in self._events if f"e{event.get('seq')}" == option_id), None)
        return None if run is None else str(run)

    # stories

    def tell(self, told: Sequence[Told], hour: Hour, width: int) -> None:
        """Show the stories of each session in `told`, and above them the chart of the last hour's activity."""
        from aileron.tui import story_rows  # when the screen is first shown, and not before the first frame

        self.query_one("#hour", Static).update(rendering.joined(story_rows.hour_rows(hour, width)))
        self._runs = {story.id: story.run for group in told for story in group.stories if story.run is not None}
        rows: list[tuple[str | None, Text]] = []
        for group in told:
            rows.append((None, story_rows.told_row(group, width)))
            rows += [(story.id, story_rows.story_text(story, width - 1)) for story in group.stories]
        drawn = [(key, row.plain) for key, row in rows]
        if drawn != self._drawn or not drawn:
            self._drawn = drawn
            self._put(rows)

    def _put(self, rows: Sequence[tuple[str | None, Text]]) -> None:
        """Replace the rows of the story list. The cursor stays on its story, but moves from the first story to the new
        first story.
        """
        shown = self.query_one("#stories", Rows)
        first = next((number for number, option in enumerate(shown.options) if not option.disabled), None)
        kept = None if shown.highlighted in (None, first) else shown.chosen()
        shown.clear_options()
        shown.add_options([Option(row, id=key, disabled=key is None) for key, row in rows])
        if not rows:
            shown.add_option(Option(Text(_NOTHING), disabled=True))
            return
        names = [key for key, _ in rows]
        is_kept = kept is not None and kept in names
        shown.highlighted = names.index(kept) if is_kept else next(at for at, key in enumerate(names) if key)

    # the ledger

    def show_events(self, events: Sequence[Mapping[str, JSON]], width: int) -> None:
        """Replace the events of the ledger list. The cursor stays on its event, but moves from the last event to the
        new last event.
        """
        shown = self.query_one("#ledger", Rows)
        kept = None if _is_at_end(shown) else shown.chosen()
        shown.clear_options()
        options = _event_options(events, width)
        shown.add_options(options)
        self._events = [dict(event) for event in events]
        if options:
            names = [option.id for option in options]
            shown.highlighted = names.index(kept) if kept in names else len(names) - 1

    def add_events(self, events: Sequence[JSONObject], width: int) -> None:
        """Append a row to the ledger list for each of these events.

        Existing rows are not drawn again; rows above the maximum of MOST_EVENTS are removed at the top.
        """
        shown = self.query_one("#ledger", Rows)
        at, is_at_end = shown.highlighted or 0, _is_at_end(shown)
        options = _event_options(events[-MOST_EVENTS:], width)
        too_many = max(shown.option_count + len(options) - MOST_EVENTS, 0)
        for _ in range(too_many):
            shown.remove_option_at_index(0)
        shown.add_options(options)
        shown.scroll_to(y=shown.scroll_y - too_many, animate=False, immediate=True)
        self._events = [*self._events, *events][-MOST_EVENTS:]
        if self._events:
            shown.highlighted = len(self._events) - 1 if is_at_end else max(at - too_many, 0)

    def lay_out(self, width: int) -> None:
        """Lay out the list of the ledger's events for another width. The caller lays out the stories by calling `tell`
        again.
        """
        self.show_events(self._events, width)


def _event_options(events: Sequence[Mapping[str, JSON]], width: int) -> list[Option]:
    return [Option(rendering.event_row(event, width), id=f"e{event.get('seq')}") for event in events]


def _is_at_end(shown: Rows) -> bool:
    """Return whether the cursor is on the last row; a cursor there follows new rows."""
    return shown.highlighted is None or shown.highlighted >= shown.option_count - 1
