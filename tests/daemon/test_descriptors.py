"""A daemon without a free descriptor waits and reports it, refuses what it cannot do, and recovers."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Iterator

import pytest

from tests.support.descriptors import at_most
from tests.support.home import DaemonHome
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_text, wait_until

pytestmark = pytest.mark.jail


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """Start a separate home, because the limit must hold for one test only."""
    with CountingServer() as upstream, probed_home(upstream.port) as made:
        made.add_probe_action("fetch", "path:string?")
        yield made


def test_spare_jails_are_ended_when_no_file_descriptor_is_free(home: DaemonHome) -> None:
    """The daemon keeps running: without a descriptor it cannot even check its spares."""
    pid, log = home.daemon_pid, home.path / "logs" / "daemon.log"
    assert pid is not None
    assert home.run("fetch").status == 200
    operator = str(home.path / "run" / "operator.sock")
    with contextlib.ExitStack() as held, at_most(pid, 64):

        def takes_one_more() -> bool:
            sock = held.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(operator)
            return "spares cannot be looked at" in log.read_text()

        wait_until(takes_one_more, "spares cannot be looked at", seen=log.read_text)
    assert home.must("GET", "/healthz")
    assert home.daemon_pid == pid
    assert home.run("fetch").status == 200


@pytest.mark.abuse_case("E34")
def test_callers_wait_while_no_file_descriptor_is_free_and_are_served_later(home: DaemonHome) -> None:
    """Other callers hold connections until no descriptor is left, and then leave. The log gets only a few lines."""
    pid, log = home.daemon_pid, home.path / "logs" / "daemon.log"
    assert pid is not None
    assert home.run("fetch").status == 200
    operator = str(home.path / "run" / "operator.sock")
    with at_most(pid, 64), contextlib.ExitStack() as held:
        for _caller in range(80):
            sock = held.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(operator)
        wait_text(log, "out of system resource")
        held.close()
        home.must("GET", "/healthz")

    assert home.run("fetch").status == 200
    assert log.read_text().count("out of system resource") <= 3


def test_sessions_survive_a_shortage_of_file_descriptors(home: DaemonHome) -> None:
    """Agents wait, the session stays open with its limits, and later callers are served."""
    pid, log = home.daemon_pid, home.path / "logs" / "daemon.log"
    assert pid is not None
    assert home.run("fetch").status == 200
    limited = {"agent": "claude", "folder": "/", "pid": os.getpid(), "only": ["other"]}
    session = home.must("POST", "/v1/sessions", limited)["id"]
    assert home.run("fetch").status == 404
    with contextlib.ExitStack() as held, at_most(pid, 64):

        def finds_none_free(says: str) -> bool:
            sock = held.enter_context(socket.socket(socket.AF_UNIX))
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # as many connections wait as the backlog holds
                sock.connect(str(home.path / "run" / "mcp.sock"))  # a silent connection stays open there
            return says in log.read_text()

        for says in ("no agent can be accepted", "sessions that are over may stay open"):
            wait_until(functools.partial(finds_none_free, says), says, seen=log.read_text)
    home.has_all_it_needs()
    assert home.daemon_pid == pid
    assert home.must("GET", f"/v1/sessions/{session}")["status"] == "open"
    assert home.run("fetch").status == 404


@pytest.mark.abuse_case("E34")
def test_a_run_without_a_free_file_descriptor_fails_and_is_recorded(home: DaemonHome) -> None:
    """The failure has a reason and an event; with enough descriptors the same run succeeds."""
    pid = home.daemon_pid
    assert pid is not None
    assert home.run("fetch").status == 200
    for descriptors in range(96, 0, -1):  # fewer each time, until a jail, or what is read before it, needs more
        with at_most(pid, descriptors):
            refused = home.run("fetch")
        if refused.status != 200:
            break
    assert refused.status in {500, 503}, refused.body
    assert refused.body["error"]["class"] in {"sandbox_unavailable", "internal_error"}
    assert "Too many open files" in refused.body["error"]["message"]
    first = next(event["type"] for event in home.events(refused.body["error"]["audit_id"]))
    assert first in {"run.requested", "run.refused"}

    assert home.run("fetch").status == 200
