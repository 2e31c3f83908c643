"""The verbs of the record: what the spine, the gate and the daemon write down, on disk when the call returns.

Runs in the daemon. One verb is one transaction: the events and the states they change are written together or not at all,
and a run that ends, ends in exactly one way, whoever races. What others wrote (arguments, failure messages, a connector's
own events) is hostile text: it is bounded here and stored as it came.

Rules
- Write first, then act. If a verb raises, nothing of it was written and the caller must not go on.
- A state changes only from the states that the verb expects; the loser of a race is told `already_decided` with what is so.
- An outcome can always be recorded: what has no JSON form, or is too large, is recorded as that failure instead, and
  `finished` returns what was recorded.
- Every run ends with one `run.finished` or `run.unknown`. After a crash `recover` closes what was begun as `unknown`, and
  runs nothing again.

>>> async def ungated(audit, plan, invocation, layers):                                       # doctest: +SKIP
...     run_id = await audit.requested(plan, invocation, layers=layers)      # from here the intent is on disk
...     ...                                                                  # the effect
...     await audit.finished(run_id, outcome, ms)

Source: docs/reference/audit-events.md; docs/adr (audit chain). Not here: SQL (ledger/), which transitions exist
(runs/states.py), reading (query.py), checking a file (verify.py).
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from aileron.audit.events import (
    ApprovalCancelled,
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRedeemed,
    ApprovalRequested,
    ConnectorAudit,
    DaemonStarted,
    DaemonStopped,
    EgressDenied,
    EgressFinished,
    EgressSending,
    Event,
    Notice,
    PlannedStep,
    RunFinished,
    RunRefused,
    RunRequested,
    RunRetried,
    RunStarted,
    RunUnknown,
    facts_of,
)
from aileron.audit.frozen import Frozen, freeze, thaw
from aileron.audit.watch import Watch
from aileron.ledger import ApprovalRow, ApprovalState, Ledger, RunRow, Transaction
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.names import HostPort
from aileron.model.outcome import Failed, Outcome, Pending, RunStatus, Succeeded
from aileron.model.plan import Plan, Step

__all__ = ["MOVES", "Audit", "KeyTaken"]

ACTION_KIND: Final = "action"
"""The kind of an approval that a run waits for."""
MAX_OPEN_APPROVALS: Final = 1000
"""Questions that wait for a person; nobody answers a longer list, and an agent must not be able to make one."""
MAX_KEY_CHARACTERS: Final = 255
"""An idempotency key; UUIDs and hashes have at most 128."""
MAX_NAME_CHARACTERS: Final = 200
"""A name somebody made up: an action that is not there, a connector's event. Action names have at most 64."""
MAX_DESTINATION_CHARACTERS: Final = 300
"""Where a refused request wanted to go: a host name has at most 253, and a port six."""
MAX_MESSAGE_CHARACTERS: Final = 4000
"""A failure message or a person's reason: a screenful."""
MAX_DETAILS_BYTES: Final = 16 << 10
"""A failure's details or the fields of a connector's event, 16 KiB as JSON: facts, not documents."""
MAX_OUTCOME_BYTES: Final = 16 << 20
"""A stored outcome, 16 MiB as JSON: beyond what an agent can read, and one commit still takes a fraction of a second."""

_PENDING = RunStatus.PENDING_APPROVAL
_APPROVED = RunStatus.APPROVED
_RUNNING = RunStatus.RUNNING
MOVES: Final[dict[str, tuple[frozenset[RunStatus], frozenset[RunStatus]]]] = {
    "start": (frozenset({_APPROVED, _RUNNING}), frozenset({_RUNNING})),
    "redeem": (frozenset({_APPROVED}), frozenset({_RUNNING})),
    "complete": (frozenset({_RUNNING}), frozenset({RunStatus.COMPLETED})),
    "fail": (frozenset({_APPROVED, _RUNNING}), frozenset({RunStatus.FAILED})),
    "lose": (frozenset({_RUNNING}), frozenset({RunStatus.UNKNOWN})),
    "approve": (frozenset({_PENDING}), frozenset({_APPROVED})),
    "deny": (frozenset({_PENDING}), frozenset({RunStatus.DENIED})),
    "expire": (frozenset({_PENDING, _APPROVED}), frozenset({RunStatus.EXPIRED})),
    "cancel": (frozenset({_PENDING, _APPROVED}), frozenset({RunStatus.CANCELLED})),
}
"""From which states each move of a run leads where. `start` is also every later step of a running run."""


