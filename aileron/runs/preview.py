"""Previews: the current state, which a person is shown before they decide. A preview is read in a jail with safe
methods only, and recorded as a run.

Runs in the daemon. Source: docs/explanation/architecture.md. Not here: who may request a preview
(daemon/consent_service/service.py), which of several previews is the newest (daemon/consent_service/previews.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aileron.actions.resolve import preview_plan
from aileron.approvals.gate import NeedsPerson
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.preview import PreviewField, shown_digest, shown_effects
from aileron.runs.carry_out import CarryOut
from aileron.runs.parts import Parts
from aileron.threads import in_thread

__all__ = ["Previewed", "preview"]

_PREVIEWER: Final = "approver"
"""Session name under which previews are recorded; it belongs to no agent."""


class Previewed(NamedTuple):
    """The result of a preview of the plan with `plan_digest`: its `fields`, or the `problem` that prevented it."""

    plan_digest: str
    fields: list[PreviewField] | None
    problem: str | None


async def preview(approval_id: str, plan_digest: str | None, parts: Parts, carry_out: CarryOut) -> Previewed:
    """Read the current state for the question with this approval id, in a jail and with safe methods only. Return it as
    fields, or the problem that prevented it. The preview is recorded as a separate run.

    Raises AileronError: not_found; invalid_request if its action has no preview; busy at the question's maximum number of
    previews.
    """
    frozen = await parts.audit.frozen(approval_id, plan_digest)
    planned = frozen.plan.preview
    if planned is None:
        raise AileronError(FailureClass.INVALID_REQUEST, f"the action of {approval_id} has no preview")
    await in_thread(parts.runnable.check_readable, frozen.plan)
    reading = preview_plan(frozen.plan)
    admitted = parts.gate.admit(reading)
    if isinstance(admitted, NeedsPerson):
        raise TypeError("a preview does not wait for approval")
    invocation = Invocation(action=reading.action, args=reading.args, scope=Scope.OPERATOR, session=_PREVIEWER)
    run_id = await parts.audit.requested(reading, invocation, layers=parts.executor.layers_ahead(reading))
    fields, failure = await carry_out.read(run_id, admitted.approved, planned)
    await parts.audit.add_preview(
        approval_id,
        frozen.plan.digest,
        None if fields is None else shown_digest(fields),
        run_id=run_id,
        failure_class=None if failure is None else failure.failure_class,
        effects=None if fields is None else shown_effects(fields),
    )
    return Previewed(frozen.plan.digest, fields, None if failure is None else failure.message)
