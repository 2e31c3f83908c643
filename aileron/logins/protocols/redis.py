r"""Logs in at Redis and compatible servers with TLS and an ACL user's `AUTH`, and replaces every later `AUTH` by this `AUTH`.

    AUTH anything anything                       AUTH user secret
    HELLO 3 AUTH anything anything SETNAME me    HELLO 3 SETNAME me
    everything else                              unchanged

A client's `AUTH` is not answered here. An `AUTH` with the binding's credential is sent in its place, so that the server
answers in order, after all earlier commands. So a client can log in at any time, also after `RESET`, and always becomes the
same user.

Runs in the process of one login. The filter is active for as long as the stream lasts. It reads the beginning and the name of
each command, and skips the arguments.

Rules
- The server must be Redis 6 or newer, which has users. An older server refuses `AUTH` with a user name, and the error then
  says that the server is too old.
- A client can send commands as libraries write them, or inline commands without quotes. Bytes that a server could read in
  another way end the stream.
- No bytes pass that a server treats as a protocol error, because the server would log the bytes that follow in its buffer
  (setProtocolError), which could be our `AUTH`. Between `RESET` and the next `AUTH`, commands must keep the server's limits
  for unauthenticated clients.
- At most MAX_HELD bytes wait for the rest of a command.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/, .../commands/auth/, .../commands/hello/. Not here: the
user's rights, which the server's ACL sets: `ACL`, `CONFIG` and `SELECT` pass like any command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from aileron.logins.login_messages import LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login, Passed
from aileron.logins.side import Side

__all__ = ["MAX_HELD", "Commands", "RedisLogin", "command"]

MAX_HELD: Final = 64 << 10
"""Maximum size in bytes of an inline command (the server's own limit), and of an `AUTH` or `HELLO` with a password."""
_MAX_HEAD: Final = 64
"""Maximum number of bytes before the name of a command: two numbers of ten digits each."""
_MAX_ARGUMENT: Final = 512 << 20
"""Maximum size of an argument in bytes: the server's limit (proto-max-bulk-len)."""
_MAX_ARGUMENTS: Final = 1 << 20
"""Maximum number of arguments of a command: the limit of Redis before version 7."""
_NOBODYS_ARGUMENTS: Final = 10
_NOBODYS_ARGUMENT: Final = 16 << 10
"""Limits that a server enforces for a client before its login (processMultibulkBuffer): the maximum number of arguments of a
command, and the maximum size of an argument in bytes.
"""
_HEAD: Final = re.compile(rb"\*(0|[1-9][0-9]{0,6})\r\n")
_LENGTH: Final = re.compile(rb"\$(0|[1-9][0-9]{0,8})\r\n")
_DATABASE: Final = re.compile(r"0|[1-9][0-9]{0,5}")
_READ_HERE: Final = frozenset({b"AUTH", b"HELLO"})


class RedisLogin(Login):
    """The login to Redis: `AUTH`, and `SELECT` if the binding specifies a database number."""

    def log_in(self, server: Side) -> None:
        """Log in with `AUTH`, and select the binding's database. Raises LoginError if the login fails."""
        database = self.order.details.database
        if database is not None and not _DATABASE.fullmatch(database):
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL,
                "a database of redis is a number, such as 0; bind the credential again with --database NUMBER",
            )
        if max(len(self.order.secret), len(self.order.username.encode())) > _NOBODYS_ARGUMENT:
            raise LoginError(
                Problem.UNUSABLE_CREDENTIAL,
                f"redis takes a user name and a password of at most {_NOBODYS_ARGUMENT >> 10} KiB",
            )
        if self.order.target.encryption == "tls":
            server.start_tls()
        self.sent_in_clear = (self.order.secret,)
        self.mechanism = "AUTH"
        server.write(_own_auth(self.order))
        if (said := _reply(server)) is not None:
            raise _not_logged_in(said)
        if database is not None:
            server.write(command(b"SELECT", database.encode()))
            if (said := _reply(server)) is not None:
                raise LoginError(
                    Problem.UNUSABLE_CREDENTIAL, f"the server does not let this user use database {database}", said
                )

    def greet(self, client: Side, server: Side) -> Filter:
        """Return the filter immediately: a client can log in at any time, or not at all."""
        return Commands(_own_auth(self.order))


