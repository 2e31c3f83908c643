"""The way out of a cell, with real sockets, TLS and clients: which connections get through, and which rule stops others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import anyio
import pytest

from aileron.egress.refusal import Reason
from aileron.egress.tunnel import Admitted, Cell, Refused, relay, way_out
from aileron.egress.tunnel.hello_watch import HelloWatch
from aileron.egress.tunnel.way_out import MAX_OF_A_SESSION
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from tests.support.ports import reserve_ports
from tests.support.tunnels import DEADLINE_S, Proxy, read_answer
from tests.support.upstream import Authority, Upstream, answer
from tests.support.waiting import wait_still, wait_until, wait_until_async

HOST = "api.example.test"
OTHER = "other.example.test"
HELLO = b"hello from behind the tunnel"


@pytest.fixture
def upstream(authority: Authority) -> Iterator[Upstream]:
    """Start a server that has both names."""
    with Upstream(lambda _: answer(HELLO), authority.server_context(HOST, OTHER)) as running:
        yield running


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[Proxy]:
    """Start a proxy for a cell that lists the first name, which the person allowed to be on loopback."""
    with Proxy([f"{HOST}:{upstream.port}"], [HostPort(HOST, upstream.port)]) as running:
        running.resolver[HOST] = ["127.0.0.1"]
        running.resolver[OTHER] = ["127.0.0.1"]
        yield running


def curl(proxy: Proxy, authority: Authority, url: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Fetch a URL through the proxy with curl."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = [
        "curl",
        "-sS",
        "--max-time",
        "20",
        "--cacert",
        str(authority.ca_file),
        "-x",
        f"http://127.0.0.1:{proxy.port}",
    ]
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run([*command, *more, url], env=environment, capture_output=True, check=False, timeout=DEADLINE_S)


@contextlib.contextmanager
def tls_through(proxy: Proxy, upstream: Upstream, authority: Authority, name: str = HOST) -> Iterator[ssl.SSLSocket]:
    """Open TLS with that name, through a tunnel to the listed host."""
    context = ssl.create_default_context(cadata=authority.ca_pem)
    with proxy.connect(f"{HOST}:{upstream.port}") as (client, answered):
        assert answered.status == 200
        with context.wrap_socket(client, server_hostname=name) as tls:
            yield tls


# Through


def test_curl_gets_through_and_the_tunnel_is_recorded(proxy: Proxy, upstream: Upstream, authority: Authority) -> None:
    """The page arrives, verified for its own name; destination, bytes and duration are recorded."""
    got = curl(proxy, authority, f"https://{HOST}:{upstream.port}/page")

    assert (got.returncode, got.stdout) == (0, HELLO), got.stderr
    report = proxy.report()
    assert [str(intent.destination) for intent in proxy.journal.intents] == [f"{HOST}:{upstream.port}"]
    assert (report.address, report.reason, report.session) == ("127.0.0.1", "closed", "ses-test")
    assert report.bytes_up > 200
    assert report.bytes_down > len(HELLO)
    assert report.ms > 0
    assert upstream.requests[0].target == "/page"


def test_a_tunnel_is_recorded_before_the_host_is_connected(
    proxy: Proxy, upstream: Upstream, authority: Authority
) -> None:
    """The journal is written before any connection; if it cannot be written there is none, and the client gets an alert."""
    seen: list[int] = []
    proxy.journal.on_opened = lambda: seen.append(upstream.connections)
    assert curl(proxy, authority, f"https://{HOST}:{upstream.port}/").returncode == 0
    assert (seen, upstream.connections) == ([0], 1)

    def fail() -> None:
        raise AileronError(FailureClass.INTERNAL_ERROR, "the disk is full")

    proxy.journal.on_opened = fail
    refused = curl(proxy, authority, f"https://{HOST}:{upstream.port}/")
    assert refused.returncode == 35
    assert b"alert internal error" in refused.stderr
    assert upstream.connections == 1


def test_bytes_that_a_client_sends_with_the_head_are_not_lost(
    proxy: Proxy, upstream: Upstream, authority: Authority
) -> None:
    """The packet has a ClientHello behind the head, before the 200."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cadata=authority.ca_pem).wrap_bio(incoming, outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    head = f"CONNECT {HOST}:{upstream.port} HTTP/1.1\r\n\r\n".encode()
    with proxy.asked(head + outgoing.read()) as (client, answered):
        assert answered.status == 200
        incoming.write(client.recv(65536))
        for _ in range(10):
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(client.recv(65536))
        assert tls.version() == "TLSv1.3"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_bodies_arrive_unchanged_in_both_directions(authority: Authority, version: ssl.TLSVersion) -> None:
    """Each direction carries eight megabytes; the recorded counts are of TLS bytes."""
    size = 8 << 20
    body = os.urandom(1 << 16) * (size >> 16)
    context = authority.server_context(HOST)
    context.maximum_version = version
    with (
        Upstream(lambda seen: answer(seen.body[::-1]), context) as upstream,
        Proxy([f"{HOST}:{upstream.port}"], [HostPort(HOST, upstream.port)]) as proxy,
    ):
        proxy.resolver[HOST] = ["127.0.0.1"]
        with tls_through(proxy, upstream, authority) as tls:
            tls.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + body)
            got = bytearray()
            while len(got) < got.find(b"\r\n\r\n") + 4 + size:
                data = tls.recv(1 << 16)
                assert data
                got += data
        assert bytes(got).endswith(body[::-1])
        report = proxy.report()
        assert report.bytes_up > size
        assert report.bytes_down > size


