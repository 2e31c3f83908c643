"""Services that come with Aileron: added whole with one question, kept apart by account, listed, and removed without a trace."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-caldav"
EVERY = ["caldav-create-event", "caldav-delete-event", "caldav-list-events"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadicaleServer]:
    """Start a calendar server with a password and an event in three hours."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as started:
        calendar = started.make_calendar("work", "Work")
        start = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=3)
        event = (
            "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\nBEGIN:VEVENT\r\nUID:one\r\n"
            f"DTSTAMP:{start:%Y%m%dT%H%M%SZ}\r\nDTSTART:{start:%Y%m%dT%H%M%SZ}\r\nDURATION:PT1H\r\nSUMMARY:Lunch\r\n"
            "END:VEVENT\r\nEND:VCALENDAR\r\n"
        )
        started.put(f"{calendar.strip('/').split('/', 1)[1]}/one.ics", event)
        yield started


@pytest.fixture
def home(server: RadicaleServer) -> Iterator[DaemonHome]:
    """Provide a home that may reach the server, with its password stored and nothing installed."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        made.unlock()
        made.store("caldav-me", server.password.encode())
        yield made


def calendar(server: RadicaleServer, **changes: Any) -> dict[str, Any]:
    """Return the request that adds the calendar server with all of its actions."""
    body: dict[str, Any] = {
        "service": "caldav",
        "actions": EVERY,
        "hosts": [f"localhost:{server.port}"],
        "credentials": [{"secret": "caldav-me", "username": server.user}],
    }
    return body | changes


def listed(home: DaemonHome) -> dict[str, dict[str, Any]]:
    """Return the accounts that are connected, by name."""
    return {entry["name"]: entry for entry in home.must("GET", "/v1/services")["services"]}


def test_a_service_is_added_with_its_connector_actions_and_credential(home: DaemonHome, server: RadicaleServer) -> None:
    """A run works after one request; the list says who it is connected as, and when it was last used."""
    added = home.must("POST", "/v1/services", calendar(server))
    before = listed(home)["caldav"]
    ran = home.run("caldav-list-events", {"days": 1})
    entry = listed(home)["caldav"]

    assert [action["name"] for action in added["actions"]] == EVERY
    assert [binding["name"] for binding in added["bindings"]] == ["basic/caldav/me"]
    assert added["connectors"][0]["signature"] == "came with Aileron"
    assert ran.status == 200, ran.body
    assert "Lunch" in str(ran.body["result"])
    assert before["last_used_at"] is None
    assert entry["last_used_at"] is not None
    assert entry | {"last_used_at": None} == {
        "name": "caldav",
        "service": "caldav",
        "identity": "me",
        "connector": f"{CONNECTOR}@0.1.0",
        "hosts": [f"localhost:{server.port}"],
        "bindings": ["basic/caldav/me"],
        "account": server.user,
        "actions": EVERY,
        "last_used_at": None,
        "state": "ready",
        "problem": None,
        "fix": None,
        "newer": False,
    }


def test_a_service_is_added_with_one_signature(home: DaemonHome, server: RadicaleServer, approver: Approver) -> None:
    """A single question covers everything, and nothing is installed or bound before it is approved."""
    approver.appoint(home)

    asked = home.ask("POST", "/v1/services", calendar(server))
    before = listed(home), home.must("GET", "/v1/bindings")["bindings"]
    shown = approver.shown(home, asked.body["approval_id"])
    settled = approver.decide(home, asked.body["approval_id"]).body

    assert (asked.status, asked.body["kind"]) == (202, "installation")
    assert before == ({}, [])
    assert [len(shown["subject"][part]) for part in ("connectors", "actions", "bindings")] == [1, 3, 1]
    assert settled["status"] == "completed", settled
    assert home.run("caldav-list-events", {"days": 1}).status == 200
    assert home.must("GET", "/v1/action-approvals")["approvals"] == []


def test_a_denied_service_leaves_nothing_behind(home: DaemonHome, server: RadicaleServer, approver: Approver) -> None:
    """The connector that was built for the question is deleted too."""
    approver.appoint(home)
    asked = home.ask("POST", "/v1/services", calendar(server))

    approver.decide(home, asked.body["approval_id"], "deny")

    assert listed(home) == {}
    assert home.must("GET", "/v1/actions")["actions"] == []
    assert list((home.path / "store" / "fetched").iterdir()) == []


def test_a_changed_connector_is_not_installed_after_the_approval(
    home: DaemonHome, server: RadicaleServer, approver: Approver
) -> None:
    """Another process replaces the built connector while the question waits: nothing of the service is installed."""
    approver.appoint(home)
    asked = home.ask("POST", "/v1/services", calendar(server))
    other = home.ask("POST", "/v1/services", calendar(server, identity="work", hosts=["calendar.example.com:443"]))
    assert other.status == 202, other.body
    kept = {path.stat().st_mtime_ns: path for path in (home.path / "store" / "fetched").iterdir()}
    first, second = (kept[at] for at in sorted(kept))
    first.write_bytes(second.read_bytes())

    settled = approver.decide(home, asked.body["approval_id"]).body

    assert (settled["status"], settled["error"]["class"]) == ("failed", "hash_mismatch")
    assert listed(home) == {}


def test_two_accounts_of_a_service_do_not_collide(home: DaemonHome, server: RadicaleServer) -> None:
    """The second one has actions, a connector and a binding of its own, and a run of either needs no choice."""
    home.must("POST", "/v1/services", calendar(server))
    again = home.ask("POST", "/v1/services", calendar(server))
    home.must("POST", "/v1/services", calendar(server, identity="work", actions=["caldav-list-events"]))

    found = listed(home)
    runs = [home.run(name, {"days": 1}) for name in ("caldav-list-events", "work-caldav-list-events")]

    assert (again.status, "--as NAME" in again.body["error"]["message"]) == (400, True)
    assert {name: entry["connector"] for name, entry in found.items()} == {
        "caldav": f"{CONNECTOR}@0.1.0",
        "work-caldav": f"{CONNECTOR}/work@0.1.0",
    }
    assert found["work-caldav"]["actions"] == ["work-caldav-list-events"]
    assert [run.status for run in runs] == [200, 200]


def test_a_removed_service_leaves_no_action_secret_or_connector(home: DaemonHome, server: RadicaleServer) -> None:
    """The other account stays as it was, and the removed one can be added again."""
    home.must("POST", "/v1/services", calendar(server))
    home.must("POST", "/v1/services", calendar(server, identity="work", credentials=[]))
    unbound = listed(home)["work-caldav"]

    removed = home.must("DELETE", "/v1/services/caldav")
    missing = home.ask("DELETE", "/v1/services/caldav")
    left = listed(home)

    assert removed == {
        "removed": "caldav",
        "actions": EVERY,
        "bindings": ["basic/caldav/me"],
        "secrets": ["caldav-me"],
        "connectors": [f"{CONNECTOR}@0.1.0"],
        "at_provider": [],
    }
    assert missing.status == 404
    assert (unbound["state"], unbound["fix"]) == ("no_credential", f"aileron binding setup {CONNECTOR}/work")
    assert list(left) == ["work-caldav"]
    assert [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]
    assert sorted(path.name for path in (home.path / "actions").iterdir() if path.suffix == ".md") == [
        f"work-{name}.md" for name in EVERY
    ]
    home.store("caldav-me", server.password.encode())
    home.must("POST", "/v1/services", calendar(server))


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"service": "caldv"}, 404, "did you mean 'caldav'"),
        ({"actions": ["caldav-lst-events"]}, 404, "did you mean 'caldav-list-events'"),
        ({"hosts": []}, 400, "--host NAME:PORT"),
        ({"hosts": ["not a host"]}, 400, "not a host"),
        ({"identity": "Me!"}, 400, "is not lower-case letters"),
        ({"credentials": [{"secret": "nothing", "username": "me"}]}, 404, "no secret"),
        ({"credentials": [{"secret": "caldav-me"}]}, 422, "user name"),
    ],
)
def test_a_service_that_cannot_be_added_says_why_and_changes_nothing(
    home: DaemonHome, server: RadicaleServer, changes: dict[str, Any], status: int, message: str
) -> None:
    """Each is refused before anything is installed."""
    answer = home.ask("POST", "/v1/services", calendar(server, **changes))

    assert (answer.status, message in answer.body["error"]["message"]) == (status, True), answer.body
    assert listed(home) == {}
    assert home.must("GET", "/v1/connectors")["connectors"] == []
