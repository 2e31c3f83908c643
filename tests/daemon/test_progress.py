"""Progress reports of a run, for those who watch it: with a real daemon and real jails."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from aileron.api.runs import Progress, RunState
from aileron.audit.watch import Watch
from aileron.daemon.http.agents import StatusWaiter
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus
from aileron.runs.progress import MAX_AMOUNT, MAX_MESSAGE, PERIOD_S, Board, Reported
from tests.support.home import DaemonHome, word
from tests.support.upstream_http import CountingServer

if TYPE_CHECKING:
    from aileron.daemon.runner import Runner
    from aileron.ledger.sqlite import Ledger

pytestmark = pytest.mark.jail
INPUTS = ("times:integer", "seconds:number", "message:string?", "path:string?")


def watched(
    home: DaemonHome, upstream: CountingServer, args: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the reports that a watcher of a run of `report` gets, and the final state; the run ends only after the
    first report.
    """
    seen: list[dict[str, Any]] = []
    with contextlib.ExitStack() as held:
        held.enter_context(upstream.holding())
        run = home.run("report", {**args, "path": "/held"}, wait=0)
        assert run.body["status"] == "running", run.body
        while True:
            last = seen[-1]["number"] if seen else 0
            asked_at = time.monotonic()
            state = home.must("GET", f"/v1/runs/{run.body['run_id']}?wait=10&progress={last}", wait_s=10)
            if state["status"] != "running":
                return seen, state
            if "progress" not in state:  # its jail has not started yet
                assert time.monotonic() - asked_at > 9, "woken for nothing"
                continue
            assert state["progress"]["number"] > last, "woken for nothing"
            seen.append(state["progress"])
            held.close()


def test_a_caller_that_watches_a_run_gets_its_progress_and_then_its_result(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """Each response has a later report than the one before; the last one is the result, without a report."""
    home.add_probe_action("report", *INPUTS)

    seen, state = watched(home, upstream, {"times": 4, "seconds": 1.0, "message": "reading"})

    assert seen
    assert [report["done"] for report in seen] == sorted({report["done"] for report in seen})
    assert {(report["total"], report["message"]) for report in seen} == {(4, "reading")}
    assert (state["status"], state["result"], "progress" in state) == ("completed", 4, False)


def test_progress_is_limited_to_ten_responses_a_second(home: DaemonHome, upstream: CountingServer) -> None:
    """A connector reports without end: each response has the latest report, and none is recorded."""
    began = time.monotonic()
    seen, state = watched(home, upstream, {"times": 2000, "seconds": 1.0})

    assert 1 <= len(seen) <= (time.monotonic() - began) / PERIOD_S + 1
    assert seen[-1]["number"] > 10 * len(seen), "in between lay many that nobody was told of"
    assert [event["type"] for event in home.events(state["audit_id"])] == [
        "run.requested",
        "run.started",
        "egress.sending",
        "egress.finished",
        "run.finished",
    ]


@pytest.mark.abuse_case("T8")
def test_a_connectors_progress_message_is_truncated_and_escaped(home: DaemonHome, upstream: CountingServer) -> None:
    """Every surface can show the message as it is."""
    seen, _state = watched(home, upstream, {"times": 1, "seconds": 0.1, "message": "a\x1b[2J\u202e" + 500 * "b"})

    assert seen[0]["message"] == "a\\x1b[2J\\u202e" + (MAX_MESSAGE - 6) * "b"


def test_an_invalid_progress_amount_is_ignored() -> None:
    """JSON cannot express such a number, or a sum of two would be infinite; the largest valid one is passed on."""
    reported = Reported()
    for done in (math.nan, math.inf, -math.inf, 1.7e308, MAX_AMOUNT + 1, -MAX_AMOUNT - 1):
        reported.note(done, None, "no amount")
    assert (reported.number, reported.latest()) == (0, None)

    reported.note(MAX_AMOUNT, math.nan, "an amount")
    assert reported.latest() == Progress(number=1, done=MAX_AMOUNT, message="an amount")


@pytest.mark.anyio
async def test_an_unreadable_ledger_causes_the_same_error_with_and_without_progress() -> None:
    """The ledger becomes unreadable while a caller watches a run."""
    following = StatusWaiter(cast("Runner", None), Watch(), Board(), cast("Ledger", None))  # nothing is resumed here
    for seen in (None, 0):
        states = iter([RunState(status=RunStatus.RUNNING, audit_id="run-1")])

        async def look(states: Iterator[RunState] = states) -> RunState:
            for state in states:
                return state
            raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger cannot be read")

        with pytest.raises(AileronError, match="the ledger cannot be read"):
            await following.state(look, 1.0, seen)


@pytest.mark.anyio
async def test_a_watcher_gets_the_report_of_a_run_that_ends_while_its_state_is_read() -> None:
    """The ledger still has the run as running: without the report, the caller would be woken for nothing."""
    board = Board()
    following = StatusWaiter(cast("Runner", None), Watch(), board, cast("Ledger", None))  # nothing is resumed here
    with contextlib.ExitStack() as run:
        reported = run.enter_context(board.on("run-1"))
        reported.note(1, 4, None)
        looks = iter(range(3))

        async def look() -> RunState:
            if next(looks) == 2:  # the first is before the wait, the second in it, and the third after the report
                run.close()
            return RunState(status=RunStatus.RUNNING, audit_id="run-1")

        state = await following.state(look, 10.0, 0)

    assert next(looks, None) is None
    assert state.progress == Progress(number=1, done=1, total=4)


def test_a_request_with_a_malformed_progress_number_is_refused(home: DaemonHome) -> None:
    """A valid number gets `not_found` instead, because the run of this test does not exist."""
    assert [
        word(home.ask("GET", f"/v1/runs/nobody?progress={text}")) for text in ("x", "-1", "1e3", "%D9%A3", "0")
    ] == [
        *4 * ["invalid_request"],
        "not_found",
    ]
