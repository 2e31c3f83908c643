"""Logs in over POP3, then passes every command except a second login; in a preview, only commands that read.

    service ◄── TLS or STLS, CAPA, AUTH or USER and PASS ── log_in
    library ──► +OK, CAPA, and its own USER and PASS, APOP or AUTH are answered here ── greet
                the service's output passes unchanged, commands line by line

Runs in the process of one login. Trusts neither end.

Rules
- APOP is not used, because it is MD5 over a challenge that an attacker on the network path can choose (RFC 1939 section 7, RFC
  8314 section 3).
- Only the mechanisms that the service lists after TLS are used.
- A command that logs in again ends the stream.
- A preview can use neither DELE nor RETR. After RETR some services mark a message as read or archive it; TOP returns the same
  contents.

Source: RFC 1939, RFC 2449 (CAPA), RFC 2595 (STLS), RFC 5034 (AUTH). Not here: mechanisms (sasl.py), the contents of a mailbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from aileron.logins.login_messages import LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login, Passed
from aileron.logins.protocols import sasl
from aileron.logins.side import Side

__all__ = ["Pop3Filter", "Pop3Login"]

_MAX_COMMAND: Final = 255
"""Maximum size in bytes of a command to the service, with CR LF (RFC 2449 section 4). An initial response that does not fit
is sent separately.
"""
_MAX_LINE: Final = 4096
"""Maximum size of a library's command in bytes."""
_MAX_CAPABILITIES: Final = 100
_OFFERED: Final = frozenset("TOP UIDL RESP-CODES PIPELINING EXPIRE LOGIN-DELAY IMPLEMENTATION AUTH-RESP-CODE".split())
"""Capabilities of the service that are also offered to the library. UTF8 and LANG are missing because a client requests them
before a login, and the service's login is already over.
"""
_OTHER_LOGINS: Final = frozenset({b"USER", b"PASS", b"APOP", b"AUTH", b"STLS"})
_READING: Final = frozenset(b"STAT LIST UIDL TOP NOOP CAPA LAST RSET QUIT".split())


class Pop3Login(Login):
    """The login to one account over POP3."""

    can_read_only: ClassVar[bool] = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._capabilities: dict[str, str] = {}

    def log_in(self, server: Side) -> None:
        """Read the greeting, begin TLS, and log in with the strongest mechanism. Raises LoginError if the login fails."""
        credential = sasl.Credential.of(self.order)
        encryption = self.order.target.encryption
        if encryption == "tls":
            server.start_tls()
        is_ok, said = _answer(server)
        if not is_ok:
            raise LoginError(Problem.CLOSED, "the service takes no connection now", sasl.words(said))
        if encryption == "starttls":
            _start_tls(server)
        self._capabilities = _ask_capabilities(server)
        offered = self._capabilities.get("SASL", "").split()
        exchange = sasl.choose(credential, offered, server, is_plain=encryption == "plain")
        if exchange is not None:
            self._authenticate(server, exchange)
        elif self._may_command(credential, server):
            self._command(server, credential)
        else:
            raise sasl.no_mechanism(credential, offered, server)

    def _may_command(self, credential: sasl.Credential, server: Side) -> bool:
        """Return whether the commands USER and PASS can be used to log in. A service that supports CAPA lists USER if
        it supports USER (RFC 2449 section 6.3).
        """
        may_show = server.is_encrypted or self.order.target.encryption == "plain"
        return credential.kind == "password" and may_show and (not self._capabilities or "USER" in self._capabilities)

    def _authenticate(self, server: Side, exchange: sasl.Exchange) -> None:
        self.mechanism = exchange.name
        self.sent_in_clear = exchange.in_clear()
        first = exchange.first()
        command = b"AUTH " + exchange.name.encode()
        if first is not None and len(command) + 3 + len(sasl.encode(first)) <= _MAX_COMMAND:
            command, first = command + b" " + (sasl.encode(first) or b"="), None
        server.write(command + b"\r\n")
        sasl.show(exchange, lambda data: server.write(sasl.encode(data) + b"\r\n"), lambda: _hear(server), first)

    def _command(self, server: Side, credential: sasl.Credential) -> None:
        self.mechanism = "USER and PASS"
        self.sent_in_clear = (credential.secret.encode(),)
        for command in (b"USER " + credential.username.encode(), b"PASS " + credential.secret.encode()):
            server.write(command + b"\r\n")
            is_ok, said = _answer(server)
            if not is_ok:
                raise sasl.refused(Problem.REFUSED_CREDENTIAL, said)

    def greet(self, client: Side, server: Side) -> Filter:
        """Greet the library with +OK, accept its login with any user name and password, and return the filter for the
        stream.

        Raises LoginError if a line from the library is too long or does not arrive.
        """
        client.write(b"+OK logged in outside of the jail; any user name and password will do\r\n")
        while True:
            words = client.line().split()
            if words[:1] and words[0].upper() == b"QUIT":
                server.write(b"QUIT\r\n")
                break
            if _answer_library(client, words, _offered(self._capabilities)):
                break
        return Pop3Filter(reads_only=self.order.reads_only)


