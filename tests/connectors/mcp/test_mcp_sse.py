"""The reader of server-sent events: any split gives the same messages, any bytes give messages or StreamError."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector.mcp.sse import MAX_EVENT_BYTES, Events, StreamError

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:x",
        b"data",
        b"event: message",
        b"event: other",
        b": comment",
        b"id: 7",
        b"retry: 1",
        b"",
        b"nonsense",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=30).map(lambda pairs: b"".join(line + end for line, end in pairs))


def read(data: bytes, cuts: list[int] = []) -> list[bytes]:  # noqa: B006  (never changed)
    """All messages of a stream that comes in these pieces."""
    events = Events()
    places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    return [message for first, last in pairwise(places) for message in events.feed(data[first:last])]


@given(STREAMS | st.binary(max_size=200), st.lists(st.integers(0, 300)))
def test_any_split_of_the_bytes_gives_the_same_messages(data: bytes, cuts: list[int]) -> None:
    """Also one in the middle of an end of a line, and one byte at a time."""
    whole = read(data)
    assert read(data, cuts) == whole
    assert read(data, list(range(len(data)))) == whole


@given(st.lists(st.dictionaries(st.text(), st.text())), ENDS)
def test_what_is_sent_is_what_is_read(values: list[dict[str, str]], end: bytes) -> None:
    """JSON of one line in each event."""
    data = b"".join(b"event: message" + end + b"data: " + json.dumps(one).encode() + end + end for one in values)
    assert [json.loads(one) for one in read(data)] == values


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:a\r\rdata:  b\r\r", [b"a", b" b"]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [b"b"]),
        (b": hello\n\nid: 1\n\n", []),
        (b"data: the end is missing\n", []),
        (b"data: the end is missing", []),
        (b"data\n\n", [b""]),
    ],
)
def test_events_are_read_as_the_standard_says(data: bytes, messages: list[bytes]) -> None:
    """The examples of its section 9.2.6, and what is left of an event that is not over."""
    assert read(data) == messages


@pytest.mark.parametrize(
    "stream",
    [b"data: " + b"x" * MAX_EVENT_BYTES, b"x" * (MAX_EVENT_BYTES + 1), b"data: 12345678\n" * (MAX_EVENT_BYTES // 8)],
    ids=["one line", "no field", "many lines"],
)
def test_an_event_without_an_end_is_not_collected(stream: bytes) -> None:
    """The reader is dead after that."""
    events = Events()
    pieces = [stream[at : at + (1 << 16)] for at in range(0, len(stream), 1 << 16)]
    with pytest.raises(StreamError):
        list(map(events.feed, pieces))
    with pytest.raises(StreamError):
        events.feed(b"data: {}\n\n")


def test_fields_that_say_nothing_are_not_counted() -> None:
    """A stream may be kept open with comments for as long as it likes: how long is the client's to say."""
    events = Events(limit_bytes=100)
    for _ in range(1000):
        assert events.feed(b": still here\n") == []
    assert events.feed(b"data: {}\n\n") == [b"{}"]