class KeyTaken(AileronError):
    """Another caller asked with the same idempotency key a moment ago; nothing was written. `earlier` finds that run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            FailureClass.BUSY,
            f"run {run_id} was asked for with this idempotency key a moment ago: ask again for its answer",
            retriable=True,
            details={"run_id": run_id},
        )


class Audit:
    """One for each daemon, around its ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.watch = Watch()
        self._begun: dict[str, tuple[str, int]] = {}
        """Runs whose first start `requested` recorded, until `started` hears of it: at most as many as run at once."""

    # A run

    async def requested(self, plan: Plan, invocation: Invocation, *, layers: Sequence[str] | None = None) -> str:
        """Record a run that no person must approve; returns its id.

        With `layers` its first step is recorded as started in the same commit (the `started` that follows for it writes
        nothing); without, the run is `approved` until `started`. KeyTaken when a run with the same idempotency key was
        recorded meanwhile: look with `earlier` first.
        """
        digest = plan.digest
        first = plan.steps[0] if layers is not None and plan.steps else None

        def write(tx: Transaction) -> str:
            run_id = _new_id("run", tx.now_us)
            _claim(tx, invocation, run_id)
            tx.insert_run(_new_run(run_id, plan, invocation, digest, _APPROVED if first is None else _RUNNING, first))
            tx.append(facts_of(_request(run_id, plan, invocation, digest)))
            if first is not None:
                tx.append(facts_of(_start(run_id, first, 1, layers or ())))
            return run_id

        run_id = await self._ledger.commit(write)
        if first is not None:
            self._begun[run_id] = (first.id, 1)
        return run_id

    async def pending(self, plan: Plan, invocation: Invocation, expires_at: float) -> Pending:
        """Record a run that a person must approve until `expires_at` (s since the epoch, UTC), its plan frozen with it.

        AileronError(busy) when too many questions wait, and as `requested` does.
        """
        digest = plan.digest
        subject = freeze(plan)
        expires_us = int(expires_at * 1_000_000)

        def write(tx: Transaction) -> Pending:
            _check_room(tx)
            run_id, approval_id = _new_id("run", tx.now_us), _new_id("act", tx.now_us)
            _claim(tx, invocation, run_id)
            tx.insert_run(_new_run(run_id, plan, invocation, digest, _PENDING, None, approval_id))
            tx.insert_approval(
                ApprovalRow(
                    id=approval_id,
                    kind=ACTION_KIND,
                    run=run_id,
                    digest=digest,
                    state=ApprovalState.PENDING,
                    created_us=tx.now_us,
                    expires_us=expires_us,
                ),
                subject,
            )
            tx.append(facts_of(_request(run_id, plan, invocation, digest)))
            tx.append(
                facts_of(
                    ApprovalRequested(
                        approval=approval_id, kind=ACTION_KIND, digest=digest, expires_at_us=expires_us, run=run_id
                    )
                )
            )
            return Pending(run_id=run_id, approval_id=approval_id, expires_at=expires_at)

        pending = await self._ledger.commit(write)
        self.watch.asked()
        return pending

    async def earlier(self, invocation: Invocation) -> RunRow | None:
        """The run that this session already asked for with this idempotency key, within 24 hours.

        AileronError(idempotency_conflict) if it asked for something else then; AileronError(outcome_unknown) if nobody
        knows what came of it: it is not run again.
        """
        key = _key_of(invocation)
        if key is None:
            return None
        asked = _digest_of(invocation)

        def find(snapshot: Any) -> RunRow | None:
            run_id = snapshot.claimed(invocation.session, key, asked, self._ledger.now_us())
            found: RunRow | None = None if run_id is None else snapshot.run(run_id)
            return found

        row = await self._ledger.read(find)
        if row is not None and row.status is RunStatus.UNKNOWN:
            raise AileronError(
                FailureClass.OUTCOME_UNKNOWN,
                f"run {row.id} was asked for with this key and cut short: see whether it took effect, then use a new key",
                details={"run_id": row.id},
            )
        return row

    async def refused(self, invocation: Invocation, failure: Failure) -> str:
        """Record a request that did not resolve, and nothing else of it; returns its audit id."""

        def write(tx: Transaction) -> str:
            run_id = _new_id("run", tx.now_us)
            refusal = RunRefused(
                run=run_id,
                session=invocation.session,
                scope=invocation.scope,
                action=_bounded(invocation.action, MAX_NAME_CHARACTERS),
                failure_class=failure.failure_class,
                message=_bounded(failure.message, MAX_MESSAGE_CHARACTERS),
            )
            tx.append(facts_of(refusal))
            return run_id

        return await self._ledger.commit(write)

    async def started(self, run_id: str, step: Step, attempt: int, layers: Sequence[str]) -> None:
        """Record that a step is about to run, for the `attempt`-th time, from 1, behind these layers of isolation."""
        if self._begun.pop(run_id, None) == (step.id, attempt):
            return

        def write(tx: Transaction) -> None:
            _move(tx, "start", run_id, _RUNNING, connector=step.connector.name)
            tx.append(facts_of(_start(run_id, step, attempt, layers)))

        await self._ledger.commit(write)
        self.watch.changed(run_id)

    async def retried(self, run_id: str, step: Step, attempt: int, failure: Failure, wait_s: float) -> None:
        """Record that the `attempt`-th try of a step failed and that another follows after `wait_s`."""
        await self._append(
            RunRetried(
                run=run_id,
                step=step.id,
                connector=step.connector.name,
                attempt=attempt,
                failure_class=failure.failure_class,
                message=_bounded(failure.message, MAX_MESSAGE_CHARACTERS),
                wait_ms=int(wait_s * 1000),
            )
        )

    async def finished(self, run_id: str, outcome: Outcome, ms: int) -> Outcome:
        """Record how a run ended, `ms` after it began; returns the outcome as it was recorded.

        The class `outcome_unknown` makes the run `unknown`. AileronError(already_decided) if it had ended before.
        """
        self._begun.pop(run_id, None)
        recorded, stored = _storable(outcome)

        def write(tx: Transaction) -> None:
            match recorded:
                case Succeeded():
                    _end(tx, "complete", run_id, RunStatus.COMPLETED, None, stored, ms)
                case Failed(failure=failure) if failure.failure_class is FailureClass.OUTCOME_UNKNOWN:
                    _lose(tx, run_id, failure, stored, ms)
                case Failed(failure=failure):
                    _end(tx, "fail", run_id, RunStatus.FAILED, failure, stored, ms)

        await self._ledger.commit(write)
        self.watch.changed(run_id)
        return recorded

    async def interrupted(self, run_id: str) -> None:
        """Record that a run was cut short by the daemon and that its outcome is unknown."""
        self._begun.pop(run_id, None)
        await self._ledger.commit(lambda tx: _cut_short(tx, run_id, "the daemon stopped while it ran"))
        self.watch.changed(run_id)

    # What a step does

    async def egress_sending(
        self,
        run_id: str,
        step: Step,
        *,
        request: int,
        method: str,
        destination: HostPort,
        path: str,
        credential: str | None,
    ) -> None:
        """Record a request that is about to leave: the `request`-th of its step, `path` without the query."""
        await self._append(
            EgressSending(
                run=run_id,
                step=step.id,
                connector=step.connector.name,
                request=request,
                method=method,
                host=destination.host,
                port=destination.port,
                path=path.partition("?")[0],  # the caller has cut it off already; a query may hold a secret, so twice
                credential=credential,
            )
        )

    async def egress_finished(
        self,
        run_id: str,
        step: Step,
        *,
        request: int,
        status: int | None,
        bytes_up: int,
        bytes_down: int,
        ms: float,
        address: str | None,
        scrubbed: int,
        failure_class: FailureClass | None,
    ) -> None:
        """Record how the `request`-th request of a step ended; sizes in bytes, of bodies only."""
        await self._append(
            EgressFinished(
                run=run_id,
                step=step.id,
                connector=step.connector.name,
                request=request,
                status=status,
                bytes_up=bytes_up,
                bytes_down=bytes_down,
                ms=int(ms),
                address=address,
                scrubbed=scrubbed,
                failure_class=failure_class,
            )
        )

    async def egress_denied(
        self, run_id: str, step: Step, *, request: int, method: str, destination: str, reason: str
    ) -> None:
        """Record that a rule refused the `request`-th request of a step; `method` and `destination` are hostile text."""
        await self._append(
            EgressDenied(
                run=run_id,
                step=step.id,
                connector=step.connector.name,
                request=request,
                method=_bounded(method, MAX_NAME_CHARACTERS),
                destination=_bounded(destination, MAX_DESTINATION_CHARACTERS),
                reason=reason,
            )
        )

    async def connector_event(self, run_id: str, step: Step, event: str, fields: dict[str, Any]) -> None:
        """Record what a connector says for the record.

        AileronError(connector_runtime_error) if it has no canonical JSON form or is larger than MAX_DETAILS_BYTES.
        """
        if (problem := _unfit(fields)) is not None:
            raise AileronError(
                FailureClass.CONNECTOR_RUNTIME_ERROR,
                f"{step.connector} wrote an audit event that cannot be recorded: {problem}",
                boundary=Boundary.SANDBOX,
            )
        name = _bounded(event, MAX_NAME_CHARACTERS)
        await self._append(
            ConnectorAudit(run=run_id, step=step.id, connector=step.connector.name, event=name, fields=fields)
        )

    # Questions to a person

    async def frozen(self, approval_id: str) -> Frozen:
        """What a run waits for: its plan, exactly as it was shown.

        AileronError(not_found), or (hash_mismatch) if what is stored is not what the approval is bound to.
        """
        row, subject = await self._ledger.read(
            lambda snapshot: (snapshot.approval(approval_id), snapshot.subject(approval_id))
        )
        if row is None or subject is None or row.run is None or row.kind != ACTION_KIND:
            raise _no_approval(approval_id)
        return Frozen(row.run, thaw(subject, row.digest, approval_id), row.created_us / 1_000_000)

    async def decide(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"],
        *,
        digest: str,
        surface: str,
        reason: str | None = None,
    ) -> ApprovalRow:
        """Record a person's decision about the bytes of `digest`, once; returns the approval as it now is.

        AileronError: not_found; approval_expired; already_decided with `details.status`; invalid_request if `digest` is not
        what is asked about.
        """
        reason = None if reason is None else _bounded(reason, MAX_MESSAGE_CHARACTERS)
        state = ApprovalState.APPROVED if decision == "approve" else ApprovalState.DENIED

        def write(tx: Transaction) -> _Settled:
            row = _approval(tx, approval_id)
            if row.state is ApprovalState.PENDING and row.expires_us <= tx.now_us:
                return _Settled(row, _expire(tx, row))
            if row.state is ApprovalState.EXPIRED:
                raise _expired(row.id)
            if row.digest != digest:
                raise AileronError(
                    FailureClass.INVALID_REQUEST,
                    f"the decision is about {digest}, but {approval_id} is about {row.digest}: look at it again",
                )
            row = tx.move_approval(approval_id, (ApprovalState.PENDING,), state, reason=reason, surface=surface)
            decided = ApprovalDecided(
                approval=row.id,
                kind=row.kind,
                digest=digest,
                decision=decision,
                surface=surface,
                reason=reason,
                run=row.run,
            )
            tx.append(facts_of(decided))
            if row.run is not None and decision == "approve":
                _move(tx, "approve", row.run, _APPROVED)
            elif row.run is not None:
                _end_unstarted(tx, "deny", row.run, RunStatus.DENIED, _denied(row))
            return _Settled(row)

        return await self._settle(write)

    async def redeem(self, approval_id: str, digest: str, now: float | None = None) -> None:
        """Use an approval for `digest`, once; its run is `running` when this returns. `now` in s since the epoch.

        AileronError: not_found, approval_denied, approval_expired, cancelled, hash_mismatch, already_decided (not decided
        yet, or used before).
        """

        def write(tx: Transaction) -> _Settled:
            row, late = _usable(tx, approval_id, tx.now_us if now is None else int(now * 1_000_000))
            if late is not None:
                return _Settled(row, late)
            if row.digest != digest:
                raise AileronError(FailureClass.HASH_MISMATCH, f"{approval_id} approves other bytes than these")
            _use(tx, row)
            if row.run is not None:
                _move(tx, "redeem", row.run, _RUNNING)
            return _Settled(row)

        await self._settle(write)

    async def give_up(self, approval_id: str, failure: Failure) -> Failed:
        """Record that an approved run will not begin, and why; the decision is used up. Returns the outcome.

        AileronError as `redeem` says: there is nothing to give up unless a person approved it and it has not begun.
        """

        def write(tx: Transaction) -> _Settled:
            row, late = _usable(tx, approval_id, tx.now_us)
            if late is not None:
                return _Settled(row, late)
            _use(tx, row)
            if row.run is not None:
                _end_unstarted(tx, "fail", row.run, RunStatus.FAILED, failure)
            return _Settled(row)

        row = await self._settle(write)
        return Failed(run_id=row.run or row.id, failure=failure)

    async def cancel(self, approval_id: str, *, surface: str) -> ApprovalRow:
        """Record that whoever asked took the question back; nothing will run. Returns the approval as it now is.

        AileronError: not_found, approval_expired, already_decided with `details.status`.
        """

        def write(tx: Transaction) -> _Settled:
            row = _approval(tx, approval_id)
            if row.state is ApprovalState.EXPIRED:
                raise _expired(row.id)
            if row.state in _OPEN_STATES and row.expires_us <= tx.now_us:
                return _Settled(row, _expire(tx, row))
            row = tx.move_approval(approval_id, _OPEN_STATES, ApprovalState.CANCELLED, surface=surface)
            tx.append(facts_of(ApprovalCancelled(approval=row.id, surface=surface, run=row.run)))
            if row.run is not None:
                _end_unstarted(tx, "cancel", row.run, RunStatus.CANCELLED, _cancelled(row.id))
            return _Settled(row)

        return await self._settle(write)

    async def expire_due(self) -> list[str]:
        """Close every question whose time is over; returns the ids of the approvals."""
        expired = await self._ledger.commit(_expire_due)
        for row in expired:
            self.watch.changed(row.run)
        return [row.id for row in expired]

    async def _settle(self, write: Callable[[Transaction], _Settled]) -> ApprovalRow:
        settled = await self._ledger.commit(write)
        self.watch.changed(settled.row.run)
        if settled.refusal is not None:
            raise settled.refusal
        return settled.row

    # The daemon and what is installed

    async def recover(self) -> list[str]:
        """Close what the last daemon left open; returns the runs whose outcome is unknown. Call before anything runs.

        Begun → unknown. Pending, and approved by a person → as it is, until it expires. Admitted by the rules but not
        begun → cancelled: nothing happened, and whoever asked is gone.
        """

        def write(tx: Transaction) -> list[str]:
            _expire_due(tx)
            lost = [row.id for row in tx.runs_in(_RUNNING)]
            for run_id in lost:
                _cut_short(tx, run_id, "the daemon ended while it ran")
            for row in tx.runs_in(_APPROVED):
                if row.approval is None:
                    _end_unstarted(tx, "cancel", row.id, RunStatus.CANCELLED, _cancelled(row.id))
            return lost

        return await self._ledger.commit(write)

    async def note(self, event: Notice) -> int:
        """Record something that changes no run or approval; returns the row's number."""
        return await self._append(event)

    async def daemon_started(self, version: str, layers: Sequence[str]) -> None:
        """Record that a daemon serves this home, with this isolation."""
        await self.note(DaemonStarted(version=version, home=str(self._ledger.path.parent), layers=list(layers)))

    async def daemon_stopped(self, version: str) -> None:
        """Record that it stopped as it should."""
        await self.note(DaemonStopped(version=version))

    async def _append(self, event: Event) -> int:
        return await self._ledger.commit(lambda tx: tx.append(facts_of(event)))


