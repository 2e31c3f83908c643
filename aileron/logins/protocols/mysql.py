"""Logs in at MySQL and MariaDB with TLS and a proof of the password, and answers a library's own login here.

    log_in   greeting ──► SSLRequest ──► TLS ──► user, database, proof ──► [another plugin ──► proof] ──► OK
    greet    a greeting of ours ──► any login of the library ──► OK

Runs in the process of one login. Trusts neither end.

Rules
- Both ends use the same protocol options: no compression, no files, no session state, the older form of the end of a result.
  So bytes that pass afterwards need no translation.
- TLS begins before the user name is sent. Unread bytes after the greeting at that time are an error.
- An authentication plugin is used if it proves the password without revealing the password (mysql_proofs.py). The password
  itself is sent in one step only, the full authentication of caching_sha2_password, over TLS; it is never encrypted with a key
  that the service supplies.
- User name and database come from the binding. From a library's login only two values are used: its character set, and the
  flag for several statements in one query.
- After the login, commands that log in again or copy the server's log are blocked.
- If an account was bound as read-only, its privileges are checked (mysql_rights.py). Only such an account can serve previews.

A service's requests for a file are not searched for, because LOCAL INFILE was not negotiated, and the connector has no files.

Source: MySQL's "Client/Server Protocol", chapters "Connection Phase" and "Command Phase"; MariaDB's "Connecting".
Not here: packets (mysql_wire.py).
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from aileron.logins.login_messages import MAX_WORDS, LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login, Passed
from aileron.logins.protocols import mysql_wire as wire
from aileron.logins.protocols import sasl
from aileron.logins.protocols.mysql_proofs import CHALLENGE_BYTES, PROOFS
from aileron.logins.protocols.mysql_rights import more_than_reading
from aileron.logins.side import Side
from aileron.logins.words import printable

__all__ = ["Commands", "MysqlLogin"]

# "Capabilities Flags"
_LONG_PASSWORD, _FOUND_ROWS, _LONG_FLAG, _WITH_DATABASE = 0x1, 0x2, 0x4, 0x8
_NO_SCHEMA, _COMPRESS, _PROTOCOL_41, _IGNORE_SPACE, _SSL = 0x10, 0x20, 0x200, 0x100, 0x800
_TRANSACTIONS, _SECURE, _MULTI_STATEMENTS = 0x2000, 0x8000, 0x10000
_MULTI_RESULTS, _PS_MULTI_RESULTS, _PLUGIN_AUTH = 0x20000, 0x40000, 0x80000
_SESSION_TRACK, _DEPRECATE_EOF, _OPTIONAL_METADATA = 0x800000, 0x1000000, 0x2000000
_ZSTD, _QUERY_ATTRIBUTES, _MULTI_FACTOR = 0x4000000, 0x8000000, 0x10000000

_SHARED: Final = (
    _LONG_PASSWORD
    | _LONG_FLAG
    | _PROTOCOL_41
    | _TRANSACTIONS
    | _SECURE
    | _MULTI_RESULTS
    | _PS_MULTI_RESULTS
    | _PLUGIN_AUTH
)
"""Capability flags that are used both with the service and with the connector's client library."""
_NEEDED: Final = _PROTOCOL_41 | _SECURE | _PLUGIN_AUTH
_OTHERWISE: Final = {
    _FOUND_ROWS: "CLIENT_FOUND_ROWS",
    _NO_SCHEMA: "CLIENT_NO_SCHEMA",
    _COMPRESS: "CLIENT_COMPRESS",
    _IGNORE_SPACE: "CLIENT_IGNORE_SPACE",
    _SSL: "CLIENT_SSL (TLS is the supervisor's)",
    _SESSION_TRACK: "CLIENT_SESSION_TRACK",
    _DEPRECATE_EOF: "CLIENT_DEPRECATE_EOF",
    _OPTIONAL_METADATA: "CLIENT_OPTIONAL_RESULTSET_METADATA",
    _ZSTD: "CLIENT_ZSTD_COMPRESSION_ALGORITHM",
    _QUERY_ATTRIBUTES: "CLIENT_QUERY_ATTRIBUTES",
    _MULTI_FACTOR: "MULTI_FACTOR_AUTHENTICATION",
}
"""Capability flags that are not offered because they would change the bytes that follow, or their meaning. A library
that follows the protocol uses only flags that are offered.
"""
_UTF8MB4: Final = 45
_MAX_STATEMENT: Final = 1 << 30
"""Maximum packet size in bytes that we announce as a client; the server has its own limit (max_allowed_packet)."""
_MAX_STEPS: Final = 6
_MAX_ROWS: Final = 500
_NATIVE: Final = "mysql_native_password"
_SHA2: Final = "caching_sha2_password"
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}")