def test_a_client_that_does_not_read_makes_the_host_wait(authority: Authority) -> None:
    """The host can send only what the kernel buffers, of 256 MiB; the rest arrives when the client reads."""
    block, count = os.urandom(1 << 20), 256
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            host, _ = listener.accept()
            with host:
                host.recv(1 << 16)  # what is unread when it closes would be a reset
                for number in range(count):
                    host.sendall(block)
                    sent.append(number)

        with Proxy([f"{HOST}:{port}"], [HostPort(HOST, port)]) as proxy, in_a_thread(serve):
            proxy.resolver[HOST] = ["127.0.0.1"]
            with proxy.connect(f"{HOST}:{port}") as (client, _):
                client.sendall(client_hello(HOST))
                wait_until(lambda: sent, "the host sends")
                held = wait_still(lambda: len(sent), "the host is stopped")
                got, size = hashlib.sha256(), 0
                while data := client.recv(1 << 20):
                    got.update(data)
                    size += len(data)
            assert 0 < held < 64
            assert size == count << 20
            assert got.digest() == hashlib.sha256(block * count).digest()
            assert proxy.report().bytes_down == count << 20


@contextlib.contextmanager
def in_a_thread(work: Callable[[], None]) -> Iterator[None]:
    """Run work in a thread, and check that it has ended when the block is over."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_closing_one_direction_of_a_tunnel_leaves_the_other_open(authority: Authority) -> None:
    """The host sees the end of the client's bytes, and answers afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Proxy([f"{HOST}:{port}"], [HostPort(HOST, port)]) as proxy:
            proxy.resolver[HOST] = ["127.0.0.1"]
            with proxy.connect(f"{HOST}:{port}") as (client, _):
                hello = client_hello(HOST)
                client.sendall(hello)
                host, _ = listener.accept()
                with host:
                    host.settimeout(DEADLINE_S)
                    client.shutdown(socket.SHUT_WR)
                    heard = b""
                    while data := host.recv(65536):
                        heard += data
                    host.sendall(b"afterwards")
                assert (heard, client.recv(100), client.recv(100)) == (hello, b"afterwards", b"")
            report = proxy.report()
            assert (report.reason, report.bytes_up, report.bytes_down) == ("closed", len(hello), 10)


