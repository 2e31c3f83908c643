"""HTTP/1.1 on one connection: one request at a time, and a client that goes away is noticed while it waits for its response.

Between Hypercorn's connection and the application, in place of its H11Protocol. Hypercorn keeps what a client sends ahead of its
response, and reads no further until that response is over: so it would not see that the client has gone, and a response without
an end would go on for ever.

    request ──(whole)──► what comes now was sent ahead: thrown away, `Connection: close`, MAX_AHEAD at most
               └──(whole response sent)──► what comes now is the next request: it waits for its turn

Rules
- A connection is read while its response is made. What comes meanwhile is not kept, only that it came.
- A client that has had every byte of a response may send the next request, although the application has not yet said that it was
  the last byte.
- No other version of HTTP, no WebSocket: a request for one is answered as if it had not asked for it.

Source: RFC 9112 section 9.3.2, RFC 9110 section 7.8; h11's states (their_state PAUSED). Not here: connections (server.py), first
lines (request_line.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
import hypercorn.protocol
from hypercorn.asyncio.task_group import TaskGroup, _handle
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Body, EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from aileron.ingress.request_line import AsSpelled

__all__ = ["MAX_AHEAD", "install"]

MAX_AHEAD: Final = 65536
"""Bytes that are thrown away before one response is over; a client that sends more gets none. Reading them is work."""
_WHOLE: Final = (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL, h11.MUST_CLOSE)  # type: ignore[attr-defined] # it does
"""States of a client whose request has been read to the end."""
_NO_CONTENT: Final = (204, 304)


def install() -> None:
    """Install this protocol in Hypercorn: there is no setting for it, and tests check that it holds."""
    hypercorn.protocol.H11Protocol = _OneAtATime  # type: ignore[attr-defined, assignment]


class _NeverPaused(h11.Connection):
    """An h11 connection that reports NEED_DATA instead of PAUSED, so that its reader reads on while a response is made."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        return h11.NEED_DATA if event is h11.PAUSED else event


class _Ended:
    """A stand-in for h11's connection once nothing more is answered: it takes what still comes, and finds nothing in it."""

    our_state = None
    their_state = None
    they_are_waiting_for_100_continue = False
    trailing_data = (b"", False)

    def receive_data(self, data: bytes) -> None:
        """Ignore what the client still sends."""

    def next_event(self) -> type[h11.NEED_DATA]:
        """Return NEED_DATA: there is never an event."""
        return h11.NEED_DATA

    def send(self, event: object) -> bytes:
        """Send nothing."""
        return b""


class _Inbox:
    """Queue of what an application receives: one piece of a body at a time, and then, once, that its client has gone.

    Hypercorn's own queue holds ten pieces, and a task that puts one more waits for an application that may have ended: for ever.
    """

    def __init__(self) -> None:
        self._piece: ASGIReceiveEvent | None = None
        self._end: ASGIReceiveEvent | None = None
        self._is_over = False
        self._moved = asyncio.Event()

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Wait until there is room for a piece. The end always has room; anything after it is dropped."""
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
        """Wake the tasks that wait."""
        self._moved.set()
        self._moved = asyncio.Event()


class _Apps:
    """The tasks of a connection, with an inbox of ours for each application."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: Callable[[ASGISendEvent | None], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Begin an application, and return the function that puts into its inbox."""
        inbox = _Inbox()
        self.spawn(_handle, app, config, scope, inbox.get, send, _no_threads, _no_threads)
        return inbox.put

    def spawn(self, what: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Begin a task."""
        self._tasks.spawn(what, *arguments)


def _no_threads(*_: object) -> None:
    raise NotImplementedError("for WSGI, which is not served")


class _OneAtATime(AsSpelled):
    """A protocol that answers one request at a time, and treats a request for another version of HTTP as a plain one."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.connection = _NeverPaused(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
        self.task_group = _Apps(self.task_group)  # type: ignore[assignment, arg-type]
        self._is_head = False
        self._ahead = 0
        self._unsaid: int | None = None
        """Bytes of the response that the client has not had yet; None while it cannot know which one is the last."""

    async def handle(self, event: Event) -> None:
        """Handle an event from the client."""
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
        """Close the connection: answer nothing more, and read nothing more."""
        await self._close_stream()
        self.connection = _Ended()  # type: ignore[assignment] # as Hypercorn does for WebSockets
        await self.can_read.set()
        await self.send(Closed())

    def _has_next(self) -> bool:
        """Return whether the client sent more than the request that is being answered."""
        return self.connection.their_state in _WHOLE and (self._ahead > 0 or bool(self.connection.trailing_data[0]))


def _length(answer: Response) -> int | None:
    for name, value in answer.headers:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return None
