"""The CalDAV connector, as it is built, against a real Radicale, and against servers that lie."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from aileron.actions.manifest import parse_action
from aileron.model.names import HostPort
from aileron.registry.manifest import parse_connector_manifest
from aileron_sandbox.frames import GrantedHost, Log
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.radicale import RadicaleServer
from tests.support.upstream import Seen, Upstream, answer
from tests.support.waiting import wait_until

SOURCE = ROOT / "connectors" / "caldav"
WEEK = {"start": "2026-03-23", "end": "2026-04-06"}

BERLIN = """BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
DTSTART:19810329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
DTSTART:19961027T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
"""

Call = Callable[..., Report]


def calendar_object(*events: str, zone: str = "") -> str:
    """Return an iCalendar file; each event is its lines."""
    bodies = "".join(f"BEGIN:VEVENT\nDTSTAMP:20260101T000000Z\n{lines.strip()}\nEND:VEVENT\n" for lines in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{zone}{bodies}END:VCALENDAR\n".replace("\n", "\r\n")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE, [HostPort("127.0.0.1", 5232)])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadicaleServer]:
    """Run one server for the module; each test begins with its calendars emptied."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as server:
        yield server


@pytest.fixture
def server(running: RadicaleServer) -> RadicaleServer:
    """Return the server with nothing on it but the calendar Work."""
    running.request("DELETE", f"/{running.user}/")
    running.request("MKCOL", f"/{running.user}/")
    running.make_calendar("work", "Work")
    return running


@pytest.fixture
def call(server: RadicaleServer, program: Path) -> Call:
    """Return a function that runs an operation: call(op, **args)."""
    return host_for(server, program).call


def host_for(server: RadicaleServer, program: Path, password: str | None = None) -> PlainHost:
    """Return a host that grants the server, and has the password."""
    granted = GrantedHost("127.0.0.1", server.port, True)
    return PlainHost(program, hosts=[granted], basic=(server.user, password or server.password))


