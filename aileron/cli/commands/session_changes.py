"""`aileron sessions changes`: what an agent in a cell changed. No daemon is needed: it is read from the home."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from aileron.cli import output
from aileron.cli.commands.completion import session_ids
from aileron.cli.commands.options import AsJson
from aileron.cli.problem import Problem, local_work
from aileron.client import home_directory

if TYPE_CHECKING:
    from aileron.cell.kept import Kept
    from aileron.cell.listing import Change, Changes

__all__ = ["changes", "kept_of"]

_MAX_ROWS = 200
"""Rows on a terminal: some screens. A pipe and --json get all that is listed."""
_LEAST_PART = 4

OneSession = Annotated[
    str | None,
    typer.Argument(
        metavar="[SESSION]",
        help="Id of the session, or the end of it. Default: the latest in this folder.",
        autocompletion=session_ids,
    ),
]


def changes(session: OneSession = None, as_json: AsJson = False) -> None:
    """Show which files an agent in a cell changed.

    Files that run something later come first. Without SESSION: the latest cell in this folder, or else the latest one. While the
    session runs, the files are compared as they are now.
    """
    from aileron.cell.changes import look

    with local_work():
        found = look(kept_of(session))
    if as_json:
        output.print_json(found.to_json())
        return
    if output.is_terminal():
        _print_head(found)
    rows = found.entries[:_MAX_ROWS] if output.is_terminal() else found.entries
    output.print_table(
        ("CHANGE", "WHAT", "RUNS LATER", "PATH"), [_row(found, one) for one in rows], empty="no changed files"
    )
    left = sum(found.counts.values()) - len(rows)
    if left > 0:
        output.note(f"and {left} more: aileron sessions changes {found.session} --json")


def kept_of(wanted: str | None) -> Kept:
    """What is kept of the session that is meant. Problem where there is none, or more than one."""
    from aileron.cell.changes import start_of
    from aileron.cell.kept import kept_cells
    from aileron.config import Home

    found = kept_cells(Home(home_directory()).cells)
    if wanted is None:
        here = os.path.realpath(os.getcwd())
        in_this_folder = (one for one in found if _is_in(here, str(start_of(one)["folder"])))
        chosen = next(in_this_folder, found[0] if found else None)
        if chosen is None:
            raise Problem.missing("no agent has run in a cell yet", fix="aileron launch --help")
        return chosen
    meant = [one for one in found if len(wanted) >= _LEAST_PART and one.session.endswith(wanted)]
    meant = [one for one in found if one.session == wanted] or meant
    if len(meant) > 1:
        raise Problem.usage(
            f"{wanted!r} is ambiguous: {' or '.join(one.session for one in meant)}", fix="aileron sessions list"
        )
    if not meant:
        raise Problem.missing(f"nothing is kept of a cell of session {wanted!r}", fix="aileron sessions list")
    return meant[0]


def _is_in(here: str, folder: str) -> bool:
    return here == folder or here.startswith(folder.rstrip("/") + "/")


def _print_head(found: Changes) -> None:
    counts = ", ".join(f"{number} {what}" for what, number in found.counts.items() if number) or "none"
    data = f", and {found.git_data} files of git's own data" if found.git_data else ""
    output.print_facts(
        [
            ("session", found.session),
            ("folder", found.roots[0] if found.roots else None),
            ("started", output.local_time(found.started)),
            ("as of", output.local_time(found.looked)),
            ("changes", counts + data),
            ("run later", found.executing or None),
            ("kept aside", "not in the project until you apply them" if found.is_aside else None),
            ("not known", list(found.notes) or None),
        ]
    )
    output.write("")


def _row(found: Changes, one: Change) -> tuple[str, str, str, str]:
    from aileron.cell.changes import because, named

    what = one.kind if one.was is None else f"{one.kind} (was: {one.was})"
    return one.what, what, ", ".join(part for part in (because(one), *one.notes) if part) or "-", named(found, one)
