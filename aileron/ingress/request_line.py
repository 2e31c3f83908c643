"""A check of the first line of a request against RFC 9110: the method in its exact spelling, and a supported version.

Runs in every server of Aileron, before any application. Hypercorn passes a method on in upper case, as ASGI requires,
and accepts any text that looks like a version: `post` would count as POST and HTTP/9.9 as HTTP/1.1. A proxy in front of
the server may interpret them differently.

Rules
- A method is case-sensitive (RFC 9110 section 9.1). A method that is not listed is answered 501 (section 15.6.2).
- HTTP/1.0 and HTTP/1.1 are supported; any other version is answered 505 (section 15.6.6).
- If the server does not store the method's spelling (`AsSpelled`), every request fails with KeyError.

Source: RFC 9110, RFC 5789; docs/reference/http-api.md. Not here: the methods of a route or of the gateway.
"""

from __future__ import annotations

from typing import Final

import h11
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.ingress.refusals import refuse
from aileron.model.failure import AileronError, FailureClass

__all__ = ["AsSpelled", "KnownRequests"]

_SPELLED: Final = "aileron.method"
"""Key in a request's ASGI state: the method's bytes exactly as the client sent them."""
_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT"})
"""Methods in RFC 9110 section 9.3 and RFC 5789. The application for a path supports fewer, and its response says so."""
_VERSIONS: Final = ("1.0", "1.1")


class AsSpelled(H11Protocol):
    """Hypercorn's protocol, extended to store the spelling of a method. It also treats a request for a WebSocket as a
    plain request, because Hypercorn refuses such a request in a way that leaves the connection open for as long as
    its client likes.
    """

    async def _create_stream(self, request: h11.Request) -> None:
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=ConnectionState({**self.connection_state, _SPELLED: bytes(request.method)}),
            )
        )
        self.keep_alive_requests += 1


class KnownRequests:
    """An application that refuses a request with an invalid first line, and passes on every other request unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI event."""
        if scope["type"] == "http" and (refusal := _refusal(scope)) is not None:
            problem, status = refusal
            # Respond without reading the body: the connection is closed, and no client of Aileron sends such a request.
            await refuse(send, AileronError(FailureClass.INVALID_REQUEST, problem).failure, status)
            return
        await self._app(scope, receive, send)


def _refusal(scope: Scope) -> tuple[str, int] | None:
    if scope["http_version"] not in _VERSIONS:
        return f"HTTP/1.1 is spoken here, not HTTP/{scope['http_version']}", 505
    spelled: bytes = scope["state"][_SPELLED]
    if spelled not in _METHODS:
        return f"{spelled[:40].decode('ascii')} is no method; methods are written in capitals, such as POST", 501
    return None
