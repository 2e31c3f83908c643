"""HTTP/2 upstreams: a real server, frames byte by byte, and every abuse by a peer; the rules are those of HTTP/1.1."""

from __future__ import annotations

import gzip
import itertools
import logging
import random
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import httpcore2
import pytest
from h2.connection import H2Connection
from h2.events import Event
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress import EgressRequest, Meter
from aileron.egress.dial import Wire
from aileron.egress.exchange import HEAD_BYTES
from aileron.egress.http2 import MAX_NOISE, Http2
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget
from tests.egress.conftest import HOST, World, dripping, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.upstream import CLOSE, Authority
from tests.support.upstream_h2 import H2Script, H2Seen, H2Upstream, RealH2Server, block, data, h2_context, head, raw

pytestmark = pytest.mark.anyio
MakeH2 = Callable[[H2Script], H2Upstream]
OK = (":status", "200")

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


@pytest.fixture
def h2_upstream(authority: Authority) -> MakeH2:
    """Make an upstream that chooses HTTP/2."""
    context = authority.server_context(HOST)
    return lambda script: H2Upstream(script, context)


def hello(seen: H2Seen) -> list[bytes]:
    """Return the frames of a whole response."""
    return [head(seen, OK), data(seen, b"hello", end=True)]


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


# --- a real server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealH2Server]:
    """Start hypercorn with a certificate of the test's authority."""
    with RealH2Server(tmp_path_factory.mktemp("h2"), authority._ca, HOST) as server:
        yield server


@pytest.mark.abuse_case("E7")
async def test_requests_to_a_real_server_use_http_2(world: World, real: RealH2Server) -> None:
    """Bodies in both directions (sized, streamed, large), errors and redirects all go over one connection."""
    real.scopes.clear()
    grant = world.grant(HostPort(HOST, real.port))

    async def ask(path: str, **options: object) -> tuple[int, bytes]:
        got = await world.ask(None, url=f"https://{HOST}:{real.port}{path}", grant=grant, **options)  # type: ignore[arg-type]
        assert got.header("x-kind") == ["real"]
        return got.status, got.body

    large = bytes(range(256)) * 4096
    assert await ask("/") == (200, b"hello")
    assert await ask("/?x=%20y") == (200, b"hello")
    assert await ask("/", method="HEAD") == (200, b"")
    assert await ask("/echo", method="POST", body=b"ping") == (200, b"ping")
    assert await ask("/echo", method="PUT", body=parts(b"ab", b"", b"cd")) == (200, b"abcd")
    assert await ask("/echo", method="POST", body=large) == (200, large)
    assert await ask("/echo", method="POST", body=parts(large, large)) == (200, large * 2)
    assert (await ask("/big"))[1] == bytes(range(256)) * 8192
    assert await ask("/302") == (302, b"")
    assert await ask("/404") == (404, b"")
    assert await ask("/204") == (204, b"")

    assert {scope["http_version"] for scope in real.scopes} == {"2"}
    assert real.scopes[1]["query_string"] == b"x=%20y"
    assert real.connections == 1
    assert world.resolver.asked == [HOST]


async def test_parallel_requests_have_one_connection_each(world: World, real: RealH2Server) -> None:
    """Streams never share a connection: all that arrives on it belongs to one request."""
    real.scopes.clear()
    grant = world.grant(HostPort(HOST, real.port))

    async def ask() -> None:
        got = await world.ask(None, url=f"https://{HOST}:{real.port}/big", grant=grant)
        assert len(got.body) == 2 << 20

    async with anyio.create_task_group() as tasks:
        for _request in range(4):
            tasks.start_soon(ask)
    assert 1 < real.connections <= 4


# --- what goes out --------------------------------------------------------------------------------------------------


