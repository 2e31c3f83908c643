"""The methods ("verbs") by which the spine (runs/spine.py), the gate and the daemon write records, on disk when the call returns.

Runs in the daemon. One verb is one transaction: the events and the states they change are written together or not at
all, and a run ends in exactly one way, even if callers race. Untrusted text (arguments, failure messages, a connector's
own events) is hostile: it is bounded here, or by the caller of `note`, and otherwise stored unchanged.

Rules
- Write first, then act. If a verb raises, it wrote nothing and the caller must not continue.
- A state changes only from the states that the verb expects; the loser of a race gets `already_decided` with the current state.
- An outcome can always be recorded: for one that has no JSON form, or is too large, a failure that says so is recorded
  instead, and `finished` returns the recorded outcome.
- Every run ends with one `run.finished` or `run.unknown`. After a crash `recover` closes every run that had started as
  `unknown`, and runs nothing again.

>>> async def ungated(audit, plan, invocation, layers):                                       # doctest: +SKIP
...     run_id = await audit.requested(plan, invocation, layers=layers)      # from here the intent is on disk
...     ...                                                                  # the effect
...     await audit.finished(run_id, outcome, ms)

Source: docs/reference/audit-events.md; docs/adr (audit chain). Not here: SQL (ledger/), which transitions exist
(runs/states.py), questions to a person (questions.py), how runs end (moves.py), reading (query.py), checking (verify.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec

from aileron.audit.events import (
    ApprovalRefused,
    ApproverSet,
    CallerRefused,
    ConnectorAudit,
    ConsentAgreed,
    ConsentEnded,
    DaemonStarted,
    DaemonStopped,
    EgressEvent,
    Event,
    GrantRevoked,
    GrantUsed,
    Notice,
    PasskeyAdded,
    PasskeyRemoved,
    PlannedStep,
    RefusedReason,
    RefusedTry,
    RunRefused,
    RunRequested,
    RunRetried,
    RunStarted,
    TunnelRefused,
    facts_of,
)
from aileron.audit.frozen import freeze
from aileron.audit.hosts_on_record import AskedHost, hosts_on_record
from aileron.audit.moves import (
    MAX_DESTINATION_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MOVES,
    bounded,
    end,
    end_unstarted,
    lose,
    mark_interrupted,
    move,
    new_id,
    storable,
    unfit,
)
from aileron.audit.passkeys_on_record import PasskeysOnRecord, passkeys_on_record
from aileron.audit.questions import Questions, cancelled, expire_due, insert_question
from aileron.audit.refusals import Tally, Throttle
from aileron.audit.tools_on_record import ToolsOnRecord, tools_on_record
from aileron.ledger import ACTION_KIND, ApprovalRow, ApprovalState, EventFilter, Ledger, RunRow, Transaction
from aileron.ledger.sqlite import MAX_ROWS
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.consent import ConsentKind, Passkey, subject_digest
from aileron.model.decision import ApproverStatement
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.json_value import JSONObject
from aileron.model.misfit import misfit_in
from aileron.model.names import HostPort
from aileron.model.outcome import Failed, Outcome, Pending, RunStatus, Succeeded
from aileron.model.plan import Plan, Step
from aileron.model.shares import party_of

__all__ = ["MOVES", "Audit", "GrantSpent", "GrantUse", "KeyTaken", "Repeated"]

MAX_KEY_CHARACTERS: Final = 255
"""Maximum number of characters in an idempotency key; UUIDs and hashes have at most 128."""
REFUSALS_A_MINUTE: Final = 60
"""Maximum number of refused decisions per minute that are recorded one by one. A person with a wrong passphrase stays
below this limit; a program that guesses does not.
"""


_MAY_HAVE_HAPPENED: Final = (
    "{run} made the same request and was interrupted, so it may have taken effect. Check whether it did. If you still want it, "
    "run it with --again {run}{key}. Its record: aileron audit show {run}"
)


class GrantUse(msgspec.Struct, frozen=True):
    """Id of the standing grant that admits a run, and the grant's maximum number of uses."""

    id: str
    uses: int


