"""The root of a jail: a tmpfs with only the files that the program needs, and the two small tmpfs of each child.

For Python the root has the standard library without site-packages, the shared libraries it loads, the time zones, and `/sdk`
with the packages that the host named. For compiled programs it has the loader and the libraries they name, and for a static one
no files. For both it has five device nodes, and mount points for `/w/tmp` (a child's scratch, also reached as /tmp) and `/app`
(its program, read-only, unless it is executed from its descriptor). There is no /proc, no /sys, no /etc, no home.

Every directory belongs to the tmpfs. A single file of the host is bound, and so shared with the host; a directory is
copied, once for each template. A file system of the host caches each missing name that was looked up in it. All later
programs can detect a cached name (400 bits from one run to the next, measured), and the memory of the cache counts for
no process (60 MiB in a second). tmpfs caches no missing names (`always_delete_dentry` of fs/libfs.c), and ends with its
jails.

Source: pivot_root(2) for the order; mount_setattr(2); bubblewrap and nsjail, which bind more, for comparison.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from aileron_sandbox import kernel
from aileron_sandbox.template.template_messages import Preparation

__all__ = [
    "APP",
    "EXECUTE_ONLY",
    "PROGRAM",
    "READ_ONLY",
    "REHEARSAL",
    "SCRATCH",
    "SDK",
    "build_root",
    "enter_root",
    "mount_program",
    "mount_program_at",
    "mount_scratch",
]

SDK: Final = "/sdk"
APP: Final = "/app"
PROGRAM: Final = "/app/connector"
REHEARSAL: Final = "/app/rehearsal"
"""Path of a program that does nothing (program.py); a child's own mount covers it."""
SCRATCH: Final = "/w/tmp"
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_TMP: Final = "/tmp"  # noqa: S108
_STAGE: Final = _TMP
"""Directory on which the root is built. It exists on every Linux, and other processes do not see the mount on it."""
_READ_ONLY: Final = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID
_ROOT_OPTIONS: Final = "size=256m,nr_inodes=32768,mode=0755"
"""Mount options that limit the size of the copied files: Debian's Python 3.11 has 27 MiB and 1,700 files, 40 MiB if
built with symbols.
"""
_LEFT_OUT: Final = frozenset(
    """
    site-packages dist-packages test tests idlelib turtledemo tkinter lib2to3 ensurepip pydoc_data posix right
    """.split()
)
"""Directories of Python and of the time zones that are not copied: third-party packages that some builds store next
to the standard library; modules that need a display, install things or test the rest, which are more than half of the
library; second copies of zones.
"""
_LEFT_OUT_BEGINS: Final = "config-"  # files for linking against Python
_OPTIMIZED: Final = ".opt-"  # bytecode for another interpreter's options
READ_ONLY: Final = 0o444
EXECUTE_ONLY: Final = 0o111
"""Mode of a compiled program's file. With it the kernel lets no other process dump the program, and the program
cannot read its own file.
"""
_NEW_FILE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK: Final = 1 << 20


def build_root(preparation: Preparation) -> None:
    """Build the jail's root on `_STAGE` in this mount namespace. Raises OSError with the mount that failed.

    The sources are opened first and bound through /proc/self/fd, because the stage may cover one of them.
    """
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    sources = [(os.open(host, os.O_PATH | os.O_CLOEXEC), inside) for host, inside in _binds(preparation)]
    kernel.mount("tmpfs", _STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, _ROOT_OPTIONS)
    for source, inside in sources:
        if stat.S_ISDIR(os.fstat(source).st_mode):
            os.makedirs(_STAGE + inside, exist_ok=True)
            left_out = frozenset() if inside.startswith(SDK) else _LEFT_OUT
            here, there = os.open(f"/proc/self/fd/{source}", _DIRECTORY), os.open(_STAGE + inside, _DIRECTORY)
            _copy_directory(here, there, left_out)
        else:
            _bind(source, _STAGE + inside)
        os.close(source)
    for directory in (SCRATCH, APP):
        os.makedirs(_STAGE + directory, exist_ok=True)
    os.symlink(SCRATCH.lstrip("/"), _STAGE + _TMP)
    if preparation.is_compiled:
        return
    with open(_STAGE + REHEARSAL, "wb") as file:
        file.write(bytes.fromhex(preparation.rehearsal_hex))


