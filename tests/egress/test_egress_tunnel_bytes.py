"""The pure parts of a tunnel, byte by byte: the head of CONNECT, the ClientHello, what follows it, and the listed hosts.

The four laws of a parser hold where they apply: what is made is read back, any cut of it reads the same, and any bytes at all are
read or refused by the one exception.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.tunnel import Admitted, Refused, listed
from aileron.egress.tunnel.answers import alert_of, refusal_answer
from aileron.egress.tunnel.client_hello import HELLO_BYTES, ClientHello, HelloReader
from aileron.egress.tunnel.connect_head import HEAD_BYTES, MAX_FIELDS, HeadReader
from aileron.egress.tunnel.hello_watch import ANSWER_BYTES, HelloWatch
from aileron.model.host_pattern import parse_host_patterns
from aileron.model.names import HostPort

DEADLINE_S = 20.0
NAME = "api.example.test"
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
HEAD = b"CONNECT api.example.test:443 HTTP/1.1\r\nHost: api.example.test:443\r\nProxy-Authorization: Basic eDp4\r\n\r\n"


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    """Cut the data into pieces, some perhaps empty."""
    ends = sorted(min(position, len(data)) for position in at)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


# The head


def read_head(pieces: Sequence[bytes]) -> tuple[HostPort | None, bytes]:
    """Return the requested destination, and the bytes behind the head."""
    reader, left = HeadReader(), list(pieces)
    while left:
        found = reader.feed(left.pop(0))
        if found is not None:
            return found, reader.rest + b"".join(left)
    return None, b""


@given(st.binary(max_size=40), st.lists(st.integers(0, len(HEAD) + 40), max_size=6))
def test_a_connect_head_is_parsed_the_same_at_any_split(behind: bytes, at: list[int]) -> None:
    """The bytes behind the head are left for the next reader."""
    assert read_head(cut(HEAD + behind, at)) == (HostPort(NAME, 443), behind)


@given(st.one_of(st.binary(max_size=300), st.builds(lambda tail: b"CONNECT " + tail, st.binary(max_size=200))))
@example(b"CONNECT a:443 HTTP/1.1\r\n\r\n")
def test_any_bytes_are_parsed_as_a_connect_head_or_refused(data: bytes) -> None:
    """RefusedError is the only exception."""
    with contextlib.suppress(RefusedError):
        found, _ = read_head([data])
        assert found is None or 0 < found.port < 65536


def test_the_end_of_a_connect_head_is_found_when_it_arrives_byte_by_byte() -> None:
    """The four bytes of the end arrive one at a time."""
    assert read_head([bytes((byte,)) for byte in HEAD])[0] == HostPort(NAME, 443)


@pytest.mark.abuse_case("CO1")
@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"\x16\x03\x01\x02\x00", Reason.TUNNEL_HEAD),  # TLS to the proxy itself
        (b"\x05\x01\x00", Reason.TUNNEL_HEAD),  # SOCKS
        (b"CONNECT a.test:443 HTTP/1.1\n", Reason.TUNNEL_HEAD),
        (b"CONNECT a.test:443 HTTP/1.1\rX", Reason.TUNNEL_HEAD),
        (b"CONNECT a.test:443 HTTP/1.1\r\nA: \x00\r\n", Reason.TUNNEL_HEAD),
        (b"A" * (HEAD_BYTES + 1), Reason.TUNNEL_HEAD),
        (b"CONNECT a.test:443 HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_FIELDS + 1) + b"\r\n", Reason.TUNNEL_HEAD),
        (b"CONNECT a.test:443 HTTP/1.1\r\nA b: c\r\n\r\n", Reason.TUNNEL_HEAD),
        (b"CONNECT a.test:443 HTTP/1.1\r\nA : c\r\n\r\n", Reason.TUNNEL_HEAD),
        (b"connect a.test:443 HTTP/1.1\r\n\r\n", Reason.TUNNEL_METHOD),
        (b"CONNECT a.test:0443 HTTP/1.1\r\n\r\n", Reason.URL_PORT),
        (b"CONNECT a.test:+443 HTTP/1.1\r\n\r\n", Reason.URL_PORT),
        (b"CONNECT a.test:443/ HTTP/1.1\r\n\r\n", Reason.URL_PORT),
        (b"CONNECT https://a.test:443 HTTP/1.1\r\n\r\n", Reason.URL_PORT),
        (b"CONNECT a_b.test:443 HTTP/1.1\r\n\r\n", Reason.URL_HOST),
        (b"CONNECT a%2etest:443 HTTP/1.1\r\n\r\n", Reason.URL_HOST),
        (b"CONNECT *.a.test:443 HTTP/1.1\r\n\r\n", Reason.URL_HOST),
        (b"CONNECT :443 HTTP/1.1\r\n\r\n", Reason.URL_HOST),
        (b"CONNECT a.test\\:443 HTTP/1.1\r\n\r\n", Reason.URL_CHARACTERS),
        (b"CONNECT x@a.test:443 HTTP/1.1\r\n\r\n", Reason.URL_USERINFO),
        (b"CONNECT a[::1]:443 HTTP/1.1\r\n\r\n", Reason.URL_HOST),
    ],
)
def test_a_connect_head_that_two_parsers_could_read_differently_is_refused(head: bytes, reason: Reason) -> None:
    """The refusal comes as soon as possible: before the end of the head if its first bytes are wrong."""
    with pytest.raises(RefusedError) as caught:
        read_head([head])
    assert caught.value.reason is reason
    assert "URL" not in str(caught.value), "what stands behind CONNECT is called its target"


def test_a_connect_head_of_the_maximum_length_is_parsed() -> None:
    """A head that is too long is one of the cases of the test above."""
    head = b"CONNECT a.test:443 HTTP/1.1\r\nA: "
    assert read_head([head + b"b" * (HEAD_BYTES - len(head)) + b"\r\n\r\n"])[0] == HostPort("a.test", 443)


# The ClientHello


def vector(data: bytes, size: int) -> bytes:
    """Return the data behind its length."""
    return len(data).to_bytes(size, "big") + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    """Return the server_name extension."""
    return b"\x00\x00" + vector(vector(b"".join(bytes((kind,)) + vector(name, 2) for name in names), 2), 2)


def message(*extensions: bytes, version: bytes = b"\x03\x03", tail: bytes = b"") -> bytes:
    """Return a ClientHello with these extensions, as a handshake message."""
    body = version + bytes(32) + vector(bytes(32), 1) + vector(b"\x13\x01", 2) + vector(b"\x00", 1)
    body += vector(b"".join(extensions), 2) if extensions else b""
    return b"\x01" + vector(body + tail, 3)


def records(data: bytes, sizes: Sequence[int] = ()) -> bytes:
    """Return the data in records of these sizes, with the rest in the last."""
    pieces = [piece for piece in cut(data, sizes) if piece]
    return b"".join(b"\x16\x03\x01" + vector(piece, 2) for piece in pieces)


def read_hello(pieces: Sequence[bytes]) -> ClientHello | None:
    """Return the ClientHello in these pieces, or None."""
    reader = HelloReader()
    for piece in pieces:
        if (found := reader.feed(piece)) is not None:
            return found
    return None


ALPN = b"\x00\x10" + vector(vector(vector(b"h2", 1) + vector(b"http/1.1", 1), 2), 2)
ECH = b"\xfe\x0d" + vector(b"\x00" * 40, 2)
GREASE = b"\x0a\x0a" + vector(b"", 2)


@given(
    st.lists(st.integers(1, 400), max_size=5),
    st.lists(st.integers(0, 600), max_size=8),
    st.booleans(),
    st.binary(max_size=20),
)
def test_a_client_hello_is_parsed_the_same_at_any_split(
    sizes: list[int], at: list[int], may_hide: bool, behind: bytes
) -> None:
    """The cuts are into records and into packets; bytes behind the hello are not part of it."""
    data = records(message(GREASE, server_name(NAME.upper().encode()), ALPN, *([ECH] if may_hide else [])), sizes)
    pieces = cut(data + behind, at)

    assert read_hello(pieces) == ClientHello(NAME, may_hide, ("h2", "http/1.1"))
    reader = HelloReader()
    reader.feed(data + behind)
    assert reader.consumed == len(data)


@given(st.integers(0, 300), st.integers(0, 255), st.lists(st.integers(0, 300), max_size=3))
def test_a_client_hello_with_one_changed_byte_is_parsed_or_refused(at: int, byte: int, where: list[int]) -> None:
    """The only exception is RefusedError, and a parsed name is ASCII."""
    data = bytearray(records(message(server_name(NAME.encode()), ALPN, ECH), [60]))
    data[at % len(data)] = byte
    with contextlib.suppress(RefusedError):
        found = read_hello(cut(bytes(data), where))
        assert found is None or found.name.isascii()


@given(st.binary(max_size=400))
def test_random_bytes_are_an_incomplete_client_hello_or_refused(data: bytes) -> None:
    """RefusedError is the only exception."""
    with contextlib.suppress(RefusedError):
        assert read_hello([data]) is None


NO_TLS, NO_NAME, OTHER_NAME = Reason.TUNNEL_NO_TLS, Reason.TUNNEL_NO_NAME, Reason.TUNNEL_OTHER_NAME


@pytest.mark.abuse_case("CO2")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", NO_TLS),
        (b"\x80\x2e\x01\x03\x01", NO_TLS),  # SSL 2
        (b"\x16\x02", NO_TLS),
        (b"\x17\x03\x03\x00\x10", NO_TLS),
        (b"\x16\x03\x01\x00\x00", NO_TLS),
        (b"\x16\x03\x01\x40\x01", NO_TLS),
        (records(b"\x02" + vector(bytes(40), 3)), NO_TLS),
        (records(b"\x01" + (HELLO_BYTES).to_bytes(3, "big")), NO_TLS),
        (records(message(server_name(b"a.test")) + b"\x01"), NO_TLS),
        (records(message(server_name(b"a.test"), tail=b"\x00")), NO_TLS),
        (records(message(server_name(b"a.test"), version=b"\x02\x00")), NO_TLS),
        (records(message(server_name(b"a.test"), server_name(b"a.test"))), NO_TLS),
        (records(message(ECH, server_name(b"a.test"), ECH)), NO_TLS),
        (records(message(b"\x00\x00\x00\x05\x00\x04\x00\x00\x09a")), NO_TLS),
        (records(message(b"\x00\x00\x00\xff\x00")), NO_TLS),
        (records(message()), NO_NAME),
        (records(message(ALPN, ECH)), NO_NAME),
        (records(message(server_name(b"a.test", b"b.test"))), OTHER_NAME),
        (records(message(server_name(b"a.test", kind=1))), OTHER_NAME),
        (records(message(server_name("b\u00fc.test".encode()))), OTHER_NAME),
        (records(message(server_name(b""))), NO_TLS),
    ],
)
def test_anything_but_a_client_hello_with_exactly_one_server_name_is_refused(data: bytes, reason: Reason) -> None:
    """Each case has its own reason."""
    with pytest.raises(RefusedError) as caught:
        read_hello([data])
    assert caught.value.reason is reason
    assert read_hello([records(message(server_name(b"a.test")))]) == ClientHello("a.test", False, ())


def test_a_client_hello_that_is_too_long_is_refused_before_its_end() -> None:
    """The hello comes in many records, each of which is valid."""
    begun = b"\x01" + (HELLO_BYTES - 4).to_bytes(3, "big") + bytes(1 << 13)
    pieces = [records(begun), *[records(bytes(1 << 13))] * 8]
    assert read_hello(pieces[:7]) is None
    with pytest.raises(RefusedError, match=f"more than {HELLO_BYTES} bytes"):
        read_hello(pieces)


def said_by(command: Sequence[str], is_proxied: bool = False) -> bytes:
    """Return the first record that a program sends to a server on loopback, whose port stands in the command as PORT."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        port = str(listener.getsockname()[1])
        filled = [part.replace("PORT", port) for part in command]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            filled, stdin=nothing, stdout=nothing, stderr=nothing, env={"PATH": os.environ["PATH"]}
        ) as running:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(DEADLINE_S)
                    return whole_record(connection)
            finally:
                running.kill()


