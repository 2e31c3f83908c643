"""Newline-delimited JSON-RPC over a byte stream, as a transport for the SDK. Each line is one message, in both
directions, and all sizes are bounded.

Runs in the MCP process, once for each connection to run/mcp.sock. The peer is untrusted: it may send anything, any
amount of it, and may never read. Its lines become the SDK's messages; a line that is no valid message is answered with
a JSON-RPC error.

Rules
- A line has at most MAX_LINE_BYTES. A longer line is answered with an error and ends the connection, because the start of the
  next line cannot be found.
- At most MAX_CALLS requests, of MAX_CALLS_BYTES together, are open at once. A further request, or a request whose id is in
  use, is answered with an error and not executed.
- While an answer cannot be written, no more data is read, and after WRITE_S the connection ends. So a peer that does not read
  occupies at most the socket's buffer and MAX_CALLS answers.

Source: MCP specification, "Transports" (stdio framing); JSON-RPC 2.0, section 5.1. Not here: the meaning of a message
(server.py).
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
    "Incoming",
    "LineTooLong",
    "LineWire",
    "Splitter",
    "error_line",
]

MAX_LINE_BYTES: Final = 1 << 20
"""Maximum size of a line in bytes (1 MiB), equal to the limit of a body of the HTTP API. The arguments of an action travel
in one frame header of 64 KiB.
"""
MAX_CALLS: Final = 64
"""Maximum number of open requests on one connection, equal to what the daemon runs at once for all callers. The busiest
measured agent had eight.
"""
MAX_CALLS_BYTES: Final = 8 * MAX_LINE_BYTES
"""Maximum total size of the open requests of a connection in bytes, as lines. A connection can occupy this much memory."""
WRITE_S: Final = 60.0
"""Seconds for one answer to be written. A peer reads in microseconds; a peer that is stopped in a debugger gets a minute."""
_READ_BYTES: Final = 64 << 10
_TOO_MANY: Final = -32000
"""Error code for too many requests: JSON-RPC's first implementation-defined code."""
_log = logging.getLogger(__name__)

Incoming = SessionMessage | Exception


class LineTooLong(Exception):
    """Error: a line is longer than MAX_LINE_BYTES. `begun` is the part of the line that had arrived by then."""

    def __init__(self, most: int, begun: bytes) -> None:
        super().__init__(f"a line of more than {most} bytes")
        self.begun = begun


class Splitter:
    """A splitter of bytes that arrive in pieces of any size into lines, without line ends. It stores at most one line."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that `piece` completes, without empty lines. Raises LineTooLong, after which this method
        must not be called again.
        """
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
    """A connection between a byte stream and the SDK. `read` passes lines to the SDK, `write` sends the SDK's messages.
    Both end with the stream.
    """

    def __init__(self, stream: ByteStream, write_s: float = WRITE_S) -> None:
        self._stream = stream
        self._write_s = write_s
        self._writing = anyio.Lock()
        self._calls: dict[str, int] = {}  # open requests: id → bytes of the line

    async def read(self, into: MemoryObjectSendStream[Incoming]) -> None:
        """Pass lines from the peer to the SDK until the peer closes its side, or sends a line that is too long, after
        which the start of the next line is unknown.
        """
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
        """Write the SDK's messages to the peer until the SDK has no more to send. Raises TimeoutError if the peer does
        not read.
        """
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
                # The SDK would treat a request with an id of another type as a notification, and the client would wait for ever.
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
    """Return a JSON-RPC error as a line. `request` is the id of the request that it answers, or None."""
    error = {"code": code, "message": message}
    return (
        json.dumps({"jsonrpc": "2.0", "id": request, "error": error}).encode() + b"\n"
    )  # ASCII: any id can be repeated


def _has_id(line: bytes) -> bool:
    """Return whether a line of JSON has an id. By JSON-RPC 2.0, section 4.1, a request object without an "id" member is
    a notification.
    """
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
    """Return the JSON-RPC error for a line that is no valid message, as a line. It has the id of `line`, if that can be
    read, and says where `line` is wrong.
    """
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
