"""`aileron console`: open questions on a screen that stays open."""

from __future__ import annotations

import enum
from typing import Annotated

from aileron.cli.console import Options, run
from aileron.cli.declared import Exit, Option

__all__ = ["console"]


class _Theme(enum.StrEnum):
    DARK = "textual-dark"
    LIGHT = "textual-light"
    ANSI_DARK = "ansi-dark"
    ANSI_LIGHT = "ansi-light"
    HIGH_CONTRAST = "high-contrast"


def console(
    theme: Annotated[
        _Theme | None,
        Option("--theme", help="Colour theme."),
    ] = None,
) -> None:
    """Open the console: see what waits, and decide.

    Needs a terminal of your own. After you type its passphrase, the approver's key stays open for 15 minutes, in this process
    only.
    """
    raise Exit(run(Options(None if theme is None else str(theme.value))))
