"""Applying or discarding an agent's changes that an overlay stored apart from the project: all changes, or some of them.

    pending(kept)                          returns the changes that are not decided yet
    apply(kept, ["src"], force=False)      applies the changes in `src` to the project; returns the refused paths with reasons
    discard(kept, ["notes.txt"])           records that the changes there are never applied

Runs in a command outside the cell, after the cell is closed, and while the command holds the cell's lock. Both sides
are hostile: the upper folder is an agent's, and in the project a link can take the place of a folder at any moment.

Rules
- Every folder on a path is opened through its parent's descriptor. Neither the folder nor the project is opened through a
  symbolic link. A link is data: it is created, not followed.
- A file is written under a temporary name in the same folder, then renamed in one step: after a kill, either the
  complete old or the complete new file exists. A file that already equals the upper file is no longer a difference, so
  a second run continues where the first stopped.
- Entries that the person made, changed or removed in the project since the session began are not overwritten, unless
  `force` is set. A new file is put in place by link(2), not by rename(2), if the file system has hard links: if the
  person makes a file of that name at the same moment, link(2) fails, and their file is not lost.
- A hole in a sparse file stays a hole, so three terabytes of holes take no space on the disk.
- Permissions and times are preserved. Owners, set-user-ID, set-group-ID and sticky bits, attributes and hard links are not.
  Sockets, pipes and devices are refused.

Source: openat(2), rename(2), link(2), lseek(2). Not here: finding the differences (overlay.py), asking the person
(the command).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from aileron.cell.changes import start_of
from aileron.cell.kept import Kept
from aileron.cell.overlay import Difference, decided_paths, differences, remove_aside
from aileron.cell.start import Start, is_since
from aileron.cell.tree import MAX_DEPTH, kind_of, opened, opened_root
from aileron.model.failure import AileronError, FailureClass

__all__ = ["Done", "apply", "discard", "has_aside", "pending"]

_MAX_PENDING: Final = 1_000_000
"""Maximum number of pending changes that are held in memory: about 500 MB."""
_RECORDED_EVERY: Final = 256
"""Number of applied changes after which the first record is written. Each further record is written when the number of
applied changes has reached twice the number on record plus this number.

A change that was applied but not recorded when the process was killed does no harm, because it is no longer a difference.
"""
_PIECE: Final = 1 << 20  # maximum number of bytes copied at a time
_RENAMES_ONLY: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""Errors of link(2) on a file system without hard links."""


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of `apply` or `discard`: the paths that it handled, the refused ones, and how many are undecided."""

    applied: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Paths that were refused, each with the reason."""
    left: int = 0
    """Number of changes that are still undecided."""


def has_aside(kept: Kept) -> bool:
    """Return whether the folder with a session's stored changes still exists."""
    return os.path.lexists(kept.upper)


def pending(kept: Kept) -> list[Difference]:
    """Return the changes in a session's overlay that were neither applied nor discarded. Raises AileronError if they are too many
    or unreadable, or if the session had no overlay.
    """
    folder = _project_of(kept)
    if not has_aside(kept):
        return []
    decided = decided_paths(kept)
    found: list[Difference] = []
    try:
        for change in differences(kept.upper, folder):
            if change.path not in decided:
                found.append(change)
            if len(found) > _MAX_PENDING:
                message = f"more than {_MAX_PENDING} changes are kept aside in {kept.upper}: discard them, or copy what you need"
                raise AileronError(FailureClass.INVALID_REQUEST, message)
    except OSError as error:
        message = f"the changes of session {kept.session} cannot be compared with {folder}: {error.strerror}"
        raise AileronError(FailureClass.INVALID_REQUEST, message) from error
    return found


def _project_of(kept: Kept) -> str:
    """Return the project's path of a session with an overlay. Raises AileronError if the session had no overlay."""
    facts = start_of(kept)
    if not facts["is_aside"]:
        message = f"session {kept.session} had no overlay: its changes are in the project already"
        raise AileronError(FailureClass.INVALID_REQUEST, message)
    return str(facts["folder"])


