"""HTTP over a Unix socket, one request at a time: what is sent, which responses are accepted, and bounds for hostile ones."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import termios
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aileron.client import AnswerLost, Client, DaemonUnreachable
from aileron.unix_http import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    UnixExchange,
    UnreadableResponse,
    request_bytes,
)
from tests.support.waiting import wait_until

DEADLINE_S = 10.0
OK = b"HTTP/1.1 200 OK\r\n"
REQUEST = request_bytes("GET", "/x", None, {})

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(folder: Path, talk: Talk) -> Iterator[str]:
    """Listen on a socket, read the request's head and then call `talk` with the connection. Yield the path."""
    path = str(folder / "run" / "agent.sock")
    Path(path).parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(DEADLINE_S)

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                connection.settimeout(DEADLINE_S)
                seen = b""
                while b"\r\n\r\n" not in seen:
                    seen += connection.recv(1 << 10)
                talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        thread.join(DEADLINE_S)


def said(*pieces: bytes) -> Talk:
    """Return a talk that sends each piece by itself and then closes."""

    def talk(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
            wait_until(lambda: fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)) == bytes(4), "it is read")

    return talk


def ask(path: str, timeout_s: float = DEADLINE_S, request: bytes = REQUEST) -> tuple[int, bytes]:
    """Make one exchange and return the status and the body."""
    exchange = UnixExchange(path, timeout_s, request)
    try:
        exchange.connect()
        return exchange.response()
    finally:
        exchange.close()


# Accepted responses


@pytest.mark.parametrize(
    ("response", "taken"),
    [
        (OK + b"Content-Length: 2\r\n\r\n{}", (200, b"{}")),
        (b"HTTP/1.1 423 \r\ncontent-length:2\r\ndate: now\r\nserver: hypercorn-h11\r\n\r\n{}", (423, b"{}")),
        (OK + b"CONTENT-LENGTH: \t0 \r\nX: \xfc\r\nX: 2\r\n\r\n", (200, b"")),
        (b"HTTP/1.1 599 It did not work\r\nContent-Length: 007\r\n\r\n1234567", (599, b"1234567")),
    ],
)
def test_a_response_is_parsed_into_status_and_body(tmp_path: Path, response: bytes, taken: tuple[int, bytes]) -> None:
    """The bytes may arrive in one piece or one by one."""
    for number, pieces in enumerate(([response], [response[at : at + 1] for at in range(len(response))])):
        folder = tmp_path / str(number)
        folder.mkdir()
        with listening(folder, said(*pieces)) as path:
            assert ask(path) == taken


def test_a_long_body_is_read_whole(tmp_path: Path) -> None:
    """The body is larger than any buffer of the kernel."""
    body = os.urandom(3 << 20)
    with listening(tmp_path, said(OK + b"Content-Length: %d\r\n\r\n" % len(body), body)) as path:
        assert ask(path) == (200, body)


# Refused responses


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not a response of HTTP/1.1"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not a response of HTTP/1.1"),
        (b"HTTP/1.1 200 \x1b[2J\r\nContent-Length: 0\r\n\r\n", "not a response of HTTP/1.1"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "not the status"),
        (b"HTTP/1.1 20\xb2 OK\r\nContent-Length: 0\r\n\r\n", "not the status"),
        (b"HTTP/1.1 0200 OK\r\nContent-Length: 0\r\n\r\n", "not the status"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "not the status"),
        (b"HTTP/1.1 101 Switching\r\nContent-Length: 0\r\n\r\n", "not the status"),
        (b"HTTP/1.1 700 OK\r\nContent-Length: 0\r\n\r\n", "not the status"),
        (OK + b"\r\n", "no Content-Length"),
        (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "2 Content-Length"),
        (OK + b"Content-Length: 2, 2\r\n\r\n{}", "not a Content-Length"),
        (OK + b"Content-Length: -2\r\n\r\n", "not a Content-Length"),
        (OK + b"Content-Length: +2\r\n\r\n{}", "not a Content-Length"),
        (OK + b"Content-Length: 0x2\r\n\r\n{}", "not a Content-Length"),
        (OK + b"Content-Length: 1_0\r\n\r\n", "not a Content-Length"),
        (OK + b"Content-Length:\r\n\r\n", "not a Content-Length"),
        (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "not a Content-Length"),
        (OK + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), "more than 64 MiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding"),
        (OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "Transfer-Encoding"),
        (OK + b"Content-Length: 2\r\n\r\n{}{}", "more bytes than"),
        (OK + b"Content-Length : 2\r\n\r\n{}", "not a header"),
        (OK + b": 2\r\n\r\n", "not a header"),
        (OK + b"X: 1\r\n folded\r\nContent-Length: 0\r\n\r\n", "not a header"),
        (OK + b"X: 1\nContent-Length: 2\r\n\r\n{}", "not a header"),
        (OK + b"X: 1\rContent-Length: 2\r\n\r\n{}", "not a header"),
        (OK + b"X: \0\r\nContent-Length: 2\r\n\r\n{}", "not a header"),
        (OK + b"nothing\r\nContent-Length: 2\r\n\r\n{}", "not a header"),
    ],
)
def test_a_malformed_response_is_refused(tmp_path: Path, response: bytes, why: str) -> None:
    """Aileron's daemon never sends such a response, in which, for example, the length is ambiguous."""
    with listening(tmp_path, said(response)) as path, pytest.raises(UnreadableResponse, match=why):
        ask(path)


