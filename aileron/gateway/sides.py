"""The two sides of one exchange, the agent's and the API's: their streams and their time limits.

Runs in the daemon, both for a plain request (proxy.py) and for a request with rounds (inject/rounds.py). It does not
trust either side to end its body properly.

Rules
- One piece of a body is held at a time.
- An agent that disconnects cancels the exchange.
- No error message quotes a library or a peer.

Source: docs/reference/gateway.md; RFC 9110, RFC 9112; the ASGI specification 3.0. Not here: sockets (dial.py), header
fields (upstreams.py), which callers are admitted (proxy.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, Literal

import anyio
import anyio.lowlevel
import httpcore2
import msgspec
from starlette.types import Message, Receive, Send

from aileron.api.failures import ErrorAnswer, ErrorBody
from aileron.gateway.upstreams import Destination, Fields
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass

__all__ = [
    "DRAIN_S",
    "IDLE_S",
    "STRANGER_IDLE_S",
    "Answer",
    "Patience",
    "Sides",
    "Upload",
    "Upstream",
    "busy",
    "refusal",
]

CONNECT_S: Final = 15.0
"""Maximum seconds to connect to an upstream, TCP and TLS together, including a lost packet or two."""
IDLE_S: Final = 660.0
"""Maximum seconds of silence on either side. A model that thinks sends nothing for minutes, and the providers' own
clients wait 600 s by default. The deadline of such a client must come first, so that an agent sees what it would see
without a gateway.
"""
STRANGER_IDLE_S: Final = 15.0
"""Maximum seconds for the next piece of a request body that comes over TCP without an open session. Ingress shares 8
MiB a second among all such bodies, so a piece of 8 KiB has its turn within a second; over a network, two packets may be
lost.
"""
WRITE_S: Final = 60.0
"""Seconds after which an upstream that accepts no byte is considered gone. Until then, the gateway also does not notice
if the agent disconnects.
"""
DRAIN_S: Final = 10.0
"""Maximum seconds to read the rest of an unwanted body. A client that is still writing when it is refused would see a
broken pipe instead of the refusal.
"""
_TURN: Final = 4
"""Number of pieces of a response after which other tasks get a turn, if all pieces came in one packet. One of these
tasks notices that the agent has disconnected; if it got no turn, asyncio would log each write to the closed connection
from the sixth on.
"""
_JSON: Final = msgspec.json.Encoder()
_UNKEPT: Final = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Header fields of responses that the gateway itself makes. A provider's response has only the fields that the provider sent."""


class Patience:
    """The time limit for the party that an exchange waits for: provider, agent or Aileron's tools. When the time is up, `scope`
    is cancelled.

    A single deadline is moved, and only occasionally, because a new scope for each of ten thousand chunks would take a tenth of
    the gateway's time.
    """

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self._party: Literal["provider", "agent", "us"] = "provider"
        self._limit_s = 0.0
        self._since = 0.0

    def wait_for(self, party: Literal["provider", "agent", "us"], limit_s: float | None = None) -> None:
        """Restart the time limit, which now applies to `party`: `limit_s` seconds (default: IDLE_S), or up to 1 % less."""
        limit_s = IDLE_S if limit_s is None else limit_s
        self._party = party
        now = time.monotonic()  # twice for each piece; the event loop's own clock is slower to look up
        if limit_s != self._limit_s or now - self._since > limit_s / 100:
            self._limit_s, self._since = limit_s, now
            self.scope.deadline = anyio.current_time() + limit_s

    def check(self) -> None:
        """Raise AileronError(network_error) if `scope` was cancelled because the party exceeded its time limit."""
        if self.scope.cancelled_caught:
            whats = {"provider": "provider said or took", "agent": "agent sent or took", "us": "tools answered"}
            what = whats[self._party]
            raise AileronError(
                FailureClass.NETWORK_ERROR,
                f"the {what} nothing for {self._limit_s:.0f} s",
                boundary=Boundary.EXTERNAL,
                details={"phase": "exchange"},
            )