def titles(report: Report) -> list[str]:
    """Return the titles of the events of a listing."""
    return [event["title"] for event in report.output["events"]]


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as an install would, with the two placeholders where they belong."""
    manifest = parse_connector_manifest((SOURCE / "manifest.toml").read_bytes(), file="m", allow_unbound=True)
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    assert manifest.credential is not None
    assert (str(manifest.name), manifest.version, manifest.credential.kind) == (
        "github://aileron/connector-caldav",
        "0.1.0",
        "basic",
    )
    gated = {name: (action.approval.required, action.steps[0].idempotent) for name, action in actions.items()}
    assert gated == {
        "caldav-list-events": (False, True),
        "caldav-create-event": (True, False),
        "caldav-delete-event": (True, False),
    }
    for name, action in actions.items():
        assert action.name == name
        assert action.steps[0].op in manifest.intents
        previewed = [] if action.preview is None else [action.preview.op]
        assert [action.steps[0].op, *previewed] == list(action.connectors[0].capabilities)
        assert set(previewed) <= {"list_calendars", "list_events", "get_event"}


# Reading


def test_calendars_are_found_from_the_account(server: RadicaleServer, call: Call) -> None:
    """They are found by principal and home set; task lists and address books are not calendars for events."""
    server.make_calendar("home", "Zuhause ü & <b>")
    tasks = (
        '<C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>'
        '<C:supported-calendar-component-set><C:comp name="VTODO"/></C:supported-calendar-component-set>'
        "</D:prop></D:set></C:mkcalendar>"
    )
    assert server.request("MKCALENDAR", f"/{server.user}/tasks/", tasks.encode())[0] == 201
    assert call("list_calendars").output == {
        "calendars": [
            {"href": "/ada/work/", "name": "Work", "description": None},
            {"href": "/ada/home/", "name": "Zuhause ü & <b>", "description": None},
        ]
    }


def test_events_of_all_calendars_are_sorted_and_complete(server: RadicaleServer, call: Call) -> None:
    """The cases are text with every escape, a folded line, a zone of its own, an all-day event, and a duration."""
    server.make_calendar("home", "Home")
    server.put(
        "work/zoned.ics",
        calendar_object(
            "UID:zoned\nSUMMARY:Grüße\\, Ada\\; 🎉 \\\\o/\n"
            "DTSTART;TZID=Europe/Berlin:20260330T100000\nDTEND;TZID=Europe/Berlin:20260330T113000\n"
            "LOCATION:Café\nDESCRIPTION:one\\ntwo " + "long " * 10 + "\n  folded",
            zone=BERLIN,
        ),
    )
    server.put(
        "home/day.ics",
        calendar_object("UID:day\nSUMMARY:Holiday\nDTSTART;VALUE=DATE:20260327\nDTEND;VALUE=DATE:20260329"),
    )
    server.put("home/utc.ics", calendar_object("UID:utc\nSUMMARY:Call\nDTSTART:20260330T070000Z\nDURATION:PT45M"))
    server.put("work/other.ics", calendar_object("UID:other\nSUMMARY:Other month\nDTSTART:20260510T070000Z"))

    report = call("list_events", **WEEK)

    assert titles(report) == ["Holiday", "Call", "Grüße, Ada; 🎉 \\o/"]
    holiday, meeting, zoned = report.output["events"]
    assert holiday == {
        "uid": "day",
        "title": "Holiday",
        "start": "2026-03-27",
        "end": "2026-03-29",
        "all_day": True,
        "timezone": None,
        "location": None,
        "description": None,
        "recurrence": None,
        "calendar": "Home",
        "href": "/ada/home/day.ics",
    }
    assert (meeting["start"], meeting["end"]) == ("2026-03-30T07:00:00+00:00", "2026-03-30T07:45:00+00:00")
    assert datetime.fromisoformat(zoned["start"]) == datetime(2026, 3, 30, 8, tzinfo=UTC)
    assert datetime.fromisoformat(zoned["end"]) == datetime(2026, 3, 30, 9, 30, tzinfo=UTC)
    assert (zoned["location"], zoned["calendar"]) == ("Café", "Work")
    assert zoned["description"] == "one\ntwo " + "long " * 10 + " folded"
    assert report.output["left_out"] == 0


def test_a_recurring_event_is_listed_as_its_instances(server: RadicaleServer, call: Call) -> None:
    """The server expands it, across a clock change, without the cancelled instance and with the moved one."""
    server.put(
        "work/weekly.ics",
        calendar_object(
            "UID:weekly\nSUMMARY:Weekly\nDTSTART;TZID=Europe/Berlin:20260302T100000\n"
            "DTEND;TZID=Europe/Berlin:20260302T110000\nRRULE:FREQ=WEEKLY\nEXDATE;TZID=Europe/Berlin:20260316T100000",
            "UID:weekly\nSUMMARY:Weekly\\, moved\nRECURRENCE-ID;TZID=Europe/Berlin:20260323T100000\n"
            "DTSTART;TZID=Europe/Berlin:20260324T150000\nDTEND;TZID=Europe/Berlin:20260324T160000",
            zone=BERLIN,
        ),
    )
    report = call("list_events", start="2026-03-09", end="2026-04-01")
    found = [
        (event["title"], datetime.fromisoformat(event["start"]).astimezone(UTC)) for event in report.output["events"]
    ]
    assert found == [
        ("Weekly", datetime(2026, 3, 9, 9, tzinfo=UTC)),
        ("Weekly, moved", datetime(2026, 3, 24, 14, tzinfo=UTC)),
        ("Weekly", datetime(2026, 3, 30, 8, tzinfo=UTC)),
    ]
    assert {event["recurrence"] for event in report.output["events"]} == {None}


def test_without_a_time_span_the_next_seven_days_are_listed(server: RadicaleServer, call: Call) -> None:
    """The list starts now. Seven days are the default."""
    now = datetime.now(UTC)
    for name, days in (("past", -2), ("soon", 2), ("later", 20)):
        start = (now + timedelta(days=days)).strftime("%Y%m%dT%H%M%SZ")
        server.put(f"work/{name}.ics", calendar_object(f"UID:{name}\nSUMMARY:{name}\nDTSTART:{start}\nDURATION:PT1H"))
    assert titles(call("list_events")) == ["soon"]
    assert titles(call("list_events", days=30)) == ["soon", "later"]


def test_a_calendar_can_be_named_by_title_or_href(server: RadicaleServer, call: Call) -> None:
    """Case does not matter; the error for a wrong name lists the calendars."""
    server.make_calendar("home", "Home")
    server.put("home/a.ics", calendar_object("UID:a\nSUMMARY:At home\nDTSTART:20260330T070000Z"))
    server.put("work/b.ics", calendar_object("UID:b\nSUMMARY:At work\nDTSTART:20260330T080000Z"))
    for name in ("Home", "home", "/ada/home/"):
        assert titles(call("list_events", calendar=name, **WEEK)) == ["At home"]
    failed = call("list_events", calendar="Hme", **WEEK).failure
    assert failed.failure_class == "bad_input"
    assert failed.message == "there is no calendar 'Hme'; there are 'Home' (/ada/home/), 'Work' (/ada/work/)"


def test_a_long_listing_of_events_is_cut_and_says_so(server: RadicaleServer, call: Call) -> None:
    """The first events by time are listed, with the number of those left out."""
    for number in range(5):
        server.put(
            f"work/{number}.ics",
            calendar_object(f"UID:{number}\nSUMMARY:{number}\nDTSTART:2026033{number % 2}T0{number}0000Z"),
        )
    report = call("list_events", limit=2, **WEEK)
    assert titles(report) == ["0", "2"]
    assert report.output["left_out"] == 3


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"days": 0}, "days"),
        ({"days": 367}, "days"),
        ({"days": "7"}, "days"),
        ({"limit": 0}, "limit"),
        ({"start": "tomorrow"}, "start"),
        ({"start": "2026-02-30"}, "start"),
        ({"start": "2026-03-02", "end": "2026-03-01"}, "end"),
        ({"start": "2026-03-02", "end": "2028-03-01"}, "end"),
        ({"start": "0001-01-01"}, "start"),
    ],
)
def test_an_invalid_time_span_is_bad_input(call: Call, args: dict[str, Any], argument: str) -> None:
    """The failure comes before any request."""
    report = call("list_events", **args)
    assert report.failure.failure_class == "bad_input"
    assert report.failure.details == {"argument": argument}
    assert report.requests == []


# Writing


def test_a_created_event_is_on_the_server_and_in_the_listing(server: RadicaleServer, call: Call) -> None:
    """The event has every field, as another client would read it."""
    created = call(
        "create_event",
        title="Lunch; with Mira, 🎉",
        start_time="2026-03-30T12:00:00+02:00",
        end_time="2026-03-30T13:00:00+02:00",
        description="bring\nthe \\ papers",
        location="Café",
    ).output["event"]
    assert (created["start"], created["calendar"]) == ("2026-03-30T10:00:00+00:00", "Work")
    stored = server.get(created["href"])
    assert "SUMMARY:Lunch\\; with Mira\\, 🎉" in stored
    assert "DTSTART:20260330T100000Z" in stored
    [listed] = call("list_events", **WEEK).output["events"]
    assert listed == created
    assert listed["description"] == "bring\nthe \\ papers"
    assert re.fullmatch(r"[0-9a-f-]{36}", listed["uid"])


def test_two_dates_make_an_all_day_event(call: Call) -> None:
    """The end is the day after the last; the same date twice is that one day."""
    for end, stored in (("2026-03-30", "2026-03-31"), ("2026-04-02", "2026-04-02")):
        created = call("create_event", title="Off", start_time="2026-03-30", end_time=end).output["event"]
        assert (created["start"], created["end"], created["all_day"]) == ("2026-03-30", stored, True)


def test_an_event_in_a_time_zone_is_stored_in_that_zone(server: RadicaleServer, call: Call) -> None:
    """Local times are read in the zone, and the file contains the zone's rules."""
    created = call(
        "create_event",
        title="Zoned",
        start_time="2026-03-28T20:00",
        end_time="2026-03-29T08:00",
        timezone="Europe/Berlin",
    ).output["event"]
    assert (created["start"], created["end"]) == ("2026-03-28T20:00:00+01:00", "2026-03-29T08:00:00+02:00")
    assert created["timezone"] == "Europe/Berlin"
    stored = server.get(created["href"])
    assert "BEGIN:VTIMEZONE" in stored
    assert "TZID=Europe/Berlin:20260328T200000" in stored
    [listed] = call("list_events", **WEEK).output["events"]
    assert [datetime.fromisoformat(listed[key]) for key in ("start", "end")] == [
        datetime.fromisoformat(created[key]) for key in ("start", "end")
    ]