@pytest.mark.abuse_case("E9")
async def test_the_http2_frames_carry_exactly_the_checked_request(world: World, h2_upstream: MakeH2) -> None:
    """`:authority` ignores the connector's `Host`; no hop-by-hop field is sent, and HPACK stores no credential."""
    headers = (("host", "evil.io"), ("Accept", "*/*"), ("X-Forwarded-Host", "evil.io"), ("Accept-Encoding", "gzip"),
               ("Connection", "X-Mine, Authorization"), ("X-Mine", "1"), ("Expect", "100-continue"), ("TE", "trailers"),
               ("HTTP2-Settings", "AAA"), ("Cookie", "a=b"))  # fmt: skip
    world.vault.secret = b"sesame-12345"
    with h2_upstream(hello) as upstream:
        grant = world.grant_for(upstream, credential=use())
        for _time in range(2):
            await world.ask(
                upstream, "/a%2Fb?q=%20", method="PUT", headers=headers, credential="api_key", body=b"x", grant=grant
            )

    assert upstream.connections == 1
    for seen in upstream.seen:
        assert [(name.decode(), value.decode()) for name, value in seen.fields] == [
            (":method", "PUT"), (":scheme", "https"), (":authority", f"{HOST}:{upstream.port}"), (":path", "/a%2Fb?q=%20"),
            ("accept", "*/*"), ("accept-encoding", "identity"), ("content-length", "1"),
            ("authorization", "Bearer sesame-12345"), ("cookie", "a=b"),  # which h2's server side puts last
        ]  # fmt: skip
        secret = [field for field in seen.fields if field[0] not in (b":method", b":scheme")]
        assert not any(field.indexable for field in secret)


@pytest.mark.abuse_case("E9")
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((("X\r\nY", "a"),), "header_name"),
        (((":authority", "evil.io"),), "header_name"),
        (((":path", "/admin"),), "header_name"),
        ((("X", "a\r\nb"),), "header_value"),
        ((("Authorization", "mine"),), "header_credential"),
    ],
)
async def test_a_connector_cannot_set_pseudo_header_fields_or_invalid_fields(
    world: World, h2_upstream: MakeH2, headers: tuple[tuple[str, str], ...], reason: str
) -> None:
    """They are refused before the host name is resolved; the same request without them passes."""
    with h2_upstream(hello) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, credential="api_key", headers=headers, grant=grant)
        assert error.failure.details["reason"] == reason
        assert (upstream.connections, world.resolver.asked) == (0, [])
        assert (await world.ask(upstream, credential="api_key", grant=grant)).body == b"hello"


@pytest.mark.abuse_case("E19")
async def test_a_body_that_differs_from_its_announced_length_is_never_sent_completely(
    world: World, h2_upstream: MakeH2
) -> None:
    """The stream is not ended and the connection is closed, whether the body is too short or too long."""
    with h2_upstream(hello) as upstream:
        for chunks in ((b"abc",), (b"abc", b"de")):
            sized = (("Content-Length", "4"),)
            error = await world.refusal(upstream, method="PUT", body=parts(*chunks), headers=sized)
            assert error.failure.details["reason"] == "body_length"
        assert upstream.seen == []

        await world.ask(upstream, method="PUT", body=parts(b"ab", b"cd"), headers=(("Content-Length", "4"),))
    assert [seen.body for seen in upstream.seen] == [b"abcd"]
    assert upstream.connections == 3


# --- what comes back ------------------------------------------------------------------------------------------------


async def test_interim_responses_trailers_and_padding_are_read_and_not_relayed(
    world: World, h2_upstream: MakeH2
) -> None:
    """The relayed response is the final head and the data."""

    def script(seen: H2Seen) -> list[bytes]:
        padded = raw(DATA, PADDED, seen.stream, b"\x05world" + bytes(5))
        return [
            head(seen, (":status", "103"), ("link", "</x>")),
            head(seen, OK, ("x-a", "1"), ("x-a", "2"), ("set-cookie", "a=b")),
            data(seen, b"hello, "),
            padded,
            raw(0xBE, 0, 0, b"unknown") + raw(PRIORITY, 0, seen.stream, b"\0\0\0\0\x10"),
            head(seen, ("x-trailer", "1"), end=True),
        ]

    with h2_upstream(script) as upstream:
        for _time in range(2):
            got = await world.ask(upstream)
            assert got.body == b"hello, world"
            assert got.headers == (("x-a", "1"), ("x-a", "2"), ("set-cookie", "a=b"))
    assert upstream.connections == 1


