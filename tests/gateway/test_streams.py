"""Bodies on their way: passed on at once, piece by piece, and only while both sides are there."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import NoReturn

import psutil
import pytest

from tests.gateway.conftest import DEADLINE_S, Line, Provider, ScriptedKeys, gateway, refusal

GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * 65536
ENDLESS = 4096
"""Pieces of an endless body: 256 MiB, of which all buffers between two ends of loopback hold a tenth at most."""


def in_chunk(data: bytes) -> bytes:
    """Return the data as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.slow
def test_each_of_ten_thousand_chunks_arrives_before_the_next_is_sent(provider: Provider, port: int) -> None:
    """Chunks do not wait for more data, and no two are joined."""
    with provider.asked(port, GET) as (client, upstream):
        upstream.head()
        upstream.say(STREAM)
        assert client.head().status == 200
        for number in range(10_000):
            event = b'event: ping\ndata: {"type":"ping","number":%d}\n\n' % number
            upstream.say(in_chunk(event))
            assert client.chunk() == event
        upstream.say(b"0\r\n\r\n")
        assert client.chunk() == b""


def test_each_chunk_of_a_request_arrives_before_the_next_is_sent(provider: Provider, port: int) -> None:
    """The chunks of an upload must not wait for more data either."""
    with provider.asked(port, POST) as (client, upstream):
        assert upstream.head().all(b"transfer-encoding") == [b"chunked"]
        for number in range(500):
            client.say(in_chunk(b"%d" % number))
            assert upstream.chunk() == b"%d" % number
        client.say(b"0\r\n\r\n")
        assert upstream.chunk() == b""
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert client.head().status == 200


def test_a_burst_of_chunks_is_passed_on_as_it_arrives(provider: Provider, port: int) -> None:
    """Ten thousand come in a few packets: none are joined, and a chunk split over packets is passed on in parts."""
    events = [b"data: %d\n\n" % number for number in range(10_000)]
    with provider.asked(port, GET) as (client, upstream):
        upstream.head()
        writer = threading.Thread(target=upstream.say, args=(STREAM + b"".join(map(in_chunk, events)) + b"0\r\n\r\n",))
        writer.start()
        assert client.head().status == 200
        passed = client.chunks()
        assert b"".join(passed) == b"".join(events)
        assert len(events) <= len(passed) < len(events) + 100
        writer.join()


def speak_for_ever(line: Line) -> NoReturn:
    """Send chunks until the other end hangs up."""
    while True:
        line.say(in_chunk(PIECE))


def test_no_piece_of_a_body_waits_for_a_tcp_acknowledgement(provider: Provider, port: int) -> None:
    """Both connections need this: else the kernel holds a piece back until the last is acknowledged (tcp(7), TCP_NODELAY)."""
    with provider.asked(port, GET) as (client, upstream):
        upstream.head()
        ours = [client.sock.getpeername(), upstream.sock.getpeername()]
        theirs = [client.sock.getsockname(), upstream.sock.getsockname()]
        found = {
            (connection.laddr, connection.raddr): connection.fd
            for connection in psutil.Process().net_connections("tcp4")
            if connection.status == psutil.CONN_ESTABLISHED
        }
        for end in zip(ours, theirs, strict=True):
            with socket.socket(fileno=os.dup(found[end])) as same:
                assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert client.head().status == 200


# Back-pressure


def write_until_stuck(line: Line, pieces: int, *, within_s: float) -> int:
    """Return the number of pieces that were sent before nothing more was taken, for that long."""
    line.sock.settimeout(within_s)
    for number in range(pieces):
        try:
            line.say(in_chunk(PIECE))
        except TimeoutError:
            return number
    return pieces


