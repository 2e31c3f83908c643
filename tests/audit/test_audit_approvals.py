"""Questions to a person: bound to a digest, used once, limited in time, and with one outcome in every race."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from aileron.audit import query
from aileron.audit.log import Audit
from aileron.audit.questions import MAX_OPEN_RUNS
from aileron.audit.verify import verify
from aileron.ledger import Ledger
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.outcome import Failed, Pending
from aileron.model.plan import Plan
from aileron.model.shares import PERSON
from tests.audit.conftest import START_S, Clock, an_invocation
from tests.support.answers import as_json

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("R4")]

Types = Callable[..., list[str]]
_SHARE = 400
"""Number of open questions that a session alone can have."""
_NEXT_SHARE = 134
"""Number that the next session can have then."""


async def refusal(attempt: Awaitable[Any]) -> tuple[FailureClass, dict[str, Any]]:
    """Return the failure class and the details of the refusal."""
    with pytest.raises(AileronError) as caught:
        await attempt
    return caught.value.failure.failure_class, dict(caught.value.failure.details)


async def test_a_gated_run_is_recorded_with_its_question_and_waits(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, facts: Callable[..., list[dict[str, Any]]]
) -> None:
    """Request, question and frozen plan are in one commit, and no step is started."""
    requested, question = facts(pending.run_id)

    assert requested["plan_digest"] == plan.digest
    assert question == {
        "type": "approval.requested",
        "run": pending.run_id,
        "approval": pending.approval_id,
        "kind": "action",
        "digest": plan.digest,
        "expires_at_us": int((START_S + 900) * 1_000_000),
        "name": "send-email",
    }
    assert pending.approval_id.startswith("act-20270115T080000-")
    frozen = await audit.frozen(pending.approval_id)
    assert (frozen.run_id, frozen.plan) == (pending.run_id, plan)
    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "pending_approval"


async def test_an_approved_plan_runs_once(audit: Audit, pending: Pending, plan: Plan, types: Types) -> None:
    """The first caller redeems the approval; a second one is told that the plan already runs."""
    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="console", reason="fine")
    await audit.redeem(pending.approval_id, plan.digest)

    assert await refusal(audit.redeem(pending.approval_id, plan.digest)) == (
        FailureClass.ALREADY_DECIDED,
        {"status": "running"},
    )
    await audit.started(pending.run_id, plan.steps[0], 1, ("seccomp",))
    assert types(pending.run_id)[2:] == ["approval.decided", "approval.redeemed", "run.started"]


async def test_a_denied_plan_does_not_run_and_the_reason_is_kept(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, types: Types
) -> None:
    """The caller gets the person's words."""
    await audit.decide(pending.approval_id, "deny", digest=plan.digest, surface="cli", reason="wrong address")

    assert await refusal(audit.redeem(pending.approval_id, plan.digest)) == (
        FailureClass.APPROVAL_DENIED,
        {"reason": "wrong address"},
    )
    result = as_json(await query.approval_result(ledger, pending.approval_id, "local"))
    assert (result["status"], result["reason"]) == ("denied", "wrong address")
    assert result["error"]["class"] == FailureClass.APPROVAL_DENIED
    assert types(pending.run_id)[2:] == ["approval.decided", "run.finished"]


async def test_an_approval_that_is_still_pending_cannot_be_redeemed(audit: Audit, pending: Pending, plan: Plan) -> None:
    """A pending question is not an approval."""
    refused = await refusal(audit.redeem(pending.approval_id, plan.digest))

    assert refused == (FailureClass.ALREADY_DECIDED, {"status": "pending_approval"})


async def test_a_decision_is_bound_to_the_digest_that_was_shown(audit: Audit, pending: Pending, plan: Plan) -> None:
    """Another digest can neither be approved nor be run; the right one still can."""
    other = "sha256:" + "0" * 64
    assert (await refusal(audit.decide(pending.approval_id, "approve", digest=other, surface="cli")))[
        0
    ] is FailureClass.INVALID_REQUEST

    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")
    assert (await refusal(audit.redeem(pending.approval_id, other)))[0] is FailureClass.HASH_MISMATCH

    await audit.redeem(pending.approval_id, plan.digest)


