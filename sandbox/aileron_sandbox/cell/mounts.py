"""The root of a cell: a small private tmpfs with the policy's binds, a private /proc, and a /dev with seven nodes.

    /            tmpfs, read-only          /tmp /var /run /dev/shm   one tmpfs, private        $HOME   another
    /proc        new, of this pid namespace; entries that act on the machine are read-only, those that describe it are empty
    /sys         /sys/devices/system/cpu and node, read-only: tools count processors by them
    /dev         null zero full random urandom tty, ptmx and pts of its own, shm, fd, stdin, stdout, stderr

Runs in the first process of the cell before the root is changed. That process has every capability in its own user
namespace and none outside. Trusts the policy, but not the files at its paths: an agent in an earlier cell may have
put a symbolic link anywhere in the project.

Rules
- A source is opened before anything is mounted, without following a link, and copied with all mounts below it: in a
  user namespace the kernel refuses a copy without them (mount_namespaces(7), locked mounts).
- A copy is made read-only, nosuid and nodev, recursively, before it is mounted where any process could see it.
- A mount below a source is covered by an empty file or directory, unless the bind has `mounts`. A later bind can cover
  that file or directory again.
- A socket of a program outside the cell is covered, too, if it is below a source. A socket made there after the start is not.
- The path of a target is followed component by component, and a symbolic link on the way is an error. Missing components are
  made, but only in a file system of the cell's own: never in a bind, whose file system is the host's.
- Each mount is attached to an open descriptor, not to a path.

Source: mount_namespaces(7), open_tree(2), move_mount(2), openat2(2), proc(5). Not here: the order of the steps (init.py).
"""

from __future__ import annotations

import errno
import os
import resource
import stat

from aileron_sandbox import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from aileron_sandbox.cell.cell_messages import Preparation

__all__ = ["DEVICES", "PROC_EMPTY", "PROC_READ_ONLY", "WRITABLE", "Root"]

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
PROC_READ_ONLY: Final = ("1", "bus", "driver", "fs", "irq", "mtrr", "sys", "sysrq-trigger", "tty")
"""Entries of /proc that control the machine or the first process. If the cell's user is root on the host, they have
the same user id here, and /proc/sys requires no capability.
"""
PROC_EMPTY: Final = (
    "acpi", "asound", "kallsyms", "kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats",
    "pressure", "sched_debug", "scsi", "slabinfo", "timer_list", "timer_stats", "vmallocinfo", "vmcore",
)  # fmt: skip
"""Entries of /proc that describe the machine and its other users."""
WRITABLE: Final = ("/dev", "/run", "/tmp", "/var")  # noqa: S108
"""Directories on the cell's own file systems, in addition to the home."""
_SYS: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_DEV_LINKS: Final = (
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
_OWN_PID_MAX: Final = (6, 14)
_PID_MAX_OF_NEW: Final = 4 << 20  # PID_MAX_LIMIT, include/linux/threads.h
_RESERVED_PIDS: Final = 300  # kernel/pid.c
_STAGE: Final = "/tmp"  # noqa: S108
"""Directory on which the root is built. It exists on every Linux, and other processes do not see the mount on it."""
_MADE: Final = ".made"
_ROOT_OPTIONS: Final = "size=16m,nr_inodes=65536,mode=0755"
"""Mount options of the root that limit the number of mount points, links and files in it."""
_BYTES_PER_FILE: Final = 4096
"""Bytes of a scratch directory's size for which one inode is allowed. A file takes at least as many bytes in the kernel."""
_QUIET: Final = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_READ_ONLY: Final = _QUIET | kernel.MOUNT_ATTR_RDONLY
_OWN: Final = kernel.MS_NOSUID | kernel.MS_NODEV
_KEPT_FLAGS: Final = ((os.ST_NOEXEC, kernel.MS_NOEXEC), (0x2000, kernel.MS_NOSYMFOLLOW))
"""Flags that an overlay takes from its project's mount, in addition to `_OWN`: pairs of a statvfs(3) flag (ST_…) and
its mount(2) flag (MS_…). 0x2000 is ST_NOSYMFOLLOW of statfs(2), Linux 5.10.
"""
_LOOK: Final = os.O_PATH | os.O_CLOEXEC
_LOOK_AT_LINK: Final = _LOOK | os.O_NOFOLLOW
_NO_LINKS: Final = kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
_NEW_FILE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR)


