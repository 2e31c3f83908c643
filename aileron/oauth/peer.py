"""Whose connection to a port of this machine it is, as the kernel says it.

Linux lists every TCP socket with the user it belongs to. A browser is handed the address of a sign-in as an argument, which every
user of the machine can read: this is how another user's answer is told from the person's.

Source: proc_pid_net(5). Not here: the kernel's table (connections.py), what is done about it (callback.py).
"""

from __future__ import annotations

import socket
from typing import Final

from aileron.connections import connections, spellings_of

__all__ = ["CLOSED", "maybe_owner"]

CLOSED: Final = -1
"""Nobody's: no program holds the other end any more. Whose it was the kernel forgets (it then says root)."""


def maybe_owner(connection: socket.socket) -> int | None:
    """The uid of whoever made this connection from the same machine, or CLOSED; None where the kernel does not say."""
    here, there = (spellings_of(*name[:2]) for name in (connection.getsockname(), connection.getpeername()))
    is_listed = False
    try:
        for one in connections():
            if one.local in there and one.remote in here:
                return one.uid if one.inode else CLOSED
            is_listed |= one.local in here and one.remote in there
    except OSError:  # a table that cannot be read says nothing
        pass
    return CLOSED if is_listed else None  # our own end is listed: it would list the other too