def test_response_headers_without_an_end_are_read_up_to_a_limit(tmp_path: Path) -> None:
    """The server sends header lines forever."""
    sent: list[int] = []

    def talk(connection: socket.socket) -> None:
        connection.sendall(OK)
        while True:
            sent.append(connection.send(b"X: 1\r\n" * 100))

    with listening(tmp_path, talk) as path, pytest.raises(UnreadableResponse, match=f"{MAX_HEAD_BYTES} bytes"):
        ask(path)
    assert sent


@pytest.mark.parametrize(
    ("response", "when"),
    [
        (b"", "before its response"),
        (OK + b"Content-Le", "before its response"),
        (OK + b"Content-Length: 3\r\n\r\n{}", "in the middle of its response"),
    ],
)
def test_an_incomplete_response_is_an_error(tmp_path: Path, response: bytes, when: str) -> None:
    """The part that arrived is not returned."""
    with listening(tmp_path, said(response)) as path, pytest.raises(ConnectionResetError, match=when):
        ask(path)


def test_a_declared_length_allocates_no_memory_in_advance(tmp_path: Path) -> None:
    """Otherwise one header line would take 64 MiB."""
    with listening(tmp_path, said(OK + b"Content-Length: %d\r\n\r\n" % MAX_BODY_BYTES)) as path:
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionResetError):
                ask(path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


# Time


def test_a_slow_response_does_not_extend_the_deadline(tmp_path: Path) -> None:
    """A single deadline covers the whole exchange."""
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: 1000\r\n\r\n")
        while not over.wait(0.05):
            connection.sendall(b" ")

    with listening(tmp_path, drip) as path:
        with pytest.raises(TimeoutError, match="timed out"):
            ask(path, 0.5)
        over.set()


def test_a_peer_that_reads_nothing_does_not_extend_the_deadline(tmp_path: Path) -> None:
    """The request is larger than any buffer, so sending it blocks."""
    over = threading.Event()

    def wait(_: socket.socket) -> None:
        over.wait(DEADLINE_S)

    with listening(tmp_path, wait) as path:
        with pytest.raises(TimeoutError, match="timed out"):
            ask(path, 0.5, request_bytes("POST", "/x", b"x" * (8 << 20), {}))
        over.set()


def test_connecting_waits_while_the_backlog_is_full(tmp_path: Path) -> None:
    """The client waits until there is room or the deadline passes: a daemon with a full backlog is running."""
    path = str(tmp_path / "crowded.sock")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as closing:
        listener.bind(path)
        listener.listen(0)
        others = [closing.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for other in others:
            other.setblocking(False)
        assert errno.EAGAIN in [other.connect_ex(path) for other in others]
        exchange = UnixExchange(path, 0.3, REQUEST)
        closing.callback(exchange.close)
        with pytest.raises(TimeoutError, match="timed out"):
            exchange.connect()

        room = threading.Timer(0.2, lambda: closing.enter_context(listener.accept()[0]))
        room.start()
        later = UnixExchange(path, DEADLINE_S, REQUEST)
        closing.callback(later.close)
        later.connect()
        room.join()


# Requests


def test_a_request_is_encoded_as_the_daemon_expects() -> None:
    """A POST has a Content-Length even without a body."""
    sent = request_bytes("POST", "/v1/a?wait=1", b"{}", {"Content-Type": "application/json"})
    assert sent == (
        b"POST /v1/a?wait=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
    )
    assert b"\r\nContent-Length: 0\r\n" in request_bytes("POST", "/x", None, {})


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/x y", {}),
        ("/x\r\nX: 1", {}),
        ("/ü", {}),
        ("/x", {"Idempotency-Key": "a\r\nX: 1"}),
        ("/x", {"Authorization": "Bearer a\nb"}),
        ("/x", {"Authorization": "Bearer \u017f"}),
    ],
)
def test_a_request_line_or_header_cannot_contain_a_line_end(target: str, headers: dict[str, str]) -> None:
    """The error does not repeat a header's value, which may be a secret."""
    with pytest.raises(ValueError, match=r"cannot be requested|is not printable ASCII") as refused:
        request_bytes("GET", target, None, headers)
    assert not any(value in str(refused.value) for value in headers.values())


# The client's errors


def test_an_unsendable_token_is_reported_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is not that of a lost response, because no request was made."""
    monkeypatch.setenv("AILERON_SESSION_TOKEN", "ses\nret")
    with pytest.raises(DaemonUnreachable, match="Authorization is not printable") as failed:
        Client(tmp_path, operator=False).ask("GET", "/v1/actions")
    assert not isinstance(failed.value, AnswerLost)
    assert "ret" not in str(failed.value)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"", "it closed the connection before its response"),
        (b"nonsense\r\n\r\n", "not a response of HTTP/1.1"),
        (OK + b"Content-Length: 9\r\n\r\nnonsense!", "Expecting value"),
        (OK + b"Content-Length: 2\r\n\r\n\xff\xfe", "utf-8"),
    ],
)
def test_a_request_without_a_readable_response_has_an_unknown_outcome(
    tmp_path: Path, response: bytes, why: str
) -> None:
    """The error names the socket and what was wrong."""
    with listening(tmp_path, said(response)) as path, pytest.raises(AnswerLost, match=why) as lost:
        Client(tmp_path, operator=False).ask("POST", "/v1/x", {})
    assert path in str(lost.value)
