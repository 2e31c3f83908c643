"""The types of changes in a cell: one change, all changes of a session, and the collector that lists and counts them.

Runs in the command. Names are hostile text: a caller must escape hidden characters before it shows a name.

Rules
- Lists are bounded, counts are not. Changed files that can run code are listed first.

Not here: finding the changes (compare.py, overlay.py), the text for a person (changes.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from aileron.cell.executes import EntryKind, Finding, rank, tree_in
from aileron.cell.tree import Bytes
from aileron.model.json_value import JSONObject

__all__ = ["Change", "Changes", "Installed", "Listing", "What"]

What = Literal["made", "changed", "removed"]
_MAX_LISTED: Final = 10_000
"""Maximum number of listed changes in each of two groups: files that can run code or have notes, and all others. A
person reads some dozens of them; programs read the list.
"""
_MAX_OF_KIND: Final = 1000
"""Maximum number of listed changes of each kind of files that can run code. Otherwise an agent could fill the list with
one kind to hide another.
"""
_MAX_TREES: Final = 1000
_MAX_NOTES: Final = 50


class Change(msgspec.Struct, frozen=True):
    """An entry that was made, changed or removed while an agent ran in a cell."""

    root: str
    path: str
    """Path below `root`; "" is the root itself."""
    what: What
    kind: EntryKind
    was: EntryKind | None = None
    """Previous kind of the entry, if it has another kind now."""
    notes: tuple[str, ...] = ()
    """Aileron's own remarks about the entry."""
    executes: tuple[Finding, ...] = ()
    """Reasons why the entry makes programs run later; empty for most entries."""


class Installed(msgspec.Struct, frozen=True):
    """A folder that a package manager fills, and how many files, links and folders in it changed."""

    root: str
    path: str
    entries: int


class Changes(msgspec.Struct, frozen=True):
    """The changes in a session, as far as they are known. `notes` say what is unknown."""

    session: str
    roots: tuple[str, ...]
    started: str
    """Time when the session started, in UTC and in the form of the audit trail."""
    looked: str
    is_final: bool
    """True if the session was over when the changes were collected."""
    is_aside: bool
    """True if an overlay stores the changes: the project itself has none of them, unless they were applied."""
    entries: tuple[Change, ...]
    """Changes that can run code or have notes, followed by the others, by path; at most `_MAX_LISTED` in each of the
    two groups.
    """
    counts: Mapping[What, int]
    """Number of changes of each `what` (made, changed, removed), including changes that are not listed."""
    executing: int
    """Number of changed entries that can run code; each package manager's folder counts as one."""
    git_data: int
    """Number of changed files in git's own storage, which are not listed: objects, the index, logs."""
    notes: tuple[str, ...] = ()
    installed: tuple[Installed, ...] = ()
    """Folders that a package manager fills, in which something changed."""

    def to_json(self) -> JSONObject:
        """Return the changes as they are stored and as `--json` prints them."""
        made: JSONObject = msgspec.to_builtins(self)
        return made

    @classmethod
    def from_json(cls, value: Any) -> Changes:
        """Read a value that `to_json` returned. Raises ValueError, TypeError or KeyError for any other value."""
        entries = tuple(
            Change(
                **{
                    **entry,
                    "notes": tuple(entry["notes"]),
                    "executes": tuple(Finding(*found) for found in entry["executes"]),
                }
            )
            for entry in value["entries"]
        )
        installed = tuple(Installed(**tree) for tree in value.get("installed", ()))  # earlier lists have none
        lists = {
            "roots": tuple(value["roots"]),
            "entries": entries,
            "notes": tuple(value["notes"]),
            "installed": installed,
        }
        return cls(**{**value, **lists})


class Listing:
    """A collector that counts all changes that are found in a cell, and lists at most as many as the bounds allow."""

    def __init__(self) -> None:
        self.counts: dict[What, int] = {"made": 0, "changed": 0, "removed": 0}
        self.executing = 0
        self.git_data = 0
        self.notes: list[str] = []
        self.contents = Bytes()
        self._of_interest: dict[int, list[Change]] = {}
        """Changes that can run code or have notes, by rank."""
        self._trees: dict[tuple[str, str], int] = {}
        self._others: list[Change] = []

    def add(self, change: Change) -> None:
        """Count a change, and add it to the list if fewer changes than the bounds allow are in it."""
        self.counts[change.what] += 1
        tree = tree_in(change.executes)
        if tree:
            self._trees[change.root, tree] = self._trees.get((change.root, tree), 0) + 1
        self.executing += bool(change.executes) and (not tree or self._trees[change.root, tree] == 1)
        if change.executes or change.notes:
            kept, most = self._of_interest.setdefault(rank(change.executes), []), _MAX_OF_KIND
        else:
            kept, most = self._others, _MAX_LISTED
        if len(kept) < most:
            kept.append(change)

    @property
    def installed(self) -> tuple[Installed, ...]:
        """Package managers' folders in which something changed, by path."""
        found = (Installed(root, path, number) for (root, path), number in sorted(self._trees.items()))
        return tuple(itertools.islice(found, _MAX_TREES))

    def note(self, text: str) -> None:
        """Add a note that something is unknown. The same note is added only once."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def sorted(self) -> tuple[Change, ...]:
        """Return the changes that can run code or have notes, by rank and path, then the others by path."""

        def by_path(changes: list[Change]) -> list[Change]:
            return sorted(changes, key=lambda change: (change.root, change.path))

        of_interest = (change for _, changes in sorted(self._of_interest.items()) for change in by_path(changes))
        return (*itertools.islice(of_interest, _MAX_LISTED), *by_path(self._others))
