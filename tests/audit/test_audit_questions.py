"""Decisions, conversations, consents and grants: each verb, its bounds, and the loser of each race."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron.audit import query
from aileron.audit.frozen import freeze
from aileron.audit.log import REFUSALS_A_MINUTE, Audit, GrantSpent, GrantUse
from aileron.audit.questions import MAX_CANDIDATES, MAX_EDITS, MAX_OPEN_CONSENTS, MAX_ROUNDS, insert_question
from aileron.audit.refusals import MAX_GROUPS, WINDOW_US, Throttle
from aileron.audit.verify import verify
from aileron.ledger import ApprovalRow, ApprovalState, EventFilter, Ledger, RunRow, Snapshot
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import ConsentKind, GrantConsent
from aileron.model.decision import digest_with_preview
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import Pending, RunStatus
from aileron.model.plan import Plan
from aileron.model.timestamp import utc_of_us
from tests.audit.conftest import START_S, Clock, a_grant, a_plan, an_invocation
from tests.audit.signer import Signer
from tests.cli.questions import SUBJECTS
from tests.support.answers import as_json

pytestmark = pytest.mark.anyio

SEEN = "sha256:" + "aa" * 32
LATER_S = START_S + 900


def edited(number: int = 1) -> Plan:
    """Return the plan with other arguments."""
    return msgspec.structs.replace(a_plan(), args={"to": f"b{number}@example.com"})


async def refusal(attempt: Awaitable[Any]) -> FailureClass:
    """Return the failure class of the refusal."""
    with pytest.raises(AileronError) as caught:
        await attempt
    return caught.value.failure.failure_class


@pytest.fixture
def recorded(ledger: Ledger) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function that reads the events of a type, in order."""

    def read(kind: str) -> list[dict[str, Any]]:
        rows = ledger.read_now(lambda snapshot: snapshot.events(EventFilter(type=kind, oldest_first=True, limit=1000)))
        return [
            {name: value for name, value in row.facts.items() if name not in ("seq", "at_us", "type")} for row in rows
        ]

    return read


# Candidates


async def test_an_approved_edit_of_a_plan_runs_in_place_of_the_original(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, path: Path
) -> None:
    """The edit's plan is loaded and its digest redeemed; the caller is told which arguments ran, and the record says
    what was changed.
    """
    name = pending.approval_id
    await audit.add_edit(name, edited())
    question = await audit.check_decidable(name)
    assert question.digests == (plan.digest, edited().digest)
    assert question.created_at == pytest.approx(START_S, abs=1)
    shown = as_json(await query.approval(ledger, name))
    assert [(edit["digest"], Plan.from_json(edit["plan"])) for edit in shown["edits"]] == [(edited().digest, edited())]
    assert (shown["digest"], "asked_digest" in shown) == (plan.digest, False)

    await audit.decide(name, "approve", digest=edited().digest, surface="operator")
    frozen = await audit.frozen(name)
    assert (frozen.plan, frozen.digest, frozen.asked_digest) == (edited(), edited().digest, plan.digest)
    assert frozen.is_edited
    assert await refusal(audit.redeem(name, plan.digest)) is FailureClass.HASH_MISMATCH
    await audit.redeem(name, edited().digest)

    state = as_json(await query.run_state(ledger, pending.run_id, "local"))
    assert state["executed_arguments"] == edited().args
    assert (as_json(await query.approval(ledger, name)))["asked_digest"] == plan.digest
    assert verify(path).is_whole


async def test_the_original_plan_runs_unchanged_if_it_is_approved_despite_an_edit(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """This is the control: an edit exists, but the person approved the original plan."""
    await audit.add_edit(pending.approval_id, edited())
    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="operator")
    frozen = await audit.frozen(pending.approval_id)
    await audit.redeem(pending.approval_id, plan.digest)

    assert (frozen.plan, frozen.is_edited) == (plan, False)
    assert "executed_arguments" not in as_json(await query.run_state(ledger, pending.run_id, "local"))