_OPEN_STATES: Final = (ApprovalState.PENDING, ApprovalState.APPROVED)


class _Settled(NamedTuple):
    """What became of an approval; `refusal` is what the caller is told, on record and therefore not raised inside."""

    row: ApprovalRow
    refusal: AileronError | None = None


# Parts of transactions. Each runs in the writer's thread.


def _move(tx: Transaction, move: str, run_id: str, new: RunStatus, **changes: Any) -> RunRow:
    expected, reached = MOVES[move]
    assert new in reached
    return tx.move_run(run_id, expected, new, **changes)


def _end(
    tx: Transaction,
    move: str,
    run_id: str,
    status: RunStatus,
    failure: Failure | None,
    stored: bytes,
    ms: int | None,
) -> None:
    row = _move(tx, move, run_id, status, outcome=stored)
    ended = RunFinished(
        run=run_id,
        session=row.session,
        action=row.action,
        status=status,
        connector=row.connector,
        failure_class=None if failure is None else failure.failure_class,
        message=None if failure is None else failure.message,
        boundary=None if failure is None else failure.boundary,
        details=None if failure is None or not failure.details else _recordable(failure.details),
        ms=ms,
        outcome_digest=sha256_digest(stored),
    )
    tx.append(facts_of(ended))


def _end_unstarted(tx: Transaction, move: str, run_id: str, status: RunStatus, failure: Failure) -> None:
    _end(tx, move, run_id, status, failure, _storable(Failed(run_id=run_id, failure=failure))[1], None)


