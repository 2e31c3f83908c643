"""Kill -9 of the supervisor at every ledger commit and frame boundary of a run with one effect: the record is right.

At each point, no effect lacks its durable `started` and `egress.sending`, none happens twice, and no caller is told that a
run completed that is not on record. A run that began is `unknown`, or over if its outcome was durable. The chain verifies, no
jail is left, and the same call is not repeated unasked if the first one had sent anything.
"""

from __future__ import annotations

import psutil
import pytest

from aileron.client import DaemonUnreachable
from tests.support.crashing_daemon import crashing_daemon
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

# One run: commits are requested+started, egress.sending, egress.finished+run.finished. Frames out: invoke, head, body, end;
# frames in: request, result, end of stream.
CASES = [
    *((point, count) for point in ("before_commit", "after_commit") for count in (1, 2, 3)),
    *((point, count) for point in ("before_send", "after_send") for count in (1, 2, 3, 4)),
    # A request and the result. The end behind them is not always read: a jail that has left needs none (ADR 50).
    *(("after_receive", count) for count in (1, 2)),
]
NOTHING_DURABLE = {("before_commit", 1)}
MAY_BE_OVER = {("after_commit", 3)}
"""Points at which the outcome is durable, unless the run took so long that the end of its request was written alone (ADR 49)."""


@pytest.mark.abuse_case("L5")
@pytest.mark.parametrize(("point", "count"), CASES)
def test_the_audit_trail_is_correct_after_a_kill_at_any_step(point: str, count: int) -> None:
    """The trail has lost, repeated, omitted or guessed no effect."""
    with CountingServer() as upstream, probed_home(upstream.port) as home:
        home.add_probe_action("effect")
        home.stop()
        daemon = crashing_daemon(home.path, point, count)
        home.unlock()
        below = psutil.Process(daemon.pid).children(recursive=True)
        with pytest.raises((DaemonUnreachable, OSError)):
            home.operator.ask("POST", "/v1/actions/effect/run", {"args": {}})
        assert daemon.wait(10) == -9
        _, left = psutil.wait_procs(below, timeout=10)
        assert below, "a template was there"
        assert not left, "jails die with the supervisor"

        events = home.must("GET", "/v1/audit?order=oldest&limit=1000")["events"]

        runs = {event["run"] for event in events if event["type"] == "run.requested"}
        over = {event["run"] for event in events if event["type"] == "run.finished"}
        began = {event["run"] for event in events if event["type"] == "run.started"}
        sent = [event for event in events if event["type"] == "egress.sending"]
        assert upstream.effects <= 1, "doubled"
        assert upstream.effects <= len(sent), "an effect without its durable intent"
        assert began == runs, "an ungated run is requested and started in one commit"
        if (point, count) in NOTHING_DURABLE:
            assert not runs
        else:
            (run_id,) = runs
            assert not over or (point, count) in MAY_BE_OVER
            expected = "completed" if over else "unknown"
            assert home.must("GET", f"/v1/runs/{run_id}")["status"] == expected
        verified = home.must("GET", "/v1/audit/verify")
        assert verified["ok"], verified
        home.unlock()
        if runs and sent and expected == "unknown":
            refused = home.run("effect")
            assert (refused.status, refused.body["error"]["details"]["run_id"]) == (500, run_id), "not twice unasked"
            asked = {"args": {}, "again": run_id}
            assert home.ask("POST", "/v1/actions/effect/run", asked).status == 200, "asked for by its name it runs"
        assert home.run("effect").status == 200, "the next run works"
