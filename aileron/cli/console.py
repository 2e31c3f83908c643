"""`aileron console` without typer: parses its options, and prepares and starts the console's own process.

aileron/__main__.py calls this module before typer, because the person waits for the first frame. Modules that talk to the daemon
are imported after that frame. cli/commands/console.py has the help. Not here: the console (aileron/tui).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aileron.cli import output
from aileron.cli.problem import OK, Problem, local_work
from aileron.cli.prompts import can_ask, edit_text

if TYPE_CHECKING:
    from aileron.approver_key.hidraw import Port
    from aileron.approver_key.security_key import Person
    from aileron.tui.key_session import SecurityKeyHooks

__all__ = ["THEMES", "Options", "options_of", "run"]

_OFF: Final = b"".join(
    (
        b"\x1b[?2026l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l",  # draw at once, no mouse reports
        b"\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u",  # no reports of pastes, size or focus, no keys by number
        b"\x1b[23;2t",  # restore the title
        b"\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0m",  # restore the screen, wrapping, the cursor and plain letters
    )
)
"""Escape sequences that switch off every terminal mode that Textual switches on, for use after the console was killed."""
_DRAWS_NOTHING: Final = ("dumb", "unknown")
"""Values of TERM, terminfo(5), for terminals that cannot move the cursor: of editors and of simple consoles."""
THEMES: Final = ("textual-dark", "textual-light", "ansi-dark", "ansi-light", "high-contrast")


class Options(NamedTuple):
    """Options of the command. `theme` is one of THEMES; None for the theme that the person chose last."""

    theme: str | None = None


def options_of(words: Sequence[str]) -> Options | None:
    """Return the options. None if typer must read the words, for help or for an error message."""
    theme = None
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name != "--theme" or not (equals or left):
            return None
        theme = value if equals else left.pop(0)
    return Options(theme) if theme is None or theme in THEMES else None


def run(options: Options) -> int:
    """Run the console and return its exit code.

    Raises Problem(unauthorized) without a terminal for a person, or at an agent's terminal; (invalid_request) if the terminal
    cannot draw a screen.
    """
    if not can_ask():
        raise Problem(
            "the console needs a terminal",
            exit_code=6,
            name="unauthorized",
            why="standard input and output are not a terminal",
            fix="run it in a terminal of your own, or list what waits with: aileron approval list",
        )
    if os.environ.get("TERM") in _DRAWS_NOTHING:
        raise Problem(
            "this terminal cannot draw the console",
            exit_code=1,
            name="invalid_request",
            why=f"TERM={os.environ['TERM']}",
            fix="decide with: aileron approval list, then aileron approve ID",
        )
    from aileron.approver_key import isolation

    try:
        return isolation.isolated_process(lambda: _run(options.theme), put_right=_OFF)
    except Exception:
        with local_work():  # not around the call: it imports the failure classes, 15 ms
            raise


def _run(theme: str | None) -> int:
    """Run the console in a process that no other process of the user can inspect."""
    from aileron.approver_key import isolation, terminal
    from aileron.tui.daemon_client import DaemonClient

    isolation.end_with_terminal()
    daemon = DaemonClient(_home())
    # No import is garbage, and the search for cycles takes a tenth of the time to the first frame; on_mount turns it on again.
    gc.disable()
    from aileron.tui.app import Console, Hooks

    for name in (
        "COLUMNS",
        "LINES",
    ):  # a shell may export them: they override the terminal, and never change
        os.environ.pop(name, None)
    hooks = Hooks(
        check=_check_not_an_agents,
        ask=isolation.ask_passphrase,
        edit=_edited,
        take=terminal.take,
        let_go=terminal.let_go,
        security_keys=_security_keys(),
    )
    screen = Console(daemon, hooks, who_else=terminal.who_else_can_type, theme=theme)
    screen.run()
    if screen.refused is not None:
        raise screen.refused
    return screen.return_code or OK


def _home() -> Path:
    """Return the home as aileron.client does, but without the imports of that module."""
    configured = os.environ.get("AILERON_HOME")
    return Path(configured).absolute() if configured else Path.home() / ".aileron"


def _security_keys() -> SecurityKeyHooks:
    """Return the hooks for this machine's security keys."""
    from aileron.approver_key import isolation
    from aileron.tui.key_session import SecurityKeyHooks

    def is_plugged_in() -> bool:
        from aileron.approver_key import hidraw  # after the first frame

        return hidraw.is_plugged_in()

    def ports() -> Sequence[Port]:
        from aileron.approver_key import hidraw

        return hidraw.ports()

    @contextlib.contextmanager
    def person() -> Iterator[Person]:
        from aileron.approver_key.security_key import AtTerminal

        yield AtTerminal()

    return SecurityKeyHooks(
        is_plugged_in=is_plugged_in,
        ports=ports,
        offer=functools.partial(isolation.ask_passphrase, may_be_empty=True),
        person=person,
    )


def _edited(text: str) -> str:
    """Let the person edit `text` in their editor and return the result. Raises ValueError with the reason if editing fails."""
    try:
        return edit_text(text, suffix=".json", instead="aileron approval edit ID --args JSON")
    except Problem as problem:
        raise ValueError("\n".join(problem.lines()[:1])) from None


def _check_not_an_agents() -> None:
    """Check that a daemon runs, and that this terminal is not one that `aileron launch` opened for an agent.

    Raises Problem(unauthorized) otherwise.
    """
    from aileron.cli.supervisor import Supervisor

    for session in Supervisor().ask("GET", f"/v1/sessions?pid={os.getpid()}")["sessions"]:
        raise Problem(
            f"this is a terminal of {output.as_text(session.get('agent'))}, session {output.as_text(session.get('id'))}",
            exit_code=6,
            name="unauthorized",
            why="agents cannot decide, and one could send key presses here",
            fix="run aileron console in a terminal of your own",
        )
