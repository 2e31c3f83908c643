"""A plan on standard output or standard error: for `run --dry-run`, `approval show`, and before a decision.

Runs in commands. Not here: what is said of it (review/plan.py), consents, previews, differences (consent.py).
"""

from __future__ import annotations

from aileron.cli import output
from aileron.model.plan import Plan
from aileron.review.plan import argument_lines, step_facts

__all__ = ["COLUMN", "print_plan", "print_steps"]

COLUMN = 12
"""Where values begin, in the plan and in what stands above it."""


def print_plan(plan: Plan, stream: str = "stdout", *, more: str | None = None) -> None:
    """Its arguments and steps; on `stderr` as part of a question."""
    output.print_facts([("arguments", argument_lines(plan.args, more))], stream, column=COLUMN)
    for number, step in enumerate(plan.steps, start=1):
        output.write("", stream)
        output.print_facts(step_facts(number, step, more, is_whole=True), stream, column=COLUMN)


def print_steps(plan: Plan, stream: str, *, more: str | None = None) -> None:
    """Its steps below a summary of the whole: what a single step has in common with that is not said twice."""
    for number, step in enumerate(plan.steps, start=1):
        output.write("", stream)
        facts = step_facts(number, step, more, is_whole=len(plan.steps) > 1)
        if len(plan.steps) == 1 and step.args == plan.args:
            facts = [(name, value) for name, value in facts if name != "given"]
        output.print_facts(facts, stream, column=COLUMN)
