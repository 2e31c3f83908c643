"""Changes that are stored apart from the project (overlayfs): the cell has an overlay in place of the project, and the
overlay's upper folder contains the changes.

    overlay = prepare_overlay(home.cells / session, "/home/you/project")     for CellPolicy.overlay, before `Watch.begin`
    differences(upper, project)                                              yields the differences in the upper folder

Runs in the command, outside the cell. The upper folder belongs to Aileron (mode 0700), and agents see it only through
the mount. Its contents are hostile.

An overlay that a user mounts (option `userxattr`) writes as follows; the tests verify this on the kernel that runs
them. A removed name is a character device 0/0. A folder that replaced another has the attribute `user.overlay.opaque`
= `y`. A folder is never renamed by redirection, and an upper file always has its contents (`redirect_dir` and
`metacopy` are off). An agent can make neither these devices nor these attributes: the mount refuses such devices, and
stores such attributes under another name.

Rules
- A difference is an entry that the merged folder, which the agent saw, shows differently from the project. An upper
  file that equals the project's file is not a difference, so a change stops being a difference once it is applied.
- A file with an unknown attribute of the overlay cannot be interpreted; it is reported with that problem.

Source: Documentation/filesystems/overlayfs.rst. Not here: the mount (aileron_sandbox.cell), merging into the project (apply.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aileron.cell.compare import is_git_data, leads_out_of
from aileron.cell.executes import Candidate, EntryKind, Finding, GitPlaces, findings, git_places
from aileron.cell.kept import Kept
from aileron.cell.listing import Change, Listing, What
from aileron.cell.sizes import size_of
from aileron.cell.start import Start
from aileron.cell.tree import MAX_DEPTH, Bytes, child, kind_of, opened, opened_root, remove_tree
from aileron.model.failure import AileronError, FailureClass
from aileron.model.visible import visible
from aileron_sandbox.cell.policy import Overlay

__all__ = ["Difference", "decided_paths", "differences", "list_aside", "prepare_overlay", "remove_aside"]

_OPAQUE: Final = "user.overlay.opaque"
_NOWHERE: Final = GitPlaces()
_HARMLESS: Final = ("origin", "impure", "nlink", "upper", "uuid", "opaque", "protattr")
"""Attributes of the overlay itself, below `user.overlay.`. If other programs set such attributes, the overlay stores
them below `overlay.`.
"""
_NO_UPPER: Final = frozenset(
    {"overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "vfat", "exfat", "ecryptfs", "fuse", "ceph", "afs"}
)
"""File systems to which an overlay cannot write, or cannot write safely."""
_CHUNK: Final = 1 << 20
"""Number of bytes of two files that are compared at a time."""
_LARGE_BYTES: Final = 100 << 20
"""Size in bytes from which the list shows a file's size: 100 MiB, more than version control accepts for one file."""
_MAX_DIFFERENCES: Final = 1_000_000
"""Maximum number of differences that are listed, and of names that are read from one folder (100 MB). A person cannot
decide more file by file.
"""


def prepare_overlay(kept_in: Path, lower: str, target: str | None = None) -> Overlay:
    """Make the folders for an overlay over the project `lower`, shown at `target` in the cell (default: at the same path).

    Raises AileronError, with the fix, if the home is inside the project, or on a file system to which an overlay cannot
    write. The latter is tested by the file system's type, and by making an attribute and a device there.
    """
    kept = Kept(kept_in)
    kept.make()
    if kept.path.resolve().is_relative_to(Path(lower).resolve()):
        raise _impossible(
            f"Aileron's home is inside of {lower}, which would be changed while it is mounted", "elsewhere"
        )
    for folder in (kept.upper, kept.work):
        folder.mkdir(mode=0o700)
    try:
        _check_upper(kept.work)
        # In the cell, the project has this folder's mode. Other users have no access to the folder above it.
        os.chmod(kept.upper, stat.S_IMODE(os.stat(lower).st_mode) & 0o777)
    except BaseException:
        for folder in (kept.upper, kept.work):
            folder.rmdir()
        raise
    return Overlay(lower, str(kept.upper), str(kept.work), target or lower)


def _check_upper(folder: Path) -> None:
    kind = _file_system_of(folder)
    if kind is not None and kind.partition(".")[0] in _NO_UPPER:
        raise _impossible(f"Aileron's home is on {kind}, on which an overlay cannot keep changes", "on a local disk")
    trial = folder / "trial"
    try:
        os.setxattr(folder, "user.aileron", b"y")
        os.removexattr(folder, "user.aileron")
        os.mknod(trial, stat.S_IFCHR, 0)
        os.unlink(trial)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise _impossible(
            f"an overlay cannot keep changes where Aileron's home is ({why})", "on a local disk"
        ) from error


