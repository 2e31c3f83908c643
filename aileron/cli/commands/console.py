"""`aileron console`: what waits for a person, on a screen that stays open; `--plain` the same in lines."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from aileron.cli.console import run

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
    raise typer.Exit(run(None if theme is None else str(theme.value), plain=plain))
