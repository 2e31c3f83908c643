"""Handling of a request that can get injected tools: its body is read, and it is sent in rounds with the tools, or passed on
unchanged.

Runs in the daemon, in the gateway's exchange (proxy.py), which has already determined the session and the fields of the
request. This module adapts the two sides (sides.py) for rounds, with another body and other header fields if the request was
changed.

Source: docs/reference/injected-tools.md. Not here: the rounds themselves (exchange.py), which callers are admitted
(proxy.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Final

import httpcore2

from aileron.gateway.inject.exchange import MAX_BODY_BYTES, WIRES, Exchange, Holding, Injection, understood
from aileron.gateway.sides import Patience, Sides, Upload, Upstream
from aileron.gateway.upstreams import Fields, response_fields, round_fields, why_unread

__all__ = ["with_tools"]


async def with_tools(
    injection: Injection,
    session: str,
    path: bytes,
    upstream: Upstream,
    sides: Sides,
    relay: Callable[[AsyncIterable[bytes]], Awaitable[None]],
) -> None:
    """Answer a session's request to one of WIRES. A request that cannot be read or is not understood is passed to
    `relay`, which sends it as it came.

    Raises AileronError: busy if too many bytes are held, network_error if a connection broke.
    """
    with injection.holding(session) as held:
        body = await _Body.read(sides.upload, held)
        why = why_unread(upstream.fields) or (
            None if body.is_whole else f"the body has more than {MAX_BODY_BYTES} bytes"
        )
        if why is not None:
            await injection.tools.passed(session, WIRES[path].wire, why)
        found = None if why else await understood(injection, session, path, b"".join(body.pieces))
        if found is None:
            await relay(body)
        else:
            await Exchange(injection, found, _Rounds(upstream, sides.patience), _Told(sides)).run()


class _Rounds:
    """The API side of a request with rounds: it sends a request for each round."""

    def __init__(self, upstream: Upstream, patience: Patience) -> None:
        self._upstream: Final = upstream
        self._patience: Final = patience

    @contextlib.asynccontextmanager
    async def ask(self, body: bytes, number: int) -> AsyncIterator[_Said]:
        """Return a context manager that sends the request of round `number` with the body `body`, and yields the API's
        response.
        """
        fields = round_fields(self._upstream.fields, len(body), number)
        async with self._upstream.response(fields, body) as response:
            yield _Said(response, self._patience)


class _Said:
    """The API's response to the request of one round."""

    def __init__(self, response: httpcore2.Response, patience: Patience) -> None:
        self._response: Final = response
        self._patience: Final = patience
        self.status: Final = response.status
        self.fields: Final[Fields] = list(response.headers)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the response's body as they arrive."""
        self._patience.wait_for("provider")
        async for piece in self._response.aiter_stream():
            yield piece
            self._patience.wait_for("provider")


class _Told:
    """The agent's side of a request with rounds."""

    def __init__(self, sides: Sides) -> None:
        self._answer: Final = sides.answer
        self._patience: Final = sides.patience

    async def begin(self, status: int, fields: Fields, length: int | None) -> None:
        """Send the agent the status and the header fields of a provider's response."""
        self._patience.wait_for("agent")
        told = [field for field in response_fields(fields) if field[0].lower() != b"content-length"]
        if length is not None:
            told.append((b"content-length", b"%d" % length))
        await self._answer.begin(status, told)

    async def write(self, piece: bytes) -> None:
        """Send the agent a piece of the answer's body."""
        self._patience.wait_for("agent")
        await self._answer.write(piece)

    async def end(self) -> None:
        """Send the agent the end of the answer's body, which is complete."""
        self._patience.wait_for("agent")
        await self._answer.end()

    def wait_for_tools(self, limit_s: float) -> None:
        """Suspend the time limits of both sides while Aileron's tools run, for at most `limit_s` seconds."""
        self._patience.wait_for("us", limit_s)


class _Body:
    """The body of an agent's request, read up to MAX_BODY_BYTES. Iterating it yields the complete body as it came."""

    def __init__(self, pieces: list[bytes], rest: AsyncIterator[bytes] | None) -> None:
        self.pieces: Final = pieces
        self._rest: Final = rest

    @classmethod
    async def read(cls, upload: Upload, held: Holding) -> _Body:
        """Read the complete body, or just more than MAX_BODY_BYTES of it. Raises AileronError(busy) if requests hold
        too many bytes in memory.
        """
        pieces: list[bytes] = []
        coming = aiter(upload)
        async for piece in coming:
            held.add(len(piece))
            pieces.append(piece)
            if held.size > MAX_BODY_BYTES:
                return cls(pieces, coming)
        return cls(pieces, None)

    @property
    def is_whole(self) -> bool:
        """True if the complete body was read, so that `pieces` has all of it."""
        return self._rest is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the complete body in pieces."""
        for piece in self.pieces:
            yield piece
        if self._rest is not None:
            async for piece in self._rest:
                yield piece
