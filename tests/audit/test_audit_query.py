"""Reading the record: filters as text, states in the words of the API, and nothing of another session."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from aileron.audit import query
from aileron.audit.events import VaultCreated
from aileron.audit.log import Audit
from aileron.ledger import EventFilter, Ledger
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Failed, Pending, Succeeded
from aileron.model.plan import Plan
from tests.audit.conftest import an_invocation
from tests.support.answers import as_json

pytestmark = pytest.mark.anyio

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, EventFilter()),
        ({"run": "run-1", "session": "s", "action": "a"}, EventFilter(run="run-1", session="s", action="a")),
        (
            {"connector": "github://a/b", "type": "run.started"},
            EventFilter(connector="github://a/b", type="run.started"),
        ),
        ({"class": "busy"}, EventFilter(failure_class="busy")),
        ({"since": "90s"}, EventFilter(since_us=NOW_US - 90_000_000)),
        ({"until": "1w"}, EventFilter(until_us=NOW_US - 604_800_000_000)),
        ({"since": "2027-01-15T08:00:00Z"}, EventFilter(since_us=NOW_US)),
        ({"since": "2027-01-15T09:00:00.000001+01:00"}, EventFilter(since_us=NOW_US + 1)),
        ({"after": "0", "before": "7"}, EventFilter(after=0, before=7)),
        ({"limit": "1000", "order": "oldest"}, EventFilter(limit=1000, oldest_first=True)),
    ],
)
def test_a_filter_is_parsed_from_text(parameters: dict[str, str], wanted: EventFilter) -> None:
    """The values are names, durations, times with a zone, and numbers."""
    assert query.event_filter(parameters, NOW_US) == wanted


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sesion": "x"}, "did you mean 'session'"),
        ({"zzz": "x"}, "known are action, after"),
        ({"type": "run.start"}, "did you mean 'run.started'"),
        ({"class": "networkerror"}, "did you mean 'network_error'"),
        ({"since": "yesterday"}, "is neither a duration"),
        ({"since": "2027-01-15T08:00:00"}, "with a zone"),
        ({"until": "-5m"}, "is neither a duration"),
        ({"since": "\u0661m"}, "is neither a duration"),
        ({"limit": "0"}, "from 1 to 1000"),
        ({"limit": "1001"}, "from 1 to 1000"),
        ({"after": "-1"}, "from 0"),
        ({"before": "\u0661"}, "from 0"),
        ({"after": "9" * 5000}, "from 0"),
        ({"order": "random"}, "newest nor oldest"),
    ],
)
def test_an_invalid_filter_is_an_error(parameters: dict[str, str], words: str) -> None:
    """A filter that was ignored would return rows that nobody asked about."""
    with pytest.raises(AileronError, match=words) as caught:
        query.event_filter(parameters, NOW_US)

    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST


async def test_events_are_listed_newest_first_with_readable_times(audit: Audit, ledger: Ledger) -> None:
    """Number, time and type come first; times are text; the hash is there for comparison."""
    await audit.note(VaultCreated())

    newest, genesis = await query.events(ledger, {})

    assert list(newest)[:3] == ["seq", "at", "type"]
    assert newest["seq"] == 2
    assert str(newest["at"]).startswith("2027-01-15T08:00:00.0000")
    assert len(str(newest["hash"])) == 64
    assert genesis["type"] == "genesis"
    assert [row["seq"] for row in await query.events(ledger, {"order": "oldest", "after": "1"})] == [2]


async def test_a_failed_run_is_found_by_each_of_its_facts(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger
) -> None:
    """The row that ends a run has session, action, connector and failure class together."""
    run_id = await audit.requested(plan, asked, layers=["seccomp"])
    failure = Failure(failure_class=FailureClass.NETWORK_ERROR, message="no", boundary=Boundary.EXTERNAL)
    await audit.finished(run_id, Failed(run_id=run_id, failure=failure), 1)
    asked_for = {
        "session": "local",
        "action": "send-email",
        "connector": "github://acme/mail",
        "class": "network_error",
        "since": "1h",
    }

    (row,) = await query.events(ledger, asked_for)

    assert (row["run"], row["type"]) == (run_id, "run.finished")
    assert await query.events(ledger, {**asked_for, "class": "busy"}) == []


async def test_a_run_is_shown_with_all_its_events(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger, pending: Pending
) -> None:
    """Events are oldest first, with the expiry as text; more than one page of them is complete too."""
    shown = as_json(await query.run_with_events(ledger, pending.run_id))
    assert [row["type"] for row in shown["events"]] == ["run.requested", "approval.requested"]
    assert shown["events"][1]["expires_at"] == "2027-01-15T08:15:00.000000Z"
    assert shown["status"] == "pending_approval"

    run_id = await audit.requested(plan, asked, layers=["seccomp"])

    def many(tx: Any) -> None:
        for number in range(2500):
            tx.append({"type": "connector.audit", "run": run_id, "number": number})

    await ledger.commit(many)
    shown = as_json(await query.run_with_events(ledger, run_id))
    assert len(shown["events"]) == 2502
    assert "truncated" not in shown


async def test_a_refused_request_is_shown_without_a_status(audit: Audit, ledger: Ledger, asked: Invocation) -> None:
    """The request never became a run."""
    failure = Failure(failure_class=FailureClass.NOT_FOUND, message="no such action", boundary=Boundary.USER)
    audit_id = await audit.refused(asked, failure)

    shown = as_json(await query.run_with_events(ledger, audit_id))

    assert shown.keys() == {"audit_id", "events"}


async def test_a_runs_state_is_reported_with_the_keys_of_the_api(
    audit: Audit, plan: Plan, asked: Invocation, ledger: Ledger
) -> None:
    """A running run has no outcome, a completed one its result, and a failed one its error, with a denied capability at
    its top level.
    """
    first = await audit.requested(plan, asked, layers=["seccomp"])
    assert as_json(await query.run_state(ledger, first, "local")) == {
        "status": "running",
        "audit_id": first,
        "action": "send-email",
    }
    await audit.finished(first, Succeeded(run_id=first, result=[1, 2.5]), 1)
    assert (as_json(await query.run_state(ledger, first, None)))["result"] == [1, 2.5]

    second = await audit.requested(plan, asked, layers=["seccomp"])
    details = {"connector": "c", "requested": "network:x:443", "granted": ["network:y:443"], "reason": "host"}
    failure = Failure(
        failure_class=FailureClass.CAPABILITY_DENIED, message="no", boundary=Boundary.RUNTIME, details=details
    )
    await audit.finished(second, Failed(run_id=second, failure=failure), 1)
    error = msgspec.to_builtins((as_json(await query.run_state(ledger, second, None)))["error"])
    assert (error["class"], error["audit_id"], error["granted"]) == ("capability_denied", second, ["network:y:443"])
    assert error["details"] == {"reason": "host"}


async def test_questions_are_listed_with_their_subjects(ledger: Ledger, pending: Pending, plan: Plan) -> None:
    """The question that expires first comes first; a single question also has its plan."""
    (listed,) = as_json(await query.open_approvals(ledger))

    assert listed.pop("created_at") < listed["expires_at"]
    assert listed == {
        "approval_id": pending.approval_id,
        "kind": "action",
        "name": "send-email",
        "status": "pending_approval",
        "digest": plan.digest,
        "expires_at": "2027-01-15T08:15:00.000000Z",
        "audit_id": pending.run_id,
        "action": "send-email",
        "session": "local",
    }
    assert Plan.from_json((as_json(await query.approval(ledger, pending.approval_id)))["plan"]) == plan


async def test_a_session_cannot_see_runs_and_questions_of_another(
    audit: Audit, plan: Plan, ledger: Ledger, pending: Pending
) -> None:
    """They are not found, exactly like ones that do not exist."""
    other = await audit.requested(plan, an_invocation(session="other"), layers=["seccomp"])

    async def words(look: Awaitable[Any]) -> str:
        with pytest.raises(AileronError) as caught:
            await look
        assert caught.value.failure.failure_class is FailureClass.NOT_FOUND
        return str(caught.value)

    assert (as_json(await query.run_state(ledger, other, "other")))["status"] == "running"
    assert (as_json(await query.approval_result(ledger, pending.approval_id, "local")))["status"] == "pending_approval"
    absent = await words(query.run_state(ledger, "run-none", "local"))
    assert await words(query.run_state(ledger, other, "local")) == absent.replace("run-none", other)
    await words(query.approval_result(ledger, pending.approval_id, "other"))
    await words(query.approval_result(ledger, "act-none", "local"))
    await words(query.run_with_events(ledger, "run-none"))
    await words(query.approval(ledger, "act-none"))
