"""Tests of the codec's laws, and of the bytes that it must refuse."""

from __future__ import annotations

import math
import struct
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron_sandbox.frames import (
    MAX_BODY_BYTES,
    MAX_DEPTH,
    MAX_HEADER_BYTES,
    Chunk,
    Decoder,
    Frame,
    FrameError,
    FrameTooLargeError,
    FromJail,
    HttpRequest,
    Invoke,
    Log,
    Message,
    Progress,
    Result,
    ToJail,
    check_json,
    encode,
)
from tests.frames.strategies import bodies, from_jail, json_values, may_have_body, to_jail

pack = msgspec.msgpack.encode


def framed(header: bytes, body: bytes = b"") -> bytes:
    """Return header and body behind a prefix with their true lengths."""
    return struct.pack(">II", len(header), len(body)) + header + body


def spelled(message: Message, body: bytes = b"") -> bytes:
    """Return the bytes that encode writes."""
    return b"".join(bytes(part) for part in encode(message, body))


def decoded(data: bytes, incoming: Any = FromJail) -> list[Frame]:
    """Return all frames of `data`."""
    decoder = Decoder(incoming)
    decoder.feed(data)
    return drained(decoder)


def drained(decoder: Decoder) -> list[Frame]:
    """Return the frames that are complete now."""
    frames = []
    while (frame := decoder.next_frame()) is not None:
        frames.append(frame)
    return frames


def refusal(data: bytes, incoming: Any = FromJail) -> str:
    """Return the reason why `data` is no frame; fail if it is one."""
    with pytest.raises(FrameError) as caught:
        decoded(data, incoming)
    return str(caught.value)


# The four laws


@settings(deadline=None)
@given(to_jail, bodies)
def test_the_jail_decodes_what_the_host_encodes(message: Message, body: bytes) -> None:
    """decode(encode(x)) = x must hold for messages to the jail."""
    body = body if may_have_body(message) else b""
    expected = Frame(message, body if may_have_body(message) else None)
    assert [expected] == decoded(spelled(message, body), ToJail)


@settings(deadline=None)
@given(from_jail, bodies)
def test_the_host_decodes_what_the_jail_encodes(message: Message, body: bytes) -> None:
    """decode(encode(x)) = x must hold for messages from the jail, and encode(decode(b)) = b for the bytes that encode writes."""
    body = body if may_have_body(message) else b""
    data = spelled(message, body)
    [frame] = decoded(data)
    assert Frame(message, body if may_have_body(message) else None) == frame
    assert spelled(frame.message, frame.body or b"") == data


@settings(deadline=None)
@given(st.lists(st.tuples(from_jail, bodies), max_size=4), st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(pairs: list[tuple[Message, bytes]], data: st.DataObject) -> None:
    """A frame may arrive in any number of reads."""
    stream = b"".join(spelled(message, body if may_have_body(message) else b"") for message, body in pairs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = Decoder(FromJail)
    frames = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        frames += drained(decoder)
    assert decoded(stream) == frames
    assert decoder.is_between_frames


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_frames_or_frame_error(data: bytes) -> None:
    """Random bytes cause no other exception."""
    _survives(data)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=200), st.binary(max_size=20))
def test_any_header_gives_a_frame_or_frame_error(header: bytes, body: bytes) -> None:
    """Random headers behind a correct prefix get further into the decoder than random bytes."""
    _survives(framed(header, body))


@settings(deadline=None)
@given(from_jail, st.data())
def test_a_mutated_frame_gives_a_frame_or_frame_error(message: Message, data: st.DataObject) -> None:
    """A few bytes of a valid frame are changed, inserted or removed; a frame that still decodes encodes to the same message."""
    header = bytearray(spelled(message)[8:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(header)))
        take = data.draw(st.integers(0, 2))
        header[at : at + take] = data.draw(st.binary(max_size=3))
    _survives(framed(bytes(header) or b"\x80"))


def _survives(data: bytes) -> None:
    for incoming in (FromJail, ToJail):
        try:
            frames = decoded(data, incoming)
        except FrameError:
            continue
        for message, body in frames:
            [again] = decoded(spelled(message, body or b""), incoming)
            assert again.message == message


@settings(deadline=None)
@given(from_jail, st.randoms(use_true_random=False))
def test_key_order_and_integer_width_in_a_frame_header_have_no_meaning(message: Message, random: Any) -> None:
    """A header written by another library, in another order and with wide integers, means the same."""
    canonical = spelled(message)[8:]
    other = _respelled(msgspec.msgpack.decode(canonical), random)
    assert decoded(framed(canonical)) == decoded(framed(other))


