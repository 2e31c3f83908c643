"""Routes of the gateway: the paths that it accepts, where they go, and what it refuses itself."""

from __future__ import annotations

import base64
import json
import os
import select

import anyio
import anyio.abc
import pytest

from aileron.config import GatewaySettings, Settings, Upstream
from aileron.gateway.dial import refusal_of
from aileron.gateway.upstreams import check_method
from aileron.model.failure import AileronError
from tests.gateway.conftest import DEADLINE_S, Line, Provider, gateway, refusal, refused
from tests.support.ports import reserve_ports


def get(path: str, *fields: str, version: str = "1.1", method: str = "GET") -> bytes:
    """Return a request without a body."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: x", *fields]).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "fields", "goes_to"),
    [
        ("/v1/messages", (), "anthropic"),
        ("/v1/messages?beta=true", (), "anthropic"),
        ("/v1/messages/batches/b/results", (), "anthropic"),
        ("/v1/messages/what/nobody/knows", (), "anthropic"),
        ("/v1/chat/completions", (), "openai"),
        ("/v1/chat/completions/c/messages", (), "openai"),
        ("/v1/responses", (), "openai"),
        ("/v1/responses/r/input_items?limit=1", (), "openai"),
        ("/v1/responses", ("anthropic-version: 2023-06-01",), "openai"),
        ("/v1/models", (), "openai"),
        ("/v1/models", ("Anthropic-Version: 2023-06-01",), "anthropic"),
        ("/v1/models/claude", ("anthropic-version:",), "anthropic"),
        ("/v1/models/gpt", ("x-api-key: k",), "openai"),
    ],
)
def test_each_path_is_sent_to_its_api(path: str, fields: tuple[str, ...], goes_to: str) -> None:
    """The first part of the path decides; for /v1/models, which both APIs have, a field decides."""
    with Provider() as anthropic, Provider() as openai:
        both = {"anthropic": anthropic, "openai": openai}
        settings = Settings(gateway=GatewaySettings(Upstream(anthropic.url), Upstream(openai.url)))
        with gateway(settings) as port, Line.to(port) as client:
            client.say(get(path, *fields))
            assert both.pop(goes_to).answers(client).start == f"GET {path} HTTP/1.1".encode()
            assert [other.is_called() for other in both.values()] == [False]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/message",
        "/v1/messagesx",
        "/v1/message%73",
        "/V1/messages",
        "//v1/messages",
        "/x/../v1/messages",
        "/v1/chat",
        "/v1/embeddings",
        "/v1/models%2fx",
        "http://127.0.0.1/v1/messages",
        "*",
    ],
)
def test_an_unknown_path_is_not_passed_on(path: str, provider: Provider, port: int) -> None:
    """Sibling paths and other spellings of known paths are among the cases."""
    assert refused(port, provider, get(path))[:2] == (404, "not_found")


@pytest.mark.abuse_case("A22", "A30")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/../files",
        "/v1/messages/..",
        "/v1/messages/./x",
        "/v1/messages/%2e%2e/files",
        "/v1/messages/.%2E/files",
        "/v1/messages/x%2f..%2f..%2ffiles",
        "/v1/messages/x\\..\\..\\files",
        "/v1/messages/%5c..%5cfiles",
        "/v1/messages/..;x=1/files",
        "/v1/messages/%2e%2e%3bx/files",
        "/v1/messages/%252e%252e/files",
        "/v1/messages/x%25252f..%25252ffiles",
        "/v1/messages/#/../files",
        "/v1/messages/..%00/files",
        "/v1/messages/%00../files",
        "/v1/messages/.%09./files",
        "/v1/messages/..%20/files",
        "/v1/messages/%20../files",
        "/v1/messages/+../files",
        "/v1/messages/..%3fx/files",
        "/v1/messages/..:x/files",
        "/v1/messages/.../files",
        "/v1/messages/%c0%ae%c0%ae/files",
        "/v1/messages/%ef%bc%8e%ef%bc%8e/files",
        "/v1/messages/%e2%80%a5/files",
        "/v1/messages/x%e2%88%95files",
        "/v1/messages/%u002e%u002e/files",
        "/v1/messages/%%32e%%32e/files",
        "/v1/messages/x%/files",
        "/v1/messages/x%0d%0aHost:%20y",
        '/v1/messages/"x"',
    ],
)
def test_a_path_that_a_server_could_resolve_to_another_path_is_refused(
    path: str, provider: Provider, port: int
) -> None:
    """Some servers would resolve it to another path: only plain names are allowed. Dots within a name are fine."""
    with Line.to(port) as client:
        client.say(get(path))
        assert refusal(client)[:2] == (400, "invalid_request")
        assert not provider.is_called()
        client.say(get("/v1/models/~acme/gpt-6.1..x%2fa%20b:1@2;y=1/?q=../..%00"))
        provider.answers(client)


def test_a_request_in_an_http_version_other_than_1_1_is_refused(provider: Provider, port: int) -> None:
    """HTTP/1.0 cannot mark a response as broken, and the server cannot break off an HTTP/2 stream."""
    refusal = refused(port, provider, get("/v1/models", version="1.0"))
    assert refusal == (505, "invalid_request", "the gateway speaks HTTP/1.1, not HTTP/1.0")


@pytest.mark.abuse_case("A22")
def test_an_http_2_client_gets_an_http_1_1_response_and_is_disconnected(provider: Provider, port: int) -> None:
    """An offer to upgrade to HTTP/2 is ignored."""
    with Line.to(port) as client:
        client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        assert refusal(client)[:2] == (505, "invalid_request")
        assert client.is_at_end()
    assert not provider.is_called()

    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    with Line.to(port) as client:
        client.say(get("/v1/models", *upgrade))
        assert provider.answers(client).all(b"upgrade") == []


@pytest.mark.abuse_case("A22")
@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
def test_trace_and_connect_are_refused(method: str, provider: Provider, port: int) -> None:
    """An API that echoes a request would reveal the key, and a tunnel has no end."""
    status, kind, message = refused(port, provider, get("/v1/models", method=method))
    assert (status, kind) == (400, "invalid_request")
    assert message.startswith(f"{method} is not passed on; the methods are GET, ")


@pytest.mark.abuse_case("A30")
@pytest.mark.parametrize("method", ["TRACK", "DEBUG", "PROPFIND", "X"])
def test_an_unlisted_method_is_refused(method: str) -> None:
    """TRACK, for example, is TRACE under another name; there may be more like it."""
    with pytest.raises(AileronError, match=f"{method} is not passed on"):
        check_method(method)


@pytest.mark.abuse_case("A31")
def test_the_case_of_a_method_is_not_corrected(provider: Provider, port: int) -> None:
    """`post` is not POST (RFC 9110 section 9.1): its meaning upstream is unknown."""
    assert refused(port, provider, get("/v1/models", method="post"))[:2] == (501, "invalid_request")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_each_listed_method_is_passed_on_unchanged(method: str, provider: Provider, port: int) -> None:
    """Positive control of the tests above; HEAD has a test of its own."""
    with Line.to(port) as client:
        client.say(get("/v1/models", method=method))
        assert provider.answers(client).start == f"{method} /v1/models HTTP/1.1".encode()


@pytest.mark.abuse_case("A22")
def test_a_message_with_both_content_length_and_chunks_is_passed_on_with_chunks_only(
    provider: Provider, port: int
) -> None:
    """A length beside chunks would let an upstream that believes it find a second request in the body, on a connection that is
    shared with others. The same holds for a response.
    """
    hidden = b"GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n"
    with provider.asked(
        port,
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
    ) as (client, upstream):
        head, body = upstream.message()
        assert head.all(b"content-length") == []
        assert head.all(b"transfer-encoding") == [b"chunked"]
        assert body == hidden
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        back, answered = client.message()
        assert (back.all(b"content-length"), answered) == ([], b"ok")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/models/x?y=1"])
def test_a_websocket_is_refused_at_once(path: str, provider: Provider, port: int) -> None:
    """The status is 426, on which one agent falls back to HTTP, and the connection is closed. An offer of h3 is ignored."""
    with Line.to(port) as client:
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        )
        client.say(get(path, *upgrade, "Authorization: Bearer sk-own"))
        head, body = client.message()
        assert head.status == 426
        assert head.all(b"upgrade") == [b"HTTP/1.1"]
        assert b"upgrade" in head.all(b"connection")[0]
        assert json.loads(body)["error"]["class"] == "invalid_request"
        assert client.is_at_end()
    assert not provider.is_called()
    with Line.to(port) as client:
        client.say(get(path, "Upgrade: h3", "Connection: upgrade"))
        assert provider.answers(client).all(b"upgrade") == []


def test_an_unreachable_upstream_is_reported(provider: Provider) -> None:
    """The 502 has the reason (refused, unknown name), and says that the request can be retried."""
    (port_of_nobody,) = reserve_ports(1)
    for url, why in (
        (f"http://127.0.0.1:{port_of_nobody}", f"127.0.0.1:{port_of_nobody} was not reached: Connection refused"),
        ("https://no-such-name.invalid", "no-such-name.invalid:443 was not reached: the name is not known"),
    ):
        settings = Settings(gateway=GatewaySettings(Upstream(url), Upstream(provider.url)))
        with gateway(settings) as port, Line.to(port) as client:
            client.say(get("/v1/messages"))
            head, body = client.message()
            error = json.loads(body)["error"]
            assert (head.status, error["class"], error["message"]) == (502, "network_error", why)
            assert (error["retriable"], error["boundary"], error["details"]) == (True, "external", {"phase": "connect"})
            client.say(get("/v1/responses"))
            provider.answers(client)


def test_an_upstream_that_resets_at_once_is_reported(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reset has arrived when the gateway looks at the connection; the next connection is served."""
    connect = anyio.connect_tcp

    async def connect_and_be_reset(host: str, port: int) -> anyio.abc.SocketStream:
        stream = await connect(host, port)
        provider.answering().reset()
        gone = select.poll()
        gone.register(stream.extra(anyio.abc.SocketAttribute.raw_socket), 0)
        assert gone.poll(DEADLINE_S * 1000)
        return stream

    with gateway(provider.settings()) as port, Line.to(port) as client:
        with monkeypatch.context() as patched:
            patched.setattr(anyio, "connect_tcp", connect_and_be_reset)
            client.say(get("/v1/messages"))
            why = f"127.0.0.1:{provider.port} was not reached: the connection was reset at once"
            assert refusal(client) == (502, "network_error", why)
        client.say(get("/v1/messages"))
        provider.answers(client)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_gateway_that_is_its_own_upstream_is_reported(host: str, provider: Provider) -> None:
    """Every name of the gateway is recognized; the other upstream is served."""
    (own,) = reserve_ports(1)
    settings = Settings(gateway=GatewaySettings(Upstream(f"http://{host}:{own}"), Upstream(provider.url)))
    with gateway(settings, port=own) as port, Line.to(port) as client:
        client.say(get("/v1/messages"))
        status, kind, message = refusal(client)
        assert (status, kind) == (400, "invalid_request")
        assert "the gateway's upstream is the gateway itself" in message
        client.say(get("/v1/responses"))
        provider.answers(client)


@pytest.mark.parametrize(
    ("host", "peer", "is_refused"),
    [
        ("127.0.0.1", ("127.0.0.1", 1000), True),
        ("localhost", ("::1", 1000), True),
        ("example.com", ("::ffff:127.0.0.1", 1000), True),
        ("example.com", ("192.0.2.1", 2000), True),
        ("example.com", ("192.0.2.1", 1000), False),
        ("127.0.0.1", ("127.0.0.1", 2000), False),
        ("example.com", ("192.0.2.2", 2000), False),
        ("localhost", ("192.0.2.2", 1), True),
        ("localhost", ("::ffff:192.0.2.2", 1), True),
        ("localhost", ("::1", 1), False),
        ("example.com", ("fe80::1%eth0", 1), False),
    ],
)
def test_an_upstream_is_refused_if_it_is_the_gateway_itself_or_a_localhost_on_another_machine(
    host: str, peer: tuple[str, int], is_refused: bool
) -> None:
    """The gateway listens on 127.0.0.1:1000 and 192.0.2.1:2000."""
    ours = [("127.0.0.1", 1000), ("192.0.2.1", 2000)]

    assert (refusal_of(host, peer, ours) is not None) is is_refused
