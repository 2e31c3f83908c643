"""Parser for dates and times in arguments of operations.

Runs in a connector. The package itself does not import this module, so that it costs nothing in connectors without times.

Rules
- Accepted are RFC 3339 dates, and dates with a time, with or without offset. The operation defines what a missing
  offset means; for the range of a listing it is UTC.
- Anything else is `BadInput` with the argument's name and an example.

>>> read_moment("2026-03-01", "start_time")
datetime.date(2026, 3, 1)

Source: RFC 3339. Not here: zones.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from aileron_connector.failures import BadInput

__all__ = ["MAX_DAYS", "read_moment", "read_span"]

MAX_DAYS: Final = 366
"""Maximum number of days of one listing or one event: a year. A server may have to expand recurring events for it."""

_YEARS: Final = range(1970, 2200)
"""Years that people use in dates. The bounds also keep every sum of dates inside Python's range."""
_PATTERN: Final = r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(?:\.\d+)?(Z|z|[+-]\d\d:\d\d)?)?"


def read_moment(text: str, argument: str) -> date | datetime:
    """Parse a date, or a date and time with or without offset (RFC 3339). Fractions of a second are dropped. Raises
    BadInput for any other text, and for a year outside of _YEARS.
    """
    found = re.fullmatch(_PATTERN, text.strip(), re.ASCII)
    try:
        if found is None:
            raise ValueError
        day, minute, second, offset = found.groups()
        moment = date.fromisoformat(day)
        if minute is not None:
            moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}{(offset or '').upper()}")
    except ValueError:
        expected = "expected a date like 2026-03-01 or a time like 2026-03-01T10:00:00+01:00"
        raise BadInput(f"{argument} {text[:40]!r} is not valid; {expected}", argument=argument) from None
    if moment.year not in _YEARS:
        raise BadInput(f"{argument} is not in the years {_YEARS.start} to {_YEARS.stop - 1}", argument=argument)
    return moment


def read_span(start: str | None, end: str | None, days: int) -> tuple[datetime, datetime]:
    """Return the range of a listing, from `start` (default: now) to `end` (default: `days` after `start`), both with
    offset. Raises BadInput for a text that is no time, an end that is not after the start, or more than MAX_DAYS.
    """
    if not 1 <= days <= MAX_DAYS:
        raise BadInput(f"days {days} is not from 1 to {MAX_DAYS}", argument="days")
    since = datetime.now(UTC).replace(microsecond=0) if start is None else _instant(start, "start")
    until = since + timedelta(days=days) if end is None else _instant(end, "end")
    if not since < until <= since + timedelta(days=MAX_DAYS):
        raise BadInput(f"end is not after start, or more than {MAX_DAYS} days after it", argument="end")
    return since, until


def _instant(text: str, argument: str) -> datetime:
    """Parse a point in time. A date stands for its first moment in UTC, and a time without offset is in UTC."""
    moment = read_moment(text, argument)
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
