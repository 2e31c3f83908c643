"""Streams at the engine: the order of the checks, what is recorded, and what a step may use up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from aileron.egress import Meter
from aileron.egress.journal import RequestIntent, RequestReport
from aileron.egress.tcp import StreamRequest
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import HOST, World, reason_of, use
from tests.support.upstream import Upstream, answer
from tests.support.waiting import ahead_once

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[..., Upstream]


@contextlib.contextmanager
def listener() -> Iterator[socket.socket]:
    """Listen on a port on loopback; the kernel accepts every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


async def opened(
    world: World, host: str, port: int, grant: Grant, *, tls: bool = True, meter: Meter | None = None
) -> Any:
    """Open a stream, send an HTTP request on it, and return what is received."""
    deadline = anyio.current_time() + world.timeout_s
    request = StreamRequest(host, port, tls)
    streams = world.egress.streams
    async with streams.open(request, grant, meter or Meter(grant.budget), world.journal, deadline) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return await stream.receive()


async def refused(world: World, *arguments: Any, **options: Any) -> AileronError:
    """Open a stream that must fail, and return its error."""
    with pytest.raises(AileronError) as caught:
        await opened(world, *arguments, **options)
    return caught.value


async def test_a_stream_causes_one_dns_lookup_and_is_recorded_at_its_start_and_end(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """The positive control of this file: TLS verified, bytes in both directions, one lookup, two rows."""
    with tls_upstream(lambda seen: answer(b"hello")) as upstream:
        said = await opened(world, HOST.upper(), upstream.port, world.grant_for(upstream))

    assert said.endswith(b"hello")
    assert world.resolver.asked == [HOST]
    intent, report = world.journal.rows
    assert intent == RequestIntent(1, "TCP", HostPort(HOST, upstream.port), "", None)
    assert isinstance(report, RequestReport)
    assert (report.status, report.address, report.failure) == (None, "127.0.0.1", None)
    assert (report.bytes_up, report.bytes_down) == (27, len(said))


@pytest.mark.parametrize(
    ("host", "port", "tls", "reason"),
    [
        ("evil.example.com", 443, True, "host_not_granted"),
        (HOST, 1, True, "host_not_granted"),
        (HOST, 443, False, "plain_http"),
        ("evil.example.com", 443, False, "host_not_granted"),
        (f"user@{HOST}", 443, True, "url_host"),
        (f"{HOST}:443", 443, True, "url_host"),
        (f"{HOST}.", 443, True, "url_host"),
        (f"{HOST}/x", 443, True, "url_host"),
        (f"{HOST}\r\n", 443, True, "url_host"),
        ("127.1", 443, True, "url_host"),
        ("[::1]", 443, True, "url_host"),
        ("x" * 10_000, 443, True, "url_host"),
        ("", 443, True, "url_host"),
    ],
)
async def test_a_refused_stream_causes_no_lookup(world: World, host: str, port: int, tls: bool, reason: str) -> None:
    """The denial with its reason is the only record."""
    error = await refused(world, host, port, world.grant(HostPort(HOST, 443)), tls=tls)

    assert reason_of(error) == reason
    assert world.resolver.asked == []
    assert world.journal.rows == []
    (denial,) = world.journal.denials
    assert (denial.method, denial.reason) == ("TCP", reason)
    assert len(denial.destination) <= 300


async def test_a_step_with_a_credential_gets_no_stream(world: World) -> None:
    """The refusal comes before the lookup, and before anything is lent."""
    error = await refused(world, HOST, 443, world.grant(HostPort(HOST, 443), credential=use()))

    assert reason_of(error) == "stream_credential"
    assert world.resolver.asked == []
    assert world.vault.lent == 0


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["10.0.0.1"], "address_not_public"),
        (["93.184.216.34", "10.0.0.1"], "address_not_public"),
        (["127.0.0.1"], "address_not_public"),
        (["169.254.169.254"], "address_forbidden"),
        (["::ffff:127.0.0.1"], "address_forbidden"),
    ],
)
async def test_every_resolved_address_of_a_stream_s_host_is_checked(
    world: World, addresses: list[str], reason: str
) -> None:
    """A single forbidden address refuses them all, and nothing is dialled."""
    world.resolver.table["mail.example.test"] = addresses
    grant = Grant(hosts=(HostPort("mail.example.test", 465),))

    error = await refused(world, "mail.example.test", 465, grant)

    assert reason_of(error) == reason
    assert world.journal.rows == []


async def test_a_plain_stream_goes_to_loopback_only(world: World) -> None:
    """This holds even where the user allowed the stream to be plain."""
    with listener() as listening:
        port = listening.getsockname()[1]
        grant = world.grant(HostPort(HOST, port), plain=True)
        deadline = anyio.current_time() + world.timeout_s
        async with world.egress.streams.open(
            StreamRequest(HOST, port, False), grant, Meter(grant.budget), world.journal, deadline
        ) as stream:
            assert stream.address == "127.0.0.1"
        world.resolver.table[HOST] = ["93.184.216.34"]
        error = await refused(world, HOST, port, grant, tls=False)

    assert reason_of(error) == "address_not_loopback"