def apply(kept: Kept, paths: Sequence[str] = (), *, force: bool = False) -> Done:
    """Apply pending changes to the project: all, or those at and below `paths`. The result lists the refused changes.

    With `force`, changes to entries that the person changed since the session began are applied, too. Raises AileronError(busy)
    if the session is in use, AileronError(not_found) if there is no change at and below one of `paths`, and otherwise as
    `pending` does.
    """
    with kept.held():
        every = _pending_at(kept, paths)
        if not has_aside(kept):
            return Done()
        chosen = [change for change in every if _is_chosen(change, paths)]
        work = _Application(kept, force=force)
        try:
            work.all(chosen)
        finally:
            work.record()
        left = len(every) - len(work.applied)
        _remove_decided(kept, left)
        return Done(applied=tuple(work.applied), refused=tuple(work.refused), left=left)


def discard(kept: Kept, paths: Sequence[str] = ()) -> Done:
    """Discard pending changes: all, or those at and below `paths`. Raises AileronError as `apply` does."""
    with kept.held():
        every = _pending_at(kept, paths)
        thrown = [change.path for change in every if not paths or _is_below(change.path, paths)]
        _record(kept, "discarded", thrown)
        left = len(every) - len(thrown)
        _remove_decided(kept, left)
        return Done(discarded=tuple(thrown), left=left)


def _pending_at(kept: Kept, paths: Sequence[str]) -> list[Difference]:
    folder = _project_of(kept)
    if has_aside(kept):
        with contextlib.suppress(OSError), opened(str(kept.upper)) as upper, opened_root(folder) as project:
            _remove_leftovers(upper, project, _temporary_of(kept), 0)
    every = pending(kept)
    for path in paths:
        if not any(_is_below(change.path, [path]) for change in every):
            raise AileronError(FailureClass.NOT_FOUND, f"no change is kept aside at {path!r}")
    return every


def _temporary_of(kept: Kept) -> str:
    return f".aileron-{kept.session}.tmp"


def _remove_leftovers(upper: int, project: int, temporary: str, depth: int) -> None:
    """Remove the file named `temporary` that a killed `apply` left in the project. There is at most one, in a folder
    that both the project and the overlay's folder `upper` have.
    """
    with contextlib.suppress(OSError):
        os.unlink(temporary, dir_fd=project)
    with os.scandir(upper) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names if depth < MAX_DEPTH else ():
        with contextlib.suppress(OSError), opened(name, upper) as above, opened(name, project) as below:
            _remove_leftovers(above, below, temporary, depth + 1)


def _remove_decided(kept: Kept, left: int) -> None:
    """Remove the folder with a session's stored changes if `left`, the number of undecided changes, is 0, after the
    applied changes have been written to the disk.
    """
    if not left and has_aside(kept):
        os.sync()
        remove_aside(kept)


def _is_below(path: str, paths: Sequence[str]) -> bool:
    return any(not base or path == base or path.startswith(base + "/") for base in paths)


def _is_chosen(change: Difference, paths: Sequence[str]) -> bool:
    """Return whether `paths` select a change: it is at or below one of them, or is a new folder that one of them needs.
    Empty `paths` select every change.
    """
    if not paths or _is_below(change.path, paths):
        return True
    return (
        change.kind == "directory"
        and change.was != "directory"
        and any(path.startswith(change.path + "/") for path in paths)
    )


def _record(kept: Kept, what: str, paths: Sequence[str]) -> None:
    decided = kept.read("decided.json") or {}
    decided[what] = list(dict.fromkeys((*decided.get(what, ()), *paths)))
    kept.write("decided.json", decided)


class _RefusedError(Exception):
    """Error: a change in an overlay is not applied to the project. The message is the reason."""


