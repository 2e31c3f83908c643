"""Stories for the activity screen. They are read when the screen is first shown, and updated with the news from the
daemon.

The record of the last hour is requested once, in pages, when the screen is first shown; the result of a run is requested once,
when its story is shown.

Not here: what a story is (story.py), reading events and results (story_source.py), the screen (activity.py).
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any, Final

from aileron.model.json_value import JSONObject
from aileron.tui.activity import Activity
from aileron.tui.console_base import in_thread
from aileron.tui.reading import ReadingConsole

if TYPE_CHECKING:
    from aileron.tui.story import History

__all__ = ["TellingConsole"]

_MOST_RESULTS: Final = 30
"""Maximum number of results that are requested at a time: two screens of stories."""


class TellingConsole(ReadingConsole):
    """The part of the console that shows stories of runs on the activity screen (story.py)."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._has_history = False
        """True while the history is complete, that is, the last hour was read and all later events were added."""
        self._is_reading_results = False
        self._told_minute = -1

    @functools.cached_property
    def history(self) -> History:
        """The store of the events and results that the activity screen has read."""
        from aileron.tui.story import History  # when the screen is first shown, like all code for stories

        return History()

    @property
    def _activity(self) -> Activity:
        return self.query_one("#activity", Activity)

    def _take_history(self, events: list[JSONObject]) -> None:
        """Add new events to the history, if the last hour's events have been read.

        Otherwise the events are read later, when the activity screen is first shown.
        """
        if self._has_history:
            self.history.take(events)

    async def _tell_stories(self) -> None:
        """Update the activity screen."""
        from aileron.tui.story_source import newest_hour

        if not self._has_history:
            self._has_history = True  # events that arrive during the read are taken, too
            try:
                self.history.take(await in_thread(newest_hour, self._daemon))
            except BaseException:
                self._has_history = False
                raise
        self._sessions = {session.id: session for session in await in_thread(self._daemon.sessions)}
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
        """Redraw the chart of the last hour when the minute changes, even if no event arrives."""
        is_shown = self._pane == "activity" and self._has_history and self.lost is None
        if is_shown and datetime.datetime.now(datetime.UTC).minute != self._told_minute:
            self._show_stories()

    async def _read_results(self) -> None:
        """Read the results of the runs in the shown stories. A result is empty if the daemon does not report it."""
        from aileron.tui.story_source import result_of

        self._is_reading_results = True
        try:
            for run in self.history.without_result(_MOST_RESULTS):
                self.history.came_back(run, await in_thread(result_of, self._daemon, run))
        finally:
            self._is_reading_results = False
        if self._pane == "activity":
            self._show_stories()
