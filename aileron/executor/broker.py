"""Handles a connector's requests: checks each against the step's grant, sends it through egress, and returns the
response in frames.

Runs in the daemon, one broker per try of a step. The connector is hostile: each of its requests is compared with the
grant that was fixed before the connector started, and nothing that it says changes the grant. The connector can handle
a network failure (`refused`); any other failure, above all a denied capability, ends the invocation.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from aileron.egress.journal import Journal
from aileron.egress.meter import Meter
from aileron.egress.response import EgressResponse
from aileron.egress.rules import EgressRequest
from aileron.egress.stream import Stream, StreamRequest
from aileron.egress.websocket import Answer, WebSocketRequest
from aileron.egress.websocket_messages import Closed, Part, WebSocket
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSONMembers
from aileron.model.manifest import HostFunction
from aileron.model.plan import Grant, Step
from aileron_sandbox.frames.codec import Frame
from aileron_sandbox.frames.frame_messages import (
    Cancel,
    Chunk,
    FrameFailure,
    HttpHead,
    HttpRequest,
    Refused,
    TcpOpen,
    TcpOpened,
    ToJail,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpen,
    WebSocketOpened,
)

__all__ = ["Broker", "Request", "Send", "StreamsOut", "WayOut", "WebSocketsOut", "check_imported"]

_UPLOAD_CHUNKS: Final = 1
"""Maximum number of chunks of a request body that wait for the upstream. At the maximum, no more frames are read, so
the connector's pipe fills up and the connector has to wait.
"""

_FLUSH_S: Final = 5.0
"""Seconds after a connector has closed a stream during which bytes that it wrote earlier are still sent, as a kernel
would do. Also used as the time within which a service must respond to a WebSocket's close.
"""
_END_S: Final = 1.0
"""Seconds, in addition to _FLUSH_S, to wait until the end of every stream is recorded."""
_GOING_AWAY: Final = 1001
"""Close code for a WebSocket that the connector abandoned without closing it (RFC 6455 section 7.4.1)."""

Request = HttpRequest | TcpOpen | WebSocketOpen

Send = Callable[[ToJail, bytes], Awaitable[None]]
"""Type of a function that sends one complete frame to the connector; if it is cancelled, it sends nothing."""


class StreamsOut(Protocol):
    """Interface to the part of egress that opens streams of bytes."""

    def open(
        self, request: StreamRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Open a stream; see egress/tcp.py."""
        ...


