"""A request between two processes of Aileron: an ASGI application in one, its caller in the other.

    receive ──► Request, Body, Body, last Body ──► receive     one socket pair for each request
    send    ◄── Head, Body, Body, last Body    ◄── send

Runs in ingress and in the daemon, each of which can be either side. A socket's flags, including O_NONBLOCK, are
shared with the other process, so each call on the socket sets MSG_DONTWAIT.

Rules
- In each direction at most one piece of a body is stored: a side that does not read blocks the other. After each piece,
  other tasks run.
- When a client disconnects, the exchange is closed. An incomplete response is never shown to the client as complete.

Source: the ASGI specification 3.0; docs/adr/0031-ingress.md. Not here: the messages (daemon_messages.py), which process
passes requests to which (forward.py, daemon/http).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final, Protocol

import anyio.lowlevel
from starlette.types import Message, Receive, Scope, Send

from aileron.ingress.daemon_messages import (
    MAX_PACKET,
    MAX_PIECE,
    Body,
    Head,
    MessageError,
    Request,
    body_packets,
    decode_answer,
    decode_request,
    encode,
)
from aileron.isolated.start import received, send

__all__ = ["Exchange", "UploadBudget", "head_of", "pass_on", "scope_of", "unread_thrown_away"]

_PIECE: Final = 65536
"""Maximum number of bytes of a response in one packet."""


class UploadBudget(Protocol):
    """The interface to a limit on uploaded bytes."""

    async def upload(self, size: int) -> None:
        """Wait until the limit allows `size` more uploaded bytes."""
        ...


async def pass_on(
    ours: socket.socket, head: Request, receive: Receive, send: Send, budget: UploadBudget | None = None
) -> None:
    """Send a request to the process at the other end of the socket `ours`, and that process's response to the client.
    Raises OSError or MessageError if that process drops the request.
    """
    await _put(ours, encode(head))
    uploading = asyncio.create_task(_upload(ours, receive, budget))
    try:
        await _answer(ours, send)
    finally:
        uploading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await uploading


def head_of(door: str, scope: Scope, *, is_known: bool) -> Request:
    """Return the message that describes an ASGI scope to the process at the other end."""
    return Request(
        door=door,
        http_version=scope["http_version"],
        method=scope["method"],
        path=scope["path"],
        raw_path=scope["raw_path"],
        query=scope["query_string"],
        fields=list(scope["headers"]),
        client=scope["client"],
        is_known=is_known,
    )


def scope_of(request: Request) -> dict[str, object]:
    """Return the ASGI scope that the message `request` describes, without `scheme`, `server` and `state`, which the
    receiving side sets itself.
    """
    return {
        "type": "http",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "http_version": request.http_version,
        "method": request.method,
        "path": request.path,
        "raw_path": request.raw_path,
        "query_string": request.query,
        "root_path": "",
        "headers": request.fields,
        "client": request.client,
        "extensions": {},
    }


class Exchange:
    """The application's end of the socket for one request: it receives the body here and sends its response here."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock: Final = sock
        self._is_gone = False
        self._sending: Final = asyncio.Lock()

    async def head(self) -> Request | None:
        """Return the request's head, which is the first message on the socket; None if the client has disconnected
        already. Raises MessageError if the first message is not a head.
        """
        packet = await self._packet()
        if not packet:
            return None
        request = decode_request(packet)
        if not isinstance(request, Request):
            raise MessageError("a body without a head")
        return request

    async def receive(self) -> Message:
        """Return the next ASGI message of the request."""
        await anyio.lowlevel.checkpoint()  # reading a packet that has already arrived does not yield to other tasks
        packet = await self._packet()
        if not packet:
            return {"type": "http.disconnect"}
        body = decode_request(packet)
        if not isinstance(body, Body):
            raise MessageError("a second head")
        return {"type": "http.request", "body": body.data, "more_body": body.more}

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response. If the client has disconnected, drop the message silently, because
        `receive` reports that.
        """
        match message["type"]:
            case "http.response.start":
                fields = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
                await self._put(encode(Head(message["status"], fields)))
            case "http.response.body":
                await self._put_body(bytes(message.get("body", b"")), more=message.get("more_body", False))
            case other:
                raise ValueError(f"an ASGI message that is not passed on: {other}")

    async def _put_body(self, data: bytes, *, more: bool) -> None:
        for packet in body_packets(data, _PIECE, more=more):
            await self._put(packet)

    async def _packet(self) -> bytes:
        try:
            return await received(self._sock, MAX_PACKET)
        except OSError:
            return b""

    async def _put(self, packet: bytes) -> None:
        async with self._sending:  # an application may send from two tasks: the response, and keep-alive data
            if self._is_gone:
                return
            try:
                await send(self._sock, packet)
            except OSError:
                self._is_gone = True


@contextlib.contextmanager
def unread_thrown_away(exchange: socket.socket) -> Iterator[None]:
    """Return a context manager that, at the end of its block, shuts down the socket of an exchange for reading, and
    discards unread data.

    Otherwise, closing the socket with unread data would also discard data that was sent on it: the other end gets
    ECONNRESET before it can read that data (net/unix/af_unix.c).
    """
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            exchange.shutdown(socket.SHUT_RD)
            while exchange.recv(MAX_PACKET, socket.MSG_DONTWAIT):
                pass


async def _upload(ours: socket.socket, receive: Receive, budget: UploadBudget | None) -> None:
    """Send the request's body over the socket `ours` until the client disconnects, and then shut down the socket for
    writing. The caller cancels this when the response is complete.
    """
    with contextlib.suppress(OSError):  # the other side no longer reads; its answer may still come
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                ours.shutdown(socket.SHUT_WR)  # a client that only stopped sending may still read
                return
            data = message.get("body", b"")
            if budget is not None and data:
                await budget.upload(len(data))
            for packet in body_packets(data, MAX_PIECE, more=message.get("more_body", False)):
                await _put(ours, packet)


async def _answer(ours: socket.socket, send: Send) -> None:
    """Pass on the response from the socket `ours` to the client as it arrives, until it is complete. Raises OSError if
    the socket fails, and MessageError for an invalid message.
    """
    loop = asyncio.get_running_loop()
    while packet := await loop.sock_recv(ours, MAX_PACKET):
        match decode_answer(packet):
            case Head() as head:
                await send({"type": "http.response.start", "status": head.status, "headers": head.fields})
            case Body() as body:
                await send({"type": "http.response.body", "body": body.data, "more_body": body.more})
                if not body.more:
                    return
        await asyncio.sleep(0)  # if both sockets are ready, nothing above yields to other tasks


async def _put(ours: socket.socket, packet: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(ours, packet)  # a packet is sent completely or not at all
