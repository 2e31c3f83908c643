"""What happened, for the activity screen: read when the person first looks, and kept up with by the news.

The record of the last hour is asked for once, in pages, and not before somebody wants to see it; what came back of a run is asked
for when its story is shown, and once.

Not here: what a story is (story.py), how it is read (story_source.py), the screen (activity.py).
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any, Final

from aileron.tui.activity import Activity
from aileron.tui.console_base import in_thread
from aileron.tui.reading import ReadingConsole

if TYPE_CHECKING:
    from aileron.tui.story import History

__all__ = ["TellingConsole"]

_MOST_RESULTS: Final = 30
"""Results that are asked for at a time: two screens of stories."""


class TellingConsole(ReadingConsole):
    """The console, as far as it tells what happened."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._has_history = False
        """The last hour was read, and what came since was taken."""
        self._is_reading_results = False
        self._told_minute = -1

    @functools.cached_property
    def history(self) -> History:
        """What happened, as far as it was read."""
        from aileron.tui.story import History  # when somebody looks, as all that is about stories

        return History()

    @property
    def _activity(self) -> Activity:
        return self.query_one("#activity", Activity)

    def _take_history(self, events: list[dict[str, Any]]) -> None:
        """What is new, for whoever has looked before; whoever looks first reads the hour then."""
        if self._has_history:
            self.history.take(events)

    async def _tell_stories(self) -> None:
        """Bring the activity screen up to date."""
        from aileron.tui.story_source import newest_hour

        if not self._has_history:
            self._has_history = True  # what comes while it is read is taken, too
            try:
                self.history.take(await in_thread(newest_hour, self._daemon))
            except BaseException:
                self._has_history = False
                raise
        self._sessions = {one.id: one for one in await in_thread(self._daemon.sessions)}
        self._show_stories()
        if not self._is_reading_results and self.history.without_result(1):
            self._begin("results", self._read_results)

    def _show_stories(self) -> None:
        from aileron.tui.story import told_by_session

        now = datetime.datetime.now(datetime.UTC)
        self._told_minute = now.minute
        titles = {entry.id: entry.row for entry in self.waiting.entries}
        told = told_by_session(self.history.stories(titles), self._sessions)
        self._activity.tell(told, self.history.hour(self._sessions, now), self.size.width - 2)

    def _go_on_telling(self) -> None:
        """The picture moves with the clock, also where nothing happens."""
        is_shown = self._pane == "activity" and self._has_history and self.lost is None
        if is_shown and datetime.datetime.now(datetime.UTC).minute != self._told_minute:
            self._show_stories()

    async def _read_results(self) -> None:
        """What came back of the runs that are told of; of one that nobody can say, nothing."""
        from aileron.tui.story_source import result_of

        self._is_reading_results = True
        try:
            for run in self.history.without_result(_MOST_RESULTS):
                self.history.came_back(run, await in_thread(result_of, self._daemon, run))
        finally:
            self._is_reading_results = False
        if self._pane == "activity":
            self._show_stories()
