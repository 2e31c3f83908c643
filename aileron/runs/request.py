"""The path of a request: one invocation, processed as far as possible without a person.

    1 resolve   pure: the file as it is now → Plan
    2 record    durable, before anything else
    3 admit     the gate: ApprovedPlan or Pending
    4 carry out (carry_out.py)

Runs in the daemon. Nothing here waits for a person.

Rules
- Nothing happens that is not recorded. An invocation that does not resolve gives one `refused` record and nothing else.
  An invocation that is admitted at once is recorded as requested and started in one commit, before its jail receives
  anything.

Source: docs/explanation/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aileron.approvals.gate import NeedsPerson
from aileron.audit import query
from aileron.audit.log import GrantSpent, GrantUse, KeyTaken, Repeated
from aileron.ledger.rows import RunRow
from aileron.model.consent import ConsentKind
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Failed, Outcome, Pending, Running, RunStatus
from aileron.model.plan import Plan
from aileron.runs.carry_out import CarryOut
from aileron.runs.parts import Parts
from aileron.runs.runnable import ConsentMissing
from aileron.threads import in_thread

__all__ = ["Requests"]


class Requests:
    """Processes requests to run an action, up to their outcome or a question. Each daemon has one instance."""

    def __init__(self, parts: Parts, carry_out: CarryOut) -> None:
        self._parts = parts
        self._carry_out = carry_out

    async def request(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome | Pending | Running:
        """Process one invocation as far as possible without a person; call `announce` with the run id once the run is recorded.

        `is_wanted` is called once before recording: a call that was withdrawn by then is refused as `cancelled`. Raises
        AileronError if nothing could be recorded; then nothing was done.
        """
        await self._parts.look()
        earlier = await self._parts.audit.earlier(invocation)
        if earlier is None:
            try:
                return await self._request_first(invocation, announce, is_wanted)
            except KeyTaken:  # another caller has used the key since `earlier`
                earlier = await self._parts.audit.earlier(invocation)
                if earlier is None:
                    raise
        announce(earlier.id)  # the same idempotency key: the same run, not another
        return await self.so_far(earlier)

    async def _request_first(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool]
    ) -> Outcome | Pending | Running:
        try:
            plan = await self._resolved(invocation)
            if not is_wanted():
                raise AileronError(
                    FailureClass.CANCELLED,
                    "the call was withdrawn before it started; nothing was done",
                    boundary=Boundary.USER,
                )
        except AileronError as error:
            failure = await self._with_question(error)
            return Failed(run_id=await self._parts.audit.refused(invocation, failure), failure=failure)
        except OSError as error:  # for example, no descriptor is free
            failure = _unreadable(error)
            return Failed(run_id=await self._parts.audit.refused(invocation, failure), failure=failure)
        try:
            return await self._begin(plan, invocation, announce)
        except Repeated as error:
            return Failed(run_id=await self._parts.audit.refused(invocation, error.failure), failure=error.failure)

    async def _resolved(self, invocation: Invocation) -> Plan:
        if self._parts.runnable.is_quick(invocation):
            return self._parts.runnable.resolve(invocation)
        return await in_thread(self._parts.runnable.resolve, invocation)

    async def _begin(
        self, plan: Plan, invocation: Invocation, announce: Callable[[str], None]
    ) -> Outcome | Pending | Running:
        """Record the run of a plan, then execute it or ask a person. Return its outcome or its state.

        Raises Repeated, without recording anything, if an earlier run of the plan may have taken effect.
        """
        spent: set[str] = set()
        while True:  # one more round for each grant that was spent meanwhile
            admitted = self._parts.gate.admit(plan, spent=spent)
            if isinstance(admitted, NeedsPerson):
                pending = await self._parts.audit.pending(plan, invocation, admitted.expires_at)
                self._parts.asked(pending.approval_id, plan.action, ConsentKind.ACTION.value)
                announce(pending.run_id)
                return pending
            use = None if admitted.grant is None else GrantUse(admitted.grant.id, admitted.grant.uses)
            try:
                run_id = await self._parts.audit.requested(
                    plan, invocation, layers=self._parts.executor.layers_ahead(plan), grant=use
                )
            except GrantSpent as error:
                spent.add(error.grant)
                continue
            announce(run_id)
            return await self._carry_out.run(run_id, admitted.approved, by=admitted.grant)

    async def so_far(self, row: RunRow) -> Outcome | Pending | Running:
        """Return the outcome of a recorded run that has ended, or its current state."""
        outcome = query.outcome_of(row)
        if outcome is not None:
            return outcome
        approval_id = row.approval
        if row.status is RunStatus.PENDING_APPROVAL and approval_id is not None:
            approval = await self._parts.ledger.read(lambda snapshot: snapshot.approval(approval_id))
            if approval is not None:
                return Pending(run_id=row.id, approval_id=approval.id, expires_at=approval.expires_us / 1_000_000)
        if row.status is RunStatus.APPROVED:
            return Running(run_id=row.id, status=RunStatus.APPROVED, approval_id=approval_id)
        return Running(run_id=row.id)

    async def _with_question(self, error: AileronError) -> Failure:
        """Return the failure that the error reports. If the error is a ConsentMissing, also ask the person for that
        consent, and add the approval id of the question to the failure.
        """
        if not isinstance(error, ConsentMissing):
            return error.failure
        approval_id = await self._parts.ask(error.subject)
        return msgspec.structs.replace(
            error.failure,
            message=f"{error.failure.message}; it runs after `aileron approve {approval_id}`",
            details={"approval_id": approval_id, "action": error.subject.name},
        )


def _unreadable(error: OSError) -> Failure:
    return Failure(
        failure_class=FailureClass.INTERNAL_ERROR,
        message=f"the files that the action needs cannot be read: {error.strerror}; nothing was done",
        boundary=Boundary.RUNTIME,
    )
