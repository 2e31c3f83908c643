"""`aileron completion`, and what completes words that only the daemon knows."""

from __future__ import annotations

from typing import Annotated

import typer

from aileron.cli import output
from aileron.cli.problem import Problem

__all__ = ["action_names", "completion"]

_SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print a shell's completion script.

    For example: source <(aileron completion bash)
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it is there, unannounced

    if shell not in _SHELLS:
        raise Problem.usage(f"{shell!r} is not {', '.join(_SHELLS)}", fix="aileron completion bash")
    output.write(get_completion_script(prog_name="aileron", complete_var="_AILERON_COMPLETE", shell=shell))


def action_names(incomplete: str) -> list[str]:
    """The names that a running daemon knows; none where none runs, and never an error: somebody is typing."""
    from aileron.cli.supervisor import Supervisor

    try:
        answer = Supervisor(operator=False).maybe_ask("/v1/actions")
    except Problem:
        return []
    names = [str(action.get("name")) for action in (answer or {}).get("actions", [])]
    return [name for name in names if name.startswith(incomplete) and name.isascii() and name.isprintable()]
