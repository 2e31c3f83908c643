"""The kernel's table of TCP connections, with the user and the socket of each end. Used by the web pages and by
sign-ins.

Runs in the caller's process. Lines that do not follow proc_pid_net(5) are skipped.

Source: proc_pid_net(5), /proc/net/tcp and tcp6; Linux, net/ipv4/tcp_ipv4.c. Not here: the process that holds a socket
(daemon/http/peer.py), the reaction to another user's connection (oauth/callback.py).

>>> spellings_of("127.0.0.1", 8080)[0]
'0100007F:1F90'
"""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Connection", "connections", "spellings_of"]

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9  # columns
_TIME_WAIT: Final = "06"  # include/net/tcp_states.h


class Connection(NamedTuple):
    """An end of a TCP connection: its addresses in the kernel's hexadecimal spelling, its user id, and the inode of
    its socket (0 if no process holds the socket).
    """

    local: str
    remote: str
    uid: int
    inode: int
    is_waiting: bool
    """True if the connection is closed, and no longer belongs to a process (TIME_WAIT)."""


def connections() -> Iterator[Connection]:
    """Yield each end of each TCP connection on this machine. The kernel's tables are read line by line and to their
    end, however many connections there are. Raises OSError; a missing table for IPv6 is not an error.
    """
    for table in _TABLES:
        with (
            contextlib.suppress(FileNotFoundError),
            Path(table).open(encoding="ascii", errors="replace") as file,
        ):
            for line in file:
                columns = line.split()
                if len(columns) > _INODE and columns[_UID].isdecimal() and columns[_INODE].isdecimal():
                    is_waiting = columns[_STATE] == _TIME_WAIT
                    uid, inode = int(columns[_UID]), int(columns[_INODE])
                    yield Connection(columns[_LOCAL], columns[_REMOTE], uid, inode, is_waiting)


def spellings_of(address: str, port: int) -> tuple[str, ...]:
    """Return the forms in which the kernel's tables write an address and a port. An IPv4 address has two spellings,
    because an IPv6 socket that speaks IPv4 is in the table for IPv6. Raises ValueError if the text is not an address.
    """
    found = ipaddress.ip_address(address)
    packed = [found.packed]
    if found.version == 4:
        packed.append(b"\0" * 10 + b"\xff\xff" + found.packed)
    return tuple(f"{_hex(octets)}:{port:04X}" for octets in packed)


def _hex(packed: bytes) -> str:
    """Return the 32-bit words of a packed address in hexadecimal, each in the machine's byte order."""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
