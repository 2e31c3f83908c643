"""The files that were made, changed and removed while an agent ran in a cell, including files outside version control.

    starts = starts_of([Root("/home/you/project")], home.cells)               before the agent starts: reads only names
    watch = Watch.begin(starts, home.cells / session)
    changes = watch.finish()                                                  when its cell is closed
    for line in summary(changes): …                                           harmless text for standard error
    look(Kept(home.cells / session))                                          in another command, even during the session

Runs in the command that starts the agent. Everything in the project is hostile: names, links, permissions, the size of the tree.

Rules
- An entry is *changed* if its ctime is the time of the start or later. No program can set a ctime (utimensat(2) sets the two
  other times). The start is read from the file system's own clock. Reporting an unchanged entry is better than missing a
  change: if the clock was set back, or the file system counts in seconds, an earlier start is assumed.
- An entry is *made* if its name did not exist, and *removed* if its name no longer exists. A folder that was replaced by
  another (its inode has changed) counts as changed with all its contents.
- The list does not say who changed an entry: changes that a person makes meanwhile are listed, too.
- The list says which parts were not read, at the start or at the end. Lists are bounded, counts are not. Files that can
  run code are listed first.

Source: inode(7) on ctime, ADR 62. Not here: which files can run code (executes.py), how folders are read (tree.py),
overlays (overlay.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.cell.kept import Kept, kept_cells, prune
from aileron.cell.start import Root, Start
from aileron.cell.tree import under
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.timestamp import utc
from aileron.model.visible import visible

if TYPE_CHECKING:  # not needed before the agent has ended
    from aileron.cell.listing import Change, Changes

__all__ = [
    "Watch",
    "earlier_roots",
    "git_objects",
    "look",
    "named",
    "of_packages",
    "start_of",
    "starts_of",
    "summary",
    "where",
]

_SHOWN_EXECUTING: Final = 20
"""Maximum number of lines in the summary for files that can run code. With its other lines, the summary fits on a screen."""
_SHOWN_OF_KIND: Final = 5


def starts_of(roots: Iterable[Root], cells: Path) -> list[Start]:
    """Return the state of each root (a folder or file to which the agent can write) before the agent starts: the names
    in it. Raises AileronError if a root cannot be used.

    Aileron's home, which contains `cells` (Home.cells), is left out, because no cell shows it.
    """
    apart = os.path.realpath(cells.parent)
    return [Start.of(msgspec.structs.replace(root, apart=(*root.apart, apart))) for root in roots]


class Watch:
    """A recording of the changes in a cell, from before the agent starts until the cell is closed. Meanwhile it holds
    the lock on the folder with the cell's records.
    """

    def __init__(self, kept: Kept, lock: int) -> None:
        self._kept = kept
        self._lock = lock

    @classmethod
    def begin(cls, starts: Sequence[Start], kept_in: Path) -> Watch:
        """Store the result of `starts_of` in `kept_in`, the cell's folder in the home (Home.cells / session), and begin
        the recording.

        If `prepare_overlay` was called for that folder before, changes to the first root are read from its upper
        folder. Raises AileronError if the home cannot be used.
        """
        kept = Kept(kept_in)
        kept.make()
        lock = kept.hold()
        try:
            kept.write("names.json", [start.to_json() for start in starts])
            facts = {
                "session": kept.session,
                "folder": starts[0].root.path if starts else "",
                "roots": [start.root.path for start in starts],
                "started": utc(time.time()),
                "is_aside": os.path.lexists(kept.upper),
            }
            kept.write("start.json", facts)
        except BaseException:
            os.close(lock)
            raise
        return cls(kept, lock)

    def finish(self) -> Changes:
        """Return the changes in the cell, and store them for `look`. Call this once, after all processes of the cell
        have ended.

        This also removes old records of other sessions (kept.prune).
        """
        try:
            changes = _computed(self._kept, is_final=True)
            self._kept.write("changes.json", changes.to_json())
            if not any(changes.counts.values()) and not changes.git_data and not changes.notes:
                self._remove_aside()
            return changes
        finally:
            prune(self._kept.path.parent)  # while our lock is held, which protects these records whatever their age
            self.abandon()

    def abandon(self) -> None:
        """Release the lock on the cell's records without looking for changes, and remove an unused overlay. Call this
        if no agent was started. Idempotent.
        """
        if self._lock >= 0:
            if not _has_entries(self._kept.upper):
                self._remove_aside()
            os.close(self._lock)
            self._lock = -1

    def _remove_aside(self) -> None:
        """Remove the cell's overlay if nothing changed in it, because there is then nothing to apply or discard."""
        if os.path.lexists(self._kept.upper):
            from aileron.cell.overlay import remove_aside

            with contextlib.suppress(OSError):  # the person can still discard the overlay
                remove_aside(self._kept)


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False


def start_of(kept: Kept) -> JSONObject:
    """Return the stored facts about a cell: session, folder, roots, started, is_aside. Raises AileronError if there are none."""
    facts = kept.read("start.json")
    if not isinstance(facts, dict) or not isinstance(facts.get("folder"), str):
        raise AileronError(FailureClass.NOT_FOUND, f"no cell is on record for session {kept.session}")
    return facts


