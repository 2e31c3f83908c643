"""Ports of loopback for servers that must be told theirs before they start.

    (port,) = reserve_ports(1)

The kernel may give a port that was free a moment ago to the next connection or listener that asks for any port. These ports
stay bound here, with SO_REUSEADDR and without listening, so the kernel gives them to no other (inet_csk_get_port,
__inet_hash_connect), and a server that sets SO_REUSEADDR too, as servers do, can still listen there. Until one does,
connections are refused, so they also serve tests that need a port without a listener.

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
"""Descriptors that stay open. By the time the oldest is closed its server listens, or has ended."""


def reserve_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports of an address of this machine that no other program is given."""
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