def _answer(server: Side) -> tuple[bool, bytes]:
    line = server.line()
    status, _, said = line.partition(b" ")
    if status not in (b"+OK", b"-ERR"):
        raise LoginError(Problem.PROTOCOL, "the service's answer is not one of POP3")
    return status == b"+OK", said


def _hear(server: Side) -> sasl.Answer:
    line = server.line()
    status, _, said = line.partition(b" ")
    match status:
        case b"+":
            return sasl.Challenge(sasl.decode(said))
        case b"+OK":
            return sasl.Accepted()
        case b"-ERR":
            return sasl.Rejected(Problem.REFUSED_CREDENTIAL, said)
        case _:
            raise LoginError(Problem.PROTOCOL, "the service's answer is not one of POP3")


def _start_tls(server: Side) -> None:
    server.write(b"STLS\r\n")
    is_ok, said = _answer(server)
    if not is_ok:
        raise LoginError(
            Problem.NOT_ENCRYPTED, "the service does not begin TLS, or somebody on the way says so", sasl.words(said)
        )
    server.start_tls()


def _ask_capabilities(server: Side) -> dict[str, str]:
    """Return the service's capabilities, or an empty dictionary if the service has no CAPA. Without CAPA, only USER and
    PASS can be used.
    """
    server.write(b"CAPA\r\n")
    found: dict[str, str] = {}
    if not _answer(server)[0]:
        return found
    while (line := server.line()) != b".":
        if len(found) >= _MAX_CAPABILITIES:
            raise LoginError(Problem.PROTOCOL, f"the service says more than {_MAX_CAPABILITIES} capabilities")
        name, _, parameters = line.decode("ascii", "replace").partition(" ")
        found[name.upper()] = parameters
    return found


def _offered(capabilities: dict[str, str]) -> bytes:
    kept = [f"{name} {text}".strip() for name, text in capabilities.items() if name in _OFFERED]
    lines = ["USER", "SASL PLAIN LOGIN", *(line for line in kept if line.isascii() and line.isprintable())]
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def _answer_library(client: Side, words: list[bytes], offered: bytes) -> bool:
    """Answer a command from the library. Return whether the library now believes that it has logged in."""
    said, is_in = b"-ERR log in first, with any user name and password", False
    match words[0].upper() if words else b"":
        case b"CAPA":
            said = b"+OK\r\n" + offered + b"."
        case b"USER" | b"NOOP":
            said = b"+OK"
        case b"STLS":
            said = b"-ERR TLS is spoken outside of the jail; leave STLS out"
        case b"AUTH" if len(words) == 1:
            said = b"+OK\r\nPLAIN\r\nLOGIN\r\n."
        case b"AUTH":
            is_in, said = _answer_exchange(client, words)
        case b"PASS" | b"APOP":
            is_in = True
        case _:
            pass
    client.write((b"+OK logged in outside of the jail; what was sent here was dropped" if is_in else said) + b"\r\n")
    return is_in


def _answer_exchange(client: Side, words: list[bytes]) -> tuple[bool, bytes]:
    steps = sasl.challenges(words[1].decode("ascii", "replace"), has_initial=len(words) > 2)
    if steps is None:
        return False, b"-ERR any user name and password, by USER and PASS or AUTH PLAIN"
    for step in steps:
        client.write(b"+ " + sasl.encode(step) + b"\r\n")
        if client.line() == b"*":
            return False, b"-ERR cancelled"
    return True, b""


class Pop3Filter(Filter):
    """The filter of a logged-in stream. It checks commands line by line, and does not read the service's output."""

    def __init__(self, *, reads_only: bool) -> None:
        self._reads_only: Final = reads_only
        self._partial = bytearray()

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass complete commands to the service. Raises LoginError(not_allowed) for a command that must not pass."""
        self._partial += data
        passed = bytearray()
        while size := self._partial.find(b"\n") + 1:
            line = bytes(self._partial[:size])
            del self._partial[:size]
            self._check(line)
            passed += line
        if len(self._partial) > _MAX_LINE:
            raise LoginError(Problem.NOT_ALLOWED, f"a command has more than {_MAX_LINE} bytes")
        if passed:
            yield Passed(to_server=bytes(passed))

    def _check(self, line: bytes) -> None:
        if not line.endswith(b"\r\n") or any(character in line[:-2] for character in b"\r\n\0"):
            raise LoginError(Problem.NOT_ALLOWED, "a command has a line end or a NUL in it: commands end with CR LF")
        if len(line) > _MAX_LINE:
            raise LoginError(Problem.NOT_ALLOWED, f"a command has more than {_MAX_LINE} bytes")
        name = line.split(None, 1)[0].upper() if line.strip() else b""
        if name in _OTHER_LOGINS:
            raise LoginError(Problem.NOT_ALLOWED, f"{name.decode()} after the login: the stream is logged in")
        if self._reads_only and name not in _READING:
            raise LoginError(
                Problem.NOT_ALLOWED,
                f"a preview changes nothing: {sasl.words(name)[:40]} does not pass; to read, use TOP",
            )

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the service's bytes to the client unchanged."""
        return (Passed(to_client=data),)