class _Application:
    """The state of one call of `apply`, with the paths that were applied and those that were refused."""

    def __init__(self, kept: Kept, *, force: bool) -> None:
        self.applied: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self._kept = kept
        self._root: str = str(start_of(kept)["folder"])
        self._start = Start.from_json(kept.read("names.json")[0])
        self._since = self._start.moment.earliest()
        self._force = force
        self._replacing = set((kept.read("decided.json") or {}).get("replacing", ()))
        self._recorded = 0
        self._temporary = _temporary_of(kept)
        self._folders: list[tuple[str, os.stat_result]] = []

    def all(self, chosen: Sequence[Difference]) -> None:
        """Apply the chosen changes in order. Then set the times and permissions of new folders, after all their
        contents are written.
        """
        with opened(str(self._kept.upper)) as upper, opened_root(self._root) as project:
            for change in chosen:
                try:
                    self._one(change, upper, project)
                except _RefusedError as refused:
                    self.refused.append((change.path, str(refused)))
                except OSError as error:
                    self.refused.append((change.path, os.strerror(error.errno or 0)))
                else:
                    self.applied.append(change.path)
                    if len(self.applied) >= 2 * self._recorded + _RECORDED_EVERY:
                        self.record()
            for path, status in reversed(self._folders):
                with contextlib.suppress(OSError, _RefusedError), _parent(project, path) as (parent, name):
                    _set_folder(parent, name, status)

    def record(self) -> None:
        """Add the paths that were applied since the last call to the cell's records on disk."""
        _record(self._kept, "applied", self.applied[self._recorded :])
        self._recorded = len(self.applied)

    def _one(self, change: Difference, upper: int, project: int) -> None:
        if change.problem is not None:
            raise _RefusedError(change.problem)
        with _parent(project, change.path) as (target, name):
            existing = _status(target, name)
            if not self._force and (why := self._meanwhile(change, existing)) is not None:
                raise _RefusedError(why)
            if change.what == "removed":
                _remove(target, name, existing)
                return
            if (
                existing is not None
                and change.kind != kind_of(existing.st_mode)
                and "directory" in (change.kind, kind_of(existing.st_mode))
            ):
                self._make_room(change, target, name, existing)
                existing = None
            if change.kind == "directory":
                self._folder(change, target, name, existing)
                return
            with _parent(upper, change.path) as (source, _):
                self._write(change, source, target, name, existing)

    def _meanwhile(self, change: Difference, existing: os.stat_result | None) -> str | None:
        """Return the reason to refuse a change if the person changed `existing`, the project's entry at its path, since
        the session began; None if they did not.
        """
        folder, _, name = change.path.rpartition("/")
        known = self._start.names.get(folder)
        was = None if known is None else known.names.get(name)
        if existing is None:
            is_ours = was is None or change.what == "removed" or change.path in self._replacing
            return None if is_ours else "you removed it since the session began (--force makes it again)"
        kind = kind_of(existing.st_mode)
        if kind == "directory" and change.kind == "directory":
            return None  # changes of its entries are decided separately
        if was is None and (known is None or known.is_known):
            return "you made it since the session began (--force replaces it)"
        is_other = was is not None and was != kind
        if is_other or (kind != "directory" and is_since(existing.st_ctime_ns, self._since)):
            return "you changed it since the session began (--force replaces it)"
        return None

    def _make_room(self, change: Difference, target: int, name: str, existing: os.stat_result) -> None:
        """Remove `existing`, the project's entry at the path of a new entry of another kind, such as a folder where a
        file will be. The removal is recorded first, because the process can be killed before the new entry exists.
        """
        self._replacing.add(change.path)
        _record(self._kept, "replacing", [change.path])
        _remove(target, name, existing)

    def _folder(self, change: Difference, target: int, name: str, existing: os.stat_result | None) -> None:
        assert change.status is not None  # only a removed entry has none
        if existing is None:
            os.mkdir(name, 0o700, dir_fd=target)
            self._folders.append((change.path, change.status))
            with opened(name, target) as made:
                os.fchmod(made, stat.S_IMODE(change.status.st_mode) & 0o777 | 0o700)
        else:
            with opened(name, target) as folder:
                os.fchmod(folder, stat.S_IMODE(change.status.st_mode) & 0o777)

    def _write(self, change: Difference, source: int, target: int, name: str, existing: os.stat_result | None) -> None:
        """Write a changed file or link from the overlay under a temporary name in the project's folder `target`, then
        move it into place.
        """
        try:
            if change.kind == "link":
                os.symlink(os.readlink(name, dir_fd=source), self._temporary, dir_fd=target)
            else:
                _copy(source, target, name, self._temporary, existing)
            self._put(target, name, existing)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=target)

    def _put(self, target: int, name: str, existing: os.stat_result | None) -> None:
        if existing is None:
            try:
                os.link(self._temporary, name, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False)
                return
            except FileExistsError:
                raise _RefusedError("something was made there at this moment: try again") from None
            except OSError as error:
                if error.errno not in _RENAMES_ONLY:
                    raise
        if _identity(_status(target, name)) != _identity(existing):
            raise _RefusedError("it was changed at this moment: try again")
        os.rename(self._temporary, name, src_dir_fd=target, dst_dir_fd=target)


