"""The connector's iCalendar: laws, and edge cases of times."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.libraries import module_of

ical = module_of("caldav", "ical")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = ical.Times(date(2026, 3, 1), date(2026, 3, 2))

BERLIN = """BEGIN:VTIMEZONE\r
TZID:Europe/Berlin\r
BEGIN:DAYLIGHT\r
TZOFFSETFROM:+0100\r
TZOFFSETTO:+0200\r
DTSTART:19810329T020000\r
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU\r
END:DAYLIGHT\r
BEGIN:STANDARD\r
TZOFFSETFROM:+0200\r
TZOFFSETTO:+0100\r
DTSTART:19961027T030000\r
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\r
END:STANDARD\r
END:VTIMEZONE\r
"""


def event(*lines: str, zone: str = "") -> Any:
    """Return the one event of a calendar with these lines in it."""
    inside = "\r\n".join(lines)
    text = (
        f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{zone}BEGIN:VEVENT\r\nUID:1\r\n{inside}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    [found] = ical.read_events(text.encode())
    return found


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t\\;,:"'), max_size=200)


@settings(deadline=None)
@given(texts, texts)
@example("Grüße 🎉" * 20, "\\n is not a newline\n; , \\")
def test_any_text_of_a_calendar_event_is_read_back_as_it_was_written(title: str, description: str) -> None:
    """The text has escapes, multi-byte characters that are folded, and line breaks; it can never become a line of its own."""
    data = ical.write_event("u", title, DAY, now=NOW, description=description, location=description)
    [found] = ical.read_events(data)
    assert (found.title, found.description, found.location) == (title, description or None, description or None)
    assert all(len(line) <= 75 for line in data.split(b"\r\n"))
    data.decode()
    for line in data.split(b"\r\n"):
        line.decode()  # no character is cut in two


@pytest.mark.parametrize("text", ["\x00", "\x07bell", "\x1b[31m", "\x7f"])
def test_control_characters_are_not_stored_in_a_calendar_event(text: str) -> None:
    """Other clients would show them."""
    with pytest.raises(ical.ICalError, match="control characters"):
        ical.write_event("u", text, DAY, now=NOW)


lines = st.sampled_from(
    [
        "BEGIN:VCALENDAR", "END:VCALENDAR", "BEGIN:VEVENT", "END:VEVENT", "BEGIN:VTIMEZONE", "END:VTIMEZONE",
        "BEGIN:STANDARD", "END:STANDARD", "TZID:X", "TZOFFSETFROM:+0100", "TZOFFSETTO:+0200", "DTSTART:19700101T000000",
        "DTSTART;TZID=X:20260301T100000", "DTSTART:20260301", "DTEND:20260302T000000Z", "DURATION:P1DT2H",
        "RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "RRULE:FREQ=YEARLY;UNTIL=19990101T000000Z", "SUMMARY:x\\", " folded",
        "DTSTART:99991231T235959Z", "DURATION:P999999999W", "DTSTART;TZID=\"a:b\":00010101T000000", "RDATE:20260101T000000",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(lines | st.text(max_size=20), max_size=25))
def test_any_text_is_read_as_events_or_is_an_ical_error(found: list[str]) -> None:
    """A server can send any text."""
    wrapped = ["BEGIN:VCALENDAR", *found, "END:VCALENDAR"]
    for text in ("\r\n".join(found), "\n".join(wrapped)):
        with contextlib.suppress(ical.ICalError):
            ical.read_events(text.encode("utf-8", "replace"))


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_that_are_not_a_calendar_are_an_ical_error(data: bytes) -> None:
    """The reader never returns events for them, and raises no other exception."""
    with pytest.raises(ical.ICalError):
        ical.read_events(data)


@settings(max_examples=200, deadline=None)
@given(st.datetimes(datetime(1997, 1, 1), datetime(2100, 1, 1)))
@example(datetime(2026, 3, 29, 1, 59, 59))
@example(datetime(2026, 3, 29, 2, 30))
@example(datetime(2026, 3, 29, 3, 0))
@example(datetime(2026, 10, 25, 2, 30))
@example(datetime(2026, 10, 25, 3, 0))
def test_a_vtimezone_gives_the_same_offsets_as_the_time_zone_database(local: datetime) -> None:
    """Both give the same offsets, also in the hour that is skipped and the hour that occurs twice."""
    # The second of a doubled hour cannot be told from the first in iCalendar (RFC 5545 section 3.3.5).
    local = local.replace(microsecond=0, fold=0)
    stamp = f"DTSTART;TZID=Europe/Berlin:{local:%Y%m%dT%H%M%S}"
    expected = local.replace(tzinfo=ZoneInfo("Europe/Berlin"))
    renamed = BERLIN.replace("Europe/Berlin", "Mine")
    found = event(stamp.replace("Europe/Berlin", "Mine"), zone=renamed)
    assert found.start.utcoffset() == expected.utcoffset()
    assert found.start.replace(tzinfo=None) == local
    assert found.timezone == "Mine"


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "UTC"]
    ),
    st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)),
    st.timedeltas(timedelta(minutes=1), timedelta(days=300)),
)
def test_an_event_in_a_time_zone_keeps_its_start_and_end(name: str, start: datetime, length: timedelta) -> None:
    """The file contains its own zone, and read without the machine's zone data it gives the same moments."""
    start = start.replace(second=0, microsecond=0)
    times = ical.Times(start, start + timedelta(minutes=length // timedelta(minutes=1)))
    data = ical.write_event("u", "t", times, now=NOW, zone=(name, ZoneInfo(name)))
    [found] = ical.read_events(data.replace(name.encode(), b"Unknown/Zone"))
    # The second of a doubled hour cannot be told from the first in iCalendar (RFC 5545 section 3.3.5).
    for moment, original in zip((found.start, found.end), times, strict=True):
        if not original.astimezone(ZoneInfo(name)).fold:
            assert moment == original


def test_the_machine_s_zone_data_is_used_if_the_file_has_none() -> None:
    """A zone that the machine does not know either leaves the time without an offset, but with the zone's name."""
    known = event("DTSTART;TZID=Europe/Berlin:20260701T100000")
    assert known.start.isoformat() == "2026-07-01T10:00:00+02:00"
    unknown = event("DTSTART;TZID=Nowhere:20260701T100000")
    assert (unknown.start.isoformat(), unknown.timezone) == ("2026-07-01T10:00:00", "Nowhere")


@pytest.mark.parametrize(
    ("given_lines", "end"),
    [
        (["DTSTART:20260301T100000Z"], "2026-03-01T10:00:00+00:00"),
        (["DTSTART;VALUE=DATE:20260301"], "2026-03-02"),
        (["DTSTART:20260301"], "2026-03-02"),
        (["DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:20260304"], "2026-03-04"),
        (["DTSTART;VALUE=DATE:20260301", "DURATION:P2D"], "2026-03-03"),
        (["DTSTART:20260301T100000Z", "DURATION:PT1H30M"], "2026-03-01T11:30:00+00:00"),
        (["DTSTART:20260301T100000Z", "DURATION:P1W"], "2026-03-08T10:00:00+00:00"),
        (["DTSTART:20260301T100000Z", "DURATION:-PT15M"], "2026-03-01T09:45:00+00:00"),
        (["DTSTART:20260301T235960Z"], "2026-03-01T23:59:59+00:00"),
        # Over the change to summer time: a day is a day on the wall clock, 24 hours are 24 hours.
        (["DTSTART;TZID=Europe/Berlin:20260328T120000", "DURATION:P1D"], "2026-03-29T12:00:00+02:00"),
        (["DTSTART;TZID=Europe/Berlin:20260328T120000", "DURATION:PT24H"], "2026-03-29T13:00:00+02:00"),
    ],
)
def test_the_end_of_an_event_is_found_as_the_standard_says(given_lines: list[str], end: str) -> None:
    """The end comes from DTEND, from DURATION, or from neither."""
    found = event(*given_lines, zone=BERLIN).end
    expected = date.fromisoformat(end) if len(end) == 10 else datetime.fromisoformat(end)
    assert found == expected


@pytest.mark.parametrize(
    "given_lines",
    [
        ["SUMMARY:no start"],
        ["DTSTART:99991231"],
        ["DTSTART:99991231T235959Z", "DURATION:P1D"],
        ["DTSTART:20260301T000000Z", "DURATION:P9999999999W"],
        ["DTSTART:20260301T000000Z", "DURATION:P"],
        ["DTSTART:20260301T000000Z", "DURATION:P1DT"],
        ["DTSTART:20260231"],
        ["DTSTART:20260301T250000Z"],
        ["DTSTART:tomorrow"],
        ["no colon"],
        ["BEGIN:VALARM"],
        ["END:VALARM"],
        [*["BEGIN:X"] * 9, *["END:X"] * 9],
    ],
)
def test_an_unreadable_event_is_an_ical_error(given_lines: list[str]) -> None:
    """The reader raises no other exception: the listing goes on without the event."""
    with pytest.raises(ical.ICalError):
        event(*given_lines, zone=BERLIN)


def test_icalendar_parameters_may_contain_separators_and_carets() -> None:
    """The cases are quoted values and RFC 6868."""
    found = event('DTSTART;X-A="a;b:c";TZID="Europe/Berlin":20260301T100000', 'SUMMARY;ALTREP="x^\'y":t')
    assert found.start.utcoffset() == timedelta(hours=1)
    assert found.title == "t"


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=25,26,27,28,29,30,31;BYDAY=SU",
        "FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3;WKST=MO",
        "FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;UNTIL=20991231T000000Z",
    ],
)
def test_other_ways_to_write_a_yearly_time_zone_rule_give_the_same_offsets(rule: str) -> None:
    """Outlook, Apple and others write the last Sunday of March like this."""
    zone = BERLIN.replace("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", rule).replace("Europe/Berlin", "Mine")
    assert event("DTSTART;TZID=Mine:20260329T120000", zone=zone).start.utcoffset() == timedelta(hours=2)
    assert event("DTSTART;TZID=Mine:20260328T120000", zone=zone).start.utcoffset() == timedelta(hours=1)


