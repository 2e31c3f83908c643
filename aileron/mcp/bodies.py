"""Reading the bodies of HTTP requests to /mcp before the SDK sees the request, with limits on bytes and time. No body
is left unread.

Runs in the MCP process. Callers have a session and are untrusted. A refused body is still read, within bounds.
Otherwise a client that is still writing would get a broken pipe instead of the refusal, and on a kept-alive connection,
unread bytes would block the next request.

Source: RFC 9110, sections 15.5.9 and 15.5.14; the ASGI specification. Not here: the meaning of a request (server.py).
"""

from __future__ import annotations

from typing import Final

import anyio
from starlette.responses import JSONResponse
from starlette.types import Message, Receive

from aileron.mcp.lines import MAX_LINE_BYTES

__all__ = ["after", "drain_body", "read_body", "refusal"]

BODY_S: Final = 10.0
"""Seconds for a body to arrive. A megabyte takes milliseconds on this machine, and seconds from a slow container."""
_DRAINED_BYTES: Final = 4 * MAX_LINE_BYTES
"""Maximum number of bytes of an overlong body that are read before the response is sent."""
_INVALID_REQUEST: Final = -32600  # JSON-RPC 2.0, section 5.1


async def drain_body(receive: Receive) -> None:
    """Read and discard the body of a request that will be refused."""
    await read_body(receive, kept=0)


async def read_body(receive: Receive, *, kept: int = MAX_LINE_BYTES) -> bytes | JSONResponse:
    """Return the body of a request, or an error response if the body is longer than MAX_LINE_BYTES, does not arrive in
    time, or breaks off. Of a body longer than `kept` bytes, only the beginning is stored and returned.
    """
    body = bytearray()
    size = 0
    with anyio.move_on_after(BODY_S) as waiting:
        more = True
        while more and size <= _DRAINED_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return refusal(400, "the request ended before its body did")
            piece = message.get("body", b"")
            size += len(piece)
            if size <= kept:
                body += piece
            more = message.get("more_body", False)
    if waiting.cancelled_caught:
        return refusal(408, f"the body did not arrive within {BODY_S:g} s")
    if size > MAX_LINE_BYTES:
        return refusal(413, f"a body has at most {MAX_LINE_BYTES} bytes")
    return bytes(body)


def after(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function that first returns the `body` that was already read, and then what `receive`
    returns.
    """
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def refusal(status: int, message: str) -> JSONResponse:
    """Return a response with this status and a JSON-RPC error whose id is null. It closes the connection, because the
    rest of the request's body may still arrive.
    """
    error = {"code": _INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, {"Connection": "close"})
