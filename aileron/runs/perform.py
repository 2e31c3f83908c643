"""The spine: the one road of every invocation, and the only caller of the executor.

    request(invocation) -> Outcome | Pending          resume(approval id) -> Outcome
      1 resolve   pure: the file as it is now → Plan    1 the frozen plan, from the ledger
      2 record    durable, before anything else         2 redeem the decision, once → ApprovedPlan
      3 admit     the gate: ApprovedPlan or Pending     3 carry out
      4 carry out

    preview(approval id) -> Previewed                 what the person is shown first: an ungated plan that only reads

Runs in the daemon. Nothing here waits for a person.

Rules
- What is not written down does not happen: an invocation that does not resolve is one `refused` record and nothing else; one
  that is admitted at once is recorded as requested and started in one commit, before its jail exists.
- `_carry_out` turns errors into values in one place and writes the outcome, shielded from cancellation, before it answers.
- Nobody is asked about a call that is known not to work: it is resolved, and its destinations looked at, before any question.
- A file that is wider than what the person agreed to last does not run: it is refused, and they are asked. Nor does a frozen plan
  that is not what such a file gives, though it was signed: a person cannot see whose bytes a hash is of.
- What a preview reads is for the person alone: the record has its digest, and a failure's class.
- A run that is cut short (the daemon stops) is `unknown`: nobody can say whether its effect happened, and nothing is guessed.
  The same again is refused until whoever asks names that run (docs/adr/0039-what-may-have-happened.md).

Source: docs/explanation/architecture.md. Not here: who may call (daemon/http/api/), runs that outlive callers
(daemon/runner.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import anyio
import anyio.to_thread
import msgspec

from aileron.actions.resolve import check_as_resolved, preview_plan, resolve
from aileron.approvals.gate import Gate, NeedsPerson, QueuedApproval
from aileron.approvals.preview import rendered
from aileron.audit import query
from aileron.audit.frozen import Frozen
from aileron.audit.log import Audit, GrantSpent, GrantUse, KeyTaken, Repeated
from aileron.config import Settings
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.egress.refusal import Reason
from aileron.executor.execute import Executor
from aileron.ledger.rows import RunRow
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import ActionFileConsent, ConsentKind, StandingGrant
from aileron.model.credential import Candidate
from aileron.model.decision import held_until
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.outcome import Failed, Outcome, Pending, Running, RunStatus, Succeeded
from aileron.model.plan import ApprovedPlan, ConnectorPin, CredentialUse, Grant, Plan, PlannedPreview
from aileron.model.preview import PreviewField, shown_digest
from aileron.runs.journal import LedgerJournal, PreviewJournal
from aileron.runs.progress import Board

__all__ = ["Actions", "Agreements", "Bindings", "Connectors", "Held", "Previewed", "Spine"]

_MAY_PASS: Final = frozenset({FailureClass.VAULT_LOCKED, FailureClass.BUSY, FailureClass.INTERNAL_ERROR})
"""Why an approved run has not begun, and may yet: the vault is locked, the ledger or the disk is full."""
_PREVIEW_S: Final = 8.0
"""For a preview: five seconds for its step, which bounds itself, and the start of a jail on a busy machine."""
_PREVIEWER: Final = "approver"
"""The session that previews are on record under: no agent's."""
_RECORD_S: Final = 30.0
"""To write down an outcome while being cancelled: a full queue of a slow disk, and no more."""
_MENDED_BY_SETTINGS: Final = frozenset({Reason.PLAIN_HTTP.value, Reason.ADDRESS_NOT_PUBLIC.value})
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

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        """Every binding of `kind` made for this connector."""
        ...

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """The binding is the one of `since` (s since the epoch). AileronError binding_required, binding_failed."""
        ...

    def check_unlocked(self) -> None:
        """AileronError vault_locked, with the command that unlocks it."""
        ...


class Agreements(Protocol):
    """What the person agreed to."""

    def missing(self, action: ActionFile) -> ActionFileConsent | None:
        """What has to be agreed to before this file runs; None where nothing has. AileronError vault_locked, hash_mismatch."""
        ...

    def check_settings(self) -> None:
        """The settings in force are those agreed to. AileronError consent_required, vault_locked, hash_mismatch."""
        ...

    def why_not_in_force(self, destination: str) -> str | None:
        """Why an exception for this host:port that config.toml has is not one yet; None where that is not so."""
        ...