@pytest.mark.parametrize(
    ("status", "method", "announced"),
    [("200", "HEAD", "1000"), ("204", "GET", None), ("304", "GET", "1000"), ("200", "GET", "0")],
)
async def test_responses_without_a_body_end_with_their_head(
    world: World, h2_upstream: MakeH2, status: str, method: str, announced: str | None
) -> None:
    """A Content-Length for the body of a GET makes no difference; the connection is kept."""
    length = () if announced is None else (("content-length", announced),)
    with h2_upstream(lambda seen: [head(seen, (":status", status), *length, end=True)]) as upstream:
        for _time in range(2):
            got = await world.ask(upstream, method=method)
            assert (got.status, got.body) == (int(status), b"")
    assert upstream.connections == 1


@pytest.mark.abuse_case("E27")
async def test_a_reflected_credential_is_scrubbed_in_http_2(world: World, h2_upstream: MakeH2) -> None:
    """The credential comes back in fields, split over frames at every place, and compressed; a trailer is not relayed."""
    secret = world.vault.secret = b"canary-/7Gq+Zw9tK0=~"

    def script(seen: H2Seen) -> list[bytes]:
        sent = (seen.value("authorization") or "").encode()
        if seen.target == "/gzip":
            return [head(seen, OK, ("content-encoding", "gzip")), data(seen, gzip.compress(sent), end=True)]
        at = int(seen.target[1:])
        return [
            head(seen, OK, ("x-echo", sent), ("location", b"/?k=" + sent)),
            data(seen, sent[:at]),
            data(seen, sent[at:]),
            head(seen, ("x-echo", sent), end=True),
        ]

    with h2_upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use())
        meter = Meter(Budget(requests=1000))
        for path in ("gzip", *map(str, range(len(b"Bearer ") + len(secret) + 1))):
            got = await world.ask(upstream, f"/{path}", credential="api_key", grant=grant, meter=meter)
            assert_clean(repr(got.headers).encode(), secret)
            assert got.body == b"Bearer " + b"*" * len(secret)
            assert got.scrubbed == (1 if path == "gzip" else 3)
    assert upstream.connections == 1


@pytest.mark.parametrize(
    ("limit", "budget"),
    [("requests", Budget(requests=1)), ("bytes_up", Budget(bytes_up=9)), ("bytes_down", Budget(bytes_down=9))],
)
async def test_a_budget_ends_the_step_in_http_2(world: World, h2_upstream: MakeH2, limit: str, budget: Budget) -> None:
    """The first request is within the budget, the second exceeds it."""
    with h2_upstream(hello) as upstream:
        grant, meter = world.grant_for(upstream, budget=budget), Meter(budget)
        await world.ask(upstream, method="POST", body=b"12345", grant=grant, meter=meter)
        error = await world.refusal(upstream, method="POST", body=b"12345", grant=grant, meter=meter)

    assert error.failure.details == {"limit": limit}


