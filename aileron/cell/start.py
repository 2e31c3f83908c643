"""The state of a folder before an agent starts: the names in it, and the time by the file system's own clock.

Runs in the command, before the agent starts. It reads only names and their kinds, and from an agent's own state files
the part that the agent obeys (state_files.py).

Rules
- No program can set a ctime (utimensat(2) sets the two other times), so a ctime at or after the start means a change.
  Reporting an unchanged file is better than missing a change: if the clock was set back, or the file system counts in seconds,
  an earlier start is assumed.

Source: inode(7), clock_gettime(2). Not here: finding what changed (compare.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aileron.cell.state_files import STATE_FILES, obeyed_at
from aileron.cell.tree import Bytes, Names, kind_of, names_from, names_to, opened_root, read_names
from aileron.model.failure import AileronError, FailureClass

if TYPE_CHECKING:
    from aileron.cell.executes import EntryKind

__all__ = ["GIT_OBJECTS", "MAX_ENTRIES", "Moment", "Root", "Start", "is_since"]

MAX_ENTRIES: Final = 500_000
"""Maximum number of names read from one root before the agent starts: they take about a second, and 50 MiB."""
GIT_OBJECTS: Final = frozenset({".git/objects", ".git/lfs"})
"""Ends of the paths of folders whose names are not read: new entries in them are only counted."""
_SECOND: Final = 1_000_000_000
_GRAINS: Final = (2_000_000_000, 1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100)
"""Resolutions in ns of file systems' timestamps: FAT has 2 s, HFS+ and ext3 a second, NTFS 100 ns."""


class Root(msgspec.Struct, frozen=True):
    """A folder or file to which the agent can write, given by a path without links. The first root is the project.

    `only` has globs, as in `executes.KINDS`, for the paths whose changes are listed; empty for all. It is for an
    agent's own state folder, in which only files that are executed or obeyed later matter.
    """

    path: str
    only: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    """Paths in the root that are not visible in the cell, and are not read."""

    def apart_below(self) -> frozenset[str]:
        """Return the paths in `apart` that lie inside the root, relative to the root. The cell does not show these
        paths.
        """
        above = self.path.rstrip("/") + "/"
        return frozenset(path.removeprefix(above) for path in self.apart if path.startswith(above))


# Time of the start


class Moment(msgspec.Struct, frozen=True):
    """A point in time by the clock of a file system (`stamp_ns`), by the machine's wall clock and by its clock since boot."""

    stamp_ns: int
    realtime_ns: int
    boottime_ns: int

    @classmethod
    def of(cls, path: str) -> Moment:
        """Return the current moment by the clock of the file system of `path`.

        The kernel stamps inodes with its coarse clock, which can be 10 ms behind, and a network file system with its
        server's clock. So the stamp is the earlier of two: that of a new file without a name, and the coarse clock.
        """
        coarse = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        realtime, boottime = time.clock_gettime_ns(time.CLOCK_REALTIME), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        probed = _probed_stamp(path)
        return cls(coarse if probed is None else min(coarse, probed), realtime, boottime)

    def earliest(self) -> int:
        """Return this moment by the file system's clock in ns, minus the time by which the machine's wall clock was set
        back since then.
        """
        passed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self.boottime_ns
        shown = time.clock_gettime_ns(time.CLOCK_REALTIME) - self.realtime_ns
        return self.stamp_ns - max(0, passed - shown)


_CLOCK_REALTIME_COARSE: Final = 5  # linux/time.h


def _probed_stamp(folder: str) -> int | None:
    """Return the ctime in ns of a new file that is made in the folder only to read the file system's clock, without a
    name if possible. None if no file can be made.
    """
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None  # nothing can be written here
        return _named_stamp(os.path.join(folder, f".aileron-{os.urandom(8).hex()}"))
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)


def _named_stamp(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)


def is_since(ctime_ns: int, start_ns: int) -> bool:
    """Return whether a file with this ctime may have changed at or after `start_ns`. Its file system may have
    truncated the ctime, so that it ends in zeros.
    """
    if ctime_ns >= start_ns:
        return True
    if ctime_ns < start_ns - _GRAINS[0]:
        return False
    return any(ctime_ns % min(grain, _SECOND) == 0 and ctime_ns + grain > start_ns for grain in _GRAINS)


class Start(msgspec.Struct, frozen=True):
    """The state of one root before the agent started."""

    root: Root
    moment: Moment
    kind: EntryKind | None
    """Kind of the root; None if it did not exist."""
    names: Names
    obeyed: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Digest from `obeyed_at` of each state file in the root, by path ("" for the root itself)."""

    @classmethod
    def of(cls, root: Root, most: int = MAX_ENTRIES) -> Start:
        """Read the present state of a root. Raises AileronError if it cannot be read."""
        moment = Moment.of(root.path)
        try:
            kind = kind_of(os.lstat(root.path).st_mode)
            names = read_names(root.path, most, GIT_OBJECTS, root.apart_below()) if kind == "directory" else {}
        except FileNotFoundError:
            return cls(root, moment, None, {})
        except OSError as error:
            why = f"{root.path} cannot be read: {error.strerror}"
            raise AileronError(FailureClass.INVALID_REQUEST, why) from error
        return cls(root, moment, kind, names, _obeyed_at(root, kind) if root.only else {})

    def sockets(self) -> Iterator[str]:
        """Yield the paths of the sockets in the root, among the names that were read."""
        if self.kind == "socket":
            yield self.root.path
        for folder, known in self.names.items():
            above = f"{self.root.path}/{folder}" if folder else self.root.path
            yield from (f"{above.rstrip('/')}/{name}" for name, kind in known.names.items() if kind == "socket")

    def to_json(self) -> dict[str, object]:
        """Return the state as a JSON value, which is stored in names.json."""
        return {
            "path": self.root.path,
            "only": list(self.root.only),
            "apart": list(self.root.apart),
            "moment": msgspec.structs.astuple(self.moment),
            "kind": self.kind,
            "names": names_to(self.names),
            "obeyed": dict(self.obeyed),
        }

    @classmethod
    def from_json(cls, value: Any) -> Start:
        """Read a value that `to_json` returned. Raises ValueError, TypeError or KeyError for any other value."""
        root = Root(value["path"], tuple(value["only"]), tuple(value["apart"]))
        return cls(root, Moment(*value["moment"]), value["kind"], names_from(value["names"]), value["obeyed"])


def _obeyed_at(root: Root, kind: EntryKind | None) -> dict[str, str]:
    """Return the digest from `obeyed_at` of each state file of an agent in a root, by path. If the root is itself a
    state file, its path is "".
    """
    folder, own = (root.path, None) if kind == "directory" else os.path.split(root.path)
    contents = Bytes()
    found = {}
    with contextlib.suppress(OSError), opened_root(folder) as parent:
        for name in STATE_FILES if own is None else STATE_FILES & {own}:
            if (digest := obeyed_at(name, parent, contents)) is not None:
                found[name if own is None else ""] = digest
    return found
