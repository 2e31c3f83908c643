"""Streams of bytes end to end: mail by smtplib in the jail to a real SMTP server, and what is refused."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports
from tests.support.upstream import Authority, Upstream
from tests.support.waiting import unread, wait_until

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron-tests/streams"
SOURCE = Path(__file__).resolve().parents[1] / "support" / "connectors" / "streams"
OPERATIONS = {
    "send_mail": ("subject:string", "lines:integer?"),
    "start_tls": (),
    "count_mail": (),
    "talk": ("text:string?", "half:boolean?", "tls:boolean?"),
    "connect": ("host:string", "port:integer", "tls:boolean?"),
    "survive": ("host:string", "port:integer"),
    "say_and_go": ("kilobytes:integer",),
    "frames_of_its_own": ("early:boolean?",),
    "many": ("count:integer",),
    "pour": ("megabytes:integer",),
}


class Mailbox:
    """Handler of an SMTP server that keeps its mail."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.hello: str | None = None

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Keep a mail; aiosmtpd calls this for each one."""
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content.decode())
        self.hello = session.host_name
        return "250 kept"


@contextlib.contextmanager
def smtp_server(mailbox: Mailbox, **tls: Any) -> Iterator[int]:
    """Run a real SMTP server on loopback, with TLS from the start (`ssl_context`), by STARTTLS (`tls_context`) or not at all.

    Yield its port.
    """
    (port,) = reserve_ports(1)  # aiosmtpd wants to know it beforehand
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, **tls)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


class Server(Upstream):
    """A server that does one thing with each connection, with TLS or without."""

    def __init__(self, behave: Callable[[ssl.SSLSocket | socket.socket], None], tls: ssl.SSLContext | None) -> None:
        super().__init__(lambda _seen: b"", tls)
        self._behave = behave

    def _converse(self, sock: socket.socket) -> None:
        sock.settimeout(10)
        self._behave(sock)


@contextlib.contextmanager
def home_for(port: int, exception: str) -> Iterator[DaemonHome]:
    """Provide a home with the connector granted localhost:`port`, and an action for each operation."""
    with daemon_home() as made:
        made.configure(f"[egress]\n{exception}\n")
        made.install(SOURCE, f"localhost:{port}")
        for op, inputs in OPERATIONS.items():
            made.add_probe_action(op, *inputs, connector=CONNECTOR)
        yield made


def allowed(port: int, authority: Authority) -> str:
    """Return the settings with which a user allows a server with TLS on their own machine."""
    return f'private = ["localhost:{port}"]\nca_file = "{authority.ca_file}"'


@contextlib.contextmanager
def reaching(
    behave: Callable[[ssl.SSLSocket | socket.socket], None], authority: Authority | None, name: str = "localhost"
) -> Iterator[tuple[DaemonHome, int]]:
    """Run a server that behaves like this, with TLS for `name` (plain without an authority). Yield a home that may reach
    it, and its port.
    """
    tls = None if authority is None else authority.server_context(name)
    with Server(behave, tls) as server, contextlib.ExitStack() as stack:
        plain = f'private_plain = ["localhost:{server.port}"]'
        exception = plain if authority is None else allowed(server.port, authority)
        yield stack.enter_context(home_for(server.port, exception)), server.port


@pytest.mark.parametrize("kind", ["tls", "plain"])
def test_mail_sent_by_smtplib_in_the_jail_arrives(kind: str, authority: Authority) -> None:
    """The supervisor speaks TLS, or plain to loopback by exception; both are in the ledger."""
    mailbox = Mailbox()
    with smtp_server(mailbox, ssl_context=authority.server_context("localhost") if kind == "tls" else None) as port:
        exception = allowed(port, authority) if kind == "tls" else f'private_plain = ["localhost:{port}"]'
        with home_for(port, exception) as home:
            answer = home.run("send-mail", {"subject": "hello from a jail", "lines": 20_000})
            assert answer.status == 200, answer.body
            rows = [event for event in home.events(answer.body["audit_id"]) if event["type"].startswith("egress.")]

    assert answer.body["result"]["refused"] == {}
    (mail,) = mailbox.mails
    assert "Subject: hello from a jail" in mail
    assert "line 19999" in mail
    assert mailbox.hello == "[127.0.0.1]"
    sending, finished = rows
    assert (sending["method"], sending["host"], sending["port"], sending["path"]) == ("TCP", "localhost", port, "")
    assert finished["bytes_up"] > len(mail) / 2
    assert finished["bytes_down"] > 0
    assert "class" not in finished


def test_a_stream_that_is_not_allowed_is_refused_with_its_reason(authority: Authority) -> None:
    """An undeclared host, a missing TLS, and a name that is not canonical each end the run; a granted stream succeeds
    beside them.
    """
    with reaching(_echo, authority) as (home, port):
        passed = home.done("connect", host="localhost", port=port)
        undeclared = home.failed("connect", host="mail.evil.example.com", port=465)
        other_port = home.failed("connect", host="localhost", port=1)
        plain = home.failed("connect", host="localhost", port=port, tls=False)
        numbers = home.failed("connect", host="127.1", port=port)

    assert passed == f"<Stream to localhost:{port}>"
    assert (undeclared["class"], undeclared["requested"]) == ("capability_denied", "network:mail.evil.example.com:465")
    assert (other_port["class"], other_port["requested"]) == ("capability_denied", "network:localhost:1")
    assert [error["details"]["reason"] for error in (undeclared, other_port, plain, numbers)] == [
        "host_not_granted", "host_not_granted", "plain_http", "url_host",
    ]  # fmt: skip


def test_a_connector_whose_manifest_does_not_declare_tcp_gets_no_stream(tmp_path: Path, authority: Authority) -> None:
    """The host is granted and the server would respond; with the import the same operation succeeds."""
    source = tmp_path / "streams"
    source.mkdir()
    (source / "connector.py").write_bytes((SOURCE / "connector.py").read_bytes())
    manifest = (SOURCE / "manifest.toml").read_text().replace('"http", "tcp"', '"http"').replace("/streams", "/without")
    (source / "manifest.toml").write_text(manifest)
    with reaching(_echo, authority) as (home, port):
        home.install(source, f"localhost:{port}")
        home.add_probe_action("talk", "half:boolean?", name="without", connector="github://aileron-tests/without")
        error = home.failed("without")
        assert home.done("connect", host="localhost", port=port)

    assert (error["class"], error["requested"]) == ("capability_denied", "function:tcp")


def test_a_tcp_stream_to_a_host_with_a_bound_credential_is_refused(tmp_path: Path, authority: Authority) -> None:
    """A service may have kept the credential, and a stream cannot be searched for it; other connectors get none either."""
    source = tmp_path / "streams"
    source.mkdir()
    (source / "connector.py").write_bytes((SOURCE / "connector.py").read_bytes())
    manifest = (SOURCE / "manifest.toml").read_text().replace("/streams", "/with")
    manifest += '\n[capabilities.credential]\nkind = "api_key"\nscope = "test"\n'
    (source / "manifest.toml").write_text(manifest)
    with reaching(_echo, authority) as (home, port):
        home.install(source, f"localhost:{port}")
        home.unlock()
        assert home.done("connect", host="localhost", port=port)
        home.bind("github://aileron-tests/with", "api_key/x/me")
        home.add_probe_action("talk", "half:boolean?", name="with", connector="github://aileron-tests/with")
        errors = [home.failed("with"), home.failed("connect", host="localhost", port=port)]

    for error in errors:
        assert (error["class"], error["details"]["reason"]) == ("capability_denied", "stream_credential")


def test_a_stream_that_names_a_credential_or_sends_bytes_before_it_is_open_fails_the_run(authority: Authority) -> None:
    """The jail is ended for a stream that names a credential, or sends bytes before it is open."""
    with reaching(_echo, authority) as (home, port):
        named = home.failed("frames_of_its_own")
        early = home.failed("frames_of_its_own", early=True)
        assert home.done("connect", host="localhost", port=port)

    assert [error["class"] for error in (named, early)] == ["connector_runtime_error"] * 2
    assert "credential" in named["message"]
    assert "before tcp_opened" in early["message"]


def test_starttls_fails_with_an_explanation(authority: Authority) -> None:
    """The library's call raises an error whose message names the alternative."""
    with (
        smtp_server(Mailbox(), tls_context=authority.server_context("localhost")) as port,
        home_for(port, f'private_plain = ["localhost:{port}"]') as home,
    ):
        error = home.failed("start_tls")

    assert error["class"] == "connector_runtime_error"
    assert "SMTP_SSL" in error["message"]