def _respelled(value: Any, random: Any) -> bytes:
    match value:
        case dict():
            items = list(value.items())
            random.shuffle(items)
            head = b"\xdf" + struct.pack(">I", len(items))
            return head + b"".join(_respelled(k, random) + _respelled(v, random) for k, v in items)
        case list():
            return b"\xdd" + struct.pack(">I", len(value)) + b"".join(_respelled(v, random) for v in value)
        case str():
            raw = value.encode()
            return b"\xdb" + struct.pack(">I", len(raw)) + raw
        case bool() | None:
            return bytes(pack(value))
        case int():
            return struct.pack(">Bq", 0xD3, value) if value < 2**63 else struct.pack(">BQ", 0xCF, value)
        case _:
            return bytes(pack(value))


@settings(deadline=None)
@given(json_values)
def test_a_json_value_passes_check_json(value: Any) -> None:
    """This is the positive control of the refusals below."""
    check_json(value)


# Prefix and sizes


@pytest.mark.parametrize(
    ("header_bytes", "body_bytes", "words"),
    [
        (0, 0, "header of 0 bytes"),
        (MAX_HEADER_BYTES + 1, 0, "header of 65537 bytes"),
        (2**32 - 1, 0, "header of 4294967295 bytes"),
    ],
)
def test_a_length_prefix_out_of_bounds_is_refused_at_once(header_bytes: int, body_bytes: int, words: str) -> None:
    """The eight bytes of the prefix are enough, and no memory of the claimed size is allocated."""
    tracemalloc.start()
    try:
        assert words in refusal(struct.pack(">II", header_bytes, body_bytes))
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body_bytes", [MAX_BODY_BYTES + 1, 2**32 - 1])
@pytest.mark.parametrize(
    ("message", "kind"),
    [(Result(output=None), FrameTooLargeError), (Progress(done=1), FrameError), (Chunk(id=1), FrameError)],
)
def test_a_body_that_is_too_long_is_refused_after_its_header(
    body_bytes: int, message: Message, kind: type[FrameError]
) -> None:
    """The header tells a too large output from another protocol error; no byte of the body is read."""
    header = msgspec.msgpack.encode(message)
    decoder = Decoder(FromJail)
    decoder.feed(struct.pack(">II", len(header), body_bytes) + header[:-1])

    assert decoder.next_frame() is None
    assert decoder.missing_bytes == 1
    decoder.feed(header[-1:])
    for _ in range(2):  # a dead decoder raises the same error
        with pytest.raises(FrameError, match=f"body of {body_bytes} bytes") as caught:
            decoder.next_frame()
        assert type(caught.value) is kind


def test_a_frame_with_the_largest_header_and_body_passes() -> None:
    """Both have exactly the maximum size."""
    empty = len(encode(Log(level="info", message="x" * 65000))[0]) - 8 - 65000
    message = Log(level="info", message="x" * (MAX_HEADER_BYTES - empty))
    assert len(encode(message)[0]) == 8 + MAX_HEADER_BYTES
    assert decoded(spelled(message)) == [Frame(message, None)]
    chunk = Frame(Chunk(id=1), b"z" * MAX_BODY_BYTES)
    assert decoded(spelled(*chunk)) == [chunk]  # type: ignore[arg-type]


def test_a_header_one_byte_too_large_is_not_sent() -> None:
    """The sender gets the error, and not the receiver."""
    with pytest.raises(FrameTooLargeError, match="at most 65536"):
        encode(Log(level="info", message="x" * MAX_HEADER_BYTES))


def test_a_body_one_byte_too_large_is_not_sent() -> None:
    """The body is given as bytes and as a view of wider items, whose len() is not their size."""
    with pytest.raises(FrameTooLargeError, match="body of 1048577 bytes"):
        encode(Chunk(id=1), bytes(MAX_BODY_BYTES + 1))
    with pytest.raises(FrameTooLargeError, match="body of 1048584 bytes"):
        encode(Chunk(id=1), memoryview(bytes(MAX_BODY_BYTES + 8)).cast("Q"))


def test_encode_returns_the_body_uncopied() -> None:
    """writev gets the caller's own buffer, so a large body costs no copy."""
    body = memoryview(bytearray(1000))
    assert encode(Chunk(id=1), body)[1] is body


