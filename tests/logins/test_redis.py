"""Redis: a real server with TLS and users, an unmodified redis-py, and any bytes that a connector may send as commands."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import Connection

from aileron.logins.login_messages import Failed, LoginError, Problem
from aileron.logins.protocols.redis import MAX_HELD, Commands, RedisLogin, command
from aileron.model.login import LoginDetails
from tests.support.logins import LoginAt, trusting
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.upstream import Authority

SECRET = b"correct horse\r\n\x00 battery"
OWN = command(b"AUTH", b"me", b"own secret")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of the server."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RedisServer]:
    """Start a server with two users."""
    users = ["me on >hunter22 ~* &* +@all", "reader on >hunter22 ~r:* -@all +@read +@connection -select"]
    with RedisServer(tmp_path_factory.mktemp("redis"), authority, *users) as running:
        yield running


def login(
    server: RedisServer, authority: Authority, user: str = "me", secret: bytes = b"hunter22", **more: Any
) -> LoginAt:
    """Return a stream over TLS."""
    target = f"redis://127.0.0.1:{server.tls_port}"
    return LoginAt(RedisLogin, target, user, secret, tls=trusting(authority.ca_pem), **more)


def refused(stream: LoginAt) -> Failed:
    """Return the failure of a login that must fail."""
    with stream:
        return stream.failed()


class _Over(Connection):
    """redis-py's connection, over an existing socket."""

    def __init__(self, *, stream: socket.socket, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.stream = stream

    def _connect(self) -> socket.socket:
        return self.stream


def client_over(stream: socket.socket, **options: Any) -> redis.Redis:
    """Return a redis-py client on a stream."""
    pool = redis.ConnectionPool(connection_class=_Over, stream=stream, **options)
    return redis.Redis(connection_pool=pool)


@needs_redis
@pytest.mark.parametrize(
    "options",
    [{"protocol": 2}, {"protocol": 3}]
    + [{"protocol": p, "username": "placeholder", "password": "placeholder", "client_name": "c"} for p in (2, 3)]
    + [{"password": "placeholder", "db": 2}],
)
def test_redis_py_is_logged_in_as_the_user_of_the_binding_whatever_credential_it_sends(
    server: RedisServer, authority: Authority, options: dict[str, Any]
) -> None:
    """RESP 2 and 3 work, with a placeholder or without. The user is always that of the binding."""
    with login(server, authority) as stream:
        client = client_over(stream.client, **options)
        assert client.acl_whoami() in ("me", b"me")
        client.set("k", b"\r\n*1\r\n$4\r\nAUTH" * 9000)
        assert client.get("k") == b"\r\n*1\r\n$4\r\nAUTH" * 9000
        with client.pipeline(transaction=True) as pipe:
            pipe.incr("n")
            pipe.execute_command("AUTH", "who", "ever")  # type: ignore[no-untyped-call]
            pipe.get("k")
            assert pipe.execute()[1] is not None
        client.close()
        assert stream.logged_in().mechanism == "AUTH"


@needs_redis
def test_a_redis_client_that_sends_reset_can_log_in_again_as_the_same_user(
    server: RedisServer, authority: Authority
) -> None:
    """The server has no user for the connection between RESET and the new login."""
    with login(server, authority) as stream:
        stream.client.sendall(b"RESET\r\nGET k\r\nauth someone else\r\n" + command(b"ACL", b"WHOAMI"))
        answer = b""
        while not answer.endswith(b"me\r\n"):
            answer += stream.client.recv(4096)
        assert answer == b"+RESET\r\n-NOAUTH Authentication required.\r\n+OK\r\n$2\r\nme\r\n"


@pytest.mark.abuse_case("LP14")
@needs_redis
@pytest.mark.parametrize(
    "said",
    [
        b'SET a "x\r\n',
        b"SET a 'x\r\n",
        b"RESET\r\n*11\r\n" + b"$0\r\n\r\n" * 11,
        command(b"reset") + command(b"GET", b"x" * 16385),
        command(b"RESET") + command(b"x" * 16385),
        command(b"RESET") + command(b"HELLO", b"3", b"SETNAME", b"x" * 16385),
        b"RESET\r\nHELLO 3" + b" SETNAME x" * 5 + b"\r\n",
        b"*1048577\r\n$1\r\nx\r\n",
    ],
)
def test_a_server_does_not_log_our_password_after_a_protocol_error(
    server: RedisServer, authority: Authority, said: bytes
) -> None:
    """A server logs the bytes after an error: they must not contain the AUTH with the real password."""
    with login(server, authority) as stream:
        stream.client.sendall(command(b"CONFIG", b"SET", b"loglevel", b"verbose"))
        assert stream.client.recv(100) == b"+OK\r\n"
        with socket.create_connection(("127.0.0.1", server.port), 5) as direct:
            direct.sendall(b'SET a "x\r\n' + command(b"AUTH", b"me", b"logged"))
            while direct.recv(4096):
                pass
        stream.client.sendall(said + command(b"AUTH", b"anything"))
        assert stream.over().problem is Problem.NOT_ALLOWED
    log = server.log.read_bytes()
    assert b"logged" in log
    assert b"hunter22" not in log


@needs_redis
def test_the_secret_is_masked_in_answers(server: RedisServer, authority: Authority) -> None:
    """Redis gets the secret unencoded, so a server can repeat it."""
    with login(server, authority) as stream:
        stream.client.sendall(command(b"ECHO", b"it is hunter22!"))
        assert stream.client.recv(100) == b"$15\r\nit is ********!\r\n"


@needs_redis
def test_a_wrong_password_is_refused(server: RedisServer, authority: Authority) -> None:
    """An unknown or disabled user is refused too; the right login works."""
    for user, secret in (("me", b"wrong"), ("nobody", b"hunter22"), ("default", b"hunter22")):
        failed = refused(login(server, authority, user, secret))
        assert failed.problem is Problem.REFUSED_CREDENTIAL
        assert failed.said.startswith("WRONGPASS")
    with login(server, authority) as stream:
        stream.logged_in()


@needs_redis
def test_a_login_fails_if_its_database_cannot_be_selected(server: RedisServer, authority: Authority) -> None:
    """The number is too large or malformed, or the user may not select it."""
    with login(server, authority, details=LoginDetails(database="3")) as stream:
        stream.client.sendall(command(b"CLIENT", b"INFO"))
        assert b" db=3 " in stream.client.recv(4096)
    for user, database in (("me", "4"), ("me", "x"), ("me", "01"), ("reader", "1")):
        failed = refused(login(server, authority, user, details=LoginDetails(database=database)))
        assert failed.problem is Problem.UNUSABLE_CREDENTIAL


@pytest.mark.abuse_case("LP14")
@needs_redis
def test_a_password_that_a_server_would_log_is_not_sent(server: RedisServer, authority: Authority) -> None:
    """Redis reports an argument above 16 KiB as a protocol error, and logs it, before the login."""
    assert refused(login(server, authority, secret=b"x" * 16385)).problem is Problem.UNUSABLE_CREDENTIAL
    assert refused(login(server, authority, secret=b"x" * 16384)).problem is Problem.REFUSED_CREDENTIAL


@needs_redis
def test_a_redis_server_without_a_trusted_certificate_or_without_tls_gets_no_password(
    server: RedisServer, authority: Authority, tmp_path: Any
) -> None:
    """The other servers have a certificate of an untrusted authority, or no TLS."""
    assert refused(login(server, Authority(tmp_path))).problem is Problem.CERTIFICATE
    target = f"redis://127.0.0.1:{server.port}"
    stream = LoginAt(RedisLogin, target, "me", b"hunter22", tls=trusting(authority.ca_pem), login_s=0.3)
    assert refused(stream).problem is Problem.TOO_SLOW  # the login waits for a line end that never comes
    with LoginAt(RedisLogin, target.replace("redis:", "redis+plain:"), "me", b"hunter22") as stream:
        assert client_over(stream.client).ping()  # a user has to have named it


@needs_redis
def test_a_redis_password_may_consist_of_any_bytes(tmp_path: Any, authority: Authority) -> None:
    """Redis is sent the length of a secret before its bytes."""
    user = f"me on #{hashlib.sha256(SECRET).hexdigest()} ~* &* +@all"
    with RedisServer(tmp_path, authority, user) as running, login(running, authority, secret=SECRET) as stream:
        stream.client.sendall(b"PING\r\n")
        assert stream.client.recv(100) == b"+PONG\r\n"


@contextlib.contextmanager
def scripted(*answers: bytes) -> Iterator[tuple[socket.socket, bytearray]]:
    """Run a server that sends one answer after each read, and then nothing."""
    ours, theirs = socket.socketpair()
    seen = bytearray()

    def run() -> None:
        with theirs, contextlib.suppress(OSError):
            for answer in answers:
                seen.extend(theirs.recv(4096))
                theirs.sendall(answer)
            while data := theirs.recv(4096):
                seen.extend(data)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ours, seen
    finally:
        ours.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"-WRONGPASS invalid\r\n", Problem.REFUSED_CREDENTIAL),
        (b"-ERR wrong number of arguments for 'auth' command\r\n", Problem.PROTOCOL),
        (b"-ERR max number of clients reached\r\n", Problem.CLOSED),
        (b"-LOADING Redis is loading the dataset in memory\r\n", Problem.CLOSED),
        (b"-NOPERM\r\n", Problem.PROTOCOL),
        (b"HTTP/1.1 400 Bad Request\r\n", Problem.PROTOCOL),
        (b"+OK", Problem.TOO_SLOW),
        (b"x" * 20000, Problem.PROTOCOL),
    ],
)
def test_each_answer_other_than_ok_is_a_failed_login_with_its_problem(answer: bytes, problem: Problem) -> None:
    """Only `+OK` means success."""
    with scripted(answer) as (ours, _):
        target, login_s = "redis+plain://localhost:1", 0.3 if problem is Problem.TOO_SLOW else 20.0
        assert refused(LoginAt(RedisLogin, target, "me", b"hunter22", login_s=login_s, service=ours)).problem is problem


