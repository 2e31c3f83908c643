"""Fetched archives that wait for a person's consent. They are stored by digest until they are installed or too old.

    ROOT/<hex>.tar.gz      <hex>: the pin of a connector, the digest of an action file
    ROOT/<hex>.md          an action file as it was published, to merge the next update with

Runs in the daemon. Trusts no file of its directory: the caller that takes an archive checks it again, with its signature. So a
question survives a restart of the daemon, and the archive that the person saw is the one that is installed.

Source: docs/reference/forges.md. Not here: the check of an archive (artifact.py), the store (content.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Final

from aileron import files
from aileron.model.canonical import sha256_digest
from aileron.model.document import MAX_DOCUMENT_BYTES
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import check_pin
from aileron.registry.tarball import MAX_ARCHIVE_BYTES

__all__ = ["KEPT_S", "PublishedTexts", "Staging"]

KEPT_S: Final = 25 * 3600.0
"""Seconds for which an archive is stored: a question waits for minutes, and a signed decision can be used for a day."""
MAX_STAGED_BYTES: Final = 1 << 30
"""1 GiB: fifteen of the largest possible archives, or some hundred usual ones."""
MAX_TEXTS: Final = 2000
"""Maximum number of published texts: twice as many as there can be actions."""


_log = logging.getLogger(__name__)


class Staging:
    """The archives under `root`, a directory that is created when the first archive is stored."""

    def __init__(self, root: Path) -> None:
        self._root: Final = root

    def put(self, digest: str, archive: bytes) -> None:
        """Store an archive, durably. Raises AileronError(busy) if there is no room."""
        path = self._path(digest)
        files.make_directory(self._root)
        self.sweep()
        with files.open_directory(self._root, files.OTHERS_MAY_WRITE) as directory:
            with files.translated(self._root, "cannot be listed"):
                there = _size_of(directory)
            if there + len(archive) > MAX_STAGED_BYTES:
                raise AileronError(
                    FailureClass.BUSY,
                    f"more than {MAX_STAGED_BYTES >> 20} MiB are fetched and not installed: decide what waits "
                    "(`aileron approval list`), or try again tomorrow",
                )
            files.replace(directory, path, archive)

    def take(self, digest: str, name: str) -> bytes:
        """Return the stored archive with this digest; `name` is the artifact's name in messages.

        Raises AileronError(not_found) if it is no longer stored.
        """
        path = self._path(digest)
        try:
            with files.open_directory(self._root, files.OTHERS_MAY_WRITE) as directory:
                return files.read(directory, path, MAX_ARCHIVE_BYTES)
        except FileNotFoundError:
            problem = f"{name} was fetched but is no longer kept: fetch it again"
            raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.USER) from None

    def drop(self, digest: str) -> None:
        """Remove an archive. An archive that cannot be removed is swept later, so the caller gets no error."""
        try:
            self._path(digest).unlink(missing_ok=True)
        except OSError as error:
            _log.error("could not remove fetched files: %s", error)

    def sweep(self) -> None:
        """Remove files that are older than KEPT_S."""
        now = time.time()
        with (
            contextlib.suppress(FileNotFoundError),
            files.open_directory(self._root, files.OTHERS_MAY_WRITE) as directory,
        ):
            for name in os.listdir(directory):
                with contextlib.suppress(OSError):  # a directory that is not ours does not count
                    written = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
                    if not now - KEPT_S <= written <= now + KEPT_S:
                        os.unlink(name, dir_fd=directory)

    def _path(self, digest: str) -> Path:
        return self._root / f"{_hex(digest)}.tar.gz"


class PublishedTexts:
    """Cache of action files as they were published, by source. A missing file can be fetched again."""

    def __init__(self, root: Path) -> None:
        self._root: Final = root

    def put(self, source: str, text: str) -> None:
        """Store the text that was published as `source` (NAME@VERSION)."""
        files.make_directory(self._root)
        with files.open_directory(self._root, files.OTHERS_MAY_WRITE) as directory:
            if len(os.listdir(directory)) < MAX_TEXTS:
                files.replace(directory, self._path(source), text.encode())

    def maybe_get(self, source: str) -> str | None:
        """Return the text that was published as `source`; None if it is not stored."""
        try:
            with files.open_directory(self._root, files.OTHERS_MAY_WRITE) as directory:
                return files.read(directory, self._path(source), MAX_DOCUMENT_BYTES).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def _path(self, source: str) -> Path:
        return self._root / f"{_hex(sha256_digest(source.encode()))}.md"


def _hex(digest: str) -> str:
    return check_pin(digest).removeprefix("sha256:")


def _size_of(directory: int) -> int:
    size = 0
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):  # removed since the listing
            size += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    return size