def test_a_client_that_reads_slowly_slows_the_provider_down(provider: Provider, port: int) -> None:
    """The gateway takes only what the client takes; a client that reads gets all of the same stream."""
    for reads in (True, False):
        with provider.asked(port, GET, receive_buffer=65536) as (client, upstream):
            upstream.head()
            upstream.say(STREAM)
            reader = threading.Thread(target=take, args=(client, ENDLESS * len(PIECE)))
            if reads:
                reader.start()
            written = write_until_stuck(upstream, ENDLESS, within_s=DEADLINE_S if reads else 1.0)
            client.reset() if not reads else reader.join()
        assert (written == ENDLESS) if reads else (written < ENDLESS // 8), written


def test_a_slow_provider_slows_the_client_down(provider: Provider, port: int) -> None:
    """The gateway takes only what the provider takes; a provider that reads gets all of the same upload."""
    for reads in (True, False):
        with provider.asked(port, POST) as (client, upstream):
            reader = threading.Thread(target=take, args=(upstream, ENDLESS * len(PIECE)))
            if reads:
                reader.start()
            written = write_until_stuck(client, ENDLESS, within_s=DEADLINE_S if reads else 1.0)
            client.reset() if not reads else reader.join()
        assert (written == ENDLESS) if reads else (written < ENDLESS // 8), written


def take(line: Line, size: int) -> None:
    """Read that many bytes and forget them."""
    with contextlib.suppress(ConnectionError):
        while size > 0 and (data := line.sock.recv(1 << 20)):
            size -= len(data)


# Going away


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_client_that_disconnects_before_the_response_ends_the_upstream_request(
    how: str, provider: Provider, port: int
) -> None:
    """The provider is silent: nobody should pay for a response that nobody reads."""
    with provider.asked(port, GET) as (client, upstream):
        upstream.head()
        client.reset() if how == "reset" else client.sock.close()
        assert upstream.is_at_end()


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_client_that_disconnects_between_two_chunks_ends_the_upstream_request(
    how: str, provider: Provider, port: int
) -> None:
    """The provider has sent one chunk and is silent."""
    with provider.asked(port, GET) as (client, upstream):
        upstream.head()
        upstream.say(STREAM + in_chunk(b"1"))
        assert (client.head().status, client.chunk()) == (200, b"1")
        client.reset() if how == "reset" else client.sock.close()
        assert upstream.is_at_end()


def test_a_client_that_disconnects_during_its_upload_ends_the_upstream_request(provider: Provider, port: int) -> None:
    """The provider must not take half of the upload for a whole request."""
    with provider.asked(port, POST + in_chunk(b"half")) as (client, upstream):
        upstream.head()
        assert upstream.chunk() == b"half"
        client.sock.close()
        assert upstream.is_at_end()


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("head", [STREAM + in_chunk(b"1"), b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1"])
def test_a_response_that_breaks_off_does_not_look_complete(
    how: str, head: bytes, provider: Provider, port: int
) -> None:
    """The client gets no last chunk, or less than the stated length, so it sees an error. Control: a whole response."""
    with Line.to(port) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            upstream.say(head)
            assert client.head().status == 200
            assert client.until(b"1")[:3] in {b"", b"1\r\n"}
            upstream.reset() if how == "reset" else upstream.sock.close()
        with pytest.raises((EOFError, ConnectionError)):
            client.until(b"0\r\n\r\n")
    with Line.to(port) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            upstream.say(STREAM + in_chunk(b"1") + b"0\r\n\r\n")
        assert client.message()[1] == b"1"


def test_a_response_without_a_length_ends_or_breaks_off_with_its_connection(provider: Provider, port: int) -> None:
    """Closing the connection is a regular end; a reset is not."""
    for how in ("closed", "reset"):
        with Line.to(port) as client:
            client.say(GET)
            with provider.answering() as upstream:
                upstream.head()
                upstream.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n1")
                head = client.head()
                assert head.all(b"transfer-encoding") == [b"chunked"]
                assert client.chunk() == b"1"
                upstream.reset() if how == "reset" else upstream.sock.close()
            if how == "closed":
                assert client.chunk() == b""
            else:
                with pytest.raises((EOFError, ConnectionError)):
                    client.chunk()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 2", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"]
)
def test_a_provider_without_a_valid_response_is_reported(said: bytes, provider: Provider, port: int) -> None:
    """The client gets a 502, which does not quote the provider."""
    with Line.to(port) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            upstream.say(said)
            upstream.sock.close()
        status, kind, message = refusal(client)
        assert (status, kind) == (502, "network_error")
        assert "SSH" not in message


def test_a_response_before_the_end_of_the_request_is_passed_on(provider: Provider, port: int) -> None:
    """A provider refuses a large upload early and closes: the client can read the response while it still writes."""
    with Line.to(port) as client:
        client.say(POST)
        writer = threading.Thread(target=write_until_refused, args=(client,))
        with provider.answering() as upstream:
            upstream.head()
            writer.start()
            assert upstream.chunk()
            upstream.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbig!")
            upstream.sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(
                ConnectionError
            ):  # to the end: a socket that is closed with something unread takes its answer back
                while upstream.sock.recv(65536):
                    pass
        writer.join()
        head, body = client.message()
        assert (head.status, body) == (413, b"big!")


def write_until_refused(client: Line) -> None:
    """Send up to 13 MB that the other end may refuse."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        for _ in range(200):
            client.say(in_chunk(PIECE))
        client.say(b"0\r\n\r\n")


def test_a_refused_client_may_finish_its_upload(provider: Provider) -> None:
    """The refusal, here by the gateway itself, must not be lost in a broken pipe."""
    with gateway(provider.settings(), ScriptedKeys(locked=True)) as port, Line.to(port) as client:
        client.say(POST)
        write_until_refused(client)
        assert refusal(client)[:2] == (423, "vault_locked")
        assert not provider.is_called()


def test_a_refused_client_that_never_stops_is_disconnected(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal waits for the end of the upload, but not for ever."""
    monkeypatch.setattr("aileron.gateway.sides.DRAIN_S", 0.3)
    with gateway(provider.settings(), ScriptedKeys(locked=True)) as port, Line.to(port) as client:
        client.say(POST)
        with pytest.raises(ConnectionError):
            speak_for_ever(client)
        with Line.to(port) as another:
            another.say(GET)
            assert refusal(another)[0] == 423


def test_a_client_that_leaves_during_a_burst_does_not_fill_the_log(
    provider: Provider, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of ten thousand chunks would be a line: nothing is written to a client that is gone."""
    with provider_in_a_burst(provider, port) as (client, upstream):
        client.reset()
        assert upstream.is_at_end()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@contextlib.contextmanager
def provider_in_a_burst(provider: Provider, port: int) -> Iterator[tuple[Line, Line]]:
    """Yield a client that has read a response's head, and the provider, which has sent ten thousand chunks of it at once."""
    with provider.asked(port, GET, receive_buffer=4096) as (client, upstream):
        upstream.head()
        upstream.say(STREAM + in_chunk(b"x") * 10_000)
        assert client.head().status == 200
        yield client, upstream


# Deadlines, shortened


def test_a_silent_provider_times_out(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence before its response is a 502; silence within it breaks the response off."""
    monkeypatch.setattr("aileron.gateway.sides.IDLE_S", 0.3)
    with gateway(provider.settings()) as port, Line.to(port) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            status, kind, message = refusal(client)
            assert (status, kind) == (502, "network_error")
            assert message == "the provider said or took nothing for 0 s"
            assert upstream.is_at_end()
        monkeypatch.setattr("aileron.gateway.sides.IDLE_S", DEADLINE_S)
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            upstream.say(STREAM)
            assert client.head().status == 200
            upstream.say(in_chunk(b"one"))
            assert client.chunk() == b"one"
            monkeypatch.setattr("aileron.gateway.sides.IDLE_S", 0.3)
            with pytest.raises((EOFError, ConnectionError)):
                one_more(upstream, client)
            assert upstream.is_at_end()


def one_more(upstream: Line, client: Line) -> list[bytes]:
    """Send another piece, and read the rest. The piece can be too late: the wait may have begun with the one before."""
    upstream.say(in_chunk(b"two"))
    return client.chunks()


def test_a_client_that_stalls_during_its_upload_times_out(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets the reason, and the connection to the provider is closed."""
    monkeypatch.setattr("aileron.gateway.sides.IDLE_S", 0.3)
    monkeypatch.setattr("aileron.gateway.sides.DRAIN_S", 0.3)
    with gateway(provider.settings()) as port, provider.asked(port, POST + in_chunk(b"half")) as (client, upstream):
        upstream.head()
        assert upstream.chunk() == b"half"
        assert refusal(client) == (502, "network_error", "the agent sent or took nothing for 0 s")
        assert upstream.is_at_end()


def test_a_client_that_does_not_read_its_response_times_out(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a client would hold a place for ever."""
    monkeypatch.setattr("aileron.gateway.sides.IDLE_S", 0.3)
    with gateway(provider.settings()) as port, provider.asked(port, GET, receive_buffer=4096) as (_client, upstream):
        upstream.head()
        upstream.say(STREAM)
        with pytest.raises(ConnectionError):
            speak_for_ever(upstream)


def test_the_number_of_concurrent_requests_is_bounded(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request above the bound is told to try again, and passes when another is over."""
    monkeypatch.setattr("aileron.gateway.proxy.MAX_IN_FLIGHT", 2)
    with gateway(provider.settings()) as port, contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(Line.to(port)) for _ in range(3))
        upstreams = []
        for client in (first, second):
            client.say(GET)
            upstreams.append(stack.enter_context(provider.answering()))
            upstreams[-1].head()
        third.say(GET)
        status, kind, message = refusal(third)
        assert (status, kind) == (429, "busy")
        assert "try again" in message

        upstreams[0].say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert first.head().status == 200
        third.say(GET)
        assert upstreams[0].head().start.startswith(b"GET")
        upstreams[0].say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert third.head().status == 200
