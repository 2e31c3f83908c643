"""Adapter for the asynchronous client of the library `websockets`: its `websockets.asyncio.client.connect` opens a
WebSocket through the host.

The library's client runs unchanged, over an asyncio transport without a socket. Inside the transport, the same
library's server protocol, which does no I/O, answers the client's handshake as the service answered the host, and
translates between WebSocket frames and the host's messages. Reconnecting, limits, queues and exceptions stay the
library's. The client's pings are answered here, the service's by the host.

Runs inside the jail, in the thread of its event loop. Sending is not asynchronous: a message blocks the loop until the host has
taken it. Source: https://docs.python.org/3/library/asyncio-protocol.html. Not here: the synchronous client (websockets.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from http import HTTPStatus
from types import ModuleType
from typing import Any, Final

from aileron_connector import http, loop
from aileron_connector.transports.credentials import check_no_placeholder, name_credential
from aileron_sandbox.frames import (
    Chunk,
    Frame,
    HttpHead,
    Refused,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpened,
    is_close_code,
)

__all__ = ["change_asyncio_client"]

_OPENS: Final = ("open_tcp_connection", "create_connection")
"""Names of the method that makes the connection: the first since version 17 of the library, the second before."""
_OF_THE_HANDSHAKE: Final = ("connection", "upgrade", "host", "sec-websocket-")
_PART_BYTES: Final = 1 << 20
_TEXT: Final = 1  # RFC 6455 section 5.2
_BINARY: Final = 2
_CLOSE: Final = 8


def change_asyncio_client(module: ModuleType) -> None:
    """Make `connect` of websockets.asyncio.client open a WebSocket through the host within an invocation. If the caller
    passes a socket, `connect` works as usual.
    """
    kind = module.connect
    name = next((method for method in _OPENS if method in vars(kind)), None)
    if name is None:
        return  # an unknown version, which fails like any library that opens sockets
    original = getattr(kind, name)

    async def open_connection(self: Any) -> Any:
        is_own = {"sock", "unix"}.intersection(getattr(self, "create_connection_kwargs", {}))
        if loop.maybe_current() is None or is_own:
            return await original(self)
        factory = self.factory if hasattr(self, "factory") else self.protocol_factory
        connection = factory(sys.modules["websockets.uri"].parse_uri(self.uri))
        connection.connection_made(_Transport(connection, self.uri))
        return connection

    setattr(kind, name, open_connection)


class _Transport(asyncio.Transport):
    """The asyncio transport for the library's client. It passes bytes between the client and the library's server
    protocol, and messages between that protocol and the host.
    """

    def __init__(self, connection: Any, uri: str) -> None:
        super().__init__()
        from websockets.server import ServerProtocol

        self._connection: Final = connection
        self._uri: Final = uri
        self._server: Final = ServerProtocol(
            max_size=None, select_subprotocol=lambda _server, _offered: self._subprotocol
        )
        self._conversation: Final = loop.current()
        self._id: int | None = None
        self._subprotocol: Any = None
        self._text = False  # True if the message that is being sent is text
        self._is_closing = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._task: asyncio.Task[None] | None = None

    def write(self, data: Any) -> None:
        self._server.receive_data(bytes(data))
        for event in self._server.events_received():
            if hasattr(event, "opcode"):
                self._take_frame(event)
            else:
                self._ask(event)
        self._flush()
        if self._server.parser_exc is not None:  # as a server does, because further bytes cannot be parsed
            self._end(self._server.parser_exc)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits. Nothing is buffered, because each write is sent at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def _ask(self, request: Any) -> None:
        """Request a WebSocket from the host for the client's handshake."""
        fields = [
            (name, value)
            for name, value in request.headers.raw_items()
            if not name.lower().startswith(_OF_THE_HANDSHAKE)
        ]
        offered = [
            part.strip() for line in request.headers.get_all("Sec-WebSocket-Protocol") for part in line.split(",")
        ]
        host = self._uri.partition("://")[2].partition("/")[0].partition(":")[0].lower()
        url, kept, credential = name_credential(self._uri, fields, host)
        self._id = self._conversation.open_websocket(url, kept, offered, credential)
        self._task = asyncio.get_running_loop().create_task(self._relay(self._id, request))

    def _take_frame(self, frame: Any) -> None:
        """Forward a frame of the client after the handshake. Pings were already answered."""
        if self._id is None or self._is_closing:
            return
        if frame.opcode == _CLOSE:
            self._conversation.say(_closing(self._id, bytes(frame.data)), b"")
            return
        if frame.opcode > _BINARY:
            return
        if frame.opcode:
            self._text = frame.opcode == _TEXT
        data = memoryview(bytes(frame.data))
        check_no_placeholder(data)
        for at in range(0, len(data) or 1, _PART_BYTES):
            is_last = frame.fin and at + _PART_BYTES >= len(data)
            part = WebSocketMessage(id=self._id, text=self._text, more=not is_last)
            self._conversation.say(part, data[at : at + _PART_BYTES])

    async def _relay(self, request_id: int, request: Any) -> None:
        """Forward to the client everything that the host reports about the WebSocket."""
        error: Exception | None = None
        try:
            first = await _next_frame(self._conversation, request_id)
            if isinstance(first.message, WebSocketOpened):
                self._accept(first.message, request)
                await self._messages(request_id)
            elif isinstance(first.message, HttpHead):
                await self._decline(request_id, first.message)
            elif isinstance(first.message, Refused):
                raise ConnectionError(first.message.error.message) from http.refusal(first.message.error)
        except (ConnectionError, MemoryError) as lost:
            error = lost
        finally:
            self._end(error)

    def _accept(self, opened: WebSocketOpened, request: Any) -> None:
        self._subprotocol = opened.subprotocol
        response = self._server.accept(request)
        for name, value in opened.headers:
            if not name.lower().startswith(_OF_THE_HANDSHAKE):
                response.headers[name] = value
        self._server.send_response(response)
        self._flush()

    async def _messages(self, request_id: int) -> None:
        is_first = True
        while True:
            await self._may_read.wait()
            message, data = await _next_frame(self._conversation, request_id)
            if isinstance(message, Refused):
                raise ConnectionError(message.error.message) from http.refusal(message.error)
            if isinstance(message, WebSocketClose):
                if self._server.state.name == "OPEN":
                    self._server.send_close(message.code, message.reason)
                self._flush()
                return
            assert isinstance(message, WebSocketMessage)  # the session allows no other frame here
            if self._server.state.name == "OPEN":
                send = self._server.send_text if message.text else self._server.send_binary
                (send if is_first else self._server.send_continuation)(data or b"", not message.more)
                self._flush()
            is_first = not message.more

    async def _decline(self, request_id: int, head: HttpHead) -> None:
        """Forward to the client the answer of a service that opened no WebSocket."""
        pieces: list[bytes] = []
        while True:
            message, piece = await _next_frame(self._conversation, request_id)
            if isinstance(message, Refused):
                raise ConnectionError(message.error.message) from http.refusal(message.error)
            pieces.append(piece or b"")
            if isinstance(message, Chunk) and message.end:
                break
        from websockets.datastructures import Headers
        from websockets.http11 import Response

        known = {status.value: status.phrase for status in HTTPStatus}
        body = b"".join(pieces)
        headers = Headers([(name, value) for name, value in head.headers if name.lower() != "content-length"])
        headers["Content-Length"] = str(len(body))
        self._server.send_response(Response(head.status, known.get(head.status, ""), headers, body))
        self._flush()

    def _flush(self) -> None:
        for data in self._server.data_to_send():
            if not self._is_closing and data:
                asyncio.get_running_loop().call_soon(self._connection.data_received, data)

    def _end(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._id is not None:
            self._conversation.forget(self._id)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        running = asyncio.get_running_loop()
        if error is None:
            running.call_soon(self._connection.eof_received)
        running.call_soon(self._connection.connection_lost, error)


def _closing(request_id: int, data: bytes) -> WebSocketClose:
    """Convert the data of the client's close frame to a message for the host. Its code is None if the frame has none,
    or one that must not be sent.
    """
    code = int.from_bytes(data[:2], "big")
    if len(data) < 2 or not is_close_code(code):
        return WebSocketClose(id=request_id)
    return WebSocketClose(id=request_id, code=code, reason=data[2:].decode("utf-8", "replace"))


async def _next_frame(conversation: loop.Conversation, request_id: int) -> Frame:
    """Wait for the next frame that answers this request, without blocking the event loop."""
    while True:
        frame = conversation.maybe_answer(request_id)
        if frame is not None:
            return frame
        await _heard(conversation)


async def _heard(conversation: loop.Conversation) -> None:
    """Wait until frames may have arrived, even if another task reads them. Each caller waits on a descriptor of its
    own, because an asyncio loop allows only one reader per descriptor.
    """
    running, came = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.dup(conversation.fd_in)
    conversation.on_heard.add(came.set)
    try:
        if not conversation.is_full:
            running.add_reader(descriptor, came.set)
        await came.wait()
    finally:
        conversation.on_heard.discard(came.set)
        running.remove_reader(descriptor)
        os.close(descriptor)
