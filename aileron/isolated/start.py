"""The daemon's side: the daemon starts a helper program, receives the control socket that the program made once it was
hidden, and communicates over that socket.

The two processes share the open file description of a passed socket, including O_NONBLOCK, which the other process
may clear (open(2)). So each call on such a socket sets MSG_DONTWAIT.

Source: docs/adr/0031-ingress.md. Not here: when a program is started again (daemon/http/ingress.py, logins/keeper.py).
"""

from __future__ import annotations

import array
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio

from aileron.isolated.packets import packet_socket, received_with

__all__ = ["control_of", "ended", "execute_program", "received", "send", "started"]

HIDE_S: Final = 10.0
"""Seconds to wait for a program's report that it has hidden, which comes before large imports: 0.1 s on an idle machine."""
_END_S: Final = 1.0
_LOOK_S: Final = 0.01


def started(execute: Callable[[int], subprocess.Popen[bytes]]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a helper process by calling `execute` with that process's end of a new socket, as a descriptor. Return the
    daemon's end and the process. Raises OSError if that fails.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            return ours, execute(theirs.fileno())
        except BaseException:
            ours.close()
            raise


async def control_of(process: int, ours: socket.socket) -> socket.socket:
    """Wait until the helper process has hidden itself and sends one end of its control socket, and return that end. It
    arrives over `ours`, the daemon's end of the socket from `started`. Raises OSError if none arrives, or it is not
    valid.
    """
    with anyio.move_on_after(HIDE_S) as waiting:
        await anyio.wait_readable(ours)
    if waiting.cancelled_caught:
        raise OSError(errno.ETIMEDOUT, f"it did not hide within {HIDE_S:.0f} s")
    packet, descriptors, sender = received_with(ours, 16, 1, socket.MSG_DONTWAIT)
    passed = [sock for sock in map(_maybe_socket, descriptors) if sock is not None]
    if packet and sender == process and len(passed) == 1:
        return passed[0]
    for sock in passed:
        sock.close()
    if packet and sender != process:
        raise OSError(errno.EPERM, f"process {sender} spoke in its place: it has taken a descriptor of it")
    raise OSError(errno.EPIPE, "it ended before it had hidden")


def execute_program(
    module: str, control: int, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Execute a module as a new program that inherits only one end of a socket. vfork(2) and execve(2) take two milliseconds."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(control), *words],
        pass_fds=[control],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**(environment or {}), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # as the daemon has it
    )


async def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until the helper process has ended, which it does when its control socket is closed. Kill the process if
    that takes more than a second.
    """
    with anyio.move_on_after(_END_S):
        await _wait_reaped(process)
        return
    process.kill()
    await _wait_reaped(process)


async def received(sock: socket.socket, size: int) -> bytes:
    """Return the next packet from the socket, or b"" at the end of the stream. Raises OSError if none can be received."""
    while True:
        try:
            return sock.recv(size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            await anyio.wait_readable(sock)


async def send(sock: socket.socket, packet: bytes, passed: Sequence[socket.socket] = ()) -> None:
    """Send one complete packet, with the sockets in `passed`. Raises OSError if it cannot be sent."""
    rights = array.array("i", [given.fileno() for given in passed])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if passed else []
    while True:
        try:
            sock.sendmsg([packet], ancillary, socket.MSG_DONTWAIT)
        except BlockingIOError:
            await anyio.wait_writable(sock)
        else:
            return


async def _wait_reaped(process: subprocess.Popen[bytes]) -> None:
    # Poll, because no thread or descriptor to wait with may be available.
    while process.poll() is None:  # noqa: ASYNC110 - nothing in this process could set an event
        await anyio.sleep(_LOOK_S)


def _maybe_socket(descriptor: int) -> socket.socket | None:
    try:
        return packet_socket(descriptor)
    except ValueError:
        return None