class Held(AileronError):
    """An approved run whose time to be cancelled is not over: it begins `until` (s since the epoch)."""

    def __init__(self, approval_id: str, until: float) -> None:
        super().__init__(
            FailureClass.BUSY,
            f"{approval_id} is held, so that it can be cancelled: it begins by itself",
            retriable=True,
        )
        self.until = until


class NotAgreed(AileronError):
    """The action's file is not what the person agreed to; `subject` is what they are asked."""

    def __init__(self, subject: ActionFileConsent) -> None:
        super().__init__(
            FailureClass.CONSENT_REQUIRED,
            f"the file of action {subject.name!r} is new, or wider than what a person agreed to",
            boundary=Boundary.USER,
        )
        self.subject = subject


class Previewed(NamedTuple):
    """What a preview showed, as `fields`, or why it could not be had; about the plan of `plan_digest`."""

    plan_digest: str
    fields: list[PreviewField] | None
    problem: str | None


class Spine:
    """One for each daemon. `ask` puts a question about a file into the queue, and gives the approval's id; `look` sees whether
    the settings are others by now.
    """

    def __init__(
        self,
        *,
        actions: Actions,
        agreements: Agreements,
        ask: Callable[[ActionFileConsent], Awaitable[str]],
        asked: Callable[[str, str, str], None],
        connectors: Connectors,
        bindings: Bindings,
        settings: Settings,
        gate: Gate,
        ledger: Ledger,
        audit: Audit,
        executor: Executor,
        look: Callable[[], Awaitable[None]],
        board: Board,
    ) -> None:
        self._actions = actions
        self._agreements = agreements
        self._ask = ask
        self._asked = asked
        self._connectors = connectors
        self._bindings = bindings
        self._settings = settings
        self._gate = gate
        self._ledger = ledger
        self._audit = audit
        self._executor = executor
        self._look = look
        self._board = board
        self._unrecorded: set[str] = set()
        """Runs that ended on a full disk; none begins on one, so they are at most those that were under way."""

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on: for what is resolved or begun after this."""
        self._settings = settings

    def resolve(self, invocation: Invocation) -> Plan:
        """What would be done, from the files as they are now. Reads; writes nothing. AileronError says why not."""
        self._agreements.check_settings()
        action = self._actions.load_enabled(invocation.action)
        plan = resolve(
            invocation, action, connectors=self._connectors, bindings=self._bindings, settings=self._settings
        )
        if plan.approval.required:
            self._check_destinations(plan)
        missing = self._agreements.missing(action)
        if missing is not None:
            raise NotAgreed(missing)
        if any(step.grant.credential is not None for step in plan.steps):
            self._bindings.check_unlocked()
        return plan

    def _check_destinations(self, plan: Plan) -> None:
        """Return unless a step has nowhere to go. What nobody is asked about is refused, and on record, where it is sent."""
        for step in plan.steps:
            if not self._connectors.manifest(step.connector).operation(step.op).network:
                continue
            try:
                check_somewhere_to_go(step.grant)
            except AileronError as error:
                details = {**error.failure.details, "connector": str(step.connector), "step": step.id}
                failure = msgspec.structs.replace(error.failure, details=details)
                raise AileronError.of(self._with_setting(failure)) from None

    def _with_setting(self, failure: Failure) -> Failure:
        """Where a setting would mend it, and config.toml has it: why that is not in force, in place of where to put it."""
        if failure.details.get("reason") not in _MENDED_BY_SETTINGS:
            return failure
        destination = str(failure.details.get("requested")).removeprefix("network:")
        why = self._agreements.why_not_in_force(destination)
        return failure if why is None else msgspec.structs.replace(failure, message=why)

    async def request(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome | Pending | Running:
        """Take one invocation as far as it goes without a person; `announce` is told the run id once it is recorded.

        `is_wanted` is asked once, before the record: whoever took the call back by then is refused as `cancelled`. AileronError
        where nothing could be recorded, and so nothing was done.
        """
        await self._look()
        earlier = await self._audit.earlier(invocation)
        if earlier is None:
            try:
                return await self._request_first(invocation, announce, is_wanted)
            except KeyTaken:  # by another caller, between the look and the record
                earlier = await self._audit.earlier(invocation)
                if earlier is None:
                    raise
        announce(earlier.id)  # the same idempotency key: the same run, not another
        return await self._so_far(earlier)

    async def _request_first(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool]
    ) -> Outcome | Pending | Running:
        try:
            plan = await anyio.to_thread.run_sync(self.resolve, invocation)
            if not is_wanted():
                raise AileronError(
                    FailureClass.CANCELLED,
                    "the call was taken back before it began: nothing was done",
                    boundary=Boundary.USER,
                )
        except AileronError as error:
            failure = await self._with_question(error)
            return Failed(run_id=await self._audit.refused(invocation, failure), failure=failure)
        try:
            return await self._begin(plan, invocation, announce)
        except Repeated as error:
            return Failed(run_id=await self._audit.refused(invocation, error.failure), failure=error.failure)

    async def _begin(
        self, plan: Plan, invocation: Invocation, announce: Callable[[str], None]
    ) -> Outcome | Pending | Running:
        """Record it, and carry it out or put it to a person. Repeated, and nothing is recorded, where it may be done already."""
        spent: set[str] = set()
        while True:  # at most once for each grant
            admitted = self._gate.admit(plan, spent=spent)
            if isinstance(admitted, NeedsPerson):
                pending = await self._audit.pending(plan, invocation, admitted.expires_at)
                self._asked(pending.approval_id, plan.action, ConsentKind.ACTION.value)
                announce(pending.run_id)
                return pending
            use = None if admitted.grant is None else GrantUse(admitted.grant.id, admitted.grant.uses)
            try:
                run_id = await self._audit.requested(
                    plan, invocation, layers=self._executor.layers_ahead(plan), grant=use
                )
            except GrantSpent as error:
                spent.add(error.grant)
                continue
            announce(run_id)
            return await self._carry_out(run_id, admitted.approved, by=admitted.grant)

    async def _with_question(self, error: AileronError) -> Failure:
        """The failure, and for what a person may agree to the question that was put to them."""
        if not isinstance(error, NotAgreed):
            return error.failure
        approval_id = await self._ask(error.subject)
        return msgspec.structs.replace(
            error.failure,
            message=f"{error.failure.message}: it runs once they run `aileron approve {approval_id}`",
            details={"approval_id": approval_id, "action": error.subject.name},
        )

    async def resume(self, approval_id: str, announce: Callable[[str], None]) -> Outcome:
        """Carry out what a person approved: the frozen bytes, once; `announce` is told the run id once it has begun.

        A plan that may not run any more (its action is switched off or gone, its binding another, its bytes not those that
        were shown, its decision not the approver's) fails, and its decision is used up. AileronError where the decision is as
        it was: none to use, or the vault is locked; Held where it may still be cancelled.
        """
        try:
            frozen = await self._audit.frozen(approval_id)
            decided = _decided(approval_id, frozen)
            self._gate.check_decided(frozen.plan, decided)
            _check_held(approval_id, frozen)
            await anyio.to_thread.run_sync(self._check_still_allowed, frozen)
        except AileronError as error:
            if error.failure.failure_class in _MAY_PASS:
                raise
            return await self._audit.give_up(approval_id, error.failure)
        approved = await self._gate.redeem(frozen.plan, decided)
        announce(frozen.run_id)
        return await self._carry_out(frozen.run_id, approved, by=decided)

    async def preview(self, approval_id: str, plan_digest: str | None) -> Previewed:
        """Read what the question's preview names, in a jail, with safe methods only; on record as a run of its own.

        AileronError not_found; invalid_request where its action has no preview; busy past what one question may have.
        """
        frozen = await self._audit.frozen(approval_id, plan_digest)
        planned = frozen.plan.preview
        if planned is None:
            raise AileronError(FailureClass.INVALID_REQUEST, f"the action of {approval_id} has no preview")
        await anyio.to_thread.run_sync(self._check_readable, frozen.plan)
        reading = preview_plan(frozen.plan)
        admitted = self._gate.admit(reading)
        if isinstance(admitted, NeedsPerson):
            raise TypeError("a preview waits for nobody")
        invocation = Invocation(action=reading.action, args=reading.args, scope=Scope.OPERATOR, session=_PREVIEWER)
        run_id = await self._audit.requested(reading, invocation, layers=self._executor.layers_ahead(reading))
        fields, failure = await self._read(run_id, admitted.approved, planned)
        await self._audit.add_preview(
            approval_id,
            frozen.plan.digest,
            None if fields is None else shown_digest(fields),
            run_id=run_id,
            failure_class=None if failure is None else failure.failure_class,
        )
        return Previewed(frozen.plan.digest, fields, None if failure is None else failure.message)

    def _check_readable(self, plan: Plan) -> None:
        self._agreements.check_settings()
        self._actions.check_enabled(plan.action)
        self._check_own(plan)

    def _check_own(self, plan: Plan) -> None:
        """Return if `plan` is what its own file gives, and the person agreed to that file.

        The ledger's file could have been written while no daemon ran, before anybody signed what it says: so that alone does not
        count of hosts, credentials, bytes and of what only reads.
        """
        action = check_as_resolved(plan, connectors=self._connectors, bindings=self._bindings, settings=self._settings)
        if (missing := self._agreements.missing(action)) is not None:
            raise NotAgreed(missing)

    async def _read(
        self, run_id: str, approved: ApprovedPlan, planned: PlannedPreview
    ) -> tuple[list[PreviewField] | None, Failure | None]:
        """What the person sees, or why not; the record of the run has neither."""
        seen: list[PreviewField] = []

        async def read() -> dict[str, str]:
            with anyio.fail_after(_PREVIEW_S):
                output = await self._executor.execute(approved, run_id, PreviewJournal(self._audit, run_id))
            seen.extend(rendered(output, planned))
            return {"preview": shown_digest(seen)}

        outcome = await self._conclude(run_id, read, _without_words)
        if isinstance(outcome, Succeeded):
            return seen, None
        return None, outcome.failure

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
        self._agreements.check_settings()
        self._actions.check_enabled(frozen.plan.action)
        for step in frozen.plan.steps:
            _check_exceptions(step.grant, self._settings)
        uses = [step.grant.credential for step in frozen.plan.steps if step.grant.credential is not None]
        for use in uses:
            self._bindings.check_unchanged(use, frozen.asked_at)
        if uses:
            self._bindings.check_unlocked()
        if frozen.decision is not None and frozen.decision.signed is not None:
            self._check_own(frozen.plan)

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

    async def _carry_out(
        self, run_id: str, approved: ApprovedPlan, by: QueuedApproval | StandingGrant | None = None
    ) -> Outcome:
        async def work() -> Any:
            if by is not None:
                await self._gate.spend(approved.plan, by)
            with self._board.on(run_id) as reported:
                journal = LedgerJournal(self._audit, run_id, reported.note)
                return await self._executor.execute(approved, run_id, journal)

        return await self._conclude(run_id, work, _as_it_is)

    async def _conclude(
        self, run_id: str, work: Callable[[], Awaitable[Any]], recorded: Callable[[Outcome], Outcome]
    ) -> Outcome:
        """What came of the work, on record first, as `recorded` says it; the same is answered, but for what that leaves out."""
        started = time.monotonic()
        try:
            outcome: Outcome = Succeeded(run_id=run_id, result=await work())
        except AileronError as error:
            outcome = Failed(run_id=run_id, failure=self._with_setting(error.failure))
        except TimeoutError:
            outcome = Failed(run_id=run_id, failure=_too_slow())
        except Exception:  # noqa: BLE001 - the end of a run: a bug of ours must still be an outcome on record
            _log.exception("%s failed in a way nobody foresaw", run_id)
            outcome = Failed(run_id=run_id, failure=_bug())
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_RECORD_S):
                await self._audit.interrupted(run_id)
            raise
        said = recorded(outcome)
        written = await self._record(run_id, said, int((time.monotonic() - started) * 1000))
        return outcome if written == said else written

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


def _decided(approval_id: str, frozen: Frozen) -> QueuedApproval:
    decision = frozen.decision
    return QueuedApproval(
        approval_id=approval_id,
        digest=frozen.digest,
        preview=None if decision is None else decision.preview,
        reason=None if decision is None else decision.reason,
        signed=None if decision is None else decision.signed,
    )


def _check_held(approval_id: str, frozen: Frozen) -> None:
    """Held while an approved run may still be cancelled."""
    decision = frozen.decision
    if decision is None:
        return
    signed_at = None if decision.signed is None else decision.signed.at
    until = held_until(decision.decided_at, signed_at, frozen.plan.approval.undo_window_s)
    if time.time() < until:
        raise Held(approval_id, until)


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


def _without_words(outcome: Outcome) -> Outcome:
    """A preview's failure by its class alone: what a connector says of it may quote what the person alone may see."""
    if isinstance(outcome, Succeeded):
        return outcome
    failure = Failure(
        failure_class=outcome.failure.failure_class,
        message="the preview could not be had; whoever asked for it was told why",
        boundary=outcome.failure.boundary,
    )
    return Failed(run_id=outcome.run_id, failure=failure)


def _too_slow() -> Failure:
    return Failure(
        failure_class=FailureClass.RESOURCE_LIMIT_EXCEEDED,
        message=f"it took longer than {_PREVIEW_S:.0f} s",
        boundary=Boundary.SANDBOX,
        details={"limit": "wall"},
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
