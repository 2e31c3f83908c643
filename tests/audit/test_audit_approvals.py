"""Questions to a person: bound to bytes, used once, over in time, and one outcome in every race."""

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

pytestmark = pytest.mark.anyio

Types = Callable[..., list[str]]
_SHARE = 400
"""Of the questions there may be, what a session gets that asks alone."""
_NEXT_SHARE = 134
"""And what the next one gets then."""


async def refusal(attempt: Awaitable[Any]) -> tuple[FailureClass, dict[str, Any]]:
    """How it is refused."""
    with pytest.raises(AileronError) as caught:
        await attempt
    return caught.value.failure.failure_class, caught.value.failure.details


async def test_a_gated_run_is_recorded_with_its_question_and_waits(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, facts: Callable[..., list[dict[str, Any]]]
) -> None:
    """Request, question and frozen plan in one commit; nothing is started."""
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
    """Approve, redeem; the second redeemer is told that it runs."""
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
    """Whoever asked gets the person's words."""
    await audit.decide(pending.approval_id, "deny", digest=plan.digest, surface="cli", reason="wrong address")

    assert await refusal(audit.redeem(pending.approval_id, plan.digest)) == (
        FailureClass.APPROVAL_DENIED,
        {"reason": "wrong address"},
    )
    result = as_json(await query.approval_result(ledger, pending.approval_id, "local"))
    assert (result["status"], result["reason"]) == ("denied", "wrong address")
    assert result["error"]["class"] == FailureClass.APPROVAL_DENIED
    assert types(pending.run_id)[2:] == ["approval.decided", "run.finished"]


async def test_what_was_not_decided_is_not_redeemed(audit: Audit, pending: Pending, plan: Plan) -> None:
    """Waiting is not a yes."""
    refused = await refusal(audit.redeem(pending.approval_id, plan.digest))

    assert refused == (FailureClass.ALREADY_DECIDED, {"status": "pending_approval"})


async def test_a_decision_is_about_the_bytes_that_were_shown(audit: Audit, pending: Pending, plan: Plan) -> None:
    """Another digest decides nothing and redeems nothing; the right one still does both."""
    other = "sha256:" + "0" * 64
    failure_class, _ = await refusal(audit.decide(pending.approval_id, "approve", digest=other, surface="cli"))
    assert failure_class is FailureClass.INVALID_REQUEST

    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")
    failure_class, _ = await refusal(audit.redeem(pending.approval_id, other))
    assert failure_class is FailureClass.HASH_MISMATCH

    await audit.redeem(pending.approval_id, plan.digest)


async def test_a_question_is_over_when_its_time_is(
    audit: Audit, pending: Pending, plan: Plan, clock: Any, ledger: Ledger, types: Types
) -> None:
    """A second before it can be decided, a second after not: and the record says that it ended."""
    clock.advance(899)
    other = await audit.pending(plan, an_invocation(), START_S + 900)
    await audit.decide(other.approval_id, "approve", digest=plan.digest, surface="cli")
    clock.advance(2)

    for _ in range(2):
        failure_class, _ = await refusal(
            audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")
        )
        assert failure_class is FailureClass.APPROVAL_EXPIRED
    assert types(pending.run_id)[2:] == ["approval.expired", "run.finished"]
    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "expired"

    for _ in range(2):
        failure_class, _ = await refusal(audit.redeem(other.approval_id, plan.digest))
        assert failure_class is FailureClass.APPROVAL_EXPIRED
    assert types(other.run_id)[2:] == ["approval.decided", "approval.expired", "run.finished"]


async def test_what_is_due_expires_by_itself(audit: Audit, pending: Pending, clock: Any) -> None:
    """The daemon sweeps: those whose time is over, and each once."""
    assert await audit.expire_due() == []
    clock.advance(901)

    assert await audit.expire_due() == [pending.approval_id]
    assert await audit.expire_due() == []


