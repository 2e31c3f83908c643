"""The policy of a cell, which says what the cell sees, may write and may use. It is an immutable value, checked when built.

Paths are absolute and without links, dots or doubled slashes: the maker of the policy has resolved them. A path that
no `Bind` names does not exist in the cell. If two binds overlap, the later one counts, so a bind of a directory
precedes binds inside it.

>>> Bind("/usr", "/usr").writable
False

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what an agent needs (aileron/launch), how a cell is made
(prepare.py).
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

__all__ = [
    "FILE_BYTES",
    "MAX_MASKED",
    "MEMORY_BYTES",
    "OPEN_FILES",
    "PROCESSES",
    "SCRATCH_BYTES",
    "Bind",
    "CellPolicy",
    "Overlay",
]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_MAX_BINDS: Final = 256
"""Maximum number of binds of a cell. Each is a mount; a session with many toolchains has thirty."""
MAX_MASKED: Final = 4096
"""Maximum number of masked paths of a cell. Each is a mount, too. If root starts the cell, /etc has twenty paths to
mask, because other users cannot read them.
"""
_MAX_FILE: Final = 1 << 16
"""Maximum size in bytes of one file that is created, such as a list of hosts or users."""
MEMORY_BYTES: Final = 8 * _GIB
PROCESSES: Final = 4096
OPEN_FILES: Final = 65536
FILE_BYTES: Final = 64 * _GIB
SCRATCH_BYTES: Final = 4 * _GIB
"""Size of each scratch directory in bytes. This and the next four constants are defaults of `CellPolicy`, whose fields
explain the limits.
"""
_MAX_LISTENERS: Final = 16


class Bind(msgspec.Struct, frozen=True):
    """A file or directory of the host, shown at `target` in the cell.

    Mounts below the source on the host are empty in the cell, whether the bind is writable or not: a project may have
    another directory of the person mounted in it, which was not meant to be visible. `mounts` shows these mounts, and is
    for system directories, where mounts are the machine's own layout. To show a single mount, give it a bind of its own.
    """

    source: str
    target: str
    writable: bool = False
    mounts: bool = False

    def __post_init__(self) -> None:
        _check_path(self.source)
        _check_path(self.target)


class Overlay(msgspec.Struct, frozen=True):
    """An overlay (overlayfs): `lower` is shown at `target`, and changes made there are stored in `upper`. `work` is
    an empty directory on the file system of `upper`.
    """

    lower: str
    upper: str
    work: str
    target: str

    def __post_init__(self) -> None:
        for path in (self.lower, self.upper, self.work, self.target):
            _check_path(path)


class CellPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of one cell. A value outside its range raises ValueError and is never clamped."""

    folder: str
    """The directory in which the program starts. It is inside a bind or the overlay."""
    home: str
    """Path of the private, writable home directory. It is empty except for binds, and is removed at the end."""
    binds: tuple[Bind, ...]
    overlay: Overlay | None = None
    masked: tuple[str, ...] = ()
    """Paths inside binds, as seen in the cell, that are shown as an empty directory or as an unreadable file."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links to create in the root, as (path, target), such as ("/bin", "usr/bin")."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Read-only files to create, as (path, contents). They cover any file that a bind shows at the same path."""
    tcp_listeners: tuple[tuple[str, int], ...] = ()
    """Listeners on both loopback addresses of the cell, as (name, port). The program that starts the cell accepts
    their connections.
    """
    unix_listeners: tuple[tuple[str, str], ...] = ()
    """Listeners at paths in the cell, as (name, path). The path's directory is created."""
    memory_bytes: int = MEMORY_BYTES
    """Maximum memory of all processes of the cell together, in bytes. Without control groups (cgroups.py), the host
    measures the memory, and ends a cell that exceeds the limit.
    """
    processes: int = PROCESSES
    """Maximum number of processes and threads (RLIMIT_NPROC, counted in the cell's own user namespace). A parallel
    build with tests has hundreds.
    """
    open_files: int = OPEN_FILES
    """Maximum number of descriptors of one process. A program that watches a large project for changes needs thousands."""
    file_bytes: int = FILE_BYTES
    """Maximum size of any one file in bytes (RLIMIT_FSIZE)."""
    scratch_bytes: int = SCRATCH_BYTES
    """Maximum size in bytes of /tmp, and separately of the home. Both are in memory."""

    def __post_init__(self) -> None:
        _check_path(self.folder)
        _check_path(self.home)
        for path in (*self.masked, *(path for path, _ in (*self.links, *self.files, *_paths(self.unix_listeners)))):
            _check_path(path)
        _check_range("binds", len(self.binds), 1, _MAX_BINDS)
        _check_range("masked", len(self.masked), 0, MAX_MASKED)
        _check_range("listeners", len(self.tcp_listeners) + len(self.unix_listeners), 0, _MAX_LISTENERS)
        for _, content in self.files:
            _check_range("bytes of a file", len(content), 0, _MAX_FILE)
        for _, port in self.tcp_listeners:
            _check_range("port", port, 1, 65535)
        _check_range("memory_bytes", self.memory_bytes, 64 * _MIB, 1 << 45)
        _check_range("processes", self.processes, 16, 1 << 20)
        _check_range("open_files", self.open_files, 64, 1 << 20)
        _check_range("file_bytes", self.file_bytes, _MIB, 1 << 45)
        _check_range("scratch_bytes", self.scratch_bytes, _MIB, 1 << 45)


def _paths(listeners: tuple[tuple[str, str], ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple((path, b"") for _, path in listeners)


def _check_path(path: str) -> None:
    if not path.startswith("/") or os.path.normpath(path) != path or path.startswith("//") or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path without dots and doubled slashes")


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}, expected {least} to {most}")