def _lose(tx: Transaction, run_id: str, failure: Failure, stored: bytes, ms: int | None) -> None:
    row = _move(tx, "lose", run_id, RunStatus.UNKNOWN, outcome=stored)
    lost = RunUnknown(
        run=run_id,
        session=row.session,
        action=row.action,
        connector=row.connector,
        message=failure.message,
        ms=ms,
        outcome_digest=sha256_digest(stored),
    )
    tx.append(facts_of(lost))


def _cut_short(tx: Transaction, run_id: str, why: str) -> None:
    failure = Failure(
        failure_class=FailureClass.OUTCOME_UNKNOWN,
        message=f"{why}: it may or may not have taken effect; look before you ask for it again",
        boundary=Boundary.RUNTIME,
    )
    _lose(tx, run_id, failure, _storable(Failed(run_id=run_id, failure=failure))[1], None)


def _usable(tx: Transaction, approval_id: str, now_us: int) -> tuple[ApprovalRow, AileronError | None]:
    """An approval that a person approved and nobody used, or the error that its time was over, on record now.

    AileronError for every other state, but for `pending` and `redeemed`, of which `_use` tells.
    """
    row = _approval(tx, approval_id)
    match row.state:
        case ApprovalState.PENDING | ApprovalState.APPROVED if row.expires_us <= now_us:
            return row, _expire(tx, row)
        case ApprovalState.DENIED:
            raise AileronError.of(_denied(row))
        case ApprovalState.EXPIRED:
            raise _expired(row.id)
        case ApprovalState.CANCELLED:
            raise AileronError.of(_cancelled(row.id))
    return row, None


