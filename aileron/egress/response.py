"""The response as the connector can see it: checked head, decoded and scrubbed body.

Runs in the daemon, on bytes of an upstream it does not trust; what comes out goes into a jail. Does no I/O of its own:
the engine passes a function that reads the next chunk.

Rules
- The reason phrase and trailers are not relayed, because nothing needs them, and they could echo a secret.
- A body is decoded before it is counted, counted before it is scrubbed, and given out piece by piece: at most one piece of a
  compression bomb exists at a time.
- After an error, every later read raises the same error.
- Many small chunks, or one chunk that decompresses to much, are processed without any wait. After `TURN_S` of such work
  the event loop gets a turn, so that an upstream cannot block it.

Source: docs/reference/egress.md. Not here: the fields (headers.py), the codings (decode.py), the masks (scrub.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import anyio

from aileron.egress.decode import Decoder
from aileron.egress.headers import Field
from aileron.egress.meter import Meter
from aileron.egress.refusal import BadAnswerError
from aileron.egress.scrub import Needles, Scrubber
from aileron.egress.unlabelled import Unlabelled
from aileron.model.failure import AileronError

__all__ = ["TURN_S", "Body", "EgressResponse", "scrub_fields"]

ReadChunk = Callable[[], Awaitable[bytes | None]]
"""Type of a function that returns the next bytes off the wire, None after the last. Raises AileronError if the bytes
cannot be read.
"""


TURN_S: Final = 0.005
"""Seconds of work on a body before the daemon's other tasks get a turn. A single piece takes 1 ms, or 100 ms in the
worst case.
"""


class EgressResponse:
    """Status, header fields and body of a response, scrubbed. Iterating it, which is possible only once, yields the
    body in non-empty pieces of at most 256 KiB.
    """

    def __init__(self, status: int, headers: tuple[Field, ...], body: Body) -> None:
        self.status: Final = status
        self.headers: Final = headers
        self._body = body

    @property
    def scrubbed(self) -> int:
        """Number of occurrences of a secret that were masked so far."""
        return self._body.scrubbed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body

    async def hold(self, most_bytes: int) -> bool:
        """Read the body ahead and store it for the iteration. Return True if the complete body is stored, False if it
        has more than `most_bytes`.

        Raises AileronError as reading the body does.
        """
        return await self._body.hold(most_bytes)

    @property
    def held(self) -> bytes:
        """Bytes of the body that `hold` has read ahead and that the iteration has not taken yet."""
        return self._body.held

    def __repr__(self) -> str:
        return f"<EgressResponse {self.status}>"


class Body(AsyncIterator[bytes]):
    """The body of a response, which is decoded, counted and scrubbed while it is received. `bytes_down` is the decoded size so
    far.
    """

    def __init__(
        self,
        read: ReadChunk,
        meter: Meter,
        needles: Callable[[], Needles],
        decoder: Decoder | None,
        hits_in_fields: int,
        fail: Callable[[str], AileronError],
    ) -> None:
        """Take `needles`, a function that returns the secrets to search the body for; it is called before each piece."""
        self._read = read
        self._meter = meter
        self._needles = needles
        self._decoder = decoder
        self._scrubber = Scrubber(needles())
        self._unlabelled = Unlabelled(needles())
        self._fail = fail
        self._pieces: Iterator[bytes] = iter(())
        self._complete = False
        self._hits_in_fields = hits_in_fields
        self._kept: deque[bytes] = deque()
        self._turn_at = time.monotonic() + TURN_S
        self.failure: AileronError | None = None
        self.bytes_down = 0

    @property
    def scrubbed(self) -> int:
        """Number of occurrences of a secret masked so far, including those in header fields."""
        return self._hits_in_fields + self._scrubber.hits

    @property
    def held(self) -> bytes:
        """Bytes of the body that `hold` has read ahead and that the iteration has not taken yet."""
        return b"".join(self._kept)

    async def hold(self, most_bytes: int) -> bool:
        """Read the body ahead and store it; see `EgressResponse.hold`."""
        kept, size = deque[bytes](), 0
        try:
            while size <= most_bytes:
                kept.append(await anext(self))
                size += len(kept[-1])
        except StopAsyncIteration:
            return True
        finally:
            self._kept = kept
        return False

    async def __anext__(self) -> bytes:
        if self._kept:
            return self._kept.popleft()
        if self.failure is not None:
            raise self.failure
        try:
            while True:
                await self._give_turn()
                piece = self._next_piece()
                if piece:
                    return piece
                if piece is None:
                    if self._complete:
                        break
                    chunk = await self._read()
                    self._complete = chunk is None
                    self._pieces = self._finish() if chunk is None else self._take_in(chunk)
        except AileronError as error:
            self.failure = error
            raise
        raise StopAsyncIteration

    async def _give_turn(self) -> None:
        if time.monotonic() >= self._turn_at:
            await anyio.lowlevel.checkpoint()
            self._turn_at = time.monotonic() + TURN_S

    def _next_piece(self) -> bytes | None:
        """Return the next decoded and scrubbed piece of the body, which may be empty. Return None if another chunk must
        be read from the wire first.
        """
        try:
            return next(self._pieces, None)
        except BadAnswerError as error:
            words = str(error)
        raise self._fail(words)

    def _take_in(self, chunk: bytes) -> Iterator[bytes]:
        for piece in (chunk,) if self._decoder is None else self._decoder.feed(chunk):
            self._meter.count_down(len(piece))
            self.bytes_down += len(piece)
            needles = self._needles()  # another secret may have been bound, renewed or lent since
            self._scrubber.look_for(needles)
            self._unlabelled.look_for(needles)
            for part in self._unlabelled.feed(piece):
                yield self._scrubber.feed(part)

    def _finish(self) -> Iterator[bytes]:
        if self._decoder is not None:
            self._decoder.finish()
        for part in self._unlabelled.finish():
            yield self._scrubber.feed(part)
        yield self._scrubber.finish()


def scrub_fields(fields: tuple[tuple[bytes, bytes], ...], needles: Needles) -> tuple[tuple[Field, ...], int]:
    """Return header fields as text, with names and values scrubbed, and the number of masked occurrences."""
    hits = 0
    if needles.may_be_in(b"\n".join(part for field in fields for part in field)):
        scrubber, masked = Scrubber(needles), []
        for name, value in fields:
            (name_text, in_name), (value_text, in_value) = scrubber.scrub_whole(name), scrubber.scrub_whole(value)
            masked.append((name_text, value_text))
            hits += in_name + in_value
        fields = tuple(masked)
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields), hits
