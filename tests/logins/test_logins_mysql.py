"""MySQL and MariaDB: at a real MariaDB, and at scripted servers for behavior that only MySQL has, or that none should have."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pymysql
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from pymysql.constants import CLIENT

from aileron.logins.login_messages import LoginError, Problem
from aileron.logins.protocol import Passed
from aileron.logins.protocols import mysql_wire as wire
from aileron.logins.protocols.mysql import Commands, MysqlLogin
from aileron.logins.protocols.mysql_proofs import PROOFS, ed25519, native, sha2
from aileron.logins.protocols.mysql_rights import more_than_reading
from aileron.model.login import LoginDetails
from tests.support.logins import LoginAt, trusting
from tests.support.mariadb import MariaDB
from tests.support.upstream import Authority

PASSWORD: Final = secrets.token_urlsafe(16)
SHOP: Final = LoginDetails(database="shop")
READING: Final = LoginDetails(database="shop", read_only=True)
SHIPS: Final = (("Gorch Fock", 3), ("Passat", 4))
_ACCOUNTS: Final = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.ship (name varchar(100) CHARACTER SET utf8mb4 PRIMARY KEY, masts int)",
    "INSERT INTO shop.ship VALUES ('Gorch Fock', 3), ('Passat', 4)",
    f"CREATE USER writer IDENTIFIED BY '{PASSWORD}'",
    "GRANT ALL ON shop.* TO writer",
    f"CREATE USER reader IDENTIFIED BY '{PASSWORD}'",
    "GRANT SELECT, SHOW VIEW ON shop.* TO reader",
    "GRANT PROCESS ON *.* TO reader",
    f"CREATE USER edwards IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}')",
    "GRANT SELECT ON shop.* TO edwards",
    f"CREATE USER locked IDENTIFIED BY '{PASSWORD}' ACCOUNT LOCK",
    f"CREATE USER crowded IDENTIFIED BY '{PASSWORD}' WITH MAX_USER_CONNECTIONS 1",
    "CREATE ROLE captain",
    "GRANT DELETE ON shop.* TO captain",
    "CREATE FUNCTION shop.sink() RETURNS int MODIFIES SQL DATA RETURN 1",
)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[MariaDB]:
    """Start one server for all of these tests."""
    with MariaDB(authority) as running:
        running.run(*_ACCOUNTS)
        yield running


class At:
    """A maker of logins at this server."""

    def __init__(self, server: MariaDB, ca_pem: str | None) -> None:
        self._server, self._ca_pem = server, ca_pem

    def __call__(self, user: str, password: str = PASSWORD, *, host: str = "localhost", **options: Any) -> LoginAt:
        options.setdefault("details", SHOP)
        options.setdefault("tls", trusting(self._ca_pem))
        encryption = options.pop("encryption", "tls")
        target = f"mysql+{encryption}://{host}:{self._server.port}"
        return LoginAt(MysqlLogin, target, user, password.encode(), **options)


@pytest.fixture
def at(server: MariaDB, authority: Authority) -> At:
    """Return the maker of logins at the server."""
    return At(server, authority.ca_pem)


@contextlib.contextmanager
def connected(login: LoginAt, **options: Any) -> Iterator[Any]:
    """Connect an unmodified PyMySQL, with a user name and a password that nobody has."""
    connection = pymysql.connect(user="placeholder", password="placeholder", defer_connect=True, **options)
    connection.connect(login.client)
    with connection:
        yield connection


def ships(server: MariaDB) -> Any:
    """Return the rows of the database."""
    return tuple(server.run("SELECT name, masts FROM shop.ship ORDER BY name"))


def test_an_unmodified_mysql_library_reads_and_writes(at: At, server: MariaDB) -> None:
    """PyMySQL uses a transaction, parameters, an error, and more rows than fit into a packet."""
    with at("writer") as login:
        assert login.logged_in().mechanism == "mysql_native_password"
        with connected(login, database="another") as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO ship VALUES (%s, %s)", ("Krusenštern ⚓", 4))
            connection.commit()
            cursor.execute("SELECT DATABASE(), USER() LIKE 'writer@%%', name FROM ship WHERE name LIKE %s", ("%⚓",))
            assert cursor.fetchall() == (("shop", 1, "Krusenštern ⚓"),)
            with pytest.raises(pymysql.err.ProgrammingError):
                cursor.execute("SELEKT")
            cursor.execute("SELECT REPEAT('x', 1000), seq FROM seq_1_to_20000")
            assert len(cursor.fetchall()) == 20000
            cursor.execute("DELETE FROM ship WHERE masts = 4 AND name <> 'Passat'")
            connection.commit()
        assert login.over().problem is None
    assert ships(server) == SHIPS


def test_session_options_of_the_client_library_are_applied(at: At) -> None:
    """They are the character set, and several statements in one query."""
    with (
        at("writer") as login,
        connected(login, charset="latin1", client_flag=CLIENT.MULTI_STATEMENTS) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT @@character_set_client, 'ä' = _latin1 x'e4'")
        assert cursor.fetchall() == (("latin1", 1),)
        cursor.execute("SELECT 1; SELECT 2")
        assert cursor.nextset()
        assert cursor.fetchall() == ((2,),)
    with at("writer") as login, connected(login) as connection:
        refused = pytest.raises(pymysql.err.ProgrammingError)
        with connection.cursor() as cursor, refused:
            cursor.execute("SELECT 1; SELECT 2")


@pytest.mark.parametrize(
    "flag", [CLIENT.COMPRESS, CLIENT.FOUND_ROWS, CLIENT.SSL, CLIENT.SESSION_TRACK, CLIENT.IGNORE_SPACE]
)
def test_client_options_that_the_stream_does_not_support_are_refused(at: At, flag: int) -> None:
    """The library shows the reason."""
    with at("writer") as login:
        with pytest.raises(pymysql.err.OperationalError, match="which this stream does not have"):
            pymysql.connect(user="x", password="y", defer_connect=True, client_flag=flag).connect(login.client)
        assert login.over().problem is Problem.NOT_ALLOWED


def test_read_only_mysql_logins_by_ed25519_or_native_password_can_read_but_not_write(at: At, server: MariaDB) -> None:
    """The server switches to MariaDB's ed25519 plugin; either account reads, and its DELETE is denied."""
    for user, mechanism in (("edwards", "client_ed25519"), ("reader", "mysql_native_password")):
        with at(user, details=READING) as login:
            assert login.logged_in().mechanism == mechanism
            with connected(login) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT name, masts FROM ship ORDER BY name")
                assert cursor.fetchall() == SHIPS
                with pytest.raises(pymysql.err.OperationalError, match="denied"):
                    cursor.execute("DELETE FROM ship")
    with at("edwards", "another") as login:
        assert login.failed().problem is Problem.REFUSED_CREDENTIAL
    assert ships(server) == SHIPS