_WATCHES: Final = (
    ("fs/inotify/max_user_instances", "max_inotify_instances"),
    ("fs/inotify/max_user_watches", "max_inotify_watches"),
)


class Root:
    """The root of a cell while it is built. `step` is the current step, for the report of an error."""

    def __init__(self, preparation: Preparation, sockets: list[str]) -> None:
        self._preparation = preparation
        self._sockets = sockets
        self.bounds_processes = False
        """True if this pid namespace has its own bound on the number of processes, Linux 6.14."""
        self._own: set[int] = set()
        """Device numbers of the cell's own file systems, in which missing files and directories may be made."""
        self.step = "mounts"

    def build(self) -> None:
        """Build the cell's complete root on the directory _STAGE. Raises OSError with the path that failed."""
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        preparation = self._preparation
        self.step = "sources"
        mounted = _mount_points()
        copies = [_copy_of(source) for source, *_ in preparation.binds]
        layers = [_open_source(path) for path in preparation.overlay[:3]] if preparation.overlay is not None else []
        system = [(path, _copy_of(path)) for path in _SYS if os.path.isdir(path)]
        devices = [(name, _copy_of(f"/dev/{name}")) for name in DEVICES]
        self.step = "root"
        kernel.mount("tmpfs", _STAGE, "tmpfs", _OWN, _ROOT_OPTIONS)
        self._stage = os.open(_STAGE, _LOOK)
        self._own.add(os.fstat(self._stage).st_dev)
        self._make_blanks()
        self._make_scratch()
        self._make_proc()
        self._make_dev(devices)
        for path, copy in system:
            self._put(copy, path, is_directory=True, attributes=_READ_ONLY)
        self.step = "links"
        for path, target in preparation.links:
            self._make_link(path, target)
        self.step = "binds"
        overlay_after = self._place_of_overlay()
        if overlay_after == 0:
            self._make_overlay(layers)
        for index, (copy, bind) in enumerate(zip(copies, preparation.binds, strict=True), 1):
            self._bind(copy, *bind, mounted)
            if index == overlay_after:
                self._make_overlay(layers)
        self.step = "masked"
        for path in preparation.masked:
            self._mask(path)
        self.step = "files"
        for number, (path, _) in enumerate(preparation.files):
            self._cover_with_file(path, number)
        self.step = "listeners"
        for _, path in preparation.unix_listeners:
            os.close(self._walk(os.path.dirname(path), is_directory=True))

    def enter(self) -> None:
        """Make the built root the root of this mount namespace, and unmount the old root. Afterwards a file of the host has
        a path only if it is mounted in the new root.
        """
        self.step = "root"
        kernel.detach(f"{_STAGE}/{_MADE}")
        os.rmdir(f"{_STAGE}/{_MADE}")
        os.fchdir(self._stage)
        os.close(self._stage)
        kernel.pivot_root(".", ".")
        kernel.detach(".")
        os.chdir("/")
        kernel.set_mount_attributes("/", _READ_ONLY)

    # Its own file systems

    def _make_blanks(self) -> None:
        """Make the files and directories that are mounted over others: an empty directory, a file that nobody can read,
        and the policy's files.
        """
        made = f"{_STAGE}/{_MADE}"
        os.mkdir(made)
        kernel.mount("tmpfs", made, "tmpfs", _OWN | kernel.MS_NOEXEC, _ROOT_OPTIONS)
        os.mkdir(f"{made}/directory", 0o555)
        os.close(os.open(f"{made}/file", _NEW_FILE, 0o000))
        for number, (_, content) in enumerate(self._preparation.files):
            fd = os.open(f"{made}/{number}", _NEW_FILE, 0o444)
            with open(fd, "wb") as file:
                file.write(content)
        kernel.set_mount_attributes(made, _READ_ONLY)

    def _blank(self, name: str) -> int:
        return _copy_of_opened(os.open(f"{_STAGE}/{_MADE}/{name}", _LOOK))

    def _make_scratch(self) -> None:
        size = self._preparation.scratch_bytes
        options = f"size={size},nr_inodes={max(1024, size // _BYTES_PER_FILE)},mode="
        made = f"{_STAGE}/var"
        os.mkdir(made)
        kernel.mount("tmpfs", made, "tmpfs", _OWN, options + "0755")
        for name, mode in (("tmp", 0o1777), ("run", 0o755), ("shm", 0o1777), ("var", 0o755), ("var/tmp", 0o1777)):
            os.mkdir(f"{made}/{name}")
            os.chmod(f"{made}/{name}", mode)
        copies = [(f"/{name}", _copy_of_opened(os.open(f"{made}/{name}", _LOOK))) for name in ("tmp", "run", "var")]
        self._shm = _copy_of_opened(os.open(f"{made}/shm", _LOOK))
        self._own.add(os.stat(made).st_dev)
        kernel.detach(made)
        for path, copy in copies:
            self._put(copy, path, is_directory=True, attributes=_QUIET)
        home = kernel.new_tmpfs(
            {"size": str(size), "nr_inodes": str(max(1024, size // _BYTES_PER_FILE)), "mode": "0700"}
        )
        self._own.add(os.fstat(home).st_dev)
        self._put(home, self._preparation.home, is_directory=True, attributes=_QUIET)

    def _make_proc(self) -> None:
        self.step = "proc"
        proc = f"{_STAGE}/proc"
        os.mkdir(proc)
        kernel.mount("proc", proc, "proc", _OWN | kernel.MS_NOEXEC)
        self.step = "root"
        self._bound_processes(f"{proc}/sys/kernel/pid_max")
        self._bound_watches(f"{proc}/sys")
        for name in PROC_READ_ONLY:
            if os.path.lexists(f"{proc}/{name}"):
                place = os.open(f"{proc}/{name}", _LOOK)
                copy = _copy_of_opened(place, keep=True)
                kernel.set_tree_attributes(copy, _READ_ONLY | kernel.MOUNT_ATTR_NOEXEC)
                _mount_and_close(copy, place)
        for name in PROC_EMPTY:
            if os.path.lexists(f"{proc}/{name}"):
                self._cover(os.open(f"{proc}/{name}", _LOOK))

    def _bound_processes(self, path: str) -> None:
        """Limit the cell's processes through the highest process id, if root starts the cell, because RLIMIT_NPROC does
        not apply to the host's root. `path` is the sysctl file pid_max. The kernel assigns the first 300 ids only once,
        so they are added to the limit.

        Before Linux 6.14 the highest id applies to the whole machine. A cell that root started could change it for the
        machine, so no limit is set on these kernels.
        """
        release = os.uname().release.split(".")
        if os.getuid() != 0 or (int(release[0]), int(release[1].split("-")[0])) < _OWN_PID_MAX:
            return
        try:
            with open(path, "r+b", buffering=0) as file:
                if int(file.read(16)) != _PID_MAX_OF_NEW:  # not the value of a new namespace
                    return
                file.seek(0)  # a sysctl accepts no write at another offset
                file.write(b"%d" % (self._preparation.limits[resource.RLIMIT_NPROC] + _RESERVED_PIDS))
        except PermissionError:
            return
        self.bounds_processes = True

    def _bound_watches(self, sysctls: str) -> None:
        """Limit the cell to half of a user's inotify watches and instances, through files in `sysctls`, the path of
        /proc/sys. The kernel also counts them against the person's own limit, so a cell could otherwise leave none for
        the person's editor.

        The limit that is written is this user namespace's, namespaces(7); the machine's limit is only read.
        """
        for machines, own in _WATCHES:
            try:
                with open(f"{sysctls}/{machines}", "rb", buffering=0) as file:
                    half = max(1, int(file.read(16)) // 2)
                with open(f"{sysctls}/user/{own}", "wb", buffering=0) as file:
                    file.write(b"%d" % half)
            except FileNotFoundError:  # a kernel without inotify has nothing to use up
                continue

    def _make_dev(self, devices: list[tuple[str, int]]) -> None:
        dev = f"{_STAGE}/dev"
        os.mkdir(dev)
        flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
        kernel.mount("tmpfs", dev, "tmpfs", flags, "size=64k,nr_inodes=64,mode=0755")
        for name, copy in devices:
            os.close(os.open(f"{dev}/{name}", _NEW_FILE, 0o444))
            # Read-only, because root outside owns them and could change their mode; a device can be written to all the same.
            kernel.set_tree_attributes(copy, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID)
            _mount_and_close(copy, os.open(f"{dev}/{name}", _LOOK))
        for name, target in _DEV_LINKS:
            os.symlink(target, f"{dev}/{name}")
        for name in ("pts", "shm"):
            os.mkdir(f"{dev}/{name}")
        options = "newinstance,ptmxmode=0666,mode=0600"
        kernel.mount("devpts", f"{dev}/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
        kernel.set_tree_attributes(self._shm, _QUIET)
        _mount_and_close(self._shm, os.open(f"{dev}/shm", _LOOK))
        kernel.set_mount_attributes(dev, kernel.MOUNT_ATTR_RDONLY)

    # What the policy names

    def _make_link(self, path: str, target: str) -> None:
        parent = self._walk(os.path.dirname(path), is_directory=True)
        try:
            os.symlink(target, os.path.basename(path), dir_fd=parent)
        except OSError as error:
            raise OSError(error.errno, f"cannot make the link {path}: {os.strerror(error.errno or 0)}") from error
        finally:
            os.close(parent)

    def _bind(
        self,
        copy: int,
        source: str,
        target: str,
        is_writable: bool,
        shows_mounts: bool,
        mounted: list[str],
    ) -> None:
        is_directory = stat.S_ISDIR(os.fstat(copy).st_mode)
        attributes = _QUIET if is_writable else _READ_ONLY
        top = self._put(copy, target, is_directory=is_directory, attributes=attributes, keep=True)
        if is_directory and not shows_mounts:
            for path in _below(source, mounted):
                inside = os.path.relpath(path, source)
                try:
                    place = kernel.open_resolved(top, inside, _LOOK, _NO_LINKS | kernel.RESOLVE_BENEATH)
                except OSError as error:
                    if error.errno in _NOT_THERE:  # hidden by another mount above it
                        continue
                    raise _about(error, path) from error
                self._cover(place)
        if is_directory:
            self._cover_sockets(top, source)
        os.close(top)

    def _cover_sockets(self, top: int, source: str) -> None:
        """Cover each Unix socket of the host below the bound path `source`, which `top` is a descriptor of, because
        neither a namespace nor a read-only mount prevents a connection to a socket's path.
        """
        for path in self._sockets:
            if path == source or not _is_at_or_below(path, source):
                continue
            try:
                inside = os.path.relpath(path, source)
                place = kernel.open_resolved(top, inside, _LOOK_AT_LINK, kernel.RESOLVE_BENEATH)
            except OSError:  # it is gone, or its name leads elsewhere now
                continue
            if stat.S_ISSOCK(os.fstat(place).st_mode):
                self._cover(place)
            else:
                os.close(place)

    def _place_of_overlay(self) -> int:
        """Return how many of the binds are mounted before the overlay: all up to the bind that contains the overlay, so
        that binds inside the overlay are mounted after it. -1 if there is no overlay.
        """
        overlay = self._preparation.overlay
        if overlay is None:
            return -1
        after = 0
        for index, (_, target, *_) in enumerate(self._preparation.binds, 1):
            if _is_at_or_below(overlay[3], target):
                after = index
        return after

    def _make_overlay(self, layers: list[int]) -> None:
        overlay = self._preparation.overlay
        if overlay is None:
            return
        self.step = "overlay"
        lower, upper, work = (f"/proc/self/fd/{fd}" for fd in layers)
        place = self._walk(overlay[3], is_directory=True)
        try:
            options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
            kernel.mount("overlay", f"/proc/self/fd/{place}", "overlay", _OWN | _kept_flags(layers[0]), options)
        except OSError as error:
            raise _about(error, overlay[1]) from error
        finally:
            for fd in (place, *layers):
                os.close(fd)
        self.step = "binds"

    def _mask(self, path: str) -> None:
        try:
            place = kernel.open_resolved(self._stage, path.lstrip("/"), _LOOK_AT_LINK, kernel.RESOLVE_BENEATH)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise _about(error, path) from error
        self._cover(place)

    def _cover_with_file(self, path: str, number: int) -> None:
        """Mount the policy's file with this number at a path. If the path is a symbolic link, even a dangling one, the
        link itself is covered.
        """
        parent = self._walk(os.path.dirname(path), is_directory=True)
        name = os.path.basename(path)
        try:
            try:
                place = os.open(name, _LOOK_AT_LINK, dir_fd=parent)
            except FileNotFoundError:
                self._make_missing(parent, name, path, is_directory=False)
                place = os.open(name, _LOOK_AT_LINK, dir_fd=parent)
        finally:
            os.close(parent)
        _mount_and_close(self._blank(str(number)), place)

    # Mounting

    def _cover(self, place: int) -> None:
        """Mount an empty file or directory over the file or directory that `place` is a descriptor of, and close `place`."""
        is_directory = stat.S_ISDIR(os.fstat(place).st_mode)
        _mount_and_close(self._blank("directory" if is_directory else "file"), place)

    def _put(self, copy: int, target: str, *, is_directory: bool, attributes: int, keep: bool = False) -> int:
        """Mount `copy`, the descriptor of a detached mount, at the path `target` of the cell, with the MOUNT_ATTR flags
        `attributes`. Return `copy`, which is closed unless `keep` is True.
        """
        kernel.set_tree_attributes(copy, attributes)
        place = self._walk(target, is_directory=is_directory)
        try:
            kernel.move_mount_onto(copy, place)
        except OSError as error:
            raise _about(error, target) from error
        finally:
            os.close(place)
        if not keep:
            os.close(copy)
        return copy

    def _walk(self, path: str, *, is_directory: bool) -> int:
        """Return a descriptor of the file or directory at `path` in the cell. A missing part is created if it is on one
        of the cell's own file systems.
        """
        here = os.dup(self._stage)
        names = [name for name in path.split("/") if name]
        for number, name in enumerate(names, 1):
            wants_directory = is_directory or number < len(names)
            try:
                try:
                    there = kernel.open_resolved(here, name, _LOOK, _NO_LINKS)
                except FileNotFoundError:
                    self._make_missing(here, name, path, is_directory=wants_directory)
                    there = kernel.open_resolved(here, name, _LOOK, _NO_LINKS)
            except OSError as error:
                raise _about(error, path) from error
            finally:
                os.close(here)
            here = there
            if stat.S_ISDIR(os.fstat(here).st_mode) != wants_directory:
                os.close(here)
                number_ = errno.ENOTDIR if wants_directory else errno.EISDIR
                raise OSError(number_, f"{path}: {os.strerror(number_)}")
        return here

    def _make_missing(self, parent: int, name: str, path: str, *, is_directory: bool) -> None:
        if os.fstat(parent).st_dev not in self._own:
            raise OSError(errno.ENOENT, f"there is no place for {path} in what is shown of the host")
        if is_directory:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            os.close(os.open(name, _NEW_FILE, 0o644, dir_fd=parent))


def _kept_flags(lower: int) -> int:
    """Return the mount flags (MS_…) that an overlay must take from its project's mount, which `lower` is a descriptor
    of. A bind needs no such step, because it is a copy of the mount.
    """
    flags = os.fstatvfs(lower).f_flag
    return sum(mount for forbidden, mount in _KEPT_FLAGS if flags & forbidden)


def _open_source(path: str) -> int:
    try:
        return kernel.open_resolved(-100, path, _LOOK, _NO_LINKS)  # an absolute path: the directory is not looked at
    except OSError as error:
        raise _about(error, path) from error


def _copy_of(path: str) -> int:
    try:
        return _copy_of_opened(_open_source(path))
    except OSError as error:
        raise _about(error, path) from error


def _copy_of_opened(place: int, *, keep: bool = False) -> int:
    try:
        return kernel.copy_tree(place)
    finally:
        if not keep:
            os.close(place)


def _mount_and_close(copy: int, place: int) -> None:
    try:
        kernel.move_mount_onto(copy, place)
    finally:
        os.close(copy)
        os.close(place)


def _about(error: OSError, path: str) -> OSError:
    """Return the error with the path in its message, unless the message has the path already."""
    said = error.strerror or ""
    return error if path in said else OSError(error.errno or 0, f"{path}: {said}")


def _mount_points() -> list[str]:
    """Return the mount points of this mount namespace below its root, proc_pid_mountinfo(5)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return [_unescaped(line.split(" ", 5)[4]) for line in file]


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _below(source: str, mounted: list[str]) -> list[str]:
    """Return the uppermost mount points strictly below a path, without duplicates."""
    inside = sorted({path for path in mounted if path != source and _is_at_or_below(path, source)}, key=len)
    return [path for path in inside if not any(_is_at_or_below(path, other) for other in inside if other != path)]


def _is_at_or_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
