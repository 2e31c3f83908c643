"""`aileron console`: what waits for a person, on a screen that stays open; `--plain` the same in lines."""

from __future__ import annotations

import enum
import signal
from typing import Annotated

import typer

from aileron.cli import output
from aileron.cli.problem import OK, Problem, local_work
from aileron.cli.prompts import can_ask, edit_text
from aileron.cli.signing import alone
from aileron.cli.supervisor import Supervisor

__all__ = ["console"]


class _Theme(enum.StrEnum):
    DARK = "textual-dark"
    LIGHT = "textual-light"
    ANSI_DARK = "ansi-dark"
    ANSI_LIGHT = "ansi-light"
    HIGH_CONTRAST = "high-contrast"


def console(
    plain: Annotated[
        bool, typer.Option("--plain", help="In lines, for screen readers, simple terminals and logs.")
    ] = False,
    theme: Annotated[
        _Theme | None,
        typer.Option("--theme", help="Colours: of its own, of the terminal (ansi), or as strong as can be."),
    ] = None,
) -> None:
    """Decide what waits, on a screen that stays open.

    At a terminal of your own. The approver's key stays open for 15 minutes after its passphrase, in this process alone.
    """
    if not can_ask():
        raise Problem(
            "the console is for a person at a terminal",
            exit_code=6,
            name="unauthorized",
            why="standard input and output are not one",
            fix="run it in a terminal of your own, or look with: aileron approval list",
        )
    supervisor = Supervisor()
    _check_not_an_agents(supervisor)
    raise typer.Exit(alone(lambda: _run(supervisor, theme, plain=plain)))


def _run(supervisor: Supervisor, theme: _Theme | None, *, plain: bool) -> int:
    """In a process that nobody of the same user can look into."""
    from aileron.approver import presence, terminal
    from aileron.tui.door import Door

    door = Door(supervisor.home)
    not_kept = terminal.who_else_can_type()
    if plain:
        from aileron.tui.plain import Plain

        return Plain(door, ask=presence.ask_passphrase, edit=_edited, not_kept=not_kept).run()
    from aileron.tui.app import Console, Hooks

    hooks = Hooks(ask=presence.ask_passphrase, edit=_edited, take=terminal.take, let_go=terminal.let_go)
    screen = Console(door, hooks, not_kept=not_kept, theme=None if theme is None else theme.value)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, screen.end_with)  # also under nohup(1): without a terminal it is nothing
    with local_work():
        screen.run()
    return screen.return_code or OK


def _edited(text: str) -> str:
    """What a person makes of it in their editor. ValueError, which says why nothing came of it."""
    try:
        return edit_text(text, suffix=".json", instead="aileron approval edit ID --args JSON")
    except Problem as problem:
        raise ValueError("\n".join(problem.lines()[:1])) from None


def _check_not_an_agents(supervisor: Supervisor) -> None:
    """Return if this is no terminal of an agent that `aileron launch` began. Problem unauthorized."""
    from aileron.approver.terminal import ancestors

    chain = {process.pid for process in ancestors()}
    for session in supervisor.ask("GET", "/v1/sessions")["sessions"]:
        if session.get("status") == "open" and session.get("pid") in chain:
            raise Problem(
                f"this is a terminal of {output.as_text(session.get('agent'))}, session {output.as_text(session.get('id'))}",
                exit_code=6,
                name="unauthorized",
                why="an agent decides nothing, and could press the keys here",
                fix="run aileron console in a terminal of your own",
            )