def earlier_roots(cells: Path) -> tuple[str, ...]:
    """Return the paths that agents in all recorded cells could write to, without duplicates. Raises AileronError if a
    record is damaged.
    """
    found: dict[str, None] = {}
    for kept in kept_cells(cells):
        facts = kept.read("start.json")
        if facts is None:
            continue  # removed meanwhile
        places = [facts.get("folder"), *(facts.get("roots") or [])] if isinstance(facts, dict) else [None]
        if not all(isinstance(place, str) for place in places):
            raise AileronError(FailureClass.INTERNAL_ERROR, f"{kept.path} is damaged: remove it")
        found.update(dict.fromkeys(place for place in places if place))
    return tuple(found)


def look(kept: Kept) -> Changes:
    """Return the changes in a cell: as recorded at its end, or as they are now if the cell still runs or the command
    that accompanied it was killed.
    """
    from aileron.cell.listing import Changes

    start_of(kept)
    stored = kept.read("changes.json")
    try:
        if stored is not None:
            return Changes.from_json(stored)
        is_over = not kept.is_held
        changes = _computed(kept, is_final=False)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AileronError(FailureClass.INTERNAL_ERROR, f"{kept.path} is damaged: remove it") from error
    if not is_over:
        return changes
    why = "the session ended without a list, so everything up to now is listed"
    return msgspec.structs.replace(changes, notes=(*changes.notes, why))


def _computed(kept: Kept, *, is_final: bool) -> Changes:
    from aileron.cell.compare import compare
    from aileron.cell.listing import Changes, Listing

    facts = start_of(kept)
    starts = [Start.from_json(value) for value in kept.read("names.json") or []]
    listing = Listing()
    for number, start in enumerate(starts):
        if number == 0 and facts["is_aside"]:
            from aileron.cell.overlay import list_aside  # few sessions have an overlay

            list_aside(start, kept, listing)
        else:
            compare(start, listing, is_project=number == 0)
    return Changes(
        session=kept.session,
        roots=tuple(start.root.path for start in starts),
        started=str(facts["started"]),
        looked=utc(time.time()),
        is_final=is_final,
        is_aside=bool(facts["is_aside"]),
        entries=listing.sorted(),
        counts=dict(listing.counts),
        executing=listing.executing,
        git_data=listing.git_data,
        notes=tuple(listing.notes),
        installed=listing.installed,
    )


# For people


def summary(changes: Changes) -> list[str]:
    """Return the lines shown at a session's end: how much changed, and which files can run code later. The text is
    safe to print.
    """
    if not any(changes.counts.values()) and not changes.git_data:
        return ["no files changed in the cell", *_unknown(changes)]
    lines = [f"{_counted(changes)} in {', '.join(visible(root) for root in changes.roots)}"]
    if changes.executing:
        lines.append(f"files that can run code or steer an agent later ({changes.executing}):")
        lines += _executing(changes)
    lines += _unknown(changes)
    lines.append(
        "your own changes during the session are counted too" if not changes.is_aside else "the project is unchanged"
    )
    lines.append(f"to see all: aileron sessions changes {changes.session}")
    if changes.is_aside:
        lines.append(f"to apply them: aileron sessions apply {changes.session}")
        lines.append(f"to discard them: aileron sessions discard {changes.session}")
    return lines


def _counted(changes: Changes) -> str:
    parts = [f"{number} {what}" for what, number in changes.counts.items() if number]
    if changes.git_data:
        parts.append(git_objects(changes.git_data))
    return ", ".join(parts) or "nothing"


def git_objects(count: int) -> str:
    """Return the number of changed files in git's own storage as text, such as `12 git objects`."""
    return "1 git object" if count == 1 else f"{count} git objects"


def _unknown(changes: Changes) -> list[str]:
    return [f"not known: {note}" for note in changes.notes]


def _executing(changes: Changes) -> Iterable[str]:
    """Return the summary's lines for changed files that can run code. Each kind gets some lines, so that a thousand
    files of one kind do not hide another kind.
    """
    from aileron.cell.executes import spoken, tree_in

    shown: dict[str, int] = {}
    rows: list[Change] = []
    for change in changes.entries:
        if change.executes and not tree_in(change.executes):
            kind = change.executes[0].kind
            shown[kind] = shown.get(kind, 0) + 1
            if shown[kind] <= _SHOWN_OF_KIND and len(rows) < _SHOWN_EXECUTING:
                rows.append(change)
    lines = [f"  {visible(named(changes, change))}: {change.what}; {spoken(change.executes)}" for change in rows]
    trees = changes.installed[:_SHOWN_OF_KIND]
    for tree in trees:
        place = visible(where(changes, tree.root, tree.path))
        lines.append(f"  {place}: {of_packages(tree.entries)}, run by whoever uses the folder")
    if changes.executing > len(rows) + len(trees):
        lines.append(f"  and {changes.executing - len(rows) - len(trees)} more")
    return lines


def of_packages(entries: int) -> str:
    """Return the number of changed entries in a package manager's folder as text."""
    return "1 file of packages" if entries == 1 else f"{entries} files and folders of packages"


def named(changes: Changes, change: Change) -> str:
    """Return the path of a change for display: relative in the project, absolute elsewhere."""
    return where(changes, change.root, change.path)


def where(changes: Changes, root: str, path: str) -> str:
    """Return a path in a root for display: relative in the project, absolute elsewhere."""
    is_in_project = bool(changes.roots) and root == changes.roots[0] and path
    return path if is_in_project else under(root, path)
