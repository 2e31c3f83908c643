"""A plan at rest: frozen when a person is asked, thawed when they look and when it runs, and the same each time.

Pure. Trusts its digest, not the bytes: what is thawed is a plan with exactly the digest asked about, or an error.

The frozen form keeps numbers as they were (canonical JSON would turn `1e17` into an integer that has no canonical form), so
it is not the canonical JSON of which the digest is made, but has the same digest.

Source: docs/adr (approval bound to a plan digest).
"""

from __future__ import annotations

import dataclasses

import msgspec

from aileron.model.failure import AileronError, FailureClass
from aileron.model.plan import Plan

__all__ = ["Frozen", "freeze", "thaw"]


@dataclasses.dataclass(frozen=True)
class Frozen:
    """The plan that a run waits with, and when the question was asked (seconds since the epoch)."""

    run_id: str
    plan: Plan
    asked_at: float


def freeze(plan: Plan) -> bytes:
    """The plan as JSON, for `thaw`."""
    return msgspec.json.encode(plan.to_json())


def thaw(subject: bytes, digest: str, approval_id: str) -> Plan:
    """The plan that was frozen. AileronError(hash_mismatch) if it is not the one of this digest."""
    try:
        plan = Plan.from_json(msgspec.json.decode(subject))
        if plan.digest == digest:
            return plan
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise AileronError(
        FailureClass.HASH_MISMATCH,
        f"the plan stored for {approval_id} is not the one a person was asked about: run `aileron audit verify`",
    )