class Upload:
    """The body of an agent's request as it arrives, which also detects that the agent has disconnected. Only one task
    at a time calls `receive`.

    httpcore2 iterates the body once. When the iteration ends, for whatever reason, `watch` reads the rest of the body,
    if there is any, and waits for the agent to disconnect.
    """

    def __init__(
        self, receive: Receive, exchange: anyio.CancelScope, patience: Patience, *, is_strangers: bool
    ) -> None:
        self._receive: Final = receive
        self._exchange: Final = exchange
        self._patience: Final = patience
        self._idle_s: Final = STRANGER_IDLE_S if is_strangers else IDLE_S
        self._released: Final = anyio.Event()
        self._whole: Final = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the request's body as they arrive."""
        try:
            while not self._whole.is_set():
                self._patience.wait_for("agent", self._idle_s)
                if piece := await self._next():
                    self._patience.wait_for("provider", WRITE_S)
                    yield piece
            self._patience.wait_for("provider")
        finally:
            self._released.set()

    async def watch(self) -> None:
        """Wait until the agent disconnects, and then cancel the exchange with the API."""
        await self._released.wait()
        while True:
            self._note(await self._receive())

    async def drain(self) -> None:
        """Read and discard the rest of the agent's body, for at most DRAIN_S."""
        self._released.set()
        if not self._whole.is_set():
            with anyio.move_on_after(DRAIN_S):
                await self._whole.wait()

    async def _next(self) -> bytes:
        message = await self._receive()
        self._note(message)
        if self._exchange.cancel_called:
            await anyio.lowlevel.checkpoint()  # raises, as the exchange is cancelled
        body: bytes = message.get("body", b"")
        return body

    def _note(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._exchange.cancel()
        elif not message.get("more_body", False):
            self._whole.set()


class Answer:
    """The response that is sent to the agent."""

    def __init__(self, send: Send, exchange: anyio.CancelScope) -> None:
        self._send: Final = send
        self._exchange: Final = exchange
        self._pieces = 0
        self.has_begun = False

    async def begin(self, status: int, fields: Fields) -> None:
        """Send the agent the response's status and header fields."""
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def write(self, piece: bytes) -> None:
        """Send the agent a piece of the response's body."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._pieces += 1
        if self._pieces % _TURN == 0:
            await anyio.lowlevel.checkpoint()
            if self._exchange.cancel_called:
                await anyio.sleep_forever()  # is cancelled at once

    async def end(self) -> None:
        """Send the agent the end of the response's body, which is complete."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, failure: Failure, status: int | None = None) -> None:
        """Send the agent an error response of the gateway's own, in the form that all of the daemon's responses have."""
        with anyio.move_on_after(DRAIN_S):
            for message in refusal(failure, status or failure.failure_class.http_status):
                await self._send(message)


class Upstream:
    """A request that is sent to a model's API. `fields` are the agent's header fields that go upstream; a caller may
    change them before passing them to `response`.
    """

    def __init__(
        self,
        pool: httpcore2.AsyncConnectionPool,
        destination: Destination,
        method: str,
        target: bytes,
        fields: Fields,
        patience: Patience,
    ) -> None:
        self._pool: Final = pool
        self._to: Final = destination
        self._method: Final = method
        self._target: Final = target
        self.fields: Final = fields
        self._patience: Final = patience

    @contextlib.asynccontextmanager
    async def response(
        self, fields: Fields, content: bytes | AsyncIterable[bytes]
    ) -> AsyncIterator[httpcore2.Response]:
        """Send the request and yield the API's response. If the response breaks off, the block of this context manager
        ends with an error.

        Raises AileronError: network_error if the API cannot be reached or breaks off, busy if the pool is full,
        invalid_request if HTTP/1.1 cannot carry the request's fields.
        """
        to = self._to
        request = httpcore2.Request(
            self._method,
            httpcore2.URL(scheme=to.scheme, host=to.host, port=to.port, target=self._target),
            headers=fields,
            content=content,
            extensions={"timeout": {"connect": CONNECT_S, "pool": CONNECT_S}},
        )
        self._patience.wait_for("provider", WRITE_S)
        try:
            response = await self._pool.handle_async_request(request)
        except _HTTP_ERRORS as error:
            raise _failed(to, error) from None
        try:
            if response.status < 200:
                raise _failed(to, None)
            yield response
        except _HTTP_ERRORS as error:
            raise _failed(to, error) from None
        finally:
            with anyio.CancelScope(shield=True):  # closing never waits (dial.py)
                await response.aclose()


class Sides(msgspec.Struct, frozen=True):
    """The agent's side of one exchange, and the time limit of both sides."""

    upload: Upload
    answer: Answer
    patience: Patience


def refusal(failure: Failure, status: int, more: Fields | None = None) -> list[Message]:
    """Return the ASGI messages of an error response of the gateway's own."""
    body = _JSON.encode(ErrorAnswer(error=ErrorBody.of(failure, None)))
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *_UNKEPT, *(more or [])]
    return [
        {"type": "http.response.start", "status": status, "headers": fields},
        {"type": "http.response.body", "body": body, "more_body": False},
    ]


_HTTP_ERRORS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)


def _failed(to: Destination, error: Exception | None) -> AileronError:
    """Return the AileronError for an httpcore2 error, in Aileron's own words, because a library's message may quote
    what a peer sent. `error` is None if the response has a status below 200.
    """
    match error:
        case httpcore2.PoolTimeout():
            return busy("no connection to the model is free: try again")
        case httpcore2.LocalProtocolError():
            return AileronError(FailureClass.INVALID_REQUEST, "the request's fields are none that HTTP/1.1 can carry")
        case httpcore2.ReadError() | httpcore2.WriteError():
            why = "broke the connection off"
        case _:
            why = "ended the connection before the end of its answer, or does not speak HTTP/1.1"
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{to.authority.decode()} {why}",
        boundary=Boundary.EXTERNAL,
        details={"phase": "exchange"},
    )


def busy(why: str) -> AileronError:
    """Return the AileronError(busy) for too many requests, in the gateway or in its connection pool.

    `why` ends with advice for the caller.
    """
    return AileronError(FailureClass.BUSY, why, retriable=True)
