"""The engine against real servers: what is sent, what comes back, in which order, and what is recorded."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import pytest

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest, Meter, RequestIntent, RequestReport, steps
from aileron.egress.meter import MAX_IN_FLIGHT
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget
from tests.egress.conftest import HOST, World, plain_url, use
from tests.support.upstream import CLOSE, Authority, Script, Seen, Upstream, answer, chunked_answer
from tests.support.waiting import ahead_once

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[[Script], Upstream]


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed body."""
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


async def test_a_granted_request_reaches_its_host_and_its_response_comes_back(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Method, target and body arrive; status, fields and body come back."""
    with tls_upstream(lambda seen: answer(b"pong:" + seen.body, "X-Kind: test", status="201 Created")) as upstream:
        got = await world.ask(upstream, "/v1/items?x=1", method="POST", body=b"ping")

    assert (got.status, got.body) == (201, b"pong:ping")
    assert got.header("x-kind") == ["test"]
    assert upstream.requests[0].target == "/v1/items?x=1"


@pytest.mark.abuse_case("E9", "E24")
async def test_the_wire_carries_exactly_the_checked_request(world: World, tls_upstream: MakeUpstream) -> None:
    """Byte for byte: our Host field, the connector's fields as spelled, our framing, and the credential."""
    headers = (("host", "evil.io"), ("accept", "*/*"), ("X-Forwarded-Host", "evil.io"), ("Accept-Encoding", "gzip"),
               ("Connection", "X-Mine, Authorization"), ("X-Mine", "1"), ("Expect", "100-continue"))  # fmt: skip
    world.vault.secret = b"sesame-12345"
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use())
        await world.ask(
            upstream, "/a%2Fb?q=%20", method="PUT", headers=headers, credential="api_key", body=b"x", grant=grant
        )

    assert upstream.received == (
        b"PUT /a%%2Fb?q=%%20 HTTP/1.1\r\nHost: %s:%d\r\naccept: */*\r\nAccept-Encoding: identity\r\n"
        b"Content-Length: 1\r\nAuthorization: Bearer sesame-12345\r\n\r\nx" % (HOST.encode(), upstream.port)
    )


@pytest.mark.abuse_case("E7")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Again", "308 There"])
async def test_a_redirect_is_returned_and_not_followed(world: World, tls_upstream: MakeUpstream, status: str) -> None:
    """The redirect's target makes no difference: the credential was meant for this host."""
    world.resolver.table["evil.io"] = ["127.0.0.1"]
    with tls_upstream(lambda _seen: answer(b"", "Location: https://evil.io/", status=status)) as upstream:
        got = await world.ask(upstream, credential="api_key", grant=world.grant_for(upstream, credential=use()))

    assert (got.status, got.header("location")) == (int(status[:3]), ["https://evil.io/"])
    assert len(upstream.requests) == 1
    assert world.resolver.asked == [HOST]


@pytest.mark.parametrize("status", ["400 Bad", "401 Who", "407 Proxy", "429 Slow", "500 Broken", "503 Later"])
async def test_a_response_with_an_error_status_is_relayed_to_the_connector(
    world: World, tls_upstream: MakeUpstream, status: str
) -> None:
    """The response is relayed with its body: its meaning is the connector's business."""
    with tls_upstream(lambda _seen: answer(b"why", "Retry-After: 3", status=status)) as upstream:
        got = await world.ask(upstream)

    assert (got.status, got.body, got.header("retry-after")) == (int(status[:3]), b"why", ["3"])
    assert world.journal.last.failure is None


