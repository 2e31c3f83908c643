"""Folders and files of a commit, all in memory: look them up, list them, and change them.

No file is written to a disk, so paths in a repository can do no harm here. Pushed files have names that are safe to
check out: no `..`, no spelling of `.git`.

Source: gitformat-index(5) for modes, `verify_path` of git for names. Not here: comparing two trees (changes.py).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dulwich.objects import S_ISGITLINK, Tree
from packs import Objects

from aileron_connector import BadInput, ExternalApiError

__all__ = [
    "EXECUTABLE",
    "FILE",
    "Change",
    "changed_tree",
    "check_names",
    "find",
    "kind_of",
    "listed",
    "shown",
    "split_path",
]

FILE: Final = 0o100644
EXECUTABLE: Final = 0o100755
MAX_PATH_BYTES: Final = 1024
MAX_DEPTH: Final = 64
"""Maximum depth of folders in a recursive listing."""
_FOLDER: Final = 0o040000

Change = tuple[int | None, bytes] | None
"""A change to one file: its new mode (None keeps the mode) and the object id of its new content. None instead of this
pair removes the file.
"""


def split_path(path: str, argument: str = "path") -> tuple[bytes, ...]:
    """Split the path of a file to be read into names; an empty path is the root. Raises BadInput if the path is too long or
    has a null byte.
    """
    raw = path.strip("/").encode("utf-8", "surrogatepass")
    if len(raw) > MAX_PATH_BYTES or b"\0" in raw:
        raise BadInput(f"{argument} is longer than {MAX_PATH_BYTES} bytes, or has a null", argument=argument)
    return tuple(raw.split(b"/")) if raw else ()


def find(objects: Objects, root: bytes, names: tuple[bytes, ...]) -> tuple[int, bytes]:
    """Return mode and object id of the file or folder at a path. Raises BadInput if the path does not exist."""
    mode, sha = _FOLDER, root
    for at, name in enumerate(names):
        if not stat.S_ISDIR(mode):
            raise BadInput(f"{shown(b'/'.join(names[:at]))} is not a folder", argument="path")
        found = {entry.path: (entry.mode, entry.sha) for entry in objects.tree(sha).iteritems()}.get(name)
        if found is None:
            raise BadInput(f"there is no {shown(b'/'.join(names[: at + 1]))}", argument="path")
        mode, sha = found[0] or 0, bytes(found[1] or b"")
    return mode, sha


def listed(objects: Objects, folder: bytes, path: tuple[bytes, ...], *, recursive: bool) -> Iterator[dict[str, Any]]:
    """Yield path, type, id and size of each entry of a folder and, if `recursive`, of the entries of its subfolders."""
    if len(path) > MAX_DEPTH:
        raise ExternalApiError(f"folders are more than {MAX_DEPTH} deep; list one of them")
    for entry in objects.tree(folder).iteritems():
        mode, sha, here = entry.mode or 0, bytes(entry.sha or b""), (*path, entry.path)
        found: dict[str, Any] = {"path": shown(b"/".join(here)), "type": kind_of(mode), "id": sha.decode()}
        size = None if stat.S_ISDIR(mode) else objects.size(sha)
        yield found if size is None else {**found, "size": size}
        if recursive and stat.S_ISDIR(mode):
            yield from listed(objects, sha, here, recursive=True)


def kind_of(mode: int) -> str:
    """Return the kind of a tree's entry by its mode: `file`, `executable`, `symlink`, `submodule` or `folder`."""
    if S_ISGITLINK(mode):
        return "submodule"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "executable" if mode & 0o100 else "file"


def changed_tree(
    objects: Objects, root: bytes | None, changes: Mapping[tuple[bytes, ...], Change]
) -> tuple[bytes, list[Any]]:
    """Apply `changes` to the tree `root`. Return the id of the changed tree, and all tree objects that are new. Raises
    BadInput if a change does not fit the tree.
    """
    made: list[Any] = []
    sha = _changed(objects, root, changes, (), made)
    if sha is None:
        empty = Tree()
        objects.add(empty)
        made.append(empty)
        sha = bytes(empty.id)
    return sha, made


def check_names(names: tuple[bytes, ...]) -> None:
    """Raise BadInput if a name in a file's path is not safe to check out, such as `..` or a spelling of `.git`."""
    for name in names:
        if not _is_safe(name):
            words = f"{shown(b'/'.join(names))!r} has a name that git does not allow: none is empty, `.`, `..` or like `.git`"
            raise BadInput(words)


def shown(path: bytes) -> str:
    r"""Return a path as text. Bytes that are not UTF-8 are written as `\xff`."""
    return path.decode("utf-8", "backslashreplace")


def _changed(
    objects: Objects,
    sha: bytes | None,
    changes: Mapping[tuple[bytes, ...], Change],
    path: tuple[bytes, ...],
    made: list[Any],
) -> bytes | None:
    """Apply the changes to the folder at `path`. Return the id of its new tree, or None if the folder is empty. New
    trees are added to `made`.
    """
    tree = Tree()
    for entry in objects.tree(sha).iteritems() if sha is not None else ():
        tree.add(entry.path, entry.mode or 0, entry.sha or b"")  # type: ignore[arg-type]
    deeper: dict[bytes, dict[tuple[bytes, ...], Change]] = {}
    for names, change in changes.items():
        if len(names) > 1:
            deeper.setdefault(names[0], {})[names[1:]] = change
        else:
            _put(tree, names[0], change, path)
    for name, inner in deeper.items():
        _descend(objects, tree, name, inner, path, made)
    if not len(tree):
        return None
    if tree.id not in objects:
        objects.add(tree)
        made.append(tree)
    return bytes(tree.id)


def _descend(
    objects: Objects,
    tree: Tree,
    name: bytes,
    inner: Mapping[tuple[bytes, ...], Change],
    path: tuple[bytes, ...],
    made: list[Any],
) -> None:
    there = _entry(tree, name)
    here = (*path, name)
    if there is not None and not stat.S_ISDIR(there[0]):
        raise BadInput(f"{shown(b'/'.join(here))} is a file, not a folder; delete it first", argument="changes")
    below = _changed(objects, None if there is None else bytes(there[1]), inner, here, made)
    if below is not None:
        tree.add(name, _FOLDER, below)  # type: ignore[arg-type]
    elif there is not None:
        del tree[name]


def _put(tree: Tree, name: bytes, change: Change, path: tuple[bytes, ...]) -> None:
    there = _entry(tree, name)
    said = shown(b"/".join((*path, name)))
    if there is not None and stat.S_ISDIR(there[0]):
        raise BadInput(f"{said} is a folder, not a file", argument="changes")
    if change is None:
        if there is None:
            raise BadInput(f"there is no {said} to delete", argument="changes")
        del tree[name]
        return
    mode, sha = change
    kept = there[0] if there is not None and kind_of(there[0]) in {"file", "executable"} else FILE
    tree.add(name, mode or kept, sha)  # type: ignore[arg-type]


def _entry(tree: Tree, name: bytes) -> tuple[int, bytes] | None:
    """Return mode and object id of the tree's entry with this name, or None; dulwich's trees have no `get`."""
    try:
        mode, sha = tree[name]
    except KeyError:
        return None
    return mode, bytes(sha)


def _is_safe(name: bytes) -> bool:
    # Takes 40 ms, and only pushes need it
    from dulwich.index import validate_path_element_hfs, validate_path_element_ntfs

    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    plain = bool(text) and text.isprintable() and "/" not in text and len(name) <= 255
    return plain and validate_path_element_ntfs(name) and validate_path_element_hfs(name)
