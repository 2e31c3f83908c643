"""The service at the other end of a case's WebSocket. It sends and expects one text message for each line of a conversation
(talk.py).

Runs in `connector test`, on a socket whose other end is a WebSocket of egress (egress/websocket_messages.py): the connector's
messages are checked, bounded and counted as in a run. After the last line the service closes the WebSocket with code 1000. Not
here: the choice of the WebSocket (stub.py).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import Final

import httpcore2
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from aileron.connector_tests.talk import Script
from aileron.egress.dial import Wire

__all__ = ["WebSocketService"]

_READ_BYTES: Final = 64 << 10
_NORMAL: Final = 1000


class WebSocketService:
    """The service's end of one WebSocket, which follows a case's script. `talk` runs concurrently with the connector;
    call `finish` after the connector's end is closed.
    """

    def __init__(self, sock: socket.socket, script: Script) -> None:
        self._wire: Final = Wire(sock)
        self._script: Final = script
        self._frames: Final = Connection(ConnectionType.SERVER)
        self._parts: list[str] = []
        self._is_over = False
        self.problem: str | None = None
        """Description of the first message that differs from the expected one."""

    async def talk(self) -> None:
        """Play the service until either end has closed the WebSocket, or a message of the connector differs from the case."""
        with contextlib.suppress(httpcore2.NetworkError):  # the other end is gone
            await self._wire.write(self._said(self._script.said()))
            while not self._is_over:
                data = await self._wire.read(_READ_BYTES)
                if not data:
                    return
                await self._wire.write(self._hear(data))
        if self.problem is not None:
            self._wire.close()

    def finish(self) -> str | None:
        """Check the messages that the connector had sent when it closed its end.

        Return the first expected line that the connector did not send, as written in the case, or None.
        """
        with contextlib.suppress(httpcore2.ReadError):  # everything has arrived
            while not self._is_over and (data := self._wire.read_waiting(_READ_BYTES)):
                self._hear(data)
        self._wire.close()
        return self._script.expected

    def _hear(self, data: bytes) -> bytes:
        try:
            self._frames.receive_data(data)
            return b"".join(map(self._answer, self._frames.events()))
        except ValueError as error:
            self.problem, self._is_over = str(error), True
            return b""

    def _answer(self, event: object) -> bytes:
        """Return the bytes with which the service answers a WebSocket event. Raises ValueError if the event is not expected."""
        match event:
            case Ping():
                return self._frames.send(event.response())
            case TextMessage():
                self._parts.append(event.data)
                if event.message_finished:
                    message, self._parts = "".join(self._parts), []
                    return self._said(self._script.hear_line(message))
            case BytesMessage():
                raise ValueError("a binary message, which a case cannot have")
            case CloseConnection():
                self._is_over = True
                if self._frames.state is ConnectionState.REMOTE_CLOSING:
                    return self._frames.send(event.response())
        return b""

    def _said(self, messages: Iterable[str]) -> bytes:
        said = b"".join(self._frames.send(TextMessage(data=message)) for message in messages)
        if self._script.expected is None:
            said += self._frames.send(CloseConnection(code=_NORMAL))
        return said
