"""Rules for when a person must be asked before a plan is carried out. Pure.

One rule today: the action says so. The rule reads the plan, never the caller: no caller is trusted to skip it.
"""

from __future__ import annotations

from aileron.model.plan import Plan

__all__ = ["needs_person"]


def needs_person(plan: Plan) -> bool:
    """Return whether a person must decide this plan first."""
    return plan.approval.required
