"""HTTP/1.1 on one connection: one request at a time, and whoever goes away is noticed while they wait for their answer.

Between Hypercorn's connection and the application, in place of its H11Protocol. Hypercorn keeps what a client sends ahead of its
answer, and reads no further until that answer is over: so it would not see that the client has gone, and an answer without an
end would go on for ever.

    request ──(whole)──► what comes now was sent ahead: thrown away, `Connection: close`, MAX_AHEAD at most
               └──(whole answer said)──► what comes now is the next request: it waits for its turn

Rules
- A connection is read while its answer is made. Nothing is kept of what comes meanwhile, but that it came.
- Who has had every byte of an answer may ask again, although the application has not said yet that it was the last one.
- No other version of HTTP, no WebSocket: who asks for one is answered as if they had not.

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
"""Bytes that are thrown away before one answer is over; who sends more has no answer. Reading them is work."""
_WHOLE: Final = (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL, h11.MUST_CLOSE)  # type: ignore[attr-defined] # it does
"""A client's states once its request has been read to the end."""
_NO_CONTENT: Final = (204, 304)


def install() -> None:
    """Have Hypercorn speak as it is written here: there is no setting for it, and tests see that it holds."""
    hypercorn.protocol.H11Protocol = _OneAtATime  # type: ignore[attr-defined, assignment]


class _NeverPaused(h11.Connection):
    """Says that it needs more data where h11 says that it will not go on before the answer is over: whoever reads, reads on."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        return h11.NEED_DATA if event is h11.PAUSED else event


class _Ended:
    """In the place of h11's connection once no more is answered on ours: takes what still comes, and finds nothing in it."""

    our_state = None
    their_state = None
    they_are_waiting_for_100_continue = False
    trailing_data = (b"", False)

    def receive_data(self, data: bytes) -> None:
        """Nobody reads it."""

    def next_event(self) -> type[h11.NEED_DATA]:
        """None, ever."""
        return h11.NEED_DATA

    def send(self, event: object) -> bytes:
        """Nobody is told."""
        return b""


class _Inbox:
    """What an application receives: one piece of a body at a time, and then, once, that its client has gone.

    Hypercorn's own queue holds ten pieces, and whoever puts one more waits for an application that may have ended: for ever.
    """

    def __init__(self) -> None:
        self._piece: ASGIReceiveEvent | None = None
        self._end: ASGIReceiveEvent | None = None
        self._is_over = False
        self._moved = asyncio.Event()

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Wait until there is room for a piece; for the end there always is, and behind it nothing is taken any more."""
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
        """The next."""
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
        """Wake who waits."""
        self._moved.set()
        self._moved = asyncio.Event()


class _Apps:
    """The tasks of a connection, with an inbox of ours for each application."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: Callable[[ASGISendEvent | None], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Begin an application; what is returned puts into its inbox."""
        inbox = _Inbox()
        self.spawn(_handle, app, config, scope, inbox.get, send, _no_threads, _no_threads)
        return inbox.put

    def spawn(self, what: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Begin a task."""
        self._tasks.spawn(what, *arguments)


def _no_threads(*_: object) -> None:
    raise NotImplementedError("for WSGI, which is not served")


class _OneAtATime(AsSpelled):
    """Answers one request at a time, and what asks for another version of HTTP as if it had not asked."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.connection = _NeverPaused(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
        self.task_group = _Apps(self.task_group)  # type: ignore[assignment, arg-type]
        self._is_head = False
        self._ahead = 0
        self._unsaid: int | None = None
        """Bytes of the answer that the client has not had yet; None while it cannot know which one is the last."""

    async def handle(self, event: Event) -> None:
        """What came from the client."""
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
        """What the application answers."""
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
        """Nothing more is answered here, and nothing more is read."""
        await self._close_stream()
        self.connection = _Ended()  # type: ignore[assignment] # as Hypercorn does for WebSockets
        await self.can_read.set()
        await self.send(Closed())

    def _has_next(self) -> bool:
        """Whether the client sent more than the request that is being answered."""
        return self.connection.their_state in _WHOLE and (self._ahead > 0 or bool(self.connection.trailing_data[0]))


def _length(answer: Response) -> int | None:
    for name, value in answer.headers:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return None
