"""The path of an approved run: exactly the bytes of the frozen plan are executed, and only once.

    1 the frozen plan, from the ledger
    2 redeem the decision, at most once → ApprovedPlan
    3 carry out (carry_out.py)

Runs in the daemon. Source: docs/explanation/architecture.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aileron.approvals.gate import QueuedApproval
from aileron.audit.frozen import Frozen
from aileron.model.decision import held_until
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import Outcome
from aileron.runs.carry_out import CarryOut
from aileron.runs.parts import Parts
from aileron.threads import in_thread

__all__ = ["Held", "resume"]

_MAY_PASS: Final = frozenset({FailureClass.VAULT_LOCKED, FailureClass.BUSY, FailureClass.INTERNAL_ERROR})
"""Failure classes that leave an approval usable, because the cause can be temporary: a locked vault, a full ledger or a
full disk.
"""


class Held(AileronError):
    """Error: an approved run does not start yet, because a person can still cancel it. The run starts at `until` (s
    since the epoch).
    """

    def __init__(self, approval_id: str, until: float) -> None:
        super().__init__(
            FailureClass.BUSY,
            f"{approval_id} is held so that it can be cancelled; it starts by itself",
            retriable=True,
        )
        self.until = until


async def resume(approval_id: str, announce: Callable[[str], None], parts: Parts, carry_out: CarryOut) -> Outcome:
    """Execute the frozen plan that a person approved in the question with this approval id, at most once; call
    `announce` with the run id once the run has started.

    If the plan can no longer run, for example because its action was disabled, its binding changed or the decision's
    signature is not the approver's, the run fails and the decision is used up. Raises AileronError, and uses up nothing, if
    there is no usable decision, or for a failure in _MAY_PASS such as a locked vault. Raises Held while the run can still be
    cancelled.
    """
    try:
        frozen = await parts.audit.frozen(approval_id)
        decided = _decided(approval_id, frozen)
        parts.gate.check_decided(frozen.plan, decided)
        _check_held(approval_id, frozen)
        await in_thread(parts.runnable.check_still, frozen)
    except AileronError as error:
        if error.failure.failure_class in _MAY_PASS:
            raise
        return await parts.audit.give_up(approval_id, error.failure)
    approved = await parts.gate.redeem(frozen.plan, decided)
    announce(frozen.run_id)
    return await carry_out.run(frozen.run_id, approved, by=decided)


def _decided(approval_id: str, frozen: Frozen) -> QueuedApproval:
    decision = frozen.decision
    return QueuedApproval(
        approval_id=approval_id,
        digest=frozen.digest,
        preview=None if decision is None else decision.preview,
        reason=None if decision is None else decision.reason,
        signed=None if decision is None else decision.signed,
        effects=frozen.effects,
    )


def _check_held(approval_id: str, frozen: Frozen) -> None:
    """Raise Held if the hold in which a person can cancel this approved run is not over."""
    decision = frozen.decision
    if decision is None:
        return
    signed_at = None if decision.signed is None else decision.signed.at
    until = held_until(decision.decided_at, signed_at, frozen.plan.approval.undo_window_s)
    if time.time() < until:
        raise Held(approval_id, until)
