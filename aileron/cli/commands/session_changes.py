"""`aileron sessions changes`, `apply` and `discard`: the files that an agent in a cell changed. The commands read the home and
need no daemon.

An agent chose the names of files: each is made harmless before it is shown.
"""

from __future__ import annotations

import collections
import os
from typing import TYPE_CHECKING, Annotated

from aileron.cell import apply as applying
from aileron.cell.apply import Done, pending
from aileron.cell.changes import git_objects, look, named, of_packages, start_of, where
from aileron.cell.executes import INSTALLED, rank, spoken, tree_in
from aileron.cell.kept import Kept, kept_cells
from aileron.cell.sizes import size_of
from aileron.cli import output
from aileron.cli.commands.completion import session_ids
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.ids import meant
from aileron.cli.problem import FAILED, Problem, local_work
from aileron.cli.prompts import can_ask, is_yes
from aileron.client import home_directory
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.cell.listing import Change, Changes
    from aileron.cell.overlay import Difference

__all__ = ["apply", "changes", "discard", "kept_of"]

_MAX_ROWS = 200
"""Maximum number of rows on a terminal: several screens. A pipe and --json get all rows."""
_MAX_ASKED = 30
"""Maximum number of rows above a question, because the question must be on the same screen."""
_MAX_TREES = 5
_LARGE_GIB = 1
"""Maximum size of changes in GiB that `--yes` applies without review.

A project has less, and an agent can write more in a second.
"""

OneSession = Annotated[
    str | None,
    Argument(
        metavar="[SESSION]",
        help="Id of the session, or the end of it. Default: the latest in this folder.",
        autocompletion=session_ids,
    ),
]
TheSession = Annotated[
    str, Argument(metavar="SESSION", help="Id of the session, or the end of it.", autocompletion=session_ids)
]
Paths = Annotated[
    list[str] | None, Argument(metavar="[PATH…]", help="Files and folders in the project. Default: all changes.")
]
SkipQuestion = Annotated[bool, Option("--yes", "-y", help="Skip the confirmation.")]


def changes(session: OneSession = None, as_json: AsJson = False) -> None:
    """Show which files an agent in a cell changed.

    Files that can run code or steer an agent later come first. Without SESSION: the latest cell in this folder, or else the
    latest one. While the session runs, the files are compared as they are now.
    """
    with local_work():
        found = look(kept_of(session))
    if as_json:
        output.print_json(found.to_json())
        return
    if output.is_terminal():
        _print_head(found)
    rows = _folded(found)[:_MAX_ROWS] if output.is_terminal() else [_row(found, change) for change in found.entries]
    output.print_table(("CHANGE", "WHAT", "RUNS LATER", "PATH"), rows, empty="no changed files")
    folded = sum(tree.entries - 1 for tree in found.installed) if output.is_terminal() else 0
    left = sum(found.counts.values()) - folded - len(rows)
    if left > 0:
        output.note(f"and {left} more: aileron sessions changes {found.session} --json")


def apply(
    session: TheSession,
    paths: Paths = None,
    force: Annotated[bool, Option("--force", help="Replace what you changed in the project meanwhile.")] = False,
    large: Annotated[bool, Option("--large", help=f"With --yes, apply more than {_LARGE_GIB} GiB as well.")] = False,
    yes: SkipQuestion = False,
    as_json: AsJson = False,
) -> None:
    """Write changes that a cell kept aside to the project.

    For sessions that were started with --overlay. Files that you changed in the project since the session began are refused. The
    exit code is 1 if something was refused.
    """
    kept, chosen = _chosen(session, paths)
    if not _is_agreed(kept, chosen, "Apply", yes=yes, is_large_allowed=large):
        return
    with local_work():
        done = applying.apply(kept, chosen, force=force)
    _tell(kept, done, f"applied {_changes(len(done.applied))} to {visible(_folder_of(kept))}", as_json=as_json)