_REFUSED: Final = frozenset({1045, 1130, 1698, 1820, 1862, 3118, 3955, 4151, 4161})
"""Error numbers for a refused credential: ER_ACCESS_DENIED_ERROR, ER_HOST_NOT_PRIVILEGED, ER_ACCESS_DENIED_NO_PASSWORD_ERROR,
and the numbers for expired passwords and locked accounts.
"""
_NO_DATABASE: Final = frozenset({1044, 1049})
_BUSY: Final = frozenset({1040, 1129, 1203, 1226})
"""Error numbers for a busy server: ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED, ER_TOO_MANY_USER_CONNECTIONS,
ER_USER_LIMIT_REACHED.
"""


class _Greeting(NamedTuple):
    version: bytes
    thread: int
    challenge: bytes
    offered: int
    plugin: str


class MysqlLogin(Login):
    """The login to MySQL or MariaDB for one session."""

    can_read_only = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._greeting: _Greeting | None = None

    def log_in(self, server: Side) -> None:
        """Begin TLS and prove the password. If the account was bound as read-only, check that it has only privileges to read."""
        credential = sasl.Credential.of(self.order)
        if credential.kind != "password":
            raise LoginError(Problem.UNUSABLE_CREDENTIAL, "MySQL is logged in at with a password, not with a token")
        if self.order.reads_only and not self.order.details.read_only:
            raise LoginError(
                Problem.NOT_ALLOWED,
                "MySQL has no transaction that keeps a preview from writing: a preview needs an account that only reads, "
                "bound with --read-only, and an operation that says so",
            )
        database = self.order.details.database or ""
        if not all(char.isprintable() for char in database):
            raise LoginError(Problem.UNUSABLE_CREDENTIAL, "the database's name has a character that no name has")
        greeting = self._greeting = _read_greeting(server)
        number = 1
        flags = _SHARED | (_WITH_DATABASE if database else 0)
        if self.order.target.encryption != "plain":
            flags |= _SSL
            if not greeting.offered & _SSL:
                raise LoginError(
                    Problem.NOT_ENCRYPTED, "the service speaks no TLS: set ssl_cert and ssl_key in its configuration"
                )
            server.write(wire.packet(number, _client_head(flags)))
            server.start_tls()
            number += 1
        plugin = greeting.plugin if greeting.plugin in PROOFS else _NATIVE
        proof = PROOFS[plugin](credential.secret.encode(), greeting.challenge)
        self.mechanism = plugin
        words = credential.username.encode() + b"\0" + bytes([len(proof)]) + proof
        words += (database.encode() + b"\0" if database else b"") + plugin.encode() + b"\0"
        server.write(wire.packet(number, _client_head(flags) + words))
        self._prove(server, number + 1, credential.secret.encode())
        if self.order.details.read_only:
            self._check_reads_only(server)

    def greet(self, client: Side, server: Side) -> Filter:
        """Greet the connector's client library with a challenge of Aileron's own. Return the filter for the stream. The
        library's response to the challenge is not checked.
        """
        greeting = self._greeting
        assert greeting is not None
        client.write(wire.packet(0, _our_greeting(greeting)))
        said = wire.read(client, 1)
        flags, character_set = struct.unpack_from("<I4xB", said.ljust(9, b"\0"))
        unwanted = [name for flag, name in _OTHERWISE.items() if flags & flag]
        if len(said) < 32 or not flags & _PROTOCOL_41 or unwanted:
            asked = ", ".join(unwanted) or "a protocol before 4.1"
            words = f"the connector's library asked for {asked}, which this stream does not have"
            client.write(wire.failure_packet(2, 1043, "08S01", words))
            raise LoginError(Problem.NOT_ALLOWED, words)
        try:
            if character_set != _UTF8MB4:
                _set_names(server, character_set)
            if flags & _MULTI_STATEMENTS:
                _carry_out(server, b"\x1b" + struct.pack("<H", 0))
        except LoginError as problem:
            client.write(wire.failure_packet(2, 1043, "08S01", str(problem)))
            raise
        client.write(wire.packet(2, b"\0\0\0\x02\0\0\0"))
        return Commands()

    def _prove(self, server: Side, number: int, password: bytes) -> None:
        """Answer the service's packets until it accepts the login. It can first ask for the proof of another
        authentication plugin. Raises LoginError if the login fails.
        """
        for _ in range(_MAX_STEPS):
            said = wire.read(server, number)
            match said[0]:
                case 0x00:
                    return
                case 0xFF:
                    raise _refused(wire.failure_of(said))
                case 0xFE:
                    answer: bytes | None = self._switched(said, password)
                case 0x01 if self.mechanism == _SHA2:
                    answer = self._full(server, said[1:], password)
                case _:
                    raise LoginError(Problem.PROTOCOL, "the service asked for something that its login does not have")
            number += 1
            if answer is not None:
                server.write(wire.packet(number, answer))
                number += 1
        raise LoginError(Problem.PROTOCOL, f"the service asked more than {_MAX_STEPS} times for a proof")

    def _switched(self, said: bytes, password: bytes) -> bytes:
        reader = wire.Reader(said[1:])
        plugin = reader.string().decode("ascii", "replace") if len(said) > 1 else "mysql_old_password"
        if plugin not in PROOFS:
            shown = printable(plugin)[:60]
            raise LoginError(
                Problem.WEAK_LOGIN,
                f"the service wants the plugin {shown}, which shows the password or is not known here; "
                f"change the user's to one of {', '.join(PROOFS)}",
            )
        self.mechanism = plugin
        return PROOFS[plugin](password, reader.take(CHALLENGE_BYTES[plugin]))

    def _full(self, server: Side, said: bytes, password: bytes) -> bytes | None:
        """Return the second response of the plugin caching_sha2_password: None if the service already knows the
        password, otherwise the password itself. `said` is the service's message.
        """
        if said == b"\x03":
            return None
        if said != b"\x04":
            raise LoginError(Problem.PROTOCOL, "the service asked for something that its login does not have")
        if not server.is_encrypted:
            raise LoginError(
                Problem.WEAK_LOGIN, "the service wants the password itself (caching_sha2_password), and there is no TLS"
            )
        self.sent_in_clear = (password,)
        return password + b"\0"

    def _check_reads_only(self, server: Side) -> None:
        questions = ["SHOW GRANTS FOR CURRENT_USER"]
        assert self._greeting is not None
        if _has_public(self._greeting.version):
            questions.append("SHOW GRANTS FOR PUBLIC")
        for question in questions:
            grants = _ask(server, question)
            if not grants and question == questions[0]:
                raise LoginError(
                    Problem.MAY_WRITE, "whether the account only reads cannot be asked: SHOW GRANTS is empty"
                )
            for grant in grants:
                more = more_than_reading(grant[0].decode("utf-8", "replace"))
                if more is not None:
                    raise LoginError(
                        Problem.MAY_WRITE,
                        f"the account is bound as one that only reads, but it has {more}; "
                        "as an administrator: REVOKE it, and GRANT SELECT alone"[:MAX_WORDS],
                    )


