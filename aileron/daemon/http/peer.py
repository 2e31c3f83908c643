"""Identifies the process at the other end of a loopback connection, according to the kernel and not to the caller.

Runs in the daemon, as the user it serves. A cookie is stored in a file of the browser's profile, which any process of the same
user can read, but the process that sends the cookie cannot be faked. So a page that was unlocked by one process is served only
to that process (web/sessions.py).

    /proc/net/tcp, tcp6   the connection, seen from its client → an inode and a uid
    /proc/PID/fd          the holder of a socket with that inode → one process, and its start time

Rules
- The result is exactly one process of our own user, or none. A socket is treated like an attack if two processes hold it, if
  its holders may not be inspected (another user's process, or one that is not dumpable), or if it belongs to another network
  namespace.
- A process is identified by its number and its start time (proc_pid_stat(5), field 22): the kernel reuses numbers.
- A process does not count as a holder if it has ended or may not be inspected. On any other error, such as no free descriptor,
  no process is identified, because a second holder may have been missed.
- A connection that was closed meanwhile is `GONE`: no client reads the response, and no client is suspected.
- The process is looked up again for each request, because a connection can be passed to another process between two requests.

A browser may do its networking in a separate process (Chromium does). That process is identified, and must be readable.

Source: proc_net(5), proc_pid_fd(5), proc_pid_stat(5), ptrace(2) (PTRACE_MODE_READ_FSCREDS); docs/reference/page.md. Not
here: the kernel's table (connections.py), admission (web/admission.py).
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aileron.connections import Connection, connections, spellings_of

__all__ = ["NoPeer", "Peer", "peer_of", "variable_of"]

_PROC: Final = Path("/proc")
_TRIES: Final = 4
_PAUSE_S: Final = 0.03
"""Seconds between two attempts: when a browser starts a process, two processes hold its sockets between fork(2) and execve(2),
for 1-2 ms.
"""
_NOT_SEEN: Final = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors from reading a process that has ended, belongs to another user, or is not dumpable: proc_pid_fd(5)."""
_STARTED: Final = 19  # field 22, counted from the state, which is field 3


class Peer(NamedTuple):
    """A process: its number, its start time (clock ticks since boot), and the name that it gives itself."""

    pid: int
    started: int
    name: str

    def is_same(self, other: Peer) -> bool:
        """Return whether `other` is the same process, whatever name it has now."""
        return (self.pid, self.started) == (other.pid, other.started)


class NoPeer(enum.StrEnum):
    """Reason why no process can be identified."""

    GONE = "the connection has gone"
    ANOTHER_USER = "another user's process holds it"
    UNSEEN = "no process that this user may look into holds it"
    SEVERAL = "more than one process holds it"


def variable_of(pid: int, name: str) -> str | None:
    """Return a variable from the environment that a process was started with; None if the variable is not set, or if
    the process has ended or may not be inspected.

    The parent of the process chose this environment, and the process may have changed it since. So only the presence of a
    variable is evidence; its absence proves nothing. Raises OSError if the environment cannot be read now, for example without
    a free descriptor.
    """
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except _NOT_SEEN:
        return None
    wanted = name.encode() + b"="
    found = next((variable for variable in data.split(b"\0") if variable.startswith(wanted)), None)
    return None if found is None else found[len(wanted) :].decode("utf-8", "replace")


def peer_of(client: tuple[str, int], server: tuple[str, int]) -> Peer | NoPeer:
    """Return the process that holds the end `client` of the connection to `server`; both are (address, port) on loopback.
    Blocks for some milliseconds.

    Raises ValueError for an invalid address, OSError if /proc cannot be read now, for example without a free descriptor.
    """
    local, remote = spellings_of(*client), spellings_of(*server)
    for _ in range(_TRIES - 1):
        found = _looked_up(local, remote)
        if found is not NoPeer.SEVERAL:
            return found
        time.sleep(_PAUSE_S)
    return _looked_up(local, remote)


def _looked_up(local: tuple[str, ...], remote: tuple[str, ...]) -> Peer | NoPeer:
    end = _end(local, remote)
    if end is None:
        return NoPeer.GONE
    if end.uid != os.geteuid():
        return NoPeer.ANOTHER_USER
    holders = list(_holders(end.inode))
    if len(holders) > 1:
        return NoPeer.SEVERAL
    if _end(local, remote) != end:  # closed meanwhile: the process found may not be its holder
        return NoPeer.GONE
    return holders[0] if holders else NoPeer.UNSEEN


def _end(local: tuple[str, ...], remote: tuple[str, ...]) -> Connection | None:
    """Return the entry of the connection from `local` to `remote`, as seen from `local`; None if no process holds that end any
    longer.
    """
    for connection in connections():
        if connection.local in local and connection.remote in remote and not connection.is_waiting:
            return connection if connection.inode else None
    return None


def _holders(inode: int) -> Iterator[Peer]:
    """Yield every process that has an open socket with this inode, as far as this process may inspect others."""
    wanted = f"socket:[{inode}]"
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdecimal() and _has(entry.path, wanted):
                found = _process(int(entry.name))
                if found is not None:
                    yield found


def _has(process: str, wanted: str) -> bool:
    try:
        numbers = os.listdir(f"{process}/fd")
    except _NOT_SEEN:
        return False
    for number in numbers:
        try:
            if os.readlink(f"{process}/fd/{number}") == wanted:
                return True
        except _NOT_SEEN:  # closed meanwhile
            continue
    return False


def _process(pid: int) -> Peer | None:
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except _NOT_SEEN:
        return None
    name, _, rest = line.partition(b"(")[2].rpartition(b") ")
    return Peer(pid, int(rest.split()[_STARTED]), name.decode("utf-8", "replace"))
