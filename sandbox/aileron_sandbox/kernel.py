"""System calls that Python does not offer, by ctypes: their numbers and structs, each with its man page.

Every function raises OSError with the errno and the call's name, so callers need not check a return value. Runs on the
host and in the template before a child is confined. x86-64 and arm64.

Sources: man 2 of each call; include/uapi/linux/{sched,mount,landlock,seccomp,capability,prctl}.h of Linux 6.12.
"""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = (
    False  # not from `typing`, which takes longer to import than all of this module, by which a cell is started
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, NoReturn

# --- numbers -----------------------------------------------------------------------------------------------------

_MACHINE: Final = os.uname().machine  # not `platform`, which would cache the host's name for all jails
# System calls without a glibc wrapper on every supported distribution: (x86-64, arm64).
_NUMBERS: Final = {
    "exit": (60, 93),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "kcmp": (312, 272),
    "seccomp": (317, 277),
    "close_range": (436, 436),
    "openat2": (437, 437),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}

# namespaces, clone(2)
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

# mount(2), umount2(2), mount_setattr(2)
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_NOSYMFOLLOW: Final = 256
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2
_AT_FDCWD: Final = -100  # openat(2)
AT_RECURSIVE: Final = 0x8000
MOUNT_ATTR_RDONLY: Final = 0x1
MOUNT_ATTR_NOSUID: Final = 0x2
MOUNT_ATTR_NODEV: Final = 0x4
MOUNT_ATTR_NOEXEC: Final = 0x8
_MOUNT_ATTR_IDMAP: Final = 0x00100000

# fsopen(2), fsmount(2), open_tree(2), move_mount(2)
_CLOEXEC: Final = 1  # the same bit for fsopen, fsmount and the copy that open_tree makes
_OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
_FSCONFIG_SET_STRING: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_MOVE_MOUNT_T_EMPTY_PATH: Final = 0x40
_AT_EMPTY_PATH: Final = 0x1000

# openat2(2)
RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08

# prctl(2)
PR_SET_PDEATHSIG: Final = 1
_PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

# keyctl(2)
KEYCTL_JOIN_SESSION_KEYRING: Final = 1

_KCMP_FILES: Final = 2

# seccomp(2)
SECCOMP_SET_MODE_FILTER: Final = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER: Final = 1 << 3

# landlock_create_ruleset(2), landlock_add_rule(2)
LANDLOCK_CREATE_RULESET_VERSION: Final = 1
LANDLOCK_RULE_PATH_BENEATH: Final = 1

# mallopt(3), malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 16 << 20
"""Maximum number of bytes of freed memory that malloc keeps for reuse, 16 MiB: a few frames of the largest size."""

_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_LAST_CAP_FILE: Final = "/proc/sys/kernel/cap_last_cap"

_libc = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


# Made once: ctypes builds the array's type anew each time, and a child that does must copy fifty pages for it (measured).
_OF_THIS_THREAD: Final = _CapHeader(version=_CAPABILITY_VERSION_3, pid=0)
_NO_CAPABILITIES: Final = (_CapData * 2)()


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _LandlockRuleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _LandlockPathBeneath(ctypes.Structure):
    _pack_ = 1  # struct landlock_path_beneath_attr is __attribute__((packed))
    _layout_ = "ms"  # the only layout that packs; Python 3.14 requires it, older versions have no other
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _declared(name: str, *arguments: type[Any]) -> Callable[..., int]:
    # Declared arguments, because converting each by hand costs five times as much, in every child.
    function = _libc[name]
    function.argtypes = arguments
    return function


_word, _text, _pointer = ctypes.c_ulong, ctypes.c_char_p, ctypes.c_void_p
_unshare = _declared("unshare", ctypes.c_int)
_setns = _declared("setns", ctypes.c_int, ctypes.c_int)
_sethostname = _declared("sethostname", _text, ctypes.c_size_t)
_mount = _declared("mount", _text, _text, _text, _word, _text)
_umount2 = _declared("umount2", _text, ctypes.c_int)
_prctl = _declared("prctl", ctypes.c_int, _word, _word, _word, _word)
_capset = _declared("capset", _pointer, _pointer)
_process_vm_readv = _declared("process_vm_readv", ctypes.c_int, _pointer, _word, _pointer, _word, _word)
# A void pointer takes what a system call does: a number, bytes, None, or a struct by reference.
_syscall_of_any = _declared("syscall", ctypes.c_long, *(_pointer,) * 5)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _syscall(name: str, *arguments: object) -> int:
    column = {"x86_64": 0, "aarch64": 1}.get(_MACHINE)
    if column is None:
        raise OSError(f"no system call numbers for {_MACHINE}: x86_64 and aarch64 are supported")
    padding = (None,) * (5 - len(arguments))
    return _check(_syscall_of_any(_NUMBERS[name][column], *arguments, *padding), name)


def maybe_share_descriptors(thread: int, other: int) -> bool | None:
    """Return whether two threads share one descriptor table, kcmp(2). None if that call is not available."""
    try:
        return _syscall("kcmp", thread, other, _KCMP_FILES, None, None) == 0
    except OSError:
        return None


def exit_thread(code: int) -> NoReturn:
    """End only this thread, exit(2). A process without other threads ends with it. (The C library's exit functions end
    all threads.)
    """
    _syscall("exit", code)
    raise AssertionError("it does not return")


# --- namespaces --------------------------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones, unshare(2)."""
    _check(_unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Enter the namespace that `fd` refers to, setns(2). `kind` is its CLONE_NEW flag."""
    _check(_setns(fd, kind), "setns")


def set_hostname(name: bytes) -> None:
    """Set the host name, sethostname(2)."""
    _check(_sethostname(name, len(name)), "sethostname")


# --- mounts ------------------------------------------------------------------------------------------------------


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Make or change a mount, mount(2). `data` are the file system's own options."""
    done = _mount(
        source.encode() if source is not None else None,
        target.encode(),
        kind.encode() if kind is not None else None,
        flags,
        data.encode() if data is not None else None,
    )
    _check(done, f"mount {target}")


def set_mount_attributes(target: str, attributes: int, *, recursive: bool = False) -> None:
    """Add MOUNT_ATTR flags to a mount without changing the others, mount_setattr(2). Unlike a remount, this cannot
    drop a locked flag.
    """
    attr = _MountAttr(attr_set=attributes)
    flags = AT_RECURSIVE if recursive else 0
    _syscall("mount_setattr", _AT_FDCWD, target.encode(), flags, ctypes.byref(attr), ctypes.sizeof(attr))


def new_tmpfs(options: Mapping[str, str]) -> int:
    """Make a tmpfs that is mounted nowhere, and return a descriptor of its root, fsopen(2)."""
    context = _syscall("fsopen", b"tmpfs", _CLOEXEC)
    try:
        for name, value in options.items():
            _syscall("fsconfig", context, _FSCONFIG_SET_STRING, name.encode(), value.encode(), 0)
        _syscall("fsconfig", context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _syscall("fsmount", context, _CLOEXEC, 0)
    finally:
        os.close(context)


def move_mount(mount: int, target: str) -> None:
    """Move a mount, given as the descriptor `mount`, to the path `target`, move_mount(2)."""
    _syscall("move_mount", mount, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)


def copy_mount(target: str) -> int:
    """Copy the mount at `target`, and return a descriptor of the copy, which is mounted nowhere, open_tree(2)."""
    return _syscall("open_tree", _AT_FDCWD, target.encode(), _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)


def copy_tree(place: int) -> int:
    """Copy the part of a mount at and below `place` (a descriptor), with all mounts below it, and return a descriptor
    of the copy, open_tree(2).

    The copy is not mounted anywhere. In a user namespace a copy without the mounts below fails with EINVAL,
    mount_namespaces(7).
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH | AT_RECURSIVE
    return _syscall("open_tree", place, b"", flags)


def set_tree_attributes(mount: int, attributes: int, *, recursive: bool = True) -> None:
    """Add MOUNT_ATTR flags to the mount that a descriptor refers to and, if recursive, to all mounts below it,
    mount_setattr(2).
    """
    attr = _MountAttr(attr_set=attributes)
    flags = _AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _syscall("mount_setattr", mount, b"", flags, ctypes.byref(attr), ctypes.sizeof(attr))


def move_mount_onto(mount: int, place: int) -> None:
    """Move a mount onto exactly the file or directory that the descriptor `place` refers to, move_mount(2)."""
    _syscall("move_mount", mount, b"", place, b"", _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH)


def open_resolved(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open a path below `directory` by openat2(2), and return a descriptor that exec closes. `resolve` has RESOLVE_…
    flags. Raises OSError ELOOP for a symbolic link and EXDEV for a path that leaves the directory, if `resolve` forbids
    these.
    """
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    return _syscall("openat2", directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def map_mount_ids(mount: int, namespace: int, attributes: int) -> None:
    """Make `mount` an ID-mapped mount, whose files have the owners that the user namespace maps them to, and add
    MOUNT_ATTR flags, mount_setattr(2).

    `mount` must not have been mounted anywhere. Raises OSError EINVAL if the file system cannot do this (tmpfs before
    Linux 6.3).
    """
    attr = _MountAttr(attr_set=attributes | _MOUNT_ATTR_IDMAP, userns_fd=namespace)
    _syscall("mount_setattr", mount, b"", _AT_EMPTY_PATH, ctypes.byref(attr), ctypes.sizeof(attr))


def pivot_root(new_root: str, put_old: str) -> None:
    """Change the root, pivot_root(2). If both paths are ".", the old root is stacked over the new one, ready to be detached."""
    _syscall("pivot_root", new_root.encode(), put_old.encode())


def detach(target: str) -> None:
    """Unmount a path lazily, umount2(2) with MNT_DETACH."""
    _check(_umount2(target.encode(), MNT_DETACH), f"umount {target}")


# --- privileges --------------------------------------------------------------------------------------------------


def prctl(option: int, arg2: int = 0, arg3: int = 0) -> None:
    """Call prctl(2) with unsigned long arguments."""
    _check(_prctl(option, arg2, arg3, 0, 0), "prctl")


def is_dumpable() -> bool:
    """Return whether another process of this user may attach to this one and read it, prctl(2). True if that is unknown."""
    return _prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0


def last_capability() -> int:
    """Return the highest capability number of this kernel, capabilities(7). Call it while /proc is still visible.

    The file is read as bytes, because text would import a codec, and in a cell the interpreter's own files may be invisible.
    """
    with open(_CAP_LAST_CAP_FILE, "rb") as file:
        return int(file.read())


def drop_bounding_set(last: int) -> None:
    """Empty the bounding set, so that no later exec could regain a capability, capabilities(7). Needs CAP_SETPCAP."""
    for capability in range(last + 1):
        # Not `prctl`: forty calls of it are the most expensive step of a child (0.12 ms, measured).
        _check(_prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl PR_CAPBSET_DROP")


def drop_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient sets, capset(2)."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _check(_capset(ctypes.byref(_OF_THIS_THREAD), _NO_CAPABILITIES), "capset")


def join_new_session_keyring() -> None:
    """Leave the inherited session keyring for an empty one, keyctl(2)."""
    _syscall("keyctl", KEYCTL_JOIN_SESSION_KEYRING, None)


def use_one_malloc_arena() -> None:
    """Make the threads of this process and of its forks share one heap, mallopt(3), because each arena reserves 64
    MiB of address space.

    Only glibc needs this; other C libraries reserve nothing and have no such call.
    """
    if hasattr(_libc, "mallopt") and not _libc.mallopt(_M_ARENA_MAX, 1):
        raise OSError(errno.EINVAL, "mallopt M_ARENA_MAX")


def keep_freed_memory() -> None:
    """Make malloc reuse freed memory for the next large object, up to 16 MiB, instead of getting pages from the kernel each time.

    Without this, the heap's history decides whether memory is reused, mallopt(3) M_MMAP_THRESHOLD: a frame of 1 MiB took 250
    page faults in each direction. Forks inherit the setting. It exists in glibc only; other C libraries have no such call.
    """
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        if hasattr(_libc, "mallopt") and not _libc.mallopt(parameter, _KEPT_BYTES):
            raise OSError(errno.EINVAL, f"mallopt {parameter}")


def return_free_memory() -> None:
    """Return to the kernel the freed memory that malloc still holds, malloc_trim(3). Takes a millisecond for each 10
    MiB.

    Only glibc has this call; other C libraries hold little.
    """
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


# --- descriptors, seccomp, Landlock ------------------------------------------------------------------------------


def close_range(first: int, last: int = 0xFFFFFFFF) -> None:
    """Close every descriptor from `first` to `last`, close_range(2)."""
    _syscall("close_range", first, last, 0)


class Filter:
    """A compiled seccomp program, ready to be installed without allocating memory."""

    def __init__(self, program: bytes) -> None:
        if not program or len(program) % 8:
            raise ValueError("a BPF program is a whole number of 8-byte instructions")
        self._bytes = program
        self._prog = _SockFprog(len=len(program) // 8, filter=program)

    def install(self) -> None:
        """Apply the filter to this thread and its descendants permanently, seccomp(2). Requires no_new_privs."""
        _syscall("seccomp", SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(self._prog))

    def install_with_listener(self) -> int:
        """Do what `install` does, and return a descriptor that receives notifications of the calls that the filter
        leaves undecided, seccomp_unotify(2).

        Raises OSError EBUSY if a filter of this process has a listener already, and EINVAL before Linux 5.0.
        """
        return _syscall("seccomp", SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, ctypes.byref(self._prog))


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Return at most `size` bytes of another process's memory from `address` on, process_vm_readv(2). Raises OSError
    EPERM, ESRCH or EFAULT.
    """
    buffer = ctypes.create_string_buffer(size)
    here = _IoVec(base=ctypes.addressof(buffer), size=size)
    there = _IoVec(base=address, size=size)
    read = _process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return buffer.raw[: _check(read, "process_vm_readv")]


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, which is at least 1. Raises OSError ENOSYS if Landlock is not built in,
    EOPNOTSUPP if it is disabled at boot.
    """
    return _syscall("landlock_create_ruleset", None, 0, LANDLOCK_CREATE_RULESET_VERSION)


def landlock_create_ruleset(abi: int, fs: int, net: int, scoped: int) -> int:
    """Return a descriptor of a Landlock ruleset that denies these rights unless a rule allows them. The struct has the
    size that this ABI knows.
    """
    attr = _LandlockRuleset(handled_access_fs=fs, handled_access_net=net, scoped=scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return _syscall("landlock_create_ruleset", ctypes.byref(attr), size, 0)


def landlock_allow_beneath(ruleset: int, path: str, access: int) -> None:
    """Add a rule to a Landlock ruleset that allows `access` to everything below `path`. For a mount point, pass its
    parent, because the mount would hide the rule.
    """
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _LandlockPathBeneath(allowed_access=access, parent_fd=fd)
        _syscall("landlock_add_rule", ruleset, LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def landlock_restrict_self(ruleset: int) -> None:
    """Confine the calling thread by this Landlock ruleset permanently. Requires no_new_privs. The kernel refuses
    mount(2) from then on.
    """
    _syscall("landlock_restrict_self", ruleset, 0)
