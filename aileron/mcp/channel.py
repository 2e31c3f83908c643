"""A stream of messages between two processes of Aileron. A message is its length in four bytes, big-endian, followed by
that number of bytes.

Runs on both sides of a channel (process_messages.py) and trusts neither. A message is written completely or not at all,
even if its writer is cancelled. If one side does not read, the other side's `put` blocks. A side that cannot take more
messages calls `pause`, which blocks the other side, too.

Rules
- The maximum size of a message is given when the channel is made. A longer message, or a message that `take` refuses with
  MessageError, ends the channel.
- At most AT_ONCE messages are taken in one turn of the event loop; then other tasks run.
- After the channel's end no message is taken, and new messages are discarded.

Source: asyncio's flow control of transports and protocols. Not here: the meaning of the messages (asking.py, answering.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from aileron.mcp.process_messages import MessageError

__all__ = ["AT_ONCE", "Channel", "is_taken", "take"]

AT_ONCE: Final = 64
"""Maximum number of messages taken in one turn of the event loop. Taking one message takes microseconds;
taking one for each request that a connection can have open takes less than a millisecond.
"""
_LENGTH: Final = 4
_TAKEN: Final = b"+"
_log = logging.getLogger(__name__)


async def is_taken(sock: socket.socket) -> bool:
    """Wait until the other side confirms with `take` that it uses its end of the socket pair, or disconnects. Return
    whether it confirmed.
    """
    sock.setblocking(False)
    try:
        return bool(await asyncio.get_running_loop().sock_recv(sock, len(_TAKEN)))
    except ConnectionError:
        return False


def take(sock: socket.socket) -> None:
    """Confirm to the other side of a socket pair that this side uses its end. The confirmation is one byte, sent before
    any message.
    """
    sock.send(_TAKEN)


class Channel(asyncio.Protocol):
    """An end of a channel for messages between the daemon and the MCP process. The function `take` is called with each
    received message, and `ended` when the channel ends; neither may block.
    """

    def __init__(self, take: Callable[[bytes], None], most: int, ended: Callable[[], None] = lambda: None) -> None:
        self._take = take
        self._most = most
        self._ended = ended
        self._held = bytearray()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._over = asyncio.Event()
        self._is_paused = False
        self._is_due = False  # held messages are taken in the next turn

    async def open(self, sock: socket.socket) -> None:
        """Start the channel on this end of a socket pair. The channel owns the socket from now on."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    async def put(self, message: bytes) -> None:
        """Send a message once the other side has read enough of the earlier data."""
        await self._writable.wait()
        self.put_at_once(message)

    def put_at_once(self, message: bytes) -> None:
        """Send a short message at once, without waiting for the other side to read."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(message).to_bytes(_LENGTH, "big") + message)

    def pause(self) -> None:
        """Stop calling `take` until `resume`."""
        self._is_paused = True
        self._read_or_not()

    def resume(self) -> None:
        """Take messages again, beginning with those that have already arrived."""
        if self._is_paused:
            self._is_paused = False
            self._take_held()

    def close(self) -> None:
        """Close the channel immediately."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_over(self) -> None:
        """Wait until either side has ended the channel."""
        await self._over.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the open connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass each message that is now complete to `take`."""
        self._held += data
        if not self._is_due:
            self._take_held()

    def pause_writing(self) -> None:
        """Block `put`, because the other side does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Unblock `put`, because the other side reads again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the channel has ended, and end all waits on it."""
        self._held.clear()
        self._writable.set()
        self._over.set()
        self._ended()

    def _take_held(self) -> None:
        self._is_due = False
        try:
            for _ in range(AT_ONCE):
                if self._is_paused or (message := self._next()) is None:
                    break
                self._take(message)
            else:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._take_held)
        except MessageError as error:
            _log.error("a channel was ended: %s", error)
            self.close()
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_paused or self._is_due:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _next(self) -> bytes | None:
        """Return the next message, or None while it is incomplete. Raises MessageError if it is too long."""
        if len(self._held) < _LENGTH:
            return None
        end = _LENGTH + int.from_bytes(self._held[:_LENGTH], "big")
        if end - _LENGTH > self._most:
            raise MessageError(f"a message of {end - _LENGTH} bytes: at most {self._most} are taken")
        if len(self._held) < end:
            return None
        message = bytes(self._held[_LENGTH:end])
        del self._held[:end]
        return message