def passed(*pieces: bytes) -> bytes:
    """Return the bytes that pass to the server."""
    filter_ = Commands(OWN)
    return b"".join(each.to_server for piece in pieces for each in filter_.up(piece))


@pytest.mark.parametrize(
    ("sent", "goes_on"),
    [
        (command(b"AUTH", b"x"), OWN),
        (command(b"auth", b"x", b"y"), OWN),
        (b"AuTh x y\r\n", OWN),
        (b"AUTH 'x y' \"\\x00\"\n", OWN),
        (command(b"HELLO"), command(b"HELLO")),
        (command(b"HELLO", b"3", b"AUTH", b"x", b"y"), command(b"HELLO", b"3")),
        (
            command(b"HELLO", b"3", b"SETNAME", b"AUTH", b"auth", b"x", b"y"),
            command(b"HELLO", b"3", b"SETNAME", b"AUTH"),
        ),
        (b"hello 2 auth x y setname z\r\n", command(b"hello", b"2", b"setname", b"z")),
        (b"PING\r\n", b"PING\r\n"),
        (b"\r\n\nPING\n", b"PING\n"),
        (b"RESET\r\nAUTH x\r\n" + command(*[b"DEL"] * 11), b"RESET\r\n" + OWN + command(*[b"DEL"] * 11)),
        (
            command(b"RESET") + command(b"AUTH", b"x") + command(b"x" * 16385),
            command(b"RESET") + OWN + command(b"x" * 16385),
        ),
        (b"*0\r\n" + command(b"PING"), command(b"PING")),
        (command(b"SET", b"AUTH", b""), command(b"SET", b"AUTH", b"")),
        (command(b""), command(b"")),
    ],
)
def test_a_redis_client_s_own_login_is_replaced_by_that_of_the_binding(sent: bytes, goes_on: bytes) -> None:
    """The form of the login and the split of its bytes make no difference."""
    assert passed(sent) == goes_on
    assert passed(*(sent[at : at + 1] for at in range(len(sent)))) == goes_on


