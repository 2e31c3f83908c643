"""The vault's file: read whole, and replaced whole by one writer at a time.

Runs in the daemon. Does not trust the directory: another user, a symbolic link or open permissions are refused with the
command that fixes them, on the directory and on the file, at every access. Knows nothing of the contents.

Rules
- A crash at any step leaves the old file or the new one, complete. A file that it may leave beside them (`vault.json.….tmp`)
  holds no more than a vault does, is never read, and is removed by the next writer.
- Reading takes no lock: because of the rename, a reader sees either file.

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
    """The file at `path`, which need not exist."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def exists(self) -> bool:
        """True if anything has that name, even a dangling link."""
        return os.path.lexists(self.path)

    def maybe_read(self) -> bytes | None:
        """Read the whole file; None if it does not exist. AileronError says what is wrong with the file or its directory."""
        try:
            with files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory:
                return files.read(directory, self.path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def make_directory(self) -> None:
        """Create the missing directories above the file, with mode 0700."""
        files.make_directory(self.path.parent)

    @contextlib.contextmanager
    def changing(self) -> Iterator[LockedFile]:
        """Hold the lock, for reading and then replacing. FileNotFoundError if the directory does not exist."""
        with (
            files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory,
            files.locked(directory, self.path, _LOCK_DEADLINE_S),
        ):
            files.remove_leftovers(directory, self.path)
            yield LockedFile(directory, self.path)


class LockedFile:
    """The file while the lock keeps others from changing it."""

    def __init__(self, directory: int, path: Path) -> None:
        self._directory: Final = directory
        self._path: Final = path

    def maybe_read(self) -> bytes | None:
        """Read the current file; None if it does not exist."""
        try:
            return files.read(self._directory, self._path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def keep_aside(self, at: time.struct_time) -> Path | None:
        """Give the file a second name with the time, under which it stays when it is replaced. Return None if there is no
        file.

        AileronError if it is not a file, or if the file system has no hard links.
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
        """Replace the file with `data`, mode 0600, durable when this returns. AileronError if the disk fails."""
        files.replace(self._directory, self._path, data)
