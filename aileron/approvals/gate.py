"""The gate: the only place where a plan becomes an ApprovedPlan.

Runs in the daemon. `admit` decides immediately: the plan is approved by the rules or by a standing grant, or a person is
needed and no ApprovedPlan is made. `redeem` turns a person's decision into exactly one ApprovedPlan:

1. the decision exists and says approve
2. if an approver exists, it is signed with their key, over these very bytes (signed.py)
3. it was made for these bytes (the digest)
4. it has not expired, by the queue and by the signed time
5. it has not been redeemed before

Conditions 1, 4 and 5 are checked by one compare-and-set in the durable queue, so two callers cannot both redeem. Condition 3
is checked there too, and again when the ApprovedPlan is made. The check of condition 2 trusts the open vault and not the
queue's file, and so does `spend`, the first step of a run that was approved or admitted by a grant. `spend` records the use in
the vault before the run does anything, so that a decision, or a use of a grant, counts only once. Left to the caller: that the
action is still enabled, and that a grant's use is counted in the same commit that records the run.

Source: docs/adr/0007-approval-bound-to-a-plan-digest.md, docs/adr/0017-signed-decisions.md.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Protocol

import msgspec

from aileron.approvals.grants import matches
from aileron.approvals.rules import needs_person
from aileron.approvals.signed import check_signed, check_still_fresh, usable_until
from aileron.model.consent import ConsentKind, Consents, StandingGrant
from aileron.model.decision import Signature, digest_with_preview
from aileron.model.failure import AileronError, FailureClass
from aileron.model.plan import ApprovedPlan, Plan
from aileron.model.preview import SeenEffects

__all__ = ["Admission", "Approver", "Gate", "NeedsPerson", "Queue", "QueuedApproval"]


class NeedsPerson(msgspec.Struct, frozen=True):
    """The gate's answer that a person must decide about the plan, until `expires_at` (seconds since the epoch)."""

    digest: str
    expires_at: float


class Admission(msgspec.Struct, frozen=True):
    """The gate's answer that the plan can be executed now: by the rules alone, or by the standing grant `grant`, one
    use of which is counted when the run is recorded.
    """

    approved: ApprovedPlan
    grant: StandingGrant | None = None


class QueuedApproval(msgspec.Struct, frozen=True):
    """An approval as stored in the queue. `digest` covers the plan, and the preview if `preview` is set (model/decision.py)."""

    approval_id: str
    digest: str
    preview: str | None
    reason: str | None
    signed: Signature | None
    effects: SeenEffects | None = None
    """Recorded effects that the preview showed. They are valid only if `preview` is their digest."""


class Queue(Protocol):
    """The durable queue of questions to a person."""

    async def redeem(self, approval_id: str, digest: str, now: float) -> None:
        """Mark an approved, unexpired question about `digest` as used. The change is durable on return.

        Raises AileronError: not_found, approval_denied, approval_expired, already_decided (pending, or used before).
        """
        ...


class Approver(Protocol):
    """The approver of this home, and the vault's records of used decisions and grants."""

    def consents(self) -> Consents | None:
        """Return the approver's key and consents, verified; None if decisions are not signed.

        Raises AileronError (vault_locked, hash_mismatch).
        """
        ...

    async def spend_decision(self, approval_id: str, until: float) -> None:
        """Record durably in the sealed vault that this decision was used. The record is needed until `until` (seconds since the
        epoch); later, the decision is too old to be used.

        Raises AileronError: vault_locked; hash_mismatch if the decision was used before.
        """
        ...

    async def spend_use(self, grant_id: str) -> None:
        """Count one use of a standing grant durably in the sealed vault.

        Raises AileronError: vault_locked; consent_required if no use is left.
        """
        ...


class Gate:
    """The gate of one daemon."""

    def __init__(self, queue: Queue, approver: Approver) -> None:
        self._queue = queue
        self._approver = approver

    def admit(self, plan: Plan, *, spent: Collection[str] = ()) -> Admission | NeedsPerson:
        """Admit a plan by the rules or by a standing grant whose id is not in `spent`; otherwise return that a person
        must decide.

        Writes nothing: the spine (runs/spine.py) records either result before acting on it. Raises AileronError
        (vault_locked, hash_mismatch).
        """
        consents = self._approver.consents()
        digest = plan.digest
        if not needs_person(plan):
            return Admission(_approve(plan, digest, None))
        now = time.time()
        for grant in () if consents is None else consents.grants:
            if grant.id not in spent and grant.used < grant.uses and matches(grant, plan, now):
                return Admission(_approve(plan, digest, grant.id), grant)
        return NeedsPerson(digest, now + plan.approval.expires_in_s)

    def check_decided(self, plan: Plan, decided: QueuedApproval) -> None:
        """Check that `decided`, the stored decision, can be used for `plan`. Raises AileronError (vault_locked,
        unauthorized, hash_mismatch, approval_expired).
        """
        about = plan.digest if decided.preview is None else digest_with_preview(plan.digest, decided.preview)
        if about != decided.digest:
            raise AileronError(FailureClass.HASH_MISMATCH, f"{decided.approval_id} approves other bytes than these")
        consents = self._approver.consents()
        if consents is None:
            return
        check_signed(
            consents,
            decided.signed,
            approval_id=decided.approval_id,
            digest=decided.digest,
            decision="approve",
            reason=decided.reason,
            kind=ConsentKind.ACTION,
        )
        if decided.signed is not None:
            check_still_fresh(decided.signed, plan)
        if consents.is_used(decided.approval_id):
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"{decided.approval_id} was already used or withdrawn, and the record does not say so: `aileron audit verify`",
            )

    async def redeem(self, plan: Plan, decided: QueuedApproval) -> ApprovedPlan:
        """Use up a person's decision about `plan`, which is possible only once, and return the approved plan. Raises AileronError
        as `check_decided` and `Queue.redeem` do.
        """
        self.check_decided(plan, decided)
        await self._queue.redeem(decided.approval_id, decided.digest, time.time())
        return _approve(plan, plan.digest, decided.approval_id, _seen(decided))

    async def spend(self, plan: Plan, by: QueuedApproval | StandingGrant) -> None:
        """Record in the vault the decision or grant that an approved run uses, before the run does anything. Does nothing if
        decisions are not signed. Raises AileronError as `Approver` does.
        """
        if isinstance(by, StandingGrant):
            await self._approver.spend_use(by.id)
        elif by.signed is not None and self._approver.consents() is not None:
            await self._approver.spend_decision(by.approval_id, usable_until(by.signed, plan))


def _seen(decided: QueuedApproval) -> str | None:
    """Return the digest of the effects that the person saw in the preview; None if no effects are recorded, or if the
    recorded effects do not match the signed digest of the preview.
    """
    effects = decided.effects
    return effects.effects if effects is not None and effects.digest == decided.preview else None


def _approve(plan: Plan, digest: str, approval_id: str | None, seen: str | None = None) -> ApprovedPlan:
    approved = ApprovedPlan._create(plan, digest, approval_id, seen)
    if not isinstance(approved, ApprovedPlan):
        raise TypeError("the gate makes nothing else")
    return approved