async def test_the_digest_of_a_decision_covers_the_plan_and_its_preview(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, recorded: Any, path: Path
) -> None:
    """The decided digest covers both. Only digests are stored, and either digest redeems the approval, once."""
    name = pending.approval_id
    both = await audit.add_preview(name, plan.digest, SEEN, run_id="run-preview")
    assert both == digest_with_preview(plan.digest, SEEN)
    assert (await audit.check_decidable(name)).digests == (plan.digest, both)

    row = await audit.decide(name, "approve", digest=both, surface="operator")
    assert (row.digest, row.asked_digest, row.preview) == (both, plan.digest, SEEN)
    frozen = await audit.frozen(name)
    assert (frozen.plan, frozen.is_edited) == (plan, False)
    assert frozen.decision is not None
    assert (frozen.decision.digest, frozen.decision.preview) == (both, SEEN)
    await audit.redeem(name, plan.digest)
    assert await refusal(audit.redeem(name, both)) is FailureClass.ALREADY_DECIDED

    assert recorded("approval.previewed") == [
        {"approval": name, "plan_digest": plan.digest, "run": "run-preview", "digest": both, "preview": SEEN}
    ]
    assert recorded("approval.decided")[0]["preview"] == SEEN
    assert "executed_arguments" not in as_json(await query.run_state(ledger, pending.run_id, "local"))
    assert verify(path).is_whole


async def test_a_failed_preview_is_recorded_and_cannot_be_approved(
    audit: Audit, pending: Pending, plan: Plan, recorded: Any
) -> None:
    """The record has the failure class, and no digest that includes a preview exists."""
    made = await audit.add_preview(
        pending.approval_id, plan.digest, None, run_id="run-preview", failure_class=FailureClass.NETWORK_ERROR
    )

    assert made is None
    assert recorded("approval.previewed")[0]["class"] == "network_error"
    assert (await audit.check_decidable(pending.approval_id)).digests == (plan.digest,)


async def test_a_preview_can_be_added_only_to_a_plan_or_edit_of_the_question(
    audit: Audit, pending: Pending, plan: Plan
) -> None:
    """An edit can have a preview too. A digest that already includes one cannot, and neither can an unknown digest."""
    name = pending.approval_id
    await audit.add_edit(name, edited())
    both = await audit.add_preview(name, edited().digest, SEEN, run_id="run-1")
    assert both is not None

    for other in (both, edited(2).digest):
        assert await refusal(audit.add_preview(name, other, SEEN, run_id="run-1")) is FailureClass.INVALID_REQUEST


async def test_a_repeated_edit_of_a_question_is_stored_once(
    audit: Audit, pending: Pending, plan: Plan, recorded: Any
) -> None:
    """An edit back to the original is not stored; a preview with the same content is recorded again."""
    name = pending.approval_id
    for _ in range(3):
        await audit.add_edit(name, edited())
        await audit.add_edit(name, plan)
        await audit.add_preview(name, plan.digest, SEEN, run_id="run-1")

    assert len((await audit.check_decidable(name)).digests) == 3
    assert (len(recorded("approval.edited")), len(recorded("approval.previewed"))) == (1, 3)


async def test_the_edits_and_previews_of_a_question_are_bounded(
    audit: Audit, pending: Pending, plan: Plan, path: Path
) -> None:
    """Edits have a bound of their own, so previews have room beside them. Each stored one can still be decided."""
    for number in range(MAX_EDITS):
        await audit.add_edit(pending.approval_id, edited(number))
    assert await refusal(audit.add_edit(pending.approval_id, edited(99))) is FailureClass.BUSY

    seen = [f"sha256:{number:064}" for number in range(MAX_CANDIDATES - MAX_EDITS)]
    for digest in seen[1:]:
        await audit.add_preview(pending.approval_id, plan.digest, digest, run_id="run-1")
    assert len((await audit.check_decidable(pending.approval_id)).digests) == MAX_CANDIDATES
    late = audit.add_preview(pending.approval_id, plan.digest, seen[0], run_id="run-1")
    assert await refusal(late) is FailureClass.BUSY
    await audit.decide(pending.approval_id, "approve", digest=edited(MAX_EDITS - 1).digest, surface="operator")
    assert verify(path).is_whole


