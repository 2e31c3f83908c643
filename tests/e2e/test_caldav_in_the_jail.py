"""The CalDAV connector end to end: action, jail, egress, a real Radicale; plain by exception, and over TLS."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.radicale import RadicaleServer
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-caldav"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "caldav"
LIST = SOURCE / "actions" / "caldav-list-events" / "action.md"
CREATE = SOURCE / "actions" / "caldav-create-event" / "action.md"


@pytest.fixture(params=["plain", "tls"])
def server(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> Iterator[RadicaleServer]:
    """Start a calendar server with a password and an event in three hours."""
    tls = None
    if request.param == "tls":
        key, certificate = authority.server_files(tmp_path, "localhost")
        tls = (certificate, key)
    with RadicaleServer(tmp_path / "radicale", tls=tls) as started:
        calendar = started.make_calendar("work", "Work")
        started.put(f"{calendar.strip('/').split('/', 1)[1]}/one.ics", _event("Grüße an Mira"))
        yield started


@pytest.fixture
def home(server: RadicaleServer, authority: Authority) -> Iterator[DaemonHome]:
    """Provide a home with the connector granted that server, its password bound, and both actions added."""
    exception = f'private_plain = ["localhost:{server.port}"]\n'
    if server.url.startswith("https"):
        exception = f'private = ["localhost:{server.port}"]\nca_file = "{authority.ca_file}"\n'
    with daemon_home() as made:
        made.configure(f"[egress]\n{exception}")
        made.install(SOURCE, f"localhost:{server.port}")
        made.unlock(server.password.encode())
        made.bind(CONNECTOR, "basic/caldav/me", username=server.user)
        made.add_actions(LIST, CREATE)
        yield made


def _event(title: str) -> str:
    start = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=3)
    return (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\nBEGIN:VEVENT\r\nUID:one\r\n"
        f"DTSTAMP:{start:%Y%m%dT%H%M%SZ}\r\nDTSTART:{start:%Y%m%dT%H%M%SZ}\r\nDURATION:PT1H\r\nSUMMARY:{title}\r\n"
        "END:VEVENT\r\nEND:VCALENDAR\r\n"
    )


def test_events_are_listed_and_creating_one_waits_for_approval(home: DaemonHome, server: RadicaleServer) -> None:
    """Events are listed with their titles; the gated action is recorded and writes nothing; no response has the password."""
    listed = home.run("caldav-list-events", {"days": 1})
    before = server.requests()
    gated = home.run(
        "caldav-create-event",
        {"title": "No", "start_time": "2030-01-01T10:00:00Z", "end_time": "2030-01-01T11:00:00Z"},
    )

    assert listed.status == 200, listed.body
    assert "Grüße an Mira" in str(listed.body["result"])
    assert server.user in server.accepted_users()
    assert (gated.status, gated.body["status"]) == (202, "pending_approval")
    assert server.requests() == before
    assert server.password not in str(listed.body) + str(home.events(listed.body["audit_id"]))


def test_the_preview_shows_the_events_at_the_time_of_the_new_event(home: DaemonHome, server: RadicaleServer) -> None:
    """The preview reads the calendar with the password and shows it only to the approver; a free hour shows nothing."""
    home.unlock()
    approver = Approver.of(home)
    now = datetime.datetime.now(datetime.UTC)

    def seen(hours: float) -> dict[str, str | None]:
        start = now + datetime.timedelta(hours=hours)
        times = {
            "start_time": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "end_time": f"{start + datetime.timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
        }
        question = home.run("caldav-create-event", {"title": "Lunch", **times})
        preview = approver.preview(home, question.body["approval_id"])
        assert preview["fields"] is not None, preview
        return {line["label"]: line["value"] for line in preview["fields"]}

    taken, free = seen(3.25), seen(8)

    assert (taken["At that time"], taken["And"], taken["More of them"]) == ("Grüße an Mira", None, "0")
    assert set(free.values()) == {None, "0"}
    assert "Lunch" not in str(home.run("caldav-list-events", {"days": 2}).body)


def test_a_wrong_password_is_reported_as_a_failure_of_the_service(home: DaemonHome, server: RadicaleServer) -> None:
    """A 401 of the server is external_api_error with its status, not a failure of the supervisor."""
    home.unlock()
    home.store("pw", b"wrong-wrong")

    answer = home.run("caldav-list-events", {"days": 1})

    assert (answer.status, answer.body["error"]["class"]) == (502, "external_api_error")
    assert answer.body["error"]["details"]["status"] == 401
    server.wait_for_log("Failed login attempt")  # its log is read beside us
