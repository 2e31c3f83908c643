"""The records of a cell, stored in the folder `cells/SESSION/` of Aileron's home.

    lock           held by the cell's command as long as the cell exists: flock(2), which the kernel releases with the process
    start.json     session, folder, time of the start, paths that the agent can write to
    names.json     the names that existed at the start (changes.py)
    changes.json   the list of changes, made at the cell's end
    decided.json   the changes that were applied or discarded (apply.py)
    upper/ work/   the changes that an overlay stores (overlay.py)
    over/          the renamed `upper/` while it is being removed

Runs in commands. Rules
- Each folder has mode 0700, and each file is replaced in one step (aileron/files.py). An agent in a cell sees none of these
  files.
- The latest `MAX_CELLS` folders are kept for `MAX_AGE_S`. A folder that is in use, or has undecided changes, stays.

Not here: the contents of the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.cell.tree import remove_tree
from aileron.files import OTHERS_MAY_USE, make_directory, open_directory, read, replace
from aileron.model.failure import AileronError, FailureClass

__all__ = ["MAX_AGE_S", "MAX_CELLS", "Kept", "kept_cells", "prune"]

MAX_CELLS: Final = 64
"""Maximum number of cells whose records are kept. A person takes some weeks to start that many."""
MAX_AGE_S: Final = 30 * 86400.0
"""Maximum age of records in seconds: 30 days since the session began."""
_MAX_FILE: Final = 256 << 20
"""Maximum size in bytes of a file such as names.json: 256 MiB. Half a million names of 255 bytes take half of that."""
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_UPPER: Final = "upper"


class Kept:
    """The folder with the records of one cell. `Kept(path)` touches no file. Raises ValueError if the path does not end in a
    session's name.
    """

    def __init__(self, path: Path) -> None:
        if _SESSION.fullmatch(path.name) is None:
            raise ValueError(f"{path.name!r} is not the name of a session")
        self.path = path
        self.session = path.name

    def make(self) -> None:
        """Make the cell's folder if it does not exist."""
        make_directory(self.path)

    @property
    def upper(self) -> Path:
        """Path of the folder in which the cell's overlay stores the agent's changes."""
        return self.path / _UPPER

    @property
    def work(self) -> Path:
        """Path of the work folder that the overlay needs in addition to `upper`."""
        return self.path / "work"

    def write(self, name: str, value: Any) -> None:
        """Write a value as JSON to the file `name`, and replace that file. File names in the value that are not UTF-8 are escaped
        as Python's surrogates.
        """
        with open_directory(self.path, OTHERS_MAY_USE) as directory:
            replace(directory, self.path / name, json.dumps(value, separators=(",", ":")).encode("ascii"))

    def read(self, name: str) -> Any:
        """Return the value in the JSON file `name`, or None if there is no such file. Raises AileronError if the file
        is damaged.
        """
        try:
            with open_directory(self.path, OTHERS_MAY_USE) as directory:
                return json.loads(read(directory, self.path / name, _MAX_FILE, OTHERS_MAY_USE))
        except FileNotFoundError:
            return None
        except ValueError as error:
            message = f"{self.path / name} is damaged ({error}): remove {self.path}"
            raise AileronError(FailureClass.INTERNAL_ERROR, message) from error

    def hold(self) -> int:
        """Lock the folder with the cell's records, and return the descriptor that holds the lock while it is open.
        Raises AileronError(busy) if the cell itself or a command holds the lock.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open_directory(self.path, OTHERS_MAY_USE) as directory:
            descriptor = os.open("lock", flags, 0o600, dir_fd=directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            message = f"session {self.session} is still in its cell, or another command uses what it left"
            raise AileronError(FailureClass.BUSY, message, retriable=True) from None
        return descriptor

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock on the folder with the cell's records until the block ends. Raises AileronError(busy), as
        `hold` does.
        """
        descriptor = self.hold()
        try:
            yield
        finally:
            os.close(descriptor)

    @property
    def is_held(self) -> bool:
        """True while the cell still exists, or another command holds the lock on its records."""
        try:
            with self.held():
                return False
        except AileronError as error:
            return error.failure.failure_class is FailureClass.BUSY


def kept_cells(cells: Path) -> list[Kept]:
    """Return the folders of all recorded cells, the newest first."""
    try:
        names = [name for name in os.listdir(cells) if _SESSION.fullmatch(name)]
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            found.append((os.lstat(cells / name / "start.json").st_mtime_ns, name))
    return [Kept(cells / name) for _, name in sorted(found, reverse=True)]


def prune(cells: Path, *, now: float | None = None) -> None:
    """Remove the folders with the records of cells that are older than MAX_AGE_S, or are not among the newest
    MAX_CELLS. A folder with an overlay's changes is kept. A folder that cannot be removed stays until the next call.
    """
    moment = time.time() if now is None else now
    for number, kept in enumerate(kept_cells(cells)):
        with contextlib.suppress(OSError, AileronError):
            is_old = os.lstat(kept.path / "start.json").st_mtime < moment - MAX_AGE_S
            if (number >= MAX_CELLS or is_old) and not os.path.lexists(kept.upper):
                with kept.held():
                    remove_tree(str(kept.path))
