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
    """Return all messages of a stream that comes in these pieces."""
    events = Events()
    places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    return [message for first, last in pairwise(places) for message in events.feed(data[first:last])]


@given(STREAMS | st.binary(max_size=200), st.lists(st.integers(0, 300)))
def test_any_split_of_the_bytes_gives_the_same_messages(data: bytes, cuts: list[int]) -> None:
    """The split may also be inside a line ending, or after each byte."""
    whole = read(data)
    assert read(data, cuts) == whole
    assert read(data, list(range(len(data)))) == whole


@given(st.lists(st.dictionaries(st.text(), st.text())), ENDS)
def test_messages_are_read_as_they_were_sent(values: list[dict[str, str]], end: bytes) -> None:
    """Each event has one line of JSON."""
    data = b"".join(b"event: message" + end + b"data: " + json.dumps(value).encode() + end + end for value in values)
    assert [json.loads(message) for message in read(data)] == values


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
def test_server_sent_events_are_parsed_as_in_the_examples_of_the_standard(data: bytes, messages: list[bytes]) -> None:
    """The cases are the examples of its section 9.2.6, and unfinished events."""
    assert read(data) == messages


@pytest.mark.parametrize(
    "stream",
    [b"data: " + b"x" * MAX_EVENT_BYTES, b"x" * (MAX_EVENT_BYTES + 1), b"data: 12345678\n" * (MAX_EVENT_BYTES // 8)],
    ids=["one line", "no field", "many lines"],
)
def test_an_endless_server_sent_event_is_refused_at_a_limit(stream: bytes) -> None:
    """Afterwards the reader refuses everything."""
    events = Events()
    pieces = [stream[at : at + (1 << 16)] for at in range(0, len(stream), 1 << 16)]
    with pytest.raises(StreamError):
        list(map(events.feed, pieces))
    with pytest.raises(StreamError):
        events.feed(b"data: {}\n\n")


def test_ignored_fields_of_an_event_stream_do_not_count_towards_its_limit() -> None:
    """A stream may be kept open with comments for any time: the client limits that."""
    events = Events(limit_bytes=100)
    for _ in range(1000):
        assert events.feed(b": still here\n") == []
    assert events.feed(b"data: {}\n\n") == [b"{}"]
