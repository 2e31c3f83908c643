"""Cells: a session that is one process's, what its record and its answers say, and doors that nobody else goes through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attendant import Attendant
from tests.support.home import DaemonHome, asking_home

pytestmark = pytest.mark.jail
HOSTS = ["example.com", "*.example.org:8443"]


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """A home with an action that runs at once and one that asks."""
    with asking_home() as home:
        yield home


@pytest.fixture
def attendant(home: DaemonHome) -> Iterator[Attendant]:
    """A process that may open a cell's session."""
    with Attendant(home.path) as attendant:
        yield attendant


def started(home: DaemonHome, session: str) -> dict[str, Any]:
    """What the record has of its beginning."""
    events = home.must("GET", "/v1/audit?type=session.started&limit=1000")["events"]
    (found,) = [one for one in events if one["session"] == session]
    return dict(found)


# The session


def test_a_session_says_that_it_is_a_cell_and_which_hosts_it_reaches(home: DaemonHome, attendant: Attendant) -> None:
    """In its answer, in the list and on record, each host in its one spelling; a session beside it says that it is none."""
    opened = attendant.open(hosts=[*HOSTS, "example.com:443"], ask=True)
    other = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/srv/work"})

    assert opened["cell"] == {"hosts": HOSTS, "ask": True}
    listed = {one["id"]: one["cell"] for one in home.must("GET", "/v1/sessions")["sessions"]}
    assert (listed[opened["id"]], listed[other["id"]]) == ({"hosts": HOSTS, "ask": True}, None)
    on_record = started(home, opened["id"])
    assert (on_record["cell_hosts"], on_record["cell_asks"], on_record["pid"]) == (HOSTS, True, attendant.pid)
    assert "cell_hosts" not in started(home, other["id"])


def test_a_cell_without_hosts_is_one(home: DaemonHome, attendant: Attendant) -> None:
    """It reaches nothing, which is on record as that and not as no cell."""
    opened = attendant.open()

    assert home.must("GET", f"/v1/sessions/{opened['id']}")["cell"] == {"hosts": [], "ask": False}
    assert started(home, opened["id"])["cell_hosts"] == []


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ({"hosts": ["*.com"]}, "cell.hosts: '*.com' is too wide"),
        ({"hosts": ["192.0.2.1"]}, "cell.hosts: '192.0.2.1' is an address"),
        ({"hosts": [f"a{number}.com" for number in range(129)]}, "cell.hosts: 129 hosts; at most 128"),
        ({"hosts": [], "sees": "everything"}, "unknown field `sees`"),
    ],
    ids=["wide", "address", "many", "unknown"],
)
def test_hosts_that_are_none_open_no_session(attendant: Attendant, cell: dict[str, Any], problem: str) -> None:
    """The refusal says which and why; the process can open one with hosts that are some."""
    refused = attendant.open_with(cell=cell)

    assert refused.refusal == (400, "invalid_request")
    assert problem in refused.message
    assert attendant.open(hosts=HOSTS)["status"] == "open"


def test_a_cell_is_of_the_process_that_opens_it(home: DaemonHome, attendant: Attendant) -> None:
    """Not of none, and not of another, its child included: a session without a cell may name another's process."""
    for facts in ({"pid": None}, {"pid": 1}):
        refused = attendant.open_with(cell={}, **facts)
        assert refused.refusal == (400, "invalid_request")
        assert "a cell is of the process that opens its session" in refused.message
    body = {"agent": "claude", "folder": "/srv/work", "pid": attendant.pid}
    by_child = attendant.ask("POST", "/v1/sessions", {**body, "cell": {}}, at="operator.sock", by="child")
    assert by_child.refusal == (400, "invalid_request")
    assert home.must("POST", "/v1/sessions", body)["cell"] is None


def test_a_process_has_one_cell_at_a_time(home: DaemonHome, attendant: Attendant) -> None:
    """A second is refused with the way out, which works."""
    first = attendant.open()

    refused = attendant.open_with(cell={})

    assert refused.refusal == (400, "invalid_request")
    assert f"`aileron sessions end {first['id']}`" in refused.message
    home.must("POST", f"/v1/sessions/{first['id']}/end", {})
    assert attendant.open()["status"] == "open"
