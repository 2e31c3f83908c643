"""Control groups: one for each child, so that memory and processor time are counted and bounded for all of its processes.

Runs on the host, which trusts the kernel's numbers, but no child: a child enters its group as the first step of its
confinement and cannot leave it, since a jail does not contain the file system of control groups.

    place = find()                                    # None if this user may not make groups with a memory limit here
    with Groups(place) as groups:
        group = groups.take()
        with group.opened() as descriptors: …         # by these a child enters the group and sets its limit (template/limits.py)
        group.is_out_of_memory()
        groups.give_back(group)

Rules
- Groups are made only below this process's own group or, for an ordinary user on v2, below its nearest ancestor that
  the user can write to, which was delegated to the user. An ancestor above a group with a memory limit is never used,
  because children there would escape that limit.
- A directory of groups belongs to one `Groups`, which holds a lock on it. An unlocked directory was left behind by a host
  that was killed, and the next host removes it. (The lock decides, because the process id in the directory's name may belong
  to another pid namespace.)
- A group is used again for later children. Its counters are never reset; only the difference to the last reading
  counts. So if a child was killed, call `is_out_of_memory` before giving its group back.
- The kernel checks the rights of the process that opened `cgroup.procs` (cgroups(7), "opened with"; v1 since Linux
  5.16). So the host opens the file, and a child without rights can enter the group through the descriptor.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux. Not here: the limit on the number of
processes (RLIMIT_NPROC, which covers a child's whole tree because it counts in the child's own user namespace).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec

from aileron_sandbox.fixes import is_short_of_descriptors
from aileron_sandbox.template import limits

if TYPE_CHECKING:  # a cell never asks for its usage, and need not import this
    from aileron_sandbox.watch import Used

__all__ = ["Group", "Groups", "Kind", "Place", "find", "take_one"]

Kind = Literal["cgroup-v2", "cgroup-v1"]
_PREFIX: Final = "aileron-jails-"
_ATTEMPTS: Final = 3
"""Number of attempts to make a directory and lock it before another host removes it as left behind by a killed host."""
_REMOVAL_DEADLINE_S: Final = 1.0  # a group is empty when its last process is reaped, and the kernel needs a moment more
_REMOVAL_PAUSE_S: Final = 0.005
_TRIAL_BYTES: Final = 1 << 30  # a limit for an empty group, to see whether it can be set
_NANOSECONDS: Final = 1_000_000_000
_MICROSECONDS: Final = 1_000_000


class Place(msgspec.Struct, frozen=True):
    """The directories below which this process can make control groups."""

    kind: Kind
    memory: Path
    """The directory for groups that count memory."""
    cpu: Path | None = None
    """The directory for groups that count processor time, if that is separate (v1); in v2 each group counts it."""


@functools.cache
def find() -> Place | None:
    """Return the best directories in which this process can make control groups, found by trial; None if there are
    none. The result is cached.

    Raises OSError if no descriptor is available for the attempt.
    """
    for place in _candidates():
        if (taken := _maybe_taken(place)) is not None:
            taken[0].close()
            return place
    return None


def take_one() -> tuple[Groups, Group] | None:
    """Make a control group with a memory limit for one child, and return it with its Groups; None if this machine has
    none. If the group is out of memory, the kernel kills single processes, not the whole group.

    Places are tried as in `find`, and the first group that can be made is returned. v1 groups that count processor time
    are not used, because entering one takes 10 ms (RCU in the kernel). Raises OSError if no descriptor is available.
    """
    for place in _candidates():
        if place.cpu is None and (taken := _maybe_taken(place, ends_together=False)) is not None:
            return taken
    return None


class Group:
    """A control group while it is in use for a child."""

    def __init__(self, kind: Kind, memory: Path, cpu: Path | None, *, ends_together: bool = True) -> None:
        self._kind: Final = kind
        self._memory: Final = memory
        self._cpu: Final = cpu
        self._kills_before = self._kills_seen = 0
        self._cpu_before_s = 0.0
        self._is_lost = False
        self.counts_cpu: Final = kind == "cgroup-v2" or cpu is not None
        """True if `used` returns the processor time: always in v2; in v1 if that controller is delegated, too."""
        self._bounds: Final = _bounds(kind, memory)
        if kind == "cgroup-v2":
            _write(memory / "memory.oom.group", str(int(ends_together)))
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                _write(memory / "memory.swap.max", "0")

    @contextlib.contextmanager
    def opened(self) -> Iterator[limits.Group]:
        """Open the control group's files until the block ends, and yield their descriptors. Through them a child enters
        the group, and the group's limit is set.

        Raises OSError if another process has removed the group; the group is then not used again.
        """
        doors = [directory / "cgroup.procs" for directory in (self._memory, self._cpu) if directory is not None]
        self._is_lost = True
        with contextlib.ExitStack() as stack:
            group = limits.Group(_opened(doors, stack), _opened(self._bounds, stack))
            self._is_lost = False
            yield group

    def bound_tcp(self, limit_bytes: int) -> None:
        """Set the maximum size of the control group's TCP buffers, which version 1 counts separately. In version 2 they
        count as memory, and this does nothing.
        """
        with contextlib.suppress(FileNotFoundError):
            _write(self._memory / "memory.kmem.tcp.limit_in_bytes", str(limit_bytes))

    def used(self) -> Used:
        """Return the processor time that the group has used since `begin_to_count`, and whether it ran out of memory.
        May be called in any thread, as `watch.Tree` requires.
        """
        from aileron_sandbox.watch import Used

        return Used(0, self._counted_cpu_s() - self._cpu_before_s, self._counted_kills() > self._kills_before)

    def begin_to_count(self) -> None:
        """Count processor time from this call on. Raises OSError if the present usage cannot be read."""
        self._cpu_before_s = self._counted_cpu_s()

    def is_out_of_memory(self) -> bool:
        """Return whether, as far as is known, the kernel has killed a process of the group for lack of memory since
        the group was taken.
        """
        try:
            self._kills_seen = self._counted_kills()
        except OSError:  # another process has removed it, or no descriptor is free: it is not used again
            self._is_lost = True
        return self._kills_seen > self._kills_before

    def _counted_kills(self) -> int:
        name = "memory.events" if self._kind == "cgroup-v2" else "memory.oom_control"
        return int(_fields(self._memory / name).get("oom_kill", "0"))

    def _counted_cpu_s(self) -> float:
        if self._kind == "cgroup-v2":
            return int(_fields(self._memory / "cpu.stat")["usage_usec"]) / _MICROSECONDS
        return int((self._cpu / "cpuacct.usage").read_text()) / _NANOSECONDS if self._cpu is not None else 0.0


def _bounds(kind: Kind, memory: Path) -> list[Path]:
    if kind == "cgroup-v2":
        return [memory / "memory.max"]
    limit, with_swap = memory / "memory.limit_in_bytes", memory / "memory.memsw.limit_in_bytes"
    return [limit, with_swap] if with_swap.exists() else [limit]  # there are kernels that do not account for swap


def _opened(files: Iterable[Path], stack: contextlib.ExitStack) -> tuple[int, ...]:
    fds = []
    for file in files:
        fds.append(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
        stack.callback(os.close, fds[-1])
    return tuple(fds)


class Groups:
    """The control groups of one template: as many as the largest number of children it had at once. Not thread-safe."""

    def __init__(self, place: Place, *, ends_together: bool = True) -> None:
        """Make the directory that will contain the control groups. With `ends_together`, the kernel (v2) kills all
        processes of a group that is out of memory, instead of some of a program's processes.
        """
        self._place: Final = place
        self._ends_together: Final = ends_together
        self._count = 0
        self._free: list[Group] = []
        self._locks: list[int] = []
        self._own: list[Path] = []
        try:
            for parent in (place.memory, *([place.cpu] if place.cpu is not None else [])):
                _remove_left_behind(parent)
                path, lock = _make_and_lock(parent)
                self._own.append(path)
                self._locks.append(lock)
            if place.kind == "cgroup-v2":
                _write(self._own[0] / "cgroup.subtree_control", "+memory")
        except BaseException:
            self.close()
            raise

    @property
    def kind(self) -> Kind:
        """Version of the kernel's control group interface, v1 or v2."""
        return self._place.kind

    def take(self) -> Group:
        """Return a control group that no other child uses. Raises OSError if none can be made."""
        group = self._free.pop() if self._free else self._make()
        group._kills_before = group._kills_seen
        return group

    def give_back(self, group: Group) -> None:
        """Return a group, whose processes have ended, to the pool for later children, unless it has become unusable."""
        if not group._is_lost:
            self._free.append(group)

    def close(self) -> None:
        """Remove all control groups; their processes must be ending. Groups that still have processes at the deadline
        are left for the next host to remove. Idempotent.
        """
        until = time.monotonic() + _REMOVAL_DEADLINE_S
        for path in self._own:
            while not _remove(path) and time.monotonic() < until:
                time.sleep(_REMOVAL_PAUSE_S)
        while self._locks:
            os.close(self._locks.pop())
        self._own.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> Group:
        paths = [own / str(self._count) for own in self._own]
        self._count += 1
        for path in paths:
            path.mkdir()
        return Group(self.kind, paths[0], paths[1] if len(paths) > 1 else None, ends_together=self._ends_together)


