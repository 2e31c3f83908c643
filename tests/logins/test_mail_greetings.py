"""A library's bytes before its own login, and a service's before ours: any bytes, cut anywhere."""

from __future__ import annotations

import base64
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.logins.login_messages import LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login
from aileron.logins.protocols import sasl
from aileron.logins.protocols.imap import ImapFilter, ImapLogin
from aileron.logins.protocols.pop3 import Pop3Filter, Pop3Login
from aileron.logins.protocols.smtp import SmtpLogin
from aileron.logins.side import Side
from aileron.model.login import LoginDetails, LoginTarget

MAKES: dict[str, type[Login]] = {"smtp": SmtpLogin, "imap": ImapLogin, "pop3": Pop3Login}
PLACEHOLDER = b"the-library-s-own-password"
SECRET = b"the-password-of-mira"
ENCODED = base64.b64encode(b"\0x\0" + PLACEHOLDER)
LIBRARY = {
    "imap": [
        b"a CAPABILITY\r\n",
        b"b LOGIN x " + PLACEHOLDER + b"\r\n",
        b"c LOGIN {1}\r\nx {26+}\r\n" + PLACEHOLDER + b"\r\n",
        b"d AUTHENTICATE PLAIN\r\n" + ENCODED + b"\r\n",
        b"e AUTHENTICATE PLAIN " + ENCODED + b"\r\n",
        b"f AUTHENTICATE LOGIN\r\neA==\r\n" + ENCODED + b"\r\n",
        b"g AUTHENTICATE CRAM-MD5\r\n",
        b"h AUTHENTICATE PLAIN\r\n*\r\n",
        b"i SELECT INBOX\r\n",
        b"j STARTTLS\r\n",
        b"k LOGOUT\r\n",
        b"\r\n",
        b"no tag here",
    ],
    "pop3": [
        b"CAPA\r\n",
        b"USER x\r\n",
        b"PASS " + PLACEHOLDER + b"\r\n",
        b"APOP x " + PLACEHOLDER + b"\r\n",
        b"AUTH\r\n",
        b"AUTH PLAIN " + ENCODED + b"\r\n",
        b"AUTH LOGIN\r\neA==\r\n" + ENCODED + b"\r\n",
        b"AUTH CRAM-MD5\r\n",
        b"AUTH PLAIN\r\n*\r\n",
        b"STAT\r\n",
        b"STLS\r\n",
        b"QUIT\r\n",
        b"\r\n",
    ],
}
SERVICE = {
    "smtp": [
        b"220 hi\r\n",
        b"250-x\r\n",
        b"250 AUTH PLAIN LOGIN\r\n",
        b"334 \r\n",
        b"334 VXNlcm5hbWU6\r\n",
        b"235 ok\r\n",
    ],
    "imap": [
        b"* OK hi\r\n",
        b"* CAPABILITY IMAP4rev1 AUTH=LOGIN\r\n",
        b"a1 OK\r\n",
        b"a2 OK\r\n",
        b"+ \r\n",
        b"* X {2}\r\nab\r\n",
    ],
    "pop3": [b"+OK hi\r\n", b"-ERR\r\n", b"SASL SCRAM-SHA-256\r\n", b".\r\n", b"+ \r\n", b"+ cj0x\r\n"],
}


def _order(protocol: str) -> Order:
    return Order(
        target=LoginTarget.parse(f"{protocol}+plain://localhost:1"),
        credential="password",
        username="mira",
        secret=SECRET,
        details=LoginDetails(),
        command=None,
        login_s=60.0,
        stream_s=60.0,
    )