def test_frames_that_arrive_byte_by_byte_are_decoded_unchanged() -> None:
    """The hint of how much to read next is correct at each byte."""
    data = spelled(HttpRequest(id=1, method="PUT", url="https://h/", headers=[], body="inline"), b"body") * 2
    decoder = Decoder(FromJail)
    frames = []
    for at in range(len(data)):
        assert 1 <= decoder.missing_bytes <= len(data) - at
        decoder.feed(data[at : at + 1])
        frames += drained(decoder)
    assert decoded(data) == frames
    assert len(frames) == 2


def test_a_stream_that_stops_inside_a_frame_is_noticed() -> None:
    """A peer that dies in the middle of a frame must not look like one that ended between frames."""
    decoder = Decoder(FromJail)
    decoder.feed(spelled(Log(level="info", message="hello"))[:-1])
    assert decoder.next_frame() is None
    assert not decoder.is_between_frames


def test_a_large_frame_fed_byte_by_byte_uses_little_memory() -> None:
    """The bytes are collected in one buffer, and not as one object each."""
    data = spelled(Chunk(id=1), bytes(40_000))
    decoder = Decoder(FromJail)
    tracemalloc.start()
    try:
        for at in range(len(data) - 1):
            decoder.feed(data[at : at + 1])
        assert decoder.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] < 4 * len(data)
    finally:
        tracemalloc.stop()


def test_a_decoder_whose_frames_are_not_taken_out_refuses_more_bytes() -> None:
    """The buffer is bounded whatever its owner does."""
    decoder = Decoder(FromJail)
    decoder.feed(bytes(1 << 20))
    decoder.feed(bytes(1 << 20))
    with pytest.raises(FrameError, match="not taken out"):
        decoder.feed(bytes(1 << 20))


def test_a_decoder_raises_its_first_error_again_on_every_later_call() -> None:
    """Even valid bytes are refused: after an error, the start of the next frame is unknown."""
    decoder = Decoder(FromJail)
    decoder.feed(bytes(8))
    with pytest.raises(FrameError, match="header of 0 bytes"):
        decoder.next_frame()
    with pytest.raises(FrameError, match="header of 0 bytes"):
        decoder.feed(spelled(Log(level="info", message="")))
    with pytest.raises(FrameError, match="header of 0 bytes"):
        decoder.next_frame()


# Headers that are refused, by reason

LOG = {"type": "log", "level": "info", "message": "m"}
KEY_FIELDS = pack("fields")


def log_with(raw_value: bytes) -> bytes:
    """Return a log header whose `fields` is `{"v": raw_value}`."""
    return b"\x84" + pack(LOG)[1:] + KEY_FIELDS + b"\x81" + pack("v") + raw_value


def test_a_valid_value_written_as_raw_messagepack_passes() -> None:
    """This is the positive control of the table below."""
    [frame] = decoded(framed(log_with(pack([1, {"a": None}]))))
    assert isinstance(frame.message, Log)
    assert frame.message.fields == {"v": [1, {"a": None}]}