def test_a_preview_needs_a_read_only_account(at: At) -> None:
    """MySQL has no transaction that would contain a preview: a CREATE TABLE commits it."""
    with at("reader", details=READING, reads_only=True) as login:
        login.logged_in()
    with at("writer", reads_only=True) as login:
        assert login.failed().problem is Problem.NOT_ALLOWED


@pytest.mark.parametrize(
    ("grant", "revoke", "named"),
    [
        ("GRANT INSERT ON shop.* TO reader", "REVOKE INSERT ON shop.* FROM reader", "INSERT ON `shop`.*"),
        ("GRANT UPDATE (masts) ON shop.ship TO reader", "REVOKE UPDATE (masts) ON shop.ship FROM reader", "UPDATE"),
        ("GRANT FILE ON *.* TO reader", "REVOKE FILE ON *.* FROM reader", "FILE"),
        ("GRANT captain TO reader", "REVOKE captain FROM reader", "a role"),
        (
            "GRANT EXECUTE ON FUNCTION shop.sink TO reader",
            "REVOKE EXECUTE ON FUNCTION shop.sink FROM reader",
            "something else",
        ),
        (
            "GRANT SELECT ON shop.* TO reader WITH GRANT OPTION",
            "REVOKE GRANT OPTION ON shop.* FROM reader",
            "GRANT OPTION",
        ),
        ("GRANT DELETE ON shop.* TO PUBLIC", "REVOKE DELETE ON shop.* FROM PUBLIC", "DELETE"),
    ],
)
def test_an_account_that_can_write_is_refused_for_a_read_only_login(
    at: At, server: MariaDB, grant: str, revoke: str, named: str
) -> None:
    """The login works again when the right is revoked."""
    server.run(grant)
    try:
        with at("reader", details=READING) as login:
            failed = login.failed()
        assert (failed.problem, named in failed.message) == (Problem.MAY_WRITE, True), failed
        with at("reader") as login:
            login.logged_in()
    finally:
        server.run(revoke)
    with at("reader", details=READING) as login:
        login.logged_in()