def _use(tx: Transaction, row: ApprovalRow) -> None:
    tx.move_approval(row.id, (ApprovalState.APPROVED,), ApprovalState.REDEEMED)
    tx.append(facts_of(ApprovalRedeemed(approval=row.id, digest=row.digest, run=row.run)))


def _expire_due(tx: Transaction) -> list[ApprovalRow]:
    due = tx.open_approvals(due_us=tx.now_us)
    for row in due:
        _expire(tx, row)
    return due


def _expire(tx: Transaction, row: ApprovalRow) -> AileronError:
    """Close an open approval whose time is over; returns what its user is told.

    Returned, not raised: an error raised in a transaction undoes it, and the expiry is to stay.
    """
    tx.move_approval(row.id, _OPEN_STATES, ApprovalState.EXPIRED)
    was: Literal["pending_approval", "approved"] = (
        "pending_approval" if row.state is ApprovalState.PENDING else "approved"
    )
    tx.append(facts_of(ApprovalExpired(approval=row.id, was=was, run=row.run)))
    error = _expired(row.id)
    if row.run is not None:
        _end_unstarted(tx, "expire", row.run, RunStatus.EXPIRED, error.failure)
    return error


def _approval(tx: Transaction, approval_id: str) -> ApprovalRow:
    row = tx.approval(approval_id)
    if row is None:
        raise _no_approval(approval_id)
    return row


