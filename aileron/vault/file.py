"""The vault's file. It is read completely, and replaced completely by one writer at a time.

Runs in the daemon. Does not trust the directory: at every access, directory and file are refused if they belong to another
user, are a symbolic link or have open permissions. The error has the command that fixes the problem. This module does not know
the contents.

Rules
- A crash at any step leaves the complete old file or the complete new file. A crash may also leave a temporary file in the
  same directory (`vault.json.….tmp`), which contains no more than a vault does, is never read, and is removed by the next
  writer.
- Reading takes no lock: because a file is replaced by a rename, a reader sees the complete old or the complete new file.

Source: files.py, rename(2), fsync(2), flock(2). Not here: its contents (contents.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aileron import files
from aileron.model.failure import AileronError, FailureClass
from aileron.vault.contents import MAX_FILE_BYTES

__all__ = ["LockedFile", "VaultFile"]

_LOCK_DEADLINE_S: Final = 5.0  # another writer needs milliseconds for two flushes; a stuck disk must not hang a request


_MOST_ASIDE: Final = 100  # copies kept aside in one second; a person makes one


class VaultFile:
    """The vault's file at `path`. The file need not exist."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def exists(self) -> bool:
        """True if anything exists at the path of the vault's file, even a dangling link."""
        return os.path.lexists(self.path)

    def maybe_read(self) -> bytes | None:
        """Return the bytes of the complete file, or None if it does not exist. Raises AileronError if the file or its
        directory is not acceptable, with the reason.
        """
        try:
            with files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory:
                return files.read(directory, self.path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def make_directory(self) -> None:
        """Create the missing directories above the vault's file, with mode 0700."""
        files.make_directory(self.path.parent)

    @contextlib.contextmanager
    def changing(self) -> Iterator[LockedFile]:
        """Return a context manager that holds the lock of the vault's file, and yields the file for reading and then
        replacing it. Raises FileNotFoundError if the directory does not exist.
        """
        with (
            files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory,
            files.locked(directory, self.path, _LOCK_DEADLINE_S),
        ):
            files.remove_leftovers(directory, self.path)
            yield LockedFile(directory, self.path)


class LockedFile:
    """The vault's file while this process holds its lock, so that no other process changes the file."""

    def __init__(self, directory: int, path: Path) -> None:
        self._directory: Final = directory
        self._path: Final = path

    def maybe_read(self) -> bytes | None:
        """Return the bytes of the vault's current file, or None if it does not exist."""
        try:
            return files.read(self._directory, self._path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def keep_aside(self, at: time.struct_time) -> Path | None:
        """Add another name (a hard link), which contains the time `at`, to the vault's file. The present file remains
        under that name when the vault's file is replaced. Return the path of the link, or None if there is no file.

        Raises AileronError if there is a directory in place of the file, if the file system has no hard links, or (busy)
        if all names for the second of `at` are taken.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", at)
        for number in range(_MOST_ASIDE):
            aside = self._path.with_name(f"{self._path.stem}.until-{stamp}{f'-{number}' if number else ''}.json")
            try:
                with files.translated(self._path, "cannot be kept aside"):
                    os.link(
                        self._path.name,
                        aside.name,
                        src_dir_fd=self._directory,
                        dst_dir_fd=self._directory,
                        follow_symlinks=False,
                    )
            except FileNotFoundError:
                return None
            except AileronError as error:
                if isinstance(error.__cause__, FileExistsError):
                    continue
                raise
            return aside
        raise AileronError(FailureClass.BUSY, f"{self._path} was put aside too often in one second", retriable=True)

    def replace(self, data: bytes) -> None:
        """Replace the vault's file with `data`, with mode 0600. The change is durable when this method returns. Raises
        AileronError if the disk fails.
        """
        files.replace(self._directory, self._path, data)
