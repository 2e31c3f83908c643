"""Finds the user who owns a connection from this machine, according to the kernel.

Linux lists every TCP socket with the user who owns it. A browser gets the address of a sign-in as a command-line argument,
which every user of the machine can read. The owner of the connection distinguishes the person's answer from another user's.

Source: proc_pid_net(5). Not here: the kernel's table (connections.py), the consequences (callback.py).
"""

from __future__ import annotations

import socket
from typing import Final

from aileron.connections import connections, spellings_of

__all__ = ["CLOSED", "maybe_owner"]

CLOSED: Final = -1
"""Result of `maybe_owner` if no program has the other end of the connection open any longer. The kernel then no longer
knows the connection's owner (and reports root).
"""


def maybe_owner(connection: socket.socket) -> int | None:
    """Return the uid of the user who made this connection from the same machine, or CLOSED; None if the kernel does not list
    the connection.
    """
    here, there = (spellings_of(*name[:2]) for name in (connection.getsockname(), connection.getpeername()))
    is_listed = False
    try:
        for row in connections():
            if row.local in there and row.remote in here:
                return row.uid if row.inode else CLOSED
            is_listed |= row.local in here and row.remote in there
    except OSError:  # a table that cannot be read says nothing
        pass
    return CLOSED if is_listed else None  # our own end is listed: it would list the other too