@pytest.mark.parametrize("goes", ["host", "client"])
def test_the_last_bytes_of_a_closed_connection_are_delivered(goes: str) -> None:
    """They may be an early response, and must arrive even if bytes in the other direction can no longer be written."""
    last, ended = b"HTTP/1.1 413 Content Too Large\r\n\r\n", list[str]()
    client, to_client = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to_host = socket.create_connection(listener.getsockname())
        host, _ = listener.accept()
    (going, to_going), other = ((host, to_host), client) if goes == "host" else ((client, to_client), host)

    class Going(HelloWatch):
        """A watch that runs once, between the read from the other peer and the write to this one."""

        def from_client(self, data: bytes) -> None:
            going.sendall(last)
            going.close()  # with something unread: a reset
            gone = select.poll()
            gone.register(to_going, 0)
            assert gone.poll(DEADLINE_S * 1000)
            self.is_over = True

        from_host = from_client

    async def relayed() -> None:
        flow, scratch = relay.Flow(), memoryview(bytearray(relay.PIECE_BYTES))
        ended.append(await relay.relay(to_client, to_host, flow, Going(HOST), scratch))

    async def run() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(relayed)
                await anyio.wait_all_tasks_blocked()
                other.sendall(b"more")

    with client, to_client, host, to_host:
        to_going.sendall(b"unread")
        to_client.setblocking(False)
        to_host.setblocking(False)
        anyio.run(run)
        other.settimeout(DEADLINE_S)
        assert (other.recv(100), ended) == (last, [f"reset by {goes}"])