class Commands(Filter):
    """The filter of the commands that the connector's client library sends. It replaces each `AUTH` by `own_auth`, the
    `AUTH` with the binding's credential.
    """

    def __init__(self, own_auth: bytes) -> None:
        self._own_auth: Final = own_auth
        self._held = b""
        self._arguments = 0
        """Number of arguments of the current command that are still to come."""
        self._payload = -1
        """Number of bytes of the current argument that are still to come; -1 between two arguments."""
        self._is_nobody = False
        """True from a RESET, which logs the client out, until its next login. In this time the server accepts only
        small commands.
        """

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass commands according to the module's rules. Raises LoginError(not_allowed) for bytes that are not a command, or a
        command that is too long.
        """
        data, self._held = self._held + data, b""
        passed: list[bytes] = []
        at = 0
        while at < len(data):
            if self._payload >= 0 or self._arguments:
                end = self._pass_argument(data, at)
                piece = data[at:end]
            else:
                end, piece = self._begin(data, at)
            if end == at:
                self._hold(data[at:])
                break
            passed.append(piece)
            at = end
        if not passed:
            return ()
        return (Passed(to_server=b"".join(passed)),)

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the server's bytes to the client unchanged."""
        return (Passed(to_client=data),)

    def _hold(self, rest: bytes) -> None:
        if len(rest) > MAX_HELD:
            raise _no_command(f"one of more than {MAX_HELD} bytes where it has to be read")
        self._held = rest

    def _pass_argument(self, data: bytes, at: int) -> int:
        """Return the end of the bytes from `at` on that belong to an argument and can pass, or `at` if more bytes are
        needed first.
        """
        if self._payload < 0:
            found = _LENGTH.match(data, at)
            if found is None:
                _check_may_become(data, at, b"$")
                return at
            self._payload = _length(found[1])
            self._check_taken(1, self._payload)
            self._arguments -= 1
            return found.end()
        if self._payload:
            taken = min(self._payload, len(data) - at)
            self._payload -= taken
            return at + taken
        if len(data) - at < 2:
            return at
        if not data.startswith(b"\r\n", at):
            raise _no_command("an argument that is longer than it said")
        self._payload = -1
        return at + 2

    def _begin(self, data: bytes, at: int) -> tuple[int, bytes]:
        """Read the beginning of the command at `at`. Return the position of the end of what was read, or `at` if more
        bytes are needed, and the bytes to send in place of what was read.
        """
        if data[at] != 0x2A:
            return self._inline(data, at)
        head = _HEAD.match(data, at)
        if head is None:
            _check_may_become(data, at, b"*")
            return at, b""
        if head[1] == b"0":
            return head.end(), b""
        length = _LENGTH.match(data, head.end())
        if length is None:
            _check_may_become(data, head.end(), b"$")
            return at, b""
        size = _length(length[1])
        if size in (4, 5) and len(data) - length.end() < size:
            return at, b""
        name = data[length.end() : length.end() + size].upper() if size in (4, 5) else b""
        if name in _READ_HERE:
            return self._read_whole(data, at)
        self._check_taken(int(head[1]), size)
        self._is_nobody |= name == b"RESET"
        self._arguments = int(head[1]) - 1
        self._payload = size
        return length.end(), data[at : length.end()]

    def _read_whole(self, data: bytes, at: int) -> tuple[int, bytes]:
        found = _arguments(data, at)
        if found is None:
            return at, b""
        arguments, end = found
        return end, self._instead(arguments)

    def _inline(self, data: bytes, at: int) -> tuple[int, bytes]:
        end = data.find(b"\n", at, at + MAX_HELD)
        if end < 0:
            if len(data) - at >= MAX_HELD:
                raise _no_command(f"a line of more than {MAX_HELD} bytes")
            return at, b""
        line = data[at:end].removesuffix(b"\r")
        if any(byte < 0x20 and byte != 0x09 for byte in line):
            raise _no_command("a line with control characters")
        words = line.split()
        if not words:
            return end + 1, b""
        name = words[0].upper()
        if name != b"AUTH" and _has_quotes(line):
            raise _no_command("a line with quotes")
        self._is_nobody |= name == b"RESET"
        return end + 1, self._instead(words) if name in _READ_HERE else data[at : end + 1]

    def _check_taken(self, arguments: int, longest: int) -> None:
        """Raise LoginError if this number of arguments, or an argument of this size, would be a protocol error for the
        server.
        """
        if arguments > (_NOBODYS_ARGUMENTS if self._is_nobody else _MAX_ARGUMENTS):
            raise _no_command("a command with more arguments than the server takes")
        if longest > (_NOBODYS_ARGUMENT if self._is_nobody else _MAX_ARGUMENT):
            raise _no_command("a longer argument than the server takes")

    def _instead(self, arguments: Sequence[bytes]) -> bytes:
        if arguments[0].upper() == b"AUTH":
            self._is_nobody = False
            return self._own_auth
        hello = _without_auth(arguments)
        self._check_taken(len(hello), max(map(len, hello)))
        return command(*hello)