@pytest.mark.parametrize(
    ("raw_value", "words"),
    [
        (b"\xdd\xff\xff\xff\xff", "truncated"),
        (b"\xdf\xff\xff\xff\xff", "truncated"),
        (b"\xc6\xff\xff\xff\xff", "truncated"),
        (b"\xc9\xff\xff\xff\xff\x01", "truncated"),
        (b"\xdb\xff\xff\xff\xff", "truncated"),
        (b"\xc4\x01x", "bytes is not a JSON value"),
        (b"\xd4\x05x", "Ext is not a JSON value"),
        (b"\xc7\x03\x7fabc", "Ext is not a JSON value"),
        (b"\xd6\xff\x00\x00\x00\x00", "datetime is not a JSON value"),
        (b"\xc1", "invalid"),
        (pack(math.nan), "NaN"),
        (pack(math.inf), "NaN"),
        (b"\xca\x7f\x80\x00\x00", "NaN"),
        (b"\xa1\xff", "utf-8"),
        (b"\xa3\xed\xa0\x80", "utf-8"),
        (b"\x81\x01\x02", "not a string"),
        (b"\x81\xc0\x02", "not a string"),
        (b"\x81\x90\x02", "not a string"),
        (b"\x81\xc4\x01a\x02", "not a string"),
        (b"\x82\xa1a\x01\xa1a\x01", "duplicate key"),
        (b"\x82\xa1a\x01\xd9\x01a\x02", "duplicate key"),
        (b"\x91\x92\x01\x82\xa1a\xc0\xa1a\xc0", "duplicate key"),
        (b"\x91" * 60_000 + b"\x90", "deep"),
        (b"\x81\xa1a" * 20_000 + b"\x80", "deep"),
        (pack(1) + b"\x00", "trailing"),
        (b"", "truncated"),
    ],
)
def test_a_messagepack_value_without_a_json_form_is_refused(raw_value: bytes, words: str) -> None:
    """The table has bin, ext, timestamps, NaN, bad UTF-8, invalid keys, huge lengths, depth, and trailing bytes."""
    assert words in refusal(framed(log_with(raw_value)))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (pack({**LOG, "type": "launch"}), "launch"),
        (pack({"level": "info", "message": "m"}), "type"),
        (pack({**LOG, "extra": 1}), "unknown field"),
        (pack({"type": "log", "level": "info"}), "missing required field `message`"),
        (pack({**LOG, "message": 5}), "Expected `str`, got `int`"),
        (pack({**LOG, "message": b"bytes"}), "Expected `str`, got `bytes`"),
        (pack({**LOG, "level": "fatal"}), "Invalid enum value"),
        (pack({**LOG, "fields": []}), "Expected `object`, got `array`"),
        (pack({"type": "cancel", "id": -1}), ">= 1"),
        (pack({"type": "cancel", "id": 0}), ">= 1"),
        (pack({"type": "cancel", "id": True}), "Expected `int`, got `bool`"),
        (pack({"type": "cancel", "id": 1.0}), "Expected `int`, got `float`"),
        (pack({"type": "cancel", "id": 2**32}), "<= 4294967295"),
        (pack({"type": "cancel", "id": 2**63}), "<= 4294967295"),
        (pack({"type": "websocket_close", "id": 1, "reason": "r"}), "with a reason but without a code"),
        (pack({"type": "websocket_close", "id": 1, "code": 1005}), "which no end may send"),
        (pack({"type": "websocket_close", "id": 1, "code": 999}), ">= 1000"),
        (pack({"type": "websocket_close", "id": 1, "code": 65536}), "<= 4999"),
        (pack({"type": "progress", "done": math.nan}), "NaN"),
        (b"\x83" + pack({"type": "cancel", "id": 1})[1:] + pack("id") + pack(2), "duplicate key"),
        (b"\x83" + pack("type") + pack("cancel") + pack({"type": "cancel", "id": 1})[1:], "duplicate key"),
        (pack([]), "Expected `object`"),
        (b"\xc0", "Expected `object`"),
        (pack({**LOG, "x\x1b[31m" * 100: 1}), "unknown field `x\\x1b[31m"),
    ],
)
def test_a_header_that_is_no_message_is_refused(header: bytes, words: str) -> None:
    """The table has unknown tags, unknown and missing fields, wrong types and ranges. The reason is short."""
    why = refusal(framed(header))
    assert words in why
    assert why.isprintable()
    assert len(why) < 300


def test_a_message_that_only_the_other_end_may_send_is_refused() -> None:
    """A jail cannot send what only a host may send, and the reverse."""
    host_speaks = Invoke(protocol=1, op="x", args={}, hosts=[], invocation="i", deadline_ms=1)
    assert "invoke" in refusal(spelled(host_speaks), FromJail)
    assert "log" in refusal(spelled(Log(level="info", message="m")), ToJail)


@pytest.mark.parametrize(
    "message",
    [Log(level="info", message="m"), HttpRequest(id=1, method="GET", url="u", headers=[]), Result(output=1)],
)
def test_a_body_after_a_message_of_a_type_that_has_no_body_is_refused(message: Message) -> None:
    """Both decoder and encoder refuse it."""
    assert "body" in refusal(framed(spelled(message)[8:], b"x"))
    with pytest.raises(FrameError, match="has no body"):
        encode(message, b"x")


@pytest.mark.parametrize(
    "value", [b"x", {1, 2}, object(), {1: 2}, math.inf, 2**64, -(2**63) - 1, "\ud800", {"\ud800": 1}]
)
def test_a_value_that_a_decoder_would_refuse_is_not_encoded(value: Any) -> None:
    """The error occurs at the sender, where the mistake is."""
    with pytest.raises(FrameError):
        encode(Result(output=value))


def test_a_list_that_contains_itself_is_refused() -> None:
    """The list contains itself once or twice: the encoder neither hangs nor fills the memory."""
    once: list[Any] = []
    once.append(once)
    twice: list[Any] = []
    twice += [twice, twice]
    for endless in (once, twice):
        with pytest.raises(FrameError):
            encode(Result(output=endless))


