"""Receiving packets with descriptors and the sender's process id, as the daemon and its helper processes send them.
unix(7), SOCK_SEQPACKET.

Runs on both sides. Not here: the meaning of the packets.
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
"""Seconds between two checks for a free descriptor, as in asyncio's servers."""

_CREDENTIALS: Final = struct.Struct("iII")
"""The layout of struct ucred: a process id, its user id and its group id; unix(7)."""


class Received(NamedTuple):
    """A received packet with its descriptors and its sender's process id. The kernel provides that id only if
    SO_PASSCRED is set.
    """

    packet: bytes
    descriptors: list[int]
    sender: int | None


def received_with(sock: socket.socket, size: int, most: int, flags: int = 0) -> Received:
    """Receive at most `size` bytes of the next packet and at most `most` descriptors, which are close-on-exec. The
    bytes are b"" at the end of the stream.

    Raises OSError, including BlockingIOError. socket.recv_fds cannot be used, because it ignores its flags.
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
    for descriptor in passed[most:]:  # without SO_PASSCRED, the ancillary buffer has room for more
        os.close(descriptor)
    return Received(packet, list(passed[:most]), sender)


def are_free(count: int, descriptor: int) -> bool:
    """Return whether this process can open `count` more descriptors, by making copies of `descriptor` and closing them again.

    Call it before `received_with`: the kernel drops received descriptors for which there is no free number, unix(7).
    """
    with contextlib.ExitStack() as held:
        try:
            for _ in range(count):
                held.callback(os.close, os.dup(descriptor))
        except OSError:
            return False
    return True


def packet_socket(descriptor: int) -> socket.socket:
    """Return the passed descriptor as a packet socket. If it is another kind of file, close it and raise ValueError
    with its kind.
    """
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise ValueError("something that is no socket") from None
    if (passed.family, passed.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        return passed
    passed.close()
    raise ValueError("a socket of another kind")