@pytest.mark.parametrize(
    ("changed", "argument", "words"),
    [
        ({"title": " "}, "title", "title is empty"),
        ({"start_time": "2026-03-30T12:00:00"}, "start_time", "has no UTC offset"),
        ({"end_time": "2026-03-30T11:00:00+02:00"}, "end_time", "not after start_time"),
        ({"end_time": "2026-03-30T12:00:00+02:00"}, "end_time", "not after start_time"),
        ({"end_time": "2028-03-30T12:00:00+02:00"}, "end_time", "more than 366 days"),
        ({"end_time": "2026-03-31"}, "end_time", "both be times, or both be dates"),
        ({"end_time": "noon"}, "end_time", "is not valid; expected a date like"),
        ({"timezone": "Mars/Olympus"}, "timezone", "is not known here"),
        ({"timezone": "../../etc/passwd"}, "timezone", "is not known here"),
        ({"calendar": "Nowhere"}, "calendar", "there is no calendar 'Nowhere'; there are 'Work'"),
        ({"description": "\x00"}, None, "control characters"),
    ],
)
def test_an_invalid_event_is_bad_input(
    server: RadicaleServer, call: Call, changed: dict[str, str], argument: str | None, words: str
) -> None:
    """The server stores nothing."""
    good = {"title": "T", "start_time": "2026-03-30T12:00:00+02:00", "end_time": "2026-03-30T13:00:00+02:00"}
    report = call("create_event", **{**good, **changed})
    assert report.failure.failure_class == "bad_input"
    assert words in report.failure.message
    assert report.failure.details.get("argument") == argument
    assert "PUT" not in [request.method for request in report.requests]