async def test_nothing_is_added_to_a_decided_or_expired_question(
    audit: Audit, plan: Plan, clock: Clock, ledger: Ledger, recorded: Any
) -> None:
    """Edits, previews, questions and answers are all refused. The same ones are accepted for a pending question."""

    def attempts(name: str) -> list[Awaitable[Any]]:
        return [
            audit.add_edit(name, edited()),
            audit.add_preview(name, plan.digest, SEEN, run_id="run-1"),
            audit.put_question(name, "why?"),
            audit.put_answer(name, "because", "local"),
        ]

    waits, decided, expires = [await audit.pending(plan, an_invocation(), LATER_S + step) for step in (900, 900, 0)]
    await audit.decide(decided.approval_id, "deny", digest=plan.digest, surface="operator")
    for attempt in attempts(waits.approval_id):
        await attempt
    assert [await refusal(attempt) for attempt in attempts(decided.approval_id)] == [FailureClass.ALREADY_DECIDED] * 4
    assert await refusal(audit.check_decidable(decided.approval_id)) is FailureClass.ALREADY_DECIDED
    clock.advance(901)
    assert await refusal(audit.check_decidable(expires.approval_id)) is FailureClass.APPROVAL_EXPIRED
    assert recorded("approval.expired") == [], "a look writes nothing"
    assert [await refusal(attempt) for attempt in attempts(expires.approval_id)] == [FailureClass.APPROVAL_EXPIRED] * 4
    assert len(recorded("approval.expired")) == 1
    assert [await refusal(attempt) for attempt in attempts("act-none")] == [FailureClass.NOT_FOUND] * 4
    assert await refusal(audit.check_decidable("act-none")) is FailureClass.NOT_FOUND


# Signatures


async def test_a_decisions_signature_is_stored_with_the_decision_and_verifies(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, recorded: Any, path: Path
) -> None:
    """Row, event, frozen decision and response all have the signature, and it verifies."""
    person = Signer()
    await person.appoint(audit)
    assert await audit.has_approver()
    name = pending.approval_id
    signed = person.signed(name, plan.digest, reason="fine", head=(as_json(await query.approval(ledger, name)))["head"])

    await audit.decide(name, "approve", digest=plan.digest, surface="operator", reason="fine", signed=signed)

    frozen = await audit.frozen(name)
    assert frozen.decision is not None
    assert (frozen.decision.signed, frozen.decision.reason, frozen.decision.decision) == (signed, "fine", "approve")
    shown = as_json(await query.approval(ledger, name))
    assert (shown["key_id"], shown["signature"], shown["signed_at"]) == (person.key_id, signed.signature, signed.at)
    event = recorded("approval.decided")[0]
    assert (event["key_id"], event["head"], event["head_signature"]) == (
        person.key_id,
        signed.head,
        signed.head_signature,
    )
    assert verify(path).decisions.signed == 1