class GrantSpent(AileronError):
    """Error: the standing grant that was to admit a run has no uses left, or was revoked a moment ago. Nothing was
    recorded; a person must be asked instead.
    """

    def __init__(self, grant_id: str) -> None:
        super().__init__(
            FailureClass.CONSENT_REQUIRED,
            f"grant {bounded(grant_id, MAX_NAME_CHARACTERS)} has no uses left: a person must decide",
            boundary=Boundary.USER,
        )
        self.grant = grant_id


class Repeated(AileronError):
    """Error: the same plan ran before with an unknown outcome, so the run was not recorded.

    A caller that has checked the earlier run can repeat it by naming it in `again`.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            FailureClass.OUTCOME_UNKNOWN,
            f"not run again: {_MAY_HAVE_HAPPENED.format(run=run_id, key='')}",
            details={"run_id": run_id},
        )


class KeyTaken(AileronError):
    """Error: another caller used the same idempotency key a moment ago, so the run was not recorded. `earlier` finds
    that caller's run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            FailureClass.BUSY,
            f"run {run_id} was requested with this idempotency key a moment ago: repeat the request to get its result",
            retriable=True,
            details={"run_id": run_id},
        )


class Audit(Questions):
    """The audit trail of one daemon, with methods to record every event in its ledger. The methods for questions to a
    person are in questions.py.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._refused: Throttle[_RefusedKey] = Throttle(REFUSALS_A_MINUTE)
        self._callers: Throttle[tuple[str, str]] = Throttle(1)
        self._tunnels: dict[str, Throttle[tuple[str, str, str]]] = {}
        """Limits for the number of records about refused hosts, by session, so that hosts that one session makes up do
        not use up another session's limit.
        """
        self._begun: dict[str, tuple[str, int]] = {}
        """Runs whose first step was recorded as started by the method `requested`, until `started` is called for that
        step. There are at most as many as run at the same time.
        """

    # A run

    async def requested(
        self,
        plan: Plan,
        invocation: Invocation,
        *,
        layers: Sequence[str] | None = None,
        grant: GrantUse | None = None,
    ) -> str:
        """Record a run that needs no person's approval, or that a standing `grant` admits; return the run's id.

        With `layers`, the first step is recorded as started in the same commit, and the later `started` for that step writes
        nothing. Without `layers`, the run is `approved` until `started`. A use of the grant is counted in the same commit.

        Raises KeyTaken if a run with the same idempotency key was recorded meanwhile, so call `earlier` first. Raises GrantSpent
        if the grant has no use left, and Repeated if the same plan ran before and its outcome is unknown.
        """
        digest = plan.digest
        first = plan.steps[0] if layers is not None and plan.steps else None

        def write(tx: Transaction) -> str:
            run_id = new_id("run", tx.now_us)
            status = RunStatus.APPROVED if first is None else RunStatus.RUNNING
            _claim(tx, invocation, run_id)
            _check_repeated(tx, plan, digest, invocation)
            tx.insert_run(_new_run(run_id, plan, invocation, digest, status, first))
            tx.append(facts_of(_request(run_id, plan, invocation, digest)))
            if grant is not None:
                _use_grant(tx, grant, run_id)
            if first is not None:
                tx.append(facts_of(_start(run_id, first, 1, layers or ())))
            return run_id

        run_id = await self._ledger.commit(write)
        if first is not None:
            self._begun[run_id] = (first.id, 1)
        return run_id

    async def pending(self, plan: Plan, invocation: Invocation, expires_at: float) -> Pending:
        """Record a run that a person must approve before `expires_at` (seconds since the epoch), together with its
        frozen plan.

        Raises AileronError(busy) if too many questions of its party, or in all, are open; otherwise the errors of `requested`.
        """
        subject, digest = freeze(plan)
        expires_us = int(expires_at * 1_000_000)

        def write(tx: Transaction) -> Pending:
            run_id, approval_id = new_id("run", tx.now_us), new_id("act", tx.now_us)
            self._take_place(tx, run_id, party_of(invocation.scope, invocation.session, invocation.party))
            _claim(tx, invocation, run_id)
            _check_repeated(tx, plan, digest, invocation)
            tx.insert_run(_new_run(run_id, plan, invocation, digest, RunStatus.PENDING_APPROVAL, None, approval_id))
            tx.append(facts_of(_request(run_id, plan, invocation, digest)))
            question = ApprovalRow(
                id=approval_id,
                kind=ACTION_KIND,
                name=plan.action,
                run=run_id,
                digest=digest,
                state=ApprovalState.PENDING,
                created_us=tx.now_us,
                expires_us=expires_us,
            )
            insert_question(tx, question, subject)
            return Pending(run_id=run_id, approval_id=approval_id, expires_at=expires_at)

        pending = await self._ledger.commit(write)
        self.watch.asked()
        return pending

    async def earlier(self, invocation: Invocation) -> RunRow | None:
        """Return the run that this session requested with this idempotency key within the last 24 hours, or None.

        Raises AileronError(idempotency_conflict) if that request was a different one, and AileronError(outcome_unknown) if
        its outcome is unknown: that run is not repeated.
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
                f"not run again: {_MAY_HAVE_HAPPENED.format(run=row.id, key=' and a new key')}",
                details={"run_id": row.id},
            )
        return row

    async def refused(self, invocation: Invocation, failure: Failure) -> str:
        """Record a request that did not resolve to a plan, and return its audit id. The request has no other events."""

        def write(tx: Transaction) -> str:
            run_id = new_id("run", tx.now_us)
            refusal = RunRefused(
                run=run_id,
                session=invocation.session,
                scope=invocation.scope,
                action=bounded(invocation.action, MAX_NAME_CHARACTERS),
                failure_class=failure.failure_class,
                message=bounded(failure.message, MAX_MESSAGE_CHARACTERS),
            )
            tx.append(facts_of(refusal))
            return run_id

        return await self._ledger.commit(write)

    async def started(self, run_id: str, step: Step, attempt: int, layers: Sequence[str]) -> None:
        """Record that a step is about to run in its attempt number `attempt`, from 1, with these layers of isolation in
        force.
        """
        if self._begun.pop(run_id, None) == (step.id, attempt):
            return

        def write(tx: Transaction) -> None:
            move(tx, "start", run_id, RunStatus.RUNNING, connector=step.connector.name)
            tx.append(facts_of(_start(run_id, step, attempt, layers)))

        await self._ledger.commit(write)
        self.watch.changed(run_id)

    async def retried(self, run_id: str, step: Step, attempt: int, failure: Failure, wait_s: float) -> None:
        """Record that attempt number `attempt` of a step failed and that another follows after `wait_s` seconds."""
        await self._append(
            RunRetried(
                run=run_id,
                step=step.id,
                connector=step.connector.name,
                attempt=attempt,
                failure_class=failure.failure_class,
                message=bounded(failure.message, MAX_MESSAGE_CHARACTERS),
                wait_ms=int(wait_s * 1000),
            )
        )

    async def finished(self, run_id: str, outcome: Outcome, ms: int) -> Outcome:
        """Record that a run ended, `ms` milliseconds after it began; return the outcome as recorded.

        The class `outcome_unknown` makes the run `unknown`. Raises AileronError(already_decided) if the run had ended before.
        """
        self._begun.pop(run_id, None)
        recorded, stored = storable(outcome)

        def write(tx: Transaction) -> None:
            match recorded:
                case Succeeded():
                    end(tx, "complete", run_id, RunStatus.COMPLETED, None, stored, ms)
                case Failed(failure=failure) if failure.failure_class is FailureClass.OUTCOME_UNKNOWN:
                    lose(tx, run_id, failure, stored, ms)
                case Failed(failure=failure):
                    end(tx, "fail", run_id, RunStatus.FAILED, failure, stored, ms)

        await self._ledger.commit(write)
        self.watch.changed(run_id)
        return recorded

    async def interrupted(self, run_id: str) -> None:
        """Record that the daemon interrupted a run and that its outcome is unknown."""
        self._begun.pop(run_id, None)
        await self._ledger.commit(lambda tx: mark_interrupted(tx, run_id, "the daemon stopped while it ran"))
        self.watch.changed(run_id)

    # Steps of a run

    async def connector_event(self, run_id: str, step: Step, event: str, fields: JSONObject) -> None:
        """Record an event that a connector reports for the audit trail. Its text is hostile.

        Raises AileronError(connector_runtime_error) if the event has no canonical JSON form or is larger than MAX_DETAILS_BYTES.
        """
        if (problem := unfit(fields)) is not None:
            raise AileronError(
                FailureClass.CONNECTOR_RUNTIME_ERROR,
                f"{step.connector} wrote an audit event that cannot be recorded: {problem}",
                boundary=Boundary.SANDBOX,
            )
        name = bounded(event, MAX_NAME_CHARACTERS)
        await self._append(
            ConnectorAudit(run=run_id, step=step.id, connector=step.connector.name, event=name, fields=fields)
        )

    # Approvers, passkeys, consents and grants

    async def approver_set(
        self, statement: ApproverStatement, signature: str, old_signature: str | None = None
    ) -> None:
        """Record that decisions are signed from now on with the key in `statement`. The caller has checked both
        signatures (base64).

        Raises AileronError(unauthorized) unless the statement replaces exactly the key that the ledger names, if any.
        """
        event = ApproverSet(
            key_id=statement.key_id,
            public_key=statement.public_key,
            inventory=statement.inventory,
            signed_at=statement.at,
            signature=signature,
            replaces=statement.replaces,
            old_signature=old_signature,
        )

        def write(tx: Transaction) -> None:
            known = tx.newest(ApproverSet)
            if known is not None and known.event.key_id != statement.replaces:
                raise AileronError(
                    FailureClass.UNAUTHORIZED,
                    f"decisions are signed by {known.event.key_id}: only that key can replace itself",
                    boundary=Boundary.USER,
                )
            tx.append(facts_of(event))

        await self._ledger.commit(write)

    async def has_approver(self) -> bool:
        """Return whether this ledger names an approver's key, with which decisions must be signed."""
        return await self.approver_key() is not None

    async def approver_key(self) -> str | None:
        """Return the id of the approver's key that this ledger names last; None if it names none."""
        known = await self._ledger.read(lambda snapshot: snapshot.newest(ApproverSet))
        return None if known is None else known.event.key_id

    async def passkey_added(self, passkey: Passkey) -> None:
        """Record that decisions can be signed with this passkey from now on. The caller has checked the approver's
        signature for the enrollment.

        Writes nothing if the passkey is already on record.
        """
        subject = passkey.subject
        added = PasskeyAdded(
            passkey=passkey.id,
            name=subject.name,
            approval=passkey.approval,
            subject=msgspec.to_builtins(subject),
            signed_at=passkey.at,
            signature=passkey.signature,
            reason=passkey.reason,
        )
        agreed = ConsentAgreed(
            kind=ConsentKind.PASSKEY.value,
            name=subject.name,
            digest=subject_digest(subject),
            approval=passkey.approval,
        )

        def write(tx: Transaction) -> None:
            if passkey.id not in passkeys_on_record(tx).in_force:
                tx.append(facts_of(added))
                tx.append(facts_of(agreed))

        await self._ledger.commit(write)

    async def passkey_removed(self, key_id: str, reason: Literal["revoked", "vault"]) -> None:
        """Record that decisions can no longer be signed with this passkey. Records nothing if the passkey is not on
        record.
        """

        def write(tx: Transaction) -> None:
            if key_id in passkeys_on_record(tx).in_force:
                tx.append(facts_of(PasskeyRemoved(passkey=key_id, reason=reason)))

        await self._ledger.commit(write)

    async def passkeys(self) -> PasskeysOnRecord:
        """Return the passkeys that can decide according to this ledger."""
        return await self._ledger.read(passkeys_on_record)

    async def tools(self) -> ToolsOnRecord:
        """Return the suspended tools, the accepted definitions, and the approvals of these definitions from this ledger."""
        return await self._ledger.read(tools_on_record)

    async def hosts(self) -> dict[str, dict[HostPort, AskedHost]]:
        """Return the hosts that agents in cells requested, by session, from this ledger."""
        return await self._ledger.read(hosts_on_record)

    async def agreed(self, kind: ConsentKind, name: str, digest: str, approval_id: str) -> None:
        """Record that a person's consent to the subject of this kind and name is now in force."""
        await self._append(ConsentAgreed(kind=kind.value, name=name, digest=digest, approval=approval_id))

    async def ended(self, kind: ConsentKind, name: str, reason: str) -> None:
        """Record that the consent to the subject of this kind and name is no longer in force, and the reason."""
        await self._append(ConsentEnded(kind=kind.value, name=name, reason=reason))

    async def grant_revoked(self, grant_id: str) -> None:
        """Record that a standing grant was revoked and admits no further run. No further use of the grant is counted."""

        def write(tx: Transaction) -> None:
            tx.revoke_grant(grant_id)
            tx.append(facts_of(GrantRevoked(grant=grant_id)))

        await self._ledger.commit(write)

    async def grant_used(self, ids: Collection[str]) -> dict[str, int]:
        """Return the number of times that each of these standing grants was used, by id."""
        return await self._ledger.read(lambda snapshot: {name: snapshot.grant_used(name) for name in ids})

    # Refusals

    async def refuse(
        self,
        approval_id: str | None,
        decision: RefusedTry,
        reason: RefusedReason,
        surface: str,
        key_id: str | None = None,
    ) -> None:
        """Record that an attempt to decide a question, or another attempt that `decision` names, was refused, and why.
        After REFUSALS_A_MINUTE records, further refusals are only counted.

        Counts each surface separately, because more callers can reach the page than the operator's socket.
        """
        now_us = self._ledger.now_us()
        told: list[Event] = [_counted_refusal(tally) for tally in self._refused.over(now_us)]
        if self._refused.admits(surface, (decision, reason, surface), now_us):
            refused = ApprovalRefused(
                approval=None if approval_id is None else bounded(approval_id, MAX_NAME_CHARACTERS),
                decision=decision,
                reason=reason,
                surface=surface,
                key_id=None if key_id is None else bounded(key_id, MAX_NAME_CHARACTERS),
            )
            told.append(refused)
        await self._append_all(told)

    async def caller_refused(self, scope: str, route: str, session: str) -> None:
        """Record that a caller requested a route that its socket does not serve: once a minute per scope and route,
        with a count.
        """
        now_us = self._ledger.now_us()
        key = (scope, bounded(route, MAX_NAME_CHARACTERS))
        told: list[Event] = [_counted_caller(tally) for tally in self._callers.over(now_us)]
        session = bounded(session, MAX_NAME_CHARACTERS)
        if self._callers.admits(key, key, now_us, session):
            told.append(CallerRefused(scope=scope, route=key[1], session=session, count=1, since_us=now_us))
        await self._append_all(told)

    async def tunnel_refused(self, session: str, destination: str, reason: str) -> None:
        """Record that a cell's agent requested a host that it cannot reach: once a minute per session, host and reason,
        with a count.
        """
        now_us = self._ledger.now_us()
        key = (session, bounded(destination, MAX_DESTINATION_CHARACTERS), reason)
        told: list[Event] = [_counted_tunnel(tally) for tally in self._take_tunnels(now_us)]
        if self._tunnels.setdefault(session, Throttle(1)).admits(key, key, now_us):
            told.append(_counted_tunnel(Tally(key, 1, now_us, "")))
        await self._append_all(told)

    async def tell_refused(self, *, rest: bool = False) -> None:
        """Record the counts of refusals that were not recorded one by one, for minutes that are over; with `rest`, for
        the current minute too. Call this method every minute, and with `rest` when the daemon stops.
        """
        now_us = self._ledger.now_us()
        decisions = self._refused.rest() if rest else self._refused.over(now_us)
        callers = self._callers.rest() if rest else self._callers.over(now_us)
        tunnels = self._take_tunnels(None if rest else now_us)
        told: list[Event] = [
            *map(_counted_refusal, decisions),
            *map(_counted_caller, callers),
            *map(_counted_tunnel, tunnels),
        ]
        await self._append_all(told)

    def _take_tunnels(self, now_us: int | None) -> list[Tally[tuple[str, str, str]]]:
        """Return and reset the counts of refused hosts for minutes that are over at `now_us`, or all counts if `now_us`
        is None. Forget the sessions for which nothing is counted.
        """
        taken = [throttle.rest() if now_us is None else throttle.over(now_us) for throttle in self._tunnels.values()]
        self._tunnels = {session: throttle for session, throttle in self._tunnels.items() if not throttle.is_idle}
        return [tally for tallies in taken for tally in tallies]

    def _later(self, event: Event) -> None:
        self._ledger.commit_later(lambda tx: tx.append(facts_of(event)))

    async def _append_all(self, events: Sequence[Event]) -> None:
        def write(tx: Transaction) -> None:
            for event in events:
                tx.append(facts_of(event))

        if events:
            await self._ledger.commit(write)

    # The daemon and other events

    async def recover(self) -> list[str]:
        """Close the runs that the previous daemon left open; return those with an unknown outcome. Call this before
        any run starts.

        Started → unknown. Pending, or approved by a person → unchanged, until the question expires. Admitted by the rules but
        not started → cancelled, because nothing happened and the caller is gone.
        """

        def write(tx: Transaction) -> list[str]:
            expire_due(tx)
            lost = [row.id for row in tx.runs_in(RunStatus.RUNNING)]
            for run_id in lost:
                mark_interrupted(tx, run_id, "the daemon ended while it ran")
            for row in tx.runs_in(RunStatus.APPROVED):
                if row.approval is None:
                    end_unstarted(tx, "cancel", row.id, RunStatus.CANCELLED, cancelled(row.id))
            return lost

        return await self._ledger.commit(write)

    async def note(self, event: Notice | EgressEvent) -> int:
        """Record an event that changes no run or approval; return the row's number. The caller bounds hostile text in the
        event (`bounded` in moves.py).
        """
        return await self._append(event)

    def note_end(self, event: Notice | EgressEvent) -> None:
        """Record the end of an activity whose start `note` recorded. The record is written later, so nothing may depend
        on it.

        It is written to disk with the next record, after 20 ms at most.
        """
        self._later(event)

    async def is_noted(self, event: Notice, since: float) -> bool:
        """Return whether an event with the same facts as `event` was recorded since `since` (seconds since the epoch).
        Only the newest events of its type are searched.
        """
        facts = facts_of(event)
        wanted = EventFilter(type=str(facts["type"]), since_us=int(since * 1_000_000), limit=MAX_ROWS)
        rows = await self._ledger.read(lambda look: look.events(wanted))
        return any(facts.items() <= row.facts.items() for row in rows)

    async def daemon_started(self, version: str, layers: Sequence[str], settings_digest: str) -> None:
        """Record that a daemon with these layers of isolation and these settings serves this home."""
        home = str(self._ledger.path.parent)
        await self.note(DaemonStarted(version=version, home=home, layers=list(layers), digest=settings_digest))

    async def daemon_stopped(self, version: str) -> None:
        """Record that the daemon stopped normally, after recording the remaining counts."""
        await self.tell_refused(rest=True)
        await self.note(DaemonStopped(version=version))


