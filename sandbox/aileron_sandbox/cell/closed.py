"""The files that this process can read, but others cannot: a root's keys in /etc, files for its groups in /opt.

    closed, unseen = closed_below(("/etc", "/opt"))

Looks at modes, and changes nothing. Six thousand files take 25 ms, so a command that starts a cell lets the process that will be
the cell do this meanwhile (stub.py), where each import counts.

Source: inode(7), readdir(3). Not here: which directories (aileron/launch/system_sights.py), the masks (mounts.py).
"""

from __future__ import annotations

import marshal
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    Closed = tuple[tuple[str, ...], tuple[str, ...]]
    """The paths that are closed to others, and the directories that were not examined because there were too many entries."""

__all__ = ["closed_below", "decode_closed", "encode_closed"]

_MAX_ENTRIES: Final = 20_000
"""Most entries that are examined below each directory given: 80 ms. An /etc has 3,000."""
_MAX_OF_ONE: Final = 64
"""Most masks in one directory: above that, all of it is masked. Each mask is a mount of the cell."""


def closed_below(tops: Iterable[str], most: int = _MAX_ENTRIES) -> Closed:
    """Return the closed paths below these directories, examining `most` entries of each. A path that is a link or not a directory
    is skipped.
    """
    closed: list[str] = []
    unseen: list[str] = []
    for top in tops:
        if os.path.isdir(top) and not os.path.islink(top):
            found, left_out = _closed_of_one(top, most)
            closed += _gathered(found)
            unseen += left_out
    return tuple(closed), tuple(unseen)


def encode_closed(closed: Closed) -> bytes:
    """Encode for the same interpreter on the other end."""
    return marshal.dumps(closed)


def decode_closed(data: bytes) -> Closed:
    """Decode bytes of `encode_closed` that come from a process of ours that has nothing of the agent's yet."""
    closed, unseen = marshal.loads(data)  # noqa: S302 - by whom, the docstring says
    return closed, unseen


def _closed_of_one(top: str, left: int) -> tuple[list[str], list[str]]:
    """Return the closed paths below one directory, and the directories not examined. Links are skipped: a target is examined by
    itself, or not in the cell. A directory that we cannot read is skipped: no process in the cell can read it either.
    """
    found: list[str] = []
    directories = [top]
    for number, directory in enumerate(directories):  # grows meanwhile
        try:
            entries = os.scandir(directory)
        except OSError:
            continue  # gone meanwhile, or not ours to read
        with entries:
            for entry in entries:
                if entry.is_symlink():  # without a system call, readdir(3): a third of an /etc are links
                    continue
                left -= 1
                if left < 0:
                    return found, directories[number:] if directory != top else [top]
                try:
                    mode = entry.stat(follow_symlinks=False).st_mode
                except OSError:
                    continue  # gone meanwhile
                is_directory = stat.S_ISDIR(mode)
                if mode & (stat.S_IXOTH if is_directory else stat.S_IROTH):
                    if is_directory:
                        directories.append(entry.path)
                elif os.access(entry.path, os.R_OK):
                    found.append(entry.path)
    return found, []


def _gathered(paths: list[str]) -> list[str]:
    """Return the paths, with a directory in place of its closed entries if these are more than _MAX_OF_ONE."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    return [
        path
        for directory, of_one in by_directory.items()
        for path in ([directory] if len(of_one) > _MAX_OF_ONE else of_one)
    ]
