"""Newline-delimited JSON-RPC over a byte stream, for the SDK: one message a line, both ways, and everything bounded.

Runs in the process of the protocol, once for each connection of run/mcp.sock. The peer is untrusted: it may send anything, any
amount of it, and may never read. Its lines become the SDK's messages; a line that is no message is answered with the JSON-RPC
error that says so.

Rules
- A line has at most MAX_LINE_BYTES; a longer one is answered and ends the connection, because what follows it cannot be found.
- At most MAX_CALLS requests of MAX_CALLS_BYTES together are under way; one more, or one whose id is in use, is answered with an
  error and goes no further.
- While an answer cannot be written nothing more is read, and after WRITE_S the connection ends: a peer that does not read holds
  what fits in the socket and MAX_CALLS answers.

Source: MCP specification, "Transports" (stdio framing); JSON-RPC 2.0, section 5.1. Not here: what a message means (server.py).
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from aileron.mcp.unreadable import id_in
from aileron.model.misfit import misfit_in

__all__ = [
    "MAX_CALLS",
    "MAX_CALLS_BYTES",
    "MAX_LINE_BYTES",
    "WRITE_S",
    "LineTooLong",
    "LineWire",
    "Splitter",
    "error_line",
]

MAX_LINE_BYTES: Final = 1 << 20
"""1 MiB, as a body of the HTTP API: the arguments of an action travel in one frame header of 64 KiB."""
MAX_CALLS: Final = 64
"""Requests under way on one connection: what the daemon runs at once for everybody. The busiest agent measured had eight."""
MAX_CALLS_BYTES: Final = 8 * MAX_LINE_BYTES
"""Bytes of these requests together, as lines: what a connection can keep in memory."""
WRITE_S: Final = 60.0
"""Seconds for one answer to leave. A peer reads in microseconds; one that is stopped in a debugger gets a minute."""
_READ_BYTES: Final = 64 << 10
_TOO_MANY: Final = -32000
"""JSON-RPC's first implementation-defined error."""
_log = logging.getLogger(__name__)

Incoming = SessionMessage | Exception


class LineTooLong(Exception):
    """A line is longer than MAX_LINE_BYTES, ended or not. `begun`: the part of it that came."""

    def __init__(self, most: int, begun: bytes) -> None:
        super().__init__(f"a line of more than {most} bytes")
        self.begun = begun


class Splitter:
    """Splitter of bytes in pieces of any size into lines without their ends. It holds at most one line."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that `piece` completes, without empty ones. LineTooLong, after which nothing more can be fed."""
        self._held += piece
        if b"\n" not in piece:
            self._check(self._held)
            return []
        *lines, rest = bytes(self._held).split(b"\n")
        for line in (*lines, rest):
            self._check(line)
        self._held = bytearray(rest)
        return [line for line in lines if line.strip()]

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) > self._most:
            raise LineTooLong(self._most, bytes(line))


class LineWire:
    """A connection: `read` feeds the SDK, `write` empties it. Both end when the stream does."""

    def __init__(self, stream: ByteStream, write_s: float = WRITE_S) -> None:
        self._stream = stream
        self._write_s = write_s
        self._writing = anyio.Lock()
        self._calls: dict[str, int] = {}  # under way: id → bytes of its line

    async def read(self, into: MemoryObjectSendStream[Incoming]) -> None:
        """Read until the peer ends its side, or sends something after which nothing can be understood."""
        splitter = Splitter()
        async with into:
            while True:
                try:
                    piece = await self._stream.receive(_READ_BYTES)
                except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                    return
                try:
                    lines = splitter.feed(piece)
                except LineTooLong as error:
                    problem = f"a message has at most {MAX_LINE_BYTES} bytes"
                    await self._send(error_line(id_in(error.begun), INVALID_REQUEST, problem))
                    return
                for line in lines:
                    await self._take(line, into)

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write until the SDK has nothing more to send. TimeoutError if the peer does not read."""
        async with outgoing:
            async for item in outgoing:
                message = item.message
                await self._send(_line(message))
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    self._calls.pop(str(message.id), None)

    async def _take(self, line: bytes, into: MemoryObjectSendStream[Incoming]) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            await self._send(_not_a_message(line, error))
            return
        if not isinstance(message, JSONRPCRequest):
            if isinstance(message, JSONRPCNotification) and _has_id(line):
                # The SDK takes a request with an id of another type for a notification, and it would wait for ever.
                await self._send(error_line(None, INVALID_REQUEST, "an id is a string or an integer"))
                return
            await into.send(SessionMessage(message))
            return
        key = str(message.id)  # the SDK, too, takes "7" and 7 for the same request
        if key in self._calls:
            await self._send(error_line(message.id, INVALID_REQUEST, "a request with this id is under way"))
        elif len(self._calls) >= MAX_CALLS or sum(self._calls.values()) + len(line) > MAX_CALLS_BYTES:
            problem = (
                f"at most {MAX_CALLS} requests at once on a connection, of {MAX_CALLS_BYTES} bytes; wait for an answer"
            )
            await self._send(error_line(message.id, _TOO_MANY, problem))
        else:
            self._calls[key] = len(line)

            async def unanswered() -> None:
                self._calls.pop(key, None)

            await into.send(SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered)))

    async def _send(self, line: bytes) -> None:
        with anyio.fail_after(self._write_s):
            async with self._writing:
                await self._stream.send(line)


def error_line(request: RequestId | None, code: int, message: str) -> bytes:
    """Return a JSON-RPC error of this layer, as a line."""
    error = {"code": code, "message": message}
    return (
        json.dumps({"jsonrpc": "2.0", "id": request, "error": error}).encode() + b"\n"
    )  # ASCII: any id can be repeated


def _has_id(line: bytes) -> bool:
    """Return whether the line has an id. JSON-RPC 2.0, section 4.1: a notification is a request object without an "id" member."""
    return b'"id"' in line and "id" in json.loads(line)


def _line(message: Any) -> bytes:
    try:
        text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    except (PydanticSerializationError, ValueError) as error:
        # A lone surrogate, which UTF-8 cannot carry. The call has had its effect, so the rest of the answer must arrive.
        _log.warning("an answer had half of a character: %s", type(error).__name__)
        half = json.dumps(message.model_dump(by_alias=True, exclude_unset=True), ensure_ascii=False)
        text = half.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode() + b"\n"


def _not_a_message(line: bytes, error: ValidationError) -> bytes:
    """Return the JSON-RPC error for an invalid message, under its id if that can be read, and with the place of the fault."""
    asked = id_in(line)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return error_line(asked, PARSE_ERROR, "not JSON")
    misfit = misfit_in(found)
    if misfit is not None:
        return error_line(asked, PARSE_ERROR, f"{misfit}: nothing was done")
    if any(problem["type"] == "json_invalid" for problem in error.errors(include_url=False, include_input=False)):
        return error_line(asked, PARSE_ERROR, "not JSON")
    return error_line(asked, INVALID_REQUEST, "not one JSON-RPC 2.0 message")
