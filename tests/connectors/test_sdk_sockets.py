"""Libraries that open sockets by themselves, against a host played frame by frame: their connections are streams of the host."""

from __future__ import annotations

import socket
import struct
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aileron_sandbox.frames import Cancel, Chunk, Failed, GrantedHost, Result, TcpOpen, TcpOpened
from tests.support.plain_host import ConnectorProcess, invoke

HOSTS = [GrantedHost("db.example.com", 5432, False), GrantedHost("127.0.0.1", 6379, True)]
SITE = str(Path(pytest.__file__).resolve().parents[1])


class Stream:
    """The host's end of one stream."""

    def __init__(self, process: ConnectorProcess) -> None:
        self._process = process
        opened = process.receive().message
        assert isinstance(opened, TcpOpen), (opened, process.printed())
        self.opened = opened
        self._read = b""
        process.send(TcpOpened(id=opened.id))

    def say(self, data: bytes, *, end: bool = False) -> None:
        """Send data to the connector."""
        self._process.send(Chunk(id=self.opened.id, end=end), data)

    def line(self) -> bytes:
        """Return a line of the connector, with its end."""
        said = b""
        while not said.endswith(b"\r\n"):
            said += self.hear(1)
        return said

    def hear(self, size: int) -> bytes:
        """Return this many bytes of the connector."""
        while len(self._read) < size:
            frame = self._process.receive()
            assert isinstance(frame.message, Chunk), frame
            assert frame.body is not None
            self._read += frame.body
        said, self._read = self._read[:size], self._read[size:]
        return said


@contextmanager
def connector(folder: Path, body: str) -> Iterator[ConnectorProcess]:
    """Start a connector whose operation `x` has this body."""
    program = folder / "connector.py"
    lines = textwrap.indent(textwrap.dedent(body), "    ")
    program.write_text(
        f"import sys\nsys.path.append({SITE!r})\nfrom aileron_connector import *\n@op\ndef x():\n{lines}\nrun()\n"
    )
    with ConnectorProcess(program, invoke("x", hosts=HOSTS)) as process:
        yield process


def output(process: ConnectorProcess) -> Any:
    """Return the operation's output."""
    message = process.receive_until_over()
    assert isinstance(message, Result), (message, process.printed())
    return message.output


def answer(process: ConnectorProcess) -> Any:
    """Return the operation's output, and skip stream frames before it."""
    while not isinstance(message := process.receive().message, Result | Failed):
        assert isinstance(message, Chunk | Cancel), message
    assert isinstance(message, Result), (message, process.printed())
    return message.output


def test_a_socket_connection_is_a_stream_with_the_methods_that_drivers_use(tmp_path: Path) -> None:
    """The stream is made by create_connection: names are not looked up, options are not set, and a read can time out."""
    code = """
    import socket
    sock = socket.create_connection(("db.example.com", 5432), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    file = sock.makefile("rwb")
    sock.sendall(b"hello")
    first = file.read(3)
    buffer = bytearray(2)
    sock.recv_into(buffer)
    sock.settimeout(0.05)
    try:
        sock.recv(1)
    except TimeoutError:
        late = True
    sock.setblocking(True)
    sock.shutdown(socket.SHUT_WR)
    rest = b"".join(iter(lambda: sock.recv(100), b""))
    is_one = isinstance(sock, socket.socket)
    found = [first, bytes(buffer), rest, late, sock.gettimeout(), list(sock.getpeername()), is_one, repr(sock)]
    file.close()
    sock.close()
    return [one.decode() if isinstance(one, bytes) else one for one in found]
    """
    with connector(tmp_path, code) as process:
        stream = Stream(process)
        assert (stream.opened.host, stream.opened.port, stream.opened.tls) == ("db.example.com", 5432, True)
        assert stream.hear(5) == b"hello"
        stream.say(b"abc")
        stream.say(b"de")
        frame = process.receive()
        assert isinstance(frame.message, Chunk)
        assert frame.message.end
        stream.say(b"rest", end=True)
        assert output(process) == [
            "abc", "de", "rest", True, None, ["db.example.com", 5432], True, "<socket of <Stream to db.example.com:5432>>",
        ]  # fmt: skip


