"""The spine (runs/spine.py): the only path of every invocation.

    request(invocation) -> Outcome | Pending     request.py     resolve, record, admit, carry out
    resume(approval id) -> Outcome               resume.py      the frozen plan, redeemed once and executed
    preview(approval id) -> Previewed            preview.py     the state for the person, read by a plan that only reads

All three end in carry_out.py, the only caller of the executor; runnable.py checks whether a plan can run now.

Runs in the daemon. Nothing here waits for a person.

Source: docs/explanation/architecture.md. Not here: who may call (daemon/http/api/), runs that outlive callers (daemon/runner.py).
"""

from __future__ import annotations

from collections.abc import Callable

from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Outcome, Pending, Running, RunStatus
from aileron.model.plan import Plan
from aileron.runs import preview, resume
from aileron.runs.carry_out import CarryOut
from aileron.runs.parts import Parts
from aileron.runs.preview import Previewed
from aileron.runs.request import Requests

__all__ = ["Spine"]


class Spine:
    """Entry points for requests, approved runs and previews of actions. Each daemon has one instance."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._carry_out = CarryOut(parts)
        self._requests = Requests(parts, self._carry_out)

    def resolve(self, invocation: Invocation) -> Plan:
        """Return the plan for an invocation. Reads; writes nothing. Raises AileronError if the invocation does not resolve."""
        return self._parts.runnable.resolve(invocation)

    async def request(
        self, invocation: Invocation, announce: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome | Pending | Running:
        """Process one invocation as far as possible without a person (Requests.request)."""
        return await self._requests.request(invocation, announce, is_wanted)

    async def resume(self, approval_id: str, announce: Callable[[str], None]) -> Outcome:
        """Execute the plan that a person approved in the question with this approval id (resume.py)."""
        return await resume.resume(approval_id, announce, self._parts, self._carry_out)

    async def preview(self, approval_id: str, plan_digest: str | None) -> Previewed:
        """Read the current state for the question with this approval id (preview.py)."""
        return await preview.preview(approval_id, plan_digest, self._parts, self._carry_out)

    async def close_unrecorded(self) -> None:
        """Close as `unknown` the runs whose outcome could not be recorded. Raises AileronError if they still cannot be
        recorded.
        """
        await self._carry_out.close_unrecorded()

    async def so_far(self, run_id: str) -> Outcome | Pending | Running:
        """Return the outcome of a run that has ended, or its current state. Raises AileronError(not_found) if the run
        does not exist.
        """
        row = await self._parts.ledger.read(lambda snapshot: snapshot.run(run_id))
        if row is None:
            raise AileronError(FailureClass.NOT_FOUND, f"no run {run_id[:80]!r}")
        return await self._requests.so_far(row)

    async def approved(self) -> list[str]:
        """Return the approval ids of the approved runs that can start and have not started, the oldest first."""
        rows = await self._parts.ledger.read(lambda snapshot: snapshot.runs_in(RunStatus.APPROVED))
        return [row.approval for row in rows if row.approval is not None]

    async def party(self, approval_id: str) -> str:
        """Return the party (a session or a person) to which the run of this approval belongs: the run counts against
        that party's share. Raises AileronError(not_found).
        """
        return await self._parts.audit.party(approval_id)