def test_a_time_zone_rule_that_has_ended_keeps_its_last_offset() -> None:
    """The example is a country that gave up summer time."""
    zone = BERLIN.replace("BYDAY=-1SU", "BYDAY=-1SU;UNTIL=20101231T000000Z").replace("Europe/Berlin", "Mine")
    assert event("DTSTART;TZID=Mine:20260701T120000", zone=zone).start.utcoffset() == timedelta(hours=1)
    assert event("DTSTART;TZID=Mine:20100701T120000", zone=zone).start.utcoffset() == timedelta(hours=2)


def test_a_time_zone_before_its_first_change_has_the_offset_that_the_change_replaces() -> None:
    """The standard says so, and it holds down to the year 1."""
    assert event("DTSTART;TZID=Europe/Berlin:00010101T000000", zone=BERLIN).start.utcoffset() == timedelta(hours=1)


def test_an_unsupported_time_zone_rule_makes_the_zone_unknown() -> None:
    """The time has no offset, rather than one that is wrong by an hour."""
    zone = BERLIN.replace("FREQ=YEARLY", "FREQ=MONTHLY").replace("Europe/Berlin", "Mine")
    found = event("DTSTART;TZID=Mine:20260701T120000", zone=zone)
    assert (found.start.tzinfo, found.timezone) == (None, "Mine")


def test_times_are_written_in_utc_unless_a_zone_is_given() -> None:
    """The moment is kept, the caller's offset is not."""
    start = datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=1)))
    data = ical.write_event("u", "t", ical.Times(start, start + timedelta(hours=1)), now=NOW)
    assert b"DTSTART:20260301T090000Z\r\nDTEND:20260301T100000Z\r\n" in data
