"""Budgets at their exact limit, deadlines that nothing stretches, and a machine without free descriptors or threads."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import pytest

from aileron.egress import EgressRequest, Meter
from aileron.egress.lookup import SystemResolver
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import HOST, World, dripping, plain_url, use
from tests.support.descriptors import at_most
from tests.support.upstream import Script, Seen, Upstream, answer, chunked_answer
from tests.support.waiting import ahead_once

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("E35")]
MakeUpstream = Callable[[Script], Upstream]


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


def limit_of(error: AileronError) -> object:
    """Return the budget that was exceeded."""
    assert error.failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED, error
    return error.failure.details["limit"]


@pytest.mark.abuse_case("E30")
async def test_the_last_request_of_a_budget_is_sent_and_the_next_is_not(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Refused requests count as well: a budget bounds attempts."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant, meter = world.grant_for(upstream, credential=use(), budget=Budget(requests=5)), Meter(Budget(requests=5))
        for _time in range(3):
            await world.ask(upstream, credential="api_key", grant=grant, meter=meter)
        await world.refusal(upstream, url="https://evil.io/", grant=grant, meter=meter)
        await world.ask(upstream, credential="api_key", grant=grant, meter=meter)
        lent = world.vault.lent

        for _time in range(2):
            error = await world.refusal(upstream, credential="api_key", grant=grant, meter=meter)
            assert limit_of(error) == "requests"
    assert (len(upstream.requests), lent, world.vault.lent) == (4, 4, 4)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_on_bytes_sent_is_exact(
    world: World, tls_upstream: MakeUpstream, streamed: bool, over: int
) -> None:
    """The last allowed byte is sent; the byte after it is not, and neither is the chunk that contains it."""
    with tls_upstream(lambda seen: answer(seen.body)) as upstream:
        budget = Budget(bytes_up=10)
        grant, meter = world.grant_for(upstream, budget=budget), Meter(budget)
        await world.ask(upstream, method="POST", body=b"1234", grant=grant, meter=meter)
        last = b"567890"[: 6 - over] + b"xx"[: over * 2]
        body = parts(last[:3], last[3:]) if streamed else last
        if over:
            error = await world.refusal(upstream, method="POST", body=body, grant=grant, meter=meter)
            assert limit_of(error) == "bytes_up"
            assert b"xx" not in upstream.received
        else:
            assert (await world.ask(upstream, method="POST", body=body, grant=grant, meter=meter)).body == last
        assert len(upstream.requests) == 2 - over


@pytest.mark.parametrize("framed", ["by its length", "in chunks", "compressed"])
@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_on_bytes_received_is_exact(
    world: World, tls_upstream: MakeUpstream, framed: str, over: int
) -> None:
    """Bytes count as the connector sees them: decoded. A response that ends at the limit is whole."""
    body = b"x" * (600 + over)
    scripts: dict[str, Script] = {
        "by its length": lambda _seen: answer(body),
        "in chunks": lambda _seen: chunked_answer([body[at : at + 7] for at in range(0, len(body), 7)]),
        "compressed": lambda _seen: answer(gzip.compress(body), "Content-Encoding: gzip"),
    }
    with tls_upstream(
        lambda seen: answer(b"y" * 400) if seen.target == "/first" else scripts[framed](seen)
    ) as upstream:
        budget = Budget(bytes_down=1000)
        grant, meter = world.grant_for(upstream, budget=budget), Meter(budget)
        await world.ask(upstream, "/first", grant=grant, meter=meter)
        if over:
            assert limit_of(await world.refusal(upstream, grant=grant, meter=meter)) == "bytes_down"
        else:
            assert (await world.ask(upstream, grant=grant, meter=meter)).body == body
            assert meter.bytes_down == 1000


async def test_concurrent_requests_share_one_budget(world: World, tls_upstream: MakeUpstream) -> None:
    """All requests together read no more than the budget, in any interleaving."""
    with tls_upstream(lambda _seen: chunked_answer([b"z" * 100] * 10)) as upstream:
        budget = Budget(bytes_down=5000)
        grant, meter, read = world.grant_for(upstream, budget=budget), Meter(budget), list[int]()
        over: list[object] = []

        async def one() -> None:
            request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/")
            try:
                async with world.egress.open(request, grant, meter, world.journal, 1e12) as response:
                    async for piece in response:
                        read.append(len(piece))
            except AileronError as error:
                over.append(limit_of(error))

        async with anyio.create_task_group() as tasks:
            for _request in range(12):
                tasks.start_soon(one)
    assert over
    assert set(over) == {"bytes_down"}
    assert sum(read) <= 5000


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.abuse_case("E33")
@pytest.mark.parametrize("where", ["a status line", "a field", "interim answers", "a body", "chunks", "trailers"])
async def test_a_slow_peer_cannot_stretch_the_deadline(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer sends a byte now and then without end: the deadline is absolute, not an idle timeout."""
    begin = {
        "a status line": b"HTTP/1.1 200 ",
        "a field": b"HTTP/1.1 200 OK\r\nX: ",
        "interim answers": b"",
        "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    }[where]
    drop = {"interim answers": b"HTTP/1.1 102 Wait\r\n\r\n", "chunks": b"1\r\nx\r\n", "trailers": b"X: y\r\n"}.get(
        where, b"x"
    )
    stop, drops = threading.Event(), [0]

    def script(_seen: Seen) -> Iterator[bytes]:
        yield begin
        while not stop.wait(0.01):
            yield drop
            drops[0] += 1

    with Upstream(script) as upstream:
        async with dripping(world, lambda: drops[0], monkeypatch):
            error = await world.refusal(upstream, url=plain_url(upstream), grant=world.plain_grant(upstream))
        stop.set()
    assert error.failure.details == {"phase": "exchange"}
    assert "too long" in error.failure.message


@pytest.mark.abuse_case("E33")
async def test_a_peer_that_never_reads_cannot_stretch_the_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can a connector extend the deadline by uploading one byte at a time."""
    asked, release, drops = threading.Event(), threading.Event(), [0]

    class Deaf(Upstream):
        def _converse(self, sock: socket.socket) -> None:
            sock.recv(1, socket.MSG_PEEK)
            asked.set()
            release.wait(60)

    async def drip() -> AsyncIterator[bytes]:
        while True:
            await anyio.sleep(0.01)
            yield b"x"
            drops[0] += 1

    for body, passing in (
        (bytes(32 << 20), ahead_once(asked.is_set, "it is asked", monkeypatch, world.timeout_s)),
        (drip(), dripping(world, lambda: drops[0], monkeypatch)),
    ):
        with Deaf(lambda _seen: b"") as upstream:
            url, grant = plain_url(upstream), world.plain_grant(upstream)
            async with passing:
                error = await world.refusal(upstream, url=url, method="PUT", body=body, grant=grant)
            release.set()
        release.clear()
        assert error.failure.details == {"phase": "exchange"}


@pytest.mark.abuse_case("E30")
@pytest.mark.parametrize("kept", [True, False])
async def test_nothing_is_sent_after_the_deadline(world: World, tls_upstream: MakeUpstream, kept: bool) -> None:
    """Even an open connection gets no byte, and no secret is lent; with a new deadline the same request is sent."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use())
        if kept:
            await world.ask(upstream, credential="api_key", grant=grant)
        before = bytes(upstream.received), world.vault.lent, len(world.resolver.asked), len(world.journal.rows)
        world.timeout_s = 0.0
        error = await world.refusal(upstream, credential="api_key", grant=grant)
        assert (error.failure.failure_class, error.failure.details) == (FailureClass.NETWORK_ERROR, {"phase": "queue"})
        after = bytes(upstream.received), world.vault.lent, len(world.resolver.asked), len(world.journal.rows)
        assert after == before

        world.timeout_s = 20.0
        assert (await world.ask(upstream, credential="api_key", grant=grant)).status == 200


# --- a machine that has no more to give -----------------------------------------------------------------------------


@pytest.mark.abuse_case("E34")
async def test_a_request_that_finds_no_free_file_descriptor_is_a_network_error(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The connection could not be made. When a descriptor is free again, the same request is sent."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        with at_most(os.getpid(), 3):  # 0, 1 and 2 are open, and a number that another thread frees is too high
            error = await world.refusal(upstream)
        assert error.failure.failure_class is FailureClass.NETWORK_ERROR
        assert error.failure.details == {"phase": "connect"}
        assert "too many open files" in error.failure.message
        assert (await world.ask(upstream)).status == 200


@pytest.mark.abuse_case("E34")
async def test_an_address_that_cannot_be_checked_is_not_dialled(world: World) -> None:
    """The check that an address is not this machine's own needs a file descriptor, and none is free."""
    world.resolver.table[HOST] = ["1.1.1.1"]
    with at_most(os.getpid(), 3):
        error = await world.refusal(None, grant=Grant(hosts=(HostPort(HOST, 443),)))
    assert (error.failure.failure_class, error.failure.details) == (FailureClass.NETWORK_ERROR, {"phase": "resolve"})
    assert world.journal.rows == []


@pytest.mark.abuse_case("E34")
async def test_a_dns_lookup_without_a_free_thread_fails_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lookup of the name, when there is a thread, does not wait for the failed one."""
    resolver = SystemResolver()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="temporarily unavailable"):
            await resolver("localhost", 1)
    with anyio.fail_after(10):
        assert await resolver("localhost", 1)