async def test_a_question_cannot_be_decided_after_its_expiry(
    audit: Audit, pending: Pending, plan: Plan, clock: Any, ledger: Ledger, types: Types
) -> None:
    """A decision a second before the expiry is accepted, and one a second after it is recorded as expired."""
    clock.advance(899)
    other = await audit.pending(plan, an_invocation(), START_S + 900)
    await audit.decide(other.approval_id, "approve", digest=plan.digest, surface="cli")
    clock.advance(2)

    for _ in range(2):
        assert (await refusal(audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")))[
            0
        ] is FailureClass.APPROVAL_EXPIRED
    assert types(pending.run_id)[2:] == ["approval.expired", "run.finished"]
    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "expired"

    for _ in range(2):
        assert (await refusal(audit.redeem(other.approval_id, plan.digest)))[0] is FailureClass.APPROVAL_EXPIRED
    assert types(other.run_id)[2:] == ["approval.decided", "approval.expired", "run.finished"]


async def test_the_periodic_sweep_records_overdue_questions_as_expired(
    audit: Audit, pending: Pending, clock: Any
) -> None:
    """The periodic sweep expires only overdue questions, and each one once."""
    assert await audit.expire_due() == []
    clock.advance(901)

    assert await audit.expire_due() == [pending.approval_id]
    assert await audit.expire_due() == []


async def test_an_approval_can_be_cancelled_until_its_run_begins(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """A pending question and an approved one that still waits can be cancelled."""
    await audit.cancel(pending.approval_id, surface="agent")
    assert (await refusal(audit.redeem(pending.approval_id, plan.digest)))[0] is FailureClass.CANCELLED
    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "cancelled"

    second = await audit.pending(plan, an_invocation(), START_S + 900)
    await audit.decide(second.approval_id, "approve", digest=plan.digest, surface="cli")
    await audit.cancel(second.approval_id, surface="cli")
    third = await audit.pending(plan, an_invocation(), START_S + 900)
    await audit.decide(third.approval_id, "approve", digest=plan.digest, surface="cli")
    await audit.redeem(third.approval_id, plan.digest)

    assert await refusal(audit.cancel(third.approval_id, surface="cli")) == (
        FailureClass.ALREADY_DECIDED,
        {"status": "running"},
    )


async def test_an_expired_question_cannot_be_cancelled(audit: Audit, pending: Pending, clock: Any) -> None:
    """The question ended as expired, not as cancelled, however often a caller tries."""
    clock.advance(901)

    for _ in range(2):
        assert (await refusal(audit.cancel(pending.approval_id, surface="agent")))[0] is FailureClass.APPROVAL_EXPIRED


async def test_an_approved_run_that_became_impossible_is_recorded_as_failed(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """The action was disabled or the connector's bytes changed after the approval, so the run never began."""
    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")
    failure = Failure(failure_class=FailureClass.ACTION_DISABLED, message="disabled", boundary=Boundary.USER)
    await audit.finished(pending.run_id, Failed(run_id=pending.run_id, failure=failure), 0)

    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "failed"


async def test_concurrent_decisions_about_a_question_have_exactly_one_outcome(
    audit: Audit, plan: Plan, path: Path, types: Types
) -> None:
    """Approve, deny, cancel and redeem run at once, in every order: there is one decision, at most one use, and one end."""
    ends: Counter[str] = Counter()

    async def attempt(work: Callable[[], Awaitable[Any]], won: list[str], name: str) -> None:
        try:
            await work()
        except AileronError:
            return
        won.append(name)

    for order in itertools.permutations(("approve", "deny", "cancel", "redeem", "redeem2")):
        asked = await audit.pending(plan, an_invocation(), START_S + 900)
        name = asked.approval_id
        works: dict[str, Callable[[], Awaitable[Any]]] = {
            "approve": partial(audit.decide, name, "approve", digest=plan.digest, surface="cli"),
            "deny": partial(audit.decide, name, "deny", digest=plan.digest, surface="page"),
            "cancel": partial(audit.cancel, name, surface="agent"),
            "redeem": partial(audit.redeem, name, plan.digest),
            "redeem2": partial(audit.redeem, name, plan.digest),
        }
        won: list[str] = []
        async with anyio.create_task_group() as tasks:
            for work in order:
                tasks.start_soon(attempt, works[work], won, work)

        recorded = Counter(types(asked.run_id))
        assert recorded["approval.decided"] == len({"approve", "deny"} & set(won)) <= 1
        assert recorded["approval.redeemed"] == len({"redeem", "redeem2"} & set(won)) <= 1
        assert recorded["approval.redeemed"] + recorded["run.finished"] <= 1
        if recorded["approval.redeemed"]:
            assert "approve" in won
        ends[types(asked.run_id)[-1]] += 1
    assert ends.keys() == {"approval.redeemed", "run.finished"}
    assert verify(path).is_whole


async def test_the_number_of_open_questions_of_a_session_is_bounded(
    audit: Audit, plan: Plan, asked: Invocation, pending: Pending, types: Types
) -> None:
    """An agent cannot bury a person in questions; each question that ends makes room for another."""
    assert await fill(audit, plan, asked) + 1 == _SHARE
    failure = await no_place(audit.pending(plan, asked, START_S + 900))
    assert (failure.failure_class, failure.retriable, failure.details) == (FailureClass.BUSY, True, {"reason": "share"})
    assert failure.message.startswith(f"{_SHARE} questions of this session are already waiting, which is its share")

    await audit.cancel(pending.approval_id, surface="agent")

    await audit.pending(plan, asked, START_S + 900)


async def test_a_session_that_asks_many_questions_leaves_room_for_other_sessions(
    audit: Audit, plan: Plan, asked: Invocation
) -> None:
    """Each session has a share of the open questions. Sessions that one has started share its share, however many they
    are.
    """
    first, second, third = (msgspec.structs.replace(asked, session=name) for name in ("ses-1", "ses-2", "ses-3"))

    assert await fill(audit, plan, first) == _SHARE
    for number in range(20):
        nested = msgspec.structs.replace(asked, session=f"ses-1-{number}", party="ses-1")
        assert (await no_place(audit.pending(plan, nested, START_S + 900))).details == {"reason": "share"}
    assert await fill(audit, plan, second) == _NEXT_SHARE
    assert await fill(audit, plan, third) > 0


async def test_a_person_can_still_ask_when_sessions_have_used_up_their_open_questions(
    audit: Audit, plan: Plan, asked: Invocation
) -> None:
    """The sessions' number does not matter; a further one is told that all places are taken, not that its share is."""
    agents, held = 0, MAX_OPEN_RUNS
    while held > 0:
        session = msgspec.structs.replace(asked, session=f"ses-{agents}")
        held = await fill(audit, plan, session, at_once=1 if held == 1 else 20)
        agents += held
    assert agents == MAX_OPEN_RUNS - MAX_OPEN_RUNS // 8
    assert (await no_place(audit.pending(plan, asked, START_S + 900))).details == {"reason": "full"}

    assert await fill(audit, plan, msgspec.structs.replace(asked, scope=Scope.OPERATOR)) == MAX_OPEN_RUNS // 8


async def test_a_restarted_daemon_counts_open_questions_for_the_same_parties(
    path: Path, clock: Clock, plan: Plan, asked: Invocation
) -> None:
    """The count is by the recorded party: a session with its descendants, a caller without a token, or the person."""
    nested = msgspec.structs.replace(asked, session="ses-2", party="ses-1")
    person = msgspec.structs.replace(asked, scope=Scope.OPERATOR)
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        held = [await fill(Audit(opened), plan, invocation) for invocation in (nested, asked, person)]
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        again = Audit(opened)
        for invocation in (nested, msgspec.structs.replace(asked, session="ses-1"), asked):
            assert (await no_place(again.pending(plan, invocation, START_S + 900))).details == {"reason": "share"}
        assert held[0] == _SHARE
        approvals = opened.read_now(lambda snapshot: snapshot.open_approvals())
        parties = Counter([await again.party(row.id) for row in approvals])
        assert [parties[name] for name in ("ses-1", "local", PERSON)] == held
        await again.pending(plan, msgspec.structs.replace(asked, session="ses-3"), START_S + 900)
    assert verify(path).is_whole


async def fill(audit: Audit, plan: Plan, invocation: Invocation, at_once: int = 20) -> int:
    """Ask until there is no room. Return the number of questions."""
    asked, before = 0, -1

    async def ask() -> None:
        nonlocal asked
        with contextlib.suppress(AileronError):
            await audit.pending(plan, invocation, START_S + 900)
            asked += 1

    while asked > before:
        before = asked
        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(ask)
    return asked


async def no_place(asking: Awaitable[object]) -> Failure:
    """Return the failure of a caller that gets no room."""
    with pytest.raises(AileronError) as caught:
        await asking
    return caught.value.failure


async def test_deciding_or_cancelling_an_unknown_question_fails_as_not_found(audit: Audit) -> None:
    """Each verb fails alike, and records nothing."""
    for attempt in (
        audit.frozen("act-x"),
        audit.decide("act-x", "approve", digest="", surface="cli"),
        audit.redeem("act-x", ""),
        audit.cancel("act-x", surface="cli"),
    ):
        assert (await refusal(attempt))[0] is FailureClass.NOT_FOUND


async def test_a_stored_plan_that_was_modified_is_neither_shown_nor_run(
    audit: Audit, pending: Pending, ledger: Ledger, path: Path, plan: Plan
) -> None:
    """The digest covers the stored bytes, and every reader checks it."""
    shown = as_json(await query.approval(ledger, pending.approval_id))
    assert msgspec.convert(shown["plan"], Plan) == plan
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE approvals SET subject = CAST(replace(subject, 'a@ex', 'b@ex') AS BLOB)")
    connection.close()

    for attempt in (audit.frozen(pending.approval_id), query.approval(ledger, pending.approval_id)):
        assert (await refusal(attempt))[0] is FailureClass.HASH_MISMATCH