async def test_an_early_http2_response_during_an_upload_is_accepted(world: World, h2_upstream: MakeH2) -> None:
    """The server refuses early and resets the stream: the response is read, and the connection is not reused."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    def script(seen: H2Seen) -> list[bytes]:
        reset = raw(RST, 0, seen.stream, bytes(4))
        return [head(seen, (":status", "413")), data(seen, b"too large", end=True), reset]

    with h2_upstream(script) as upstream:
        upstream.answers_early = True
        for _time in range(2):
            got = await world.ask(upstream, method="PUT", body=endless())
            assert (got.status, got.body) == (413, b"too large")
    assert upstream.connections == 2


@pytest.mark.abuse_case("E23")
async def test_a_graceful_goaway_lets_the_request_finish(world: World, h2_upstream: MakeH2) -> None:
    """The GOAWAY arrives before, within or after the response; the next request gets a new connection."""
    for place in range(3):

        def script(seen: H2Seen, place: int = place) -> list[bytes]:
            said = hello(seen)
            said.insert(place, raw(GOAWAY, 0, 0, seen.stream.to_bytes(4, "big") + bytes(4)))
            return [b"".join(said)]  # in one piece: what stands behind the answer is read with it

        with h2_upstream(script) as upstream:
            for _time in range(2):
                assert (await world.ask(upstream)).body == b"hello"
            assert upstream.connections == 2
        await world.egress.aclose()
        world.egress.pool._closed = False


@pytest.mark.abuse_case("E23")
async def test_http2_control_frames_between_two_requests_do_not_end_the_connection(
    world: World, h2_upstream: MakeH2
) -> None:
    """The server sends a ping, a window and new settings; the ping is acknowledged."""
    after = raw(PING, 0, 0, b"12345678") + raw(WINDOW, 0, 0, b"\0\0\1\0") + raw(SETTINGS, 0, 0, b"")
    with h2_upstream(lambda seen: [*hello(seen), after]) as upstream:
        for _time in range(3):
            assert (await world.ask(upstream)).body == b"hello"
    assert upstream.connections == 1
    assert raw(PING, 1, 0, b"12345678") in bytes(upstream.received)


@pytest.mark.abuse_case("E23")
@pytest.mark.parametrize(
    "after",
    [
        lambda seen: head(seen, OK, end=True, stream=seen.stream + 2),
        lambda seen: head(seen, OK, end=True, stream=seen.stream + 2)[:12],
        lambda seen: head(seen, OK, end=True, stream=2),
        lambda seen: head(seen, OK, end=True),
        lambda seen: data(seen, b"more", end=True),
        lambda _seen: raw(GOAWAY, 0, 0, bytes(8)),
        lambda _seen: b"HTTP/1.1 200 OK\r\n\r\n",
        lambda _seen: raw(PING, 0, 0, b"12345678") * (4 * MAX_NOISE),
    ],
    ids=[
        "for the next",
        "half of it",
        "of the server's own",
        "a second head",
        "more data",
        "goodbye",
        "other words",
        "too much",
    ],
)
async def test_an_unrequested_response_closes_the_connection(
    world: World, h2_upstream: MakeH2, after: Callable[[H2Seen], bytes]
) -> None:
    """Such a response can never become that of the next request, of this invocation or another."""
    has_said_it = threading.Event()

    def too_much(seen: H2Seen) -> Iterator[bytes]:
        yield from hello(seen)
        yield after(seen)
        has_said_it.set()

    with h2_upstream(too_much) as upstream:
        for _time in range(2):
            assert (await world.ask(upstream)).body == b"hello"
            assert await anyio.to_thread.run_sync(has_said_it.wait, 10)
    assert upstream.connections == 2


# --- lies -----------------------------------------------------------------------------------------------------------

BOMB = block(("x", "y" * 4000)).replace(b"\0", b"\x40", 1) + b"\xbe" * 16000
"""A field that the table keeps, and then its index sixteen thousand times: 20 KiB that decode to 64 MiB."""

LIES: dict[str, Callable[[H2Seen], list[bytes]]] = {
    "no answer": lambda seen: [CLOSE],
    "half a frame": lambda seen: [head(seen, OK)[:12], CLOSE],
    "half a body": lambda seen: [head(seen, OK), data(seen, b"he"), CLOSE],
    "HTTP/1.1": lambda seen: [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", CLOSE],
    "data before the head": lambda seen: [data(seen, b"x", end=True)],
    "two heads": lambda seen: [head(seen, OK), head(seen, OK), data(seen, b"", end=True)],
    "no status": lambda seen: [head(seen, ("x", "y"), end=True)],
    "two statuses": lambda seen: [head(seen, OK, OK, end=True)],
    "a status of no kind": lambda seen: [head(seen, (":status", "2e2"), end=True)],
    "a status of many digits": lambda seen: [head(seen, (":status", "9" * 5000), end=True)],
    "a status of no class": lambda seen: [head(seen, (":status", "999"), end=True)],
    "an empty status": lambda seen: [head(seen, (":status", ""), end=True)],
    "switch of protocols": lambda seen: [head(seen, (":status", "101")), CLOSE],
    "an interim answer that ends": lambda seen: [head(seen, (":status", "103"), end=True)],
    "a status after a field": lambda seen: [head(seen, ("x", "y"), OK, end=True)],
    "pseudo fields of a request": lambda seen: [head(seen, OK, (":path", "/x"), end=True)],
    "an unknown pseudo field": lambda seen: [head(seen, OK, (":x", "y"), end=True)],
    "a status in the trailers": lambda seen: [head(seen, OK), head(seen, OK, end=True)],
    "upper case": lambda seen: [head(seen, OK, ("X-A", "b"), end=True)],
    "an empty name": lambda seen: [head(seen, OK, ("", "b"), end=True)],
    "a name with a space": lambda seen: [head(seen, OK, ("x ", "b"), end=True)],
    "a name with a line end": lambda seen: [head(seen, OK, ("x\r\ny", "b"), end=True)],
    "a line end in a value": lambda seen: [head(seen, OK, ("x", "a\r\nset-cookie: b"), end=True)],
    "NUL in a value": lambda seen: [head(seen, OK, ("x", "a\0b"), end=True)],
    "a field of the connection": lambda seen: [head(seen, OK, ("connection", "close"), end=True)],
    "a transfer encoding": lambda seen: [head(seen, OK, ("transfer-encoding", "chunked"), end=True)],
    "two lengths": lambda seen: [head(seen, OK, ("content-length", "1"), ("content-length", "2")), data(seen, b"a", end=True)],
    "a length of no kind": lambda seen: [head(seen, OK, ("content-length", "+1")), data(seen, b"a", end=True)],
    "a length of many digits": lambda seen: [head(seen, OK, ("content-length", "9" * 5000)), data(seen, b"a", end=True)],
    "less than the length": lambda seen: [head(seen, OK, ("content-length", "9")), data(seen, b"a", end=True)],
    "more than the length": lambda seen: [head(seen, OK, ("content-length", "1")), data(seen, b"abc", end=True)],
    "a length and nothing": lambda seen: [head(seen, OK, ("content-length", "9"), end=True)],
    "a length, less, and trailers": lambda seen: [
        head(seen, OK, ("content-length", "9")), data(seen, b"a"), head(seen, ("x", "y"), end=True)
    ],
    "204 with a body": lambda seen: [head(seen, (":status", "204")), data(seen, b"abc", end=True)],
    "a push": lambda seen: [raw(PUSH, END_HEADERS, seen.stream, b"\0\0\0\2" + block((":method", "GET"))), *hello(seen)],
    "an answer on another stream": lambda seen: [head(seen, OK, end=True, stream=seen.stream + 2)],
    "a request of its own": lambda seen: [head(seen, (":method", "GET"), end=True, stream=2)],
    "a head on stream 0": lambda seen: [raw(HEADERS, END_HEADERS | END_STREAM, 0, block(OK))],
    "a frame too long": lambda seen: [raw(DATA, 0, seen.stream, b"", length=(1 << 24) - 1)],
    "a frame one byte too long": lambda seen: [head(seen, OK), raw(DATA, 1, seen.stream, bytes(16385))],
    "padding longer than the frame": lambda seen: [head(seen, OK), raw(DATA, PADDED, seen.stream, b"\xff1")],
    "settings of a stream": lambda seen: [raw(SETTINGS, 0, seen.stream, b"")],
    "settings of an odd length": lambda seen: [raw(SETTINGS, 0, 0, b"12345")],
    "settings out of range": lambda seen: [raw(SETTINGS, 0, 0, b"\0\5\0\0\0\1")],
    "a window of nothing": lambda seen: [raw(WINDOW, 0, 0, bytes(4))],
    "a window over the limit": lambda seen: [raw(WINDOW, 0, 0, b"\x7f\xff\xff\xff")],
    "more than the window": lambda seen: [head(seen, OK), raw(DATA, 0, seen.stream, bytes(16384)) * 70, CLOSE],
    "a ping of no length": lambda seen: [raw(PING, 0, 0, b"")],
    "a reset": lambda seen: [raw(RST, 0, seen.stream, b"\0\0\0\7")],
    "a reset in the body": lambda seen: [head(seen, OK), data(seen, b"he"), raw(RST, 0, seen.stream, bytes(4))],
    "goodbye to this request": lambda seen: [raw(GOAWAY, 0, 0, bytes(8))],
    "a short goodbye": lambda seen: [raw(GOAWAY, 0, 0, b"\0\0\0\1")],
    "a head that does not end": lambda seen: [raw(HEADERS, 0, seen.stream, block(OK)), data(seen, b"x", end=True)],
    "a continuation of nothing": lambda seen: [raw(CONTINUATION, END_HEADERS, seen.stream, block(OK))],
    "a flood of continuations": lambda seen: [
        raw(HEADERS, 0, seen.stream, block(OK)), *[raw(CONTINUATION, 0, seen.stream, b"")] * 100_000
    ],
    "a flood of large continuations": lambda seen: [
        raw(HEADERS, 0, seen.stream, block(OK)), *[raw(CONTINUATION, 0, seen.stream, block(("x", "y" * 9000)))] * 400
    ],
    "a block that is no block": lambda seen: [raw(HEADERS, END_HEADERS | END_STREAM, seen.stream, b"\xff" * 40)],
    "a bomb of indices": lambda seen: [raw(HEADERS, END_HEADERS | END_STREAM, seen.stream, block(OK) + BOMB[:16384])],
    "a table too large": lambda seen: [raw(HEADERS, END_HEADERS | END_STREAM, seen.stream, b"\x3f\xff\xff\xff\x7f" + block(OK))],
    "too many fields": lambda seen: [head(seen, OK, *[("x", "y")] * 300, end=True)],
    "one field too large": lambda seen: [head(seen, OK, ("x", "y" * 60_000), end=True)],
    "a flood of interim answers": lambda seen: [head(seen, (":status", "103"), ("x", "y" * 1000)) * (2 * HEAD_BYTES // 1000)],
    "a flood of small interim answers": lambda seen: [head(seen, (":status", "103")) * (2 * MAX_NOISE), *hello(seen)],
    "a flood of pings": lambda seen: [raw(PING, 0, 0, b"12345678") * (2 * MAX_NOISE), *hello(seen)],
    "a flood of settings": lambda seen: [raw(SETTINGS, 0, 0, b"\0\1\0\0\x10\0") * (2 * MAX_NOISE), *hello(seen)],
    "a flood of windows": lambda seen: [raw(WINDOW, 0, 0, b"\0\0\0\1") * (2 * MAX_NOISE), *hello(seen)],
    "a flood of resets": lambda seen: [
        b"".join(raw(RST, 0, 2 * number + 101, bytes(4)) for number in range(2 * MAX_NOISE)), *hello(seen)
    ],
    "a flood of empty data": lambda seen: [head(seen, OK), raw(DATA, 0, seen.stream, b"") * (2 * MAX_NOISE), CLOSE],
    "a flood of padding": lambda seen: [
        head(seen, OK), raw(DATA, PADDED, seen.stream, b"\x07" + bytes(7)) * (2 * MAX_NOISE), CLOSE
    ],
    "a flood of what is unknown": lambda seen: [raw(0xBE, 0, 0, b"") * (2 * MAX_NOISE), *hello(seen)],
    "an unreadable coding": lambda seen: [head(seen, OK, ("content-encoding", "br")), data(seen, b"x", end=True)],
}  # fmt: skip


@pytest.mark.abuse_case("E11", "E23")
@pytest.mark.parametrize("lie", LIES)
async def test_a_protocol_violation_is_a_network_error_and_its_connection_is_not_reused(
    world: World, h2_upstream: MakeH2, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure has no cause or context, and nothing is logged; the next request gets a new connection and a good response."""
    honest: list[bool] = []
    with (
        h2_upstream(lambda seen: hello(seen) if honest else LIES[lie](seen)) as upstream,
        caplog.at_level(logging.DEBUG),
    ):
        with pytest.raises(AileronError) as caught:
            await world.ask(upstream)

        failure = caught.value.failure
        assert failure.failure_class is FailureClass.NETWORK_ERROR, failure
        assert (failure.boundary, failure.retriable, failure.details) == (
            Boundary.EXTERNAL,
            True,
            {"phase": "exchange"},
        )
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        assert world.journal.last.failure is FailureClass.NETWORK_ERROR
        assert not [record for record in caplog.records if record.name.startswith(("hpack", "h2", "httpcore2"))]

        honest.append(True)
        assert (await world.ask(upstream)).body == b"hello"
        assert upstream.connections == 2


