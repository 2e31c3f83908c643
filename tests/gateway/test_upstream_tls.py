"""The provider's identity, and the end of its responses, over TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from aileron.config import GatewaySettings, Settings, Upstream
from tests.gateway.conftest import KEY, TOKEN, Line, Provider, gateway, refusal
from tests.support.upstream import Authority

GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
HOST = "localhost"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return an authority of the test's own."""
    return Authority(tmp_path)


def settings_of(provider: Provider, ca_pem: str | None, secret: str | None = None) -> Settings:
    """Return settings in which both APIs are at this port of localhost, over TLS."""
    upstream = Upstream(f"https://{HOST}:{provider.port}", secret)
    return Settings(egress_ca_pem=ca_pem, gateway=GatewaySettings(upstream, upstream))


def answering(provider: Provider, context: ssl.SSLContext) -> Line:
    """Accept the next connection, with TLS."""
    raw = provider.answering().sock
    return Line(context.wrap_socket(raw, server_side=True, suppress_ragged_eofs=False))


def test_a_provider_is_verified_by_its_certificate(provider: Provider, authority: Authority) -> None:
    """A provider that egress.ca_file vouches for gets the key; one with an unknown authority or another name gets nothing."""
    cases = [
        (authority.server_context(HOST), authority.ca_pem, None),
        (authority.server_context(HOST), None, "unable to get local issuer certificate"),
        (authority.server_context("example.com"), authority.ca_pem, "Hostname mismatch"),
    ]
    for context, ca_pem, problem in cases:
        with gateway(settings_of(provider, ca_pem, "gpt")) as port, Line.to(port) as client:
            client.say(GET.replace(b"Host: x", f"Host: x\r\nx-api-key: {TOKEN}".encode()))
            if problem is None:
                with answering(provider, context) as upstream:
                    head = upstream.head()
                    assert head.all(b"authorization") == [b"Bearer " + KEY]
                    assert head.all(b"host") == [f"{HOST}:{provider.port}".encode()]
                    upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    assert client.message()[1] == b"ok"
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    answering(provider, context).head()
                status, kind, message = refusal(client)
                assert (status, kind) == (502, "network_error")
                assert "its certificate is not trusted" in message
                assert problem in message
                assert "egress.ca_file" in message


def test_a_provider_that_speaks_no_tls_is_reported(provider: Provider, authority: Authority) -> None:
    """The client gets a 502 that says that TLS failed."""
    with gateway(settings_of(provider, authority.ca_pem)) as port, provider.asked(port, GET) as (client, upstream):
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert refusal(client) == (502, "network_error", f"{HOST}:{provider.port} was not reached: TLS failed")


def test_a_response_that_ends_without_close_notify_does_not_look_complete(
    provider: Provider, authority: Authority
) -> None:
    """A response without a length ends with close_notify. Anyone on the network could close the connection."""
    context = authority.server_context(HOST)
    for is_cut in (True, False):
        with gateway(settings_of(provider, authority.ca_pem)) as port, Line.to(port) as client:
            client.say(GET)
            upstream = answering(provider, context)
            upstream.head()
            upstream.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf")
            assert client.head().status == 200
            assert client.chunk() == b"half"
            if is_cut:
                raw = socket.socket(fileno=upstream.sock.detach())
                raw.close()
                with pytest.raises((EOFError, ConnectionError)):
                    client.chunk()
            else:
                assert isinstance(upstream.sock, ssl.SSLSocket)
                with upstream:
                    upstream.sock.settimeout(20)
                    _say_goodbye(upstream.sock)
                    assert client.chunk() == b""


def _say_goodbye(sock: ssl.SSLSocket) -> None:
    """Send close_notify; the peer may answer or not."""
    with contextlib.suppress(OSError):
        sock.unwrap()


def test_an_idle_connection_is_reused_over_tls(provider: Provider, authority: Authority) -> None:
    """TLS 1.3 sends session tickets after its handshake; they must not count as an unrequested response."""
    context = authority.server_context(HOST)
    with gateway(settings_of(provider, authority.ca_pem)) as port, Line.to(port) as client:
        client.say(GET)
        with answering(provider, context) as upstream:
            for _ in range(3):
                upstream.head()
                upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                assert client.message()[1] == b"ok"
                client.say(GET)
            assert not provider.is_called()
            upstream.head()
