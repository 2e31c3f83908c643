"""Server-sent events, read from bytes in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.mcp.relay_sse import MAX_EVENT_BYTES, EventError, Events


def read(*pieces: bytes) -> list[bytes]:
    """Return the events of a stream that comes in these pieces."""
    events = Events()
    return [data for piece in pieces for data in events.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_with_every_line_ending_are_read(end: bytes) -> None:
    """The stream has comments, fields that are not data, and data over several lines, with and without the space."""
    lines = [
        b": ping",
        b"",
        b"event: message",
        b"id: 7",
        b"data: one",
        b"",
        b"data:two",
        b"data",
        b"data:  x",
        b"",
        b"data: cut",
    ]

    assert read(end.join(lines)) == [b"one", b"two\n\n x"]


@given(
    st.lists(st.sampled_from([b"data: {}", b"data:1", b"event: x", b": ping", b"", b"data"]), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=10),
)
def test_any_split_of_an_event_stream_gives_the_same_events(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    """A line end of two bytes may fall into two pieces."""
    stream = b"".join(line + end for line in lines)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    pieces = [stream[begin:finish] for begin, finish in itertools.pairwise(places)]

    assert read(*pieces) == read(stream)


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_bytes_are_read_as_an_event_stream_without_an_exception(pieces: list[bytes]) -> None:
    """The reader raises nothing else."""
    assert all(isinstance(data, bytes) and data for data in read(*pieces))


@pytest.mark.parametrize("line", [b"x" * 1_000_003, b"data:" + b"x" * 1_000_000 + b"\n"])
def test_the_size_of_an_event_is_bounded(line: bytes) -> None:
    """The bound holds for one endless line and for many lines."""
    with pytest.raises(EventError):
        read(*[line] * (MAX_EVENT_BYTES // 1_000_000 + 1))