def client_hello(name: str | None) -> bytes:
    """Return the first bytes that OpenSSL sends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


# Refused before there is a tunnel

UNSENT = "nothing was looked up, and nobody heard of it"


@pytest.mark.abuse_case("CO1")
@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        ("GET http://api.example.test/ HTTP/1.1\r\nHost: api.example.test", 405, Reason.TUNNEL_METHOD),
        ("POST http://api.example.test/ HTTP/1.1\r\nContent-Length: 3", 405, Reason.TUNNEL_METHOD),
        ("CONNECT 127.0.0.1:{port} HTTP/1.1", 403, Reason.TUNNEL_ADDRESS),
        ("CONNECT [::1]:{port} HTTP/1.1", 403, Reason.TUNNEL_ADDRESS),
        ("CONNECT 169.254.169.254:80 HTTP/1.1", 403, Reason.TUNNEL_ADDRESS),
        ("CONNECT 2130706433:443 HTTP/1.1", 400, Reason.URL_HOST),
        ("CONNECT 0x7f.1:443 HTTP/1.1", 400, Reason.URL_HOST),
        ("CONNECT api.example.test HTTP/1.1", 400, Reason.URL_PORT),
        ("CONNECT api.example.test.:{port} HTTP/1.1", 400, Reason.URL_HOST),
        ("CONNECT b\u00fccher.example:443 HTTP/1.1", 400, Reason.TUNNEL_HEAD),
        ("CONNECT x@api.example.test:{port} HTTP/1.1", 400, Reason.URL_USERINFO),
        ("CONNECT other.example.test:{port} HTTP/1.1", 403, Reason.HOST_NOT_LISTED),
        ("CONNECT api.example.test:1 HTTP/1.1", 403, Reason.HOST_NOT_LISTED),
        ("CONNECT api.example.test:{port} HTTP/2", 400, Reason.TUNNEL_HEAD),
        ("CONNECT api.example.test:{port} HTTP/1.1\nHost: x", 400, Reason.TUNNEL_HEAD),
        ("CONNECT api.example.test:{port} HTTP/1.1\r\nX: a\r\n folded", 400, Reason.TUNNEL_HEAD),
        ("CONNECT  api.example.test:{port} HTTP/1.1", 400, Reason.TUNNEL_HEAD),
        ("SSH-2.0-OpenSSH_9.6", 400, Reason.TUNNEL_HEAD),
    ],
)
def test_a_connect_request_that_breaks_a_rule_is_refused(
    proxy: Proxy, upstream: Upstream, head: str, status: int, reason: Reason
) -> None:
    """The response says why, and comes before any lookup; the control is a connection with the listed host."""
    sent = head.replace("{port}", str(upstream.port)).encode() + b"\r\n\r\n"
    with proxy.asked(sent) as (client, answered):
        assert (answered.status, answered.reason) == (status, reason.value)
        assert answered.body == f"aileron: {answered.phrase}\n"
        assert client.recv(1) == b""
    assert (proxy.looked_up, upstream.connections, proxy.journal.intents) == ([], 0, []), UNSENT
    assert [found for _, found in proxy.journal.refusals] == [reason.value]

    with proxy.connect(f"{HOST.upper()}:{upstream.port}") as (_, control):
        assert control.status == 200


def test_the_refusal_of_a_tunnel_says_how_to_allow_the_host(proxy: Proxy, authority: Authority) -> None:
    """Clients differ in what they show of it: curl shows the status and, with -v, the field and the phrase."""
    got = curl(proxy, authority, "https://evil.example.net/", "-v")
    assert got.returncode == 56
    assert b"CONNECT tunnel failed, response 403" in got.stderr
    assert b"Aileron-Reason: host_not_listed" in got.stderr
    assert b"start it with --allow-host evil.example.net" in got.stderr

    plain = curl(proxy, authority, "http://evil.example.net/")
    assert b"use an https:// address" in plain.stdout


def test_python_s_http_client_gets_through_and_shows_the_reason(
    proxy: Proxy, upstream: Upstream, authority: Authority
) -> None:
    """pip is built on http.client, which speaks HTTP/1.0 here before Python 3.12."""
    program = (
        "import http.client, ssl, sys\n"
        "host, port, proxy, ca = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n"
        "made = http.client.HTTPSConnection('127.0.0.1', proxy, timeout=20, context=ssl.create_default_context(cafile=ca))\n"
        "made.set_tunnel(host, port)\n"
        "try:\n    made.request('GET', '/'); print(made.getresponse().read().decode())\n"
        "except OSError as error:\n    print(error)\n"
    )

    def said(host: str) -> str:
        arguments = [sys.executable, "-c", program, host, str(upstream.port), str(proxy.port), str(authority.ca_file)]
        return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout.strip()

    assert said(HOST) == HELLO.decode()
    assert said(OTHER).startswith("Tunnel connection failed: 403 other.example.test:")
    assert "--allow-host other.example.test" in said(OTHER)


def test_a_tunnel_to_a_name_that_does_not_resolve_gets_502(proxy: Proxy, upstream: Upstream) -> None:
    """The reason is that of egress, network_error."""
    del proxy.resolver[HOST]
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert (answered.status, answered.reason) == (502, "network_error")
    proxy.resolver[HOST] = ["127.0.0.1"]
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert answered.status == 200


@pytest.mark.abuse_case("CO4")
@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["169.254.169.254"], Reason.ADDRESS_FORBIDDEN),
        (["fd00:ec2::254"], Reason.ADDRESS_FORBIDDEN),
        (["::ffff:127.0.0.1"], Reason.ADDRESS_FORBIDDEN),
        (["10.0.0.7"], Reason.ADDRESS_NOT_PUBLIC),
        (["127.0.0.1"], Reason.ADDRESS_NOT_PUBLIC),
        (["93.184.215.14", "192.168.1.1"], Reason.ADDRESS_NOT_PUBLIC),
    ],
)
def test_an_address_that_is_not_public_is_not_dialled_for_a_listed_host(
    upstream: Upstream, addresses: list[str], reason: Reason
) -> None:
    """Listing a host is not enough: loopback needs egress.private, and metadata servers stay closed."""
    with Proxy([f"{HOST}:{upstream.port}"]) as proxy:
        proxy.resolver[HOST] = addresses
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
            assert (answered.status, answered.reason) == (403, reason.value)
        assert upstream.connections == 0
        proxy.resolver[HOST] = ["93.184.215.14"]
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, control):
            assert control.status == 200


def test_the_setting_egress_private_allows_no_other_port_of_the_same_host(upstream: Upstream) -> None:
    """Another port of the same name is on loopback too, and is not allowed there."""
    with Proxy([f"{HOST}:{upstream.port}"], [HostPort(HOST, upstream.port + 1)]) as proxy:
        proxy.resolver[HOST] = ["127.0.0.1"]
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
            assert answered.reason == Reason.ADDRESS_NOT_PUBLIC.value


@pytest.mark.abuse_case("CO4")
def test_the_daemon_s_own_port_is_never_dialled(upstream: Upstream) -> None:
    """The person's exceptions do not change that."""
    with Proxy([f"{HOST}:{upstream.port}"], [HostPort(HOST, upstream.port)], own_port=upstream.port) as proxy:
        proxy.resolver[HOST] = ["127.0.0.1"]
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
            assert answered.reason == Reason.ADDRESS_OWN.value


