"""The spine (runs/spine.py): the only path of every invocation.

    request(invocation) -> Outcome | Pending     request.py     resolve, record, admit, carry out
    resume(approval id) -> Outcome               resume.py      the frozen plan, redeemed once and executed
    preview(approval id) -> Previewed            preview.py     the state for the person, read by a plan that only reads

All three end in carry_out.py, the only caller of the executor; runnable.py checks whether a plan can run now.

Runs in the daemon. Nothing here waits for a person.

Source: docs/explanation/architecture.md. Not here: who may call (daemon/http/api/), runs that outlive callers (daemon/runner.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aileron.approvals.gate import Gate
from aileron.audit import query
from aileron.audit.log import Audit
from aileron.executor.execute import Executor
from aileron.ledger.rows import RunRow
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import ActionFileConsent
from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Outcome, Pending, Running, RunStatus
from aileron.model.plan import Plan
from aileron.runs import preview, resume
from aileron.runs.carry_out import CarryOut
from aileron.runs.preview import Previewed
from aileron.runs.progress import Board
from aileron.runs.request import Requests
from aileron.runs.runnable import Runnable

__all__ = ["Spine"]


class Spine:
    """Entry points for requests, approved runs and previews of actions. Each daemon has one instance.

    `ask` queues a question about a file and returns the approval's id; `asked` is called for each question about a run;
    `look` reloads the settings if they changed; `tool_changed` is passed to CarryOut.
    """

    def __init__(
        self,
        runnable: Runnable,
        *,
        ask: Callable[[ActionFileConsent], Awaitable[str]],
        asked: Callable[[str, str, str], None],
        look: Callable[[], Awaitable[None]],
        tool_changed: Callable[[str, Plan, Failure], Awaitable[Failure]],
        gate: Gate,
        ledger: Ledger,
        audit: Audit,
        executor: Executor,
        board: Board,
    ) -> None:
        self._runnable = runnable
        self._gate = gate
        self._ledger = ledger
        self._audit = audit
        self._executor = executor
        self._carry_out = CarryOut(
            gate=gate,
            audit=audit,
            executor=executor,
            board=board,
            explained=runnable.with_setting,
            tool_changed=tool_changed,
        )
        self._requests = Requests(
            runnable=runnable,
            gate=gate,
            audit=audit,
            executor=executor,
            carry_out=self._carry_out,
            ask=ask,
            asked=asked,
            look=look,
            so_far=self._so_far,
        )

    def resolve(self, invocation: Invocation) -> Plan:
        """Return the plan for an invocation. Reads; writes nothing. Raises AileronError if the invocation does not resolve."""
        return self._runnable.resolve(invocation)

    async def request(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome | Pending | Running:
        """Process one invocation as far as possible without a person (Requests.request)."""
        return await self._requests.request(invocation, announce, is_wanted)

    async def resume(self, approval_id: str, announce: Callable[[str], None]) -> Outcome:
        """Execute the plan that a person approved (resume.py)."""
        return await resume.resume(
            approval_id,
            announce,
            audit=self._audit,
            gate=self._gate,
            runnable=self._runnable,
            carry_out=self._carry_out,
        )

    async def preview(self, approval_id: str, plan_digest: str | None) -> Previewed:
        """Read the preview of a question (preview.py)."""
        return await preview.preview(
            approval_id,
            plan_digest,
            audit=self._audit,
            gate=self._gate,
            runnable=self._runnable,
            executor=self._executor,
            carry_out=self._carry_out,
        )

    async def close_unrecorded(self) -> None:
        """Close as `unknown` the runs whose outcome could not be recorded. Raises AileronError while they still cannot be."""
        await self._carry_out.close_unrecorded()

    async def so_far(self, run_id: str) -> Outcome | Pending | Running:
        """Return the outcome or the current state of a run. Raises AileronError(not_found) if the run does not exist."""
        row = await self._ledger.read(lambda snapshot: snapshot.run(run_id))
        if row is None:
            raise AileronError(FailureClass.NOT_FOUND, f"no run {run_id[:80]!r}")
        return await self._so_far(row)

    async def approved(self) -> list[str]:
        """Return the approvals of the runs that can start and have not started, the oldest first."""
        rows = await self._ledger.read(lambda snapshot: snapshot.runs_in(RunStatus.APPROVED))
        return [row.approval for row in rows if row.approval is not None]

    async def party(self, approval_id: str) -> str:
        """Return the party whose share the run of an approval counts against. Raises AileronError(not_found)."""
        return await self._audit.party(approval_id)

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
