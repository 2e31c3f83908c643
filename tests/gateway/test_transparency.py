"""Requests through the gateway and without it: the provider and the agent see the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron.gateway import proxy
from tests.gateway.conftest import DEADLINE_S, Head, Line, Provider, gateway
from tests.gateway.shapes import ANSWERS, REQUESTS, Answer, Request

OF_THE_CONNECTION = (b"connection", b"keep-alive", b"transfer-encoding")
Message = tuple[Head, bytes | list[bytes]]


def seen(port: int | Path, provider: Provider, request: Request, answer: Answer) -> tuple[Message, Message]:
    """Return the request as the provider reads it, and the response as the agent reads it, each to the last byte.

    Both are a head and chunks if they are sent in chunks, else a head and a body.
    """
    with provider.asked(port, request.raw(f"127.0.0.1:{provider.port}")) as (client, upstream):
        upward = whole(upstream, request.is_chunked)
        upstream.say(answer.raw())
        return upward, whole(client, answer.chunks is not None)


def whole(line: Line, is_chunked: bool) -> Message:
    """Read a whole message."""
    head = line.head()
    if is_chunked:
        assert head.all(b"transfer-encoding") == [b"chunked"]
        return head, line.chunks()
    no_body = head.start.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304"))
    return head, b"" if no_body else line.exactly(int((head.all(b"content-length") or [b"0"])[0]))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_arrives_as_it_was_sent(name: str, provider: Provider, port: int) -> None:
    """Method, target, body, and fields in order with duplicates are equal; only Host comes first."""
    request = REQUESTS[name]
    (direct, body), _ = seen(provider.port, provider, request, ANSWERS["whole"])
    (passed, same_body), _ = seen(port, provider, request, ANSWERS["whole"])

    assert passed.start == direct.start
    assert passed.fields[0] == (b"host", f"127.0.0.1:{provider.port}".encode())
    assert passed.without(b"host") == direct.without(b"host", b"connection")
    assert joined(same_body) == joined(body)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_response_arrives_as_it_was_sent(name: str, provider: Provider, port: int) -> None:
    """Status, fields in order with duplicates, and each chunk with its borders are the same; not even a date is added."""
    request, answer = REQUESTS["models"], ANSWERS[name]
    _, (direct, body) = seen(provider.port, provider, request, answer)
    _, (passed, same_body) = seen(port, provider, request, answer)

    assert passed.status == direct.status
    assert passed.without(*OF_THE_CONNECTION) == direct.without(*OF_THE_CONNECTION)
    assert passed.all(b"transfer-encoding") == direct.all(b"transfer-encoding")
    assert same_body == body


def joined(body: bytes | list[bytes]) -> bytes:
    """Join the chunks of a request: their borders may differ on each connection."""
    return b"".join(body) if isinstance(body, list) else body


def test_a_response_to_head_has_the_same_fields_as_a_response_to_get(provider: Provider, port: int) -> None:
    """The body is missing, although the fields announce one; the connection serves the next request."""
    with Line.to(port) as client:
        for method, body in (("HEAD", b""), ("GET", b"12345")):
            client.say(f"{method} /v1/models HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with provider.answering() as upstream:
                assert upstream.head().start.startswith(method.encode())
                upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n" + body)
                head = client.head()
                assert (head.status, head.fields) == (200, [(b"content-length", b"5")])
                assert client.exactly(len(body)) == body


def test_hop_by_hop_fields_are_not_passed_on(provider: Provider, port: int) -> None:
    """They are those of the standard, and those that Connection names, but never those that frame a message."""
    with provider.asked(
        port,
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nA: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nX-Hop: 1\r\nx-hop: 2\r\n"
        b"Proxy-Connection: keep-alive\r\nB: 2\r\nConnection: X-Hop, content-length, host\r\nconnection: keep-alive\r\n"
        b"Content-Length: 2\r\n\r\nhi",
    ) as (client, upstream):
        head, body = upstream.message()
        assert body == b"hi"
        assert head.fields == [
            (b"host", f"127.0.0.1:{provider.port}".encode()),
            (b"a", b"1"),
            (b"b", b"2"),
            (b"content-length", b"2"),
        ]
        upstream.say(
            b"HTTP/1.1 200 OK\r\nA: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nB: 2\r\n"
            b"Content-Length: 0\r\n\r\n"
        )
        assert client.head().fields == [(b"a", b"1"), (b"b", b"2"), (b"content-length", b"0")]


def test_the_path_in_an_upstream_setting_is_put_before_each_request_target(provider: Provider) -> None:
    """The path and query of the request keep their encoding."""
    with gateway(provider.settings(prefix="/team-a/llm/")) as port, Line.to(port) as client:
        client.say(b"GET /v1/models/a%20b?q=%2e%2e HTTP/1.1\r\nHost: x\r\n\r\n")
        assert provider.answers(client).start == b"GET /team-a/llm/v1/models/a%20b?q=%2e%2e HTTP/1.1"


def test_a_client_that_expects_100_continue_gets_it(provider: Provider, port: int) -> None:
    """The gateway sends the 100 itself, and passes the field on together with the body."""
    with Line.to(port) as client:
        client.say(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert client.head().status == 100
        client.say(b"hello")
        with provider.answering() as upstream:
            head, body = upstream.message()
            assert (head.all(b"expect"), body) == ([b"100-continue"], b"hello")
            upstream.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n")
            upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert client.head().status == 200  # interim answers are not passed on


def test_large_fields_are_passed_on(provider: Provider, port: int) -> None:
    """Agents put kilobytes of metadata into a field: 60 kB pass in both directions. The server refuses more."""
    large = b"m" * 60_000
    with provider.asked(port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Meta: " + large + b"\r\n\r\n") as (
        client,
        upstream,
    ):
        assert upstream.head().all(b"x-meta") == [large]
        upstream.say(b"HTTP/1.1 200 OK\r\nX-Meta: " + large + b"\r\nContent-Length: 0\r\n\r\n")
        assert client.head().all(b"x-meta") == [large]
    with Line.to(port) as client:
        client.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Meta: " + large + large[:10_000])
        assert client.head().status == 431


def test_trailers_are_not_passed_on_and_do_not_damage_the_body(provider: Provider, port: int) -> None:
    """The body before them is whole, in both directions."""
    with provider.asked(
        port,
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-After: 1\r\n\r\n",
    ) as (client, upstream):
        _, body = upstream.message()
        assert body == b"hi"
        upstream.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-After: 1\r\n\r\n")
        assert client.message()[1] == b"hi"


def test_sequential_requests_reuse_one_upstream_connection(provider: Provider, port: int) -> None:
    """They come from several clients. A connection that the provider has closed is not used."""
    with Line.to(port) as first, Line.to(port) as second:
        first.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        with provider.answering() as upstream:
            for client, following in ((first, second), (second, None)):
                upstream.head()
                upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                assert client.message()[1] == b"ok"
                if following is not None:
                    following.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not provider.is_called()
        first.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        with provider.answering() as another:
            another.head()
            another.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            assert first.message()[1] == b"ok"


def test_an_idle_upstream_connection_is_closed_after_a_while(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response in progress keeps it open, even a slow one; the next request gets a new connection."""
    monkeypatch.setattr(proxy, "KEEP_S", 0.1)
    with gateway(provider.settings()) as port, Line.to(port) as client:
        for _ in range(2):
            client.say(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            with provider.answering() as upstream:
                upstream.head()
                upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
                assert client.head().start.startswith(b"HTTP/1.1 200")
                upstream.sock.settimeout(0.5)
                with pytest.raises(TimeoutError):
                    upstream.is_at_end()
                upstream.sock.settimeout(DEADLINE_S)
                upstream.say(b"k")
                assert client.exactly(2) == b"ok"
                assert upstream.is_at_end()


# Any fields

_TOKEN_CHARACTERS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAMES = st.text(_TOKEN_CHARACTERS, min_size=1, max_size=12) | st.sampled_from(
    ["Accept", "accept", "Cookie", "X-A", "x-a", "anthropic-version", "Set-Cookie", "Trailer", "Via", "Date"]
)
_VALUES = st.binary(max_size=40).map(
    lambda raw: bytes(byte for byte in raw if byte == 9 or 32 <= byte <= 126 or byte >= 128).strip(b" \t")
)
_FRAMING = {"host", "content-length", "transfer-encoding", "expect"}
_HOPS = {"connection", "upgrade", "te", "keep-alive", "proxy-connection"}
_FIELDS = st.lists(st.tuples(_NAMES.filter(lambda name: name.lower() not in _FRAMING | _HOPS), _VALUES), max_size=12)


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Provider, int]]:
    """Start a provider and its gateway, for many examples."""
    with Provider() as opened, gateway(opened.settings()) as running:
        yield opened, running


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(sent=_FIELDS, answered=_FIELDS)
def test_any_fields_arrive_in_both_directions(
    world: tuple[Provider, int], sent: list[tuple[str, bytes]], answered: list[tuple[str, bytes]]
) -> None:
    """Names may change their case; values, order and duplicates are kept."""
    provider, port = world
    with provider.asked(port, b"GET /v1/responses/x HTTP/1.1\r\n" + lines(sent) + b"Host: x\r\n\r\n") as (
        client,
        upstream,
    ):
        got = upstream.head()
        upstream.say(b"HTTP/1.1 200 OK\r\n" + lines(answered) + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
        back = client.head()

    assert got.without(b"host") == [(name.lower().encode(), value) for name, value in sent]
    assert back.without(b"content-length") == [(name.lower().encode(), value) for name, value in answered]


def lines(fields: list[tuple[str, bytes]]) -> bytes:
    """Return the fields as they are sent."""
    return b"".join(name.encode() + b": " + value + b"\r\n" for name, value in fields)