def test_a_new_event_must_name_its_calendar_if_there_are_several(server: RadicaleServer, call: Call) -> None:
    """The connector does not guess where the event goes."""
    server.make_calendar("home", "Home")
    times = {"title": "T", "start_time": "2026-03-30", "end_time": "2026-03-31"}
    failed = call("create_event", **times).failure
    assert failed.message == "which calendar? There are 'Home' (/ada/home/), 'Work' (/ada/work/)"
    assert call("create_event", calendar="home", **times).output["event"]["calendar"] == "Home"


def test_an_event_is_deleted_by_uid_or_by_href(server: RadicaleServer, call: Call) -> None:
    """Only that event is deleted; deleting it again is an error."""
    for name in ("a", "b", "c"):
        server.put(f"work/{name}.ics", calendar_object(f"UID:{name}\nSUMMARY:{name}\nDTSTART:20260330T070000Z"))
    assert call("delete_event", uid="a", title="as the action says it").output == {
        "deleted": {"uid": "a", "href": "/ada/work/a.ics"}
    }
    assert call("delete_event", href="/ada/work/b.ics").output == {"deleted": {"uid": None, "href": "/ada/work/b.ics"}}
    assert titles(call("list_events", **WEEK)) == ["c"]
    for gone in ({"uid": "a"}, {"href": "/ada/work/b.ics"}):
        assert call("delete_event", **gone).failure.message == "there is no such event"