async def test_a_question_can_be_taken_back_until_it_is_used(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """Pending, or approved and not begun; then nothing runs. Once it runs it is too late."""
    await audit.cancel(pending.approval_id, surface="agent")
    failure_class, _ = await refusal(audit.redeem(pending.approval_id, plan.digest))
    assert failure_class is FailureClass.CANCELLED
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


async def test_a_question_whose_time_is_over_cannot_be_taken_back(audit: Audit, pending: Pending, clock: Any) -> None:
    """It ended as expired, not as cancelled, however often somebody asks."""
    clock.advance(901)

    for _ in range(2):
        failure_class, _ = await refusal(audit.cancel(pending.approval_id, surface="agent"))
        assert failure_class is FailureClass.APPROVAL_EXPIRED


async def test_an_approved_run_that_is_refused_at_the_last_moment_fails(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """Its action was disabled, or its connector's bytes changed: recorded as that, without having begun."""
    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="cli")
    failure = Failure(failure_class=FailureClass.ACTION_DISABLED, message="disabled", boundary=Boundary.USER)
    await audit.finished(pending.run_id, Failed(run_id=pending.run_id, failure=failure), 0)

    assert (as_json(await query.run_state(ledger, pending.run_id, None)))["status"] == "failed"


async def test_in_every_race_there_is_one_outcome(audit: Audit, plan: Plan, path: Path, types: Types) -> None:
    """Approve, deny, cancel and redeem at once, in every order, many times: one decision, at most one use, one end."""
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


async def test_there_is_a_bound_to_what_waits(
    audit: Audit, plan: Plan, asked: Invocation, pending: Pending, types: Types
) -> None:
    """An agent cannot bury a person in questions; room comes back as they are answered."""
    assert await fill(audit, plan, asked) + 1 == _SHARE
    failure = await no_place(audit.pending(plan, asked, START_S + 900))
    assert (failure.failure_class, failure.retriable, failure.details) == (FailureClass.BUSY, True, {"reason": "share"})
    assert failure.message.startswith(f"{_SHARE} questions of this session are already waiting, which is its share")

    await audit.cancel(pending.approval_id, surface="agent")

    await audit.pending(plan, asked, START_S + 900)


async def test_one_session_that_asks_without_end_keeps_nobody_from_asking(
    audit: Audit, plan: Plan, asked: Invocation
) -> None:
    """The next has room, and the one after it; sessions that one started have none beside its share, nor have more of them."""
    first, second, third = (msgspec.structs.replace(asked, session=name) for name in ("ses-1", "ses-2", "ses-3"))

    assert await fill(audit, plan, first) == _SHARE
    for number in range(20):
        nested = msgspec.structs.replace(asked, session=f"ses-1-{number}", party="ses-1")
        assert (await no_place(audit.pending(plan, nested, START_S + 900))).details == {"reason": "share"}
    assert await fill(audit, plan, second) == _NEXT_SHARE
    assert await fill(audit, plan, third) > 0


async def test_the_person_asks_when_agents_have_all_room_that_they_may_have(
    audit: Audit, plan: Plan, asked: Invocation
) -> None:
    """However many sessions they are; one more of them is told that all is taken, and not that it has its share."""
    agents, held = 0, MAX_OPEN_RUNS
    while held > 0:
        session = msgspec.structs.replace(asked, session=f"ses-{agents}")
        held = await fill(audit, plan, session, at_once=1 if held == 1 else 20)
        agents += held
    assert agents == MAX_OPEN_RUNS - MAX_OPEN_RUNS // 8
    assert (await no_place(audit.pending(plan, asked, START_S + 900))).details == {"reason": "full"}

    assert await fill(audit, plan, msgspec.structs.replace(asked, scope=Scope.OPERATOR)) == MAX_OPEN_RUNS // 8


async def test_a_daemon_that_starts_again_counts_what_waits_as_before(
    path: Path, clock: Clock, plan: Plan, asked: Invocation
) -> None:
    """By party, as it is on record: of a session that another started, of a caller without a token, of the person."""
    nested = msgspec.structs.replace(asked, session="ses-2", party="ses-1")
    person = msgspec.structs.replace(asked, scope=Scope.OPERATOR)
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        held = [await fill(Audit(opened), plan, one) for one in (nested, asked, person)]
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        again = Audit(opened)
        for one in (nested, msgspec.structs.replace(asked, session="ses-1"), asked):
            assert (await no_place(again.pending(plan, one, START_S + 900))).details == {"reason": "share"}
        assert held[0] == _SHARE
        approvals = opened.read_now(lambda snapshot: snapshot.open_approvals())
        parties = Counter([await again.party(row.id) for row in approvals])
        assert [parties[name] for name in ("ses-1", "local", PERSON)] == held
        await again.pending(plan, msgspec.structs.replace(asked, session="ses-3"), START_S + 900)
    assert verify(path).is_whole


async def fill(audit: Audit, plan: Plan, invocation: Invocation, at_once: int = 20) -> int:
    """Ask until there is no place; how many there were."""
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
    """What somebody is told who has no place."""
    with pytest.raises(AileronError) as caught:
        await asking
    return caught.value.failure


async def test_what_is_not_there_is_not_found(audit: Audit) -> None:
    """Each verb alike, with nothing recorded."""
    for attempt in (
        audit.frozen("act-x"),
        audit.decide("act-x", "approve", digest="", surface="cli"),
        audit.redeem("act-x", ""),
        audit.cancel("act-x", surface="cli"),
    ):
        failure_class, _ = await refusal(attempt)
        assert failure_class is FailureClass.NOT_FOUND


async def test_a_plan_changed_at_rest_is_neither_shown_nor_run(
    audit: Audit, pending: Pending, ledger: Ledger, path: Path, plan: Plan
) -> None:
    """The digest is of the bytes; with other bytes under it, everybody refuses."""
    shown = as_json(await query.approval(ledger, pending.approval_id))
    assert msgspec.convert(shown["plan"], Plan) == plan
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE approvals SET subject = CAST(replace(subject, 'a@ex', 'b@ex') AS BLOB)")
    connection.close()

    for attempt in (audit.frozen(pending.approval_id), query.approval(ledger, pending.approval_id)):
        failure_class, _ = await refusal(attempt)
        assert failure_class is FailureClass.HASH_MISMATCH
