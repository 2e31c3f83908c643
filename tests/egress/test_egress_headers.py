"""Header fields and framing: the fields that a connector may set, those it may not, and those that an upstream may send."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.headers import (
    MAX_HEADER_BYTES,
    MAX_HEADER_FIELDS,
    MAX_RESPONSE_HEADER_BYTES,
    Field,
    HeadLines,
    check_method,
    frame_body,
    is_field_value,
    keep_request_fields,
    read_response_head,
)
from aileron.egress.refusal import BadAnswerError, Reason, RefusedError

NONE: frozenset[str] = frozenset()
CREDENTIAL = frozenset({"authorization", "x-api-key"})


def refused(fields: list[Field], reserved: frozenset[str] = NONE) -> Reason | None:
    """Return the reason for which these fields are refused, or None if they are not."""
    try:
        keep_request_fields(fields, reserved)
    except RefusedError as error:
        return error.reason
    return None


@pytest.mark.parametrize("method", ["GET", "POST", "PROPFIND", "M-SEARCH", "VERSION-CONTROL", "get"])
def test_a_method_is_sent_as_spelled(method: str) -> None:
    """Extension methods are allowed: WebDAV needs them."""
    assert check_method(method) == method


@pytest.mark.abuse_case("E11")
@pytest.mark.parametrize(
    "method", ["", "CONNECT", "connect", "TRACE", "Track", "GET ", " GET", "GET\r\nX: y", "GÉT", "G/T", "1", "A" * 33]
)
def test_connect_trace_and_malformed_methods_are_refused(method: str) -> None:
    """A method with a line break could add a line to the request."""
    with pytest.raises(RefusedError) as caught:
        check_method(method)
    assert caught.value.reason is Reason.METHOD


def test_ordinary_fields_are_sent_in_order_and_as_spelled() -> None:
    """Duplicates and case are kept; white space around a value is removed."""
    fields = [("X-b", "1"), ("accept", "*/*"), ("X-B", "2"), ("Cookie", "a=b"), ("X-E", ""), ("X-T", " \ta b\t")]

    assert keep_request_fields(fields, NONE) == (*fields[:5], ("X-T", "a b"))


@pytest.mark.abuse_case("E9")
@pytest.mark.parametrize(
    "name",
    ["Host", "HOST", "Connection", "Keep-Alive", "Proxy-Authorization", "proxy-connection", "TE", "Trailer",
     "Transfer-Encoding", "Content-Length", "Expect", "Accept-Encoding", "Forwarded", "X-Forwarded-Host", "Via",
     "x-forwarded-for", "X-Real-IP", "HTTP2-Settings", "Transfer_Encoding", "X_Forwarded_For", "Proxy_Authorization"],
)  # fmt: skip
def test_hop_by_hop_and_proxy_fields_are_dropped(name: str) -> None:
    """A connector may not set them, in any spelling; other fields stay."""
    assert keep_request_fields([(name, "x"), ("X-Other", "y")], NONE) == (("X-Other", "y"),)


@pytest.mark.abuse_case("E11")
@pytest.mark.parametrize("name", ["Upgrade", "upgrade", "UPGRADE"])
@pytest.mark.parametrize("value", ["websocket", "h2c", "TLS/1.0", ""])
def test_a_field_that_asks_to_switch_protocols_is_refused(name: str, value: str) -> None:
    """The field is refused instead of dropped: a client that needs a WebSocket does not work without one."""
    assert refused([("Connection", "Upgrade"), (name, value)]) is Reason.UPGRADE
    assert refused([("Upgrade-Insecure-Requests", "1")]) is None


def test_fields_listed_in_a_connection_field_are_dropped_too() -> None:
    """Upper and lower case make no difference, and every Connection field counts."""
    fields = [("connection", "close, X-One"), ("X-ONE", "1"), ("X_Two", "2"), ("Connection", "x-two"), ("X-Three", "3")]

    assert keep_request_fields(fields, NONE) == (("X-Three", "3"),)


@pytest.mark.abuse_case("E19")
@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "\x1b[0m", "\x7f", "é", "\u0100", "a\x0bb"])
def test_a_field_value_that_could_end_its_line_is_refused(value: str) -> None:
    """A value like that is refused even in a field that would be dropped anyway."""
    assert refused([("X-A", value)]) is Reason.HEADER_VALUE
    assert refused([("Host", value)]) is Reason.HEADER_VALUE
    assert refused([("X-A", "harmless")]) is None


@pytest.mark.abuse_case("E10", "E19")
@pytest.mark.parametrize("name", ["", "X A", "X:", "X-A ", " X", "X\r\nY", "é", "X\0", "(x)", "X" * 257])
def test_a_field_name_with_invalid_characters_is_refused(name: str) -> None:
    """A space before the colon has been used to hide fields from checks."""
    assert refused([(name, "x")]) is Reason.HEADER_NAME


@pytest.mark.abuse_case("E10")
@pytest.mark.parametrize(
    "name", ["Authorization", "authorization", "AUTHORIZATION", "X-Api-Key", "X_API_KEY", "x-api_key"]
)
def test_a_connector_cannot_set_a_credential_field_in_a_request_that_uses_a_credential(name: str) -> None:
    """Case makes no difference, and `_` counts as `-`, as in CGI; without a credential the field is sent."""
    assert refused([(name, "mine")], CREDENTIAL) is Reason.HEADER_CREDENTIAL
    assert refused([(name, "mine")]) is None


@pytest.mark.abuse_case("E10")
def test_a_connection_field_cannot_smuggle_a_reserved_field_past_the_check() -> None:
    """A Connection field that names Authorization does not make it a hop-by-hop field first."""
    assert refused([("Connection", "Authorization"), ("Authorization", "mine")], CREDENTIAL) is Reason.HEADER_CREDENTIAL


def test_too_many_or_too_large_fields_are_refused() -> None:
    """Fields exactly at the limits pass."""
    assert refused([("A", "b")] * MAX_HEADER_FIELDS) is None
    assert refused([("A", "b")] * (MAX_HEADER_FIELDS + 1)) is Reason.HEADER_LIMIT
    assert refused([("A", "b" * (MAX_HEADER_BYTES - 1))]) is None
    assert refused([("A", "b" * MAX_HEADER_BYTES)]) is Reason.HEADER_LIMIT


@pytest.mark.abuse_case("E21")
@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=6))
def test_accepted_fields_never_contain_a_line_break(fields: list[Field]) -> None:
    """Each accepted field is one line, and none is a hop-by-hop field."""
    try:
        kept = keep_request_fields(fields, CREDENTIAL)
    except RefusedError:
        return
    for name, value in kept:
        line = f"{name}: {value}"
        assert line.isascii()
        assert not set(line) & set("\r\n\0")
        assert name.lower() not in {"host", "connection", "authorization"}
        assert is_field_value(value)


async def _stream() -> AsyncIterator[bytes]:
    yield b""  # never run: framing does not read the body


@pytest.mark.parametrize(
    ("method", "fields", "body", "expected"),
    [
        ("GET", [], None, (None, 0)),
        ("GET", [("content-length", "0")], None, (None, 0)),
        ("DELETE", [], b"", (None, 0)),
        ("POST", [], None, (("Content-Length", "0"), 0)),
        ("POST", [], b"abc", (("Content-Length", "3"), 3)),
        ("POST", [("Content-Length", "3")], b"abc", (("Content-Length", "3"), 3)),
        ("POST", [("Transfer-Encoding", "Chunked")], b"abc", (("Content-Length", "3"), 3)),
        ("GET", [], b"abc", (("Content-Length", "3"), 3)),
    ],
)
def test_a_complete_body_is_framed_by_its_length(
    method: str, fields: list[Field], body: bytes | None, expected: tuple[Field | None, int]
) -> None:
    """The connector may state the length in any way, as long as it is true."""
    assert frame_body(method, fields, body) == expected


def test_a_streamed_body_is_chunked_or_framed_by_its_announced_length() -> None:
    """A plain Content-Length is kept; without one the body is chunked."""
    assert frame_body("PUT", [], _stream()) == (("Transfer-Encoding", "chunked"), None)
    assert frame_body("PUT", [("content-length", " 12 ")], _stream()) == (("Content-Length", "12"), 12)


@pytest.mark.abuse_case("E19")
@pytest.mark.parametrize(
    "fields",
    [
        *[[("Content-Length", value)] for value in ("+5", "5, 5", "0x5", "-1", "1" * 20, "", "5 5", "٥")],
        [("Content-Length", "5"), ("Content-Length", "5")],
        [("Content-Length", "5"), ("content_length", "6")],
        [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        *[[("Transfer-Encoding", value)] for value in ("chunked,", "xchunked", "gzip, chunked", "identity", "")],
        [("Transfer-Encoding", "chunked"), ("transfer-encoding", "chunked")],
    ],
)
def test_an_ambiguous_content_length_is_refused(fields: list[Field]) -> None:
    """The cases are spellings that have been used to smuggle requests past proxies."""
    for body in (_stream(), b"12345"):
        with pytest.raises(RefusedError) as caught:
            frame_body("POST", fields, body)
        assert caught.value.reason is Reason.BODY_LENGTH


@pytest.mark.abuse_case("E19")
def test_a_length_that_does_not_match_the_body_is_refused() -> None:
    """A length without a body is refused too."""
    for body in (b"1234", None):
        with pytest.raises(RefusedError) as caught:
            frame_body("POST", [("Content-Length", "5")], body)
        assert caught.value.reason is Reason.BODY_LENGTH


def test_only_hop_by_hop_fields_are_removed_from_a_response_head() -> None:
    """Fields that Connection names go too; all others stay, byte for byte."""
    fields = [(b"Connection", b"keep-alive, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"5"), (b"Location", b"/x"),
              (b"Set-Cookie", b"a=\xe9"), (b"Transfer-Encoding", b"chunked")]  # fmt: skip

    head = read_response_head("GET", 302, fields)

    assert (head.status, head.codings) == (302, ())
    assert head.fields == ((b"Location", b"/x"), (b"Set-Cookie", b"a=\xe9"))


def test_an_encoded_response_loses_the_fields_about_its_encoding() -> None:
    """They stay if there is no body to decode: for HEAD and 304 they describe the response to a GET."""
    fields = [(b"Content-Encoding", b"GZIP, identity"), (b"Content-Length", b"9"), (b"ETag", b"x")]

    head = read_response_head("GET", 200, fields)

    assert head.codings == ("gzip",)
    assert head.fields == ((b"ETag", b"x"),)
    assert read_response_head("HEAD", 200, fields).fields == tuple(fields)
    assert read_response_head("GET", 304, fields).codings == ()


@pytest.mark.parametrize("status", [100, 101, 199, 600, 999, 0])
def test_a_response_with_an_interim_or_invalid_status_raises_bad_answer_error(status: int) -> None:
    """An unrequested 101, which would switch protocols, is among the cases."""
    with pytest.raises(BadAnswerError):
        read_response_head("GET", status, [])


def test_a_response_with_two_framings_or_too_large_a_head_raises_bad_answer_error() -> None:
    """Two readers could find different ends of the body, or the head would not fit into a frame."""
    with pytest.raises(BadAnswerError):
        read_response_head("GET", 200, [(b"content-length", b"1"), (b"Transfer-Encoding", b"chunked")])
    with pytest.raises(BadAnswerError):
        read_response_head("GET", 200, [(b"a", b"b")] * (2 * MAX_HEADER_FIELDS + 1))
    with pytest.raises(BadAnswerError):
        read_response_head("GET", 200, [(b"a", b"b" * MAX_RESPONSE_HEADER_BYTES)])
    with pytest.raises(BadAnswerError):  # two bytes each in a frame
        read_response_head("GET", 200, [(b"a", b"\xff" * (MAX_RESPONSE_HEADER_BYTES // 2))])


GOOD_HEADS = [
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\nwith \r\n\r\n anything\r",
    b"HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 100\r\n\r\nHTTP/1.1 200\r\n\r\n\n\n",
    b"HTTP/1.1 200 OK\r\n\r\n folded\n",
]
BAD_HEADS = [
    b"HTTP/1.1 200 OK\n\n",
    b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\n",
    b"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
    b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\n\r\n",
    b"HTTP/1.1 103 Early\r\nA: b\r\n c\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
]


@pytest.mark.abuse_case("E20")
@given(st.sampled_from([*GOOD_HEADS, *BAD_HEADS]), st.lists(st.integers(0, 90), max_size=5))
def test_lines_of_a_response_head_must_end_in_crlf(said: bytes, cuts: list[int]) -> None:
    """The splits of the input make no difference; a body may contain any bytes."""
    edges = [0, *sorted(min(place, len(said)) for place in cuts), len(said)]
    lines = HeadLines()
    is_clean = all(lines.are_clean(said[start:stop]) for start, stop in itertools.pairwise(edges))
    assert is_clean is (said in GOOD_HEADS)


@pytest.mark.parametrize("said", [*GOOD_HEADS, *BAD_HEADS])
def test_a_response_head_gives_the_same_result_whole_and_byte_by_byte(said: bytes) -> None:
    """Random splits, as in the test above, are not certain to cover every example."""
    for parts in ([said], [said[at : at + 1] for at in range(len(said))]):
        lines = HeadLines()
        assert all(lines.are_clean(part) for part in parts) is (said in GOOD_HEADS)