def discard(session: TheSession, paths: Paths = None, yes: SkipQuestion = False, as_json: AsJson = False) -> None:
    """Remove changes that a cell kept aside, without applying them."""
    kept, chosen = _chosen(session, paths)
    if not _is_agreed(kept, chosen, "Discard", yes=yes, is_large_allowed=True):
        return
    with local_work():
        done = applying.discard(kept, chosen)
    _tell(kept, done, f"discarded {_changes(len(done.discarded))}", as_json=as_json)


def _chosen(session: str, paths: list[str] | None) -> tuple[Kept, list[str]]:
    """Return the stored changes of the session's cell, and `paths` relative to its project.

    `paths` are taken as relative to the current folder if that folder is in the project, otherwise to the project.
    """
    with local_work():
        kept = kept_of(session)
        folder = _folder_of(kept)
    here = os.path.realpath(os.getcwd())
    base = here if _is_in(here, folder) else folder
    chosen = []
    for path in paths or ():
        whole = os.path.normpath(os.path.join(base, path))
        if not _is_in(whole, folder):
            raise Problem.usage(
                f"{visible(path)} is not in {visible(folder)}", fix=f"aileron sessions changes {kept.session}"
            )
        chosen.append(os.path.relpath(whole, folder) if whole != folder else "")
    return kept, chosen


def _folder_of(kept: Kept) -> str:
    return str(start_of(kept)["folder"])


def _is_agreed(kept: Kept, paths: list[str], verb: str, *, yes: bool, is_large_allowed: bool) -> bool:
    """Return whether there are changes, and the person or `yes` confirms them.

    Raises Problem if `paths` match no change, or if a confirmation is needed and no person can be asked. With `yes`, only
    large changes need a confirmation, and not even these with `is_large_allowed`.
    """
    with local_work():
        waiting = [change for change in pending(kept) if not paths or any(_is_at(change.path, path) for path in paths)]
    if not waiting:
        if paths:
            raise Problem.missing("no such change is kept aside", fix=f"aileron sessions changes {kept.session}")
        output.note("no changes are kept aside")
        return False
    size = size_of(waiting)
    is_large = size.larger_bytes > _LARGE_GIB << 30 and not is_large_allowed
    if yes and not is_large:
        return True
    if not can_ask():
        if yes:
            raise Problem.usage(
                f"these changes have {size.words()} in all, more than {_LARGE_GIB} GiB",
                fix=f"add --large; to see them first, type: aileron sessions changes {kept.session}",
            )
        raise Problem.usage("this needs your confirmation", fix="add --yes")
    _show_waiting(waiting)
    output.note(f"  size in all: {size.words()}")
    if is_yes(f"{verb} {_changes(len(waiting))}? [y/N] "):
        return True
    output.note("nothing changed")
    return False


def _is_at(path: str, chosen: str) -> bool:
    return not chosen or path == chosen or path.startswith(chosen + "/")


def _changes(number: int) -> str:
    return "1 change" if number == 1 else f"{number} changes"


def _show_waiting(waiting: list[Difference]) -> None:
    """List changes that are not applied yet on standard error.

    Changes that can run code or steer an agent later are first, then the others by size; packages are only counted.
    """
    alone = [change for change in waiting if not tree_in(change.executes)]
    ordered = sorted(alone, key=lambda change: (rank(change.executes), -size_of([change]).larger_bytes))
    for change in ordered[:_MAX_ASKED]:
        size = size_of([change]).words() if change.kind == "file" and change.status is not None else ""
        parts = (size, spoken(change.executes), f"not applied: {change.problem}" if change.problem else "")
        why = "".join(f"; {part}" for part in parts if part)
        output.note(f"  {change.what} {visible(change.path)}{visible(why)}")
    if len(ordered) > _MAX_ASKED:
        later = sum(bool(change.executes) for change in ordered[_MAX_ASKED:])
        output.note(
            f"  and {len(ordered) - _MAX_ASKED} more"
            + (f", {later} of which can run code or steer an agent later" if later else "")
        )
    trees = collections.Counter(tree for change in waiting if (tree := tree_in(change.executes)))
    for tree, number in sorted(trees.items())[:_MAX_TREES]:
        output.note(f"  {visible(tree)}: {of_packages(number)}, run by whoever uses the folder")
    if len(trees) > _MAX_TREES:
        output.note(f"  and {len(trees) - _MAX_TREES} more folders of packages")