def test_imaplib_works_over_a_stream(authority: Authority) -> None:
    """The test's own small IMAP server implements the greeting, SELECT and LOGOUT."""
    with reaching(_imap, authority) as (home, _port):
        assert home.done("count_mail") == 3


def test_streams_run_concurrently_and_carry_megabytes(authority: Authority) -> None:
    """Eight run at once, each with its own bytes; another carries 8 MiB in both directions while both ends write."""
    with reaching(_echo, authority) as (home, _port):
        assert home.done("many", count=8) == [str(number) for number in reversed(range(8))]
        assert home.done("pour", megabytes=8) == 8 << 20


def test_bytes_in_flight_still_arrive_after_the_connector_has_ended(authority: Authority) -> None:
    """Bytes in flight when a process ends still arrive outside a jail too; the stream's end is no failure."""
    arrived: queue.Queue[int] = queue.Queue()

    def slowly(peer: ssl.SSLSocket | socket.socket) -> None:
        size = 0
        with contextlib.suppress(OSError):
            while data := peer.recv(4096):
                size += len(data)
        arrived.put(size)

    with reaching(slowly, authority) as (home, _port):
        answer = home.run("say-and-go", {"kilobytes": 3000})
        size = arrived.get(timeout=10)
        (end,) = [event for event in home.events(answer.body["audit_id"]) if event["type"] == "egress.finished"]

    assert (answer.body["result"], size) == ("gone", 3000 << 10)
    assert "class" not in end