async def test_a_stream_is_limited_by_the_budgets_for_requests_bytes_sent_and_bytes_received(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Each limit holds by itself, and reaching it fails the stream."""
    with tls_upstream(lambda seen: answer(b"x" * 1000)) as upstream:
        for limit, budget in {
            "requests": Budget(requests=1),
            "bytes_up": Budget(bytes_up=26),
            "bytes_down": Budget(bytes_down=500),
        }.items():
            grant = world.grant_for(upstream, budget=budget)
            meter = Meter(budget)
            if limit == "requests":
                await opened(world, HOST, upstream.port, grant, meter=meter)
            error = await refused(world, HOST, upstream.port, grant, meter=meter)

            assert error.failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED
            assert error.failure.details["limit"] == limit


@contextlib.asynccontextmanager
async def spoken_to(listening: socket.socket, world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let the block's deadline pass once a client has connected and sent something."""
    with contextlib.ExitStack() as stack:
        heard: list[bytes] = []

        def hear() -> None:
            taken, _address = listening.accept()
            stack.enter_context(taken).settimeout(10)
            heard.append(taken.recv(4096))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, hear)
            async with ahead_once(lambda: heard, "something is said", monkeypatch, world.timeout_s):
                yield


async def test_a_stream_to_a_silent_service_ends_at_the_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing TLS handshake and missing bytes are both network_error, and both are recorded."""
    with listener() as listening:
        port = listening.getsockname()[1]
        async with spoken_to(listening, world, monkeypatch):
            silent = await refused(world, HOST, port, world.grant(HostPort(HOST, port)))
        async with spoken_to(listening, world, monkeypatch):
            mute = await refused(world, HOST, port, world.grant(HostPort(HOST, port), plain=True), tls=False)

    assert (silent.failure.details, mute.failure.details) == ({"phase": "connect"}, {"phase": "exchange"})
    ends = [row for row in world.journal.rows if isinstance(row, RequestReport)]
    assert [end.failure for end in ends] == [FailureClass.NETWORK_ERROR] * 2


async def test_a_stream_that_cannot_be_recorded_does_not_begin(world: World) -> None:
    """The failure of the record prevents the connection."""

    def fail() -> None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the disk is full")

    world.journal.on_sending = fail
    with listener() as listening:
        port = listening.getsockname()[1]
        listening.settimeout(0)
        error = await refused(world, HOST, port, world.grant(HostPort(HOST, port), plain=True), tls=False)
        with pytest.raises(BlockingIOError):
            listening.accept()

    assert error.failure.failure_class is FailureClass.INTERNAL_ERROR


async def said_by(
    world: World,
    *pieces: bytes,
    closes: bool = False,
    answers: bool = True,
    waits: pytest.MonkeyPatch | None = None,
) -> AileronError:
    """Open a stream with TLS to a service that says this in plain text and then waits or closes, and return the error.

    The service `answers` the client's first message once the client waits, or speaks first itself. If it `waits`, the deadline
    passes when all is said.
    """
    has_said = threading.Event()
    with listener() as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            taken, _address = listening.accept()
            with taken:
                taken.settimeout(10)
                if answers:
                    taken.recv(4096)
                    anyio.from_thread.run_sync(int)  # a turn of the client's loop: it has left OpenSSL, and waits
                for piece in pieces:
                    taken.sendall(piece)
                has_said.set()
                with contextlib.suppress(OSError):
                    while not closes and taken.recv(4096):
                        pass

        async with contextlib.AsyncExitStack() as stack:
            if waits is not None:
                await stack.enter_async_context(ahead_once(has_said.is_set, "all is said", waits, world.timeout_s))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            return await refused(world, HOST, port, world.grant(HostPort(HOST, port)))


@pytest.mark.parametrize(
    ("pieces", "closes", "words"),
    [
        ([b"220 mail.example ESMTP\r\n"], False, "does not use TLS on this port: it sent a greeting"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], False, "does not use TLS on this port: it answered in plain HTTP"),
        ([b"-ERR unknown command\r\n"], False, "does not use TLS on this port"),
        ([], True, "closed it when TLS started"),
        ([], False, "did not answer TLS in time: it may expect plain text"),
    ],
)
async def test_a_service_without_tls_is_reported_with_the_fix(
    world: World, pieces: list[bytes], closes: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message does not say that it took too long, and does not quote the service."""
    waits = monkeypatch if not pieces and not closes else None
    failure = (await said_by(world, *pieces, closes=closes, waits=waits)).failure

    assert failure.failure_class is FailureClass.NETWORK_ERROR
    assert failure.details == {"phase": "connect"}
    assert words in failure.message
    assert "tls=False" in failure.message
    assert "egress.private_plain" in failure.message
    assert "ESMTP" not in failure.message


async def test_a_service_that_speaks_before_tls_is_reported_whatever_the_timing(world: World) -> None:
    """Bytes that arrive between the engine's check and OpenSSL's are known to be no TLS, if not what they are."""
    for _ in range(20):
        failure = (await said_by(world, b"220 mail.example ESMTP\r\n", answers=False)).failure

        assert "the server does not use TLS on this port" in failure.message
        assert not failure.retriable


async def test_a_service_that_stalls_in_the_tls_handshake_is_reported_as_slow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the service does speak TLS, so the message does not suggest a service without TLS."""
    failure = (await said_by(world, b"\x16\x03\x03", waits=monkeypatch)).failure

    assert "did not finish the handshake in time" in failure.message
    assert "tls=False" not in failure.message