@pytest.mark.parametrize(
    "message",
    [
        Log(level="loud", message="m"),  # type: ignore[arg-type]
        Log(level="info", message=b"m"),  # type: ignore[arg-type]
        HttpRequest(id=0, method="GET", url="u", headers=[]),
        HttpRequest(id=1, method="GET", url="u", headers=[("a", 1)]),  # type: ignore[list-item]
        Progress(done=math.nan),
    ],
)
def test_a_message_with_wrong_fields_is_not_encoded(message: Message) -> None:
    """A struct can be created with a value of any type, but not sent."""
    with pytest.raises(FrameError):
        encode(message)


def test_a_value_nested_to_the_maximum_depth_passes_and_one_level_deeper_is_refused() -> None:
    """Encoder and decoder have the same bound, in a header and in a body, for lists and maps, empty or not."""
    innermosts: list[Any] = [7, [], {}]
    for innermost in innermosts:
        containers = MAX_DEPTH - (innermost != 7)
        for padding in ("", "x" * MAX_HEADER_BYTES):
            deep: Any = innermost
            for _ in range(containers - 1):
                deep = [deep]
            fits = [deep, padding]
            assert decoded(spelled(Result(output=fits)))[0].message == Result(output=fits)
            with pytest.raises(FrameError, match="deeper than 64"):
                encode(Result(output=[fits]))
    raw = b"\x91" * (MAX_DEPTH + 1) + b"\x01"
    header = b"\x82" + pack("type") + pack("result") + pack("output") + raw
    assert "deeper than 64" in refusal(framed(header))
    nothing = pack({"type": "result", "output": None})
    assert "deeper than 64" in refusal(framed(nothing, raw))


# A large output


@settings(max_examples=20, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=5))
def test_a_large_output_travels_in_the_body(values: list[Any]) -> None:
    """Callers of the codec see no difference; the header on the wire says `output: nil`."""
    output = [*values, "x" * MAX_HEADER_BYTES]
    data = spelled(Result(output=output))
    assert decoded(data) == [Frame(Result(output=output), None)]
    header_bytes = int.from_bytes(data[:4], "big")
    assert msgspec.msgpack.decode(data[8 : 8 + header_bytes]) == {"type": "result", "output": None}


def test_a_small_output_may_travel_in_the_body_too() -> None:
    """An implementation in another language may always use the body."""
    data = framed(pack({"type": "result", "output": None}), pack({"a": 1}))
    assert decoded(data) == [Frame(Result(output={"a": 1}), None)]


def test_an_output_in_both_header_and_body_is_refused() -> None:
    """The receiver could not know which one is meant."""
    assert "body" in refusal(framed(pack({"type": "result", "output": 0}), pack(1)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x82\xa1a\x01\xa1a\x01", "duplicate key"),
        (b"\x81\x01\x01", "not a string"),
        (b"\x81\x90\x01", "not a string"),
        (b"\xc4\x01x", "not allowed"),
        (b"\xd4\x05x", "not allowed"),
        (b"\xc1", "not allowed"),
        (pack(math.nan), "NaN"),
        (b"\xa1\xff", "utf-8"),
        (b"\x01\x01", "does not end"),
        (b"\xa5ab", "does not end"),
        (b"\x92\x01", "cut off"),
        (b"\xdd\xff\xff\xff", "cut off"),
        (b"\xdd\xff\xff\xff\xff", "cut off"),
        (b"\x91" * 100_000 + b"\x01", "deeper than 64"),
        (b"\xdc\xff\xff" + b"\x80" * 65535 + b"\xdc\xff\xff", "does not end"),
    ],
)
def test_values_of_an_output_in_the_body_are_checked_as_strictly_as_in_the_header(body: bytes, words: str) -> None:
    """Values in the body are checked as strictly; only the size limit is higher."""
    assert words in refusal(framed(pack({"type": "result", "output": None}), body))


def test_an_output_with_too_many_values_is_refused_before_it_is_built() -> None:
    """1 MiB of empty maps would become 70 MiB of objects: both ends bound the count."""
    count = 1 << 18
    body = b"\xdd" + struct.pack(">I", count) + b"\x80" * count
    tracemalloc.start()
    try:
        assert "more than 131072 values" in refusal(framed(pack({"type": "result", "output": None}), body))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(FrameTooLargeError, match="more than 131072 values"):
        encode(Result(output=[{}] * count))


def test_progress_may_count_in_integers_or_floats() -> None:
    """Both values arrive unchanged."""
    for done in (3, 0.5):
        [frame] = decoded(spelled(Progress(done=done, total=10)))
        assert frame.message == Progress(done=done, total=10)
