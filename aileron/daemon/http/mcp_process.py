"""The daemon's end of the process that speaks the agents' protocol (MCP). It starts the process, passes agents to it,
and notices when no agent needs it.

Runs in the daemon, which parses nothing here but typed messages (mcp/process_messages.py). After a connection was passed, only
the process has it: the daemon keeps no copy of an agent's connection.

Rules
- No message is sent before the process has made itself inaccessible to other processes, which may share the socket that it is
  started with (isolated/process.py).
- Each call on the control socket uses MSG_DONTWAIT, because the process shares the flag O_NONBLOCK and may clear it.
- The process owns an agent once it has confirmed, on the agent's channel, that it took the agent. It does so before it reads a
  byte. Until then, the agent can still be passed to another process.
- The process is ended once it reports that it is unused and has taken every agent that was passed to it, so that no agent is
  lost.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md; unix(7). Not here: when to start it (mcp.py), the other end
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

from aileron.isolated.start import control_of, ended, execute_program, received, send, started
from aileron.mcp.channel import is_taken
from aileron.mcp.process_messages import (
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
"""Seconds to wait for the process to import the SDK and to confine itself, which takes half a second on an idle machine."""
_log = logging.getLogger(__name__)


class ProtocolProcess:
    """The daemon's handle of the protocol process. It is created once the process serves."""

    def __init__(self, control: socket.socket, ready: Ready) -> None:
        self._control: Final = control
        self._handed = 0
        self._handing = anyio.Lock()
        self.handshake: Final = ready.handshake
        self.modern: Final = ready.modern
        """Versions of the Model Context Protocol that the process speaks: in `handshake` those in which a connection begins with
        a handshake, in `modern` the others.
        """

    async def maybe_take(self, message: Connection | Request, given: socket.socket) -> socket.socket | None:
        """Pass `given`, an agent's connection or exchange, to the process, and return the daemon's end of the agent's channel.
        `given` stays open here as well. Return None if the process ended before it read anything from the agent. Raises OSError
        if the process cannot be reached for another reason.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                async with self._handing:  # one task waits for the socket, and the others for that task
                    await send(self._control, encode(message), [given, theirs])
                    self._handed += 1
            if await is_taken(ours):
                return ours
        except ConnectionError:
            pass  # the process has gone
        except BaseException:
            ours.close()
            raise
        ours.close()
        return None

    async def tell(self, message: Message) -> None:
        """Send the process a message that comes without an agent's connection. Raises OSError if the process has ended."""
        async with self._handing:
            await send(self._control, encode(message))

    async def wait_over(self) -> bool:
        """Wait until no agent needs the process, or until it has ended or sent an invalid message. Return True if no agent
        needs it.
        """
        try:
            while packet := await received(self._control, MAX_PACKET):
                await anyio.lowlevel.checkpoint()  # other tasks have their turn, however often it sends
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
    """Start the protocol process, and end it after the block. The process reports that it is unused after `rest_s` seconds
    without an agent. Raises OSError or MessageError if the process does not start correctly.
    """
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
