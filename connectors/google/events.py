"""Conversion of Google Calendar's events: times from a caller's form to Google's JSON, and Google's answers to plain JSON.

A caller gives a time with an offset, a local time and the name of a zone, or a date. Two dates make an all-day event;
its end is the day after its last day. Google resolves the names of zones: in the jail there is no zone data.

Pure. Source: Calendar API v3 `Events`, RFC 3339. Not here: requests (api.py), recurrence rules (Google expands them).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from aileron_connector import BadInput
from aileron_connector.moments import MAX_DAYS, read_moment

__all__ = ["Event", "Events", "as_json", "stamp", "when"]

MAX_TEXT_CHARACTERS: Final = 2000
"""Maximum number of characters of a description or location in a listing; invitations may contain whole newsletters."""
MAX_ATTENDEES_SHOWN: Final = 50
"""Maximum number of attendees listed for one event. The number of all attendees is returned too."""
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,32}){0,3}")


class Time(msgspec.Struct, rename="camel"):
    """The `start` or `end` of an event in Google's JSON."""

    date: str | None = None
    date_time: str | None = None
    time_zone: str | None = None


class Person(msgspec.Struct, rename="camel"):
    """An organizer or attendee of an event in Google's JSON."""

    email: str = ""
    display_name: str = ""
    response_status: str | None = None
    optional: bool = False


class Event(msgspec.Struct, rename="camel"):
    """An event in Google's JSON (`Event`), reduced to the fields that this connector uses."""

    id: str
    start: Time
    end: Time = msgspec.field(default_factory=Time)
    status: str = ""
    html_link: str = ""
    summary: str = ""
    description: str = ""
    location: str = ""
    organizer: Person | None = None
    attendees: list[Person] = []
    recurring_event_id: str | None = None


class Events(msgspec.Struct, rename="camel"):
    """A page of an event listing."""

    items: list[Event] = []
    next_page_token: str | None = None
    time_zone: str = ""


def stamp(moment: datetime) -> str:
    """Return a datetime as RFC 3339 text in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def when(start: str, end: str, timezone: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return `start` and `end` of a new event as Google's JSON objects. Raises BadInput if a time is not valid, if only
    one of them is a date or has an offset, or if the order or duration is wrong.
    """
    if timezone is not None and _ZONE.fullmatch(timezone) is None:
        words = f"timezone {timezone[:64]!r} is not a name like Europe/Berlin"
        raise BadInput(words, argument="timezone")
    first, last = read_moment(start, "start_time"), read_moment(end, "end_time")
    if isinstance(first, datetime) and isinstance(last, datetime):
        return _timed(first, last, timezone)
    if isinstance(first, datetime) or isinstance(last, datetime):
        raise BadInput("start_time and end_time must both be times, or both be dates", argument="end_time")
    last = first + timedelta(days=1) if last == first else last
    _check_order(first < last <= first + timedelta(days=MAX_DAYS))
    return {"date": first.isoformat()}, {"date": last.isoformat()}


def _timed(first: datetime, last: datetime, timezone: str | None) -> tuple[dict[str, str], dict[str, str]]:
    for moment, argument in ((first, "start_time"), (last, "end_time")):
        if moment.tzinfo is None and timezone is None:
            words = f"{argument} has no UTC offset; write it like 2026-03-01T10:00:00+01:00, or give a timezone"
            raise BadInput(words, argument=argument)
    if (first.tzinfo is None) != (last.tzinfo is None):
        raise BadInput("start_time and end_time must both have a UTC offset, or neither", argument="end_time")
    _check_order(first < last <= first + timedelta(days=MAX_DAYS))
    zone = {} if timezone is None else {"timeZone": timezone}
    return {"dateTime": first.isoformat(), **zone}, {"dateTime": last.isoformat(), **zone}


def _check_order(is_good: bool) -> None:
    if not is_good:
        raise BadInput(f"end_time is not after start_time, or more than {MAX_DAYS} days after it", argument="end_time")


def as_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON for a listing. Its times stay in Google's form: RFC 3339, or two dates for an all-day event."""
    return {
        "id": event.id,
        "title": _shortened(event.summary),
        "start": event.start.date_time or event.start.date,
        "end": event.end.date_time or event.end.date,
        "all_day": event.start.date is not None,
        "timezone": event.start.time_zone,
        "location": _shortened(event.location) or None,
        "description": _shortened(event.description) or None,
        "status": event.status or None,
        "organizer": _person(event.organizer) if event.organizer is not None else None,
        "attendees": [_person(attendee) for attendee in event.attendees[:MAX_ATTENDEES_SHOWN]],
        "attendees_in_all": len(event.attendees),
        "is_recurring": event.recurring_event_id is not None,
        "link": event.html_link or None,
    }


def _person(person: Person) -> dict[str, Any]:
    return {
        "email": person.email[:254],
        "name": person.display_name[:200] or None,
        "response": person.response_status,
        "optional": person.optional,
    }


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + "…"
