"""The spine: the one road of every invocation, and the only caller of the executor.

    request(invocation) -> Outcome | Pending          resume(approval id) -> Outcome
      1 resolve   pure: the file as it is now → Plan    1 the frozen plan, from the ledger
      2 record    durable, before anything else         2 redeem the decision, once → ApprovedPlan
      3 admit     the gate: ApprovedPlan or Pending     3 carry out
      4 carry out

Runs in the daemon. Nothing here waits for a person.

Rules
- What is not written down does not happen: an invocation that does not resolve is one `refused` record and nothing else; one
  that is admitted at once is recorded as requested and started in one commit, before its jail exists.
- `_carry_out` turns errors into values in one place and writes the outcome, shielded from cancellation, before it answers.
- A run that is cut short (the daemon stops) is `unknown`: nobody can say whether its effect happened, and nothing is guessed.

Source: docs/explanation/architecture.md. Not here: who may call (daemon/api.py), runs that outlive callers (daemon/runner.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import anyio.to_thread

from aileron.actions.resolve import resolve
from aileron.approvals.gate import Gate, NeedsPerson
from aileron.audit import query
from aileron.audit.frozen import Frozen
from aileron.audit.log import Audit, KeyTaken
from aileron.config import Settings
from aileron.executor.execute import Executor
from aileron.ledger.rows import RunRow
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.names import BindingName
from aileron.model.outcome import Failed, Outcome, Pending, Running, RunStatus, Succeeded
from aileron.model.plan import ApprovedPlan, ConnectorPin, CredentialUse, Grant, Plan
from aileron.runs.journal import LedgerJournal

__all__ = ["Actions", "Bindings", "Connectors", "Spine"]

_MAY_PASS: Final = frozenset({FailureClass.VAULT_LOCKED, FailureClass.BUSY, FailureClass.INTERNAL_ERROR})
"""Why an approved run has not begun, and may yet: the vault is locked, the ledger or the disk is full."""
_RECORD_S: Final = 30.0
"""To write down an outcome while being cancelled: a full queue of a slow disk, and no more."""
_log = logging.getLogger(__name__)


class Actions(Protocol):
    """The installed actions."""

    def load_enabled(self, name: str) -> ActionFile:
        """The file as it is now. AileronError not_found, action_disabled, invalid_request."""
        ...

    def check_enabled(self, name: str) -> None:
        """Still there, whatever it says now, and not switched off. AileronError not_found, action_disabled."""
        ...


class Connectors(Protocol):
    """The installed connectors."""

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """The verified manifest of exactly these bytes."""
        ...


class Bindings(Protocol):
    """The bound credentials, by name; and whether one could be lent now."""

    def candidates(self, connector: str, kind: str) -> list[BindingName]:
        """Every binding of `kind` made for this connector."""
        ...

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """The binding is the one of `since` (s since the epoch). AileronError binding_required, binding_failed."""
        ...

    def check_unlocked(self) -> None:
        """AileronError vault_locked, with the command that unlocks it."""
        ...


class Spine:
    """One for each daemon."""

    def __init__(
        self,
        *,
        actions: Actions,
        connectors: Connectors,
        bindings: Bindings,
        settings: Settings,
        gate: Gate,
        ledger: Ledger,
        audit: Audit,
        executor: Executor,
    ) -> None:
        self._actions = actions
        self._connectors = connectors
        self._bindings = bindings
        self._settings = settings
        self._gate = gate
        self._ledger = ledger
        self._audit = audit
        self._executor = executor
        self._unrecorded: set[str] = set()
        """Runs that ended on a full disk; none begins on one, so they are at most those that were under way."""

    def resolve(self, invocation: Invocation) -> Plan:
        """What would be done, from the files as they are now. Reads; writes nothing. AileronError says why not."""
        action = self._actions.load_enabled(invocation.action)
        plan = resolve(
            invocation, action, connectors=self._connectors, bindings=self._bindings, settings=self._settings
        )
        if any(step.grant.credential is not None for step in plan.steps):
            self._bindings.check_unlocked()
        return plan

    async def request(self, invocation: Invocation, announce: Callable[[str], None]) -> Outcome | Pending | Running:
        """Take one invocation as far as it goes without a person; `announce` is told the run id once it is recorded.

        AileronError where nothing could be recorded, and so nothing was done.
        """
        earlier = await self._audit.earlier(invocation)
        if earlier is None:
            try:
                return await self._request_first(invocation, announce)
            except KeyTaken:  # by another caller, between the look and the record
                earlier = await self._audit.earlier(invocation)
                if earlier is None:
                    raise
        announce(earlier.id)  # the same idempotency key: the same run, not another
        return await self._so_far(earlier)

    async def _request_first(
        self, invocation: Invocation, announce: Callable[[str], None]
    ) -> Outcome | Pending | Running:
        try:
            plan = await anyio.to_thread.run_sync(self.resolve, invocation)
        except AileronError as error:
            return Failed(run_id=await self._audit.refused(invocation, error.failure), failure=error.failure)
        admitted = self._gate.admit(plan)
        if isinstance(admitted, NeedsPerson):
            pending = await self._audit.pending(plan, invocation, admitted.expires_at)
            announce(pending.run_id)
            return pending
        run_id = await self._audit.requested(plan, invocation, layers=self._executor.layers_ahead(plan))
        announce(run_id)
        return await self._carry_out(run_id, admitted)

    async def resume(self, approval_id: str, announce: Callable[[str], None]) -> Outcome:
        """Carry out what a person approved: the frozen bytes, once; `announce` is told the run id once it has begun.

        A plan that may not run any more (its action is switched off or gone, its binding another, its bytes not those that
        were shown) fails, and its decision is used up. AileronError where the decision is as it was: none to use, or the
        vault is locked.
        """
        try:
            frozen = await self._audit.frozen(approval_id)
            await anyio.to_thread.run_sync(self._check_still_allowed, frozen)
        except AileronError as error:
            if error.failure.failure_class in _MAY_PASS:
                raise
            return await self._audit.give_up(approval_id, error.failure)
        approved = await self._gate.redeem(approval_id, frozen.plan)
        announce(frozen.run_id)
        return await self._carry_out(frozen.run_id, approved)

    async def so_far(self, run_id: str) -> Outcome | Pending | Running:
        """Where a run is. AileronError(not_found)."""
        row = await self._ledger.read(lambda snapshot: snapshot.run(run_id))
        if row is None:
            raise AileronError(FailureClass.NOT_FOUND, f"no run {run_id[:80]!r}")
        return await self._so_far(row)

    async def approved(self) -> list[str]:
        """The approvals of the runs that may begin and have not, the oldest first."""
        rows = await self._ledger.read(lambda snapshot: snapshot.runs_in(RunStatus.APPROVED))
        return [row.approval for row in rows if row.approval is not None]

    def _check_still_allowed(self, frozen: Frozen) -> None:
        self._actions.check_enabled(frozen.plan.action)
        for step in frozen.plan.steps:
            _check_exceptions(step.grant, self._settings)
        uses = [step.grant.credential for step in frozen.plan.steps if step.grant.credential is not None]
        for use in uses:
            self._bindings.check_unchanged(use, frozen.asked_at)
        if uses:
            self._bindings.check_unlocked()

    async def _so_far(self, row: RunRow) -> Outcome | Pending | Running:
        outcome = query.outcome_of(row)
        if outcome is not None:
            return outcome
        approval_id = row.approval
        if row.status is RunStatus.PENDING_APPROVAL and approval_id is not None:
            approval = await self._ledger.read(lambda snapshot: snapshot.approval(approval_id))
            if approval is not None:
                return Pending(run_id=row.id, approval_id=approval.id, expires_at=approval.expires_us / 1_000_000)
        if row.status is RunStatus.APPROVED:
            return Running(run_id=row.id, status=RunStatus.APPROVED, approval_id=approval_id)
        return Running(run_id=row.id)

    async def _carry_out(self, run_id: str, approved: ApprovedPlan) -> Outcome:
        started = time.monotonic()
        journal = LedgerJournal(self._audit, run_id)
        try:
            outcome: Outcome = Succeeded(run_id=run_id, result=await self._executor.execute(approved, run_id, journal))
        except AileronError as error:
            outcome = Failed(run_id=run_id, failure=error.failure)
        except Exception:  # noqa: BLE001 - the end of a run: a bug of ours must still be an outcome on record
            _log.exception("%s failed in a way nobody foresaw", run_id)
            outcome = Failed(run_id=run_id, failure=_bug())
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_RECORD_S):
                await self._audit.interrupted(run_id)
            raise
        return await self._record(run_id, outcome, int((time.monotonic() - started) * 1000))

    async def _record(self, run_id: str, outcome: Outcome, ms: int) -> Outcome:
        """The outcome as it is on record; where it cannot be recorded, nobody is told that it is so."""
        try:
            with anyio.CancelScope(shield=True):
                recorded = await self._audit.finished(run_id, outcome, ms)
        except AileronError as error:
            _log.error("%s ended, and its outcome could not be recorded: %s", run_id, error)
            self._unrecorded.add(run_id)
            return Failed(run_id=run_id, failure=_not_recorded(error))
        return recorded  # a `with` that may swallow is no place to return from

    async def close_unrecorded(self) -> None:
        """Close as `unknown` what ended without room to record it. AileronError while there is none still."""
        for run_id in tuple(self._unrecorded):
            await self._audit.interrupted(run_id)
            self._unrecorded.discard(run_id)


def _check_exceptions(grant: Grant, settings: Settings) -> None:
    """An exception that was shown and has been taken back since is not used."""
    gone = (grant.plain - settings.egress_private_plain) | (
        grant.private - settings.egress_private - settings.egress_private_plain
    )
    if gone:
        raise AileronError(
            FailureClass.CONSENT_REQUIRED,
            f"{min(map(str, gone))} is no longer an exception in config.toml (egress.private, egress.private_plain): ask again",
            boundary=Boundary.USER,
        )


def _not_recorded(error: AileronError) -> Failure:
    return Failure(
        failure_class=FailureClass.OUTCOME_UNKNOWN,
        message=f"it ended, but how could not be written down ({error}): look whether it took effect before you ask again",
        boundary=Boundary.RUNTIME,
    )


def _bug() -> Failure:
    return Failure(
        failure_class=FailureClass.INTERNAL_ERROR,
        message="this is a bug in aileron; `aileron daemon logs` has the details, please report them",
        boundary=Boundary.RUNTIME,
    )
