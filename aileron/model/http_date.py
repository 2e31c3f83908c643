"""Reader of HTTP dates, such as a server's clock, always in UTC.

Pure. The callers decide how much a date can differ from this machine's clock (egress/signing/refused.py, oauth/minting.py).

Rules
- A date without a zone, or with `-0000`, is UTC, because HTTP has no other zone (the asctime form has no zone at all).
- For a text that is not a date the result is None; nothing is raised, because the text comes from a server.

>>> parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").isoformat()
'1994-11-06T08:49:37+00:00'

Source: RFC 9110, sections 5.6.7 and 6.6.1. Not here: Aileron's own timestamps (timestamp.py).
"""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Iterable

__all__ = ["parse_http_date", "server_time"]


def parse_http_date(text: str) -> datetime.datetime | None:
    """Return an HTTP date in UTC; None for a text that is not a date."""
    try:
        at = email.utils.parsedate_to_datetime(text)
        return (at.replace(tzinfo=datetime.UTC) if at.tzinfo is None else at).astimezone(datetime.UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def server_time(headers: Iterable[tuple[str, str]]) -> datetime.datetime | None:
    """Return the server's time when it responded, from the first `Date` header, in UTC. None if that header is absent
    or not a date.
    """
    said = next((value for name, value in headers if name.lower() == "date"), None)
    return None if said is None else parse_http_date(said)
