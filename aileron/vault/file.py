"""Where the vault lies: one file, read whole, replaced whole, by one writer at a time.

Runs in the daemon. Does not trust the directory: another user, a symbolic link or open permissions are refused with the
command that mends them, on the directory and on the file, at every access. Knows nothing of what the bytes say.

Rules
- A crash at any step leaves the old file or the new one, whole. What it may leave beside them (`vault.json.….tmp`) holds
  no more than a vault does, is never read, and is removed by the next writer.
- Reading takes no lock: a rename shows either file.

Source: files.py, rename(2), fsync(2), flock(2). Not here: what is in it (contents.py).
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

_LOCK_DEADLINE_S: Final = (
    5.0  # another writer needs the milliseconds of two flushes; a stuck disk must not hang a request
)


_MOST_ASIDE: Final = 100  # in one second; a person restores one


class VaultFile:
    """The file at `path`, which need not be there."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def exists(self) -> bool:
        """Whether anything is there under that name, be it a dangling link."""
        return os.path.lexists(self.path)

    def maybe_read(self) -> bytes | None:
        """All of it; None if it is not there. AileronError says what is wrong with the file or its directory."""
        try:
            with files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory:
                return files.read(directory, self.path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def make_directory(self) -> None:
        """Create what is missing above the file, 0700."""
        files.make_directory(self.path.parent)

    @contextlib.contextmanager
    def changing(self) -> Iterator[LockedFile]:
        """Hold the lock, for reading and then replacing. FileNotFoundError if the directory is not there."""
        with (
            files.open_directory(self.path.parent, files.OTHERS_MAY_USE) as directory,
            files.locked(directory, self.path, _LOCK_DEADLINE_S),
        ):
            files.remove_leftovers(directory, self.path)
            yield LockedFile(directory, self.path)


class LockedFile:
    """The file while nobody else may change it."""

    def __init__(self, directory: int, path: Path) -> None:
        self._directory: Final = directory
        self._path: Final = path

    def maybe_read(self) -> bytes | None:
        """As it is now; None if it is not there."""
        try:
            return files.read(self._directory, self._path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
        except FileNotFoundError:
            return None

    def keep_aside(self, at: time.struct_time) -> Path | None:
        """Give what is there a second name, by the time, under which it stays when it is replaced; None if nothing is there.

        AileronError for what is no file, and where there is no such thing as a second name.
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
        """Make `data` the file, 0600 and durable when this returns. AileronError if the disk will not."""
        files.replace(self._directory, self._path, data)
