"""Comparison of a folder with its contents when the agent started: entries made, changed and removed.

Runs in the command. Everything in the folder is hostile: names, links, permissions, the size of the tree. It can change while it
is read, if the agent still runs.

Rules
- An entry is *made* if its name did not exist, and *removed* if its name no longer exists. A folder that was replaced by
  another (its inode has changed) counts as changed with all its contents.
- The listing says which parts were not read, at the start or now. Such parts never count as unchanged.

Source: ADR 62. Not here: recording the start (start.py), which files can run code (executes.py), overlays (overlay.py).
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

from aileron.cell.executes import (
    KINDS,
    Candidate,
    EntryKind,
    Finding,
    GitPlaces,
    findings,
    git_places,
    matching,
    tree_in,
)
from aileron.cell.listing import Change, Listing, What
from aileron.cell.start import GIT_OBJECTS, MAX_ENTRIES, Start, is_since
from aileron.cell.state_files import obeyed_at
from aileron.cell.tree import MAX_DEPTH, Folder, child, kind_of, opened, opened_root
from aileron.model.visible import visible

__all__ = ["compare", "is_git_data", "leads_out_of"]

_MAX_LOOKED: Final = 4_000_000
"""Maximum number of entries of one root that are compared, in about 12 s. The agent may have made any number."""
_GIT_LISTED: Final = matching(
    (
        ".git",
        *(f".git/{end}" for end in ("HEAD", "packed-refs", "refs/**", "info/attributes", "info/sparse-checkout")),
        *(glob for kind in KINDS if kind.startswith("git ") for glob in KINDS[kind].files if glob.startswith(".git/")),
    )
)
"""Patterns of the paths in a repository's `.git` folder that are listed, because git acts on them. All other files
there are only counted.
"""

_IN_SETTINGS: Final = frozenset(
    {*(kind for kind in KINDS if kind.startswith("git ")), "executable", "set-user-ID", "link out of the project"}
)
"""Kinds that are listed in an agent's own state folder even if `Root.only` does not include the path: programs,
repositories, links out of the root.
"""


def compare(start: Start, listing: Listing, *, is_project: bool = True) -> None:
    """Add the changes in a root since the session's start to the listing. `start` has the names that existed then."""
    root = start.root.path
    tree = _Tree(start, listing, is_project=is_project)
    try:
        status = os.lstat(root)
        kind = kind_of(status.st_mode)
        if kind == "directory":
            known = start.names.get("") if start.kind == "directory" else None
            with opened_root(root) as descriptor:
                inode = os.fstat(descriptor).st_ino
                tree.compare(descriptor, "", known, inode, GitPlaces(), is_replaced=False, depth=0)
            return
        with opened_root(os.path.dirname(root)) as parent:
            tree.root_file(os.path.basename(root), parent, status)
    except FileNotFoundError:
        if start.kind is not None:
            listing.add(Change(root, "", "removed", start.kind))
    except OSError as error:
        listing.note(f"cannot read {visible(root)}: {error.strerror}")


class _Entry(NamedTuple):
    """An entry `name` that exists in the open folder `parent`, with its places in git repositories."""

    parent: int
    name: str
    path: str
    status: os.stat_result
    inode: int = 0
    """Inode number from the folder's listing, as recorded at the start. For a mount point, stat(2) returns another number."""
    places: GitPlaces = GitPlaces()

    @property
    def kind(self) -> EntryKind:
        return kind_of(self.status.st_mode)


