"""The gate: the only place where a plan becomes an ApprovedPlan.

Runs in the daemon. `admit` decides at once: approved by the rules, or a person is needed and nothing is made. `redeem` turns
a person's decision into exactly one ApprovedPlan:

1. the decision exists and says approve
2. it was made for these bytes (the digest)
3. it has not expired
4. it has not been redeemed before

1, 3 and 4 are one compare-and-set in the durable queue, so two redeemers cannot both win; 2 is checked there and again when
the ApprovedPlan is made. What the caller still owes: that the action is still enabled.

Source: docs/adr/0007-approval-bound-to-a-plan-digest.md.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Protocol

from aileron.approvals.rules import needs_person
from aileron.model.plan import ApprovedPlan, Plan

__all__ = ["Gate", "NeedsPerson", "Queue"]


@dataclasses.dataclass(frozen=True)
class NeedsPerson:
    """A person decides, until `expires_at` (seconds since the epoch)."""

    digest: str
    expires_at: float


class Queue(Protocol):
    """The durable queue of asks."""

    async def redeem(self, approval_id: str, digest: str, now: float) -> None:
        """Mark an approved, unexpired ask for `digest` as used; durable when it returns.

        AileronError: not_found, approval_denied, approval_expired, already_decided (pending, or used before).
        """
        ...


class Gate:
    """One for each daemon."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def admit(self, plan: Plan) -> ApprovedPlan | NeedsPerson:
        """Approved by the rules, or who must be asked. Writes nothing: the spine records either before acting on it."""
        digest = plan.digest
        if needs_person(plan):
            return NeedsPerson(digest, time.time() + plan.approval.expires_in_s)
        return _approve(plan, digest, None)

    async def redeem(self, approval_id: str, plan: Plan) -> ApprovedPlan:
        """Use a person's decision, once. AileronError as `Queue.redeem` says."""
        digest = plan.digest
        await self._queue.redeem(approval_id, digest, time.time())
        return _approve(plan, digest, approval_id)


def _approve(plan: Plan, digest: str, approval_id: str | None) -> ApprovedPlan:
    approved = ApprovedPlan._create(plan, digest, approval_id)
    if not isinstance(approved, ApprovedPlan):
        raise TypeError("the gate makes nothing else")
    return approved
