"""Content codings: whole bodies at any cut, and every way in which a body can be wrong."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.decode import PIECE_BYTES, RATIO_FREE_BYTES, Decoder, decoder_for
from aileron.egress.refusal import BadAnswerError


def raw_deflate(data: bytes) -> bytes:
    """Return a raw stream, which is what some servers mean by deflate."""
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "gzip of two members": ("gzip", lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
}


def decode(coding: str, parts: list[bytes]) -> bytes:
    """Decode a body that is given in parts."""
    decoder = Decoder(coding)
    out = b"".join(piece for part in parts for piece in decoder.feed(part))
    decoder.finish()
    return out


@pytest.mark.parametrize("name", ENCODERS)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_an_encoded_body_is_decoded_correctly_however_it_is_split(name: str, data: bytes, size: int) -> None:
    """The parts have any size, for each coding."""
    coding, encode = ENCODERS[name]
    body = encode(data)

    assert decode(coding, [body[i : i + size] for i in range(0, len(body), size)]) == data


@given(st.binary(max_size=200))
def test_decoding_any_bytes_succeeds_or_raises_bad_answer_error(data: bytes) -> None:
    """Errors of zlib are translated, and neither cause nor context keeps them."""
    for coding in ("gzip", "deflate"):
        caught = None
        try:
            decode(coding, [data[:7], data[7:]])
        except BadAnswerError as error:
            caught = error
        assert caught is None or (caught.__cause__, caught.__context__) == (None, None)


def test_a_large_body_is_decoded_into_small_pieces() -> None:
    """The size of a piece does not depend on how much is fed at once."""
    data = bytes(range(256)) * 2048
    pieces = list(Decoder("gzip").feed(gzip.compress(data)))

    assert b"".join(pieces) == data
    assert 0 < max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize("name", ENCODERS)
def test_a_body_that_exactly_fills_an_output_piece_is_decoded_completely(name: str) -> None:
    """zlib consumes its last input before it has returned its last output; the decoder must wait for both."""
    coding, encode = ENCODERS[name]
    for size in range(PIECE_BYTES - 3, PIECE_BYTES + 600, 7):
        assert len(decode(coding, [encode(b"a" * size)])) == size


@pytest.mark.abuse_case("E25")
def test_a_decompression_bomb_is_refused_at_the_ratio_limit() -> None:
    """Sixty-four megabytes of zeros are refused after about a megabyte of output; a megabyte of zeros passes."""
    assert len(decode("gzip", [gzip.compress(bytes(RATIO_FREE_BYTES))])) == RATIO_FREE_BYTES
    stream = zlib.compressobj(wbits=31)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64))
    pieces: list[bytes] = []
    with pytest.raises(BadAnswerError, match="expands"):
        pieces.extend(Decoder("gzip").feed(bomb))
    assert sum(map(len, pieces)) <= RATIO_FREE_BYTES + PIECE_BYTES


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"hello")[:-1],
        gzip.compress(b"hello")[:5],
        gzip.compress(b"hello") + b"tail",
        gzip.compress(b"hello") + gzip.compress(b"more")[:-3],
        gzip.compress(b"hello")[:-8] + bytes(8),
        b"plain text",
    ],
    ids=["cut at its end", "cut in its head", "a tail", "a second one that is cut", "another checksum", "no gzip"],
)
def test_a_damaged_or_truncated_body_raises_bad_answer_error(body: bytes) -> None:
    """The body is truncated, continued with something else, has a wrong checksum, or is not encoded at all."""
    with pytest.raises(BadAnswerError):
        decode("gzip", [body])


@pytest.mark.parametrize("codings", [("br",), ("zstd",), ("compress",), ("gzip", "gzip"), ("gzip", "br"), ("x",)])
def test_an_unsupported_content_coding_raises_bad_answer_error(codings: tuple[str, ...]) -> None:
    """A body that cannot be decoded cannot be searched for secrets either."""
    with pytest.raises(BadAnswerError, match="cannot be scanned"):
        decoder_for(codings)


def test_a_body_that_is_not_encoded_needs_no_decoder() -> None:
    """An encoded body of no bytes is an empty body."""
    assert decoder_for(()) is None
    assert decode("gzip", []) == b""