def test_an_event_is_read_by_its_uid(server: RadicaleServer, call: Call) -> None:
    """The event is complete; of a recurring one it is the first. An unknown UID is an error, and so is one in two calendars."""
    server.put("work/a.ics", calendar_object("UID:a\nSUMMARY:One\nDTSTART:20260330T070000Z\nLOCATION:Room 4"))
    server.put("work/r.ics", calendar_object("UID:r\nSUMMARY:Many\nDTSTART:20260330T070000Z\nRRULE:FREQ=DAILY;COUNT=3"))

    event = call("get_event", uid="a").output["event"]
    many = call("get_event", uid="r").output["event"]

    assert (event["title"], event["location"], event["calendar"]) == ("One", "Room 4", "Work")
    assert (many["title"], many["start"], many["recurrence"]) == (
        "Many",
        "2026-03-30T07:00:00+00:00",
        "FREQ=DAILY;COUNT=3",
    )
    assert call("get_event", uid="b").failure.message == "there is no such event"
    server.make_calendar("home", "Home")
    server.put("home/a.ics", calendar_object("UID:a\nSUMMARY:Other\nDTSTART:20260330T070000Z"))
    assert call("get_event", uid="a").failure.details["argument"] == "calendar"
    assert call("get_event", uid="a", calendar="Home").output["event"]["title"] == "Other"


@pytest.mark.parametrize(
    "href",
    [
        "/ada/work/",
        "/ada/work",
        "/ada/",
        "/",
        "/ada/work/../work/",
        "/ada/work/..",
        "/ada/work/a.ics/",
        "/ada/work/a.ics?x=1",
        "/bob/work/a.ics",
        "http://elsewhere.example/ada/work/a.ics",
    ],
)
def test_only_single_events_can_be_deleted(server: RadicaleServer, call: Call, href: str) -> None:
    """An href of a calendar, or outside one, is no event: the calendar and its events are still there."""
    server.put("work/a.ics", calendar_object("UID:a\nSUMMARY:a\nDTSTART:20260330T070000Z"))
    report = call("delete_event", href=href)
    assert report.failure.message == "there is no such event"
    assert "DELETE" not in [request.method for request in report.requests]
    assert titles(call("list_events", **WEEK)) == ["a"]


def test_a_uid_with_markup_is_searched_literally(server: RadicaleServer, call: Call) -> None:
    """The UID cannot break out of the query."""
    uid = "a&b</C:text-match>"
    server.put("work/odd.ics", calendar_object(f"UID:{uid}\nSUMMARY:odd\nDTSTART:20260330T070000Z"))
    server.put("work/b.ics", calendar_object("UID:b\nSUMMARY:b\nDTSTART:20260330T070000Z"))
    assert call("delete_event", uid=uid).output["deleted"]["href"] == "/ada/work/odd.ics"
    assert titles(call("list_events", **WEEK)) == ["b"]


# The credential


def test_the_password_never_enters_the_connector(server: RadicaleServer, call: Call) -> None:
    """All that goes in, comes out or is printed is searched, in every encoding; the server accepted the password."""
    before = len(server.accepted_users())
    report = call("create_event", title="T", start_time="2026-03-30", end_time="2026-03-31")
    assert report.output["event"]["title"] == "T"
    wait_until(lambda: server.accepted_users()[before:].count("ada") >= 4, "its log says so", seen=server.log)
    assert {request.credential for request in report.requests} == {"basic"}
    pair = f"{server.user}:{server.password}".encode()
    for secret in (server.password.encode(), base64.b64encode(pair), server.password.encode().hex().encode()):
        assert secret not in report.sent
        assert secret not in report.given
        assert secret not in report.printed.encode()


def test_a_wrong_password_is_reported(server: RadicaleServer, program: Path) -> None:
    """The error has the status, and what to check."""
    failed = host_for(server, program, password="wrong-wrong").call("list_calendars").failure
    assert failed.failure_class == "external_api_error"
    assert (
        "did not accept the user name and password (401); store another password with `aileron secret set NAME`"
        in failed.message
    )
    assert failed.details == {"status": 401}


