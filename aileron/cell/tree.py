"""Reading a tree of folders by open directory descriptors: every name with its kind. The reader never leaves the tree,
even if a link replaces a folder meanwhile.

Before an agent starts, only names and kinds are read (`read_names`): getdents64(2) returns both, so no file needs a
stat(2). changes.py explains the use.

Runs in the command. The tree is hostile, and can change while it is read.

Rules
- A folder is opened through its parent's descriptor and never through a symbolic link. The first folder is opened by a path
  without links. A path is never resolved twice.
- Depth, entries and bytes are bounded. Entries beyond the bounds are marked as unknown, and do not count as absent.

Source: openat(2), openat2(2), getdents(2), readdir(3) on d_type. Not here: finding changes (changes.py), reading an overlay
(overlay.py).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aileron_sandbox import kernel

if TYPE_CHECKING:  # needed only when the agent has ended, and takes 5 ms to import
    from aileron.cell.executes import EntryKind

__all__ = [
    "MAX_CONTENT",
    "MAX_DEPTH",
    "Bytes",
    "Folder",
    "Names",
    "child",
    "entry_kind",
    "kind_of",
    "names_from",
    "names_to",
    "opened",
    "opened_root",
    "read_names",
    "remove_tree",
    "under",
]

MAX_CONTENT: Final = 1 << 20
"""Maximum size in bytes of a file that is read to find out whether it can run code: 1 MiB. A package.json has a
hundredth of that.
"""
MAX_DEPTH: Final = 128
"""Maximum depth of nested folders. Each level takes a descriptor while it is read, of the 1024 that a process has.
Projects have 20 levels.
"""
_REMOVED: Final = 4096
"""Number of names that are read at a time while a folder is emptied. They take 1 MiB."""
_MAX_ALL_CONTENT: Final = 256 << 20
"""Maximum number of bytes that are read from all files together to find out whether they can run code. It takes about
0.25 s.
"""
_LETTERS: Final[dict[EntryKind, str]] = {
    "file": "f",
    "directory": "d",
    "link": "l",
    "socket": "s",
    "pipe": "p",
    "device": "v",
}
_AT_FDCWD: Final = -100  # fcntl.h; the path is absolute
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Folder(msgspec.Struct):
    """The contents of one folder: its inode number, and the kind of each name in it."""

    inode: int
    names: dict[str, EntryKind]
    is_known: bool = True
    """True if every name was read; otherwise `names` may lack some."""


Names = dict[str, Folder]
"""Mapping of each folder's path in the tree ("" for the tree itself) to that folder's contents."""


def child(path: str, name: str) -> str:
    """Return the path of `name` in the folder `path`."""
    return f"{path}/{name}" if path else name


def under(root: str, path: str) -> str:
    """Return the absolute path of `path`, which is relative to the tree at `root`."""
    return os.path.join(root, path) if path else root


def kind_of(mode: int) -> EntryKind:
    """Return the kind of an inode by its mode."""
    match stat.S_IFMT(mode):
        case stat.S_IFREG:
            return "file"
        case stat.S_IFDIR:
            return "directory"
        case stat.S_IFLNK:
            return "link"
        case stat.S_IFSOCK:
            return "socket"
        case stat.S_IFIFO:
            return "pipe"
        case _:
            return "device"


def entry_kind(entry: os.DirEntry[str], parent: int) -> EntryKind | None:
    """Return the kind of an entry, without a stat(2) if possible; None if the entry was removed meanwhile."""
    try:
        if entry.is_file(follow_symlinks=False):
            return "file"
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        if entry.is_symlink():
            return "link"
        return kind_of(os.stat(entry.name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return None


@contextlib.contextmanager
def opened(name: str, parent: int | None = None) -> Iterator[int]:
    """Yield a folder's descriptor, opened as `name` in `parent`, or by a path whose last part is no link. Raises
    OSError if it cannot be opened.
    """
    descriptor = os.open(name, _OPEN, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_root(path: str) -> Iterator[int]:
    """Yield the descriptor of a folder, opened by a path that was resolved before. Raises OSError if any part of the
    path is a link now.

    Otherwise a cell that can write to a folder on the path could replace part of the path by a link, and make Aileron
    read or write another folder.
    """
    try:
        descriptor = kernel.open_resolved(_AT_FDCWD, path, _OPEN, kernel.RESOLVE_NO_SYMLINKS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "a symbolic link has been put on the way to it", path) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# All names


def read_names(
    root: str, most: int, skipped: frozenset[str] = frozenset(), apart: frozenset[str] = frozenset()
) -> Names:
    """Return the names in the tree at `root`, at most `most`. Folders beyond that number, or that cannot be read, are
    marked as unknown.

    A folder whose path ends in one of `skipped`, or is one of `apart`, is marked as unknown, too. Raises OSError if
    `root` is not a readable folder.
    """
    found: Names = {}
    with opened_root(root) as descriptor:
        _read_into(found, descriptor, "", os.fstat(descriptor).st_ino, _Budget(most), skipped, apart, 0)
    return found


class _Budget:
    """The number of entries that one walk of a tree may still read."""

    def __init__(self, most: int) -> None:
        self.left = most


def _read_into(
    found: Names,
    descriptor: int,
    path: str,
    inode: int,
    budget: _Budget,
    skipped: frozenset[str],
    apart: frozenset[str],
    depth: int,
) -> None:
    names: dict[str, EntryKind] = {}
    folders: list[tuple[str, int]] = []
    folder = found[path] = Folder(inode, names)
    with os.scandir(descriptor) as entries:
        for entry in entries:
            kind = entry_kind(entry, descriptor)
            if kind is None:
                continue
            names[entry.name] = kind
            if kind == "directory":
                folders.append((entry.name, entry.inode()))
            budget.left -= 1
            if budget.left < 0:
                folder.is_known = False
                break
    for name, inner in folders:
        below = child(path, name)
        is_skipped = below in apart or any(_ends(below, end) for end in skipped)
        found[below] = Folder(inner, {}, is_known=False)
        if not is_skipped and budget.left > 0 and depth < MAX_DEPTH:
            with contextlib.suppress(OSError), opened(name, descriptor) as opened_folder:
                _read_into(found, opened_folder, below, inner, budget, skipped, apart, depth + 1)


def _ends(path: str, end: str) -> bool:
    return path == end or path.endswith("/" + end)


# On disk


def names_to(names: Names) -> list[list[Any]]:
    """Return the names as a JSON value. Each folder is a row: its path, its inode, `is_known`, and an object that maps
    the letter of each kind to the names of that kind, joined by `/`.
    """
    rows: list[list[Any]] = []
    for path, folder in names.items():
        kinds: dict[str, list[str]] = {}
        for name, kind in folder.names.items():
            kinds.setdefault(_LETTERS[kind], []).append(name)
        rows.append([path, folder.inode, folder.is_known, {letter: "/".join(of) for letter, of in kinds.items()}])
    return rows


def names_from(rows: list[list[Any]]) -> Names:
    """Read a value that `names_to` returned. Raises ValueError, TypeError or KeyError for any other value."""
    kinds = {letter: kind for kind, letter in _LETTERS.items()}
    return {
        path: Folder(inode, {name: kinds[letter] for letter, of in names.items() for name in of.split("/")}, is_known)
        for path, inode, is_known, names in rows
    }


# Removing


def remove_tree(path: str) -> None:
    """Remove a folder of this user with all its contents, even if an agent made them unreadable or nested them deeply.
    No link is followed. Raises OSError if that fails.
    """
    above, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), opened(above) as parent:
        with _opened_anyhow(name, parent) as top:
            _clear(top, top, os.urandom(8).hex(), 0)
        os.rmdir(name, dir_fd=parent)


def _clear(descriptor: int, top: int, unused: str, depth: int) -> None:
    """Empty the folder that `descriptor` refers to. Folders that are nested more than MAX_DEPTH deep, for which
    descriptors might run out, are moved to the folder `top` under the unused name `unused` and a number; `top` is
    emptied last.
    """
    while names := _some_names(descriptor):
        for name, is_folder in names:
            if not is_folder:
                os.unlink(name, dir_fd=descriptor)
                continue
            with _opened_anyhow(name, descriptor) as inner:
                if depth >= MAX_DEPTH:
                    os.rename(name, f"{unused}.{os.fstat(inner).st_ino}", src_dir_fd=descriptor, dst_dir_fd=top)
                    continue
                _clear(inner, top, unused, depth + 1)
            os.rmdir(name, dir_fd=descriptor)


def _some_names(descriptor: int) -> list[tuple[str, bool]]:
    """Return some of a folder's names as (name, is_folder), at most _REMOVED, because all of them might not fit in memory."""
    with os.scandir(descriptor) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(entries, _REMOVED)]


