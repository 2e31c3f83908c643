"""Source of the stories: reads the record of the last hour, in pages, and the results of runs.

The functions block, so the console calls them in a thread. No Textual.

Not here: what a story is (story.py).
"""

from __future__ import annotations

import contextlib
import datetime
from typing import Final

from aileron.model.json_value import JSONObject, checked_int
from aileron.model.timestamp import parse_timestamp
from aileron.tui.daemon_client import DaemonClient, GoneError, RequestRefused
from aileron.tui.story import MOST_KEPT, result_words

__all__ = ["newest_hour", "result_of"]

_PAGE: Final = 1000
"""Number of events in one request: the maximum that the daemon returns (http-api.md)."""
_HOUR: Final = datetime.timedelta(hours=1)


def newest_hour(daemon: DaemonClient) -> list[JSONObject]:
    """Return the events of the last hour and some older ones, in chronological order: at least a page, at most MOST_KEPT and a
    page.

    Raises RequestRefused if the daemon refuses a request, GoneError if it does not respond.
    """
    since = datetime.datetime.now(datetime.UTC) - _HOUR
    events = daemon.newest(_PAGE)
    while events and len(events) < MOST_KEPT and (oldest := checked_int(events[0]["seq"])) > 1:
        first = parse_timestamp(events[0].get("at"))
        if first is None or first < since:
            break
        page = [event for event in daemon.before(oldest, _PAGE) if checked_int(event["seq"]) < oldest]
        if not page:
            break
        events = [*page, *events]
    return events


def result_of(daemon: DaemonClient, run: str) -> str:
    """Return the result of a run as one line; empty if the daemon does not report it."""
    from msgspec import UNSET  # after the first frame

    with contextlib.suppress(RequestRefused, GoneError):
        result = daemon.run(run).result
        return "" if result is UNSET else result_words(result)
    return ""
