"""HTTP/1.1 on one connection: one request at a time, with detection of a client that disconnects while it waits for
its response.

Runs between a connection (server.py) and the application, as a subclass of Hypercorn's H11Protocol. If a client sends
data before its response is complete, Hypercorn stores the data, and reads no more until the response is complete. So
Hypercorn would not detect that the client has disconnected, and an endless response would never stop.

    request ──(complete)──► data that arrives now was sent ahead: discarded, `Connection: close`, MAX_AHEAD at most
               └──(complete response sent)──► data that arrives now is the next request, which waits for its turn

Rules
- A connection is read while its response is made. Data that arrives meanwhile is not stored; only its arrival is recorded.
- A client that has received every byte of a response may send the next request, even if the application has not yet said that
  the response is complete.
- No other version of HTTP and no WebSocket: a request to switch to either is answered like a plain request.

Source: RFC 9112 section 9.3.2, RFC 9110 section 7.8; h11's states (their_state PAUSED). Not here: connections (server.py), first
lines (request_line.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Body, EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from aileron.ingress.request_line import AsSpelled

__all__ = ["MAX_AHEAD", "AppTasks", "OneAtATime"]

MAX_AHEAD: Final = 65536
"""Maximum number of bytes that a client can send before its response is complete; they are discarded. If it sends more,
its connection is closed without a response, because reading costs time.
"""
_WHOLE: Final = (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL, h11.MUST_CLOSE)  # type: ignore[attr-defined] # it does
"""States of h11's connection in which the client's request has been read completely."""
_NO_CONTENT: Final = (204, 304)


class _NeverPaused(h11.Connection):
    """An h11 connection that reports NEED_DATA instead of PAUSED, so that its reader continues to read while a
    response is made.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        return h11.NEED_DATA if event is h11.PAUSED else event


class _Ended:
    """A stand-in for h11's connection after the last response: it accepts the client's further data and ignores it."""

    our_state = None
    their_state = None
    they_are_waiting_for_100_continue = False
    trailing_data = (b"", False)

    def receive_data(self, data: bytes) -> None:
        """Ignore data that the client still sends."""

    def next_event(self) -> type[h11.NEED_DATA]:
        """Return NEED_DATA, because there is never an event."""
        return h11.NEED_DATA

    def send(self, event: object) -> bytes:
        """Return no bytes, so that nothing is sent."""
        return b""


class _Inbox:
    """A queue of incoming messages for an application: at most one piece of the body, and finally the message that the
    client has disconnected.

    Hypercorn's own queue holds ten pieces, and if the application has ended, a task that adds another would wait for ever.
    """

    def __init__(self) -> None:
        self._piece: ASGIReceiveEvent | None = None
        self._end: ASGIReceiveEvent | None = None
        self._is_over = False
        self._moved = asyncio.Event()

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Add a message. A piece of a body waits until there is room. The disconnect message needs no room; messages
        after it are dropped.
        """
        if message["type"] == "http.disconnect":
            self._is_over, self._end = True, message
            self._move()
            return
        while self._piece is not None and not self._is_over:
            await self._moved.wait()
        if not self._is_over:
            self._piece = message
            self._move()

    async def get(self) -> ASGIReceiveEvent:
        """Wait for the next message and return it."""
        while self._piece is None and self._end is None:
            await self._moved.wait()
        if self._piece is not None:
            message, self._piece = self._piece, None
        else:
            assert self._end is not None
            message, self._end = self._end, None
        self._move()
        return message

    def _move(self) -> None:
        """Wake the tasks that wait in `put` for room or in `get` for a message."""
        self._moved.set()
        self._moved = asyncio.Event()


class AppTasks(TaskGroup):
    """Hypercorn's task group of a connection, changed so that each application gets an `_Inbox`."""

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: Callable[[ASGISendEvent | None], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start an application, and return the function that adds messages to its inbox."""
        inbox = _Inbox()
        self.spawn(_run, app, config, scope, inbox, send)
        return inbox.put


async def _run(
    app: AppWrapper,
    config: Config,
    scope: Scope,
    inbox: _Inbox,
    send: Callable[[ASGISendEvent | None], Awaitable[None]],
) -> None:
    """Run an application for one request, and tell the protocol when it has ended. An exception is logged."""
    try:
        await app(scope, inbox.get, send, _no_threads, _no_threads)
    except Exception:  # noqa: BLE001 - one request fails, and not the connections of others
        await config.log.exception("the application failed")
    finally:
        await send(None)


def _no_threads(*_: object) -> None:
    raise NotImplementedError("for WSGI, which is not served")


class OneAtATime(AsSpelled):
    """A protocol that handles one request of a connection at a time, and treats a request for another version of HTTP
    as a plain request.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.connection = _NeverPaused(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
        self._is_head = False
        self._ahead = 0
        self._unsaid: int | None = None
        """Number of bytes of the response that were not sent yet; None before the response, and while its length is unknown."""

    async def handle(self, event: Event) -> None:
        """Handle an event of the connection: data from the client, or the end of the connection."""
        if isinstance(event, Closed):
            await super().handle(event)
            await self.can_read.set()
            return
        if isinstance(event, RawData) and event.data and self.connection.their_state in _WHOLE:
            if self._unsaid != 0 or self.stream is None:
                await self._throw_away(len(event.data))
                return
            await self.can_read.clear()
            await self.can_read.wait()
        await super().handle(event)

    async def _throw_away(self, size: int) -> None:
        self._ahead += size
        if self._ahead > MAX_AHEAD:
            await self._end()

    async def _check_protocol(self, event: h11.Request) -> None:
        return

    async def _create_stream(self, request: h11.Request) -> None:
        self._ahead, self._unsaid = 0, None
        self._is_head = request.method == b"HEAD"
        await super()._create_stream(request)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of the application's response."""
        if isinstance(event, Response) and event.status_code >= 200:
            self._unsaid = 0 if self._is_head or event.status_code in _NO_CONTENT else _length(event)
            if self._has_next():
                event = Response(
                    stream_id=event.stream_id,
                    headers=[*event.headers, (b"connection", b"close")],
                    status_code=event.status_code,
                )
        elif isinstance(event, Body) and self._unsaid is not None:
            self._unsaid = max(0, self._unsaid - len(event.data))
        elif isinstance(event, EndBody):
            self._unsaid = 0
        await super().stream_send(event)

    async def _maybe_recycle(self) -> None:
        if self._has_next():
            await self._end()
        else:
            await super()._maybe_recycle()

    async def _end(self) -> None:
        """Close the connection without sending or reading any more."""
        await self._close_stream()
        self.connection = _Ended()  # type: ignore[assignment] # as Hypercorn does for WebSockets
        await self.can_read.set()
        await self.send(Closed())

    def _has_next(self) -> bool:
        """Return whether the client has sent data after the request that is being answered."""
        return self.connection.their_state in _WHOLE and (self._ahead > 0 or bool(self.connection.trailing_data[0]))


def _length(answer: Response) -> int | None:
    for name, value in answer.headers:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return None
