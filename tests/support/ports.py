"""Ports of loopback for servers that have to be told theirs before they start.

    (port,) = reserve_ports(1)

A port that was free a moment ago is anybody's: the kernel gives it to the next connection or listener that asks for any. These
stay bound here, with SO_REUSEADDR and without listening: the kernel gives them to nobody (inet_csk_get_port,
__inet_hash_connect), and a server that sets SO_REUSEADDR too, as servers do, can still listen there. Until one does,
connections are refused: what needs a port at which nobody listens takes one of these too.

Source: ip(7), socket(7). A server that takes port 0, or a listening socket, needs none.
"""

from __future__ import annotations

import collections
import os
import socket
from typing import Final

__all__ = ["reserve_ports"]

_held: Final[collections.deque[int]] = collections.deque()
_MAX_HELD: Final = 64
"""Descriptors. By the time the oldest is let go its server listens, or has ended."""


def reserve_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return so many ports of an address of this machine that nobody else is given, all different."""
    ports = []
    for _port in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, 0))
        ports.append(sock.getsockname()[1])
        _held.append(sock.detach())  # a descriptor: an open socket would be a warning when this process ends
    while len(_held) > _MAX_HELD:
        os.close(_held.popleft())
    return ports
