"""Connector for the calendars of one CalDAV account: list calendars, and list, read, create and delete events.

Runs inside the jail; the server is fixed when the connector is built. The connector asks the host to send requests and
to add the password; the connector never has the password. Everything that a server sends may come from a stranger's
invitation, so it is passed on as data and never interpreted.

Not handled: attendees, alarms, writing recurring events, free-busy. Times without an offset in an unknown zone are
returned without an offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from uuid import uuid4

from dav import Account, Calendar, Item
from ical import Event, ICalError, Times, read_events, write_event, zone_named

from aileron_connector import BadInput, ConnectorError, ExternalApiError, hosts, log, op, run
from aileron_connector.moments import MAX_DAYS, read_moment, read_span

MAX_EVENTS: Final = 500
"""Maximum number of events in one result. 500 events of ordinary length take about half of a result's maximum size."""
MAX_TEXT_CHARACTERS: Final = 2000
"""Maximum number of characters of a description or location in a listing; invitations may contain whole newsletters."""


@op
def list_calendars() -> dict[str, Any]:
    """List the calendars that hold events, with name, description and href."""
    found = _account().calendars()
    return {"calendars": [calendar._asdict() for calendar in found]}


@op
def list_events(
    calendar: str | None = None,
    days: int = 7,
    start: str | None = None,
    end: str | None = None,
    limit: int = 100,
) -> dict[str, Any]:
    """List at most `limit` events, sorted by start, from `start` (default: now) to `end` (default: `days` after `start`)."""
    if not 1 <= limit <= MAX_EVENTS:
        raise BadInput(f"limit {limit} is not from 1 to {MAX_EVENTS}", argument="limit")
    since, until = read_span(start, end, days)
    account = _account()
    events: list[dict[str, Any]] = []
    for found in _chosen(account.calendars(), calendar):
        events += _events(account.query(found, since, until), found)
    events.sort(key=lambda event: (_sort_key(event["start"]), event["title"]))
    return {
        "from": since.isoformat(),
        "to": until.isoformat(),
        "events": events[:limit],
        "left_out": max(0, len(events) - limit),
    }


@op
def get_event(uid: str, calendar: str | None = None) -> dict[str, Any]:
    """Return the event with this uid in the form of list_events. For a recurring event, return its first occurrence."""
    account = _account()
    found = [
        event
        for candidate in _chosen(account.calendars(), calendar)
        for event in _events(account.find(candidate, uid), candidate)
    ]
    if not found:
        raise ExternalApiError("there is no such event", status=404)
    if len({event["href"] for event in found}) > 1:
        names = ", ".join(sorted({str(event["calendar"]) for event in found}))
        raise BadInput(f"several calendars have an event with this uid; say which: {names}", argument="calendar")
    return {"event": min(found, key=lambda event: _sort_key(event["start"]))}


@op
def create_event(
    title: str,
    start_time: str,
    end_time: str,
    calendar: str | None = None,
    description: str | None = None,
    location: str | None = None,
    timezone: str | None = None,
) -> dict[str, Any]:
    """Store a new event. Times are RFC 3339 with an offset, or local times in `timezone`; two dates make it all-day."""
    if not title.strip():
        raise BadInput("title is empty", argument="title")
    zone = _zone(timezone)
    times = _times(start_time, end_time, zone)
    uid = str(uuid4())
    named_zone = (timezone, zone) if timezone is not None and zone is not None else None
    try:
        data = write_event(
            uid, title, times, now=datetime.now(UTC), description=description, location=location, zone=named_zone
        )
    except ICalError as error:
        raise BadInput(str(error)) from error
    account = _account()
    target = _one(account.calendars(), calendar)
    href = f"{target.href}{uid}.ics"
    account.create(href, data)
    log.info("event created", calendar=target.name, href=href)
    [event] = _events([Item(href, None, data)], target)
    return {"event": event}


@op
def delete_event(
    uid: str | None = None,
    href: str | None = None,
    calendar: str | None = None,
    title: str | None = None,  # for the person who decides; only uid and href have an effect
) -> dict[str, Any]:
    """Delete one event by its uid or its href, as list_events returns them. A recurring event is deleted with all its
    occurrences.
    """
    if (uid is None) == (href is None):
        raise BadInput("give either uid or href", argument="uid")
    account = _account()
    calendars = _chosen(account.calendars(), calendar)
    if uid is not None:
        found = [item for candidate in calendars for item in account.find(candidate, uid)]
        if len(found) > 1:
            hrefs = ", ".join(item.href for item in found)
            raise BadInput(
                f"{len(found)} calendars have an event with this uid; give one of the hrefs: {hrefs}", argument="href"
            )
    else:
        found = [Item(href, None, b"") for candidate in calendars if href and _is_in(href, candidate)]
    if not found or not account.delete(found[0]):
        raise ExternalApiError("there is no such event", status=404)
    log.info("event deleted", href=found[0].href)
    return {"deleted": {"uid": uid, "href": found[0].href}}


