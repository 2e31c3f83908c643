"""The files that this process can read, but other users cannot, such as root's keys in /etc, or a group's files in /opt.

    closed, unseen = closed_below(("/etc", "/opt"))

Reads modes, and changes nothing. Six thousand files take 25 ms, so the process that will become the cell does this
while the command that starts the cell does other work (stub.py). Imports are few, because that process must start fast.

Source: inode(7), readdir(3). Not here: which directories (aileron/launch/system_mounts.py), the masks (mounts.py).
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
    """The paths that are closed to other users, and the directories that were not fully examined because the maximum was
    reached.
    """

__all__ = ["closed_below", "decode_closed", "encode_closed"]

_MAX_ENTRIES: Final = 20_000
"""Maximum number of entries that are examined below each directory given; 20,000 take 80 ms. A usual /etc has 3,000."""
_MAX_OF_ONE: Final = 64
"""Maximum number of masks in one directory. With more, the whole directory is masked, because each mask is a mount of
the cell.
"""


def closed_below(tops: Iterable[str], most: int = _MAX_ENTRIES) -> Closed:
    """Return the paths below these directories that this process can read and other users cannot. At most `most` entries of
    each directory are examined. A given path that is a link or not a directory is skipped.
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
    """Encode the paths that are closed to other users as bytes, for a process of the same Python version."""
    return marshal.dumps(closed)


def decode_closed(data: bytes) -> Closed:
    """Decode the paths that are closed to other users from bytes of `encode_closed`. They must come from our own
    process, before it has run any code of the agent.
    """
    closed, unseen = marshal.loads(data)  # noqa: S302 - by whom, the docstring says
    return closed, unseen


def _closed_of_one(top: str, left: int) -> tuple[list[str], list[str]]:
    """Return the paths below the directory `top` that this process can read and other users cannot, and the directories
    that were not examined, because at most `left` entries are examined. Links are skipped: a link's target is examined
    under its own path, or is not in the cell. A directory that this process cannot read is skipped, because no process
    in the cell can read it either.
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
    """Return these closed paths, but replace the paths in a directory by the directory itself if there are more than
    _MAX_OF_ONE of them.
    """
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    return [
        path
        for directory, of_one in by_directory.items()
        for path in ([directory] if len(of_one) > _MAX_OF_ONE else of_one)
    ]