@contextlib.contextmanager
def _pair(says: list[bytes]) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield our end and theirs, which sends these pieces and then no more."""
    ours, theirs = socket.socketpair()

    def say() -> None:
        with contextlib.suppress(OSError):
            for piece in says:
                theirs.sendall(piece)
            theirs.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=say, daemon=True)
    with ours, theirs:
        thread.start()
        yield ours, theirs
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _read_all(sock: socket.socket) -> bytes:
    got = b""
    while piece := sock.recv(65536):
        got += piece
    return got


def _greeted(protocol: str, pieces: list[bytes]) -> tuple[Filter | Problem, bytes, bytes, bytes]:
    """Return the outcome, the bytes that reached the library and the service, and the library's unread bytes."""
    with _pair(pieces) as (near_client, library), _pair([]) as (near_server, service):
        until = time.monotonic() + 60
        client, server = Side(near_client, until, "the connector"), Side(near_server, until, "the service")
        came: Filter | Problem
        try:
            came = MAKES[protocol](_order(protocol)).greet(client, server)
        except LoginError as error:
            came = error.problem
        left = client.take_waiting() + _read_all(near_client) if isinstance(came, Filter) else b""
        near_client.shutdown(socket.SHUT_WR)
        near_server.shutdown(socket.SHUT_WR)
        return came, _read_all(library), _read_all(service), left


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.abuse_case("LM7")
@pytest.mark.parametrize("protocol", list(LIBRARY))
@given(data=st.data(), cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_splits_of_a_library_s_bytes_do_not_change_the_answers(
    protocol: str, data: st.DataObject, cuts: list[int]
) -> None:
    """The service gets no part of the library's own login; bytes sent ahead stay to be read."""
    text = b"".join(data.draw(st.lists(st.sampled_from(LIBRARY[protocol]) | st.binary(max_size=20), max_size=8)))
    came, said, at_server, left = _greeted(protocol, [text])
    again, said_again, at_server_again, left_again = _greeted(protocol, _cut(text, cuts))
    assert (said, at_server, left) == (said_again, at_server_again, left_again)
    assert type(came) is type(again)
    assert PLACEHOLDER not in at_server
    assert ENCODED not in at_server
    if isinstance(came, Filter):
        assert text.endswith(left)


@pytest.mark.parametrize(
    ("protocol", "library", "kind"),
    [
        ("imap", b"a LOGIN {1}\r\nx {2+}\r\nyy\r\nb NOOP\r\n", ImapFilter),
        ("imap", b'a login "x y" "\\""\r\nb NOOP\r\n', ImapFilter),
        ("imap", b"a AUTHENTICATE xoauth2 abc=\r\nb NOOP\r\n", ImapFilter),
        ("pop3", b"USER x\r\nPASS y z\r\nb NOOP\r\n", Pop3Filter),
        ("pop3", b"APOP x y\r\nb NOOP\r\n", Pop3Filter),
        ("pop3", b"AUTH LOGIN\r\neA==\r\neA==\r\nb NOOP\r\n", Pop3Filter),
    ],
)
def test_a_mail_library_can_log_in_by_each_command_of_its_protocol(
    protocol: str, library: bytes, kind: type[Filter]
) -> None:
    """Bytes that the library sent right behind its login stay to be read."""
    came, _said, at_server, left = _greeted(protocol, [library])
    assert isinstance(came, kind)
    assert (at_server, left) == (b"", b"b NOOP\r\n")


@pytest.mark.parametrize(("protocol", "library"), [("imap", b"a LOGOUT\r\n"), ("pop3", b"QUIT\r\n")])
def test_a_mail_library_may_end_the_stream_without_a_login_of_its_own(protocol: str, library: bytes) -> None:
    """The library's LOGOUT or QUIT reaches the service, which says goodbye itself."""
    came, _said, at_server, _left = _greeted(protocol, [library])
    assert isinstance(came, Filter)
    assert at_server == library


@pytest.mark.abuse_case("LM11")
@pytest.mark.parametrize("protocol", list(MAKES))
@given(data=st.data(), cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_any_bytes_of_a_service_raise_only_login_errors(protocol: str, data: st.DataObject, cuts: list[int]) -> None:
    """The message has no secret, and does not depend on how the bytes are cut."""
    parts = data.draw(st.lists(st.sampled_from(SERVICE[protocol]) | st.binary(max_size=20), max_size=8))

    def came_of(pieces: list[bytes]) -> tuple[Problem | None, str]:
        with _pair(pieces) as (near, _service):
            try:
                MAKES[protocol](_order(protocol)).log_in(Side(near, time.monotonic() + 60, "the service"))
            except LoginError as error:
                return error.problem, str(error) + error.said
            return None, ""

    whole = came_of([b"".join(parts)])
    assert whole == came_of(_cut(b"".join(parts), cuts))
    assert SECRET.decode() not in whole[1]


@pytest.mark.abuse_case("LM4")
@pytest.mark.parametrize("kind", ["password", "token"])
def test_no_mechanism_reveals_the_secret_on_a_connection_without_tls(kind: Literal["password", "token"]) -> None:
    """The exceptions are a connection that the user allowed, and SCRAM, which shows no secret."""
    credential = sasl.Credential(kind, "mira", SECRET.decode())
    shown = ["PLAIN", "LOGIN"] if kind == "password" else ["XOAUTH2", "OAUTHBEARER"]
    with _pair([]) as (near, _service):
        server = Side(near, time.monotonic() + 60, "the service")
        assert sasl.choose(credential, shown, server, is_plain=False) is None
        for name in shown:
            allowed = sasl.choose(credential, [name], server, is_plain=True)
            assert allowed is not None
            assert allowed.name == name
        scram = sasl.choose(credential, ["SCRAM-SHA-256", *shown], server, is_plain=False)
        assert (scram is None) is (kind == "token")
