"""New namespaces, and the mapping of one id of the host to one unprivileged id inside them. namespaces(7).

`/proc` of the host is reached through a descriptor opened before the root was changed: the jail has no /proc, and
/proc/self resolves in the pid namespace that mounted it.
"""

from __future__ import annotations

import errno
import os

from aileron_sandbox import kernel

TYPE_CHECKING = False  # and not from `typing`: kernel.py
if TYPE_CHECKING:
    from typing import Final

__all__ = ["CHILD", "INSIDE_ID", "JAIL_UIDS", "TEMPLATE", "available_jail_uid", "map_ids"]

INSIDE_ID: Final = 1000
"""User and group id inside a jail. They are not 0, so that no setuid or capability rule for root applies (capabilities(7))."""
JAIL_UIDS: Final = (2_000_064_321, 64_321)
"""Host uids to try for a jail if the host side is root, because RLIMIT_NPROC is not enforced for uid 0 (measured). The first
is outside every range that systemd, subuid(5) and containers assign; the second is for roots with only 65536 mapped uids.
"""

TEMPLATE: Final = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
    | kernel.CLONE_NEWPID
)
CHILD: Final = (
    kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
)
"""Flags of the namespaces that each child has for itself. Its pid namespace is made by the fork (see __main__). It
shares the template's network namespace, which is empty, without even a loopback device that is up: no socket can be
made in it anyway (filters.py).
"""


def map_ids(proc: int, uid: int, gid: int, inside: int = INSIDE_ID, inside_group: int | None = None) -> None:
    """Map the id `inside` to `uid` and `gid` of the parent namespace, after unshare(CLONE_NEWUSER).
    user_namespaces(7).

    The group id inside is `inside_group`, or `inside` if that is None.
    """
    _write(proc, "self/setgroups", "deny")  # must come before gid_map for an unprivileged writer
    _write(proc, "self/uid_map", f"{inside} {uid} 1")
    _write(proc, "self/gid_map", f"{inside if inside_group is None else inside_group} {gid} 1")


def available_jail_uid(uid_map: str) -> int:
    """Return the first of JAIL_UIDS that is mapped in this user namespace. Raises OSError if none is."""
    ranges = [tuple(map(int, line.split())) for line in uid_map.splitlines()]
    for uid in JAIL_UIDS:
        if any(first <= uid < first + count for first, _, count in ranges):
            return uid
    raise OSError(
        errno.EINVAL, f"none of the uids {JAIL_UIDS} is mapped in this user namespace: run as an ordinary user"
    )


def _write(proc: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