async def test_a_streamed_body_is_sent_chunked_or_with_its_announced_length(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A body without an announced length is chunked."""
    with tls_upstream(lambda seen: answer(seen.body)) as upstream:
        chunked = await world.ask(upstream, method="POST", body=parts(b"ab", b"", b"cd"))
        sized = await world.ask(upstream, method="PUT", body=parts(b"ab", b"cd"), headers=(("content-length", "4"),))

    assert (chunked.body, sized.body) == (b"abcd", b"abcd")
    assert [seen.values("transfer-encoding") for seen in upstream.requests] == [["chunked"], []]
    assert [seen.values("content-length") for seen in upstream.requests] == [[], ["4"]]


@pytest.mark.abuse_case("E19")
@pytest.mark.parametrize("chunks", [(b"abc",), (b"abc", b"de")])
async def test_a_streamed_body_must_have_its_announced_length(
    world: World, tls_upstream: MakeUpstream, chunks: tuple[bytes, ...]
) -> None:
    """The upstream never sees a whole request if the body is too short or too long."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        error = await world.refusal(upstream, method="PUT", body=parts(*chunks), headers=(("Content-Length", "4"),))

        assert error.failure.details["reason"] == "body_length"
    assert upstream.requests == []
    assert world.journal.last.failure is FailureClass.CAPABILITY_DENIED


async def test_a_large_body_is_sent_at_the_pace_of_the_upstream(world: World, tls_upstream: MakeUpstream) -> None:
    """The body is larger than any socket buffer: the engine waits, and every byte arrives."""
    body = bytes(range(256)) * 16384
    with tls_upstream(lambda seen: answer(b"%d" % (seen.body == body))) as upstream:
        got = await world.ask(upstream, method="POST", body=body)

    assert got.body == b"1"
    assert world.journal.last.bytes_up == len(body)


async def test_a_large_response_is_read_in_bounded_pieces(world: World, tls_upstream: MakeUpstream) -> None:
    """Every byte arrives once, chunked or sized (conftest checks the pieces)."""
    body = bytes(range(256)) * 8192
    scripts: list[Script] = [
        lambda _seen: answer(body),
        lambda _seen: chunked_answer([body[:1_000_000], body[1_000_000:]]),
    ]
    for script in scripts:
        with tls_upstream(script) as upstream:
            got = await world.ask(upstream)
            assert got.body == body
            assert world.journal.last.bytes_down == len(body)


async def test_responses_without_a_body_are_complete(world: World, tls_upstream: MakeUpstream) -> None:
    """HEAD, 204 and 304 end with their head, and the connection is kept."""

    def script(seen: Seen) -> bytes:
        if seen.method == "HEAD":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nContent-Encoding: gzip\r\n\r\n"
        return f"HTTP/1.1 {seen.target[1:]} Nothing\r\n\r\n".encode()

    with tls_upstream(script) as upstream:
        head = await world.ask(upstream, method="HEAD")
        others = [await world.ask(upstream, "/204"), await world.ask(upstream, "/304")]

    assert (head.status, head.body, head.header("content-length")) == (200, b"", ["1000"])
    assert [(got.status, got.body) for got in others] == [(204, b""), (304, b"")]
    assert upstream.connections == 1


async def test_interim_responses_are_skipped(world: World, tls_upstream: MakeUpstream) -> None:
    """A few are allowed: 103 Early Hints is in use."""
    early = b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n"
    with tls_upstream(lambda _seen: early * 3 + answer(b"ok")) as upstream:
        got = await world.ask(upstream)

    assert (got.status, got.body, got.header("link")) == (200, b"ok", [])


async def test_an_encoded_response_is_decoded(world: World, tls_upstream: MakeUpstream) -> None:
    """The upstream ignored `Accept-Encoding: identity`. Fields that describe the encoded form are removed."""
    body = gzip.compress(b"hello" * 100)
    with tls_upstream(lambda _seen: answer(body, "Content-Encoding: gzip")) as upstream:
        got = await world.ask(upstream)

    assert got.body == b"hello" * 100
    assert got.header("content-encoding") == got.header("content-length") == []
    assert upstream.requests[0].values("accept-encoding") == ["identity"]
    assert world.journal.last.bytes_down == 500


# --- what is written down -------------------------------------------------------------------------------------------


async def test_the_intent_to_send_a_request_is_recorded_before_anything_is_sent(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The name is resolved and the secret lent by then, but there is no connection yet."""
    before: list[tuple[int, int, int]] = []
    with tls_upstream(lambda _seen: answer(b"12345")) as upstream:
        world.journal.on_sending = lambda: before.append(
            (len(world.resolver.asked), world.vault.lent, upstream.connections)
        )
        meter = Meter(Budget())
        grant = world.grant_for(upstream, credential=use())
        await world.ask(upstream, "/v1?q=1", method="POST", body=b"abc", credential="api_key", grant=grant, meter=meter)
        await world.ask(upstream, "/v2", grant=grant, meter=meter)

    where = HostPort(HOST, upstream.port)
    first, report, second, _last = world.journal.rows
    assert before[0] == (1, 1, 0)
    assert first == RequestIntent(1, "POST", where, "/v1", "api_key/example/home")
    assert second == RequestIntent(2, "GET", where, "/v2", None)
    assert isinstance(report, RequestReport)
    assert (report.number, report.status, report.address, report.failure) == (1, 200, "127.0.0.1", None)
    assert (report.bytes_up, report.bytes_down, report.scrubbed) == (3, 5, 0)
    assert 0 < report.ms < 20_000


async def test_a_request_that_cannot_be_recorded_is_not_sent(world: World, tls_upstream: MakeUpstream) -> None:
    """A full disk stops the request before the connection."""

    def disk_full() -> None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger cannot be written: no space left on device")

    with tls_upstream(lambda _seen: answer()) as upstream:
        world.journal.on_sending = disk_full
        error = await world.refusal(upstream)
        assert error.failure.failure_class is FailureClass.INTERNAL_ERROR
        assert (upstream.connections, world.journal.rows) == (0, [])

        world.journal.on_sending = None
        assert (await world.ask(upstream)).status == 200


async def test_a_locked_vault_stops_the_request_before_it_is_recorded(world: World, tls_upstream: MakeUpstream) -> None:
    """The lender's error arrives unchanged; a request without a credential does not need the vault."""
    world.vault.locked = True
    with tls_upstream(lambda _seen: answer()) as upstream:
        grant = world.grant_for(upstream, credential=use())
        error = await world.refusal(upstream, credential="api_key", grant=grant)
        assert error.failure.failure_class is FailureClass.VAULT_LOCKED
        assert (upstream.connections, world.journal.rows) == (0, [])

        assert (await world.ask(upstream, grant=grant)).status == 200


async def test_a_ledger_that_hangs_stops_the_request(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent must be durable before anything is sent, and the wait for that is bounded."""
    monkeypatch.setattr(steps, "JOURNAL_S", 0.05)

    class HangingJournal(type(world.journal)):  # type: ignore[misc]
        async def sending(self, intent: RequestIntent) -> None:
            await anyio.sleep_forever()

    world.journal = HangingJournal()
    with tls_upstream(lambda _seen: answer()) as upstream:
        error = await world.refusal(upstream)

    assert error.failure.failure_class is FailureClass.INTERNAL_ERROR
    assert (upstream.connections, world.journal.rows) == (0, [])


async def test_an_error_of_the_code_that_reads_a_response_is_recorded_as_an_internal_error(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A bug in the caller does not end the exchange as a success."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/")
        grant, meter = world.grant_for(upstream), Meter(Budget())
        with pytest.raises(ZeroDivisionError):
            async with world.egress.open(request, grant, meter, world.journal, anyio.current_time() + 10):
                raise ZeroDivisionError

    assert world.journal.last.failure is FailureClass.INTERNAL_ERROR


@pytest.mark.parametrize("path", ["/head", "/body"])
async def test_a_cancelled_request_is_still_recorded(world: World, tls_upstream: MakeUpstream, path: str) -> None:
    """The request is cancelled while it waits for the response or reads it; the loan is given back (conftest checks)."""
    reached, release, token = anyio.Event(), threading.Event(), anyio.lowlevel.current_token()

    def script(seen: Seen) -> Iterator[bytes]:
        if seen.target == "/body":
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab\n"
        else:
            anyio.from_thread.run_sync(lambda: reached.set(), token=token)
        release.wait(10)

    async def ask() -> None:
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}{path}", credential="api_key")
        deadline = anyio.current_time() + 20
        async with world.egress.open(request, grant, Meter(Budget()), world.journal, deadline) as response:
            async for _piece in response:
                reached.set()

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await reached.wait()
            tasks.cancel_scope.cancel()
        release.set()

    assert world.journal.last.failure is FailureClass.CANCELLED
    assert world.journal.last.status == (None if path == "/head" else 200)


async def test_leaving_a_response_unread_is_not_a_failure(world: World, tls_upstream: MakeUpstream) -> None:
    """The connector lost interest: the connection is closed, and the row is complete."""
    with tls_upstream(lambda _seen: answer(b"x" * 500_000)) as upstream:
        grant = world.grant_for(upstream)
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/")
        deadline = anyio.current_time() + 10
        async with world.egress.open(request, grant, Meter(Budget()), world.journal, deadline) as response:
            assert response.status == 200
        assert (world.journal.last.status, world.journal.last.failure) == (200, None)

        await world.ask(upstream)
    assert upstream.connections == 2


# --- connections that are kept --------------------------------------------------------------------------------------


async def test_a_connection_outlives_an_invocation(world: World, tls_upstream: MakeUpstream) -> None:
    """Five steps use one connection and one lookup."""
    with tls_upstream(lambda _seen: answer(b"ok")) as upstream:
        for _step in range(5):
            await world.ask(upstream)

    assert (upstream.connections, len(upstream.requests), world.resolver.asked) == (1, 5, [HOST])


async def test_a_connection_is_not_shared_between_credentials(world: World, tls_upstream: MakeUpstream) -> None:
    """Each identity has its own, and so have requests without a credential; each is reused by its own."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        for _round in range(2):
            await world.ask(upstream)
            for kind in ("api_key", "oauth2"):
                await world.ask(upstream, credential=kind, grant=world.grant_for(upstream, credential=use(kind)))

    assert upstream.connections == 3


@pytest.mark.abuse_case("E14")
async def test_a_connection_to_a_private_address_is_not_reused_once_its_permission_is_withdrawn(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """A host that was private by the user's exception is resolved and refused anew without it."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        granted = world.grant_for(upstream)
        await world.ask(upstream, grant=granted)
        error = await world.refusal(upstream, grant=type(granted)(hosts=granted.hosts))

    assert error.failure.details["reason"] == "address_not_public"


@pytest.mark.abuse_case("E14")
async def test_after_dns_rebinding_an_open_connection_is_still_used_and_a_new_connection_is_refused(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """DNS rebinding: the name now has another address. The kept connection stays in use, and a new one is vetted."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        await world.ask(upstream)
        world.resolver.table[HOST] = ["169.254.169.254"]
        assert (await world.ask(upstream)).status == 200
        upstream.drop_connections()
        error = await world.refusal(upstream)

    assert upstream.connections == 1
    assert error.failure.details["reason"] == "address_forbidden"


async def test_a_connection_closed_by_the_peer_is_replaced(world: World, tls_upstream: MakeUpstream) -> None:
    """The peer closes it between two steps, and even while the intent of the second is being written."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        await world.ask(upstream)
        upstream.drop_connections()
        assert (await world.ask(upstream)).status == 200

        world.journal.on_sending = upstream.drop_connections
        assert (await world.ask(upstream)).status == 200

    assert upstream.connections == 3


@pytest.mark.abuse_case("E20")
@pytest.mark.parametrize(
    "script",
    [
        lambda _seen: answer(b"", "Connection: close"),
        lambda _seen: answer(b"first") + answer(b"for the next one"),
        lambda _seen: b"HTTP/1.1 204 No\r\n\r\nsmuggled",
        lambda _seen: answer(b"first") + b"HTTP/1.1 200 OK\r\nX: ",
        lambda _seen: [b"HTTP/1.0 200 OK\r\n\r\nall of it", CLOSE],
    ],
    ids=["close", "second answer", "204 with a body", "half a head", "to the end"],
)
async def test_a_connection_with_leftover_bytes_is_not_reused(world: World, script: Script) -> None:
    """An upstream that an attacker makes respond twice would answer another caller's request."""
    with Upstream(script) as upstream:
        for _step in range(2):
            got = await world.ask(upstream, url=plain_url(upstream), grant=world.plain_grant(upstream))
            assert got.status in {200, 204}

    assert upstream.connections == 2


async def test_idle_connections_are_bounded(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are on their number and their age; the oldest leave first."""
    pool = world.egress.pool
    with tls_upstream(lambda _seen: answer()) as upstream:
        grants = [world.grant_for(upstream, credential=use(kind)) for kind in ("api_key", "oauth2")]
        monkeypatch.setattr("aileron.egress.pool.MAX_IDLE", 1)
        for grant in grants:
            assert grant.credential is not None
            await world.ask(upstream, credential=grant.credential.need.kind, grant=grant)
        await world.ask(upstream, credential="oauth2", grant=grants[1])
        assert upstream.connections == 2

        await world.ask(upstream, credential="api_key", grant=grants[0])
        assert upstream.connections == 3

        monkeypatch.setattr("aileron.egress.pool.IDLE_S", -1.0)
        await world.ask(upstream, credential="api_key", grant=grants[0])
        assert upstream.connections == 4

    pool.close()


async def test_parallel_requests_have_one_connection_each(world: World, tls_upstream: MakeUpstream) -> None:
    """A step may have a limited number open; one request more waits for a place, and gets it."""
    release, all_there = threading.Event(), anyio.Event()
    token = anyio.lowlevel.current_token()

    def script(_seen: Seen) -> bytes:
        if len(upstream.requests) == MAX_IN_FLIGHT:
            anyio.from_thread.run_sync(all_there.set, token=token)
        release.wait(10)
        return answer()

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream)
        meter = Meter(grant.budget)
        async with anyio.create_task_group() as tasks:
            for _request in range(MAX_IN_FLIGHT + 1):
                tasks.start_soon(lambda: world.ask(upstream, grant=grant, meter=meter))
            await all_there.wait()
            assert (upstream.connections, meter.in_flight.statistics().tasks_waiting) == (MAX_IN_FLIGHT, 1)
            release.set()
        assert len(upstream.requests) == meter.requests == MAX_IN_FLIGHT + 1
        await world.egress.aclose()


# --- budgets and time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "budget"),
    [("requests", Budget(requests=1)), ("bytes_up", Budget(bytes_up=9)), ("bytes_down", Budget(bytes_down=9))],
)
async def test_a_step_ends_at_its_budget(world: World, tls_upstream: MakeUpstream, limit: str, budget: Budget) -> None:
    """The budget bounds requests, bytes sent and bytes received; the first request is within it, the second exceeds it."""
    with tls_upstream(lambda _seen: answer(b"12345")) as upstream:
        grant = world.grant_for(upstream, budget=budget)
        meter = Meter(budget)
        await world.ask(upstream, method="POST", body=b"12345", grant=grant, meter=meter)
        error = await world.refusal(upstream, method="POST", body=b"12345", grant=grant, meter=meter)

        assert error.failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED
        assert error.failure.details == {"limit": limit}
    assert len(upstream.requests) == (2 if limit == "bytes_down" else 1)


async def test_a_streamed_body_counts_against_the_budget_while_it_is_sent(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The chunk that would exceed the budget is not sent."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        error = await world.refusal(
            upstream,
            method="POST",
            body=parts(b"12345", b"12345"),
            grant=world.grant_for(upstream, budget=Budget(bytes_up=9)),
        )

        assert error.failure.details == {"limit": "bytes_up"}
    assert upstream.requests == []
    assert world.journal.last.bytes_up == 5


async def test_a_compression_bomb_ends_at_the_budget(world: World, tls_upstream: MakeUpstream) -> None:
    """Bytes count as they are decoded."""
    with tls_upstream(lambda _seen: answer(gzip.compress(bytes(1 << 20)), "Content-Encoding: gzip")) as upstream:
        grant = world.grant_for(upstream, budget=Budget(bytes_down=100_000))
        error = await world.refusal(upstream, grant=grant)

    assert error.failure.details == {"limit": "bytes_down"}
    assert world.journal.last.failure is FailureClass.RESOURCE_LIMIT_EXCEEDED


@pytest.mark.abuse_case("E33")
@pytest.mark.parametrize("when", ["before the head", "in the body"])
async def test_a_request_to_a_silent_upstream_ends_at_the_deadline(
    world: World, tls_upstream: MakeUpstream, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure reports a timeout and is retriable. The connection was open before."""
    silent, release = threading.Event(), threading.Event()

    def script(seen: Seen) -> Iterator[bytes]:
        if seen.target == "/before":
            yield answer()
            return
        if when == "in the body":
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"
        silent.set()
        release.wait(60)

    with tls_upstream(script) as upstream:
        await world.ask(upstream, url=f"https://{HOST}:{upstream.port}/before")
        async with ahead_once(silent.is_set, "it stops talking", monkeypatch, world.timeout_s):
            error = await world.refusal(upstream)
        release.set()

    assert upstream.connections == 1
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert error.failure.retriable
    assert error.failure.details == {"phase": "exchange"}
    assert "too long" in error.failure.message
    assert world.journal.last.failure is FailureClass.NETWORK_ERROR


# --- names and addresses --------------------------------------------------------------------------------------------


async def test_the_second_address_is_used_when_the_first_fails(world: World, tls_upstream: MakeUpstream) -> None:
    """Addresses are tried in the resolver's order; the row has the one that was used."""
    world.resolver.table[HOST] = ["127.0.0.2", "127.0.0.1"]
    with tls_upstream(lambda _seen: answer()) as upstream:
        assert (await world.ask(upstream)).status == 200

    assert world.journal.last.address == "127.0.0.1"


async def test_if_an_address_drops_packets_the_next_is_tried_and_the_last_ends_with_a_connect_timeout(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next address is tried then. A single address costs the connect timeout, not the time of the step."""
    monkeypatch.setattr("aileron.egress.dial.ATTEMPT_S", 0.1)
    world.resolver.table[HOST] = ["127.0.0.2", "127.0.0.1"]
    with tls_upstream(lambda _seen: answer()) as upstream, swallowing("127.0.0.2", upstream.port):
        assert (await world.ask(upstream)).status == 200
        await world.egress.aclose()

        monkeypatch.setattr("aileron.egress.steps.CONNECT_S", 0.05)
        world.resolver.table[HOST] = ["127.0.0.2"]
        error = await world.refusal(upstream)
        assert error.failure.details == {"phase": "connect"}
        assert "too long" in error.failure.message


@contextlib.contextmanager
def swallowing(address: str, port: int) -> Iterator[None]:
    """Listen with a full queue: Linux drops further handshakes unanswered (listen(2))."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server((address, port), backlog=0))
        for _queued in range(2):
            client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            client.connect_ex((address, port))
        yield


async def test_a_refused_connection_is_a_network_error(world: World) -> None:
    """The message has the kernel's reason; the intent was recorded, so the end is too."""
    with Upstream(lambda _seen: answer()) as gone:
        pass
    error = await world.refusal(gone)

    assert error.failure.message == f"{HOST}:{gone.port}: connection refused: nothing listens there"
    assert error.failure.retriable
    assert error.failure.details == {"phase": "connect", "reason": "refused"}
    assert (world.journal.last.failure, world.journal.last.address) == (FailureClass.NETWORK_ERROR, None)


@pytest.mark.parametrize(
    ("answers", "words"),
    [(None, "name resolution failed"), ([], "0 addresses"), (["127.0.0.1"] * 33, "33 addresses")],
)
async def test_a_name_without_usable_addresses_is_a_network_error(
    world: World, tls_upstream: MakeUpstream, answers: list[str] | None, words: str
) -> None:
    """The resolver gives no answer, an empty one, or too many; nothing is connected and nothing is recorded."""
    with tls_upstream(lambda _seen: answer()) as upstream:
        if answers is None:
            del world.resolver.table[HOST]
        else:
            world.resolver.table[HOST] = answers
        with pytest.raises(AileronError, match=words) as caught:
            await world.ask(upstream)

        assert caught.value.failure.details == {"phase": "resolve"}
        assert (upstream.connections, world.journal.rows) == (0, [])


@pytest.mark.abuse_case("E17")
async def test_a_lookup_that_hangs_ends_at_its_own_deadline_and_not_at_that_of_the_step(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of the whole step is much later than that of the lookup."""
    monkeypatch.setattr(steps, "RESOLVE_S", 0.05)

    async def hang(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        raise AssertionError

    with tls_upstream(lambda _seen: answer()) as upstream:
        other = Egress(Settings(), world.vault, resolve=hang)
        deadline = anyio.current_time() + 20
        request = EgressRequest("GET", f"https://{HOST}:{upstream.port}/")
        with pytest.raises(AileronError, match="too long"):
            async with other.open(request, world.grant_for(upstream), Meter(Budget()), world.journal, deadline):
                pass
        assert anyio.current_time() < deadline - 15


async def test_an_address_in_a_grant_needs_no_resolver(world: World, authority: Authority) -> None:
    """The certificate must then name the address."""
    with Upstream(lambda _seen: answer(b"ok"), authority.server_context("127.0.0.1")) as upstream:
        url = f"https://127.0.0.1:{upstream.port}/"
        got = await world.ask(upstream, url=url, grant=world.grant(HostPort("127.0.0.1", upstream.port)))

    assert (got.body, world.resolver.asked) == (b"ok", [])
