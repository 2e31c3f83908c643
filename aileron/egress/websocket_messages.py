"""An open WebSocket as the executor sees it: messages in both directions. Each incoming message is searched for
secrets.

Runs in the daemon, on bytes of a service it does not trust; what comes out goes into a jail. wsproto parses and writes
frames, and masks outgoing frames with random bytes; no extension is used, so no compressed data escapes the search.

Rules
- A message is counted as it arrives, decoded from UTF-8 if it is text, decompressed and searched (unlabelled.py), and
  scrubbed (scrub.py), like the body of a response. The frames of a message are searched as one text, but each message
  by itself: a secret that a service splits over two messages is not found, as with two responses.
- A message is given out in parts, so no complete message is held here. At most `MAX_WAITING` parts wait for the
  connector; while that many wait, nothing more is read, and the service has to wait too.
- Pings are answered here. A service that is silent for `PING_EVERY_S` gets a ping, and has `PONG_WITHIN_S` to answer,
  from the time when the ping was written.
- Reading never waits for writing, because a service may not read until its own messages are read. Pongs and pings that
  are due (one pong, for the last ping, and one ping) are written by a separate task.
- A breach of the protocol (a masked or reserved frame, a truncated code point, a fragmented control frame) ends the
  WebSocket: network_error.
- Every byte after the handshake counts against the budget: payload, headers, pings. So frames without content are bounded, too.
- Every wait ends at the deadline of the step.

Source: RFC 6455; docs/reference/egress.md. Not here: which requests get a WebSocket, and the handshake (websocket.py).
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import httpcore2
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from aileron.egress.dial import Wire
from aileron.egress.failures import ConnectionProblem, unreachable
from aileron.egress.headers import Field
from aileron.egress.meter import Meter
from aileron.egress.refusal import BadAnswerError
from aileron.egress.response import TURN_S
from aileron.egress.scrub import Needles, Scrubber
from aileron.egress.steps import within
from aileron.egress.unlabelled import Unlabelled
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort

__all__ = ["MAX_MESSAGE_BYTES", "Closed", "Opened", "Part", "WebSocket"]

MAX_MESSAGE_BYTES: Final = 16 << 20
"""Maximum size of one message: 16 MiB. The default limit of libraries is between 1 MiB (websockets) and 100 MiB (ws of
Node).
"""
MAX_WAITING: Final = 16
"""Maximum number of parts that wait for the connector. Each part has at most the bytes of one read and the bytes that a
search held back, so all parts together have about 1 MiB.
"""
PING_EVERY_S: Final = 20.0  # what websockets and Node's ws suggest; proxies drop what is silent for 30 to 60 s
PONG_WITHIN_S: Final = 20.0
_READ_BYTES: Final = 64 << 10
_LAST_WORD_S: Final = 5.0  # seconds for a service to read the closing frame; one that reads takes it at once

_T = TypeVar("_T")
_Message = TextMessage | BytesMessage


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Part:
    """A message of a WebSocket, or a part of one. `is_last`: no other part of the message follows. All parts of a text
    message, joined, are valid UTF-8.
    """

    data: bytes
    is_text: bool
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Closed:
    """The end of a WebSocket, with the service's code and reason. `code` is None if the service gave no code."""

    code: int | None
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """The parts of the service's response to a WebSocket's handshake that the connector gets, scrubbed."""

    headers: tuple[Field, ...]
    subprotocol: str | None