def command(*arguments: bytes) -> bytes:
    r"""Return a Redis command in the form in which libraries write commands (RESP).

    >>> command(b"SELECT", b"0")
    b'*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n'
    """
    return b"*%d\r\n" % len(arguments) + b"".join(
        b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments
    )


def _own_auth(order: Order) -> bytes:
    return command(b"AUTH", order.username.encode(), order.secret)


def _reply(server: Side) -> str | None:
    """Read the server's reply to a command. Return its error message, or None if it replied OK. Raises LoginError for
    any other reply.
    """
    line = server.line()
    if line.startswith(b"-"):
        return line[1:].decode("ascii", "replace")
    if line != b"+OK":
        raise LoginError(Problem.PROTOCOL, "the service's answer is not one of redis")
    return None


def _not_logged_in(said: str) -> LoginError:
    match said.split(" ")[0]:
        case "WRONGPASS":
            return LoginError(
                Problem.REFUSED_CREDENTIAL, "the server refuses the user name and password, or the user is off", said
            )
        case "LOADING" | "MASTERDOWN":
            return LoginError(Problem.CLOSED, "the server is not ready yet", said)
        case "DENIED":
            return LoginError(Problem.PROTOCOL, "the server is in protected mode: it has no password to check", said)
        case "ERR" if "wrong number of arguments" in said or "without any password" in said:
            return LoginError(Problem.PROTOCOL, "the server has no users: it is older than Redis 6, or has none", said)
        case "ERR" if "max number of clients" in said:
            return LoginError(Problem.CLOSED, "the server has no room for another client", said)
    return LoginError(Problem.PROTOCOL, "the server did not let the user log in", said)


def _without_auth(hello: Sequence[bytes]) -> list[bytes]:
    """Return `HELLO [version [AUTH user password] [SETNAME name]]` without the part that logs in."""
    kept = list(hello[:2])
    at = 2
    while at < len(hello):
        if hello[at].upper() == b"AUTH":
            at += 3
        elif hello[at].upper() == b"SETNAME":
            kept += hello[at : at + 2]
            at += 2
        else:
            raise _no_command("a HELLO with something that is not known")
    if at > max(2, len(hello)):
        raise _no_command("a HELLO that breaks off")
    return kept


def _arguments(data: bytes, at: int) -> tuple[list[bytes], int] | None:
    """Return all arguments of the command at `at` and the position of its end, or None if more bytes are needed."""
    head = _HEAD.match(data, at)
    assert head is not None
    count, end = int(head[1]), head.end()
    found: list[bytes] = []
    for _ in range(count):
        length = _LENGTH.match(data, end)
        if length is None:
            _check_may_become(data, end, b"$")
            return None
        begins, ends = length.end(), length.end() + _length(length[1])
        if ends - at > MAX_HELD:
            raise _no_command(f"an AUTH or HELLO of more than {MAX_HELD} bytes")
        if len(data) < ends + 2:
            return None
        if not data.startswith(b"\r\n", ends):
            raise _no_command("an argument that is longer than it said")
        found.append(data[begins:ends])
        end = ends + 2
    return found, end


def _length(digits: bytes) -> int:
    size = int(digits)
    if size > _MAX_ARGUMENT:
        raise _no_command("an argument of more than 512 MiB")
    return size


def _check_may_become(data: bytes, at: int, kind: bytes) -> None:
    """Raise LoginError unless the bytes from `at` on can be the beginning of a header: `kind`, a number and CRLF."""
    rest = data[at : at + _MAX_HEAD]
    if rest and (not rest.startswith(kind) or not re.fullmatch(rb"[$*](?:0|[1-9][0-9]{0,8})?\r?", rest)):
        raise _no_command("something that is not the protocol of redis")


def _has_quotes(text: bytes) -> bool:
    return b'"' in text or b"'" in text


def _no_command(sent: str) -> LoginError:
    return LoginError(Problem.NOT_ALLOWED, f"the connector sent {sent}; send commands as a client library writes them")