async def test_the_time_of_a_question_comes_from_the_hash_chain(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger, path: Path
) -> None:
    """A binding must be unchanged since the question was asked, so a later time in the row must not count."""
    person = Signer()
    signed = person.signed(pending.approval_id, plan.digest)
    await audit.decide(pending.approval_id, "approve", digest=plan.digest, surface="operator", signed=signed)
    assert (await audit.frozen(pending.approval_id)).asked_at == pytest.approx(START_S, abs=1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE approvals SET created_us = created_us + 600000000")
    connection.close()

    assert (await audit.frozen(pending.approval_id)).asked_at == pytest.approx(START_S, abs=1)
    assert verify(path).finding is not None


async def test_an_unsigned_decision_that_races_with_a_new_key_is_refused(
    audit: Audit, pending: Pending, plan: Plan, path: Path
) -> None:
    """The caller checked before the key was recorded; only the order in the ledger counts. A previous key's decision is
    refused too.
    """
    first, second = Signer(), Signer()
    assert not await audit.has_approver()
    await first.appoint(audit)
    name = pending.approval_id

    unsigned = audit.decide(name, "approve", digest=plan.digest, surface="operator")
    assert await refusal(unsigned) is FailureClass.UNAUTHORIZED
    await second.appoint(audit, replaces=first)
    signed = first.signed(name, plan.digest)
    old = audit.decide(name, "approve", digest=plan.digest, surface="operator", signed=signed)
    assert await refusal(old) is FailureClass.UNAUTHORIZED
    signed = second.signed(name, plan.digest)
    await audit.decide(name, "approve", digest=plan.digest, surface="operator", signed=signed)
    assert verify(path).is_whole


async def test_decisions_made_while_two_first_approver_keys_compete_leave_a_valid_hash_chain(
    audit: Audit, plan: Plan, path: Path
) -> None:
    """Two callers name a first key while decisions arrive: one key wins, and each accepted decision matches it."""
    signers = (Signer(), Signer())
    asked = [await audit.pending(plan, an_invocation(), LATER_S) for _ in range(24)]
    won: list[str] = []
    refused: set[FailureClass] = set()

    async def attempt(work: Callable[[], Awaitable[Any]], name: str) -> None:
        try:
            await work()
            won.append(name)
        except AileronError as error:
            refused.add(error.failure.failure_class)

    async with anyio.create_task_group() as tasks:
        for number, question in enumerate(asked):
            name = question.approval_id
            by = (None, *signers)[number % 3]
            signed = None if by is None else by.signed(name, plan.digest)
            decide = functools.partial(
                audit.decide, name, "approve", digest=plan.digest, surface="operator", signed=signed
            )
            tasks.start_soon(attempt, decide, "decided")
            if number in (9, 10):
                tasks.start_soon(attempt, functools.partial(signers[number % 2].appoint, audit), "appointed")

    assert refused == {FailureClass.UNAUTHORIZED}
    assert won.count("appointed") == 1
    assert "decided" in won
    assert verify(path).finding is None


async def test_a_signed_head_of_another_ledger_is_refused(
    audit: Audit, pending: Pending, plan: Plan, ledger: Ledger
) -> None:
    """A man in the middle may have supplied it. Stored, it would make an honest ledger look forged."""
    person = Signer()
    await person.appoint(audit)
    name = pending.approval_id
    head = ledger.read_now(Snapshot.head)
    for wrong, refused in (
        (f"{head.seq}:{'00' * 32}", FailureClass.HASH_MISMATCH),
        (f"{head.seq + 9}:{head.hash.hex()}", FailureClass.HASH_MISMATCH),
        ("9" * 30 + ":" + "00" * 32, FailureClass.HASH_MISMATCH),
        ("12", FailureClass.INVALID_REQUEST),
    ):
        signed = person.signed(name, plan.digest, head=wrong)
        attempt = audit.decide(name, "approve", digest=plan.digest, surface="operator", signed=signed)
        assert await refusal(attempt) is refused

    signed = person.signed(name, plan.digest, head=str(head))
    await audit.decide(name, "approve", digest=plan.digest, surface="operator", signed=signed)


async def test_a_signed_reason_is_stored_unchanged_or_refused(audit: Audit, pending: Pending, plan: Plan) -> None:
    """The signature would not cover a truncated reason; an unsigned reason is truncated."""
    long = "x" * 4001
    person = Signer()
    signed = person.signed(pending.approval_id, plan.digest, "deny", reason=long)
    attempt = audit.decide(
        pending.approval_id, "deny", digest=plan.digest, surface="operator", reason=long, signed=signed
    )
    assert await refusal(attempt) is FailureClass.INVALID_REQUEST

    row = await audit.decide(pending.approval_id, "deny", digest=plan.digest, surface="operator", reason=long)
    assert row.reason == long[:4000]


async def test_an_approval_held_for_a_time_can_be_used_after_that_time(
    audit: Audit, clock: Clock, ledger: Ledger, recorded: Any, path: Path
) -> None:
    """The expiry moves to a minute after the hold; until then the status says how long the hold lasts."""
    rule = msgspec.structs.replace(a_plan().approval, undo_window_s=3600)
    plan = msgspec.structs.replace(a_plan(), approval=rule)
    held, plain = [await audit.pending(plan, an_invocation(), LATER_S) for _ in range(2)]
    row = await audit.decide(held.approval_id, "approve", digest=plan.digest, surface="operator", hold_s=3600.0)
    await audit.decide(plain.approval_id, "approve", digest=plan.digest, surface="operator", hold_s=0.0)

    assert row.decided_us is not None
    assert row.expires_us == row.decided_us + 3660 * 1_000_000
    first, second = recorded("approval.decided")
    assert (first["until_us"], "until_us" in second) == (row.expires_us, False)
    state = as_json(await query.run_state(ledger, held.run_id, "local"))
    assert (state["status"], state["held_until"]) == ("approved", utc_of_us(row.decided_us + 3600 * 1_000_000))
    clock.advance(3601)
    assert await refusal(audit.redeem(plain.approval_id, plan.digest)) is FailureClass.APPROVAL_EXPIRED
    await audit.redeem(held.approval_id, plan.digest)
    assert "held_until" not in as_json(await query.run_state(ledger, held.run_id, "local"))
    assert verify(path).is_whole


# What is said before


async def test_a_question_to_the_agent_stays_open_until_the_agent_answers(
    audit: Audit, pending: Pending, ledger: Ledger, recorded: Any, path: Path
) -> None:
    """Only one question is open at a time. The person sees the answer; the agent then no longer sees the question."""
    name = pending.approval_id
    assert await refusal(audit.put_answer(name, "because", "local")) is FailureClass.INVALID_REQUEST
    seen: list[dict[str, Any]] = []

    async def poll() -> None:
        async def look() -> dict[str, Any]:
            state: dict[str, Any] = as_json(await query.run_state(ledger, pending.run_id, "local"))
            return state

        seen.append(await audit.watch.follow(pending.run_id, await look(), look, lambda state: "question" in state, 30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poll)
        await anyio.lowlevel.checkpoint()
        await audit.put_question(name, "who is that?")
    assert seen[0]["question"] == "who is that?"
    assert await refusal(audit.put_question(name, "and why?")) is FailureClass.INVALID_REQUEST
    await audit.put_answer(name, "my sister\u202e", "local")
    assert await refusal(audit.put_answer(name, "again", "local")) is FailureClass.INVALID_REQUEST

    assert "question" not in as_json(await query.approval_result(ledger, name, "local"))
    shown = as_json(await query.approval(ledger, name))
    assert shown["conversation"] == [{"question": "who is that?", "answer": "my sister\u202e"}]
    assert recorded("approval.answered") == [
        {"approval": name, "number": 1, "text": "my sister\u202e", "run": pending.run_id, "session": "local"}
    ]
    assert verify(path).is_whole


async def test_the_number_and_length_of_questions_to_the_agent_are_bounded(audit: Audit, pending: Pending) -> None:
    """A text is neither empty nor too long, and the number of rounds is limited."""
    name = pending.approval_id
    for text in ("", " \n", "x" * 4001, "\ud800"):
        assert await refusal(audit.put_question(name, text)) is FailureClass.INVALID_REQUEST
    for _ in range(MAX_ROUNDS):
        await audit.put_question(name, "x" * 4000)
        assert await refusal(audit.put_answer(name, "x" * 4001, "local")) is FailureClass.INVALID_REQUEST
        await audit.put_answer(name, "x" * 4000, "local")

    assert await refusal(audit.put_question(name, "one more")) is FailureClass.BUSY


# Consents


async def test_a_consent_to_one_change_is_requested_once_and_used_once(
    audit: Audit, ledger: Ledger, recorded: Any, path: Path, clock: Clock
) -> None:
    """Each subject has at most one open question, and its approval is used once; other subjects are separate."""
    subject, another = a_grant(1e17), a_grant()
    row, is_new = await audit.ask("send-email", subject, expires_at=LATER_S)
    again, is_again = await audit.ask("send-email", subject, expires_at=LATER_S + 5)
    other, is_other = await audit.ask("send-email", another, expires_at=LATER_S)
    assert (is_new, is_again, is_other, again) == (True, False, True, row)
    assert other.id != row.id
    assert await audit.consent(row.id) == (row, subject)
    listed = {approval["approval_id"]: approval for approval in as_json(await query.open_approvals(ledger))}
    assert (listed[row.id]["kind"], listed[row.id]["name"]) == ("grant", "send-email")
    assert msgspec.convert((await query.approval(ledger, row.id)).subject, GrantConsent) == subject
    assert await refusal(audit.frozen(row.id)) is FailureClass.NOT_FOUND
    assert await refusal(audit.add_edit(row.id, a_plan())) is FailureClass.INVALID_REQUEST
    assert await refusal(audit.put_question(row.id, "why?")) is FailureClass.INVALID_REQUEST

    await audit.decide(row.id, "approve", digest=row.digest, surface="operator")
    assert await audit.recover() == []
    assert await audit.approved_consents() == [row.id]
    await audit.redeem(row.id, row.digest)
    assert await refusal(audit.redeem(row.id, row.digest)) is FailureClass.ALREADY_DECIDED
    assert await audit.approved_consents() == []
    await audit.agreed(ConsentKind.GRANT, "send-email", row.digest, row.id)
    await audit.ended(ConsentKind.GRANT, "send-email", "revoked")
    assert recorded("consent.agreed")[0]["approval"] == row.id
    clock.advance(901)
    later, is_later = await audit.ask("send-email", another, expires_at=LATER_S + 901)
    assert (is_later, later.id != other.id) == (True, True)
    assert (as_json(await query.approval_result(ledger, other.id, None)))["status"] == "expired"
    assert await refusal(query.approval_result(ledger, other.id, "local")) is FailureClass.NOT_FOUND
    assert verify(path).is_whole


async def test_the_maximum_number_of_open_consents_leaves_room_for_a_question_about_a_run(
    audit: Audit, ledger: Ledger, plan: Plan
) -> None:
    """The maximum number of open consents leaves room for a run; a decided consent makes room for another."""
    for number in range(MAX_OPEN_CONSENTS):
        await audit.ask(f"n{number}", a_grant(), expires_at=LATER_S)
    more = functools.partial(audit.ask, "more", a_grant(), expires_at=LATER_S)

    assert await refusal(more()) is FailureClass.BUSY
    await audit.pending(plan, an_invocation(), LATER_S)
    (first, *_) = [row for row in await query.open_approvals(ledger) if row.kind != "action"]
    await audit.decide(first.approval_id, "deny", digest=first.digest, surface="operator")
    await more()


async def test_a_consent_that_cannot_be_stored_is_not_asked_for(audit: Audit) -> None:
    """The subject has no canonical form, or is too large for a person to read."""
    for value in (float("nan"), 2**60, "y" * (3 << 20)):
        assert await refusal(audit.ask("n", a_grant(value), expires_at=LATER_S)) is FailureClass.INVALID_REQUEST


SIGNED = {
    "action_file": "sha256:651634d38ddc8fff926abfb8f72d9c8c560646e9e30a50bf147d98b0296b3ddc",
    "connector": "sha256:30d146e67c73213a6162f2d8c96c8b4e93fc91a47255c3e12e61250a5b28265f",
    "connector_update": "sha256:d03f65d42d453aef13b38e6879f7840f3ccbc40c8a9d20164c633eae8143b72a",
    "binding": "sha256:c73efe2400578a8825cbde7923f2cdf967b0e01c0e8cada6d736de2ae2c0dd09",
    "installation": "sha256:e1a1bb30f9db9040a2a0bcdf8464b81b094c890dfdfd1486482f0edd65c486ee",
    "secret": "sha256:a87848a77dfd3d51552456fcd609ba3fe8893e9d94de86da93e3dd06dc58dced",
    "trusted_key": "sha256:d955138e0dd5885b05dc0f261e6baa7207af3ac0acedf4594919b22b999ae3e7",
    "grant": "sha256:672673beade797d176910de252db0703a678e62579c142183591f5b3390f3048",
    "settings": "sha256:d0ba811c5341159bc3b29a45f55658a516e7a0881d57c9ee532017311a888da4",
    "passkey": "sha256:61b47fbd5c21c92836d6f0b8ac84413c4eb1c9c9773848be00c8d63473f3bc14",
    "tool_change": "sha256:62b82b2c98034715071d25062b84f308afc2cf1c55dcf136be181964f77c8227",
    "host": "sha256:9610893db5192c06d0d4ae7f8fad13825b3d440ca004df35f854736e0abf3cbe",
}
"""Digests that a person signs for a subject of each kind."""


async def test_the_signed_digest_of_each_kind_of_consent_stays_the_same(audit: Audit, path: Path) -> None:
    """Existing signatures are over these digests, and each stored subject is read back unchanged."""
    signed = {}
    for kind, subject in SUBJECTS.items():
        row, _ = await audit.ask("n", subject, expires_at=LATER_S)
        assert (row.kind, await audit.consent(row.id)) == (kind, (row, subject))
        signed[kind] = row.digest

    assert signed == SIGNED
    assert {kind.value for kind in ConsentKind} == {*SIGNED, "action"}
    assert {row.kind for row, _ in await audit.open_consents()} == {*SIGNED}
    assert verify(path).is_whole


async def test_a_consent_recorded_by_another_version_keeps_its_stored_digest(
    audit: Audit, ledger: Ledger, path: Path
) -> None:
    """Fields that its version did not have are read as absent; a consent of an unknown kind is skipped."""
    old = msgspec.to_builtins(SUBJECTS["connector"])
    del old["publisher"]

    def write(tx: Any) -> None:
        for number, subject in enumerate((old, {**old, "kind": "later"})):
            stored, digest = freeze(subject)
            row = ApprovalRow(
                id=f"act-{number}",
                kind=subject["kind"],
                name="n",
                run=None,
                digest=digest,
                state=ApprovalState.PENDING,
                created_us=0,
                expires_us=int(LATER_S * 1_000_000),
            )
            insert_question(tx, row, stored)

    await ledger.commit(write)

    ((row, subject),) = await audit.open_consents()
    assert (row.id, subject) == ("act-0", SUBJECTS["connector"])
    assert row.digest == sha256_digest(canonical_json(old)) != SIGNED["connector"]
    await audit.decide(row.id, "approve", digest=row.digest, surface="operator")
    with pytest.raises(msgspec.ValidationError, match="later"):
        await audit.consent("act-1")
    assert verify(path).is_whole


# Grants


async def test_a_standing_grant_admits_only_as_many_concurrent_runs_as_it_has_uses(
    audit: Audit, plan: Plan, recorded: Any, path: Path, ledger: Ledger
) -> None:
    """A caller that comes too late writes no row."""
    grant = GrantUse("act-grant", 7)
    spent: list[str] = []

    async def run() -> None:
        try:
            await audit.requested(plan, an_invocation(), layers=["seccomp"], grant=grant)
        except GrantSpent as error:
            spent.append(error.grant)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(run)

    assert spent == ["act-grant"] * 13
    assert [(event["use"], event["of"]) for event in recorded("grant.used")] == [(number, 7) for number in range(1, 8)]
    assert len(recorded("run.requested")) == 7
    assert await audit.grant_used(["act-grant", "act-other"]) == {"act-grant": 7, "act-other": 0}
    assert verify(path).is_whole


async def test_a_revoked_grant_admits_no_run(audit: Audit, plan: Plan, path: Path) -> None:
    """This holds whether or not the grant was used before. A grant created without uses admits none either."""
    await audit.requested(plan, an_invocation(), grant=GrantUse("act-one", 9))
    for name in ("act-one", "act-two"):
        await audit.grant_revoked(name)
        await audit.grant_revoked(name)
        with pytest.raises(GrantSpent):
            await audit.requested(plan, an_invocation(), grant=GrantUse(name, 9))
    with pytest.raises(GrantSpent):
        await audit.requested(plan, an_invocation(), grant=GrantUse("act-none", 0))

    await audit.requested(plan, an_invocation(), grant=GrantUse("act-three", 1))
    assert await audit.grant_used(["act-one", "act-none"]) == {"act-one": 1, "act-none": 0}
    assert verify(path).is_whole


# Refusals


async def test_refused_decisions_are_recorded_one_by_one_and_a_flood_of_them_as_a_count(
    audit: Audit, pending: Pending, clock: Clock, recorded: Any, path: Path
) -> None:
    """The first ones have a row each; identical later ones share one row with a count, once their minute has passed."""
    for number in range(200):
        await audit.refuse(pending.approval_id, "approve", "key" if number % 2 else "unsigned", "operator", "x" * 300)
    assert len(recorded("approval.refused")) == REFUSALS_A_MINUTE
    assert len(recorded("approval.refused")[1]["key_id"]) == 200
    await audit.tell_refused()
    assert len(recorded("approval.refused")) == REFUSALS_A_MINUTE
    clock.advance(61)
    await audit.tell_refused()
    await audit.tell_refused()

    rest = recorded("approval.refused")[REFUSALS_A_MINUTE:]
    assert sorted((event["reason"], event["count"]) for event in rest) == [("key", 70), ("unsigned", 70)]
    assert all("since_us" in event and "approval" not in event for event in rest)
    await audit.refuse(pending.approval_id, "deny", "locked", "operator")
    assert recorded("approval.refused")[-1]["approval"] == pending.approval_id
    assert verify(path).is_whole


async def test_refused_callers_are_recorded_once_a_minute_with_a_count(
    audit: Audit, clock: Clock, recorded: Any
) -> None:
    """The first refusal is recorded at once, later ones after a minute or at the daemon's stop. Rows are bounded."""
    for number in range(5):
        await audit.caller_refused("agent", "POST /decide", f"s{number}")
    assert [(event["session"], event["count"]) for event in recorded("caller.refused")] == [("s0", 1)]
    clock.advance(61)
    await audit.caller_refused("agent", "POST /decide", "s9")
    assert [(event["session"], event["count"]) for event in recorded("caller.refused")] == [
        ("s0", 1),
        ("s4", 4),
        ("s9", 1),
    ]
    for number in range(500):
        await audit.caller_refused("agent", f"GET /{number}", "s")
    await audit.daemon_stopped("0.1.0")

    told = recorded("caller.refused")[3:]
    assert sum(event["count"] for event in told) == 500
    assert len(told) <= 2 * MAX_GROUPS


async def test_host_names_invented_by_one_cell_are_never_counted_for_another_session(
    audit: Audit, recorded: Any
) -> None:
    """Each session has its own counters, even if one requests more names than are counted separately."""
    for number in range(4 * MAX_GROUPS):
        if number == MAX_GROUPS:  # all that are counted apart are taken by now
            await audit.tunnel_refused("ses-one", "a.test:443", "host_not_listed")
        await audit.tunnel_refused("ses-many", f"h{number}.test:443", "host_not_listed")
    for _ in range(5):
        await audit.tunnel_refused("ses-one", "a.test:443", "host_not_listed")
    await audit.daemon_stopped("0.1.0")

    told = recorded("tunnel.refused")
    of_one = [(event["destination"], event["count"]) for event in told if event["session"] == "ses-one"]
    assert of_one == [("a.test:443", 1), ("a.test:443", 5)]
    of_many = [event["count"] for event in told if event["session"] == "ses-many"]
    assert (sum(of_many), len(of_many) <= 2 * MAX_GROUPS) == (4 * MAX_GROUPS, True)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, WINDOW_US // 4)), max_size=400), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_a_throttle_neither_loses_nor_repeats_an_event(arrivals: list[tuple[int, int]], rows: int) -> None:
    """Recorded and counted events together are exactly those that arrived."""
    throttle: Throttle[int] = Throttle(rows)
    now_us = told = counted = 0
    for group, wait_us in arrivals:
        now_us += wait_us
        counted += sum(tally.count for tally in throttle.over(now_us))
        told += throttle.admits(group, group, now_us)
    counted += sum(tally.count for tally in throttle.rest())

    assert told + counted == len(arrivals)
    assert throttle.rest() == []


# At rest


async def test_a_plan_of_another_version_is_shown_and_verified_but_does_not_run(
    audit: Audit, ledger: Ledger, path: Path, plan: Plan
) -> None:
    """The plan was stored before plans got a new field: its digest verifies, but resolving it gives another plan."""
    older = {name: value for name, value in plan.to_json().items() if name != "preview"}
    subject, digest = freeze(older)
    row = ApprovalRow(
        id="act-old",
        kind="action",
        name="send-email",
        run="run-old",
        digest=digest,
        state=ApprovalState.PENDING,
        created_us=0,
        expires_us=int(LATER_S * 1_000_000),
    )
    run = RunRow(
        id="run-old",
        action="send-email",
        session="local",
        scope=Scope.AGENT,
        status=RunStatus.PENDING_APPROVAL,
        plan_digest=digest,
        approval="act-old",
    )

    def write(tx: Any) -> None:
        tx.insert_run(run)
        tx.insert_approval(row, subject)
        requested = {"type": "run.requested", "run": "run-old", "action": "send-email", "session": "local"}
        tx.append({**requested, "scope": "agent", "plan_digest": digest})
        asked = {"type": "approval.requested", "approval": "act-old", "kind": "action", "run": "run-old"}
        tx.append({**asked, "digest": digest, "expires_at_us": row.expires_us})

    ledger.commit_now(write)

    assert (as_json(await query.approval(ledger, "act-old")))["plan"] == msgspec.json.decode(subject)
    await audit.decide("act-old", "approve", digest=digest, surface="operator")
    with pytest.raises(AileronError, match="request it again") as caught:
        await audit.frozen("act-old")
    assert caught.value.failure.failure_class is FailureClass.HASH_MISMATCH
    assert verify(path).finding is None