@pytest.mark.parametrize(
    "sent",
    [
        b'"AUTH" x y\r\n',
        b'A"UTH" x y\r\n',
        b'HELLO 3 "AUTH" x y\r\n',
        b'SET a "x"\r\n',
        b"AUTH\0x y\r\n",
        b"\x0bAUTH x y\r\n",
        b"*01\r\n",
        b"*+1\r\n",
        b"*1\r$4\r\n",
        b"*-1\r\n",
        b"*1\r\n*1\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$1\r\nxxx",
        b"*2\r\n$3\r\nGET\r\n$1\r\nxAUTH",
        b"*1\r\n$999999999\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$70000\r\n",
        command(b"HELLO", b"3", b"AUTH", b"x"),
        command(b"HELLO", b"3", b"NEW"),
    ],
)
def test_bytes_that_a_server_might_read_differently_end_the_stream(sent: bytes) -> None:
    """They come in one piece and byte by byte. A line without an end is refused, too."""
    with pytest.raises(LoginError, match="more than"):
        passed(b"x" * MAX_HELD, b"x")
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        with pytest.raises(LoginError) as caught:
            passed(*pieces)
        assert caught.value.problem is Problem.NOT_ALLOWED


WORDS = st.sampled_from([b"AUTH", b"hello", b"GET", b"", b"3", b"x" * 70, b"\r\n", b"*1\r\n"])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), max_size=6), st.lists(st.integers(0, 400), max_size=6))
def test_the_filter_of_redis_commands_does_not_depend_on_how_their_bytes_are_split(
    commands: list[list[bytes]], cuts: list[int]
) -> None:
    """Each command passes unchanged, or is replaced by one of ours."""
    commands = [each for each in commands if each[0] != b"hello" or len(each) < 3]
    sent = b"".join(command(*each) for each in commands)
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    pieces = [sent[start:end] for start, end in itertools.pairwise(places)]
    expected = b"".join(OWN if each[0] == b"AUTH" else command(*each) for each in commands)
    assert passed(*pieces) == expected


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"*2\r\n$4\r\nAUTH\r\n", b"$1\r\nx\r\n", b"AUTH x\r\n"]), max_size=8
    )
)
def test_arbitrary_bytes_pass_or_raise_a_login_error(pieces: list[bytes]) -> None:
    """The bytes that are held are bounded."""
    with contextlib.suppress(LoginError):
        passed(*pieces)