def whole_record(connection: socket.socket) -> bytes:
    """Return the first record of a connection."""
    data = b""
    while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], "big"):
        piece = connection.recv(65536)
        assert piece
        data += piece
    return data


@pytest.mark.parametrize(
    ("command", "protocols"),
    [
        (["openssl", "s_client", "-connect", "127.0.0.1:PORT", "-servername", NAME], ()),
        (["openssl", "s_client", "-tls1_2", "-connect", "127.0.0.1:PORT", "-servername", NAME], ()),
        (["curl", "-sk", "--resolve", f"{NAME}:PORT:127.0.0.1", f"https://{NAME}:PORT/"], ("h2", "http/1.1")),
        (["node", "-e", f"require('tls').connect({{port: PORT, host: '127.0.0.1', servername: '{NAME}'}})"], ()),
        (
            ["node", "-e", "fetch('https://localhost:PORT/')"],
            ("http/1.1",),
        ),
    ],
    ids=["openssl", "openssl-1.2", "curl", "node", "node-fetch"],
)
def test_the_client_hello_of_real_programs_is_read(command: list[str], protocols: tuple[str, ...]) -> None:
    """The result is the same when the hello arrives byte by byte."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    data = said_by(command)
    name = "localhost" if "fetch" in command[-1] else NAME

    assert read_hello([data]) == read_hello([bytes((byte,)) for byte in data]) == ClientHello(name, False, protocols)


def hello_of(name: str | None, protocols: Sequence[str] = ()) -> bytes:
    """Return the first bytes that Python's ssl sends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_the_client_hello_of_python_s_ssl_is_read() -> None:
    """A hello without a name is refused."""
    assert read_hello([hello_of(NAME, ["h2"])]) == ClientHello(NAME, False, ("h2",))
    with pytest.raises(RefusedError) as caught:
        read_hello([hello_of("192.0.2.1")])
    assert caught.value.reason is NO_NAME