class Commands(Filter):
    """The filter of the connector's packets: a packet's first byte is a command, and only the commands in `_ALLOWED` pass."""

    def __init__(self) -> None:
        self._waiting = b""
        self._left = 0
        self._goes_on = False
        self._is_over = False

    @property
    def has_said_goodbye(self) -> bool:
        """True once COM_QUIT was sent. MariaDB then closes the connection without ending TLS."""
        return self._is_over

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass the bytes of packets whose command is allowed. Raises LoginError(not_allowed) for any other command."""
        data = self._waiting + data
        at = 0
        while True:
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step
            if self._left or not self._has_head(data, at):
                break
            size = int.from_bytes(data[at : at + 3], "little")
            if not self._goes_on:
                command = data[at + 4] if size else -1
                _check_command(data[at + 3], command)
                self._is_over = command == _QUIT
            self._goes_on = size == wire.GOES_ON
            self._left = size
            at += 4
        self._waiting = data[at:]
        return (Passed(to_server=data[:at]),)

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the service's bytes to the connector unchanged."""
        return (Passed(to_client=data),)

    def _has_head(self, data: bytes, at: int) -> bool:
        """Return whether the head of the packet at index `at` is complete, including the command byte if the packet has
        one.
        """
        has_none = self._goes_on or data[at : at + 3] == b"\0\0\0"
        return len(data) - at >= (4 if has_none else 5)


