"""A body that is compressed and does not say so: what is in it is searched, while it goes on as it came.

An archive is one, rightly so; and so is a reflected request that some layer of a service compressed and forgot to say. A
connector can decompress what it gets. So a body that begins as gzip, zlib or raw deflate do is decompressed here beside, and what
comes of it is searched. Nothing can be masked inside of it: one that holds a secret does not come in. Pure and incremental; runs
in the daemon on hostile bytes.

Rules
- A piece is given out when all it decompresses to is searched and clean; what is held back is bounded.
- Output costs what it costs where a body says that it is compressed: PIECE_BYTES at a time, and MAX_RATIO for all of it.
- What turns out to be no such stream, or goes on after it, goes on unsearched here: it is searched as it is (scrub.py).
- A beginning that is text is no compressed stream: of raw deflate, which has no mark of its own, this is all that tells.

>>> import gzip
>>> body = Unlabelled(Needles([b"hunter2-hunter2"]))
>>> body.feed(gzip.compress(b"nothing of the kind")) + body.finish() == gzip.compress(b"nothing of the kind")
True

Source: RFC 1950 to 1952. Not here: bodies that say how they are encoded (decode.py); other compressions, which nobody looks into.
"""

from __future__ import annotations

import codecs
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Final

from aileron.egress.decode import MAX_RATIO, PIECE_BYTES, RATIO_FREE_BYTES
from aileron.egress.refusal import BadAnswerError
from aileron.egress.scrub import Needles, Scrubber

__all__ = ["Unlabelled"]

MAX_HELD_BYTES: Final = 512 << 10
"""Of pieces that wait for what they decompress to: some of 64 KiB. More is a stream that says nothing in many bytes."""
_LOOKED_AT: Final = 64  # bytes of a beginning that are text, or not
_NO_TEXT: Final = bytes(range(0x20)).translate(None, b"\t\n\f\r\x1b")
_GZIP: Final = b"\x1f\x8b"


class Unlabelled:
    """One body. `feed` gives out what may go on; BadAnswerError when a secret is in it, or it grows too much."""

    def __init__(self, needles: Needles) -> None:
        self._scrubber = Scrubber(needles)
        self._begin = b""
        self._stream: zlib._Decompress | None = None
        self._is_gzip = False
        self._is_known = False
        self._held = deque[tuple[bytes, int]]()  # pieces, and how much all decompressed to behind each
        self._held_bytes = self._bytes_in = self._bytes_out = self._decided = 0

    def look_for(self, needles: Needles) -> None:
        """From here on, these."""
        self._scrubber.look_for(needles)

    def feed(self, piece: bytes) -> bytes:
        """What may go on by now. May be empty."""
        if not self._is_known:
            piece = self._begin = self._begin + piece
            if len(piece) < len(_GZIP):
                return b""
            self._know(piece)
        if self._stream is None:
            return piece
        self._inflate(piece)
        self._held.append((piece, self._bytes_out))
        self._held_bytes += len(piece)
        return self._released()

    def finish(self) -> bytes:
        """What was held back, when the body is over."""
        self._search(b"", is_over=True)
        self._decided = self._bytes_out
        rest = self._released()
        return rest if self._is_known else self._begin

    def _know(self, begin: bytes) -> None:
        self._is_known, self._begin = True, b""
        self._is_gzip = begin.startswith(_GZIP)
        first, second = begin[:2]
        is_zlib = first & 0x8F == 8 and (first << 8 | second) % 31 == 0 and not second & 0x20
        if self._is_gzip or is_zlib or not _is_text(begin[:_LOOKED_AT]):
            self._stream = zlib.decompressobj(wbits=31 if self._is_gzip else 15 if is_zlib else -15)

    def _inflate(self, data: bytes) -> None:
        self._bytes_in += len(data)
        while self._stream is not None and data:
            before = self._stream.copy()
            try:
                for out in _pieces(self._stream, data):
                    self._search(out)
            except zlib.error:
                for out in _up_to_the_error(before, data):  # zlib gave out nothing of a call that failed
                    self._search(out)
                self._stream = None
            else:
                data = self._stream.unused_data
                if self._stream.eof:
                    goes_on = self._is_gzip and _GZIP.startswith(data[:2])
                    self._stream = zlib.decompressobj(wbits=31) if goes_on else None
        if self._stream is None:
            self._search(b"", is_over=True)
            self._decided = self._bytes_out

    def _search(self, out: bytes, *, is_over: bool = False) -> None:
        self._bytes_out += len(out)
        if self._bytes_out > RATIO_FREE_BYTES and self._bytes_out > MAX_RATIO * self._bytes_in:
            raise BadAnswerError(f"its body is compressed, does not say so, and grows more than {MAX_RATIO} times")
        self._decided += len(self._scrubber.feed(out) + (self._scrubber.finish() if is_over else b""))
        if self._scrubber.hits:
            raise BadAnswerError(
                "its body is compressed, does not say so, and holds a secret that is bound for this host"
            )

    def _released(self) -> bytes:
        released = []
        while self._held and self._held[0][1] <= self._decided:
            released.append(self._held.popleft()[0])
            self._held_bytes -= len(released[-1])
        if self._held_bytes > MAX_HELD_BYTES:
            raise BadAnswerError("its body is compressed, does not say so, and says nothing in many bytes")
        return b"".join(released)


def _is_text(begin: bytes) -> bool:
    """UTF-8 without odd control characters, as far as it goes."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begin)
    except UnicodeDecodeError:
        return False
    return not begin.translate(None, bytes(set(range(0x100)) - set(_NO_TEXT)))


def _pieces(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    while True:
        out = stream.decompress(data, PIECE_BYTES)
        yield out
        data = stream.unconsumed_tail
        if stream.eof or (not data and len(out) < PIECE_BYTES):
            return


def _up_to_the_error(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """What comes of the data before what is wrong with it."""
    for size in (64, 1):
        for at in range(0, len(data), size):
            before = stream.copy()
            try:
                yield from _pieces(stream, data[at : at + size])
            except zlib.error:
                stream, data = before, data[at : at + size]
                break