def test_the_connector_works_over_tls(tmp_path: Path, program: Path) -> None:
    """This is the usual case: hrefs are resolved against an https address."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert.pem", append=True)
    with RadicaleServer(tmp_path / "radicale", tls=(tmp_path / "cert.pem", tmp_path / "key.pem")) as server:
        server.make_calendar("work", "Work")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        granted = GrantedHost("127.0.0.1", server.port, False)
        host = PlainHost(program, hosts=[granted], basic=(server.user, server.password), tls=trusting)
        created = host.call("create_event", title="T", start_time="2026-03-30", end_time="2026-03-31").output["event"]
        assert created["calendar"] == "Work"
        assert {request.url.partition("/")[0] for request in host.call("list_events").requests} == {"https:"}


def test_an_unreachable_server_is_a_network_error(program: Path) -> None:
    """The error is the host's, and not one of the connector's own."""
    granted = GrantedHost("127.0.0.1", 1, True)
    assert PlainHost(program, hosts=[granted]).call("list_calendars").failure.failure_class == "network_error"


def test_a_connector_without_a_host_says_how_to_build_it(program: Path) -> None:
    """The connector is for exactly one server."""
    failed = PlainHost(program, hosts=[]).call("list_calendars").failure
    assert "aileron connector build --host NAME:PORT" in failed.message


# Servers that lie


MULTISTATUS = (
    '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">{}</D:multistatus>'
)
PRINCIPAL = "<D:current-user-principal><D:href>{}</D:href></D:current-user-principal>"
HOME = "<C:calendar-home-set><D:href>/home/</D:href></C:calendar-home-set>"
CALENDAR = "<D:resourcetype><D:collection/><C:calendar/></D:resourcetype><D:displayname>Cal</D:displayname>"


def found(href: str, properties: str, status: str = "HTTP/1.1 200 OK") -> str:
    """Return a multistatus with one response."""
    inside = f"<D:prop>{properties}</D:prop><D:status>{status}</D:status>"
    return MULTISTATUS.format(f"<D:response><D:href>{href}</D:href><D:propstat>{inside}</D:propstat></D:response>")


HONEST: dict[tuple[str, str], tuple[int, str]] = {
    ("PROPFIND", "/.well-known/caldav"): (404, ""),
    ("PROPFIND", "/"): (207, found("/", PRINCIPAL.format("/me/"))),
    ("PROPFIND", "/me/"): (207, found("/me/", HOME)),
    ("PROPFIND", "/home/"): (207, found("/home/cal/", CALENDAR)),
    ("REPORT", "/home/cal/"): (207, MULTISTATUS.format("")),
}


@contextmanager
def lying_server(answers: dict[tuple[str, str], tuple[int, str]]) -> Iterator[GrantedHost]:
    """Run a server with these answers to method and path; a body that begins with `Location:` is that header."""

    def script(seen: Seen) -> bytes:
        status, body = answers.get((seen.method, seen.target), (404, ""))
        if body.startswith("Location:"):
            return answer(b"", body, status=f"{status} Moved")
        return answer(body.encode(), status=f"{status} Whatever")

    with Upstream(script) as upstream:
        yield GrantedHost("127.0.0.1", upstream.port, True)


def listing_from(program: Path, changed: dict[tuple[str, str], tuple[int, str]]) -> Report:
    """Return the report of list_events for a server that is honest but for these answers."""
    with lying_server({**HONEST, **changed}) as granted:
        return PlainHost(program, hosts=[granted], basic=("u", "password-password")).call("list_events")


def test_a_minimal_honest_server_is_understood(program: Path) -> None:
    """This is the positive control of the lies below."""
    assert listing_from(program, {}).output["events"] == []


BOMB = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>' + found(
    "/", PRINCIPAL.format("&b;")
).removeprefix('<?xml version="1.0"?>')
LIES: dict[str, tuple[dict[tuple[str, str], tuple[int, str]], str]] = {
    "a redirect to another host": (
        {("PROPFIND", "/.well-known/caldav"): (301, "Location:https://evil.example/dav/")},
        "points to 'https://evil.example/dav/', which is not on http://127.0.0.1",
    ),
    "a redirect without a scheme": (
        {("PROPFIND", "/.well-known/caldav"): (301, "Location://evil.example/dav/")},
        "points to '//evil.example/dav/'",
    ),
    "a redirect to a host that begins alike": (
        {("PROPFIND", "/.well-known/caldav"): (301, "Location:http://127.0.0.1:1.evil.example/")},
        "which is not on",
    ),
    "redirects without end": (
        {("PROPFIND", "/.well-known/caldav"): (301, "Location:/.well-known/caldav")},
        "redirects more than 3 times",
    ),
    "a principal elsewhere": (
        {("PROPFIND", "/"): (207, found("/", PRINCIPAL.format("https://evil.example/me/")))},
        "points to 'https://evil.example/me/'",
    ),
    "a calendar elsewhere": (
        {("PROPFIND", "/home/"): (207, found("http://evil.example/cal/", CALENDAR))},
        "points to 'http://evil.example/cal/'",
    ),
    "an event elsewhere": (
        {("REPORT", "/home/cal/"): (207, found("javascript:alert(1)", "<D:getetag>1</D:getetag>"))},
        "points to 'javascript:alert(1)'",
    ),
    "entities": ({("PROPFIND", "/"): (207, BOMB)}, "has a DOCTYPE"),
    "no XML": ({("PROPFIND", "/"): (207, "<html>")}, "is not XML"),
    "other XML": ({("PROPFIND", "/"): (207, "<a/>")}, "not a WebDAV multistatus"),
    "XML without end": ({("PROPFIND", "/"): (207, "<a>" * 40)}, "nested too deeply"),
    "nothing at all": ({("PROPFIND", "/"): (200, "hello")}, "does not answer as a CalDAV service"),
    "no home": ({("PROPFIND", "/me/"): (207, found("/me/", ""))}, "names no calendar-home-set"),
    "a refused property": (
        {("PROPFIND", "/me/"): (207, found("/me/", HOME, "HTTP/1.1 403 Forbidden"))},
        "names no calendar-home-set",
    ),
    "a forbidden listing": ({("REPORT", "/home/cal/"): (403, "")}, "does not allow it to this account (403)"),
    "a broken server": (
        {("REPORT", "/home/cal/"): (503, "")},
        "cannot read the calendar 'Cal': the server answered 503",
    ),
}


@pytest.mark.parametrize(("changed", "words"), LIES.values(), ids=LIES)
def test_each_false_answer_of_a_caldav_server_is_an_error_with_its_own_reason(
    program: Path, changed: dict[tuple[str, str], tuple[int, str]], words: str
) -> None:
    """Each lie has its own reason, and no request ever leaves the granted server."""
    report = listing_from(program, changed)
    assert report.failure.failure_class == "external_api_error"
    assert words in report.failure.message
    assert {request.url.split("/")[2] for request in report.requests} == {report.requests[0].url.split("/")[2]}


def test_a_redirect_on_the_same_server_is_followed(program: Path) -> None:
    """This is the usual answer of a well-known address, as a path or as a whole URL."""
    for location in ("/", "http://127.0.0.1:{port}/"):
        answers = dict(HONEST)
        with lying_server(answers) as granted:
            answers["PROPFIND", "/.well-known/caldav"] = (301, "Location:" + location.format(port=granted.port))
            report = PlainHost(program, hosts=[granted]).call("list_events")
        assert report.output["events"] == []


def test_one_broken_event_does_not_hide_the_others(program: Path) -> None:
    """The broken event is left out, and the log has a warning."""
    good = calendar_object("UID:g\nSUMMARY:Good\nDTSTART:20260330T070000Z")
    answers = "".join(
        f"<D:response><D:href>/home/cal/{name}.ics</D:href><D:propstat><D:prop><C:calendar-data>{text}</C:calendar-data>"
        "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for name, text in (("bad", "BEGIN:VCALENDAR"), ("good", good))
    )
    report = listing_from(program, {("REPORT", "/home/cal/"): (207, MULTISTATUS.format(answers))})
    assert titles(report) == ["Good"]
    [warning] = report.told
    assert isinstance(warning, Log)
    assert (warning.level, warning.fields["href"]) == ("warning", "/home/cal/bad.ics")


def test_a_recurring_event_that_the_server_does_not_expand_is_returned_with_its_rule(program: Path) -> None:
    """The event is the first instance, marked with its rule: never silently the wrong date."""
    data = calendar_object("UID:w\nSUMMARY:W\nDTSTART:20200106T070000Z\nRRULE:FREQ=WEEKLY")
    answer = found("/home/cal/w.ics", f"<C:calendar-data>{data}</C:calendar-data>")
    [event] = listing_from(program, {("REPORT", "/home/cal/"): (207, answer)}).output["events"]
    assert event["recurrence"] == "FREQ=WEEKLY"
