"""`aileron mcp config`: the text to paste into an agent's own configuration."""

from __future__ import annotations

from typing import Annotated

from aileron.cli import output
from aileron.cli.commands.launch import agent_names, agent_of
from aileron.cli.declared import Argument
from aileron.client import home_directory
from aileron.model.visible import visible_lines

__all__ = ["config"]


def config(
    agent: Annotated[
        str,
        Argument(metavar="AGENT", help="Agent: claude, codex, opencode, goose or pi.", autocompletion=agent_names),
    ],
) -> None:
    """Print the configuration that gives an agent your actions.

    It works however the agent is started. Standard error names the file that it belongs in. It contains no token: the agent acts
    as the session `local`, or in its own session if `aileron launch` starts it.
    """
    from aileron.launch.programs import server_of

    snippet = agent_of(agent).snippet(server_of(home_directory()))
    output.note(f"add this to {snippet.path}, beside what is there")
    if output.is_terminal():
        output.write("\n".join(visible_lines(snippet.text)))
    else:
        output.write_bytes(snippet.text.encode() + b"\n")
