"""`aileron console` by itself: its words, and what it needs before it is a process of its own.

Dispatched before typer (aileron/__main__.py), because its first frame is waited for: what asks the daemon is imported, and asked,
after it. cli/commands/console.py has its help.
Not here: the console (aileron/tui).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from aileron.cli import output
from aileron.cli.problem import OK, Problem, local_work
from aileron.cli.prompts import can_ask, edit_text

if TYPE_CHECKING:
    from aileron.approver.hidraw import Port
    from aileron.approver.security_key import Person
    from aileron.tui.key_session import SecurityKeyHooks

__all__ = ["THEMES", "options_of", "run"]

_T = TypeVar("_T")
_OFF: Final = b"".join(
    (
        b"\x1b[?2026l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l",  # draw at once, report no mouse
        b"\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u",  # nor a paste, a size, a focus, or keys by their numbers
        b"\x1b[23;2t",  # the title is the one from before
        b"\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0m",  # the screen from before, with lines that wrap, a cursor and plain letters
    )
)
"""What Textual switches on in a terminal, switched off: for a console that was killed and could not."""
THEMES: Final = ("textual-dark", "textual-light", "ansi-dark", "ansi-light", "high-contrast")


def options_of(words: Sequence[str]) -> tuple[str | None, bool] | None:
    """Theme, and whether it is in lines; None where the words need typer, for help or to say what is wrong with them."""
    theme, is_plain = None, False
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name == "--plain" and not equals:
            is_plain = True
        elif name == "--theme" and (equals or left):
            theme = value if equals else left.pop(0)
        else:
            return None
    return (theme, is_plain) if theme is None or theme in THEMES else None


def run(theme: str | None, *, plain: bool) -> int:
    """Its exit code. Problem unauthorized where there is no person, or it is an agent's terminal."""
    if not can_ask():
        raise Problem(
            "the console needs a terminal",
            exit_code=6,
            name="unauthorized",
            why="standard input and output are not a terminal",
            fix="run it in a terminal of your own, or list what waits with: aileron approval list",
        )
    from aileron.approver import isolation

    try:
        return isolation.isolated_process(lambda: _run(theme, plain=plain), put_right=b"" if plain else _OFF)
    except Exception:
        with local_work():  # not around it: it imports what a failure is, 15 ms
            raise


def _run(theme: str | None, *, plain: bool) -> int:
    """In a process that nobody of the same user can look into."""
    from aileron.approver import isolation, terminal
    from aileron.tui.daemon_client import DaemonClient

    isolation.end_with_terminal()
    daemon = DaemonClient(_home())
    if plain:
        from aileron.approver.no_echo import no_echo
        from aileron.tui.key_session import REST_S
        from aileron.tui.plain import Plain

        _check_not_an_agents()

        with terminal.held():
            return Plain(
                daemon,
                ask=_let_go(isolation.ask_passphrase),
                edit=_let_go(_edited),
                take=terminal.take,
                who_else=terminal.who_else_can_type,
                no_echo=lambda: no_echo(REST_S),
                security_keys=_security_keys(let_go=True),
            ).run()
    # Nothing that is imported is garbage, and looking for some takes a tenth of the time to the first frame; after it: on_mount.
    gc.disable()
    from aileron.tui.app import Console, Hooks

    for name in (
        "COLUMNS",
        "LINES",
    ):  # of a shell that exports them: they are asked before the terminal, and never change
        os.environ.pop(name, None)
    hooks = Hooks(
        check=_check_not_an_agents,
        ask=isolation.ask_passphrase,
        edit=_edited,
        take=terminal.take,
        let_go=terminal.let_go,
        security_keys=_security_keys(let_go=False),
    )
    screen = Console(daemon, hooks, who_else=terminal.who_else_can_type, theme=theme)
    screen.run()
    if screen.refused is not None:
        raise screen.refused
    return screen.return_code or OK


def _home() -> Path:
    """As aileron.client has it, without its imports."""
    configured = os.environ.get("AILERON_HOME")
    return Path(configured).absolute() if configured else Path.home() / ".aileron"


def _let_go(work: Callable[[str], _T]) -> Callable[[str], _T]:
    """`work`, which holds the terminal by itself, or has a program at it that opens it."""
    from aileron.approver import terminal

    def done(given: str) -> _T:
        terminal.let_go()
        try:
            return work(given)
        finally:
            terminal.take()

    return done


def _security_keys(*, let_go: bool) -> SecurityKeyHooks:
    """Those of this machine; what asks for a PIN, or waits for a touch, holds the terminal by itself: `let_go` of it before."""
    from aileron.approver import isolation, terminal
    from aileron.tui.key_session import SecurityKeyHooks

    def is_plugged_in() -> bool:
        from aileron.approver import hidraw  # after the first frame

        return hidraw.is_plugged_in()

    def ports() -> Sequence[Port]:
        from aileron.approver import hidraw

        return hidraw.ports()

    offer = functools.partial(isolation.ask_passphrase, may_be_empty=True)

    @contextlib.contextmanager
    def person() -> Iterator[Person]:
        from aileron.approver.security_key import AtTerminal

        if let_go:
            terminal.let_go()
        try:
            yield AtTerminal()
        finally:
            if let_go:
                terminal.take()

    return SecurityKeyHooks(
        is_plugged_in=is_plugged_in,
        ports=ports,
        offer=_let_go(offer) if let_go else offer,
        person=person,
    )


def _edited(text: str) -> str:
    """What a person makes of it in their editor. ValueError, which says why nothing came of it."""
    try:
        return edit_text(text, suffix=".json", instead="aileron approval edit ID --args JSON")
    except Problem as problem:
        raise ValueError("\n".join(problem.lines()[:1])) from None


def _check_not_an_agents() -> None:
    """Return if there is a daemon, and this is no terminal of an agent that `aileron launch` began. Problem unauthorized."""
    from aileron.cli.supervisor import Supervisor

    for session in Supervisor().ask("GET", f"/v1/sessions?pid={os.getpid()}")["sessions"]:
        raise Problem(
            f"this is a terminal of {output.as_text(session.get('agent'))}, session {output.as_text(session.get('id'))}",
            exit_code=6,
            name="unauthorized",
            why="agents cannot decide, and one could send key presses here",
            fix="run aileron console in a terminal of your own",
        )
