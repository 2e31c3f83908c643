"""A server's dates are read as UTC, in every form that HTTP has, on a machine in any zone; no text raises."""

from __future__ import annotations

import datetime
import email.utils
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.model.http_date import parse_http_date, server_time

AT = datetime.datetime(1994, 11, 6, 8, 49, 37, tzinfo=datetime.UTC)


@pytest.fixture(params=["UTC0", "XYZ-9", "XYZ+11"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Set the machine's time zone for the duration of the test."""
    with monkeypatch.context() as set_to:
        set_to.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 09:49:37 +0100",
        "Sun, 06 Nov 1994 08:49:37",
    ],
    ids=["fixed", "rfc-850", "asctime", "minus-zero", "plus-zero", "offset", "no-zone"],
)
def test_an_http_date_is_read_as_utc_whatever_the_machines_time_zone(text: str) -> None:
    """The forms are the three of RFC 9110 and those that mail libraries write; none means the machine's own zone."""
    at = parse_http_date(text)
    assert at == AT
    assert at.tzinfo is datetime.UTC


@given(st.text(max_size=80))
@example("")
@example("Thu, 99 Nov 2026 99:00:00 GMT")
@example("Mon, 01 Jan 0001 00:00:00 +2300")
@example("Fri, 31 Dec 9999 23:59:59 -2300")
@example("Sun, 06 Nov 1994 08:49:37 +999999999999")
@example("Sun, 06 Nov 99999999999999999999 08:49:37 GMT")
@example("a b c d e f")
@example(", ,")
def test_any_text_is_parsed_as_a_utc_date_or_ignored(text: str) -> None:
    """A server may send any text."""
    at = parse_http_date(text)
    assert at is None or at.tzinfo is datetime.UTC


@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1)))
def test_a_written_date_is_read_back(at: datetime.datetime) -> None:
    """Dates have a precision of one second."""
    whole = at.replace(microsecond=0, tzinfo=datetime.UTC)
    assert parse_http_date(email.utils.format_datetime(whole, usegmt=True)) == whole


def test_the_first_date_header_is_the_servers_time() -> None:
    """The header's name has any spelling; a response may have no date, or an invalid one."""
    said = email.utils.format_datetime(AT, usegmt=True)
    assert server_time([("Age", "3"), ("date", said), ("Date", "later")]) == AT
    assert server_time([("Date", "later"), ("Date", said)]) is None
    assert server_time([("Expires", said)]) is None