@pytest.mark.parametrize(
    ("user", "password", "database", "problem"),
    [
        ("writer", "another", "shop", Problem.REFUSED_CREDENTIAL),
        ("no_such_user", None, "shop", Problem.REFUSED_CREDENTIAL),
        ("locked", None, "shop", Problem.REFUSED_CREDENTIAL),
        ("writer", None, "nothing", Problem.NO_DATABASE),
        ("writer", "with\nline", "shop", Problem.UNUSABLE_CREDENTIAL),
    ],
)
def test_each_cause_of_a_failed_mysql_login_is_reported_as_its_own_problem(
    at: At, user: str, password: str | None, database: str, problem: Problem
) -> None:
    """`password` None stands for the right password."""
    with at(user, password or PASSWORD, details=LoginDetails(database=database)) as login:
        failed = login.failed()
        assert failed.problem is problem, failed


def test_too_many_connections_are_not_reported_as_a_wrong_password(at: At) -> None:
    """A wrong password would pause the account."""
    with at("crowded", details=LoginDetails()) as first:
        first.logged_in()
        with at("crowded", details=LoginDetails()) as second:
            assert second.failed().problem is Problem.CLOSED


def test_a_mysql_server_with_a_wrong_certificate_is_refused(at: At, server: MariaDB) -> None:
    """The certificate is another host's, or of an authority that nobody trusts."""
    with at("writer", host="db.example") as login:
        assert login.failed().problem is Problem.CERTIFICATE
    with At(server, None)("writer") as login:
        assert login.failed().problem is Problem.CERTIFICATE


@pytest.mark.parametrize("command", [0x11, 0x12, 0x15, 0x08, 0x1E])
def test_commands_for_another_login_or_for_replication_are_refused(at: At, command: int) -> None:
    """They are COM_CHANGE_USER, and requests for the server's binary log."""
    with at("writer") as login, connected(login) as connection:
        connection._execute_command(command, b"")
        assert login.over().problem is Problem.NOT_ALLOWED


# Scripted servers.


CHALLENGE: Final = b"abcdefghijklmnopqrst"
OFFERED: Final = 0x0FFFFFFF & ~CLIENT.SSL
Script = Callable[[socket.socket], None]


def greeting(plugin: str = "mysql_native_password", offered: int = OFFERED, version: bytes = b"8.0.36") -> bytes:
    """Return a greeting of MySQL 8."""
    body = (
        b"\x0a"
        + version
        + b"\0"
        + struct.pack("<I8sxHBHHB10x", 7, CHALLENGE[:8], offered & 0xFFFF, 45, 2, offered >> 16, 21)
    )
    return wire.packet(0, body + CHALLENGE[8:] + b"\0" + plugin.encode() + b"\0")


