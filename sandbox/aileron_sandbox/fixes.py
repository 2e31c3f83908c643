"""Fixes for a machine that cannot run a jail: the exact commands, chosen by the failed step and by facts about the machine.

Pure, except for `Machine.of_this`, which reads these facts. The step was really attempted (support.py); this module
only explains its failure.

>>> fix("landlock", 0, Machine())
'boot kernel 5.13 or newer with landlock in CONFIG_LSM, or add landlock to lsm= on the kernel command line'

Source: apparmor.d(5), sysctl(8), Docker's and Podman's manuals on --security-opt. The page for people is
docs/how-to/when-user-namespaces-are-blocked.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

__all__ = ["SYSCTLS", "Machine", "fix", "fix_cell", "is_short_of_descriptors"]

SYSCTLS: Final = (
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.yama.ptrace_scope",
    "user.max_user_namespaces",
    "user.max_net_namespaces",
)
"""Names of sysctls with which distributions forbid user namespaces, and of others that a report about a machine shows."""
_NAMESPACES: Final = frozenset({"namespaces and root", "pid namespace"})
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_MARKS_OF_CONTAINERS: Final = ("/.dockerenv", "/run/.containerenv")
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EINVAL, errno.ENOSYS})
_NOT_SHOWN: Final = "check that it exists and that this user may read it, or leave it out of the cell"
_BY_ITS_PATH: Final = "it is a symbolic link, or lies behind one: name the path that it leads to"
_LINKED_SINCE: Final = (
    "a symbolic link was put on the way to it since the path was resolved: "
    "find out who can write there, and start again"
)
_NO_PLACE: Final = "create it on the host, or show it at a path that no other directory of the host covers"
_OF_A_CELL: Final[Mapping[str, Mapping[int, str]]] = {
    "seccomp": {0: "apt-get install libseccomp2"},
    "sources": {
        errno.ENOENT: _NOT_SHOWN,
        errno.EACCES: _NOT_SHOWN,
        errno.ENOTDIR: _NOT_SHOWN,
        errno.ELOOP: _LINKED_SINCE,
    },
    "links": {errno.EEXIST: "name each link once", errno.ENOENT: _NO_PLACE, errno.ELOOP: _BY_ITS_PATH},
    "binds": {errno.ENOENT: _NO_PLACE, errno.ENOTDIR: _NO_PLACE, errno.EISDIR: _NO_PLACE, errno.ELOOP: _BY_ITS_PATH},
    "masked": {errno.ELOOP: _BY_ITS_PATH},
    "files": {errno.ENOENT: _NO_PLACE, errno.ENOTDIR: _NO_PLACE, errno.ELOOP: _BY_ITS_PATH},
    "overlay": {
        errno.EINVAL: (
            "keep the changes on a file system that overlayfs can write to with user attributes, such as ext4, XFS or btrfs, and "
            "on Linux 5.11 or newer"
        ),
        errno.ENODEV: "load overlayfs: as root, run modprobe overlay",
        errno.EPERM: "overlayfs in a user namespace needs Linux 5.11 or newer",
        errno.ENOENT: _NO_PLACE,
        errno.ELOOP: _BY_ITS_PATH,
    },
    "listeners": {
        errno.EADDRINUSE: "name each port and each path of a listener once",
        errno.EACCES: "choose a port of 1024 or above",
    },
    "folder": {
        errno.ENOENT: "start in a directory that the cell shows",
        errno.EACCES: "start in a directory that this user may enter",
    },
}
_PROFILE: Final = """\
abi <abi/4.0>,
include <tunables/global>
profile aileron-jail {executable} flags=(unconfined) {{
  userns,
}}"""


class Machine(msgspec.Struct, frozen=True):
    """The facts about a machine that decide how to fix a jail that cannot be made. `executable` is the interpreter that
    makes the jails.
    """

    sysctls: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_container: bool = False
    executable: str = "/usr/bin/python3"
    is_root: bool = False

    @classmethod
    def of_this(cls, executable: str) -> Self:
        """Read the facts about this machine from /proc/sys and from files that container engines create, such as
        /.dockerenv.
        """
        found = {}
        for name in SYSCTLS:
            with contextlib.suppress(OSError):
                found[name] = Path("/proc/sys", *name.split(".")).read_text(encoding="ascii").strip()
        is_container = any(os.path.exists(mark) for mark in _MARKS_OF_CONTAINERS)
        return cls(found, is_container, executable, os.geteuid() == 0)


def fix(step: str, number: int, machine: Machine) -> str:
    """Return the fix for a `step` of making a jail that failed with errno `number`, with the command to type if there
    is one.
    """
    if step == "landlock" and number == errno.EACCES:
        return (
            f"{machine.executable} and the packages that go into the jail must be readable by others, because a jail of root "
            "runs as nobody: use the system's Python, and install in a place that others can read"
        )
    if step == "landlock":
        return (
            "boot kernel 5.13 or newer with landlock in CONFIG_LSM, or add landlock to lsm= on the kernel command line"
        )
    if number in _NO_DESCRIPTOR:
        return "too many files are open: raise the limit (`ulimit -n`), or open fewer at once"
    if step in _NAMESPACES:
        return _namespaces(number, machine)
    return "see the log for the details"


def fix_cell(step: str, number: int, machine: Machine) -> str:
    """Return the fix for a `step` of a cell that failed with errno `number` (cell/init.py). The caller's error names the path."""
    if step in _OF_A_CELL and number in _OF_A_CELL[step]:
        return _OF_A_CELL[step][number]
    if step == "landlock" and number in (errno.ENOSYS, errno.EOPNOTSUPP):
        return fix("landlock", number, machine)
    if step == "proc" and number == errno.EPERM:
        return (
            "this machine hides parts of /proc, as containers do, and then no new one can be mounted: in Docker, run it "
            "with --security-opt systempaths=unconfined; in Podman, with --security-opt unmask=ALL"
        )
    if number in _NO_DESCRIPTOR or step == "descriptors":
        return "too many files are open: raise the limit (`ulimit -n`), or open fewer at once"
    if step in ("namespaces and root", "pid namespace", "loopback", "mounts", "root") and number in _FORBIDDEN:
        return _namespaces(number, machine)
    return "report this as a bug, with `aileron doctor`"


def is_short_of_descriptors(error: Exception) -> bool:
    """Return whether the error says that too many files are open. Such an error may be transient, so it does not mean
    that this machine cannot run a jail.
    """
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


def _namespaces(number: int, machine: Machine) -> str:
    if machine.sysctls.get("kernel.apparmor_restrict_unprivileged_userns") == "1" and not machine.is_root:
        profile = _PROFILE.format(executable=machine.executable)
        return (
            "AppArmor restricts user namespaces (Ubuntu 23.10 and newer). As root, allow this interpreter to create them: "
            f"write this to /etc/apparmor.d/aileron-jail, and run apparmor_parser -r /etc/apparmor.d/aileron-jail:\n{profile}"
        )
    if machine.sysctls.get("kernel.unprivileged_userns_clone") == "0" and not machine.is_root:
        return "user namespaces are disabled: as root, run sysctl -w kernel.unprivileged_userns_clone=1"
    if number == errno.ENOSPC:
        raised = "sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000"
        return f"the limit of namespaces is reached or 0: as root, run {raised}"
    if machine.is_container:
        return (
            "this container forbids user namespaces: run it with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined, or with a seccomp profile that allows "
            "clone, unshare, setns, mount, umount2, pivot_root and mount_setattr"
        )
    return (
        "allow unprivileged user namespaces: something on this machine (a seccomp profile, or another LSM) "
        "forbids unshare or mount"
    )
