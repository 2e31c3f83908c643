"""Writes and reads copies of the vault's file, at a place that a person chooses. A copy is written completely or not at all,
and read up to a maximum size.

Runs in the daemon. A copy is sealed like the vault, so its directory may belong to any user, such as that of a USB stick. The
mode of the copy is 0600 nevertheless. This module does not know the contents.

Rules
- Nothing is written through a symbolic link, nor over an existing file unless replacing is requested, nor over the vault
  itself.
- A crash leaves no copy or a complete copy, and in addition at most a file `NAME.….tmp`.

Source: rename(2), fsync(2). Not here: verifying a copy (vault.py), the vault's own file (file.py).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from aileron import files
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.vault.contents import MAX_FILE_BYTES

__all__ = ["read_copy", "write_copy"]

_MAX_PATH: Final = 4096  # PATH_MAX, limits.h


def write_copy(path: Path, data: bytes, *, replace: bool, vault: Path) -> None:
    """Write `data`, the bytes of the vault's file at `vault`, to `path`.

    Raises AileronError (invalid_request) if `path` is not absolute, is a symbolic link, is not a regular file or is the
    vault itself, or if a file exists there and `replace` is false; (not_found) if its directory is missing.
    """
    _check_path(path)
    try:
        with files.translated(path, "cannot be written"):
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _refused(FailureClass.NOT_FOUND, f"{path.parent} does not exist: create it first") from None
    try:
        _check_place(directory, path, replace=replace, vault=vault)
        files.replace(directory, path, data)
    except FileNotFoundError:  # removed since it was opened, or a kernel file system, which takes no new files
        raise _refused(
            FailureClass.NOT_FOUND, f"{path.parent} is gone, or does not accept files: choose another directory"
        ) from None
    finally:
        os.close(directory)


def read_copy(path: Path) -> bytes:
    """Return the bytes of the copy of a vault's file at `path`. Raises AileronError (not_found) if there is no file,
    (invalid_request) if it is not a regular file or is too large.
    """
    _check_path(path)
    try:
        with files.translated(path, "cannot be read"):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise _refused(FailureClass.INVALID_REQUEST, f"{path} is not a regular file")
                with open(descriptor, "rb", closefd=False) as opened:
                    data = opened.read(MAX_FILE_BYTES + 1) or b""  # None: a kernel file without data yet
            finally:
                os.close(descriptor)
    except FileNotFoundError:
        raise _refused(FailureClass.NOT_FOUND, f"{path} does not exist") from None
    if len(data) > MAX_FILE_BYTES:
        raise _refused(
            FailureClass.INVALID_REQUEST, f"{path} is larger than {MAX_FILE_BYTES} bytes, so it is not a vault"
        )
    return data


def _check_path(path: Path) -> None:
    if not path.is_absolute() or len(os.fsencode(path)) > _MAX_PATH or "\0" in str(path) or not path.name:
        raise _refused(FailureClass.INVALID_REQUEST, "file is not an absolute path on this machine")


def _check_place(directory: int, path: Path, *, replace: bool, vault: Path) -> None:
    try:
        with files.translated(path, "cannot be looked at"):
            there = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(there.st_mode):
        raise _refused(FailureClass.INVALID_REQUEST, f"{path} is a symbolic link, or not a file: name another")
    try:
        is_vault = os.path.samestat(there, vault.stat())
    except OSError:  # the file existed when it was opened, and was removed since
        is_vault = False
    if is_vault:
        raise _refused(FailureClass.INVALID_REQUEST, f"{path} is the vault itself: name another file")
    if not replace:
        raise _refused(FailureClass.INVALID_REQUEST, f"{path} already exists: name another file, or add --replace")


def _refused(failure_class: FailureClass, message: str) -> AileronError:
    return AileronError(failure_class, message, boundary=Boundary.USER)
