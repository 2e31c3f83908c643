"""`aileron demo`: a run, an approval and a hostile connector in a home that is removed again."""

from __future__ import annotations

from typing import Annotated

from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Exit, Option

__all__ = ["demo"]


def demo(
    as_json: AsJson = False,
    keep: Annotated[
        bool, Option("--keep", help="Keep the demo's home directory so that you can look around in it.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Skip the question and answer yes.")] = False,
) -> None:
    """Show a real run, an approval, and a hostile connector stopped.

    At a terminal, the demo asks you once whether to create a calendar event.
    """
    from aileron.cli.demo import demo as show

    raise Exit(show(as_json=as_json, keep=keep, yes=yes))