class _Tree:
    """A comparison of one root (a folder or file to which the agent can write) with its recorded state before the agent
    started.
    """

    def __init__(self, start: Start, listing: Listing, *, is_project: bool) -> None:
        self._start = start
        self._root = start.root.path
        above = self._root if start.kind == "directory" else os.path.dirname(self._root)
        self._above = "" if is_project or start.root.only else f"{above}/".lstrip("/")
        self._real_root = os.path.realpath(self._root)
        self._since = start.moment.earliest()
        self._only = matching(start.root.only).fullmatch if start.root.only else None
        self._listing = listing
        self._apart = start.root.apart_below()
        self._left = _MAX_LOOKED
        if any(
            not folder.is_known and not _is_objects(path) and path not in self._apart
            for path, folder in start.names.items()
        ):
            listing.note(
                f"not every name in {visible(self._root)} was read at the start (more than {MAX_ENTRIES} entries, more than "
                f"{MAX_DEPTH} folders deep, or unreadable): there, new files count as changed, and removed ones are missing"
            )

    def root_file(self, name: str, parent: int, status: os.stat_result) -> None:
        """Compare a root that is a file, not a folder, with its recorded state before the agent started."""
        if self._start.kind is None or self._is_of_now(status):
            what: What = "made" if self._start.kind is None else "changed"
            self._add(_Entry(parent, name, "", status), what, self._start.kind)

    def compare(
        self,
        descriptor: int,
        path: str,
        known: Folder | None,
        inode: int,
        places: GitPlaces,
        *,
        is_replaced: bool,
        depth: int,
    ) -> None:
        """Compare an open folder with `known`, its contents before the agent started; `known` is None if there was no
        such folder.
        """
        is_replaced = is_replaced or (known is not None and known.inode != inode)
        # A fifth of the memory of stat(2) results: one folder may hold all _MAX_LOOKED entries
        names: dict[str, int] = {}
        with os.scandir(descriptor) as found:
            for entry in found:
                self._left -= 1
                if self._left < 0:
                    self._listing.note(
                        f"more than {_MAX_LOOKED} entries in {visible(self._root)}: the rest was not looked at"
                    )
                    return
                names[entry.name] = entry.inode()
        had = None if known is None else known.names.__contains__
        places = git_places(places, path, names.__contains__, had)
        if known is not None and known.is_known:
            for name in known.names.keys() - names.keys():
                self._removed(child(path, name), known.names[name])
        for name, listed in names.items():
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:  # gone meanwhile
                continue
            there = _Entry(descriptor, name, child(path, name), status, listed, places.of(name))
            self._one(there, known, is_replaced, depth)

    def _one(self, entry: _Entry, known: Folder | None, is_replaced: bool, depth: int) -> None:
        if entry.path in self._apart:
            return
        was = None if known is None else known.names.get(entry.name)
        is_new = was is None and (known is None or known.is_known)
        if entry.kind == "directory":
            self._folder(entry, was, is_new, is_replaced, depth)
            return
        if is_new or is_replaced or self._is_of_now(entry.status) or was not in (None, entry.kind):
            self._add(entry, "made" if is_new else "changed", was)
        if was == "directory":
            self._removed_in(entry.path)

    def _folder(self, entry: _Entry, was: EntryKind | None, is_new: bool, is_replaced: bool, depth: int) -> None:
        before = self._start.names.get(entry.path) if was == "directory" else None
        if before is None and was is None and not is_new:
            before = Folder(entry.inode, {}, is_known=False)
        is_other = before is not None and before.is_known and before.inode != entry.inode
        what: What = "made" if is_new else "changed"
        try:
            with opened(entry.name, entry.parent) as descriptor:
                if is_new or is_other or was not in (None, "directory"):
                    notes = ("another folder took its place",) if is_other and not is_replaced else ()
                    self._add(entry, what, was, notes)
                if depth >= MAX_DEPTH:
                    self._listing.note(f"more than {MAX_DEPTH} folders deep in {visible(self._root)}: not looked at")
                elif _is_objects(entry.path):
                    self._count_objects(descriptor, entry.path, depth)
                else:
                    self.compare(
                        descriptor,
                        entry.path,
                        before,
                        entry.inode,
                        entry.places,
                        is_replaced=is_replaced,
                        depth=depth + 1,
                    )
        except OSError as error:
            if is_new or is_replaced or self._is_of_now(entry.status):
                self._add(entry, what, was, (f"cannot be read: {os.strerror(error.errno or 0)}",))

    def _count_objects(self, descriptor: int, path: str, depth: int) -> None:
        """Count the new or changed files in a folder of git objects, whose names were not read before the agent
        started. List only entries that could lead out of the folder, such as links.
        """
        with os.scandir(descriptor) as found:
            for entry in found:
                self._left -= 1
                if self._left < 0:
                    return
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    below = child(path, entry.name)
                    if entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                        with opened(entry.name, descriptor) as inner:
                            self._count_objects(inner, below, depth + 1)
                    elif self._is_of_now(status):
                        self._add(_Entry(descriptor, entry.name, below, status), "changed", kind_of(status.st_mode))

    def _is_of_now(self, status: os.stat_result) -> bool:
        return is_since(status.st_ctime_ns, self._since)

    def _removed(self, path: str, kind: EntryKind) -> None:
        if is_git_data(path) and kind != "directory":
            self._listing.git_data += 1
        elif self._only is None or self._only(path):
            self._listing.add(Change(self._root, path, "removed", kind))
        if kind == "directory":
            self._removed_in(path)

    def _removed_in(self, path: str) -> None:
        for name, kind in self._start.names.get(path, Folder(0, {})).names.items():
            self._removed(child(path, name), kind)

    def _add(self, entry: _Entry, what: What, was: EntryKind | None, notes: tuple[str, ...] = ()) -> None:
        parent, name, path, status, _, places = entry
        kind = entry.kind
        is_runnable = kind == "file" and status.st_mode & 0o111
        if is_git_data(path) and kind in ("file", "directory") and not is_runnable and not notes:
            self._listing.git_data += kind == "file"
            return
        leads_out = leads_out_of(self._real_root, path, name, parent) if kind == "link" else None
        contents = self._listing.contents
        candidate = Candidate(
            path or name,
            kind,
            status.st_mode,
            lambda: contents.read(name, parent),
            leads_out,
            places.kind,
            places.tree,
            self._above,
        )
        found = findings(candidate)
        if kind == "file" and not tree_in(found) and status.st_nlink > 1 and not is_git_data(path):
            found = (*found, Finding("hard link", f"{status.st_nlink} names"))
        if self._only is not None:
            found = tuple(finding for finding in found if finding.kind != "settings")  # `only` names these files
            if kind == was == "file" and {finding.kind for finding in found} <= {"agents"} and self._is_memory(entry):
                return
            if path != "" and not self._only(path):
                if not any(finding.kind in _IN_SETTINGS for finding in found):
                    return
            elif not found and kind != "directory":
                found = (Finding("agents"),)
        self._listing.add(Change(self._root, path, what, kind, was if was != kind else None, notes, found))

    def _is_memory(self, entry: _Entry) -> bool:
        """Return whether the entry is an agent's state file in which only records such as counts changed, not settings
        that the agent obeys (state_files.py).
        """
        before = self._start.obeyed.get(entry.path)
        return before is not None and obeyed_at(entry.name, entry.parent, self._listing.contents) == before


def leads_out_of(root: str, path: str, name: str, parent: int) -> str | None:
    """Return the target of a symbolic link if it leads out of `root`, which is a path without links; else None."""
    try:
        target = os.readlink(name, dir_fd=parent)
    except OSError:
        return None
    try:
        end = os.path.realpath(os.path.join(root, os.path.dirname(path), target))
    except (OSError, ValueError):
        return target
    return None if end == root or end.startswith(root.rstrip("/") + "/") else target


def _is_objects(path: str) -> bool:
    return any(path == end or path.endswith("/" + end) for end in GIT_OBJECTS)


def is_git_data(path: str) -> bool:
    """Return whether a path is in git's own storage, where changes are counted and not listed."""
    return (path.startswith(".git/") or "/.git/" in path) and _GIT_LISTED.fullmatch(path) is None