def _binds(preparation: Preparation) -> list[tuple[str, str]]:
    """Return the files and directories to bind in the jail's root as (path on the host, path in the jail), outer paths
    before the paths inside them.
    """
    files = [*preparation.libraries]
    if not preparation.is_compiled:
        files.append(preparation.stdlib)
    if preparation.zones is not None:
        files.append(preparation.zones)
    devices = [f"/dev/{name}" for name in _DEVICES]
    packages = [(source, f"{SDK}/{name}") for name, source in sorted(preparation.packages.items())]
    return [(path, path) for path in sorted(files) + devices] + packages


def _bind(source: int, target: str) -> None:
    """Bind a file or a device of the host, read-only, at `target`."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    kernel.mount(f"/proc/self/fd/{source}", target, None, kernel.MS_BIND)
    is_device = stat.S_ISCHR(os.fstat(source).st_mode)
    kernel.set_mount_attributes(target, _READ_ONLY if is_device else _READ_ONLY | kernel.MOUNT_ATTR_NODEV)


def _copy_directory(source: int, target: int, left_out: frozenset[str]) -> None:
    """Copy files, directories that are not in `left_out`, and links without following them. Takes 35 ms for Python's
    directory (measured). Both descriptors are closed.
    """
    try:
        within = []
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.name, dir_fd=source), entry.name, dir_fd=target)
                elif entry.is_dir():
                    within.append(entry.name)
                elif entry.is_file() and _OPTIMIZED not in entry.name:
                    _copy_file(entry.name, source, target)
        for name in within:
            if name in left_out or (left_out and name.startswith(_LEFT_OUT_BEGINS)):
                continue
            os.mkdir(name, 0o755, dir_fd=target)
            here, there = (os.open(name, _DIRECTORY, dir_fd=directory) for directory in (source, target))
            _copy_directory(here, there, left_out)
    finally:
        os.close(source)
        os.close(target)


def _copy_file(name: str, source: int, target: int) -> None:
    """Copy one file with its read permissions, but without its write permissions. Skip it if this user cannot read it."""
    try:
        read = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=source)
    except PermissionError:  # a jail could not read it either: it has no more rights than this user
        return
    status = os.fstat(read)
    written = os.open(name, _NEW_FILE, status.st_mode & 0o555, dir_fd=target)
    try:
        while piece := os.read(read, _CHUNK):
            os.write(written, piece)
        os.utime(written, ns=(status.st_mtime_ns, status.st_mtime_ns))  # by which Python recognizes its bytecode
    finally:
        os.close(read)
        os.close(written)


def enter_root() -> None:
    """Make the built root the root of this mount namespace, drop the old root, and make the new one read-only. Afterwards a
    file of the host has a path only if it is bound in the new root.
    """
    os.chdir(_STAGE)
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")
    kernel.set_mount_attributes("/", _READ_ONLY | kernel.MOUNT_ATTR_NODEV)


def mount_scratch(size_bytes: int, files: int) -> None:
    """Mount a child's private /tmp in the child's own mount namespace. The mount ends with that namespace."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, f"size={size_bytes},nr_inodes={files},mode=0700")


def mount_program(program: int, size_bytes: int, mode: int = READ_ONLY) -> None:
    """Copy the program's verified bytes to PROGRAM on a tmpfs of the child, and make the mount read-only. A memory file has
    no path without /proc.
    """
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", APP, "tmpfs", flags, f"size={size_bytes + 8192},nr_inodes=4,mode=0755")
    _copy(program, size_bytes, os.open(PROGRAM, _NEW_FILE, mode))
    kernel.set_mount_attributes(APP, _READ_ONLY | kernel.MOUNT_ATTR_NODEV)


def mount_program_at(to_write: int, to_mount: int, program: int, size_bytes: int) -> None:
    """Write a compiled program through one descriptor of its place, and mount the other descriptor on APP (program_places.py)."""
    _copy(program, size_bytes, os.open(os.path.basename(PROGRAM), _NEW_FILE, EXECUTE_ONLY, dir_fd=to_write))
    kernel.move_mount(to_mount, APP)


def _copy(program: int, size_bytes: int, to: int) -> None:
    """Copy the complete program, and close `to`. Raises OSError EIO if the program is shorter than announced."""
    try:
        offset = 0
        while offset < size_bytes:
            sent = os.sendfile(to, program, offset, min(_CHUNK, size_bytes - offset))
            if sent == 0:
                raise OSError(errno.EIO, "the program is shorter than announced")
            offset += sent
    finally:
        os.close(to)