# Where


class _Mount(msgspec.Struct, frozen=True):
    mount_point: Path
    root: Path
    """Path of the group whose directory is the mount point, within its hierarchy."""

    def below(self, path: Path) -> Path:
        """Return the directory of the control group `path`; the hierarchy's mount point if `path` is not below it, as
        in a container.
        """
        return self.mount_point / path.relative_to(self.root) if path.is_relative_to(self.root) else self.mount_point


def _mounts() -> dict[str, _Mount]:
    """Return the mounts of control group hierarchies by controller, `""` for v2. proc_pid_mountinfo(5)."""
    found: dict[str, _Mount] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        root, mount_point = (Path(_unescaped(text)) for text in before.split()[3:5])
        if kind == "cgroup2":
            found.setdefault("", _Mount(mount_point, root))
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, _Mount(mount_point, root))
    return found


def _unescaped(text: str) -> str:
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


def _own_paths() -> dict[str, Path]:
    """Return the control groups of this process by controller, `""` for v2. Lines are `4:memory:/path` or `0::/path`,
    cgroups(7).
    """
    found = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), Path(path)))
    return found


def _candidates() -> Iterator[Place]:
    """Yield the places at which to try to make control groups, the best first."""
    mounts, own = _mounts(), _own_paths()
    unified = mounts.get("")
    if unified is not None and "" in own:
        for directory in _candidates_v2(unified.below(own[""]), unified.mount_point):
            yield Place("cgroup-v2", directory)
    if "memory" in mounts and "memory" in own:
        memory = mounts["memory"].below(own["memory"])
        if {"cpuacct"} <= mounts.keys() & own.keys():
            yield Place("cgroup-v1", memory, mounts["cpuacct"].below(own["cpuacct"]))
        yield Place("cgroup-v1", memory)


