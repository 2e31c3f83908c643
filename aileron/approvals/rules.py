"""Rules for when a person must be asked before a plan is executed. Pure.

One rule today: the action requires it. The rule reads the plan and ignores the caller, because no caller is trusted to skip it.
"""

from __future__ import annotations

from aileron.model.plan import Plan

__all__ = ["needs_person"]


def needs_person(plan: Plan) -> bool:
    """Return whether a person must decide about this plan before it is executed."""
    return plan.approval.required