def _tell(kept: Kept, done: Done, what: str, *, as_json: bool) -> None:
    if as_json:
        refused = [{"path": path, "why": why} for path, why in done.refused]
        done_json = {"applied": done.applied, "discarded": done.discarded, "refused": refused, "left": done.left}
        output.print_json({"session": kept.session, **done_json})
    else:
        output.note(what)
        for path, why in done.refused[:_MAX_ROWS]:
            output.note(f"refused {visible(path)}: {visible(why)}")
        if len(done.refused) > _MAX_ROWS:
            output.note(f"and {len(done.refused) - _MAX_ROWS} more: --json")
        if done.left:
            output.note(f"{_changes(done.left)} still kept aside: aileron sessions changes {kept.session}")
    if done.refused:
        raise Exit(FAILED)


def kept_of(wanted: str | None) -> Kept:
    """Return the stored changes of the cell whose session has the id `wanted`, or an id that ends with it.

    Without `wanted`, the session is the newest one in this folder, or else the newest one. Raises Problem if no session matches,
    or if several do.
    """
    from aileron.home import Home

    found = kept_cells(Home(home_directory()).cells)
    if wanted is None:
        here = os.path.realpath(os.getcwd())
        in_this_folder = (kept for kept in found if _is_in(here, str(start_of(kept)["folder"])))
        chosen = next(in_this_folder, found[0] if found else None)
        if chosen is None:
            raise Problem.missing("no agent has run in a cell yet", fix="aileron launch --help")
        return chosen
    name = meant(wanted, (kept.session for kept in found), fix="aileron sessions list")
    if name is None:
        raise Problem.missing(f"nothing is kept of a cell of session {wanted!r}", fix="aileron sessions list")
    return next(kept for kept in found if kept.session == name)


def _is_in(here: str, folder: str) -> bool:
    return here == folder or here.startswith(folder.rstrip("/") + "/")


def _print_head(found: Changes) -> None:
    counts = ", ".join(f"{number} {what}" for what, number in found.counts.items() if number) or "none"
    data = f", and {git_objects(found.git_data)}" if found.git_data else ""
    output.print_facts(
        [
            ("session", output.short_id(found.session)),
            ("folder", found.roots[0] if found.roots else None),
            ("started", output.local_time(found.started)),
            ("as of", output.local_time(found.looked)),
            ("changes", counts + data),
            ("run later", found.executing or None),
            ("kept aside", "as listed here; not in the project until you apply them" if found.is_aside else None),
            ("not known", list(found.notes) or None),
        ]
    )
    output.write("")


def _folded(found: Changes) -> list[tuple[str, str, str, str]]:
    """Return a row for each change, but a single row for a package manager's folder.

    Changes to files that run by themselves come first.
    """
    alone = [change for change in found.entries if not tree_in(change.executes)]
    trees = [
        ("made or changed", of_packages(tree.entries), INSTALLED, where(found, tree.root, tree.path))
        for tree in found.installed
    ]
    executing = [_row(found, change) for change in alone if change.executes]
    return [*executing, *trees, *(_row(found, change) for change in alone if not change.executes)]


def _row(found: Changes, change: Change) -> tuple[str, str, str, str]:
    what = change.kind if change.was is None else f"{change.kind} (was: {change.was})"
    return (
        change.what,
        what,
        ", ".join(part for part in (spoken(change.executes), *change.notes) if part) or "-",
        named(found, change),
    )