_RefusedKey = tuple[RefusedTry, RefusedReason, str]


# Parts of transactions. Each runs in the writer's thread.


def _use_grant(tx: Transaction, grant: GrantUse, run_id: str) -> None:
    use = tx.use_grant(grant.id, grant.uses)
    if use is None or use > grant.uses:  # use_grant does not check the first use against the maximum
        raise GrantSpent(grant.id)
    tx.append(facts_of(GrantUsed(grant=grant.id, run=run_id, use=use, of=grant.uses)))


def _claim(tx: Transaction, invocation: Invocation, run_id: str) -> None:
    key = _key_of(invocation)
    if key is None:
        return
    holder = tx.claim(invocation.session, key, _digest_of(invocation), run_id)
    if holder is not None:
        raise KeyTaken(holder)


def _check_repeated(tx: Transaction, plan: Plan, digest: str, invocation: Invocation) -> None:
    """Raise Repeated if an earlier run of the same plan has an unknown outcome, so that the plan could take effect
    twice; raise AileronError if `again` names no run that can be repeated.

    The check ignores who the caller is: the effect may have occurred, whoever requested it, and an agent that was cut off
    sends its request again from a new session. A plan of only idempotent steps may be repeated.
    """
    if all(step.idempotent for step in plan.steps) and invocation.again is None:
        return
    run_id = tx.unsettled(digest, tx.now_us)
    if run_id == invocation.again:
        return
    if run_id is not None:
        raise Repeated(run_id)
    raise AileronError(
        FailureClass.INVALID_REQUEST,
        f"cannot repeat {bounded(str(invocation.again), MAX_NAME_CHARACTERS)}: it is another request, its outcome is known, "
        "or it was already repeated. Request the action without it",
    )


