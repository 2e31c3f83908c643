"""`aileron sessions show` for an agent in a cell: the hosts that it connected to, one a line."""

from __future__ import annotations

from typing import Any

from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon

ID = "ses-20261127T120000-0123456789abcdef0123"
SESSION: dict[str, Any] = {
    "id": ID,
    "agent": "claude",
    "folder": "/srv/work",
    "status": "open",
    "started_at": "2026-11-27T12:00:00.000000Z",
    "expires_at": "2026-11-28T12:00:00.000000Z",
    "ended_at": None,
    "reason": None,
    "exit_code": None,
    "runs": 0,
    "pid": 1,
    "cell": {"hosts": ["a.test"], "ask": False},
}
REACHED = {"host": "a.test:443", "connections": 3, "not_ended": 1, "bytes_up": 1023, "bytes_down": 3 << 20}
ONCE = {"host": "b.test:443", "connections": 1, "not_ended": 0, "bytes_up": 1024, "bytes_down": 5 << 50}
REFUSED = {"host": "c\u202e.test:443", "reason": "host_not_listed", "count": 12}


def _shown(fake: FakeDaemon, aileron: Command, **connections: Any) -> dict[str, str]:
    """Return the facts of the session by their names."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": [SESSION]}))
    fake.script("GET", f"/v1/sessions/{ID}", (200, {**SESSION, "connections": connections or None}))
    said = aileron("sessions", "show", ID).exits(0)
    return dict(line.split("\t", 1) for line in said.out.splitlines())


def test_sessions_show_lists_the_hosts_that_an_agent_connected_to(fake: FakeDaemon, aileron: Command) -> None:
    """A host has connections, those without an end, and bytes in readable units; in refusals hidden characters are escaped."""
    facts = _shown(
        fake, aileron, reached=[REACHED, ONCE], reached_more=4, refused=[REFUSED], refused_more=2, is_whole=False
    )
    assert facts["reached"].split("\t") == [
        "a.test:443: 3 connections, 1 without an end, 1023 B up, 3.0 MiB down",
        "b.test:443: 1 connection, 1.0 KiB up, 5120.0 TiB down",
        "… and 4 more",
        "older connections are not counted; see `aileron audit list`",
    ]
    assert facts["refused"].split("\t") == ["c\\u202e.test:443: 12 (host_not_listed)", "… and 2 more"]


def test_sessions_show_says_that_a_cell_made_no_connections(fake: FakeDaemon, aileron: Command) -> None:
    """A session without a cell has no such lines."""
    facts = _shown(fake, aileron, reached=[], reached_more=0, refused=[], refused_more=0, is_whole=True)
    assert (facts["reached"], facts["refused"]) == ("none", "none")
    assert not {"reached", "refused"} & _shown(fake, aileron).keys()


def test_sessions_show_with_json_includes_the_sessions_connections(fake: FakeDaemon, aileron: Command) -> None:
    """The option is `--json`."""
    connections = {"reached": [REACHED], "reached_more": 0, "refused": [REFUSED], "refused_more": 0, "is_whole": True}
    fake.script("GET", "/v1/sessions", (200, {"sessions": [SESSION]}))
    fake.script("GET", f"/v1/sessions/{ID}", (200, {**SESSION, "connections": connections}))
    assert aileron("sessions", "show", ID, "--json").json["connections"] == connections


def test_a_session_can_be_named_by_the_end_of_its_id(fake: FakeDaemon, aileron: Command) -> None:
    """A terminal shows the short form, a pipe the whole id; every command that takes an id takes its end."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": [SESSION]}))
    fake.script("GET", f"/v1/sessions/{ID}", (200, SESSION))
    fake.script("POST", f"/v1/sessions/{ID}/end", (200, SESSION))
    listed, piped = aileron.at_terminal("sessions", "list", NO_COLOR="1").out, aileron("sessions", "list").out
    assert (ID in listed, ID[-8:] in listed, ID in piped) == (False, True, True)

    for words in (("sessions", "show", ID[-8:]), ("sessions", "end", ID[-8:]), ("audit", "list", "--session", ID[-8:])):
        aileron.at_terminal(*words, NO_COLOR="1").exits(0)
    assert fake.seen[-1].query["session"] == ID
