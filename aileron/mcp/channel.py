"""A stream of messages between two of our processes: each is its length in four bytes, big-endian, and that number of bytes.

Runs on both sides of a channel (messages.py) and trusts neither. A message is written whole or not at all, whenever its writer
is cancelled; a side that does not read stops the writer in `put`. A side that cannot take more messages stops the other with
`pause`.

Rules
- A message has at most the number of bytes given when the channel was made. A longer one, or one that `take` refuses with
  MessageError, ends the channel.
- AT_ONCE messages are taken in one turn of the event loop; then other tasks have theirs.
- After the channel's end no message is taken, and one that is put is thrown away.

Source: asyncio's flow control of transports and protocols. Not here: what the messages mean (asking.py, answering.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from aileron.mcp.messages import MessageError

__all__ = ["AT_ONCE", "Channel", "is_taken", "take"]

AT_ONCE: Final = 64
"""Messages taken in one turn: one takes microseconds, and as many as a connection can have under way less than a millisecond."""
_LENGTH: Final = 4
_TAKEN: Final = b"+"
_log = logging.getLogger(__name__)


async def is_taken(sock: socket.socket) -> bool:
    """Wait until the other side has begun on its end of the socket pair, or has gone. Return whether it has begun."""
    sock.setblocking(False)
    try:
        return bool(await asyncio.get_running_loop().sock_recv(sock, len(_TAKEN)))
    except ConnectionError:
        return False


def take(sock: socket.socket) -> None:
    """Tell the other side of a socket pair that this side has begun: the first byte, before any message."""
    sock.send(_TAKEN)


class Channel(asyncio.Protocol):
    """An end of a channel. `take` gets each message, and returns at once; so does `ended`, which is called
    when the channel ends.
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
        """Begin on this end of a socket pair, which is the channel's from now on."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    async def put(self, message: bytes) -> None:
        """Send a message once the other side has read what was sent before."""
        await self._writable.wait()
        self.put_at_once(message)

    def put_at_once(self, message: bytes) -> None:
        """Send a few bytes, whatever waits to be read."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(message).to_bytes(_LENGTH, "big") + message)

    def pause(self) -> None:
        """Take no more messages for now."""
        self._is_paused = True
        self._read_or_not()

    def resume(self) -> None:
        """Take messages again, first those that are here already."""
        if self._is_paused:
            self._is_paused = False
            self._take_held()

    def close(self) -> None:
        """End the channel, at once."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_over(self) -> None:
        """Wait until either side has ended the channel."""
        await self._over.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the open connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take each message that is whole now."""
        self._held += data
        if not self._is_due:
            self._take_held()

    def pause_writing(self) -> None:
        """Stop `put`: the other side does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let `put` go on: the other side reads again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the channel is over, and end all waits for it."""
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
        """Return the next message, or None until it is here whole. MessageError."""
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
