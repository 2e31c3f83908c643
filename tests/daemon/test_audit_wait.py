"""A caller that waits for news of the audit trail is answered when there is a matching event, and not before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.home import DaemonHome
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jail


def _newest(home: DaemonHome) -> int:
    return int(home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"])


def test_a_wait_for_an_audit_event_ends_with_the_first_matching_event(home: DaemonHome) -> None:
    """An event of another type does not end the wait; one of the requested type does, long before the timeout."""
    home.add_probe_action("give_back", "text:string", name="told")
    after = _newest(home)
    path = f"/v1/audit?after={after}&type=run.finished&order=oldest&wait=60"

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(home.must, "GET", path, wait_s=60)
        assert home.must("GET", "/v1/audit?run=nothing-of-the-kind")["events"] == []
        run = home.run("told", {"text": "x"}).body["audit_id"]
        events = waiting.result(DEADLINE_S)["events"]

    assert [(event["type"], event["run"]) for event in events] == [("run.finished", run)]


def test_waiting_for_an_existing_event_returns_at_once(home: DaemonHome) -> None:
    """A wait for an event that never happens returns an empty list at its timeout."""
    with ThreadPoolExecutor() as pool:
        assert pool.submit(home.must, "GET", "/v1/audit?limit=1&wait=60", wait_s=60).result(DEADLINE_S)["events"]
    began = time.monotonic()
    assert home.must("GET", "/v1/audit?after=900000&wait=0.3", wait_s=1)["events"] == []
    assert time.monotonic() - began >= 0.3


def test_a_wait_parameter_that_is_not_a_number_is_refused(home: DaemonHome) -> None:
    """Every route with a `wait` parameter shares this check."""
    answer = home.ask("GET", "/v1/audit?wait=soon")

    assert (answer.status, answer.body["error"]["class"]) == (400, "invalid_request")