_QUIT: Final = 0x01
_ALLOWED: Final = frozenset(
    {
        _QUIT,
        0x02,  # COM_INIT_DB
        0x03,  # COM_QUERY
        0x04,  # COM_FIELD_LIST
        0x09,  # COM_STATISTICS
        0x0A,  # COM_PROCESS_INFO
        0x0E,  # COM_PING
        0x16,  # COM_STMT_PREPARE
        0x17,  # COM_STMT_EXECUTE
        0x18,  # COM_STMT_SEND_LONG_DATA
        0x19,  # COM_STMT_CLOSE
        0x1A,  # COM_STMT_RESET
        0x1B,  # COM_SET_OPTION
        0x1C,  # COM_STMT_FETCH
        0x1F,  # COM_RESET_CONNECTION
        0xFA,  # COM_STMT_BULK_EXECUTE, MariaDB's
    }
)
"""Numbers of the commands that may pass to the service. COM_CHANGE_USER, COM_BINLOG_DUMP and similar commands,
COM_REGISTER_SLAVE and COM_SHUTDOWN are excluded.
"""


def _check_command(number: int, command: int) -> None:
    if number or command not in _ALLOWED:
        packet = "a packet that begins no command" if number or command < 0 else f"the command {command:#04x}"
        raise LoginError(Problem.NOT_ALLOWED, f"{packet} is not passed on in a stream that is logged in")


def _read_greeting(server: Side) -> _Greeting:
    said = wire.read(server, 0)
    if said[0] == 0xFF:
        failure = wire.failure_of(said)
        if failure.number in _BUSY:
            raise LoginError(Problem.CLOSED, "the service has too many connections, or has blocked this machine")
        raise LoginError(
            Problem.REFUSED_CREDENTIAL, f"the service greets with error {failure.number}"
        )  # not encrypted yet, so its words are not quoted
    if said[0] != 10:
        raise LoginError(Problem.PROTOCOL, "the service does not greet as MySQL does")
    reader = wire.Reader(said[1:])
    version, thread, first = reader.string(), reader.number(4), reader.take(8)
    reader.take(1)
    offered = reader.number(2)
    reader.take(3)
    offered |= reader.number(2) << 16
    if offered & _NEEDED != _NEEDED:
        raise LoginError(Problem.WEAK_LOGIN, "the service is older than the logins that are used here")
    reader.take(11)
    challenge = first + reader.take(12)
    reader.take(1)
    plugin = reader.string().decode("ascii", "replace")
    if len(version) > 100 or not version.isascii() or not version.decode("ascii").isprintable():
        raise LoginError(Problem.PROTOCOL, "the service names a version that is none")
    return _Greeting(version, thread, challenge, offered, plugin)


