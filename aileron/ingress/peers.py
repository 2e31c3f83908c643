"""Identification of the process that connected to a socket of the home, by more than its process id, which can be reused.

Runs in the daemon. SO_PEERCRED gives the id of the process when it connected. The process may have ended since, and
another may have its id. So the process is identified by its id and its start time (proc_pid_stat(5), field 22). The
start time is read while the kernel says that the process that connected still exists (SO_PEERPIDFD, Linux 6.5).

Before Linux 6.5 the start time is that of the process that has the id when the connection is accepted, microseconds after
it was made. Two processes could be confused only if the first ended within that time and its id was assigned again.

Source: unix(7), SO_PEERCRED; linux/include/uapi/asm-generic/socket.h, SO_PEERPIDFD; pidfd_open(2): readable once it has ended.
Not here: descent (daemon/http/families.py), connections over TCP (daemon/http/peer.py).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PeerProcess", "peer_of_connection", "peer_process", "started_of"]

_SO_PEERPIDFD: Final = 77  # asm-generic/socket.h: x86-64 and arm64 have it so
_STARTED: Final = 19  # field 22, counted from the state, which is field 3
_ENDED: Final = (b"Z", b"X")  # values of field 3: the process runs no longer, and its parent has not reaped it
_PROC: Final = Path("/proc")


class PeerProcess(NamedTuple):
    """A process, identified by its id and its start time in clock ticks since the machine started."""

    pid: int
    started: int


def peer_process(connection: socket.socket) -> int | None:
    """Return the id of the process that connected to a socket of the home. It may have ended since, as unix(7) says
    about SO_PEERCRED.

    None if the process is in a pid namespace that is not visible from this one.
    """
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid or None


def peer_of_connection(connection: socket.socket) -> PeerProcess | None:
    """Return the process at the other end of a Unix socket; None if it has ended, or is in a pid namespace that is
    not visible from this one.

    Call it when the connection is accepted. Blocks for some microseconds. Raises OSError if the process cannot be
    determined, for example because no descriptor is available.
    """
    pid = peer_process(connection)
    started = None if pid is None else started_of(pid)
    if pid is None or started is None or not _is_there(connection):
        return None
    return PeerProcess(pid, started)


def started_of(pid: int) -> int | None:
    """Return a process's start time in clock ticks since the machine started; None if it does not exist or has ended.

    Raises OSError if that cannot be determined.
    """
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last: another user's, proc(5), hidepid
        return None
    fields = line.rpartition(b") ")[2].split()
    return None if fields[0] in _ENDED else int(fields[_STARTED])


def _is_there(connection: socket.socket) -> bool:
    """Return whether the process at the other end of a Unix socket still exists. Call it after the process's id was read."""
    try:
        descriptor = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.ESRCH, errno.EINVAL, errno.ENODATA):
            raise
        return error.errno == errno.ENOPROTOOPT  # before Linux 6.5; the others say that it has gone
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return not waiting.poll(0)
    finally:
        os.close(descriptor)
