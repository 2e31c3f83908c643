"""Upstreams that lie: every broken response is a network error, costs bounded memory, and its connection is not kept."""

from __future__ import annotations

import gzip
import random
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from aileron.egress import EgressRequest, Meter
from aileron.egress.exchange import HEAD_BYTES
from aileron.egress.response import TURN_S, Body
from aileron.egress.scrub import Needles
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import Budget
from tests.egress.conftest import World, plain_url
from tests.support.upstream import CLOSE, Script, Seen, Upstream, answer

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 102 Wait\r\nX: " + b"x" * 1000 + b"\r\n\r\n"


def flood_of_interim_answers(_seen: Seen) -> Iterator[bytes]:
    """Yield more interim responses than the head may cost, and then a good response."""
    for _each in range(2 * HEAD_BYTES // len(INTERIM)):
        yield INTERIM
    yield answer(b"ok")


LIES: dict[str, Script] = {
    "no answer": lambda _: [CLOSE],
    "half a head": lambda _: [OK + b"X-Half", CLOSE],
    "not HTTP": lambda _: [b"SSH-2.0-OpenSSH_9.9\r\n", CLOSE],
    "HTTP/2": lambda _: [b"\0\0\x12\4\0\0\0\0\0", CLOSE],
    "status of no kind": lambda _: b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    "switch of protocols": lambda _: b"HTTP/1.1 101 Up\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "two lengths": lambda _: OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length of no kind": lambda _: OK + b"Content-Length: +2\r\n\r\nab",
    "a negative length": lambda _: OK + b"Content-Length: -2\r\n\r\nab",
    "length and chunks": lambda _: OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two transfer encodings": lambda _: OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "an unknown transfer encoding": lambda _: OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": lambda _: OK + b"Content-Length : 2\r\n\r\nab",
    "a name of no kind": lambda _: OK + b"(x): y\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed": lambda _: OK + b"Content-Length: 2\n\r\nab",
    "only line feeds": lambda _: b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
    "a bare carriage return": lambda _: OK + b"X: a\rContent-Length: 9\r\nContent-Length: 2\r\n\r\nab",
    "a folded field": lambda _: OK + b"X: a\r\n Content-Length: 9\r\nContent-Length: 2\r\n\r\nab",
    "a folded field of an interim answer": lambda _: b"HTTP/1.1 103 Early\r\nX: a\r\n\tb\r\n\r\n" + answer(b"ok"),
    "an empty name": lambda _: OK + b": y\r\nContent-Length: 0\r\n\r\n",
    "a line without a colon": lambda _: OK + b"X\r\nContent-Length: 0\r\n\r\n",
    "bytes above ASCII in a name": lambda _: OK + b"X\xff: y\r\nContent-Length: 0\r\n\r\n",
    "NUL in the reason": lambda _: b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
    "a length in hexadecimal": lambda _: OK + b"Content-Length: 0x2\r\n\r\nab",
    "two lengths in one": lambda _: OK + b"Content-Length: 2, 3\r\n\r\nab",
    "a length without end": lambda _: [OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nab", CLOSE],
    "chunked with a comma": lambda _: [OK + b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", CLOSE],
    "nearly chunked": lambda _: OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0 and a length": lambda _: (
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a chunk of a negative size": lambda _: OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
    "a chunk of an enormous size": lambda _: [
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\nab",
        CLOSE,
    ],
    "a chunk with a bare line feed": lambda _: OK + b"Transfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n" + b"\r\n",
    "an extension without end": lambda _: [OK + b"Transfer-Encoding: chunked\r\n\r\n2;", *[b"x" * 65536] * 20, CLOSE],
    "trailers without end": lambda _: [
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        *[b"X: " + b"y" * 1000 + b"\r\n"] * 2000,
        CLOSE,
    ],
    "NUL in a value": lambda _: OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a head without end": lambda _: [OK, *[b"X: " + b"y" * 1000 + b"\r\n"] * 300],
    "one field too large": lambda _: answer(b"", "X: " + "y" * 60_000),
    "too many fields": lambda _: answer(b"", *["X: y"] * 300),
    "a flood of interim answers": flood_of_interim_answers,
    "a body cut short": lambda _: [OK + b"Content-Length: 5\r\n\r\nab", CLOSE],
    "a chunk cut short": lambda _: [OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", CLOSE],
    "no last chunk": lambda _: [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", CLOSE],
    "a chunk of no size": lambda _: OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
    "a chunk longer than said": lambda _: OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
    "an unreadable coding": lambda _: answer(b"x" * 9, "Content-Encoding: br"),
    "another unreadable coding": lambda _: answer(b"x" * 9, "Content-Encoding: zstd"),
    "three codings in three fields": lambda _: answer(
        gzip.compress(b"x"), "Content-Encoding: gzip", "Content-Encoding: identity", "Content-Encoding: deflate"
    ),
    "two codings": lambda _: answer(gzip.compress(gzip.compress(b"x")), "Content-Encoding: gzip, gzip"),
    "a damaged coding": lambda _: answer(b"x" * 9, "Content-Encoding: gzip"),
    "a coding cut short": lambda _: answer(gzip.compress(b"x" * 99)[:-4], "Content-Encoding: gzip"),
    "a bomb": lambda _: answer(gzip.compress(bytes(64 << 20)), "Content-Encoding: gzip"),
}


@pytest.mark.abuse_case("E11", "E20", "E25")
@pytest.mark.parametrize("lie", LIES)
async def test_a_broken_response_is_a_network_error_and_its_connection_is_not_kept(world: World, lie: str) -> None:
    """The failure names the host; the next request gets a new connection and a good response."""
    honest: list[bool] = []
    with Upstream(lambda seen: answer(b"ok") if honest else LIES[lie](seen)) as upstream:
        grant = world.plain_grant(upstream)
        with pytest.raises(AileronError) as caught:
            await world.ask(upstream, url=plain_url(upstream), grant=grant)

        failure = caught.value.failure
        assert failure.failure_class is FailureClass.NETWORK_ERROR
        assert (failure.boundary, failure.retriable) == (Boundary.EXTERNAL, True)
        assert failure.details == {"phase": "exchange"}
        assert failure.message.startswith(f"api.example.test:{upstream.port}: ")
        assert world.journal.last.failure is FailureClass.NETWORK_ERROR

        honest.append(True)
        assert (await world.ask(upstream, url=plain_url(upstream), grant=grant)).body == b"ok"
        assert upstream.connections == 2


async def test_reading_a_response_body_again_after_a_failure_gives_the_same_failure(world: World) -> None:
    """A reader that tries again gets the same failure, not an end that looks like success."""
    with Upstream(LIES["a body cut short"]) as upstream:
        request = EgressRequest("GET", plain_url(upstream))
        grant = world.plain_grant(upstream)
        async with world.egress.open(request, grant, Meter(Budget()), world.journal, 1e12) as response:
            assert await anext(aiter(response)) == b"ab"
            for _again in range(2):
                with pytest.raises(AileronError, match="violated HTTP"):
                    await anext(aiter(response))
    assert world.journal.last.failure is FailureClass.NETWORK_ERROR


async def test_an_early_response_during_an_upload_is_accepted(world: World) -> None:
    """A server may refuse an upload before it has read all of it."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    refusal = answer(b"too large", "Connection: close", status="413 Large")
    with EarlyUpstream(refusal) as upstream:
        grant = world.plain_grant(upstream)
        got = await world.ask(upstream, url=plain_url(upstream), method="PUT", body=endless(), grant=grant)

    assert (got.status, got.body) == (413, b"too large")


class EarlyUpstream(Upstream):
    """An upstream that answers as soon as it has seen a head, and then closes its sending side."""

    def __init__(self, said: bytes) -> None:
        super().__init__(lambda _seen: said)
        self._said = said

    def _converse(self, sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(self._said)
        sock.shutdown(socket.SHUT_WR)


# --- memory ---------------------------------------------------------------------------------------------------------

ZEROS = 1 << 20


def bomb(mebibytes: int, filler: int = 0) -> bytes:
    """Return a gzip stream of this many MiB, one block repeated; `filler` random bytes in each block lower the ratio."""
    stream = zlib.compressobj(9, wbits=31)
    begin = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    block = stream.compress(random.Random(1).randbytes(filler) + bytes(ZEROS - filler)) + stream.flush(
        zlib.Z_FULL_FLUSH
    )
    return begin + block * mebibytes


@pytest.mark.abuse_case("E25")
@pytest.mark.parametrize(
    ("body", "coding", "budget", "limit"),
    [
        (bomb(10_000), "gzip", Budget(), None),
        (gzip.compress(bomb(10_000)), "gzip", Budget(), None),
        (bomb(200, 8000), "gzip", Budget(bytes_down=64 << 20), "bytes_down"),
        (bytes(64 << 20), None, Budget(bytes_down=32 << 20), "bytes_down"),
    ],
    ids=["ten gigabytes", "a bomb in a bomb", "within the ratio", "not compressed"],
)
async def test_no_response_makes_the_engine_hold_more_than_2_mib_in_memory(
    world: World, body: bytes, coding: str | None, budget: Budget, limit: str | None
) -> None:
    """The use of memory is measured while the ratio limit or the budget ends the response."""
    fields = [] if coding is None else [f"Content-Encoding: {coding}"]
    head = answer(b"", *fields).replace(b"Content-Length: 0", b"Content-Length: %d" % len(body))
    view = memoryview(body)
    pieces = [view[at : at + 65536] for at in range(0, len(body), 65536)]
    with Upstream(lambda _seen: [head, *pieces]) as upstream:
        grant, read = world.grant_for(upstream, plain=True, budget=budget), 0
        request = EgressRequest("GET", plain_url(upstream))

        async def drain() -> None:
            nonlocal read
            async with world.egress.open(request, grant, Meter(budget), world.journal, 1e12) as response:
                async for piece in response:
                    read += len(piece)

        tracemalloc.start()
        try:
            with pytest.raises(AileronError) as caught:
                await drain()
            _now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert caught.value.failure.details == ({"phase": "exchange"} if limit is None else {"limit": limit})
    assert read <= budget.bytes_down
    assert read > ZEROS // 2
    assert peak < 2 << 20


@pytest.mark.abuse_case("E41")
@pytest.mark.parametrize("chunk", [b"x", b""], ids=["pieces for the reader", "nothing to give out"])
async def test_a_response_that_arrives_without_pauses_does_not_block_the_event_loop(chunk: bytes) -> None:
    """A single read of a socket can bring ten thousand chunks: other tasks run while they are processed."""
    chunks, turns, is_over = iter([chunk] * 30), 0, False

    async def read() -> bytes | None:
        time.sleep(TURN_S / 2)  # this is the work, which does not wait
        return next(chunks, None)

    async def others() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        body = Body(read, Meter(Budget()), Needles, None, 0, lambda words: pytest.fail(words))
        assert b"".join([piece async for piece in body]) == chunk * 30
        is_over = True

    assert turns >= 10