# Values


def _counted_refusal(tally: Tally[_RefusedKey]) -> ApprovalRefused:
    decision, reason, surface = tally.key
    return ApprovalRefused(
        decision=decision, reason=reason, surface=surface, count=tally.count, since_us=tally.since_us
    )


def _counted_caller(tally: Tally[tuple[str, str]]) -> CallerRefused:
    scope, route = tally.key
    return CallerRefused(scope=scope, route=route, session=tally.note, count=tally.count, since_us=tally.since_us)


def _counted_tunnel(tally: Tally[tuple[str, str, str]]) -> TunnelRefused:
    session, destination, reason = tally.key
    return TunnelRefused(
        session=session, destination=destination, reason=reason, count=tally.count, since_us=tally.since_us
    )


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
        again=invocation.again,
        party=invocation.party,
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
        account=None if credential is None else credential.account,
        scope=None if credential is None else credential.need.scope,
    )


def _start(run_id: str, step: Step, attempt: int, layers: Sequence[str]) -> RunStarted:
    return RunStarted(
        run=run_id,
        step=step.id,
        connector=step.connector.name,
        op=step.op,
        attempt=attempt,
        layers=list(layers),
        args=sha256_digest(canonical_json(step.args)) if step.filled else None,
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


def _key_of(invocation: Invocation) -> str | None:
    key = invocation.idempotency_key
    if key is not None and not (0 < len(key) <= MAX_KEY_CHARACTERS and key.isprintable()):
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"invalid idempotency key of {len(key)} characters: expected 1 to {MAX_KEY_CHARACTERS} printable ones",
        )
    return key


def _digest_of(invocation: Invocation) -> str:
    """Return the digest of an invocation, leaving out the caller. An idempotency key can be used again only with the
    same digest.
    """
    asked = {"action": invocation.action, "args": invocation.args, "binding": invocation.binding}
    try:
        return sha256_digest(canonical_json(asked))
    except ValueError as error:
        misfit = misfit_in(invocation.args, is_canonical=True)
        why = str(error) if misfit is None else f"cannot be written as canonical JSON: {misfit}"
        raise AileronError(FailureClass.BAD_INPUT, f"the arguments {why}") from error