def heard(sock: socket.socket) -> bytes:
    """Return the next packet's body."""
    head = exactly(sock, 4)
    return exactly(sock, int.from_bytes(head[:3], "little"))


def exactly(sock: socket.socket, size: int) -> bytes:
    """Read exactly so many bytes: the following ones may be TLS."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise OSError("ended")
        data += more
    return data


@contextlib.contextmanager
def against(
    script: Script, *, encryption: str = "plain", ca_pem: str | None = None, **options: Any
) -> Iterator[LoginAt]:
    """Log in at a server that follows the script."""
    ours, service = socket.socketpair()
    ours.settimeout(10)

    def serve() -> None:
        with contextlib.suppress(OSError, ssl.SSLError), ours:
            script(ours)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    target = f"mysql+{encryption}://localhost:3306"
    with LoginAt(
        MysqlLogin, target, "me", PASSWORD.encode(), service=service, tls=trusting(ca_pem), **options
    ) as login:
        yield login
    thread.join(10)


def switch(plugin: bytes, challenge: bytes = CHALLENGE + b"\0") -> bytes:
    """Return an AuthSwitchRequest."""
    return b"\xfe" + plugin + b"\0" + challenge


@pytest.mark.parametrize(
    ("answer", "problem", "words"),
    [
        (b"\xfe", Problem.WEAK_LOGIN, "mysql_old_password"),
        (switch(b"mysql_clear_password"), Problem.WEAK_LOGIN, "mysql_clear_password"),
        (switch(b"dialog"), Problem.WEAK_LOGIN, "dialog"),
        (switch(b"mysql_old_password"), Problem.WEAK_LOGIN, "mysql_old_password"),
        (switch(b"sha256_password"), Problem.WEAK_LOGIN, "sha256_password"),
        (switch(b"client_ed25519", b"short"), Problem.PROTOCOL, "shorter"),
        (switch(b"caching_sha2_password"), Problem.WEAK_LOGIN, "there is no TLS"),
        (b"\x01\x04", Problem.PROTOCOL, "does not have"),
        (b"\x02next factor", Problem.PROTOCOL, "does not have"),
        (b"\xfb/etc/passwd", Problem.PROTOCOL, "does not have"),
        (b"\xff\x15\x04#28000no", Problem.REFUSED_CREDENTIAL, "does not accept"),
        (b"\xff", Problem.PROTOCOL, "error 0"),
    ],
)
def test_a_server_that_asks_for_an_unsupported_login_method_gets_no_password(
    answer: bytes, problem: Problem, words: str
) -> None:
    """The password is neither sent, nor encrypted with a key that the server chooses."""
    said: list[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.sendall(greeting())
        said.append(heard(sock))
        sock.sendall(wire.packet(2, answer))
        said.append(heard(sock))
        sock.sendall(wire.packet(4, b"\x01\x04"))
        said.append(heard(sock))

    with against(script) as login:
        failed = login.failed()
        assert (failed.problem, words in failed.message) == (problem, True), failed
    assert PASSWORD.encode() not in b"".join(said)
    assert native(PASSWORD.encode(), CHALLENGE) in said[0]


@pytest.mark.parametrize("remembers", [True, False])
def test_caching_sha2_password_sends_the_password_over_tls_only(authority: Authority, remembers: bool) -> None:
    """A server that has the account in its cache does not get the password at all."""
    context = authority.server_context("localhost")
    said: list[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.sendall(greeting("caching_sha2_password", OFFERED | CLIENT.SSL))
        assert len(heard(sock)) == 32
        with context.wrap_socket(sock, server_side=True) as tls:
            said.append(heard(tls))
            tls.sendall(wire.packet(3, b"\x01\x03" if remembers else b"\x01\x04"))
            if not remembers:
                said.append(heard(tls))
            tls.sendall(wire.packet(4 if remembers else 5, b"\0\0\0\x02\0\0\0"))
            heard(tls)

    with against(script, encryption="tls", ca_pem=authority.ca_pem) as login:
        assert login.logged_in().mechanism == "caching_sha2_password"
    assert sha2(PASSWORD.encode(), CHALLENGE) in said[0]
    assert PASSWORD.encode() not in said[0]
    assert said[1:] == ([] if remembers else [PASSWORD.encode() + b"\0"])


@pytest.mark.parametrize(
    ("greets", "problem"),
    [
        (greeting(), Problem.NOT_ENCRYPTED),
        (greeting(offered=OFFERED | CLIENT.SSL) + b"\x07\0\0\2\0\0\0\2\0\0\0", Problem.NOT_ENCRYPTED),
        (greeting(offered=CLIENT.SSL | CLIENT.PROTOCOL_41), Problem.WEAK_LOGIN),
        (greeting(version=b"8\n"), Problem.PROTOCOL),
        (wire.packet(0, b"\x09old"), Problem.PROTOCOL),
        (wire.packet(0, b"\x0a8.0"), Problem.PROTOCOL),
        (wire.packet(1, b"\x0a8.0"), Problem.PROTOCOL),
        (wire.packet(0, b"\xff\x10\x04Too many connections"), Problem.CLOSED),
        (wire.packet(0, b"\xff\x6a\x04Host is not allowed"), Problem.REFUSED_CREDENTIAL),
        (b"\xff\xff\xff\0" + b"x" * 100, Problem.PROTOCOL),
        (b"\0\0\0\0", Problem.PROTOCOL),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Problem.PROTOCOL),
    ],
)
def test_the_user_name_is_not_sent_before_tls(greets: bytes, problem: Problem) -> None:
    """Bytes from before TLS are not read as if they came after it, nor quoted."""
    said: list[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.sendall(greets)
        while more := sock.recv(4096):
            said.append(more)

    with against(script, encryption="tls") as login:
        failed = login.failed()
        assert (failed.problem, failed.said) == (problem, ""), failed
    assert b"me" not in b"".join(said)


def test_a_login_that_the_server_prolongs_without_end_is_ended() -> None:
    """The limit that ends the login may be on packets, bytes or rounds."""

    def script(sock: socket.socket) -> None:
        sock.sendall(greeting())
        for number in range(2, 1000, 2):
            heard(sock)
            sock.sendall(wire.packet(number, switch(b"mysql_native_password")))

    with against(script) as login:
        assert login.failed().problem is Problem.PROTOCOL


# Proofs and parsers.


def test_a_server_with_only_a_password_hash_or_public_key_can_verify_a_login_proof() -> None:
    """The server has only a hash of the password, or a public key."""
    password = b"correct horse"
    stored = hashlib.sha1(hashlib.sha1(password).digest()).digest()
    once = bytes(
        a ^ b for a, b in zip(native(password, CHALLENGE), hashlib.sha1(CHALLENGE + stored).digest(), strict=True)
    )
    assert hashlib.sha1(once).digest() == stored
    cached = hashlib.sha256(hashlib.sha256(password).digest()).digest()
    once = bytes(
        a ^ b for a, b in zip(sha2(password, CHALLENGE), hashlib.sha256(cached + CHALLENGE).digest(), strict=True)
    )
    assert hashlib.sha256(once).digest() == cached
    assert set(PROOFS) == {"mysql_native_password", "caching_sha2_password", "client_ed25519"}


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_mariadb_login_signature_is_an_ed25519_signature_as_in_rfc_8032(password: bytes, challenge: bytes) -> None:
    """A password of 32 bytes is an ordinary key, so another implementation signs the same."""
    key = Ed25519PrivateKey.from_private_bytes(password)
    signature = ed25519(password, challenge)
    assert signature == key.sign(challenge)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(signature, challenge + b"x")


COMMAND: Final = st.one_of(
    st.sampled_from([wire.packet(0, b"\x03SELECT 1"), wire.packet(0, b"\x0e"), wire.packet(0, b"\x01")]),
    st.binary(max_size=30).map(lambda data: wire.packet(0, b"\x16" + data)),
    st.tuples(st.integers(0, 2), st.binary(max_size=9)).map(lambda parts: wire.packet(*parts)),
)


def outcome(pieces: Iterable[bytes]) -> tuple[bytes, str]:
    """Return the bytes that passed to the server before the stream ended, and the reason for its end."""
    through = Commands()
    passed = b""
    try:
        for piece in pieces:
            for part in through.up(piece):
                assert isinstance(part, Passed)
                passed += part.to_server
    except LoginError as error:
        return passed, str(error)
    return passed, ""


@given(st.lists(COMMAND, max_size=8), st.data())
def test_the_filter_of_mysql_commands_does_not_depend_on_how_the_bytes_are_split(
    packets: list[bytes], data: st.DataObject
) -> None:
    """Even a part of a refused command must not have been passed on."""
    stream = b"".join(packets)
    pieces = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:size])
        stream = stream[size:]
    passed, why = outcome(pieces)
    bad = next((n for n, packet in enumerate(packets) if outcome([packet])[1]), None)
    assert bool(why) == (bad is not None)
    assert b"".join(packets[:bad]).startswith(passed)
    if not why:
        assert passed == b"".join(packets)


def test_only_the_first_packet_of_a_long_command_is_checked() -> None:
    """The second packet may begin with any byte: it is no command."""
    first = b"\xff\xff\xff\x00\x03" + b"x" * 0xFFFFFE
    rest = wire.packet(1, b"\x11change user")
    assert outcome([first + rest + wire.packet(0, b"\x0e")]) == (first + rest + wire.packet(0, b"\x0e"), "")
    assert outcome([first + rest + wire.packet(0, b"\x11")])[1].startswith("the command 0x11")
    assert outcome([first + wire.packet(1, b"") + wire.packet(0, b"\x11")])[1].startswith("the command 0x11")


@pytest.mark.parametrize(
    ("grant", "more"),
    [
        ("GRANT USAGE ON *.* TO `me`@`%` IDENTIFIED BY PASSWORD '*0123'", None),
        ("GRANT SELECT (`a`, `b``)`), SHOW VIEW ON `shop`.`ship` TO `me`@`%`", None),
        ("GRANT SELECT, INSERT (`a`) ON `shop`.`ship` TO `me`@`%`", "INSERT ON `shop`.`ship`"),
        ("GRANT ALL PRIVILEGES ON *.* TO `me`@`%`", "ALL PRIVILEGES ON *.*"),
        ("GRANT SELECT ON *.* TO `me`@`%` WITH GRANT OPTION", "GRANT OPTION ON *.*"),
        ("GRANT `captain` TO `me`@`%`", "a role"),
        ("GRANT `captain`@`%` TO `me`@`%`", "a role"),
        ("GRANT EXECUTE ON FUNCTION `shop`.`sink` TO `me`@`%`", "a role or something else"),
        ("GRANT PROXY ON ''@'%' TO 'me'@'%'", "a role or something else"),
        ("GRANT SELECT ON `a`.* TO `x` -- INSERT ON", None),
        ("SET DEFAULT ROLE `captain` FOR `me`@`%`", "a role"),
        ("", "a role"),
    ],
)
def test_a_line_of_show_grants_is_classified_as_read_only_or_writing(grant: str, more: str | None) -> None:
    """The password hash in a line is not quoted."""
    found = more_than_reading(grant)
    assert found is None if more is None else found is not None and found.startswith(more)


@given(st.text(max_size=60))
@example("GRANT SELECT ON `" + "``" * 5000)
@example("GRANT SELECT (" + "`a`, " * 5000)
def test_an_arbitrary_line_of_show_grants_is_never_classified_as_read_only(grant: str) -> None:
    """Long lines are classified in bounded time."""
    assert more_than_reading(grant) is not None
