"""The daemon's end of the process that speaks the protocol: starts it, hands agents over to it, and hears when it rests.

Runs in the daemon, which parses nothing here but typed messages (mcp/messages.py). What is handed over is the process's alone:
the daemon keeps no copy of an agent's connection.

Rules
- Nothing is said before the process has hidden: what it is started with may be somebody else's as well (hidden/process.py).
- Each call on the control socket says itself that it does not wait: O_NONBLOCK is the process's, too.
- An agent is the process's once that says so, on the agent's channel, before it reads a byte. Until then another can have it.
- It is let go of once it says that it rests and has taken everything that was handed over, so that nobody is lost on the way.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md; unix(7). Not here: when it is started, and for whom (mcp.py), the other end
(mcp/process.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import subprocess
from collections.abc import AsyncIterator
from typing import Final

import anyio
import anyio.lowlevel

from aileron.hidden.start import control_of, ended, execute_program, received, send, started
from aileron.mcp.channel import is_taken
from aileron.mcp.messages import (
    MAX_PACKET,
    Connection,
    Message,
    MessageError,
    Ready,
    Request,
    Resting,
    Start,
    decode_from_process,
    encode,
)

__all__ = ["ProtocolProcess", "protocol_process"]

START_S: Final = 20.0
"""For it to import the SDK and to confine itself: half a second where nothing else runs."""
_log = logging.getLogger(__name__)


class ProtocolProcess:
    """The process, once it serves."""

    def __init__(self, control: socket.socket, ready: Ready) -> None:
        self._control: Final = control
        self._handed = 0
        self._handing = anyio.Lock()
        self.handshake: Final = ready.handshake
        self.modern: Final = ready.modern
        """The versions of the protocol that it speaks, by how they begin."""

    async def maybe_take(self, message: Connection | Request, given: socket.socket) -> socket.socket | None:
        """Hand an agent over, by a connection or an exchange that stays open here as well, and return our end of its channel.
        None where the process has gone, and has seen nothing of the agent. OSError.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                async with self._handing:  # one waits for the socket, and the others for that one
                    await send(self._control, encode(message), [given, theirs])
                    self._handed += 1
            if await is_taken(ours):
                return ours
        except ConnectionError:
            pass  # it has gone
        except BaseException:
            ours.close()
            raise
        ours.close()
        return None

    async def tell(self, message: Message) -> None:
        """Say something that no agent comes with. OSError where it has gone."""
        async with self._handing:
            await send(self._control, encode(message))

    async def wait_over(self) -> bool:
        """Return whether nobody needs it any more, once that is so, or once it has gone or said what it cannot say."""
        try:
            while packet := await received(self._control, MAX_PACKET):
                await anyio.lowlevel.checkpoint()  # others have their turn, whatever it says and how often
                word = decode_from_process(packet)
                if not isinstance(word, Resting):
                    raise MessageError("a second beginning")
                if word.taken == self._handed and not self._handing.locked():
                    return True
        except (OSError, MessageError) as error:
            _log.error("the process that speaks with agents ended, or said what is none of its messages: %s", error)
        return False


@contextlib.asynccontextmanager
async def protocol_process(version: str, rest_s: float) -> AsyncIterator[ProtocolProcess]:
    """Start it, and end it afterwards. It says that it rests when nobody used it for `rest_s`. OSError, MessageError."""
    ours, process = started(_execute)
    try:
        with ours:
            control = await control_of(process.pid, ours)
        with control:
            control.sendmsg([encode(Start(version, rest_s))], [], socket.MSG_DONTWAIT)
            yield ProtocolProcess(control, await _ready(control))
    finally:
        with anyio.CancelScope(shield=True):
            await ended(process)


async def _ready(control: socket.socket) -> Ready:
    with anyio.move_on_after(START_S) as waiting:
        packet = await received(control, MAX_PACKET)
    if waiting.cancelled_caught:
        raise OSError(errno.ETIMEDOUT, f"it did not begin to serve within {START_S:.0f} s")
    if not packet:
        raise OSError(errno.EPIPE, "it ended before it served; the daemon's log says why")
    word = decode_from_process(packet)
    if not isinstance(word, Ready):
        raise MessageError("not the first word of a process that serves")
    return word


def _execute(control: int) -> subprocess.Popen[bytes]:
    return execute_program("aileron.mcp", control)
