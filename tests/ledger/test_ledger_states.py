"""States: compare-and-set, one winner in every race, and idempotency keys that are kept for a day."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest

from aileron.ledger import ApprovalRow, ApprovalState, Ledger, RunRow, Transaction
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from tests.support.refusals import refusal_of

pytestmark = pytest.mark.anyio

DAY_S = 24 * 3600


def a_run(run_id: str = "run-1", status: RunStatus = RunStatus.RUNNING, **changes: Any) -> RunRow:
    """Return a run in a state."""
    fixed: dict[str, Any] = {"action": "greet", "session": "local", "scope": Scope.AGENT, "plan_digest": "sha256:p"}
    return RunRow(id=run_id, status=status, **fixed, **changes)


def an_approval(approval_id: str = "act-1", state: ApprovalState = ApprovalState.PENDING) -> ApprovalRow:
    """Return a question about a run."""
    return ApprovalRow(
        id=approval_id,
        kind="action",
        run="run-1",
        digest="sha256:p",
        state=state,
        created_us=0,
        expires_us=1_800_000_900_000_000,
    )


def put_run(ledger: Ledger, row: RunRow) -> None:
    """Insert a run."""
    ledger.commit_now(lambda tx: tx.insert_run(row))


def put_approval(ledger: Ledger, row: ApprovalRow, subject: bytes = b"{}") -> None:
    """Insert a question."""
    ledger.commit_now(lambda tx: tx.insert_approval(row, subject))


def runs_in(ledger: Ledger, status: RunStatus) -> list[RunRow]:
    """Return the runs of a status."""
    return ledger.read_now(lambda snapshot: snapshot.runs_in(status))


def test_a_run_moves_only_from_an_expected_state(ledger: Ledger) -> None:
    """Every pair of states is tried: the run moves if its state was expected, and otherwise the failure has its state."""
    for number, (now, expected) in enumerate(itertools.product(RunStatus, RunStatus)):
        run_id = f"run-{number}"
        put_run(ledger, a_run(run_id, now))

        def move(tx: Transaction, run_id: str = run_id, expected: RunStatus = expected) -> RunRow:
            return tx.move_run(run_id, {expected}, RunStatus.UNKNOWN)

        if now is expected:
            assert ledger.commit_now(move).status is RunStatus.UNKNOWN
        else:
            with pytest.raises(AileronError) as caught:
                ledger.commit_now(move)
            assert caught.value.failure.failure_class is FailureClass.ALREADY_DECIDED
            assert caught.value.failure.details == {"status": now.value}


def test_fields_of_a_run_that_a_transition_does_not_set_are_kept(ledger: Ledger) -> None:
    """Connector and outcome are written once and kept; the times change."""
    ledger.commit_now(lambda tx: tx.insert_run(a_run(connector="github://a/b")))
    first = ledger.read_now(lambda snapshot: snapshot.run("run-1"))
    moved = ledger.commit_now(
        lambda tx: tx.move_run("run-1", {RunStatus.RUNNING}, RunStatus.FAILED, outcome=b'{"x":1}')
    )
    read = ledger.read_now(lambda snapshot: snapshot.run("run-1"))

    assert first is not None
    assert read == moved
    assert (moved.connector, moved.outcome, moved.created_us) == ("github://a/b", b'{"x":1}', first.created_us)
    assert moved.changed_us > first.changed_us


def test_a_missing_run_or_approval_is_not_found(ledger: Ledger) -> None:
    """Reading gives None, and moving fails."""
    assert ledger.read_now(lambda s: (s.run("x"), s.approval("x"), s.subject("x"))) == (None, None, None)
    for move in (
        lambda tx: tx.move_run("x", {RunStatus.RUNNING}, RunStatus.FAILED),
        lambda tx: tx.move_approval("x", {ApprovalState.PENDING}, ApprovalState.DENIED),
    ):
        with pytest.raises(AileronError, match=r"no (run|approval) x") as caught:
            ledger.commit_now(move)
        assert caught.value.failure.failure_class is FailureClass.NOT_FOUND


def test_the_loser_of_an_approval_race_gets_the_status_of_the_run(ledger: Ledger) -> None:
    """Callers know the statuses of runs: a used approval is reported by the status of its run."""
    ledger.commit_now(lambda tx: tx.insert_run(a_run(status=RunStatus.COMPLETED)))
    ledger.commit_now(lambda tx: tx.insert_approval(an_approval(state=ApprovalState.REDEEMED), b"{}"))

    assert refusal_of(
        ledger.commit_now, lambda tx: tx.move_approval("act-1", {ApprovalState.PENDING}, ApprovalState.DENIED)
    ).details == {"status": "completed"}


def test_open_approvals_are_in_the_order_of_their_expiry(ledger: Ledger) -> None:
    """Decided and used ones are not among them; the subject is returned as it was stored."""
    for number, state in enumerate(ApprovalState):
        put_approval(ledger, an_approval(f"act-{number}", state), b"\x00 as stored")

    found = ledger.read_now(lambda snapshot: snapshot.open_approvals())
    due = ledger.read_now(lambda snapshot: snapshot.open_approvals(due_us=1_800_000_899_999_999))

    assert [row.state for row in found] == [ApprovalState.PENDING, ApprovalState.APPROVED]
    assert due == []
    assert ledger.read_now(lambda snapshot: snapshot.count_open_approvals()) == 2
    assert ledger.read_now(lambda snapshot: snapshot.subject("act-0")) == b"\x00 as stored"


def test_only_runs_in_states_that_are_not_final_can_be_listed(ledger: Ledger) -> None:
    """Recovery needs those; a list of all completed runs would have no bound."""
    for number, status in enumerate(RunStatus):
        put_run(ledger, a_run(f"run-{number}", status))

    for status in RunStatus:
        if status.is_final:
            with pytest.raises(ValueError, match="final"):
                runs_in(ledger, status)
        else:
            (row,) = runs_in(ledger, status)
            assert row.status is status


async def test_one_of_many_claims_of_an_idempotency_key_succeeds(ledger: Ledger) -> None:
    """The others get the id of the winner."""
    holders: list[str | None] = []

    async def claim(run_id: str) -> None:
        holders.append(await ledger.commit(lambda tx: tx.claim("local", "key", "sha256:a", run_id)))

    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(claim, f"run-{number}")

    winners = [holder for holder in holders if holder is None]
    assert len(winners) == 1
    assert len(set(holders)) == 2


def test_an_idempotency_key_belongs_to_its_session_and_its_arguments(ledger: Ledger) -> None:
    """Another session may use the same text. The key with other arguments is a conflict that names the run."""
    assert ledger.commit_now(lambda tx: tx.claim("one", "key", "sha256:a", "run-1")) is None
    assert ledger.commit_now(lambda tx: tx.claim("two", "key", "sha256:b", "run-2")) is None
    assert ledger.commit_now(lambda tx: tx.claim("one", "key", "sha256:a", "run-3")) == "run-1"

    with pytest.raises(AileronError) as caught:
        ledger.commit_now(lambda tx: tx.claim("one", "key", "sha256:b", "run-4"))

    assert caught.value.failure.failure_class is FailureClass.IDEMPOTENCY_CONFLICT
    assert caught.value.failure.details == {"run_id": "run-1"}


def test_an_idempotency_key_is_kept_for_a_day(ledger: Ledger, clock: Any) -> None:
    """The key is taken a second before its day is over, and free for any arguments a second after."""
    ledger.commit_now(lambda tx: tx.claim("local", "key", "sha256:a", "run-1"))
    clock.advance(DAY_S - 1)
    assert ledger.commit_now(lambda tx: tx.claim("local", "key", "sha256:a", "run-2")) == "run-1"
    clock.advance(2)

    assert ledger.commit_now(lambda tx: tx.claim("local", "key", "sha256:b", "run-3")) is None
    assert ledger.commit_now(lambda tx: tx.claim("local", "key", "sha256:b", "run-4")) == "run-3"