class WebSocketsOut(Protocol):
    """Interface to the part of egress that opens WebSockets."""

    def open(
        self, request: WebSocketRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[Answer]:
        """Open a WebSocket; see egress/websocket.py."""
        ...


class WayOut(Protocol):
    """The interface to egress, the only way out of the jail, which egress/engine.py implements. In tests of connectors,
    a stand-in returns responses from a file (connector_tests/).
    """

    @property
    def streams(self) -> StreamsOut:
        """The part of egress for streams."""
        ...

    @property
    def websockets(self) -> WebSocketsOut:
        """The part of egress for WebSockets."""
        ...

    def open(
        self, request: EgressRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[EgressResponse]:
        """Send a request; see egress/engine.py."""
        ...


def check_imported(function: HostFunction, step: Step) -> None:
    """Raise AileronError(capability_denied) if the connector's manifest does not import this host function."""
    if function not in step.grant.imports:
        raise AileronError(
            FailureClass.CAPABILITY_DENIED,
            f"{step.connector} used the host function {function.value!r}, which its manifest does not import",
            boundary=Boundary.CONNECTOR_MANIFEST,
            details={
                "connector": str(step.connector),
                "requested": f"function:{function.value}",
                "granted": sorted(f"function:{name.value}" for name in step.grant.imports),
            },
        )


_End = (
    MemoryObjectSendStream[bytes]
    | MemoryObjectReceiveStream[bytes]
    | MemoryObjectSendStream[Part | Closed]
    | MemoryObjectReceiveStream[Part | Closed]
)


class _Open:
    """A request or stream in progress: how to cancel it, and where to put the bytes that the connector sends for it."""

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self.hung_up: anyio.Event | None = None  # set for an open stream or WebSocket: closing it is no failure
        self.over: Final = anyio.Event()
        self.upload: MemoryObjectSendStream[bytes] | None = None
        self.body: MemoryObjectReceiveStream[bytes] | None = None
        self.said: MemoryObjectSendStream[Part | Closed] | None = None  # messages on a WebSocket
        self.to_say: MemoryObjectReceiveStream[Part | Closed] | None = None

    @property
    def ends(self) -> tuple[_End | None, ...]:
        """Both ends of each memory stream (anyio) that this request has, to be closed; None stands for a memory stream
        that it does not have.
        """
        return self.upload, self.body, self.said, self.to_say


class Broker:
    """Executes the requests and streams of a connector in one try of one step. `serve` runs as a task for each request or
    stream; `deliver` routes the connector's further frames to the request or stream that they belong to.
    """

    def __init__(self, egress: WayOut, step: Step, meter: Meter, journal: Journal, deadline: float, send: Send) -> None:
        self._egress = egress
        self._step = step
        self._meter = meter
        self._journal = journal
        self._deadline = deadline
        self._send = send
        self._open: dict[int, _Open] = {}

    def accept(self, request: Request) -> None:
        """Register a new request of the connector before its task runs, so that the request's chunks can be routed to it."""
        entry = self._open[request.id] = _Open()
        if isinstance(request, WebSocketOpen):
            entry.said, entry.to_say = anyio.create_memory_object_stream[Part | Closed](_UPLOAD_CHUNKS)
        elif isinstance(request, TcpOpen) or request.body == "stream":
            entry.upload, entry.body = anyio.create_memory_object_stream[bytes](_UPLOAD_CHUNKS)

    async def deliver(self, frame: Frame) -> None:
        """Route a chunk, a message or a cancel from the connector to its request. Frames for a request that has ended
        are dropped.
        """
        message = frame.message
        if isinstance(message, Cancel):
            entry = self._open.get(message.id)
            if entry is not None and entry.hung_up is not None:
                _hang_up(entry, entry.hung_up)
            elif entry is not None:
                entry.scope.cancel()
        elif isinstance(message, Chunk):
            entry = self._open.get(message.id)
            if entry is not None and entry.upload is not None:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    if frame.body:
                        await entry.upload.send(frame.body)
                    if message.end:
                        entry.upload.close()
        elif isinstance(message, WebSocketMessage | WebSocketClose):
            entry = self._open.get(message.id)
            if entry is not None and entry.said is not None:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await entry.said.send(_said(message, frame.body))

    async def finish(self) -> None:
        """Close the open streams after the connector's last frame. Bytes that the connector wrote to them are still
        sent, as when any process ends.
        """
        streams = [(entry, entry.hung_up) for entry in self._open.values() if entry.hung_up is not None]
        for entry, hung_up in streams:
            _hang_up(entry, hung_up)
        with anyio.move_on_after(_FLUSH_S + _END_S):
            for entry, _ in streams:
                await entry.over.wait()

    async def serve(self, request: Request, inline: bytes) -> None:
        """Execute one request or stream of the connector. Raises AileronError if the failure must end the invocation."""
        entry = self._open[request.id]
        try:
            with entry.scope:
                if isinstance(request, TcpOpen):
                    is_over = await self._connect(request, entry)
                elif isinstance(request, WebSocketOpen):
                    is_over = await self._talk(request, entry)
                else:
                    is_over = await self._exchange(request, self._body(request, inline, entry))
                if is_over:
                    return
            await self._refuse(request.id, FailureClass.CANCELLED, "cancelled by the connector", {})
        except AileronError as error:
            failure = error.failure
            if failure.failure_class is not FailureClass.NETWORK_ERROR:
                raise
            await self._refuse(request.id, failure.failure_class, failure.message, failure.details)
        finally:
            del self._open[request.id]
            entry.over.set()
            for stream in entry.ends:
                if stream is not None:
                    stream.close()

    async def _exchange(self, request: HttpRequest, body: bytes | AsyncIterator[bytes] | None) -> bool:
        """Execute one HTTP request, and send its response up to the last chunk. Always return True: the final frame was
        sent.
        """
        asked = EgressRequest(
            method=request.method,
            url=request.url,
            headers=tuple((name, value) for name, value in request.headers),
            credential=request.credential,
            body=body,
        )
        async with self._egress.open(asked, self._step.grant, self._meter, self._journal, self._deadline) as response:
            await self._answer(request.id, response)
        return True

    async def _answer(self, request_id: int, response: EgressResponse) -> None:
        await self._send(HttpHead(id=request_id, status=response.status, headers=list(response.headers)), b"")
        async for piece in response:
            await self._send(Chunk(id=request_id), piece)
        await self._send(Chunk(id=request_id, end=True), b"")

    async def _connect(self, request: TcpOpen, entry: _Open) -> bool:
        """Execute one stream until both directions have ended. Return False if the connector closed the stream and the
        final frame must still be sent.
        """
        asked = StreamRequest(request.host, request.port, request.tls, request.command)
        streams = self._egress.streams
        async with streams.open(asked, self._step.grant, self._meter, self._journal, self._deadline) as stream:
            await self._send(TcpOpened(id=request.id), b"")
            entry.hung_up = anyio.Event()
            await self._relay(request.id, stream, entry, entry.hung_up)
        return not entry.hung_up.is_set()

    async def _relay(self, stream_id: int, stream: Stream, entry: _Open, hung_up: anyio.Event) -> None:
        """Relay bytes between the connector and the stream in both directions."""

        async def up() -> None:
            assert entry.body is not None  # `accept` gave every stream one
            async for piece in entry.body:
                await stream.send(piece)
            stream.end()

        async def down() -> None:
            while piece := await stream.receive():
                await self._send(Chunk(id=stream_id), piece)
            await self._send(Chunk(id=stream_id, end=True), b"")

        ways = _BothWays(hung_up)
        await ways.carry(up, down, stream.attend)
        if hung_up.is_set():
            with anyio.CancelScope(deadline=min(ways.upward.deadline, anyio.current_time() + _FLUSH_S)):
                await stream.flush()

    async def _talk(self, request: WebSocketOpen, entry: _Open) -> bool:
        """Execute one WebSocket until it is closed, or relay the service's response if the service opened none. Return
        False if the connector closed the WebSocket and the final frame must still be sent.
        """
        asked = WebSocketRequest(
            url=request.url,
            headers=tuple((name, value) for name, value in request.headers),
            subprotocols=tuple(request.subprotocols),
            credential=request.credential,
        )
        websockets = self._egress.websockets
        async with websockets.open(asked, self._step.grant, self._meter, self._journal, self._deadline) as answer:
            if not isinstance(answer, WebSocket):
                await self._answer(request.id, answer)
                return True
            opened = answer.opened
            head = WebSocketOpened(id=request.id, headers=list(opened.headers), subprotocol=opened.subprotocol)
            await self._send(head, b"")
            entry.hung_up = anyio.Event()
            await self._converse(request.id, answer, entry, entry.hung_up)
        return not entry.hung_up.is_set()

    async def _converse(self, request_id: int, websocket: WebSocket, entry: _Open, hung_up: anyio.Event) -> None:
        """Relay messages in both directions until both sides have closed the WebSocket."""
        both, is_closed = _BothWays(hung_up), False

        async def up() -> None:
            assert entry.to_say is not None  # `accept` gave every WebSocket one
            last = Closed(_GOING_AWAY, "")
            async for said in entry.to_say:
                if isinstance(said, Closed):
                    last = said
                    break
                await websocket.send(said)
            await websocket.close(last.code, last.reason)
            both.downward.deadline = anyio.current_time() + _FLUSH_S

        async def down() -> None:
            nonlocal is_closed
            with contextlib.suppress(anyio.EndOfStream):  # `attend` raises the reason
                while isinstance(heard := await websocket.receive(), Part):
                    message = WebSocketMessage(id=request_id, text=heard.is_text, more=not heard.is_last)
                    await self._send(message, heard.data)
                is_closed = True
                both.upward.cancel()  # the service no longer reads
                await self._send(WebSocketClose(id=request_id, code=heard.code, reason=heard.reason), b"")

        await both.carry(up, down, websocket.attend)
        if not is_closed and not hung_up.is_set():
            await self._send(WebSocketClose(id=request_id), b"")

    @staticmethod
    def _body(request: HttpRequest, inline: bytes, entry: _Open) -> bytes | AsyncIterator[bytes] | None:
        if request.body == "inline":
            return inline
        return entry.body

    async def _refuse(self, request_id: int, failure_class: FailureClass, message: str, details: JSONMembers) -> None:
        error = FrameFailure(failure_class=failure_class.value, message=message, details=details)
        await self._send(Refused(id=request_id, error=error), b"")


class _BothWays:
    """The two directions of a stream or WebSocket. The first failure of either direction ends both; only that failure
    is raised.
    """

    def __init__(self, hung_up: anyio.Event) -> None:
        self._hung_up: Final = hung_up
        self._problem: AileronError | None = None
        self.upward: Final = anyio.CancelScope()
        self.downward: Final = anyio.CancelScope()

    async def carry(
        self,
        up: Callable[[], Awaitable[None]],
        down: Callable[[], Awaitable[None]],
        attend: Callable[[], Awaitable[None]],
    ) -> None:
        """Run `up` and `down`, which each carry one direction, until both have ended. Meanwhile, run `attend`."""
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._close_when_told)
            watching.start_soon(self._carry, attend, anyio.CancelScope())
            async with anyio.create_task_group() as both:
                both.start_soon(self._carry, up, self.upward)
                both.start_soon(self._carry, down, self.downward)
            watching.cancel_scope.cancel()
        if self._problem is not None:
            raise self._problem

    async def _carry(self, direction: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await direction()
        except AileronError as error:
            self._problem = self._problem or error
            self.upward.cancel()
            self.downward.cancel()

    async def _close_when_told(self) -> None:
        await self._hung_up.wait()
        self.downward.cancel()
        self.upward.deadline = anyio.current_time() + _FLUSH_S


def _said(message: WebSocketMessage | WebSocketClose, body: bytes | None) -> Part | Closed:
    if isinstance(message, WebSocketClose):
        return Closed(message.code, message.reason)
    return Part(body or b"", is_text=message.text, is_last=not message.more)


def _hang_up(entry: _Open, hung_up: anyio.Event) -> None:
    for end in (entry.upload, entry.said):
        if end is not None:
            end.close()  # what was sent before still goes out
    hung_up.set()
