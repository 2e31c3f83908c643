"""Landlock in a cell: a second layer that limits writing as the mounts do, and two scopes that mounts cannot provide.

Every visible file may be read and executed. Writable binds, the home, and the cell's own directories may be changed. A
rule for a directory applies to everything below it, so a read-only place inside a writable one is protected by its
mount alone. Signals and connections to abstract sockets cannot leave the domain (ABI 6). The first process is outside
this domain.

With ABI 1, Linux 5.13 to 5.18, no file could be moved to another directory (LANDLOCK_ACCESS_FS_REFER). On those kernels
Landlock is not used, and is missing from the reported layers.

Source: landlock(7). Not here: the rights of a connector, which has fewer (template/landlock.py).
"""

from __future__ import annotations

import os
import stat

from aileron_sandbox import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = ["LEAST_ABI", "maybe_ruleset"]

LEAST_ABI: Final = 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = (1 << bit for bit in (7, 8, 9, 10, 12))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in (13, 14, 15))
_SEE: Final = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE_FILE: Final = _WRITE_FILE | _TRUNCATE
_CHANGE: Final = (
    _CHANGE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER
)
_OF_A_FILE: Final = _EXECUTE | _READ_FILE | _CHANGE_FILE
_HANDLED: Final = {2: 14, 3: 15, 4: 15}
_ALL: Final = 16
_SCOPE_ABI: Final = 6
_SCOPES: Final = 0b11


def maybe_ruleset(abi: int, writable: tuple[str, ...]) -> int | None:
    """Return a Landlock ruleset for this process's current root, which allows changes at and below the paths
    `writable`. None if this Landlock ABI is too old for a cell.
    """
    if abi < LEAST_ABI:
        return None
    handled = (1 << _HANDLED.get(abi, _ALL)) - 1
    ruleset = kernel.landlock_create_ruleset(abi, fs=handled, net=0, scoped=_SCOPES if abi >= _SCOPE_ABI else 0)
    kernel.landlock_allow_beneath(ruleset, "/", _SEE)
    for path in writable:
        rights = _SEE | _CHANGE if stat.S_ISDIR(os.stat(path).st_mode) else _OF_A_FILE
        kernel.landlock_allow_beneath(ruleset, path, rights & handled)
    # A debugger writes to /proc/PID/mem; entries that act on the machine are read-only by their mounts.
    kernel.landlock_allow_beneath(ruleset, "/proc", (_SEE | _CHANGE_FILE) & handled)
    kernel.landlock_allow_beneath(ruleset, "/dev", (_SEE | _CHANGE | _IOCTL_DEV) & handled)
    return ruleset