async def test_a_server_that_allows_no_streams_gets_no_request(world: World, h2_upstream: MakeH2) -> None:
    """The server sets MAX_CONCURRENT_STREAMS to 0 after the first response: the next request is a network error."""
    none = raw(SETTINGS, 0, 0, b"\0\3\0\0\0\0")
    # In one piece with the end of the answer: by the time that is read, so is this.
    with h2_upstream(lambda seen: [head(seen, OK), none + data(seen, b"hello", end=True)]) as upstream:
        assert (await world.ask(upstream)).body == b"hello"
        error = await world.refusal(upstream)
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR


@pytest.mark.abuse_case("E33")
@pytest.mark.parametrize("when", ["before the head", "in the body", "without a window"])
async def test_a_slow_peer_cannot_stretch_the_deadline(
    world: World, h2_upstream: MakeH2, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is absolute: endless pings and single bytes do not move it."""
    release, drops = threading.Event(), [0]

    def script(seen: H2Seen) -> Iterator[bytes]:
        if seen.target == "/before":
            yield head(seen, OK, end=True)
            return
        if when == "in the body":
            yield head(seen, OK)
        while not release.wait(0.02):
            yield data(seen, b"x") if when == "in the body" else raw(PING, 0, 0, b"12345678")
            drops[0] += 1

    body = b"x" * (1 << 20) if when == "without a window" else None
    with h2_upstream(script) as upstream:
        await world.ask(upstream, url=f"https://{HOST}:{upstream.port}/before")
        upstream.answers_early = when == "without a window"
        async with dripping(world, lambda: drops[0], monkeypatch):
            error = await world.refusal(upstream, method="POST", body=body)
        release.set()

    assert (error.failure.details, "too long" in error.failure.message) == ({"phase": "exchange"}, True)


# --- any bytes ------------------------------------------------------------------------------------------------------

SEEN = H2Seen(1, (), b"")
GOOD = (
    raw(SETTINGS, 0, 0, b"\0\3\0\0\0\x64")
    + head(SEEN, OK, ("x", "y"))
    + data(SEEN, b"hello")
    + head(SEEN, ("t", "u"), end=True)
)


async def exchange(said: list[bytes]) -> bytes:
    """Return the body that a client reads from a peer that sends this."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        for piece in said:
            theirs.sendall(piece)
        theirs.shutdown(socket.SHUT_WR)
        client = Http2(Wire(ours))
        url = httpcore2.URL(scheme=b"https", host=b"h", port=443, target=b"/")
        request = httpcore2.Request(b"GET", url, headers=[(b"Host", b"h")])
        answer = await client.send(request, HEAD_BYTES)
        return b"".join([piece async for piece in answer.stream])  # type: ignore[union-attr]


async def test_a_response_sent_before_the_peer_closed_is_read() -> None:
    """The peer refuses an upload and closes: the rest cannot be written, but the response can be read."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    gone, heard = anyio.Event(), list[tuple[int, bytes]]()

    async def upload() -> AsyncIterator[bytes]:
        yield b"x"
        await gone.wait()
        yield b"y" * 10

    with ours:
        client = Http2(Wire(ours))

        async def ask() -> None:
            url = httpcore2.URL(scheme=b"https", host=b"h", port=443, target=b"/")
            fields = [(b"Host", b"h"), (b"Transfer-Encoding", b"chunked")]
            answer = await client.send(httpcore2.Request(b"PUT", url, headers=fields, content=upload()), HEAD_BYTES)
            body = b"".join([piece async for piece in answer.stream])  # type: ignore[union-attr]
            heard.append((answer.status, body))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            theirs.recv(1 << 20)
            theirs.sendall(raw(SETTINGS, 0, 0, b"") + head(SEEN, (":status", "413")) + data(SEEN, b"no", end=True))
            theirs.close()
            gone.set()
    assert heard == [(413, b"no")]
    assert not client.is_idle()


@pytest.mark.abuse_case("E41")
async def test_http2_frames_are_processed_only_when_the_reader_asks_for_the_next_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single read can bring thousands: the reader must be able to yield to the event loop between them."""
    taken = 0
    take = H2Connection.receive_data

    def counting(self: H2Connection, frame: bytes) -> list[Event]:
        nonlocal taken
        taken += 1
        return take(self, frame)

    monkeypatch.setattr(H2Connection, "receive_data", counting)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.sendall(raw(SETTINGS, 0, 0, b"") + head(SEEN, OK) + data(SEEN, b"x") * 3000 + data(SEEN, b"", end=True))
        url = httpcore2.URL(scheme=b"https", host=b"h", port=443, target=b"/")
        answer = await Http2(Wire(ours)).send(httpcore2.Request(b"GET", url, headers=[(b"Host", b"h")]), HEAD_BYTES)
        pieces = aiter(answer.stream)  # type: ignore[arg-type]
        assert (await anext(pieces), taken) == (b"x", 3)
        assert len([piece async for piece in pieces]) == 2999


@pytest.mark.abuse_case("E23")
@given(st.lists(st.integers(0, len(GOOD)), max_size=5))
def test_any_split_of_the_bytes_gives_the_same_response(cuts: list[int]) -> None:
    """The response does not depend on how its bytes arrive."""
    edges = [0, *sorted(cuts), len(GOOD)]
    said = [GOOD[start:stop] for start, stop in itertools.pairwise(edges)]
    assert anyio.run(exchange, said) == b"hello"


@pytest.mark.abuse_case("E23")
@given(st.one_of(st.binary(max_size=200), st.integers(0, 1 << 32)))
def test_any_bytes_of_a_peer_give_a_response_or_an_http_error(noise: bytes | int) -> None:
    """The bytes are random, or a good response with some of its bytes changed, cut out or added."""
    if isinstance(noise, int):
        chance, changed = random.Random(noise), bytearray(GOOD)
        for _change in range(chance.randint(1, 4)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
        noise = bytes(changed)
    caught = None
    try:
        anyio.run(exchange, [noise])
    except (httpcore2.ProtocolError, httpcore2.NetworkError) as error:
        caught = error
    assert caught is None or (caught.__cause__, caught.__context__) == (None, None)


async def test_a_server_without_http_2_gets_http_1_1_requests(world: World, authority: Authority) -> None:
    """The servers choose http/1.1 or nothing. Control: one that chooses HTTP/2."""
    from tests.support.upstream import Upstream, answer

    for protocols in (["http/1.1"], []):
        context = authority.server_context(HOST)
        if protocols:
            context.set_alpn_protocols(protocols)
        with Upstream(lambda _seen: answer(b"one"), context) as upstream:
            assert (await world.ask(upstream)).body == b"one"
    with H2Upstream(hello, h2_context(authority.server_context(HOST))) as upstream:
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/")
        grant = world.grant_for(upstream)
        async with world.egress.open(request, grant, Meter(Budget()), world.journal, anyio.current_time() + 10) as got:
            assert b"".join([piece async for piece in got]) == b"hello"


def test_the_test_server_s_certificate_is_written_to_the_file_that_the_server_reads(
    tmp_path: Path, authority: Authority
) -> None:
    """Positive control: the set-up of the real server works."""
    RealH2Server(tmp_path, authority._ca, HOST)
    assert (tmp_path / "h2.pem").read_bytes().startswith(b"-----BEGIN CERTIFICATE")