class WebSocket:
    """An open WebSocket. One task sends, another receives, and a third runs `attend` until the WebSocket is closed."""

    status: Final = 101

    def __init__(
        self,
        wire: Wire,
        reading: httpcore2.AsyncNetworkStream,
        opened: Opened,
        destination: HostPort,
        meter: Meter,
        deadline: float,
        needles: Callable[[], Needles],
    ) -> None:
        """Take `reading`, which is the wire preceded by the bytes that came with the head of the handshake. `needles`
        returns the secrets to search for; it is called before each part.
        """
        self.opened: Final = opened
        self._wire: Final = wire
        self._reading: Final = reading
        self._destination: Final = destination
        self._meter: Final = meter
        self._deadline: Final = deadline
        self._needles: Final = needles
        self._frames: Final = Frames(ConnectionType.CLIENT)
        self._writing: Final = anyio.Lock()
        self._put, self._waiting = anyio.create_memory_object_stream[Part | Closed](MAX_WAITING)
        self._is_owed = anyio.Event()
        self._pong: Pong | None = None
        self._awaiting_pong: anyio.CancelScope | None = None
        self._problem: AileronError | None = None
        self._message: _Incoming | None = None
        self._is_text = False
        self._outgoing: codecs.IncrementalDecoder | None = None
        self._turn_at = 0.0
        self.bytes_up = 0
        self.bytes_down = 0
        self.scrubbed = 0

    async def hold(self, most_bytes: int) -> bool:
        """Return False, as `EgressResponse.hold` does for a body that it cannot hold: a WebSocket has no body to read ahead."""
        return False

    async def send(self, part: Part) -> None:
        """Send a complete part. Raises AileronError: network_error, or resource_limit_exceeded before any byte of the
        part is sent.

        Once the service has closed the WebSocket, parts are dropped.
        """
        if not part.is_text:
            await self._send(BytesMessage(data=part.data, message_finished=part.is_last))
            return
        text = self._decoded(part)
        if text is None:
            raise self._broken("a text that is not UTF-8 was to be sent", retriable=False)
        await self._send(TextMessage(data=text, message_finished=part.is_last))

    async def close(self, code: int | None, reason: str) -> None:
        """Tell the service that nothing more will be sent. `receive` still returns incoming parts, and finally the
        service's answer to the close.
        """
        await self._send(CloseConnection(code=CloseReason.NO_STATUS_RCVD if code is None else code, reason=reason))

    async def receive(self) -> Part | Closed:
        """Return the next part, or `Closed`. Raises anyio.EndOfStream if `attend` has ended with an error."""
        return await self._waiting.receive()

    async def attend(self) -> None:
        """Read, answer pings and search messages, until the WebSocket is closed. Raises AileronError: network_error, or
        resource_limit_exceeded.
        """
        with self._put:
            async with anyio.create_task_group() as both:
                both.start_soon(self._say_owed, both.cancel_scope)
                try:
                    await self._take_all()
                except AileronError as error:  # raised in the group, it would be wrapped in an exception group
                    self._problem = error
                both.cancel_scope.cancel()
        if self._problem is not None:
            raise self._problem

    def end(self) -> None:
        """Close the WebSocket at once, without waiting."""
        self._put.close()
        self._waiting.close()
        self._wire.close()

    async def _take_all(self) -> None:
        closed = None
        while closed is None:
            closed = await self._take_in(await self._read())
        await self._put.send(closed)

    async def _say_owed(self, reading: anyio.CancelScope) -> None:
        """Send the service pongs and pings when they are due, until cancelled. An error cancels `reading`."""
        try:
            while True:
                await self._is_owed.wait()
                async with self._writing:
                    self._is_owed = anyio.Event()
                    await self._write_owed()
        except AileronError as error:
            self._problem = error
            reading.cancel()

    async def _write_owed(self) -> None:
        pong, self._pong = self._pong, None
        awaiting, self._awaiting_pong = self._awaiting_pong, None
        if pong is not None:
            with _may_be_gone():
                await self._write(pong)
        if awaiting is not None:
            await self._write(Ping())
            awaiting.deadline = anyio.current_time() + PONG_WITHIN_S

    async def _take_in(self, data: bytes) -> Closed | None:
        """Process bytes from the service, and queue the messages in them for the connector. Return `Closed` if the
        service has closed the WebSocket.
        """
        self._meter.count_down(len(data))
        self.bytes_down += len(data)
        self._frames.receive_data(data)
        # Parts of one message are searched together; otherwise a service could make each byte cost a search
        parts: list[bytes] = []
        for event in self._frames.events():
            match event:
                case Ping():
                    self._pong = event.response()  # only the last of many needs a pong: RFC 6455 section 5.5.3
                    self._is_owed.set()
                case CloseConnection():
                    return await self._closed(event)
                case TextMessage() | BytesMessage():
                    parts.append(_payload(event))
                    self._is_text = isinstance(event, TextMessage)
                    if event.message_finished:
                        await self._take_message(b"".join(parts), is_over=True)
                        parts.clear()
            await self._give_turn()
        if any(parts):
            await self._take_message(b"".join(parts), is_over=False)
        return None

    async def _take_message(self, data: bytes, *, is_over: bool) -> None:
        if self._message is None:
            self._message = _Incoming(self._needles())
        message, pieces = self._message, []
        try:
            message.look_for(self._needles())  # another secret may have been bound, renewed or lent since
            for piece in message.take(data, is_over=is_over):
                pieces.append(piece)
                await self._give_turn()
        except BadAnswerError as error:
            words = str(error)
        else:
            if is_over:
                self.scrubbed += message.hits
                self._message = None
            if any(pieces) or is_over:
                await self._put.send(Part(b"".join(pieces), self._is_text, is_over))
            return
        raise await self._failed(CloseReason.POLICY_VIOLATION, words)

    async def _closed(self, event: CloseConnection) -> Closed:
        if self._frames.state not in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED):
            raise await self._failed(CloseReason(event.code), "it violated the WebSocket protocol")
        if self._frames.state is ConnectionState.REMOTE_CLOSING:
            await self._say_last(event.response())
        reason, hits = Scrubber(self._needles()).scrub_whole((event.reason or "").encode())
        self.scrubbed += hits
        code = None if event.code == CloseReason.NO_STATUS_RCVD else int(event.code)
        return Closed(code, reason.decode("utf-8", "replace"))

    async def _read(self) -> bytes:
        """Return the next bytes from the service. Send it a ping if it is silent for too long."""
        with anyio.move_on_after(PING_EVERY_S):
            return await self._read_wire()
        with anyio.CancelScope() as self._awaiting_pong:  # no deadline until the ping is written
            self._is_owed.set()
            return await self._read_wire()
        raise self._broken(f"it said nothing for {PING_EVERY_S + PONG_WITHIN_S:.0f} seconds, and did not answer a ping")

    async def _read_wire(self) -> bytes:
        data = await self._exchange(lambda: self._reading.read(_READ_BYTES))
        if not data:
            raise self._broken("it closed the connection without closing the WebSocket")
        return data

    async def _send(self, event: _Message | CloseConnection) -> None:
        async with self._writing:
            await self._write(event)

    async def _write(self, event: _Message | Ping | Pong | CloseConnection) -> None:
        """Write one frame. The caller must hold the lock `_writing`."""
        try:
            data = self._frames.send(event)
        except LocalProtocolError:
            return  # the WebSocket is closed or closing, so the service would not read this
        self._meter.count_up(len(data))
        self.bytes_up += len(data)
        await self._exchange(lambda: self._wire.write(data))

    async def _say_last(self, event: CloseConnection) -> None:
        """Send the closing frame, after which nothing more is read. Takes at most `_LAST_WORD_S`."""
        with _may_be_gone(), anyio.move_on_after(_LAST_WORD_S):
            await self._send(event)

    async def _exchange(self, step: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await within(self._deadline, "exchange", self._destination, step)
        except anyio.BusyResourceError:
            pass  # see stream.py
        raise self._broken("TLS failed: the service requests new keys but does not read")

    async def _give_turn(self) -> None:
        if time.monotonic() >= self._turn_at:
            await anyio.lowlevel.checkpoint()
            self._turn_at = time.monotonic() + TURN_S

    def _decoded(self, part: Part) -> str | None:
        """Return the text of an outgoing part, without an incomplete character at its end, which the next part
        completes. Return None if the part is not UTF-8.
        """
        decoder = self._outgoing = self._outgoing or codecs.getincrementaldecoder("utf-8")()
        if part.is_last:
            self._outgoing = None
        try:
            return decoder.decode(part.data, part.is_last)
        except UnicodeDecodeError:
            return None

    async def _failed(self, code: CloseReason, words: str) -> AileronError:
        """Send the service a closing frame with the reason, if it still accepts frames. Return the error to raise."""
        await self._say_last(CloseConnection(code=code))
        return self._broken(words, retriable=False)

    def _broken(self, words: str, *, retriable: bool = True) -> AileronError:
        return unreachable("exchange", self._destination, ConnectionProblem(words, retriable))


class _Incoming:
    """An incoming message, which is searched for secrets as it arrives."""

    def __init__(self, needles: Needles) -> None:
        self._scrubber: Final = Scrubber(needles)
        self._unlabelled: Final = Unlabelled(needles)
        self._size = 0

    @property
    def hits(self) -> int:
        """Number of occurrences of a secret that were masked."""
        return self._scrubber.hits

    def look_for(self, needles: Needles) -> None:
        """Search the message for the secrets in `needles` from now on."""
        self._scrubber.look_for(needles)
        self._unlabelled.look_for(needles)

    def take(self, data: bytes, *, is_over: bool) -> Iterator[bytes]:
        """Take more bytes of the message, and yield the scrubbed bytes that can be passed on by now. Raises BadAnswerError if
        the message must be refused.
        """
        self._size += len(data)
        if self._size > MAX_MESSAGE_BYTES:
            raise BadAnswerError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
        for part in self._unlabelled.feed(data):
            yield self._scrubber.feed(part)
        if is_over:
            for part in self._unlabelled.finish():
                yield self._scrubber.feed(part)
            yield self._scrubber.finish()


@contextlib.contextmanager
def _may_be_gone() -> Iterator[None]:
    """Return a context manager that ignores a write error, because a service that has disconnected may have sent
    messages that must still be read.
    """
    try:
        yield
    except AileronError as error:
        if error.failure.failure_class is not FailureClass.NETWORK_ERROR:
            raise


def _payload(event: _Message) -> bytes:
    return event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