@pytest.mark.abuse_case("CO4")
def test_a_tunnel_connects_to_the_address_of_its_only_dns_lookup(
    proxy: Proxy, upstream: Upstream, authority: Authority
) -> None:
    """DNS rebinding: a second lookup would return another address. A forbidden first address is refused."""
    proxy.answers[HOST] = [["127.0.0.1"], ["127.0.0.2"]]
    assert curl(proxy, authority, f"https://{HOST}:{upstream.port}/").returncode == 0
    assert (proxy.looked_up, proxy.report().address) == ([HOST], "127.0.0.1")

    proxy.answers[HOST] = [["169.254.169.254"], ["127.0.0.1"]]
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert answered.reason == Reason.ADDRESS_FORBIDDEN.value


# Refused by what TLS says


@pytest.mark.abuse_case("CO2")
@pytest.mark.parametrize(
    ("first", "reason", "alert"),
    [
        (client_hello(OTHER), Reason.TUNNEL_OTHER_NAME, 112),
        (client_hello(None), Reason.TUNNEL_NO_NAME, 112),
        (b"GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n", Reason.TUNNEL_NO_TLS, None),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Reason.TUNNEL_NO_TLS, None),
    ],
)
def test_a_tunnel_whose_first_tls_message_does_not_name_the_listed_host_is_closed(
    proxy: Proxy, upstream: Upstream, authority: Authority, first: bytes, reason: Reason, alert: int | None
) -> None:
    """The tunnel is closed after the 200, with an alert if TLS was spoken. Both names lead to one server here."""
    with proxy.connect(f"{HOST}:{upstream.port}") as (client, answered):
        assert answered.status == 200
        client.sendall(first)
        said = b""
        while data := client.recv(100):
            said += data
    assert said == (b"" if alert is None else bytes((21, 3, 3, 0, 2, 2, alert)))
    assert (upstream.connections, proxy.journal.intents) == (0, [])
    assert proxy.journal.refusals == [(f"{HOST}:{upstream.port}", reason.value)]

    with tls_through(proxy, upstream, authority) as tls:
        assert tls.version() is not None
    assert upstream.connections == 1


@pytest.mark.abuse_case("CO2")
def test_curl_reports_an_error_if_the_tls_name_is_not_the_requested_host(
    proxy: Proxy, upstream: Upstream, authority: Authority
) -> None:
    """`--connect-to` asks the proxy for the listed host and names the other one in TLS."""
    to = ("--connect-to", f"{OTHER}:{upstream.port}:{HOST}:{upstream.port}")
    refused = curl(proxy, authority, f"https://{OTHER}:{upstream.port}/", *to)

    assert refused.returncode == 35
    assert b"unrecognized name" in refused.stderr
    assert upstream.connections == 0


@pytest.mark.abuse_case("CO3")
@pytest.mark.parametrize("also", [b"", b"\x14\x03\x03\x00\x01\x01"], ids=["alone", "with a change of ciphers"])
def test_a_second_client_hello_must_name_the_same_host(authority: Authority, also: bytes) -> None:
    """The server asks for another hello, alone or in one write with what OpenSSL sends after it.

    The same name passes; a hello with another name does not reach the server.
    """
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    message = b"\x03\x03" + retry + b"\x00\x13\x01\x00\x00\x06\x00\x2b\x00\x02\x03\x04"
    asks_again = (
        b"\x16\x03\x03" + (len(message) + 4).to_bytes(2, "big") + b"\x02" + len(message).to_bytes(3, "big") + message
    ) + also
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Proxy([f"{HOST}:{port}"], [HostPort(HOST, port)]) as proxy:
            proxy.resolver[HOST] = ["127.0.0.1"]
            for name, is_heard in ((HOST, True), (OTHER, False)):
                with proxy.connect(f"{HOST}:{port}") as (client, _):
                    client.sendall(client_hello(HOST))
                    host, _ = listener.accept()
                    with host:
                        host.settimeout(DEADLINE_S)
                        first = host.recv(65536)
                        assert first == client_hello_like(first)
                        host.sendall(asks_again)
                        assert client.recv(65536) == asks_again
                        second = client_hello(name)
                        client.sendall(b"\x14\x03\x03\x00\x01\x01" + second)
                        heard = host.recv(65536)
                        assert (second in heard) is is_heard
            assert proxy.report().reason == Reason.TUNNEL_OTHER_NAME.value


