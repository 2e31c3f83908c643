"""Packets between the daemon and its processes, with descriptors, and who sent them: unix(7), SOCK_SEQPACKET.

Runs on both sides. Not here: what the packets mean.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from typing import Final, NamedTuple

__all__ = ["FULL_PAUSE_S", "Received", "are_free", "packet_socket", "received_with"]

FULL_PAUSE_S: Final = 1.0
"""Between two looks for a free descriptor: asyncio's servers wait as long."""

_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred: a process, its user and its group; unix(7)."""


class Received(NamedTuple):
    """A packet, what came along, and the process that sent it: by the kernel's word, where it was asked for (SO_PASSCRED)."""

    packet: bytes
    descriptors: list[int]
    sender: int | None


def received_with(sock: socket.socket, size: int, most: int, flags: int = 0) -> Received:
    """`size` bytes of the next packet, none at the end, and `most` descriptors that came along at most; no program that is
    executed inherits them.

    OSError, of which BlockingIOError. socket.recv_fds takes flags and leaves them out.
    """
    passed = array.array("i")
    sender = None
    space = socket.CMSG_SPACE(most * passed.itemsize) + socket.CMSG_SPACE(_CREDENTIALS.size)
    packet, ancillary, _, _ = sock.recvmsg(size, space, flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        match level, kind:
            case socket.SOL_SOCKET, socket.SCM_RIGHTS:
                passed.frombytes(data[: len(data) - len(data) % passed.itemsize])
            case socket.SOL_SOCKET, socket.SCM_CREDENTIALS:
                sender, _, _ = _CREDENTIALS.unpack(data)
    for one in passed[most:]:  # there was room for them where nobody asked for the sender
        os.close(one)
    return Received(packet, list(passed[:most]), sender)


def are_free(count: int, descriptor: int) -> bool:
    """Tell whether so many more descriptors can be had, by copies of `descriptor` that are closed again.

    Ask before `received_with`: the kernel drops what comes along and finds no number, unix(7).
    """
    with contextlib.ExitStack() as held:
        try:
            for _ in range(count):
                held.callback(os.close, os.dup(descriptor))
        except OSError:
            return False
    return True


def packet_socket(descriptor: int) -> socket.socket:
    """The socket that was passed. ValueError says what it is where it is none for packets; then it is closed."""
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise ValueError("something that is no socket") from None
    if (passed.family, passed.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        return passed
    passed.close()
    raise ValueError("a socket of another kind")