def test_a_plain_service_gets_a_stream_without_tls(tmp_path: Path) -> None:
    """The user granted it without TLS; the connector uses its address, which needs no look-up."""
    code = """
    import socket
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(60)
    return [sock.connect_ex(("127.0.0.1", 6379)), sock.recv(2).decode()]
    """
    with connector(tmp_path, code) as process:
        stream = Stream(process)
        assert not stream.opened.tls
        stream.say(b"hi")
        assert output(process) == [0, "hi"]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("sock.fileno()", "no descriptor"),
        ("select.select([sock], [], [], 0)", "no descriptor"),
        ("ssl.create_default_context().wrap_socket(sock, server_hostname='db.example.com')", "TLS cannot start"),
        ("sock.bind(('127.0.0.1', 0))", "bind: "),
        ("sock.listen()", "listen: "),
        ("sock.sendto(b'x', ('db.example.com', 5432))", "sendto: "),
        ("sock.connect(('db.example.com', 5432))", "connect: "),
    ],
)
def test_unsupported_uses_of_a_stream_are_errors_with_a_reason(tmp_path: Path, use: str, words: str) -> None:
    """The message is for the connector's author."""
    code = f"""
    import select, socket, ssl
    sock = socket.create_connection(("db.example.com", 5432))
    try:
        {use}
    except OSError as error:
        return str(error)
    """
    with connector(tmp_path, code) as process:
        Stream(process)
        assert words in output(process)


@pytest.mark.parametrize(
    "use",
    [
        "socket.socket().connect(('127.0.0.1', {port}))",
        "socket.create_connection(('localhost', {port}))",
        "socket.socket().connect_ex(('127.0.0.1', {port}))",
    ],
)
def test_a_connection_to_a_host_that_was_not_granted_is_an_ordinary_connection(tmp_path: Path, use: str) -> None:
    """The SDK does not handle it: outside a jail it connects, and inside a jail it ends the program."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = f"""
        import socket
        {use.format(port=listener.getsockname()[1])}
        return "connected"
        """
        with connector(tmp_path, code) as process:
            assert output(process) == "connected"


PG8000 = """
import pg8000.native
with_answer = pg8000.native.Connection("x", host="db.example.com", port=5432, password="y", timeout=60)
try:
    return with_answer.run("SELECT 1")
finally:
    with_answer.close()
"""
PYMYSQL = """
import pymysql
try:
    pymysql.connect(host="db.example.com", port=5432, user="x", password="y", connect_timeout=60)
except pymysql.err.OperationalError as error:
    return error.args[1]
"""
REDIS = """
import redis
client = redis.Redis(host="127.0.0.1", port=6379, protocol=2, socket_timeout=60)
found = client.get("key").decode()
client.close()
return found
"""


def postgres(stream: Stream) -> None:
    """Play enough of a server for one query of pg8000."""
    assert stream.hear(8) == struct.pack("!ii", 8, 80877103)
    stream.say(b"N")
    (length,) = struct.unpack("!i", stream.hear(4))
    stream.hear(length - 4)
    ready = b"Z" + struct.pack("!i", 5) + b"I"
    stream.say(b"R" + struct.pack("!ii", 8, 0) + ready)
    assert stream.hear(14) == b"Q" + struct.pack("!i", 13) + b"SELECT 1\0"
    column = b"a\0" + struct.pack("!ihihih", 0, 0, 23, 4, -1, 0)
    stream.say(b"T" + struct.pack("!ih", 6 + len(column), 1) + column)
    stream.say(b"D" + struct.pack("!ihi", 11, 1, 1) + b"1" + b"C" + struct.pack("!i", 13) + b"SELECT 1\0" + ready)


def mysql(stream: Stream) -> None:
    """Play a server that refuses."""
    words = b"\xff" + struct.pack("<H", 1040) + b"#08004Too many connections"
    stream.say(struct.pack("<I", len(words)) + words)


def redis(stream: Stream) -> None:
    """Play enough of a server for redis-py, which identifies itself first: a number of words, each with its length."""
    for _ in range(20):
        words = []
        for _ in range(int(stream.line()[1:])):
            words.append(stream.hear(int(stream.line()[1:]) + 2))
        if words[0] == b"GET\r\n":
            stream.say(b"$5\r\nvalue\r\n")
            return
        stream.say(b"+OK\r\n")


@pytest.mark.parametrize(
    ("code", "serve", "found"),
    [(PG8000, postgres, [[1]]), (PYMYSQL, mysql, "Too many connections"), (REDIS, redis, "value")],
    ids=["pg8000", "PyMySQL", "redis-py"],
)
def test_unmodified_database_drivers_work_over_streams_of_the_host(
    tmp_path: Path, code: str, serve: Callable[[Stream], None], found: Any
) -> None:
    """Each driver uses its socket in its own way, before and after it is connected."""
    with connector(tmp_path, code) as process:
        serve(Stream(process))
        assert answer(process) == found