def client_hello_like(data: bytes) -> bytes:
    """Return the data if it is one whole handshake record."""
    assert data[0] == 22
    assert int.from_bytes(data[3:5], "big") == len(data) - 5
    return data


# Ends, floods, and who does not play along


@pytest.mark.abuse_case("CO6")
def test_the_end_of_a_session_ends_its_tunnels(proxy: Proxy, upstream: Upstream, authority: Authority) -> None:
    """The tunnel ends at once, and the record has that reason."""
    with tls_through(proxy, upstream, authority) as tls:
        wait_until(lambda: upstream.connections, "the tunnel is there")
        proxy.end_session()
        with contextlib.suppress(ssl.SSLError, OSError):
            assert tls.recv(1) == b""
    assert proxy.report().reason == "session ended"


def test_a_client_that_vanishes_leaves_no_tunnel_behind(proxy: Proxy, upstream: Upstream, authority: Authority) -> None:
    """The client may leave at any step: no task may be left waiting for it."""
    with proxy.connected() as client:
        client.sendall(b"CONNECT api.exa")
    with proxy.connect(f"{HOST}:{upstream.port}"):
        pass
    with proxy.connect(f"{HOST}:{upstream.port}") as (client, _):
        client.sendall(client_hello(HOST)[:100])
    with tls_through(proxy, upstream, authority) as tls:
        tls.sendall(b"GET / HTTP/1.1\r\n")
        tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    wait_until(lambda: not proxy.carrying, "nothing is left", seen=lambda: proxy.carrying)
    assert proxy.report().reason in ("reset by client", "closed")
    assert not proxy.way.sessions


