"""A request that may get tools: its body is read, and it goes on with them in rounds, or as it was.

Runs in the daemon, in the gateway's exchange (proxy.py), which has said by then whose session it is and with which fields the
request goes. Here are the two sides as rounds need them (sides.py), with a body and fields of ours where something was changed.

Source: docs/reference/injected-tools.md. Not here: what a round is (exchange.py), who may ask (proxy.py).
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
    """Answer one request of a session's, to one of WIRES. What cannot be read or is not understood goes to `relay`, as it came.

    AileronError(busy), (network_error).
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
    """The API, asked once for each round."""

    def __init__(self, upstream: Upstream, patience: Patience) -> None:
        self._upstream: Final = upstream
        self._patience: Final = patience

    @contextlib.asynccontextmanager
    async def ask(self, body: bytes, number: int) -> AsyncIterator[_Said]:
        """A round with a body of ours."""
        fields = round_fields(self._upstream.fields, len(body), number)
        async with self._upstream.response(fields, body) as response:
            yield _Said(response, self._patience)


class _Said:
    """What an API answers to a round."""

    def __init__(self, response: httpcore2.Response, patience: Patience) -> None:
        self._response: Final = response
        self._patience: Final = patience
        self.status: Final = response.status
        self.fields: Final[Fields] = list(response.headers)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body."""
        self._patience.wait_for("provider")
        async for piece in self._response.aiter_stream():
            yield piece
            self._patience.wait_for("provider")


class _Told:
    """The agent, of a request with rounds."""

    def __init__(self, sides: Sides) -> None:
        self._answer: Final = sides.answer
        self._patience: Final = sides.patience

    async def begin(self, status: int, fields: Fields, length: int | None) -> None:
        """Status and fields."""
        self._patience.wait_for("agent")
        told = [field for field in response_fields(fields) if field[0].lower() != b"content-length"]
        if length is not None:
            told.append((b"content-length", b"%d" % length))
        await self._answer.begin(status, told)

    async def write(self, piece: bytes) -> None:
        """One piece."""
        self._patience.wait_for("agent")
        await self._answer.write(piece)

    async def end(self) -> None:
        """It was whole."""
        self._patience.wait_for("agent")
        await self._answer.end()

    def wait_for_tools(self, limit_s: float) -> None:
        """Neither side owes anything."""
        self._patience.wait_for("us", limit_s)


class _Body:
    """A request's body, of which as much as is read for tools was read; iterated it is what it was."""

    def __init__(self, pieces: list[bytes], rest: AsyncIterator[bytes] | None) -> None:
        self.pieces: Final = pieces
        self._rest: Final = rest

    @classmethod
    async def read(cls, upload: Upload, held: Holding) -> _Body:
        """The whole of it, or more than MAX_BODY_BYTES. AileronError(busy)."""
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
        """Whether `pieces` are all of it."""
        return self._rest is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All of it."""
        for piece in self.pieces:
            yield piece
        if self._rest is not None:
            async for piece in self._rest:
                yield piece