# What follows it

SERVER_HELLO = b"\x16\x03\x03" + vector(b"\x02" + vector(b"\x03\x03" + bytes(32) + b"\x00\x13\x01\x00", 3), 2)
ASKS_AGAIN = b"\x16\x03\x03" + vector(b"\x02" + vector(b"\x03\x03" + RETRY + b"\x00\x13\x01\x00", 3), 2)
CCS = b"\x14\x03\x03\x00\x01\x01"
EARLY = b"\x17\x03\x03" + vector(bytes(300), 2)
SAME, OTHER = records(message(server_name(NAME.encode()))), records(message(server_name(b"evil.test")), [10])
ANY_RECORD = b"\x16\x03\x03" + vector(b"\x10" + vector(bytes(60), 3), 2)


@pytest.mark.abuse_case("CO3")
@given(st.lists(st.integers(0, 700), max_size=6), st.booleans())
def test_another_name_in_a_second_client_hello_is_found_at_any_split(at: list[int], is_asked: bool) -> None:
    """The server may have asked for another hello or not: a client that expects it can send both at once.

    If the server has not asked, a third hello is checked too.
    """
    watch = HelloWatch(NAME)
    if is_asked:
        watch.from_host(ASKS_AGAIN)
    passed, refused = b"", None
    for piece in cut(CCS + EARLY + (b"" if is_asked else SAME) + OTHER, at):
        try:
            watch.from_client(piece)
        except RefusedError as error:
            refused = error.reason
            break
        passed += piece
    assert refused is OTHER_NAME
    assert OTHER not in passed