def _check_room(tx: Transaction) -> None:
    if tx.count_open_approvals() >= MAX_OPEN_APPROVALS:
        raise AileronError(
            FailureClass.BUSY,
            f"{MAX_OPEN_APPROVALS} questions wait for a person: have some decided, or expire, first (`aileron approval list`)",
        )


def _claim(tx: Transaction, invocation: Invocation, run_id: str) -> None:
    key = _key_of(invocation)
    if key is None:
        return
    holder = tx.claim(invocation.session, key, _digest_of(invocation), run_id)
    if holder is not None:
        raise KeyTaken(holder)


# Values


def _request(run_id: str, plan: Plan, invocation: Invocation, digest: str) -> RunRequested:
    return RunRequested(
        run=run_id,
        session=invocation.session,
        scope=invocation.scope,
        action=plan.action,
        action_version=plan.action_version,
        action_digest=plan.action_digest,
        plan_digest=digest,
        args=plan.args,
        steps=[_planned(step) for step in plan.steps],
    )


def _planned(step: Step) -> PlannedStep:
    credential = step.grant.credential
    return PlannedStep(
        id=step.id,
        connector=step.connector.name,
        version=step.connector.version,
        hash=step.connector.hash,
        op=step.op,
        hosts=sorted(str(host) for host in step.grant.hosts),
        credential=None if credential is None else str(credential.binding),
        idempotent=step.idempotent,
    )