@contextlib.contextmanager
def _looked_at(name: str, parent: int) -> Iterator[int]:
    """Yield an O_PATH descriptor of the folder `name` in `parent`, which need not be readable. Raises OSError if the
    entry is not a folder. A link to a folder is not a folder.
    """
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield place
    finally:
        os.close(place)


@contextlib.contextmanager
def _opened_anyhow(name: str, parent: int) -> Iterator[int]:
    """Yield a readable descriptor of the folder `name` in `parent`, which belongs to this user, after giving its owner
    all permissions on it. Links are never followed.
    """
    with _looked_at(name, parent) as place:
        if os.fstat(place).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
    with opened(name, parent) as descriptor:
        yield descriptor


# Contents of files


class Bytes:
    """A reader of small files, with a maximum for the total number of bytes that it reads."""

    def __init__(self) -> None:
        self._left = _MAX_ALL_CONTENT

    def read(self, name: str, parent: int, most: int = MAX_CONTENT) -> bytes | None:
        """Return the bytes of the regular file `name` in `parent`; None if it is no regular file, cannot be read, or is
        longer than `most` or than what is left of the reader's total.
        """
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > min(most, self._left):
                return None
            pieces, size = [], 0
            while piece := os.read(descriptor, most + 1 - size):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    return None
            self._left -= size
            return b"".join(pieces)
        except OSError:
            return None
        finally:
            os.close(descriptor)
