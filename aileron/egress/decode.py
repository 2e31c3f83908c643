"""Content codings: turn an encoded response body into bytes that can be scanned, within limits.

The engine asks every upstream for `identity`. An upstream that encodes anyway would carry a reflected secret past the
scrubber, so its body is decoded here or the call fails. Pure and incremental; runs in the daemon on hostile bytes.

Rules
- `gzip` (`x-gzip`) and `deflate` (zlib or raw), one layer. Anything else raises BadAnswerError, because a body that
  cannot be read cannot be scanned.
- At most `PIECE_BYTES` are output at a time, whatever the input, so a compression bomb costs a buffer, not the memory.
- After `RATIO_FREE_BYTES` of output, the ratio of output to input must not exceed `MAX_RATIO`.
- A body that ends in the middle of a stream, or has other bytes after it, raises BadAnswerError.

Source: RFC 9110 section 8.4, RFC 1950 to 1952. Not here: the byte budget of a step (meter.py).

>>> b"".join(Decoder("gzip").feed(__import__("gzip").compress(b"hello")))
b'hello'
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from aileron.egress.refusal import BadAnswerError

__all__ = ["MAX_RATIO", "PIECE_BYTES", "RATIO_FREE_BYTES", "Decoder", "decoder_for"]

PIECE_BYTES: Final = 64 << 10  # 64 KiB: the size of one read of the socket
RATIO_FREE_BYTES: Final = 1 << 20  # 1 MiB: a small response can have any ratio
MAX_RATIO: Final = 200  # output bytes per input byte; JSON listings reach 20 to 50, DEFLATE's own limit is 1032

_GZIP_MAGIC: Final = b"\x1f\x8b"


def decoder_for(codings: tuple[str, ...]) -> Decoder | None:
    """Return a decoder for a body with these content codings, or None if the body is not encoded. Raises BadAnswerError
    for codings that Aileron cannot decode.
    """
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in {"gzip", "x-gzip", "deflate"}:
        raise BadAnswerError("its body has a content coding that was not requested and that cannot be scanned")
    return Decoder(codings[0])


class Decoder:
    """Decoder of one encoded body. Call `feed` for each part and exhaust the iterator that it returns, then call
    `finish`.
    """

    def __init__(self, coding: str) -> None:
        self._gzip = coding != "deflate"
        self._stream = zlib.decompressobj(wbits=31) if self._gzip else None  # deflate: its first byte decides
        self._bytes_in = 0
        self._bytes_out = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode `data`, and yield non-empty pieces of at most PIECE_BYTES."""
        more = bool(data)
        while more:
            stream = self._stream_for(data)
            piece = self._inflate(stream, data)
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            self._bytes_in += len(data) - len(rest)
            if piece:
                self._count(piece)
                yield piece
            data = rest
            # A full piece with no input left: zlib may hold output it had no room for, and an empty call gets it.
            more = bool(data) or (len(piece) == PIECE_BYTES and not stream.eof)

    def finish(self) -> None:
        """Raise BadAnswerError if the encoded body ended too early. A body without any bytes is complete."""
        if self._bytes_in and (self._stream is None or not self._stream.eof):
            raise BadAnswerError("its encoded body is truncated")

    def _stream_for(self, data: bytes) -> zlib._Decompress:
        if self._stream is None:
            # RFC 1950: the low four bits of a zlib header are 8; servers that mean raw deflate send another value.
            self._stream = zlib.decompressobj(wbits=15 if data[0] & 0x0F == 8 else -15)
        elif self._stream.eof:
            if not self._gzip or not _GZIP_MAGIC.startswith(data[:2]):
                raise BadAnswerError("its encoded body has data after its end")
            self._stream = zlib.decompressobj(wbits=31)  # RFC 1952 section 2.2: members follow one another
        return self._stream

    def _inflate(self, stream: zlib._Decompress, data: bytes) -> bytes:
        problem = None
        try:
            return stream.decompress(data, PIECE_BYTES)
        except zlib.error:
            problem = BadAnswerError("its encoded body is damaged")
        raise problem  # outside the handler, so that zlib's error is not its context

    def _count(self, piece: bytes) -> None:
        self._bytes_out += len(piece)
        if self._bytes_out > RATIO_FREE_BYTES and self._bytes_out > MAX_RATIO * self._bytes_in:
            raise BadAnswerError(f"its encoded body expands more than {MAX_RATIO} times when decoded")