def _file_system_of(folder: Path) -> str | None:
    """Return the type of a folder's file system, such as `ext4`; None if it is unknown."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            if before.split()[2] == number:
                return after.split()[0]
    return None


def _impossible(why: str, where: str) -> AileronError:
    message = f"{why}: set AILERON_HOME to a folder {where} (such as ext4, XFS or Btrfs), or leave out --overlay"
    return AileronError(FailureClass.INVALID_REQUEST, message)


def remove_aside(kept: Kept) -> None:
    """Remove a session's changes that its overlay stored. Raises OSError if that fails.

    The folder with the changes is first renamed in one step, because a partly removed folder would stand for other changes.
    For example, if names are missing in a folder that replaced another, applying it would remove these names from the project.
    """
    over = str(kept.path / "over")
    remove_tree(over)
    with contextlib.suppress(FileNotFoundError):
        os.rename(kept.upper, over)
    remove_tree(over)
    remove_tree(str(kept.work))


# Reading the upper folder


@dataclasses.dataclass(frozen=True)
class Difference:
    """An entry that differs between the project and the folder that the agent saw, in which the overlay's changes are
    merged.
    """

    path: str
    what: What
    kind: EntryKind
    """Kind in the merged folder; of a removed entry, its kind in the project."""
    was: EntryKind | None
    """Kind in the project; None if the project has no such entry."""
    status: os.stat_result | None
    """Status of the upper entry; None if the entry is removed."""
    problem: str | None = None
    """Reason why the difference cannot be applied; None if it can."""
    executes: tuple[Finding, ...] = ()


def differences(upper: Path, lower: str, most: int = _MAX_DIFFERENCES) -> Iterator[Difference]:
    """Yield all differences between the project `lower` and the folder that the agent saw, from the overlay's folder
    `upper` with its changes. A new folder comes before its contents, a removed folder after its contents.

    Raises OSError if `upper` or `lower` cannot be read. A folder in `upper` with more than `most` names counts as unreadable.
    """
    with opened(str(upper)) as above, opened_root(lower) as below:
        yield from _Pair(os.path.realpath(lower), most).compared(above, below, "", GitPlaces(), 0)


class _Pair:
    """A parallel walk through an overlay's upper folder, which has the changes, and the project, by open descriptors."""

    def __init__(self, root: str, most: int) -> None:
        self._root = root
        self._most = most
        self._contents = Bytes()

    def compared(self, above: int, below: int | None, path: str, places: GitPlaces, depth: int) -> Iterator[Difference]:
        is_opaque = _is_opaque(above)
        had = None if below is None else lambda name: _status(below, name) is not None
        places = git_places(places, path, lambda name: _has(above, None if is_opaque else below, name), had)
        names = self._names(above)
        for name in names:
            yield from self._one(above, below, name, child(path, name), places.of(name), depth)
        if is_opaque and below is not None:
            for name in sorted(set(os.listdir(below)) - set(names)):
                yield from self._removed(below, name, child(path, name), depth)

    def _names(self, above: int) -> list[str]:
        with os.scandir(above) as entries:
            names = [entry.name for entry in itertools.islice(entries, self._most + 1)]
        if len(names) > self._most:
            raise OSError(errno.EFBIG, f"more than {self._most} entries in one folder")
        return sorted(names)

    def _one(
        self, above: int, below: int | None, name: str, path: str, places: GitPlaces, depth: int
    ) -> Iterator[Difference]:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        existing = _status(below, name)
        was = None if existing is None else kind_of(existing.st_mode)
        if _is_removal(status):
            if existing is not None and below is not None:
                yield from self._removed(below, name, path, depth)
            return
        kind = kind_of(status.st_mode)
        if was == "directory" and kind != "directory" and below is not None:
            yield from self._removed_in(below, name, path, depth)
        if kind == "directory":
            yield from self._folder(above, below, name, path, status, existing, places, depth)
            return
        problem = self._problem(above, name, kind)
        if existing is not None and was == kind and problem is None and _is_same(above, below, name, status, existing):
            return
        yield self._different(above, name, path, kind, was, status, problem, places)

    def _folder(
        self,
        above: int,
        below: int | None,
        name: str,
        path: str,
        status: os.stat_result,
        existing: os.stat_result | None,
        places: GitPlaces,
        depth: int,
    ) -> Iterator[Difference]:
        was = None if existing is None else kind_of(existing.st_mode)
        problem = f"more than {MAX_DEPTH} folders deep" if depth >= MAX_DEPTH else None
        try:
            with opened(name, above) as inner:
                problem = problem or _unknown_attribute(inner)
                if was != "directory" or existing is None or _modes(existing) != _modes(status) or problem is not None:
                    yield self._different(above, name, path, "directory", was, status, problem, places)
                if problem is not None:
                    return
                with _opened_below(below, name, was) as lower:
                    yield from self.compared(inner, lower, path, places, depth + 1)
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            yield self._different(above, name, path, "directory", was, status, why, places)

    def _removed(self, below: int, name: str, path: str, depth: int) -> Iterator[Difference]:
        existing = _status(below, name)
        if existing is None:
            return
        kind = kind_of(existing.st_mode)
        if kind == "directory":
            yield from self._removed_in(below, name, path, depth)
        yield Difference(path, "removed", kind, kind, None)

    def _removed_in(self, below: int, name: str, path: str, depth: int) -> Iterator[Difference]:
        if depth >= MAX_DEPTH:
            return
        with contextlib.suppress(PermissionError), opened(name, below) as inner:
            for entry in sorted(os.listdir(inner)):
                yield from self._removed(inner, entry, child(path, entry), depth + 1)

    def _different(
        self,
        above: int,
        name: str,
        path: str,
        kind: EntryKind,
        was: EntryKind | None,
        status: os.stat_result,
        problem: str | None,
        places: GitPlaces = _NOWHERE,
    ) -> Difference:
        leads_out = leads_out_of(self._root, path, name, above) if kind == "link" else None
        candidate = Candidate(
            path, kind, status.st_mode, lambda: self._contents.read(name, above), leads_out, places.kind, places.tree
        )
        what: What = "made" if was is None else "changed"
        return Difference(path, what, kind, was, status, problem, findings(candidate))

    def _problem(self, above: int, name: str, kind: EntryKind) -> str | None:
        if kind in ("socket", "pipe", "device"):
            return f"a {kind} is never applied"
        if kind == "link":
            return None
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
        except OSError as error:
            return f"cannot be read: {os.strerror(error.errno or 0)}"
        try:
            return _unknown_attribute(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _opened_below(below: int | None, name: str, was: EntryKind | None) -> Iterator[int | None]:
    """Yield the descriptor of the folder `name` in `below`, a folder of the project; None if there is no such folder."""
    if below is None or was != "directory":
        yield None
        return
    with opened(name, below) as descriptor:
        yield descriptor


def _status(folder: int | None, name: str) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_removal(status: os.stat_result) -> bool:
    """Return whether an entry in an overlay's upper folder stands for a removed name (it is then a character device
    with number 0).
    """
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _has(above: int, below: int | None, name: str) -> bool:
    """Return whether the agent saw an entry `name` in a folder, which was merged from the overlay's folder `above` and
    the project's `below`.
    """
    status = _status(above, name)
    return _status(below, name) is not None if status is None else not _is_removal(status)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE) == b"y"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return False
        raise


