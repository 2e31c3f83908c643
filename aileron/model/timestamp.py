"""Times in two forms: RFC 3339 in UTC for programs; local time for a person, with the date unless it is today.

Pure except for the machine's clock and zone. The times passed in are RFC 3339, but may be untrusted text.

>>> utc(0), utc_of_us(1)
('1970-01-01T00:00:00.000Z', '1970-01-01T00:00:00.000001Z')

Source: RFC 3339. Not here: how long something has taken so far (the surfaces count that).
"""

from __future__ import annotations

import datetime
import re

from aileron.model.visible import visible

__all__ = ["local_time", "parse_timestamp", "spoken_time", "utc", "utc_of_us"]

_MAX_TEXT = 40
"""Maximum number of characters shown of a text that is not a time."""
_SPOKEN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""Pattern of RFC 3339's date-time, with or without zone, and its full-date."""


def utc(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339, to the millisecond: `2026-11-21T03:58:00.123Z`."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_of_us(moment_us: int) -> str:
    """Return microseconds since the epoch as RFC 3339 of constant length: `2026-11-21T03:58:00.123456Z`."""
    seconds, micros = divmod(moment_us, 1_000_000)
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)  # whole seconds: a float would round the rest
    return f"{at:%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def parse_timestamp(text: object) -> datetime.datetime | None:
    """Return the time that an RFC 3339 text states, in the machine's own zone.

    None for a text that is not a time, has no zone, or is out of range (year 1, year 9999).
    """
    try:
        at = datetime.datetime.fromisoformat(str(text))
        return None if at.tzinfo is None else at.astimezone()
    except (ValueError, OverflowError):
        return None


def local_time(text: object) -> str:
    """Return an RFC 3339 time in the machine's own zone: `14:03:21` for a time today, `2026-11-20 09:12` for another day.

    For a text that is not a time, return its escaped beginning.
    """
    at = parse_timestamp(text)
    if at is None:
        return visible(str(text))[:_MAX_TEXT]
    is_today = at.date() == datetime.datetime.now().astimezone().date()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def spoken_time(value: object) -> str | None:
    """Return a time or date as a person says it, such as `Tue 24 Nov 2026, 10:00 CET`; None for any other value.

    The time is converted to the machine's own zone, which is named. A time without a zone is not converted, and the text says so.
    """
    if not isinstance(value, str) or _SPOKEN.fullmatch(value) is None:
        return None
    try:
        at = datetime.datetime.fromisoformat(value)
        if "T" not in value:
            return f"{at:%a} {at.day} {at:%b %Y}"
        here = at if at.tzinfo is None else at.astimezone()
    except (ValueError, OverflowError):
        return None
    clock = f"{here:%H:%M}" if here.second == 0 else f"{here:%H:%M:%S}"
    zone = ", no time zone" if here.tzinfo is None else f" {here:%Z}"
    return f"{here:%a} {here.day} {here:%b %Y}, {clock}{zone}"
