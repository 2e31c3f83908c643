"""Whose connection to a port of this machine it is, as the kernel says it.

Linux lists every TCP socket with the user it belongs to. A browser is handed the address of a sign-in as an argument, which every
user of the machine can read: this is how another user's answer is told from the person's.

Source: proc_pid_net(5), /proc/net/tcp; Linux, net/ipv4/tcp_ipv4.c. Not here: what is done about it (callback.py).

>>> endpoint_text("127.0.0.1", 8080)
'0100007F:1F90'
"""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["CLOSED", "endpoint_text", "maybe_owner"]

CLOSED: Final = -1
"""Nobody's: no program holds the other end any more. Whose it was the kernel forgets (it then says root)."""
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns


def maybe_owner(connection: socket.socket) -> int | None:
    """The uid of whoever made this connection from the same machine, or CLOSED; None where the kernel does not say.

    Reads files line by line, so that no number of other connections hides one.
    """
    here, there = _spellings(connection.getsockname()), _spellings(connection.getpeername())
    is_listed = False
    for table in _TABLES:
        with contextlib.suppress(OSError), Path(table).open(encoding="ascii", errors="replace") as file:
            for line in file:
                columns = line.split()
                if len(columns) <= _INODE or not columns[_UID].isdecimal():
                    continue
                if columns[_LOCAL] in there and columns[_REMOTE] in here:
                    return CLOSED if columns[_INODE] == "0" else int(columns[_UID])
                is_listed |= columns[_LOCAL] in here and columns[_REMOTE] in there
    return CLOSED if is_listed else None  # our own end is listed: it would list the other too


def _spellings(address: tuple[Any, ...]) -> tuple[str, ...]:
    """As it is listed; a program may connect to 127.0.0.1 as ::ffff:127.0.0.1, and is in the other table then."""
    host, port = address[:2]
    return tuple(endpoint_text(each, port) for each in ((host,) if ":" in host else (host, f"::ffff:{host}")))


def endpoint_text(address: str, port: Any) -> str:
    """As the kernel spells it: each 32 bits of the address in the machine's own order, then the port, in hex."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    spelled = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{spelled}:{int(port):04X}"
