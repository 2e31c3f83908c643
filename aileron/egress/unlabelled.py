"""A search for secrets in bodies that are compressed but not labelled as compressed. A clean body is passed on
unchanged.

Such a body is legitimate if it is an archive. It can also be a reflected request, with the secret in it, that some
layer of a service compressed without setting a header. A connector can decompress the body that it gets. So a copy of
each body that begins as gzip or zlib is decompressed here, for as long as it can be such a stream, and the result is
searched. Compressed data cannot be masked, so a body that contains a secret is refused. Pure and incremental; runs in
the daemon on hostile bytes.

Rules
- A piece is passed on once all of its decompressed bytes have been searched and are clean; the number of held-back
  bytes is bounded.
- Output is bounded as for a body that is labelled as compressed: PIECE_BYTES at a time, and MAX_RATIO for all of it.
  The members of a gzip file are bounded by its size: many tiny ones are refused.
- A body that turns out not to be such a stream, and bytes after a stream, are not searched here: scrub.py searches them
  as they are.
- The first byte decides whether a body is followed, and only an error of zlib ends that. No JSON, HTML or stream of
  events begins as gzip or zlib does. Text that does (`x^`, `HK`) is held back until zlib reports an error, after some
  20 bytes.
- Raw deflate has no mark of its own, and is not searched (docs/adr/0032-scrubbed-of-what-could-have-been-sent.md).
- With no secret to search for, nothing is held back or refused, and the stream is only followed, for _FOLLOWED_BYTES,
  so that it can be searched if a secret is bound meanwhile. A body that has exceeded _FOLLOWED_BYTES by then is
  refused.

>>> import gzip
>>> body = Unlabelled(Needles([b"hunter2-hunter2"]))
>>> packed = gzip.compress(b"nothing of the kind")
>>> b"".join([*body.feed(packed), *body.finish()]) == packed
True

Source: RFC 1950 to 1952. Not here: bodies that are labelled with their coding (decode.py); other compressions, which
are not searched.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from typing import Final

from aileron.egress.decode import MAX_RATIO, PIECE_BYTES, RATIO_FREE_BYTES
from aileron.egress.refusal import BadAnswerError
from aileron.egress.scrub import Needles, Scrubber

__all__ = ["Unlabelled"]

MAX_HELD_BYTES: Final = 512 << 10
"""Maximum number of compressed bytes that are held back until their decompressed text has been searched: several pieces
of 64 KiB. Only a body with many bytes that decompress to nothing exceeds it.
"""
MAX_MEMBERS: Final = 1000
"""Maximum number of members of one gzip file, plus one for each MEMBER_BYTES of its size. Beginning a member costs as
much time as decompressing some hundred bytes.
"""
MEMBER_BYTES: Final = 128
_FOLLOWED_BYTES: Final = 1 << 20  # in or out, some 3 ms of work: answers of an API are less, archives more
_STEP_BYTES: Final = 16 << 10
"""Maximum number of compressed bytes in one call of zlib, which copies what follows the end of a gzip member. The
decompressor's state (40 KiB) is copied before each call if the output is searched.
"""
_JOINED_BYTES: Final = 1 << 10  # pieces are held together up to this size, or each byte of a held one could cost 150
_GZIP: Final = b"\x1f\x8b"


class Unlabelled:
    """The search of one body that may be compressed without a label. `feed` yields the bytes that are clean. Raises
    BadAnswerError if the body contains a secret or expands too much.

    Exhaust the iterators that `feed` and `finish` return before the next call. Pieces may be empty, so that the work
    between two pieces is bounded.
    """

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self._scrubber = Scrubber(needles)
        self._stream: zlib._Decompress | None = None
        self._is_gzip = False
        self._is_lost = False  # it was compressed, and not followed to its end
        self._held = deque[tuple[bytes, int]]()  # pieces, and the decompressed size of the body up to the end of each
        self._held_bytes = self._bytes_in = self._bytes_out = self._decided = self._members = 0

    def look_for(self, needles: Needles) -> None:
        """Search the body for the secrets in `needles` from now on."""
        self._needles = needles
        self._scrubber.look_for(needles)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take a piece of the body, and yield the bytes that can be passed on by now, including earlier held-back bytes."""
        if self._is_lost and self._needles:
            raise BadAnswerError(
                "its body is compressed without saying so, and a secret was bound for this host during the transfer; try again"
            )
        if piece and not self._bytes_in:
            self._open(piece[0])
        self._bytes_in += len(piece)
        if self._stream is None:
            yield piece
            return
        for _each in self._inflate(memoryview(piece)):
            yield b""
        self._hold(piece)
        yield from self._released()

    def finish(self) -> Iterator[bytes]:
        """Yield the bytes that were held back, at the end of the body."""
        self._stream = None
        yield from self._released()

    def _open(self, first: int) -> None:
        """Choose gzip, zlib or no compression by the body's first byte, and create the decompressor. If the body is
        neither gzip nor zlib after all, zlib reports that, usually at the second byte.
        """
        self._is_gzip = first == _GZIP[0]
        if self._is_gzip or first & 0x8F == 8:  # RFC 1950 section 2.2: deflate, in a window of at most 32 KiB
            self._stream = zlib.decompressobj(wbits=31 if self._is_gzip else 15)

    def _inflate(self, data: memoryview) -> Iterator[None]:
        """Decompress these bytes and search the output for secrets, and yield after each piece of output. After the end
        of the compressed data, or an error, the body is no longer decompressed.
        """
        while data and self._stream is not None:
            step = data[:_STEP_BYTES]
            try:
                for out in _pieces(self._stream, step, is_searched=bool(self._needles)):
                    self._search(out)
                    yield
                    if not self._needles and max(self._bytes_in, self._bytes_out) > _FOLLOWED_BYTES:
                        self._stream, self._is_lost = None, True
                        return
            except zlib.error:
                self._stream = None
                return
            data = data[len(step) - len(self._stream.unused_data) :]
            if self._stream.eof:
                self._stream = self._next_member(data)

    def _next_member(self, rest: memoryview) -> zlib._Decompress | None:
        """Return the decompressor of the next member of a gzip file (RFC 1952 section 2.2: members follow one another);
        None if `rest` begins no member.
        """
        if not self._is_gzip or not _GZIP.startswith(rest[:2]):
            return None
        self._members += 1
        if self._members > MAX_MEMBERS + self._bytes_in // MEMBER_BYTES:
            if self._needles:
                raise BadAnswerError("its body is compressed without saying so, in too many small members")
            self._is_lost = True
            return None
        return zlib.decompressobj(wbits=31)

    def _search(self, out: bytes, *, is_over: bool = False) -> None:
        self._bytes_out += len(out)
        is_much = self._bytes_out > RATIO_FREE_BYTES and self._bytes_out > MAX_RATIO * self._bytes_in
        if is_much and self._needles:
            raise BadAnswerError(f"its body is compressed without saying so, and expands more than {MAX_RATIO} times")
        self._decided += len(self._scrubber.feed(out) + (self._scrubber.finish() if is_over else b""))
        if self._scrubber.hits:
            raise BadAnswerError(
                "its body is compressed without saying so, and contains a secret that is bound for this host"
            )

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held and len(self._held[-1][0]) + len(piece) <= _JOINED_BYTES:
            piece = self._held.pop()[0] + piece
        self._held.append((piece, self._bytes_out))

    def _released(self) -> Iterator[bytes]:
        if self._stream is None:  # there is no more output
            self._search(b"", is_over=True)
            self._decided = self._bytes_out
        while self._held and self._held[0][1] <= self._decided:
            piece = self._held.popleft()[0]
            self._held_bytes -= len(piece)
            yield piece
        if self._held_bytes > MAX_HELD_BYTES:
            raise BadAnswerError("its body is compressed without saying so, and many bytes of it decode to nothing")


def _pieces(stream: zlib._Decompress, data: memoryview | bytes, *, is_searched: bool) -> Iterator[bytes]:
    """Decompress `data` and yield the output in pieces. If the data has an error, raise zlib's error; if `is_searched`,
    first yield the output that precedes the error.
    """
    while True:
        before = stream.copy() if is_searched else None
        try:
            out = stream.decompress(data, PIECE_BYTES)
        except zlib.error:  # a call that fails gives out nothing
            if before is not None:
                yield _up_to_the_error(before, data)
            raise
        yield out
        data = stream.unconsumed_tail
        if stream.eof or (not data and len(out) < PIECE_BYTES):
            return


def _up_to_the_error(stream: zlib._Decompress, data: memoryview | bytes) -> bytes:
    """Return the decompressed output of the longest prefix of `data` that zlib accepts without an error. The output is
    shorter than PIECE_BYTES.
    """
    out, good, bad = b"", -1, len(data)  # no bytes have output too, if the last call ended with a full piece
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            out, good = stream.copy().decompress(data[:middle], PIECE_BYTES), middle
        except zlib.error:
            bad = middle
    return out
