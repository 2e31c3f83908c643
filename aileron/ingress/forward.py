"""The application that ingress serves: it passes one request to the daemon, and returns the response.

Runs in ingress. The only decision made here is whether an unknown caller's request has to wait (admission.py).

Source: docs/adr/0031-ingress.md. Not here: how a request is transferred (exchange.py), the daemon's end
(daemon/http/ingress.py).
"""

from __future__ import annotations

import socket
from typing import Final

import anyio
from starlette.types import Receive, Scope, Send

from aileron.ingress.admission import Admission, BusyError
from aileron.ingress.connection_places import place_of
from aileron.ingress.daemon_messages import MessageError, Request, exchange_pair
from aileron.ingress.exchange import head_of, pass_on
from aileron.ingress.refusals import refuse_stranger

__all__ = ["Forward"]

DRAIN_S: Final = 1.0
"""Seconds to read the rest of a refused request's body. A client that still writes when its connection is closed gets a
broken pipe instead of the refusal.
"""


class Forward:
    """The ASGI application in ingress for one TCP service of the daemon. All instances share `control`, the socket to
    the daemon, and `handing_over`, that socket's lock.
    """

    def __init__(self, door: str, control: socket.socket, handing_over: anyio.Lock, admission: Admission) -> None:
        self._door: Final = door
        self._control: Final = control
        self._handing_over: Final = handing_over
        self._admission: Final = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI `http` request."""
        if self._admission.is_known(scope):
            if (place := place_of(scope)) is not None:
                place.shows_session()
            await self._pass_on(head_of(self._door, scope, is_known=True), receive, send, None)
            return
        try:
            async with self._admission.turn(scope):
                head = head_of(self._door, scope, is_known=False)
                await self._pass_on(head, receive, send, self._admission)
        except BusyError:
            await _refuse(receive, send)

    async def _pass_on(self, head: Request, receive: Receive, send: Send, budget: Admission | None) -> None:
        ours, theirs = exchange_pair()
        with ours:
            try:
                with theirs:
                    await self._hand_over(theirs)
                await pass_on(ours, head, receive, send, budget)
            except (OSError, MessageError):
                return  # the daemon dropped the request; the client sees an incomplete response

    async def _hand_over(self, theirs: socket.socket) -> None:
        async with self._handing_over:  # so that only one task waits until the socket is writable
            while True:
                try:
                    socket.send_fds(self._control, [b"x"], [theirs.fileno()])
                except BlockingIOError:  # the daemon is too busy to read
                    await anyio.wait_writable(self._control)
                else:
                    return


async def _refuse(receive: Receive, send: Send) -> None:
    """Read the rest of a refused request's body, and respond with status 429, in the form of every response of the daemon."""
    with anyio.move_on_after(DRAIN_S):
        while (await receive()).get("more_body", False):
            pass
    await refuse_stranger(send)