def _start(run_id: str, step: Step, attempt: int, layers: Sequence[str]) -> RunStarted:
    return RunStarted(
        run=run_id, step=step.id, connector=step.connector.name, op=step.op, attempt=attempt, layers=list(layers)
    )


def _new_run(
    run_id: str,
    plan: Plan,
    invocation: Invocation,
    digest: str,
    status: RunStatus,
    first: Step | None,
    approval_id: str | None = None,
) -> RunRow:
    return RunRow(
        id=run_id,
        action=plan.action,
        session=invocation.session,
        scope=invocation.scope,
        status=status,
        plan_digest=digest,
        approval=approval_id,
        connector=None if first is None else first.connector.name,
    )


def _new_id(prefix: str, now_us: int) -> str:
    """`run-20261121T035800-…`: sorts by time, and 80 random bits, so that knowing one does not give another."""
    moment = datetime.datetime.fromtimestamp(now_us // 1_000_000, datetime.UTC)
    return f"{prefix}-{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(10)}"


def _key_of(invocation: Invocation) -> str | None:
    key = invocation.idempotency_key
    if key is not None and not (0 < len(key) <= MAX_KEY_CHARACTERS and key.isprintable()):
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"an idempotency key is 1 to {MAX_KEY_CHARACTERS} printable characters, this one has {len(key)}",
        )
    return key


