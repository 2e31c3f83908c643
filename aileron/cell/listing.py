"""What changed in a cell, as values: one change, all of a session, and the list that they are collected in.

Runs in the command. Names are hostile text: whoever shows one makes it visible first.

Rules
- Lists are bounded, counts are not. What executes something is listed first.

Not here: how they are found (compare.py, overlay.py), what a person is told (changes.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from aileron.cell.executes import EntryKind, Finding, rank, tree_in
from aileron.cell.tree import Bytes

__all__ = ["Change", "Changes", "Installed", "Listing", "What"]

What = Literal["made", "changed", "removed"]
_MAX_LISTED: Final = 10_000
"""Changes that are listed of each sort: those that execute, and the others. A person reads some dozens; programs read these."""
_MAX_OF_KIND: Final = 1000
"""Listed changes of each kind that executes, at most; without it, an agent could fill the list with one kind to hide another."""
_MAX_TREES: Final = 1000
_MAX_NOTES: Final = 50


class Change(msgspec.Struct, frozen=True):
    """One entry that is not what it was."""

    root: str
    path: str
    """Below `root`; "" is the root itself."""
    what: What
    kind: EntryKind
    was: EntryKind | None = None
    """What it was, if that is something else."""
    notes: tuple[str, ...] = ()
    """What is to be known about it, in our words."""
    executes: tuple[Finding, ...] = ()
    """Why it is of interest: empty for most."""


class Installed(msgspec.Struct, frozen=True):
    """A folder that a package manager fills: how many files, links and folders in it changed."""

    root: str
    path: str
    entries: int


class Changes(msgspec.Struct, frozen=True):
    """All that changed, as far as it is known; what is not known is in `notes`."""

    session: str
    roots: tuple[str, ...]
    started: str
    """UTC, as everywhere in the record."""
    looked: str
    is_final: bool
    """Whether the session was over."""
    is_aside: bool
    """Whether an overlay keeps them aside: the project itself has none of them, unless they were applied."""
    entries: tuple[Change, ...]
    """Those that execute something first, then by path; at most `_MAX_LISTED` of each."""
    counts: Mapping[What, int]
    """All of them, also those that are not listed."""
    executing: int
    """Number of entries that execute something; each folder of a package manager counts as one."""
    git_data: int
    """Files of git's own that changed and are not listed: objects, the index, logs."""
    notes: tuple[str, ...] = ()
    installed: tuple[Installed, ...] = ()
    """Folders that a package manager fills, in which something changed."""

    def to_json(self) -> dict[str, Any]:
        """As it is stored and as `--json` prints it."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    @classmethod
    def from_json(cls, value: Any) -> Changes:
        """The other way. ValueError, TypeError or KeyError for anything else."""
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
    """Changes as they are found: counted, and listed within the bound."""

    def __init__(self) -> None:
        self.counts: dict[What, int] = {"made": 0, "changed": 0, "removed": 0}
        self.executing = 0
        self.git_data = 0
        self.notes: list[str] = []
        self.contents = Bytes()
        self._of_interest: dict[int, list[Change]] = {}
        """Changes that execute or have notes, by rank."""
        self._trees: dict[tuple[str, str], int] = {}
        self._others: list[Change] = []

    def add(self, change: Change) -> None:
        """One more."""
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
        """The folders of package managers, by path."""
        found = (Installed(root, path, number) for (root, path), number in sorted(self._trees.items()))
        return tuple(itertools.islice(found, _MAX_TREES))

    def note(self, text: str) -> None:
        """Something that is not known."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def sorted(self) -> tuple[Change, ...]:
        """Those that execute by how much they do, then by path."""

        def by_path(changes: list[Change]) -> list[Change]:
            return sorted(changes, key=lambda change: (change.root, change.path))

        of_interest = (change for _, changes in sorted(self._of_interest.items()) for change in by_path(changes))
        return (*itertools.islice(of_interest, _MAX_LISTED), *by_path(self._others))