def _account() -> Account:
    granted = hosts()
    if len(granted) != 1:
        raise ConnectorError(
            "connector_runtime_error",
            f"this connector is for exactly one server, and {len(granted)} are granted: "
            "build it with `aileron connector build --host NAME:PORT`",
        )
    return Account(granted[0].url)


def _chosen(calendars: list[Calendar], name: str | None) -> list[Calendar]:
    """Return the calendars with this name or href, or all calendars if `name` is None. Raises BadInput, which lists the
    existing calendars, if no calendar matches.
    """
    if name is None:
        return calendars
    wanted = name.strip()
    found = [calendar for calendar in calendars if wanted in {calendar.href, calendar.name}]
    found = found or [
        calendar
        for calendar in calendars
        if wanted.lower() in {calendar.name.lower(), calendar.href.split("/")[-2].lower()}
    ]
    if not found:
        raise BadInput(f"there is no calendar {wanted[:64]!r}; there are {_named(calendars)}", argument="calendar")
    return found


def _one(calendars: list[Calendar], name: str | None) -> Calendar:
    found = _chosen(calendars, name)
    if len(found) != 1:
        raise BadInput(f"which calendar? There are {_named(found)}", argument="calendar")
    return found[0]


def _named(calendars: Iterable[Calendar]) -> str:
    return ", ".join(f"{calendar.name!r} ({calendar.href})" for calendar in calendars) or "none"


def _is_in(href: str, calendar: Calendar) -> bool:
    """Return whether `href` is the path of an object directly in this calendar. False for the calendar itself and any
    other path.
    """
    name = href.removeprefix(calendar.href)
    is_plain = re.fullmatch(r"[A-Za-z0-9._~@%+:=,!$&'()*-]+", name) is not None and name not in {".", ".."}
    return href.startswith(calendar.href) and is_plain


# Times


def _times(start: str, end: str, zone: tzinfo | None) -> Times:
    first, last = read_moment(start, "start_time"), read_moment(end, "end_time")
    if isinstance(first, datetime) != isinstance(last, datetime):
        raise BadInput("start_time and end_time must both be times, or both be dates", argument="end_time")
    if not isinstance(first, datetime):
        last = first + timedelta(days=1) if last == first else last
    else:
        assert isinstance(last, datetime)
        first, last = _placed(first, zone, "start_time"), _placed(last, zone, "end_time")
    if not first < last <= first + timedelta(days=MAX_DAYS):
        raise BadInput(f"end_time is not after start_time, or more than {MAX_DAYS} days after it", argument="end_time")
    return Times(first, last)


def _placed(moment: datetime, zone: tzinfo | None, argument: str) -> datetime:
    if moment.tzinfo is not None:
        return moment
    if zone is None:
        raise BadInput(f"{argument} has no UTC offset; write it like 2026-03-01T10:00:00+01:00", argument=argument)
    return moment.replace(tzinfo=zone)


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    zone = zone_named(name) if re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", name) else None
    if zone is None:
        words = f"timezone {name[:64]!r} is not known here; leave it out and give times with their UTC offset"
        raise BadInput(words, argument="timezone")
    return zone


# Events as JSON


def _events(items: list[Item], calendar: Calendar) -> list[dict[str, Any]]:
    """Return the events in these calendar objects that can be parsed. An object that cannot be parsed is logged and
    skipped, so that it does not hide the others.
    """
    found = []
    for item in items:
        try:
            found += [_as_json(event, item, calendar) for event in read_events(item.data)]
        except ICalError as error:
            log.warning("a calendar object cannot be read", href=item.href, why=str(error))
    return found


def _as_json(event: Event, item: Item, calendar: Calendar) -> dict[str, Any]:
    return {
        "uid": event.uid,
        "title": event.title,
        "start": event.start.isoformat(),
        "end": event.end.isoformat(),
        "all_day": not isinstance(event.start, datetime),
        "timezone": event.timezone,
        "location": _shortened(event.location),
        "description": _shortened(event.description),
        "recurrence": event.recurrence,
        "calendar": calendar.name,
        "href": item.href,
    }


def _shortened(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return text[:MAX_TEXT_CHARACTERS] + "…"


def _sort_key(text: str) -> datetime:
    """Return a sort key for an event's time; a time without offset counts as UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


if __name__ == "__main__":
    run()
