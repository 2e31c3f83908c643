"""Safe reading and atomic replacing of files in the home, without following symbolic links or accepting other owners.

A run trusts the files of actions, connectors and the vault, which are next to files that an agent with a shell can write. So
every access goes through an open directory (no path is resolved twice), refuses links and special files, and is bounded. Every
write creates a new file, flushes it, and renames it over the old one.

Runs in the daemon and in commands. Rules
- A missing file raises FileNotFoundError, which the caller must explain. Every other failure raises an AileronError that says
  how to fix it.
- After a crash at any point, the file has either its complete old or its complete new content; a leftover `NAME.….tmp` is never
  read.

Source: open(2), rename(2), fsync(2). Not here: where files live (home.py), what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aileron.model.failure import AileronError, FailureClass

__all__ = [
    "OTHERS_MAY_USE",
    "OTHERS_MAY_WRITE",
    "Stamp",
    "create",
    "locked",
    "make_directory",
    "open_directory",
    "read",
    "remove_leftovers",
    "replace",
    "stamp",
    "translated",
]

OTHERS_MAY_USE: Final = 0o077
"""Permission bits that a file or directory with secrets must not have."""
OTHERS_MAY_WRITE: Final = 0o022
"""Permission bits that a trusted directory without secrets must not have."""
_POLL_S: Final = 0.01
"""Seconds between two attempts to take a lock, because flock(2) has no deadline."""


def make_directory(path: Path) -> None:
    """Create `path` and its missing parents, each with mode 0700. Leave existing directories as they are."""
    with translated(path, "cannot be created"):
        for directory in (*reversed(path.parents), path):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)


@contextlib.contextmanager
def open_directory(path: Path, forbidden: int) -> Iterator[int]:
    """Open a directory, check it, and yield its descriptor. The directory must belong to this user, must not be a link, and
    must have no permission bit of `forbidden`.
    """
    with translated(path, "cannot be opened"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_owned(os.fstat(descriptor), path, forbidden)
        yield descriptor
    finally:
        os.close(descriptor)


Stamp = tuple[int, int, int, int]
"""Stamp of a file: inode, size, and the times of the last changes to its content and to its inode, in nanoseconds."""


def stamp(path: Path | str, *, follow_symlinks: bool = False) -> Stamp | None:
    """Return a stamp that changes whenever the file `path` is written to or replaced; None if there is no file.

    Users cannot set the stamp's last part, the time at which the inode was changed.
    """
    try:
        found = os.stat(path, follow_symlinks=follow_symlinks)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read(directory: int, path: Path, limit_bytes: int, forbidden: int = 0) -> bytes:
    """Return all bytes of the regular file `path.name` in the open `directory`; only messages use the rest of `path`.

    The file is opened with O_NONBLOCK, so that a FIFO in its place cannot block this process; a FIFO is refused like every
    other special file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with translated(path, "cannot be read"):
        descriptor = os.open(path.name, flags, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _refused(path, "is not a regular file; remove it")
            if forbidden:
                _check_owned(status, path, forbidden)
            return _read_bounded(descriptor, path, status.st_size, limit_bytes)
        finally:
            os.close(descriptor)


def replace(directory: int, path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the content of the file `path.name` in the open `directory` with `data`, durably and atomically."""
    temporary = f"{path.name}.{os.urandom(8).hex()}.tmp"
    with translated(path, "cannot be written"):
        try:
            create(directory, temporary, data, mode)
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)  # persists the rename: otherwise a power cut could restore the old file


def create(directory: int, name: str, data: bytes, mode: int) -> None:
    """Create a file in the open `directory`, flush it to disk, and give it exactly `mode` whatever the umask is.

    Raises OSError if the file exists or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(directory: int, path: Path) -> None:
    """Remove temporary files that a crash left in the directory of `path`. Call this only while holding the lock of `path`."""
    with translated(path, "cannot be tidied"):
        for name in os.listdir(directory):
            if name.startswith(f"{path.name}.") and name.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def locked(directory: int, path: Path, deadline_s: float) -> Iterator[None]:
    """Hold the lock file `NAME.lock` next to `path`, which excludes every other process. Raises AileronError (busy) if the lock
    is not free within `deadline_s` seconds.

    The lock is a file of its own, because `replace` gives `path` a new inode and a lock belongs to the inode.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with translated(path, "cannot be locked"):
        descriptor = os.open(f"{path.name}.lock", flags, 0o600, dir_fd=directory)
    try:
        _wait_lock(descriptor, path, time.monotonic() + deadline_s)
        yield
    finally:
        os.close(descriptor)  # closing releases the lock


@contextlib.contextmanager
def translated(path: Path, problem: str) -> Iterator[None]:
    """Turn an OSError into an AileronError that names `path`. FileNotFoundError is raised unchanged."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explained(path, problem, error) from error


def _explained(path: Path, problem: str, error: OSError) -> AileronError:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return _refused(path, "is a symbolic link, or not what it should be; put the real thing in its place")
    fix = "; free some space and try again" if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
    message = f"{path} {problem}: {os.strerror(error.errno or 0)}{fix}"
    return AileronError(FailureClass.INTERNAL_ERROR, message, details={"file": str(path)})


def _check_owned(status: os.stat_result, path: Path, forbidden: int) -> None:
    if status.st_uid != os.geteuid():
        owner, own = status.st_uid, os.geteuid()
        raise _refused(path, f"belongs to user {owner}, not to {own}: chown {own} {_typed(path)}")
    if stat.S_IMODE(status.st_mode) & forbidden:
        kept = stat.S_IMODE(status.st_mode) & ~forbidden
        may = "use" if forbidden == OTHERS_MAY_USE else "write"
        raise _refused(path, f"is open for others to {may}: chmod {kept:o} {_typed(path)}")


def _typed(path: Path) -> str:
    import shlex  # only when something fails

    return shlex.quote(str(path))


def _read_bounded(descriptor: int, path: Path, size: int, limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    # One byte more than the limit, to detect a file that grew after fstat(2).
    while total <= limit_bytes and (piece := os.read(descriptor, min(limit_bytes - total, size) + 1)):
        pieces.append(piece)
        total += len(piece)
    if total > limit_bytes:
        raise _refused(path, f"is larger than {limit_bytes} bytes")
    return b"".join(pieces)


def _wait_lock(descriptor: int, path: Path, until: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                message = f"{path} is being changed by another process; try again"
                raise AileronError(FailureClass.BUSY, message, retriable=True) from None
        time.sleep(_POLL_S)


def _refused(path: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path} {why}", details={"file": str(path)})