def _unknown_attribute(descriptor: int) -> str | None:
    """Return a description of the problem if the overlay has set an attribute that this module does not know on the
    entry, else None.
    """
    for attribute in os.listxattr(descriptor):
        name = attribute.removeprefix("user.overlay.")
        if name != attribute and name not in _HARMLESS and not name.startswith("overlay."):
            return f"has the unknown attribute {visible(attribute)}"
    return None


def _modes(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode) & 0o777


def _is_same(above: int, below: int | None, name: str, upper: os.stat_result, lower: os.stat_result) -> bool:
    """Return whether applying an entry of the overlay would change nothing, because the entry and the project's have
    the same bytes and permissions, or the same link target.
    """
    try:
        if stat.S_ISLNK(upper.st_mode):
            return os.readlink(name, dir_fd=above) == os.readlink(name, dir_fd=below)
        return upper.st_size == lower.st_size and _modes(upper) == _modes(lower) and _same_bytes(above, below, name)
    except OSError:
        return False


def _same_bytes(above: int, below: int | None, name: str) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        open(os.open(name, flags, dir_fd=above), "rb", buffering=0) as file,
        open(os.open(name, flags, dir_fd=below), "rb", buffering=0) as other,
    ):
        while piece := file.read(_CHUNK):
            if piece != other.read(_CHUNK):
                return False
        return not other.read(1)


# The list


def decided_paths(kept: Kept) -> frozenset[str]:
    """Return the paths of a session's stored changes that were already applied or discarded."""
    decided = kept.read("decided.json") or {}
    return frozenset((*decided.get("applied", ()), *decided.get("discarded", ())))


def list_aside(start: Start, kept: Kept, listing: Listing) -> None:
    """Add a session's stored changes that were neither applied nor discarded yet to the listing."""
    decided = decided_paths(kept)
    try:
        for number, difference in enumerate(differences(kept.upper, start.root.path)):
            if number >= _MAX_DIFFERENCES:
                listing.note(f"more than {_MAX_DIFFERENCES} changes: the rest was not looked at")
                return
            if difference.path not in decided:
                _add(difference, start.root.path, listing)
    except FileNotFoundError:
        return  # every change was decided
    except OSError as error:
        listing.note(f"cannot read what is kept aside: {error.strerror}")


def _add(difference: Difference, root: str, listing: Listing) -> None:
    is_data = is_git_data(difference.path) and difference.kind in ("file", "directory") and not difference.executes
    if is_data and difference.problem is None:
        listing.git_data += difference.kind == "file"
        return
    size = size_of([difference])
    notes = (
        *(() if difference.problem is None else (difference.problem,)),
        *((size.words(),) if size.larger_bytes >= _LARGE_BYTES else ()),
    )
    was = difference.was if difference.was != difference.kind else None
    listing.add(Change(root, difference.path, difference.what, difference.kind, was, notes, difference.executes))
