"""One request, passed on to the daemon, and its answer back: the application that is served in ingress.

Runs in ingress. It decides nothing but whether a stranger's request has to wait (admission.py).

    receive ──► Request, Body, Body, last Body ──► daemon
    send    ◄── Head, Body, Body, last Body    ◄── daemon

Rules
- One piece is held at a time, in each direction: who does not read stops the other side. After each, others have their turn.
- A client that goes away closes the exchange. An answer that breaks off breaks off: it is never ended as if it were whole.

Source: the ASGI specification 3.0; docs/adr/0031-ingress.md. Not here: the daemon's end (daemon/http/ingress.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

import anyio
from starlette.types import Receive, Scope, Send

from aileron.ingress.admission import Admission, BusyError
from aileron.ingress.messages import (
    MAX_PACKET,
    MAX_PIECE,
    Body,
    Head,
    MessageError,
    Request,
    body_packets,
    decode_answer,
    encode,
    exchange_pair,
)
from aileron.ingress.places import place_of
from aileron.ingress.refusals import refuse_stranger

__all__ = ["Forward"]

DRAIN_S: Final = 1.0
"""For the rest of a body that nobody wants: who still writes when they are refused hears of a broken pipe, not of the refusal."""


class Forward:
    """The application of one door. `control`, the way to the daemon, and the lock of who uses it are of all doors together."""

    def __init__(self, door: str, control: socket.socket, handing_over: anyio.Lock, admission: Admission) -> None:
        self._door: Final = door
        self._control: Final = control
        self._handing_over: Final = handing_over
        self._admission: Final = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: `http`."""
        if self._admission.is_known(scope):
            if (place := place_of(scope)) is not None:
                place.shows_session()
            await self._pass_on(_head_of(self._door, scope, is_known=True), _Upload(receive, None), send)
            return
        try:
            async with self._admission.turn(scope):
                head = _head_of(self._door, scope, is_known=False)
                await self._pass_on(head, _Upload(receive, self._admission), send)
        except BusyError:
            await _refuse(receive, send)

    async def _pass_on(self, head: Request, upload: _Upload, send: Send) -> None:
        ours, theirs = exchange_pair()
        with ours:
            try:
                with theirs:
                    await self._hand_over(theirs)
                    await _put(ours, encode(head))
                await self._exchange(ours, upload, send)
            except (OSError, MessageError):
                return  # the daemon has let go of it: what was not answered breaks off

    async def _hand_over(self, theirs: socket.socket) -> None:
        async with self._handing_over:  # one waits for the socket, and the others for that one
            while True:
                try:
                    socket.send_fds(self._control, [b"x"], [theirs.fileno()])
                except BlockingIOError:  # the daemon has more to do than to look
                    await anyio.wait_writable(self._control)
                else:
                    return

    async def _exchange(self, ours: socket.socket, upload: _Upload, send: Send) -> None:
        uploading = asyncio.create_task(upload.run(ours))
        try:
            await _answer(ours, send)
        finally:
            uploading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await uploading


class _Upload:
    """The body of a request on its way, and whether its client is still there."""

    def __init__(self, receive: Receive, budget: Admission | None) -> None:
        self._receive = receive
        self._budget = budget

    async def run(self, ours: socket.socket) -> None:
        """Until the client goes away, which the daemon hears of. One whose exchange is over is cancelled."""
        with contextlib.suppress(OSError):  # the daemon does not listen any more; its answer may still come
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    ours.shutdown(socket.SHUT_WR)  # who only sends no more may still read
                    return
                await self._pass_on(ours, message.get("body", b""), more=message.get("more_body", False))

    async def _pass_on(self, ours: socket.socket, data: bytes, *, more: bool) -> None:
        if self._budget is not None and data:
            await self._budget.upload(len(data))
        for packet in body_packets(data, MAX_PIECE, more=more):
            await _put(ours, packet)


async def _answer(ours: socket.socket, send: Send) -> None:
    """What the daemon says, as it comes, until it was whole. OSError, MessageError."""
    loop = asyncio.get_running_loop()
    while packet := await loop.sock_recv(ours, MAX_PACKET):
        match decode_answer(packet):
            case Head() as head:
                await send({"type": "http.response.start", "status": head.status, "headers": head.fields})
            case Body() as body:
                await send({"type": "http.response.body", "body": body.data, "more_body": body.more})
                if not body.more:
                    return
        await asyncio.sleep(0)  # neither waits where both are ready: a fast answer would keep the loop to itself


async def _put(ours: socket.socket, packet: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(ours, packet)  # one packet, or none: it is never sent in parts


def _head_of(door: str, scope: Scope, *, is_known: bool) -> Request:
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


async def _refuse(receive: Receive, send: Send) -> None:
    """429: in the form of every answer of the daemon, whatever was asked for."""
    with anyio.move_on_after(DRAIN_S):
        while (await receive()).get("more_body", False):
            pass
    await refuse_stranger(send)
