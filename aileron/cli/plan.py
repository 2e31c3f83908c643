"""Prints a plan on standard output, for `run --dry-run`.

Runs in commands. Not here: the text about a plan (cards/plan.py), the card of a question (card.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aileron.cli import output

if TYPE_CHECKING:
    from aileron.model.plan import Plan

__all__ = ["COLUMN", "print_plan"]

COLUMN = 12
"""Column where values begin, in the plan and in the facts above the plan."""


def print_plan(plan: Plan, stream: str = "stdout", *, more: str | None = None) -> None:
    """Print a plan's arguments and steps. The stream is `stderr` for a plan that is part of a question."""
    from aileron.cards.plan import argument_lines, step_facts

    output.print_facts([("arguments", argument_lines(plan.args, more))], stream, column=COLUMN)
    for number, step in enumerate(plan.steps, start=1):
        output.write("", stream)
        output.print_facts(step_facts(number, step, more, is_whole=True), stream, column=COLUMN)
