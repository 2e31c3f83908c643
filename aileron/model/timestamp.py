"""A moment of the record as a person reads it: in the machine's own time, with the day where it is not today's.

Pure but for the machine's clock and zone. Moments come as RFC 3339, and may be anybody's text.

>>> moment("soon") is None
True

Not here: how long something takes yet (the surfaces count that), RFC 3339 for programs (daemon/http/responses.py).
"""

from __future__ import annotations

import datetime

from aileron.model.visible import visible

__all__ = ["local_time", "parse_timestamp"]

_MAX_TEXT = 40
"""Characters of what is no moment."""


def parse_timestamp(text: object) -> datetime.datetime | None:
    """In the machine's own time; None for what is no moment, or none that this machine's time has (year 1, year 9999)."""
    try:
        at = datetime.datetime.fromisoformat(str(text))
        return None if at.tzinfo is None else at.astimezone()
    except (ValueError, OverflowError):
        return None


def local_time(text: object) -> str:
    """`14:03:21` of what was today, `2026-11-20 09:12` of what was not, and of what is no moment the beginning, harmless."""
    at = parse_timestamp(text)
    if at is None:
        return visible(str(text))[:_MAX_TEXT]
    is_today = at.date() == datetime.datetime.now().astimezone().date()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")