@given(st.lists(st.integers(0, 700), max_size=6), st.lists(st.integers(0, 100), max_size=3))
def test_after_a_second_client_hello_with_the_same_name_any_bytes_pass(at: list[int], cuts: list[int]) -> None:
    """The rest is the two peers' own business after the requested second hello."""
    watch = HelloWatch(NAME)
    for piece in cut(ASKS_AGAIN, cuts):
        watch.from_host(piece)
    for piece in cut(CCS + EARLY + SAME, at):
        watch.from_client(piece)
    assert watch.is_over
    watch.from_client(OTHER + b"anything")


@given(st.lists(st.integers(0, 100), max_size=3))
def test_after_the_server_hello_any_bytes_pass(cuts: list[int]) -> None:
    """The next handshake messages of TLS 1.2 are in clear text; before the server's hello they are refused."""
    with pytest.raises(RefusedError) as caught:
        HelloWatch(NAME).from_client(ANY_RECORD)
    assert caught.value.reason is NO_TLS
    watch = HelloWatch(NAME)
    for piece in cut(b"\x15\x03\x03\x00\x02\x01\x70" + SERVER_HELLO, cuts):
        watch.from_host(piece)
    assert watch.is_over
    watch.from_client(ANY_RECORD)


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=8))
def test_any_bytes_after_the_client_hello_pass_or_are_refused(said: list[tuple[bool, bytes]]) -> None:
    """RefusedError is the only exception, whichever peer sends the bytes."""
    watch = HelloWatch(NAME)
    with contextlib.suppress(RefusedError):
        for is_client, data in said:
            (watch.from_client if is_client else watch.from_host)(data)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28" * 3000])
