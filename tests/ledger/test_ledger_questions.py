"""Rows that belong to questions: the last used one of an action, other digests, conversations, and uses of grants."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.ledger import (
    ApprovalRow,
    ApprovalState,
    CandidateRow,
    EventFilter,
    Ledger,
    Recorded,
    RoundRow,
    RunRow,
    Snapshot,
    Transaction,
)
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from tests.support.refusals import refusal_of

SIGNED = Signature(key_id="k", at="t", signature="s", head="1:h", head_signature="hs")


def put(ledger: Ledger, number: int, action: str = "greet", kind: str = "action") -> str:
    """Insert a question about a run, both named after the number, and return its id."""
    run = RunRow(
        id=f"run-{number}",
        action=action,
        session="local",
        scope=Scope.AGENT,
        status=RunStatus.PENDING_APPROVAL,
        plan_digest=f"d{number}",
        approval=f"act-{number}",
    )
    row = ApprovalRow(
        id=f"act-{number}",
        kind=kind,
        name=action,
        run=run.id,
        digest=f"d{number}",
        state=ApprovalState.PENDING,
        created_us=0,
        expires_us=2**60,
    )

    def write(tx: Transaction) -> None:
        tx.insert_run(run)
        tx.insert_approval(row, b"{}")

    ledger.commit_now(write)
    return row.id


def decide(ledger: Ledger, number: int, *moves: ApprovalState, **changes: Any) -> ApprovalRow:
    """Approve the question, and move it on."""
    given: dict[str, Any] = {
        "digest": f"d{number}",
        "preview": None,
        "reason": None,
        "surface": "operator",
        "signed": None,
        "expires_us": 2**60,
        **changes,
    }

    def write(tx: Transaction) -> ApprovalRow:
        row = tx.decide_approval(f"act-{number}", ApprovalState.APPROVED, **given)
        for state in moves:
            row = tx.move_approval(f"act-{number}", (ApprovalState.APPROVED,), state)
        return row

    return ledger.commit_now(write)


def last(ledger: Ledger, before: str, action: str = "greet") -> str | None:
    """Return the id of the question about the action that was used last."""
    rows = ledger.read_now(lambda snapshot: snapshot.approved_before(action, before, 1))
    return rows[0].id if rows else None


def test_the_newest_question_of_an_action_whose_approval_was_used_is_found(ledger: Ledger) -> None:
    """Skipped are questions that wait, were never used, are of another action, or are the asking one; the newest of the
    rest is found.
    """
    for number, moves in enumerate(
        ([ApprovalState.REDEEMED], [ApprovalState.REDEEMED], [], [ApprovalState.CANCELLED]), 1
    ):
        put(ledger, number)
        decide(ledger, number, *moves)
    put(ledger, 5)
    put(ledger, 6, "other")
    decide(ledger, 6, ApprovalState.REDEEMED)
    put(ledger, 7, kind="grant")
    decide(ledger, 7, ApprovalState.REDEEMED)

    assert last(ledger, "run-5") == "act-2"
    assert last(ledger, "run-2") == "act-1", "what was decided is compared with what was decided before it"
    assert last(ledger, "run-1") is None
    assert last(ledger, "run-none", "other") == "act-6"
    assert last(ledger, "run-none", "unknown") is None


def test_finding_the_newest_question_whose_approval_was_used_is_an_index_lookup(ledger: Ledger, path: Path) -> None:
    """The number of questions does not matter: rows of other actions are not read, and nothing is sorted."""
    put(ledger, 1)
    statements: list[str] = []

    def look(snapshot: Snapshot) -> None:
        snapshot._db.set_trace_callback(statements.append)
        snapshot.approved_before("greet", "run-2", 10)
        snapshot._db.set_trace_callback(None)

    ledger.read_now(look)
    connection = sqlite3.connect(path)
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statements[0]}")]
    connection.close()

    assert plan[0] == "SEARCH approvals USING INDEX approvals_used (name=? AND decided_us<?)"
    assert not any("TEMP B-TREE" in step or "SCAN approvals" in step for step in plan)


def test_a_decision_is_stored_with_its_signature(ledger: Ledger) -> None:
    """The digest of another candidate replaces the original, which is kept; all fields are read back, and a decision is
    made once.
    """
    put(ledger, 1)
    row = decide(ledger, 1, digest="e", preview="p", reason="fine", signed=SIGNED, expires_us=5)

    assert (row.digest, row.asked, row.asked_digest, row.preview, row.signed) == ("e", "d1", "d1", "p", SIGNED)
    assert (row.reason, row.expires_us, row.state) == ("fine", 5, ApprovalState.APPROVED)
    assert ledger.read_now(lambda snapshot: snapshot.approval("act-1")) == row
    assert refusal_of(decide, ledger, 1).failure_class is FailureClass.ALREADY_DECIDED
    put(ledger, 2)
    plain = decide(ledger, 2)
    assert (plain.asked, plain.asked_digest, plain.signed) == (None, "d2", None)
    with pytest.raises(AileronError, match="no approval act-9"):
        decide(ledger, 9)


def test_the_rows_of_a_question_are_returned_in_order(ledger: Ledger) -> None:
    """They are candidates, with the plans of those that have their own, and rounds; rows of another question are not
    among them.
    """
    for number in (1, 2):
        put(ledger, number)

    def write(tx: Transaction) -> None:
        for name in ("z", "a"):
            edit = CandidateRow(digest=name, plan_digest=name, preview=None, made_us=0)
            tx.insert_candidate("act-1", edit, name.encode())
        shown = CandidateRow(digest="with", plan_digest="a", preview="p", made_us=0)
        tx.insert_candidate("act-1", shown, None)
        tx.insert_round("act-1", 1, "why?")
        tx.answer_round("act-1", 1, "because")
        tx.answer_round("act-1", 1, "something else")
        tx.insert_round("act-1", 2, "and?")

    ledger.commit_now(write)

    def look(snapshot: Snapshot) -> tuple[Any, ...]:
        row = snapshot.approval("act-1")
        assert row is not None
        plans = [snapshot.plan_of(row, digest) for digest in ("d1", "z", "with", "none")]
        return [candidate.digest for candidate in snapshot.candidates("act-1")], plans, snapshot.conversation("act-1")

    digests, plans, rounds = ledger.read_now(look)
    assert digests == ["z", "a", "with"]
    assert plans == [b"{}", b"z", None, None]
    assert rounds == [RoundRow(1, "why?", "because"), RoundRow(2, "and?", None)]
    assert ledger.read_now(lambda snapshot: (snapshot.candidates("act-2"), snapshot.conversation("act-2"))) == ([], [])


def test_uses_of_a_grant_are_counted_one_by_one_and_rolled_back_on_failure(ledger: Ledger) -> None:
    """The count stops at the bound, and a function that fails after counting has not counted."""

    def fail(tx: Transaction) -> None:
        tx.use_grant("g", 2)
        raise ValueError("afterwards")

    with pytest.raises(ValueError, match="afterwards"):
        ledger.commit_now(fail)
    used = [ledger.commit_now(lambda tx: tx.use_grant("g", 2)) for _ in range(3)]

    assert used == [1, 2, None]
    assert ledger.read_now(lambda snapshot: snapshot.grant_used("g")) == 2


class Note(msgspec.Struct, frozen=True, tag_field="type", tag="note"):
    """An event of these tests."""

    n: int
    words: list[str] = []


def test_the_newest_event_of_a_type_is_visible_to_its_own_commit_group(ledger: Ledger) -> None:
    """Functions of the same group see it before it is written, and all readers afterwards."""

    def write(tx: Transaction) -> tuple[Recorded[Note] | None, Recorded[Note] | None]:
        before = tx.newest(Note)
        tx.append({"type": "note", "n": 1})
        tx.append({"type": "other"})
        return before, tx.newest(Note)

    before, within = ledger.commit_now(write)

    assert before is None
    assert within is not None
    assert (within.seq, within.event, within.problem) == (2, Note(n=1), None)
    assert within.checked() is within.event
    assert ledger.read_now(lambda snapshot: snapshot.newest(Note)) == within
    assert ledger.commit_now(lambda tx: tx.newest(Note)) == within


def test_the_valid_fields_of_a_malformed_event_are_read(ledger: Ledger) -> None:
    """This holds for every way to read it: fitting fields have their type and missing ones are None; a decision based
    on it fails.
    """
    rows: list[dict[str, Any]] = [
        {"type": "note", "words": ["a"], "later": 1},
        {"type": "note", "n": "x"},
        {"type": "note", "n": 3, "later": 1},
    ]

    def write(tx: Transaction) -> list[Recorded[Note]]:
        for facts in rows:
            tx.append(facts)
        return tx.all_of(Note, 1)

    within = ledger.commit_now(write)

    assert [msgspec.structs.asdict(row.event) for row in within] == [
        {"n": None, "words": ["a"]},
        {"n": "x", "words": []},
        {"n": 3, "words": []},
    ]
    assert ledger.read_now(lambda snapshot: snapshot.all_of(Note, 1)) == within
    assert ledger.read_now(lambda snapshot: snapshot.events_of(Note, EventFilter(oldest_first=True))) == within
    assert within[2].checked() == Note(n=3)
    for row in within[:2]:
        with pytest.raises(AileronError, match=f"row {row.seq} of the ledger is not as it was written") as caught:
            row.checked()
        assert caught.value.failure.failure_class is FailureClass.HASH_MISMATCH