def test_bytes_written_to_a_stream_arrive_at_a_service_with_a_slow_tls_handshake(authority: Authority) -> None:
    """The service sends session tickets, which nobody reads, long after the connector wrote everything and ended."""
    arrived: queue.Queue[int] = queue.Queue()
    answered = threading.Event()

    def slow_to_begin(accepted: ssl.SSLSocket | socket.socket) -> None:
        context = authority.server_context("localhost")
        with context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as peer:
            peer.setblocking(False)
            wait_until(lambda: unread(peer), "the client begins")
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.do_handshake()  # all of the server's part but the tickets
            wait_until(lambda: unread(peer) > 32 << 10, "the client has written")
            answered.wait(0.2)  # of a stream that is closed too soon, or never
            peer.settimeout(10)
            size = 0
            with contextlib.suppress(OSError):
                peer.do_handshake()
                while data := peer.recv(65536):
                    size += len(data)
        arrived.put(size)

    with Server(slow_to_begin, None) as server, home_for(server.port, allowed(server.port, authority)) as home:
        answer = home.run("say-and-go", {"kilobytes": 300})
        answered.set()
        size = arrived.get(timeout=10)

    assert (answer.body["result"], size) == ("gone", 300 << 10)


def test_one_direction_of_a_tcp_stream_can_end_before_the_other() -> None:
    """A service without TLS sees the end of the request, and still responds."""
    with reaching(_answer_at_the_end, None) as (home, _port):
        assert home.done("talk", text="abc", half=True, tls=False) == "3 bytes"


def test_a_truncated_stream_or_a_certificate_for_another_name_is_an_error(authority: Authority) -> None:
    """The stream is cut without close_notify, or the certificate is for another name. An unhandled failure keeps its class."""
    with reaching(_cut, authority) as (home, port):
        assert home.done("survive", host="localhost", port=port) == "ConnectionError"
    with reaching(_echo, authority, name="other.example.com") as (home, port):
        error = home.failed("connect", host="localhost", port=port)

    assert (error["class"], error["details"]["phase"]) == ("network_error", "connect")
    assert "certificate" in error["message"]


def _echo(peer: ssl.SSLSocket | socket.socket) -> None:
    while data := peer.recv(65536):
        peer.sendall(data)


def _cut(peer: ssl.SSLSocket | socket.socket) -> None:
    peer.sendall(b"some")
    socket.socket.shutdown(peer, socket.SHUT_RDWR)


def _answer_at_the_end(peer: ssl.SSLSocket | socket.socket) -> None:
    size = 0
    while data := peer.recv(65536):
        size += len(data)
    peer.sendall(f"{size} bytes".encode())


def _imap(peer: ssl.SSLSocket | socket.socket) -> None:
    peer.sendall(b"* PREAUTH [CAPABILITY IMAP4rev1] ready\r\n")
    for line in peer.makefile("rb"):
        tag, command = line.split()[:2]
        said = {
            b"SELECT": b"* 3 EXISTS\r\n",
            b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n",
            b"LOGOUT": b"* BYE\r\n",
        }
        peer.sendall(said.get(command, b"") + tag + b" OK done\r\n")