def _digest_of(invocation: Invocation) -> str:
    """What must be the same for a key to be used again: what is asked for, not who asks."""
    asked = {"action": invocation.action, "args": invocation.args, "binding": invocation.binding}
    try:
        return sha256_digest(canonical_json(asked))
    except ValueError as error:
        raise AileronError(FailureClass.BAD_INPUT, f"the arguments have {error}") from error


def _storable(outcome: Outcome) -> tuple[Outcome, bytes]:
    """An outcome that can be stored, and its bytes: the one given, or one that says why that one cannot be."""
    outcome = _with_bounded_message(outcome)
    try:
        stored = msgspec.json.encode(outcome)
    except (TypeError, ValueError, RecursionError) as error:
        return _storable(_replaced(outcome, FailureClass.CONNECTOR_RUNTIME_ERROR, f"is not JSON: {error}", {}))
    if len(stored) > MAX_OUTCOME_BYTES:
        problem = f"has {len(stored)} bytes, at most {MAX_OUTCOME_BYTES} can be kept"
        return _storable(_replaced(outcome, FailureClass.RESOURCE_LIMIT_EXCEEDED, problem, {"limit": "output"}))
    return outcome, stored


def _with_bounded_message(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Succeeded):
        return outcome
    message = _bounded(outcome.failure.message, MAX_MESSAGE_CHARACTERS)
    if message == outcome.failure.message:
        return outcome
    return Failed(run_id=outcome.run_id, failure=msgspec.structs.replace(outcome.failure, message=message))


def _replaced(outcome: Outcome, failure_class: FailureClass, problem: str, details: dict[str, Any]) -> Failed:
    """A failure keeps its class and loses its details; a result becomes a failure of its own."""
    if isinstance(outcome, Failed):
        failure = msgspec.structs.replace(outcome.failure, details={"omitted": _bounded(problem, MAX_NAME_CHARACTERS)})
    else:
        failure = Failure(
            failure_class=failure_class,
            message=f"the action ended well, but its result {problem}",
            boundary=Boundary.SANDBOX,
            details=details,
        )
    return Failed(run_id=outcome.run_id, failure=failure)


def _recordable(details: dict[str, Any]) -> dict[str, Any]:
    problem = _unfit(details)
    return details if problem is None else {"omitted": problem}


def _unfit(fields: dict[str, Any]) -> str | None:
    """Why these cannot be part of a record."""
    try:
        size = len(canonical_json(fields))
    except ValueError as error:
        return _bounded(str(error), MAX_NAME_CHARACTERS)
    return None if size <= MAX_DETAILS_BYTES else f"{size} bytes, at most {MAX_DETAILS_BYTES} fit"


def _bounded(text: str, characters: int) -> str:
    """At most so many characters, and none that UTF-8 cannot say (lone surrogates)."""
    return text[:characters].encode("utf-8", "replace").decode("utf-8")


def _denied(row: ApprovalRow) -> Failure:
    said = f": {row.reason}" if row.reason else ""
    return Failure(
        failure_class=FailureClass.APPROVAL_DENIED,
        message=f"a person denied it{said}",
        boundary=Boundary.USER,
        details={"reason": row.reason} if row.reason else {},
    )


def _cancelled(name: str) -> Failure:
    return Failure(
        failure_class=FailureClass.CANCELLED,
        message=f"{name} was cancelled before anything ran",
        boundary=Boundary.USER,
    )


def _expired(approval_id: str) -> AileronError:
    return AileronError(
        FailureClass.APPROVAL_EXPIRED,
        f"the time to approve {approval_id} is over and nothing ran: ask for the action again",
        boundary=Boundary.USER,
    )


def _no_approval(approval_id: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, f"no approval {_bounded(approval_id, MAX_NAME_CHARACTERS)}")