def _our_greeting(greeting: _Greeting) -> bytes:
    challenge = secrets.token_bytes(20).replace(b"\0", b"\1")  # no zero byte: some libraries read it as a string
    offered = _SHARED | _WITH_DATABASE | _MULTI_STATEMENTS
    return (
        b"\x0a"
        + greeting.version
        + b"\0"
        + struct.pack("<I8sxHBHHB10x", greeting.thread, challenge[:8], offered & 0xFFFF, _UTF8MB4, 2, offered >> 16, 21)
        + challenge[8:]
        + b"\0"
        + _NATIVE.encode()
        + b"\0"
    )


def _client_head(flags: int) -> bytes:
    return struct.pack("<IIB23x", flags, _MAX_STATEMENT, _UTF8MB4)


def _carry_out(server: Side, command: bytes) -> None:
    server.write(wire.packet(0, command))
    if wire.read(server, 1)[0] == 0xFF:
        raise LoginError(
            Problem.PROTOCOL, "the service does not take what the connector's library asked for in its login"
        )


def _set_names(server: Side, number: int) -> None:
    """Set the character set that belongs to the collation with this number. Raises LoginError if the service knows no
    such collation, or refuses the character set.
    """
    sql = "SELECT CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID = "
    found = _ask(server, sql + str(number))
    names = [name.decode("ascii", "replace") for name in found[0]] if found else []
    if len(names) != 2 or not all(_NAME.fullmatch(name) for name in names):
        raise LoginError(Problem.NOT_ALLOWED, f"the service has no character set of number {number}")
    _carry_out(server, f"\x03SET NAMES {names[0]} COLLATE {names[1]}".encode())


def _ask(server: Side, sql: str) -> list[list[bytes]]:
    """Send an SQL query to the service and return its rows, with NULL as empty bytes. Raises LoginError if the query
    fails.
    """
    server.write(wire.packet(0, b"\x03" + sql.encode()))
    said = wire.read(server, 1)
    if said[0] == 0xFF:
        raise LoginError(
            Problem.PROTOCOL, "the service did not answer a question", wire.failure_of(said).said[:MAX_WORDS]
        )
    count, number = said[0], 2
    if not 1 <= count <= 10 or len(said) != 1:
        raise LoginError(Problem.PROTOCOL, "the service answered something else than rows")
    rows: list[list[bytes]] = []
    ends = 0
    for _ in range(_MAX_ROWS):
        body = wire.read(server, number)
        number += 1
        if body[0] == 0xFF:
            raise LoginError(Problem.PROTOCOL, "the service did not finish its answer")
        if body[0] == 0xFE and len(body) < 9:
            ends += 1
            if ends == 2:
                return rows
        elif ends:
            reader = wire.Reader(body)
            rows.append([reader.counted() or b"" for _ in range(count)])
    raise LoginError(Problem.PROTOCOL, f"the service answered more than {_MAX_ROWS} rows")


def _has_public(version: bytes) -> bool:
    """Return whether the server is MariaDB 10.11 or later, which lists the privileges of everyone (PUBLIC) separately."""
    found = re.search(rb"(\d+)\.(\d+)\.\d+-MariaDB", version)
    return found is not None and (int(found[1]), int(found[2])) >= (10, 11)


def _refused(failure: wire.Failure) -> LoginError:
    said = failure.said[:MAX_WORDS]
    if failure.number in _REFUSED:
        return LoginError(Problem.REFUSED_CREDENTIAL, "the service does not accept the user name and password", said)
    if failure.number in _NO_DATABASE:
        return LoginError(
            Problem.NO_DATABASE,
            "the service has no such database for this user",
            said,
        )
    if failure.number in _BUSY:
        return LoginError(Problem.CLOSED, "the service has too many connections, or has blocked this machine", said)
    return LoginError(Problem.PROTOCOL, f"the service ended the login with error {failure.number}", said)
