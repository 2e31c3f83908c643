"""`aileron setup`: the guided start, and the offer of it in a new home."""

from __future__ import annotations

from typing import Annotated

from aileron.cli.declared import Exit, Option
from aileron.cli.problem import Problem
from aileron.cli.prompts import can_ask

__all__ = ["setup"]


def setup(
    status: Annotated[bool, Option("--status", help="Show which steps are done, and ask nothing.")] = False,
) -> None:
    """Set up Aileron: vault, approver, services and an agent.

    Needs a terminal. Each step can be left with Ctrl-C, and the next `aileron setup` goes on there. Exit code 75 means that there
    is a step to do.
    """
    from aileron.cli.guided_setup import GuidedSetup, set_up
    from aileron.cli.supervisor import Supervisor

    if status:
        raise Exit(GuidedSetup(Supervisor()).tell_status())
    if not can_ask():
        raise Problem.usage(
            "setup asks questions, and there is no terminal to ask them at",
            why="a script uses `aileron vault init`, `aileron add SERVICE --secret NAME --yes` and `aileron launch`",
            fix="run `aileron setup` in a terminal of your own",
        )
    raise Exit(set_up(Supervisor()))