@contextlib.contextmanager
def _parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of the folder below `root` that contains a path, and the path's last component. The folder
    is opened one component at a time, so that no link is followed.
    """
    *folders, name = path.split("/")
    descriptor = os.dup(root)
    try:
        for folder in folders:
            try:
                with opened(folder, descriptor) as inner:
                    following = os.dup(inner)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise _RefusedError(
                        f"{folder!r} on its way is no folder: nothing is written through a link"
                    ) from None
                raise
            os.close(descriptor)
            descriptor = following
        yield descriptor, name
    finally:
        os.close(descriptor)


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return (
        None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mode, status.st_ctime_ns)
    )


def _remove(folder: int, name: str, existing: os.stat_result | None) -> None:
    if existing is None:
        return
    if not stat.S_ISDIR(existing.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _RefusedError(
                "the folder is not empty: something in it is not part of these changes, or was refused"
            ) from None
        raise


def _copy(source: int, target: int, name: str, temporary: str, existing: os.stat_result | None) -> None:
    """Copy a file of the overlay's upper folder, with its permissions and times, to the new file `temporary` in `target`."""
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    with open(reading, "rb") as original:
        status = os.fstat(reading)
        if not stat.S_ISREG(status.st_mode):
            raise _RefusedError("is no file")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600, dir_fd=target), "wb") as copy:
            _copy_data(original.fileno(), copy.fileno(), status.st_size)
            if existing is not None and (existing.st_uid, existing.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):  # only root can change the owner of a file
                    os.fchown(copy.fileno(), existing.st_uid, existing.st_gid)
            os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_data(source: int, target: int, size: int) -> None:
    """Copy a file's data, but not its holes, lseek(2). A file system that cannot report holes reports the complete file
    as data.
    """
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                break
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(source, at, os.SEEK_SET)
        os.lseek(target, at, os.SEEK_SET)
        at += _copy_bytes(source, target, end - at)
    os.ftruncate(target, size)


def _copy_bytes(source: int, target: int, count: int) -> int:
    """Copy `count` bytes at the present offsets of the files, and return `count`. Raises OSError if the source has
    become shorter.
    """
    left = count
    while left:
        piece = os.read(source, min(left, _PIECE))
        if not piece:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left -= len(piece)
        while piece:
            piece = piece[os.write(target, piece) :]
    return count


def _set_folder(parent: int, name: str, status: os.stat_result) -> None:
    with opened(name, parent) as folder:
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fchmod(folder, stat.S_IMODE(status.st_mode) & 0o777)
