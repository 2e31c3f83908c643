"""`aileron mcp config`: what to paste into an agent's own configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from aileron.cli import output
from aileron.cli.commands.launch import agent_names, agent_of
from aileron.client import home_directory
from aileron.model.visible import visible_lines

__all__ = ["config"]


def config(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="claude, codex, opencode, goose or pi.", autocompletion=agent_names),
    ],
) -> None:
    """Print what registers the actions with an agent.

    It has them then however it is started.

    In the format of the file that standard error names. No token is in it: such an agent is the session `local`, or, where
    `aileron launch` starts it, that session.
    """
    from aileron.launch.programs import server_of

    snippet = agent_of(agent).snippet(server_of(home_directory()))
    output.note(f"to be put into {snippet.path}, beside what is there")
    if output.is_terminal():
        output.write("\n".join(visible_lines(snippet.text)))
    else:
        output.write_bytes(snippet.text.encode() + b"\n")