def test_a_server_that_never_sends_a_server_hello_is_not_watched_for_ever(said: bytes) -> None:
    """The server speaks no TLS, or sends only alerts."""
    watch = HelloWatch(NAME)
    watch.from_host(said[:5])
    watch.from_host(said[5:])
    assert watch.is_over
    assert len(said) < ANSWER_BYTES or said[0] == 21


# Which hosts, and what is said


@pytest.mark.parametrize(
    ("hosts", "destination", "is_listed"),
    [
        ((), "a.test:443", False),
        (("a.test",), "a.test:443", True),
        (("a.test",), "a.test:8443", False),
        (("a.test",), "b.a.test:443", False),
        (("a.test",), "xa.test:443", False),
        (("a.test:8443",), "a.test:8443", True),
        (("a.test:8443",), "a.test:443", False),
        (("*.b.test",), "a.b.test:443", True),
        (("*.b.test",), "c.a.b.test:443", True),
        (("*.b.test",), "b.test:443", False),
        (("*.b.test",), "ab.test:443", False),
        (("*.b.test",), "a.b.test:8443", False),
        (("*.b.test:8443", "a.test"), "a.b.test:8443", True),
    ],
)
def test_a_host_is_listed_by_its_name_or_by_a_domain_above_it(
    hosts: tuple[str, ...], destination: str, is_listed: bool
) -> None:
    """The port is 443 unless another is given; a pattern for names below a domain does not match the domain itself."""
    decided = listed(parse_host_patterns(hosts), HostPort.parse(destination))

    assert isinstance(decided, Admitted) is is_listed
    if isinstance(decided, Refused):
        assert decided.reason is Reason.HOST_NOT_LISTED
        assert f"--allow-host {destination.removesuffix(':443')}" in decided.text


@given(st.text(max_size=600))
def test_a_refusal_with_any_text_is_exactly_one_http_response(text: str) -> None:
    """The text has no character that ends a line of the head."""
    said = refusal_answer(Reason.HOST_DENIED.value, text)
    head, body = said.split(b"\r\n\r\n", 1)

    assert head.startswith(b"HTTP/1.1 403 ")
    assert len(head.split(b"\r\n")) == 5
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    assert head.count(b"\n") == 4
    assert body.count(b"\n") == 1


def test_only_a_client_that_speaks_tls_gets_an_alert() -> None:
    """The alert is fatal, so that the client reports an error."""
    assert alert_of(OTHER_NAME) == b"\x15\x03\x03\x00\x02\x02\x70"
    assert alert_of(NO_TLS) == b""