def _candidates_v2(own: Path, top: Path) -> Iterator[Path]:
    """Yield this process's own group and, for an ordinary user, the ancestors that are delegated to the user, up to the
    first with a memory limit.
    """
    directory = own
    while True:
        yield directory
        if directory == top or os.geteuid() == 0 or _has_limit(directory):
            return
        directory = directory.parent
        if not os.access(directory, os.W_OK):
            return


def _has_limit(directory: Path) -> bool:
    for name in ("memory.max", "memory.high"):
        with contextlib.suppress(FileNotFoundError):  # no memory controller in it, so no limit
            if (directory / name).read_text(encoding="ascii").strip() != "max":
                return True
    return False


def _maybe_taken(place: Place, *, ends_together: bool = True) -> tuple[Groups, Group] | None:
    """Make a control group below the directories of `place`, check that a memory limit can be set on it, and return it
    with its Groups. Return None if that fails, as in a writable directory without the memory controller.
    """
    with contextlib.ExitStack() as undo:
        try:
            if place.kind == "cgroup-v2":
                _give_memory_to_those_below(place.memory)
            groups = Groups(place, ends_together=ends_together)
            undo.callback(groups.close)
            group = groups.take()
            with group.opened() as opened:
                opened.bound(_TRIAL_BYTES)
        except OSError as error:
            if is_short_of_descriptors(error):  # this proves nothing, and `find` would cache it
                raise
            return None
        undo.pop_all()
        return groups, group


def _give_memory_to_those_below(directory: Path) -> None:
    """Enable the memory controller for the groups below `directory`. Raises OSError if the group lacks the
    controller, has processes of its own (EBUSY), or does not belong to this user.
    """
    file = directory / "cgroup.subtree_control"
    if "memory" not in file.read_text(encoding="ascii").split():
        _write(file, "+memory")


# Directories


def _make_and_lock(parent: Path) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        path = parent / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        path.mkdir()
        lock = _maybe_lock(path)
        if lock is not None:
            if path.exists():  # 1 made · 2 another host, which starts just now, locks and removes it · 3 locked
                return path, lock
            os.close(lock)
    raise OSError(errno.EBUSY, "a directory for control groups was removed each time it was created", str(parent))


def _maybe_lock(path: Path) -> int | None:
    """Lock a directory and return the descriptor that holds the lock; None if another process holds the lock or the
    directory is gone.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _remove_left_behind(parent: Path) -> None:
    """Remove the directories of control groups in `parent` that no running host has locked, except those of other
    users, which this user cannot remove.
    """
    with os.scandir(parent) as entries:
        found = [parent / entry.name for entry in entries if entry.name.startswith(_PREFIX)]
    for path in found:
        with contextlib.suppress(PermissionError):
            lock = _maybe_lock(path)
            if lock is not None:
                _remove(path)
                os.close(lock)


def _remove(path: Path) -> bool:
    """Remove the directory `path` and the control groups in it; return False if one of them is still in use."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    os.rmdir(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _fields(path: Path) -> dict[str, str]:
    """Parse the lines of a control group's file, each a name and a value, into a dict."""
    return dict(line.split(" ", 1) for line in path.read_text(encoding="ascii").splitlines())


def _write(path: Path, text: str) -> None:
    # Without O_CREAT and O_TRUNC: a file that does not exist cannot be made here.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
