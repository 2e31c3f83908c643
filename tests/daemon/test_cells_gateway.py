"""The gateway through the cell socket of a real daemon: the provider and the agent see the same bytes as without it.

The process of these tests is the cell's: it opened the session, and connects. Not here: which key is sent where, and which
callers are refused (test_cells.py); what the gateway does on its port (tests/gateway).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.conftest import Line, Provider
from tests.gateway.shapes import ANSWERS, REQUESTS
from tests.gateway.test_streams import STREAM, in_chunk
from tests.gateway.test_transparency import OF_THE_CONNECTION, joined, seen
from tests.support.home import daemon_home

pytestmark = pytest.mark.jail
GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def door(provider: Provider) -> Iterator[Path]:
    """Return the cell socket of a daemon in which this process has a cell, and whose vault has no key."""
    with daemon_home() as home:
        home.configure(
            f'[gateway.upstreams]\nanthropic = {{ url = "{provider.url}" }}\nopenai = {{ url = "{provider.url}" }}\n'
        )
        home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/srv/work", "pid": os.getpid(), "cell": {}})
        yield home.path / "run" / "cell.sock"


@pytest.mark.parametrize("name", REQUESTS)
def test_the_gateway_forwards_a_request_unchanged(name: str, provider: Provider, door: Path) -> None:
    """Method, target, order and duplicates of header fields (Host comes first), and every byte of the body stay."""
    (direct, body), _ = seen(provider.port, provider, REQUESTS[name], ANSWERS["whole"])
    (passed, same_body), _ = seen(door, provider, REQUESTS[name], ANSWERS["whole"])

    assert passed.start == direct.start
    assert passed.fields[0] == (b"host", f"127.0.0.1:{provider.port}".encode())
    assert passed.without(b"host") == direct.without(b"host", b"connection")
    assert joined(same_body) == joined(body)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_gateway_forwards_a_response_unchanged(name: str, provider: Provider, door: Path) -> None:
    """Status, order and duplicates of header fields, and chunk boundaries stay; the gateway adds not even a date."""
    _, (direct, body) = seen(provider.port, provider, REQUESTS["models"], ANSWERS[name])
    _, (passed, same_body) = seen(door, provider, REQUESTS["models"], ANSWERS[name])

    assert passed.status == direct.status
    assert passed.without(*OF_THE_CONNECTION) == direct.without(*OF_THE_CONNECTION)
    assert passed.all(b"transfer-encoding") == direct.all(b"transfer-encoding")
    assert same_body == body


def test_the_gateway_forwards_each_chunk_before_the_next_is_sent(provider: Provider, door: Path) -> None:
    """Streaming works in both directions: the gateway neither buffers nor joins chunks."""
    with Line.to(door) as client:
        client.say(POST)
        with provider.answering() as upstream:
            upstream.head()
            for number in range(500):
                client.say(in_chunk(b"%d" % number))
                assert upstream.chunk() == b"%d" % number
            client.say(b"0\r\n\r\n")
            assert upstream.chunk() == b""
            upstream.say(STREAM)
            assert client.head().status == 200
            for number in range(500):
                upstream.say(in_chunk(b"data: %d\n\n" % number))
                assert client.chunk() == b"data: %d\n\n" % number
            upstream.say(b"0\r\n\r\n")
            assert client.chunk() == b""


@pytest.mark.parametrize("has_begun", [False, True], ids=["silent", "in a stream"])
def test_a_client_that_disconnects_ends_the_upstream_request(provider: Provider, door: Path, has_begun: bool) -> None:
    """The request ends before its response or during it, because tokens that nobody reads still cost money."""
    with Line.to(door) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            if has_begun:
                upstream.say(STREAM)
                assert client.head().status == 200
            client.sock.close()
            assert upstream.is_at_end()


def test_an_incomplete_upstream_response_is_not_presented_as_complete(provider: Provider, door: Path) -> None:
    """The client's connection ends without the message's final chunk, as the provider's did."""
    with Line.to(door) as client:
        client.say(GET)
        with provider.answering() as upstream:
            upstream.head()
            upstream.say(STREAM + in_chunk(b"some"))
            assert client.head().status == 200
            assert client.chunk() == b"some"
        assert client.is_at_end()
