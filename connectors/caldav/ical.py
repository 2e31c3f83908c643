"""Reader and writer for the part of iCalendar that events need: read what any server stores, write one event.

It reads line folding, escapes, parameters, dates, DURATION, and times (local, UTC, or in a zone, which is looked up in
VTIMEZONE first, then in the machine's zone data). Not handled: expanding recurrences (the server does it, RFC 4791
section 9.6.5; a rule that it returns nevertheless is returned as text), alarms, attendees, attachments.

Runs inside the jail on text that a calendar server sent, which may contain what any stranger put into an invitation.

Source: RFC 5545; RFC 6868 for ^ escapes in parameters.

    [event] = read_events(write_event("1", "Tea; two", Times(date(2026, 3, 1), date(2026, 3, 2)), now=datetime.now(UTC)))
    assert event.title == "Tea; two"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Final, NamedTuple

__all__ = ["Event", "ICalError", "Times", "read_events", "write_event", "zone_named"]

MAX_DEPTH: Final = 8
"""Maximum depth of components; RFC 5545 nests three."""
_LINE_OCTETS: Final = 75
_WEEKDAYS: Final = {"MO": 0, "TU": 1, "WE": 2, "TH": 3, "FR": 4, "SA": 5, "SU": 6}

Moment = date | datetime
"""A date, a time with its UTC offset, or a time without an offset if the offset is not known."""


class ICalError(ValueError):
    """Error: the data is not iCalendar, or a value cannot be written as iCalendar."""


class Times(NamedTuple):
    """The times of an event. Both are dates (then `end` is the day after the last) or both are times."""

    start: Moment
    end: Moment


@dataclass(frozen=True)
class Event:
    """An event, or one instance of a recurring event."""

    uid: str
    title: str
    start: Moment
    end: Moment
    timezone: str | None
    location: str | None
    description: str | None
    recurrence: str | None
    """Recurrence rule (RRULE), if the server did not expand a recurring event; `start` is then the start of the first
    instance. None if there is no such rule.
    """


class _Property(NamedTuple):
    name: str
    parameters: dict[str, str]
    value: str


@dataclass
class _Component:
    name: str
    properties: list[_Property] = field(default_factory=list)
    components: list[_Component] = field(default_factory=list)

    def first(self, name: str) -> _Property | None:
        """Return the first property with this name, or None."""
        return next((found for found in self.properties if found.name == name), None)

    def text(self, name: str) -> str | None:
        """Return a text value without its escapes, or None if the value is absent or empty."""
        found = self.first(name)
        return _unescaped(found.value) or None if found else None


# Reading


def read_events(data: bytes) -> list[Event]:
    """Read every VEVENT in a calendar object. Raises ICalError if `data` is not a calendar object, or if an event has
    no readable start.
    """
    calendar = _parsed(data)
    zones = {zone.text("TZID"): _Zone(zone) for zone in calendar.components if zone.name == "VTIMEZONE"}
    try:
        return [_event(found, zones) for found in calendar.components if found.name == "VEVENT"]
    except OverflowError as error:
        raise ICalError(f"a time is outside the years 1 to 9999: {error}") from error


def _parsed(data: bytes) -> _Component:
    top = _Component("")
    stack = [top]
    for line in _unfolded(data):
        found = _property(line)
        if found.name == "BEGIN":
            if len(stack) > MAX_DEPTH:
                raise ICalError(f"components are nested deeper than {MAX_DEPTH} levels")
            component = _Component(found.value.upper())
            stack[-1].components.append(component)
            stack.append(component)
        elif found.name == "END":
            if len(stack) == 1 or stack.pop().name != found.value.upper():
                raise ICalError(f"END:{found.value[:40]!r} closes nothing that is open")
        else:
            stack[-1].properties.append(found)
    if len(stack) != 1 or len(top.components) != 1 or top.components[0].name != "VCALENDAR":
        raise ICalError("not one complete VCALENDAR")
    return top.components[0]


def _unfolded(data: bytes) -> Iterator[str]:
    # Folding counts octets, so it may split a character: bytes are joined first and then decoded.
    joined = re.sub(rb"\r?\n[ \t]", b"", data.removeprefix(b"\xef\xbb\xbf"))
    for line in re.split(rb"\r?\n", joined):
        if line:
            yield line.decode("utf-8", "replace")


def _property(line: str) -> _Property:
    head, value = _cut(line, ":")
    if value is None:
        raise ICalError(f"no colon in line {line[:40]!r}")
    name, rest = _cut(head, ";")
    parameters: dict[str, str] = {}
    while rest is not None:
        parameter, rest = _cut(rest, ";")
        key, _, raw = parameter.partition("=")
        parameters.setdefault(key.upper(), _parameter_value(raw))
    return _Property(name.upper(), parameters, value)


def _cut(text: str, separator: str) -> tuple[str, str | None]:
    """Split `text` at the first separator outside quotes. The second part is None if there is no separator."""
    in_quotes = False
    for at, character in enumerate(text):
        if character == '"':
            in_quotes = not in_quotes
        elif character == separator and not in_quotes:
            return text[:at], text[at + 1 :]
    return text, None


def _parameter_value(raw: str) -> str:
    meanings = {"^n": "\n", "^^": "^", "^'": '"'}
    return re.sub(r"\^[n^']", lambda found: meanings[found[0]], raw.strip('"'))


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] in "nN" else found[1], value)


def _event(component: _Component, zones: dict[str | None, _Zone]) -> Event:
    start_property = component.first("DTSTART")
    if start_property is None:
        raise ICalError("an event without DTSTART")
    start, zone_name = _moment(start_property, zones)
    rule = component.first("RRULE")
    return Event(
        uid=component.text("UID") or "",
        title=component.text("SUMMARY") or "",
        start=start,
        end=_end(component, start, start_property, zones),
        timezone=zone_name,
        location=component.text("LOCATION"),
        description=component.text("DESCRIPTION"),
        recurrence=rule.value if rule else None,
    )


def _end(component: _Component, start: Moment, start_property: _Property, zones: dict[str | None, _Zone]) -> Moment:
    """Return the end of an event: its DTEND, else DTSTART plus DURATION. Without either, a date lasts one day, and a
    time has no duration (RFC 5545 section 3.6.1).
    """
    end = component.first("DTEND")
    if end is not None:
        return _moment(end, zones)[0]
    duration = component.first("DURATION")
    if duration is None:
        return start if isinstance(start, datetime) else start + timedelta(days=1)
    days, exact = _duration(duration.value)
    if not isinstance(start, datetime):
        return start + days
    # A day is one on the wall clock, an hour is exact (section 3.3.6): add the days before the offset is looked up.
    moved = _local(start_property.value) + days
    return _in_zone(moved, start_property, zones)[0] + exact


def _duration(text: str) -> tuple[timedelta, timedelta]:
    """Return a duration as two values: its weeks and days, and its hours, minutes and seconds."""
    found = re.fullmatch(r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text.strip())
    if found is None or text.strip()[-1] in "PT":
        raise ICalError(f"duration {text[:40]!r} cannot be read")
    sign = -1 if found[1] == "-" else 1
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    nominal, exact = timedelta(days, weeks=weeks), timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return sign * nominal, sign * exact


def _moment(found: _Property, zones: dict[str | None, _Zone]) -> tuple[Moment, str | None]:
    """Return the date or time in a property, and the name of its zone (None if it has none)."""
    text = found.value.strip()
    if re.fullmatch(r"\d{8}", text):  # even without VALUE=DATE, which some servers forget
        return _local(f"{text}T000000").date(), None
    return _in_zone(_local(text), found, zones)


def _local(text: str) -> datetime:
    """Return the wall clock time that the text of a date-time value states. A leap second becomes the second before it."""
    found = re.fullmatch(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z?", text.strip())
    if found is None:
        raise ICalError(f"time {text[:40]!r} cannot be read")
    year, month, day, hour, minute, second = (int(part) for part in found.groups())
    try:
        return datetime(year, month, day, hour, minute, min(second, 59))
    except ValueError as error:
        raise ICalError(f"time {text[:40]!r} cannot be read: {error}") from error


def _in_zone(local: datetime, found: _Property, zones: dict[str | None, _Zone]) -> tuple[datetime, str | None]:
    """Return the wall clock time `local`, with its zone's offset if the offset is known, and the zone's name."""
    if found.value.strip().endswith("Z"):
        return local.replace(tzinfo=UTC), None
    name = found.parameters.get("TZID")
    if name is None:
        return local, None
    offset = zones[name].offset(local) if name in zones else None
    if offset is None:
        zone = zone_named(name)
        offset = zone.utcoffset(local.replace(tzinfo=zone)) if zone is not None else None
    return local if offset is None else local.replace(tzinfo=timezone(offset)), name


def zone_named(name: str) -> tzinfo | None:
    """Return the machine's zone with this IANA name. None if the machine has no such zone or no zone data (a jail may have
    none).
    """
    from zoneinfo import ZoneInfo  # only needed if a file has no VTIMEZONE

    try:
        return ZoneInfo(name.removeprefix("/"))
    except (KeyError, ValueError, OSError):
        return None


class _Rule(NamedTuple):
    """A yearly recurrence rule (RRULE) of a part of a VTIMEZONE component."""

    month: int
    month_days: frozenset[int] | None
    ordinal: int | None
    weekday: int | None
    until: datetime | None


class _Observance(NamedTuple):
    """A STANDARD or DAYLIGHT part of a VTIMEZONE: an offset, and the moments from which the offset applies."""

    first: datetime
    others: list[datetime]
    rule: _Rule | None
    before: timedelta
    after: timedelta

    def last_onset(self, local: datetime) -> datetime | None:
        """Return the last moment, at or before this wall clock time, from which the offset applies; None if there is none."""
        onsets = [onset for onset in (self.first, *self.others) if onset <= local]
        if self.rule is not None and onsets:
            latest = min(local, self.rule.until + self.before) if self.rule.until else local
            for year in (latest.year, latest.year - 1):
                onset = self._onset_in(year, self.rule)
                if onset is not None and self.first <= onset <= latest:
                    onsets.append(onset)
        return max(onsets, default=None)

    def _onset_in(self, year: int, rule: _Rule) -> datetime | None:
        days = []
        for number in range(1, 32):
            try:
                day = self.first.replace(year=year, month=rule.month, day=number)
            except ValueError:
                break
            in_month_days = rule.month_days is None or number in rule.month_days
            if in_month_days and (rule.weekday is None or day.weekday() == rule.weekday):
                days.append(day)
        try:
            return days[0 if rule.ordinal is None else rule.ordinal - (rule.ordinal > 0)]
        except IndexError:
            return None


class _Zone:
    """A VTIMEZONE with the offsets that its author specified."""

    def __init__(self, component: _Component) -> None:
        try:
            self._observances = [
                _observance(part) for part in component.components if part.name in {"STANDARD", "DAYLIGHT"}
            ]
        except ICalError:
            self._observances = []  # a rule cannot be read: the zone is unknown, but its events are still read

    def offset(self, local: datetime) -> timedelta | None:
        """Return the UTC offset at a wall clock time; None if the zone cannot be read.

        A wall clock time that an offset change skips has the offset before the change. A time that occurs twice stands
        for its first occurrence (RFC 5545 section 3.3.5).
        """
        onsets = [(onset, seen) for seen in self._observances if (onset := seen.last_onset(local)) is not None]
        if not onsets:
            first = min(self._observances, key=lambda seen: seen.first, default=None)
            return first.before if first else None
        onset, seen = max(onsets, key=lambda pair: pair[0])
        is_skipped = local < onset + (seen.after - seen.before)
        return seen.before if is_skipped else seen.after


def _observance(component: _Component) -> _Observance:
    start, before, after = (component.first(name) for name in ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO"))
    if start is None or before is None or after is None:
        raise ICalError("an observance without its start or offsets")
    others = [
        _local(value) for found in component.properties if found.name == "RDATE" for value in found.value.split(",")
    ]
    rule = component.first("RRULE")
    first = _local(start.value)
    return _Observance(
        first, others, _rule(rule.value, first) if rule else None, _offset(before.value), _offset(after.value)
    )


def _rule(text: str, first: datetime) -> _Rule:
    parts = dict(part.upper().partition("=")[::2] for part in text.split(";"))
    if parts.pop("FREQ", "") != "YEARLY" or parts.pop("INTERVAL", "1") != "1":
        raise ICalError(f"rule {text[:40]!r} is not a plain yearly one")
    by_day = re.fullmatch(r"([+-]?[1-5])?([A-Z]{2})", parts.pop("BYDAY", "")) if "BYDAY" in parts else None
    month_days = parts.pop("BYMONTHDAY", None)
    month = parts.pop("BYMONTH", str(first.month))
    until = parts.pop("UNTIL", None)
    known = not parts.keys() - {"WKST"}
    if not known or not month.isdecimal() or (by_day and by_day[2] not in _WEEKDAYS):
        raise ICalError(f"rule {text[:40]!r} has parts that are not handled")
    if by_day is None and month_days is None:
        month_days = str(first.day)
    return _Rule(
        int(month),
        frozenset(int(day) for day in month_days.split(",") if day.isdecimal()) if month_days else None,
        int(by_day[1]) if by_day and by_day[1] else None,
        _WEEKDAYS[by_day[2]] if by_day else None,
        _local(until if "T" in until else until + "T235959") if until else None,
    )


def _offset(text: str) -> timedelta:
    found = re.fullmatch(r"([+-])(\d\d)(\d\d)(\d\d)?", text.strip())
    if found is None or int(found[2]) > 23:
        raise ICalError(f"offset {text[:40]!r} cannot be read")
    size = timedelta(hours=int(found[2]), minutes=int(found[3]), seconds=int(found[4] or 0))
    return -size if found[1] == "-" else size


# Writing


def write_event(
    uid: str,
    title: str,
    times: Times,
    *,
    now: datetime,
    description: str | None = None,
    location: str | None = None,
    zone: tuple[str, tzinfo] | None = None,
) -> bytes:
    """Return a calendar object with one event. Times need an offset; they are written in UTC, or in `zone` if `zone` is given.

    Raises ICalError for text with control characters, which iCalendar cannot express.
    """
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Aileron//connector-caldav//EN"]
    if zone is not None and isinstance(times.start, datetime) and isinstance(times.end, datetime):
        lines += _zone_lines(*zone, times.start, times.end)
    lines += ["BEGIN:VEVENT", f"UID:{_escaped(uid)}", f"DTSTAMP:{_utc(now)}"]
    lines += [_when("DTSTART", times.start, zone), _when("DTEND", times.end, zone), f"SUMMARY:{_escaped(title)}"]
    if description:
        lines.append(f"DESCRIPTION:{_escaped(description)}")
    if location:
        lines.append(f"LOCATION:{_escaped(location)}")
    lines += ["END:VEVENT", "END:VCALENDAR"]
    return b"".join(_folded(line) for line in lines)


def _when(name: str, moment: Moment, zone: tuple[str, tzinfo] | None) -> str:
    if not isinstance(moment, datetime):
        return f"{name};VALUE=DATE:{moment:%Y%m%d}"
    if zone is None:
        return f"{name}:{_utc(moment)}"
    return f"{name};TZID={zone[0]}:{_basic(moment.astimezone(zone[1]))}"


def _utc(moment: datetime) -> str:
    return _basic(moment.astimezone(UTC)) + "Z"


def _basic(moment: datetime) -> str:
    # Not strftime: its %Y does not pad years below 1000 everywhere.
    return moment.replace(tzinfo=None).isoformat(timespec="seconds").replace("-", "").replace(":", "")


def _escaped(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if any((character < " " and character not in "\n\t") or character == "\x7f" for character in text):
        raise ICalError("text with control characters cannot be stored in a calendar")
    for plain, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return text


def _folded(line: str) -> bytes:
    """Fold a content line into pieces of at most 75 octets, without splitting a character."""
    pieces, piece = [], b""
    for character in line:
        octets = character.encode("utf-8", "replace")
        if len(piece) + len(octets) > _LINE_OCTETS:
            pieces.append(piece)
            piece = b" "
        piece += octets
    return b"\r\n".join([*pieces, piece]) + b"\r\n"


def _zone_lines(name: str, zone: tzinfo, start: datetime, end: datetime) -> list[str]:
    """Return a VTIMEZONE with the offset changes that this event needs: the last one before the event, and those during it."""
    lines = ["BEGIN:VTIMEZONE", f"TZID:{name}"]
    for at, before, after, is_daylight in _changes(zone, start, end):
        kind = "DAYLIGHT" if is_daylight else "STANDARD"
        local = (at + before).replace(tzinfo=None)
        lines += [f"BEGIN:{kind}", f"DTSTART:{_basic(local)}", f"TZOFFSETFROM:{_signed(before)}"]
        lines += [f"TZOFFSETTO:{_signed(after)}", f"END:{kind}"]
    return [*lines, "END:VTIMEZONE"]


def _changes(zone: tzinfo, start: datetime, end: datetime) -> list[tuple[datetime, timedelta, timedelta, bool]]:
    """Return the changes of the UTC offset from the last change before `start` until `end`. If there is no change
    before `start`, the first item is an artificial change to the offset that applies at `start`.
    """

    def offset(at: datetime) -> timedelta:
        return zone.utcoffset(at.astimezone(zone)) or timedelta()

    at, last = start.astimezone(UTC) - timedelta(days=400), end.astimezone(UTC)
    found = [(at, offset(at), offset(at), False)]
    while at < last:
        following = at + timedelta(days=1)
        if offset(following) != offset(at):
            change = _bisected(offset, at, following)
            is_daylight = bool(zone.dst(change.astimezone(zone)))
            found.append((change, offset(at), offset(following), is_daylight))
        at = following
    before = [change for change in found if change[0] <= start.astimezone(UTC)]
    return [before[-1], *found[len(before) :]]


def _bisected(offset: Callable[[datetime], timedelta], low: datetime, high: datetime) -> datetime:
    """Return, by bisection between `low` and `high`, the first second that has the same offset as `high`."""
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if offset(middle) == offset(low):
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def _signed(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{sign}{hours:02}{minutes:02}" + (f"{seconds:02}" if seconds else "")