@pytest.mark.abuse_case("CO8")
@pytest.mark.parametrize("begun", [b"CONNECT api.exam", b""], ids=["half", "nothing"])
def test_a_client_that_does_not_finish_its_request_head_gets_408(
    proxy: Proxy, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow client may take ten seconds, here fewer, before it is told why."""
    monkeypatch.setattr(way_out, "HEAD_S", 0.2)
    with proxy.asked(begun) as (_, answered):
        assert (answered.status, answered.reason) == (408, Reason.TUNNEL_SLOW.value)


@pytest.mark.abuse_case("CO8")
def test_a_client_that_does_not_finish_its_client_hello_is_disconnected(
    proxy: Proxy, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the hello has arrived when the timeout begins; the rest never comes."""
    monkeypatch.setattr(way_out, "HELLO_S", 0.2)
    head = f"CONNECT {HOST}:{upstream.port} HTTP/1.1\r\nHost: {HOST}:{upstream.port}\r\n\r\n".encode()
    with proxy.asked(head + client_hello(HOST)[:-1]) as (client, answered):
        assert answered.status == 200
        assert client.recv(100) == bytes((21, 3, 3, 0, 2, 2, 112))
    assert proxy.journal.refusals == [(f"{HOST}:{upstream.port}", Reason.TUNNEL_SLOW.value)]
    assert upstream.connections == 0


@pytest.mark.abuse_case("CO8")
def test_a_tunnel_to_a_host_that_never_answers_ends_as_idle(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host accepts the connection and sends nothing."""
    monkeypatch.setattr(relay, "IDLE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Proxy([f"{HOST}:{port}"], [HostPort(HOST, port)]) as proxy:
            proxy.resolver[HOST] = ["127.0.0.1"]
            with proxy.connect(f"{HOST}:{port}") as (client, _):
                client.sendall(client_hello(HOST))
                assert client.recv(1) == b""
            assert proxy.report().reason == "idle"


def test_a_refused_connection_to_the_host_gives_the_client_a_tls_alert(authority: Authority) -> None:
    """The name resolves, but no process listens on the port."""
    (port,) = reserve_ports(1)
    with Proxy([f"{HOST}:{port}"], [HostPort(HOST, port)]) as proxy:
        proxy.resolver[HOST] = ["127.0.0.1"]
        refused = curl(proxy, authority, f"https://{HOST}:{port}/")
        assert refused.returncode == 35
        assert b"alert internal error" in refused.stderr
        report = proxy.report()
        assert (report.reason, report.address, report.bytes_up) == ("unreachable", None, 0)


@pytest.mark.abuse_case("CO8")
def test_a_connection_above_the_limit_of_a_session_gets_503(proxy: Proxy, upstream: Upstream) -> None:
    """A new connection is accepted when another one has closed."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(proxy.connected()) for _ in range(MAX_OF_A_SESSION)]
        wait_until(lambda: proxy.carrying == MAX_OF_A_SESSION, "all are there", seen=lambda: proxy.carrying)
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
            assert (answered.status, answered.reason) == (503, Reason.TUNNEL_LIMIT.value)
        held[0].close()
        wait_until(lambda: proxy.carrying < MAX_OF_A_SESSION, "one has gone")
        with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
            assert answered.status == 200


@pytest.mark.abuse_case("CO7")
def test_a_session_cannot_open_more_tunnels_a_minute_than_its_limit(
    proxy: Proxy, upstream: Upstream, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tunnel adds two rows to the ledger, so the rate must be bounded."""
    monkeypatch.setattr(way_out, "OPENED_A_MINUTE", 2)
    for _ in range(2):
        with tls_through(proxy, upstream, authority):
            pass
    proxy.report()
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert (answered.status, answered.reason) == (503, Reason.TUNNEL_LIMIT.value)


# Asking a person


class Asking:
    """A policy that waits until the test decides."""

    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0
        self.decision: Admitted | Refused | AileronError | None = None

    async def admit(self, cell: Cell, destination: HostPort) -> Admitted | Refused:
        """Wait for the test's decision, and return or raise it."""
        self.asked += 1
        try:
            await wait_until_async(lambda: self.decision is not None, "the test decides")
        except BaseException:
            self.cancelled += 1
            raise
        assert self.decision is not None
        if isinstance(self.decision, AileronError):
            raise self.decision
        return self.decision


@pytest.fixture
def asking(upstream: Upstream) -> Iterator[tuple[Asking, Proxy]]:
    """Start a proxy whose policy waits for a person."""
    policy = Asking()
    with Proxy([], [HostPort(HOST, upstream.port)], policy=policy) as proxy:
        proxy.resolver[HOST] = ["127.0.0.1"]
        yield policy, proxy


def test_a_client_waits_until_a_person_decides(
    asking: tuple[Asking, Proxy], upstream: Upstream, authority: Authority
) -> None:
    """The name is looked up only afterwards. The tunnel opens if it is allowed; else the response has the policy's reason."""
    policy, proxy = asking
    with proxy.connected() as client:
        client.sendall(f"CONNECT {HOST}:{upstream.port} HTTP/1.1\r\n\r\n".encode())
        wait_until(lambda: policy.asked, "the policy is asked")
        assert proxy.looked_up == []
        policy.decision = Admitted()
        assert read_answer(client).status == 200
    policy.decision = Refused(Reason.HOST_DENIED, "the person said no")
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert (answered.status, answered.reason, answered.phrase) == (403, "host_denied", "the person said no")
    policy.decision = AileronError(FailureClass.INTERNAL_ERROR, "the ledger cannot be written")
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert (answered.status, answered.reason) == (500, "internal_error")


@pytest.mark.abuse_case("CO9")
def test_the_question_for_a_client_that_has_gone_is_withdrawn(asking: tuple[Asking, Proxy], upstream: Upstream) -> None:
    """The question is withdrawn when the client is gone, and when the session is over."""
    policy, proxy = asking
    head = f"CONNECT {HOST}:{upstream.port} HTTP/1.1\r\n\r\n".encode()
    with proxy.connected() as client:
        client.sendall(head)
        wait_until(lambda: policy.asked == 1, "the policy is asked")
    wait_until(lambda: policy.cancelled == 1, "the question is withdrawn")
    with proxy.connected() as client:
        client.sendall(head)
        wait_until(lambda: policy.asked == 2, "the policy is asked")
        proxy.end_session()
        wait_until(lambda: policy.cancelled == 2, "the question is withdrawn")
        assert client.recv(1) == b""


def test_a_client_s_wait_for_a_person_s_decision_is_bounded(
    asking: tuple[Asking, Proxy], upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a decision gets 504."""
    monkeypatch.setattr(way_out, "ADMIT_S", 0.2)
    _, proxy = asking
    with proxy.connect(f"{HOST}:{upstream.port}") as (_, answered):
        assert (answered.status, answered.reason) == (504, Reason.HOST_UNANSWERED.value)
