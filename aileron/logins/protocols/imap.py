"""Logs in over IMAP, then passes every command except a second login; in a preview, only commands that read.

    service ◄── TLS or STARTTLS, CAPABILITY, AUTHENTICATE or LOGIN ── log_in
    library ──► OK [CAPABILITY …], and its own LOGIN or AUTHENTICATE is answered here ── greet
                the service's output passes unchanged; commands are inspected, literals are not

Runs in the process of one login. Trusts neither end.

Rules
- A PREAUTH greeting is refused, because it does not say which account it is for, and before TLS it is a way to avoid TLS (RFC
  9051 section 11.3).
- Only the capabilities that the service lists after TLS are used. The library gets the capabilities that are listed after the
  login, without STARTTLS and COMPRESS, because compressed data cannot be scrubbed.
- A command that logs in again, or compresses, ends the stream, because a refusal of ours could be inserted in the middle of a
  response.
- A preview can use EXAMINE but not SELECT, can FETCH only items that set no flag, and can send no literal, because a service
  without LITERAL+ would read a literal as commands.

Source: RFC 3501, RFC 9051, RFC 4959 (SASL-IR), RFC 7888 (LITERAL+), RFC 4978 (COMPRESS), RFC 3516 (BINARY). Not here:
mechanisms (sasl.py), the contents of a mailbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from aileron.logins.login_messages import LoginError, Order, Problem
from aileron.logins.protocol import Filter, Login, Passed
from aileron.logins.protocols import sasl
from aileron.logins.side import MAX_LINE, Side

__all__ = ["ImapFilter", "ImapLogin"]

_MAX_COMMAND: Final = 64 << 10
"""Maximum size of a command line in bytes. A set of UIDs can have thousands (RFC 7162 section 4 says 8,192 at least)."""
_MAX_AHEAD: Final = 256 << 10
"""Maximum number of bytes that a library can send ahead while the service has not accepted a literal."""
_MAX_START: Final = 80
"""Number of bytes that are stored from the start of a line of the service, to recognize whether it accepts or refuses a
literal.
"""
_LITERAL: Final = re.compile(rb"~?\{([0-9]{1,10})(\+?)\}")
_LITERAL_END: Final = re.compile(_LITERAL.pattern + rb"$")
_CAPABILITY: Final = re.compile(rb"\[CAPABILITY ([^\]]*)\]", re.IGNORECASE)
_TAG: Final = re.compile(rb"[\x21\x23\x24\x26\x27\x2c-\x5b\x5d-\x7a\x7c-\x7e]{1,64}")
"""Pattern of the tag of an IMAP command: an astring of RFC 3501 without `+`."""
_NAME: Final = re.compile(rb"[A-Z0-9][A-Z0-9._-]{0,63}")
"""Pattern of a command's name. It matches no character that a service could read as the blank after the name."""
_OTHER_LOGINS: Final = frozenset({b"LOGIN", b"AUTHENTICATE", b"STARTTLS", b"COMPRESS", b"UNAUTHENTICATE"})
_READING: Final = frozenset(
    b"CAPABILITY NOOP LOGOUT ID EXAMINE LIST LSUB STATUS SEARCH SORT THREAD FETCH NAMESPACE UNSELECT "
    b"GETQUOTA GETQUOTAROOT MYRIGHTS GETMETADATA UID".split()
)
_READING_UID: Final = frozenset({b"SEARCH", b"SORT", b"THREAD", b"FETCH"})
_SETS_SEEN: Final = re.compile(
    rb"(?<![A-Z0-9.])(?:BODY\[|BINARY\[|RFC822(?!\.(?:SIZE|HEADER)(?![A-Z0-9.])))", re.IGNORECASE
)
_GONE: Final = frozenset({"STARTTLS", "LOGINDISABLED", "SASL-IR", "IMAP4REV1", "UNAUTHENTICATE"})
_GONE_FAMILIES: Final = ("AUTH=", "COMPRESS=")


class ImapLogin(Login):
    """The login to one account over IMAP."""

    can_read_only: ClassVar[bool] = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._capabilities: tuple[str, ...] = ()

    def log_in(self, server: Side) -> None:
        """Read the greeting, begin TLS, and log in with the strongest mechanism. Raises LoginError if the login fails."""
        credential = sasl.Credential.of(self.order)
        encryption = self.order.target.encryption
        if encryption == "tls":
            server.start_tls()
        talk = _Talk(server)
        talk.greeting()
        if encryption == "starttls":
            _start_tls(talk, server)
        capabilities = talk.capabilities()
        offered = [name.removeprefix("AUTH=") for name in capabilities if name.startswith("AUTH=")]
        exchange = sasl.choose(credential, offered, server, is_plain=encryption == "plain")
        if exchange is not None:
            self._authenticate(talk, exchange, has_initial="SASL-IR" in capabilities)
        elif self._may_command(credential, capabilities, server):
            self._command(talk, credential)
        else:
            raise sasl.no_mechanism(credential, offered, server)
        said = talk.said_capabilities or talk.capabilities()
        # A capability with the secret is dropped: it is in upper case here, where the mask would not find the secret.
        shown = [form.decode("utf-8", "replace").upper() for form in self.sent_in_clear]
        self._capabilities = tuple(name for name in said if not any(form in name for form in shown))

    def _may_command(self, credential: sasl.Credential, capabilities: tuple[str, ...], server: Side) -> bool:
        may_show = server.is_encrypted or self.order.target.encryption == "plain"
        return credential.kind == "password" and may_show and "LOGINDISABLED" not in capabilities

    def _authenticate(self, talk: _Talk, exchange: sasl.Exchange, *, has_initial: bool) -> None:
        self.mechanism = exchange.name
        self.sent_in_clear = exchange.in_clear()
        first = exchange.first()
        command = b"AUTHENTICATE " + exchange.name.encode()
        if first is not None and has_initial:
            command, first = command + b" " + (sasl.encode(first) or b"="), None
        talk.begin(command)
        sasl.show(exchange, lambda data: talk.server.write(sasl.encode(data) + b"\r\n"), talk.hear, first)

    def _command(self, talk: _Talk, credential: sasl.Credential) -> None:
        """Log in with the LOGIN command. The user name and password are sent as literals, because services parse quoted
        strings differently.
        """
        self.mechanism = "LOGIN command"
        username, secret = credential.username.encode(), credential.secret.encode()
        self.sent_in_clear = (secret,)
        talk.begin(b"LOGIN {%d}" % len(username))
        talk.literal(username + b" {%d}" % len(secret))
        talk.literal(secret)
        answer = talk.hear()
        if isinstance(answer, sasl.Rejected):
            raise sasl.refused(answer.problem, answer.said)
        if not isinstance(answer, sasl.Accepted):
            raise LoginError(Problem.PROTOCOL, "LOGIN: the service asked for something that the command does not have")

    def greet(self, client: Side, server: Side) -> Filter:
        """Greet the connector's client library with OK and the capabilities, and answer its commands until it has
        logged in or out. Raises LoginError if its commands are invalid.
        """
        offered = _offered(self._capabilities)
        client.write(
            b"* OK [CAPABILITY " + offered + b"] logged in outside of the jail; any user name and password will do\r\n"
        )
        while True:
            command = _read_command(client)
            if command.name == b"LOGOUT":
                server.write(command.tag + b" LOGOUT\r\n")
                return ImapFilter(reads_only=self.order.reads_only)
            if _answer_library(client, command, offered):
                return ImapFilter(reads_only=self.order.reads_only)


class _Talk:
    """The exchange of IMAP commands and responses with the service, until the login has ended."""

    def __init__(self, server: Side) -> None:
        self.server: Final = server
        self.said_capabilities: tuple[str, ...] = ()
        """Capabilities that the service has listed since the last command began."""
        self._tag = b""
        self._count = 0

    def greeting(self) -> None:
        """Read the greeting. Raise LoginError unless the greeting shows that the service expects a login."""
        line = self._response()
        status = line.split(b" ", 2)[1:2]
        match [part.upper() for part in status]:
            case [b"OK"] if line.startswith(b"* "):
                return
            case [b"PREAUTH"]:
                raise LoginError(
                    Problem.NOT_ENCRYPTED if not self.server.is_encrypted else Problem.PROTOCOL,
                    "the service says that this connection is logged in already, which it is not",
                )
            case [b"BYE"]:
                raise LoginError(Problem.CLOSED, "the service takes no connection now", sasl.words(line))
            case _:
                raise LoginError(Problem.PROTOCOL, "the service's greeting is not one of IMAP")

    def begin(self, command: bytes) -> None:
        """Send a command to the service with the next tag."""
        self._count += 1
        self._tag = b"a%d" % self._count
        self.said_capabilities = ()
        self.server.write(self._tag + b" " + command + b"\r\n")

    def literal(self, data: bytes) -> None:
        """Send `data` as a literal, once the service is ready for it, and then the end of the line."""
        answer = self.hear(is_sasl=False)
        if isinstance(answer, sasl.Rejected):
            raise sasl.refused(answer.problem, answer.said)
        if not isinstance(answer, sasl.Challenge):
            raise LoginError(Problem.PROTOCOL, "the service accepted a login that was not over")
        self.server.write(data + b"\r\n")

    def capabilities(self) -> tuple[str, ...]:
        """Request the service's IMAP capabilities and return them."""
        self.begin(b"CAPABILITY")
        answer = self.hear()
        if not isinstance(answer, sasl.Accepted) or "IMAP4REV1" not in self.said_capabilities:
            raise LoginError(Problem.PROTOCOL, "the service does not say what it can do, or has no IMAP4rev1")
        return self.said_capabilities

    def hear(self, *, is_sasl: bool = True) -> sasl.Answer:
        """Read lines until the service sends a challenge or has completed the command. Return the challenge or the
        result. Of all other lines, only the capabilities in them are stored.
        """
        while True:
            line = self._response()
            if line[:1] == b"+":
                text = line[1:].strip(b" ")
                return sasl.Challenge(sasl.decode(text) if is_sasl else b"")
            tag, _, rest = line.partition(b" ")
            if tag == b"*":
                self._note(rest)
            elif tag == self._tag:
                return self._answered(rest)
            else:
                raise LoginError(Problem.PROTOCOL, "the service answered what nobody asked")

    def _answered(self, rest: bytes) -> sasl.Answer:
        match rest.partition(b" ")[0].upper():
            case b"OK":
                self._note(rest)
                return sasl.Accepted()
            case b"NO":
                return sasl.Rejected(Problem.REFUSED_CREDENTIAL, rest)
            case _:
                return sasl.Rejected(Problem.PROTOCOL, rest)

    def _note(self, rest: bytes) -> None:
        name, _, words = rest.partition(b" ")
        if name.upper() == b"BYE":
            raise LoginError(Problem.CLOSED, "the service closed the connection during the login", sasl.words(rest))
        code = _CAPABILITY.match(words)
        listed = words if name.upper() == b"CAPABILITY" else code[1] if code and name.upper() == b"OK" else b""
        if listed:
            self.said_capabilities = tuple(
                word.decode("ascii").upper() for word in listed.split() if word.isascii() and len(word) <= _MAX_START
            )

    def _response(self) -> bytes:
        """Return the service's next line, with its literals left out."""
        line = self.server.line()
        while found := _LITERAL_END.search(line):
            self.server.exactly(int(found[1]))
            line = line[: found.start()] + self.server.line()
            if len(line) > MAX_LINE:
                raise LoginError(Problem.PROTOCOL, f"the service sent a line of more than {MAX_LINE} bytes")
        return line


def _start_tls(talk: _Talk, server: Side) -> None:
    talk.begin(b"STARTTLS")
    answer = talk.hear()
    if not isinstance(answer, sasl.Accepted):
        said = sasl.words(answer.said) if isinstance(answer, sasl.Rejected) else ""
        raise LoginError(Problem.NOT_ENCRYPTED, "the service does not begin TLS", said)
    server.start_tls()


def _offered(capabilities: Iterable[str]) -> bytes:
    kept = [
        name for name in capabilities if name not in _GONE and not name.startswith(_GONE_FAMILIES) and "]" not in name
    ]
    return " ".join(["IMAP4rev1", "SASL-IR", "AUTH=PLAIN", "AUTH=LOGIN", *kept]).encode("ascii")


class _Command(NamedTuple):
    """A command that the connector's client library sends before it has logged in."""

    tag: bytes
    name: bytes
    words: list[bytes]


def _read_command(client: Side) -> _Command:
    """Read a command, and drop its literals. Raises LoginError if the command is invalid."""
    line = client.line()
    tag, _, rest = line.partition(b" ")
    if _TAG.fullmatch(tag) is None:
        raise LoginError(Problem.NOT_ALLOWED, "this is not a command of IMAP: it has no tag")
    words = rest.split()
    while found := _LITERAL_END.search(line):
        if not found[2]:
            client.write(b"+ go on\r\n")
        client.exactly(int(found[1]))
        line = client.line()
    return _Command(tag, words[0].upper() if words else b"", words[1:])


def _answer_library(client: Side, command: _Command, offered: bytes) -> bool:
    """Answer a command from the library. Return whether the library now believes that it has logged in."""
    said, is_in = b"", False
    match command.name:
        case b"CAPABILITY":
            said = b"* CAPABILITY " + offered + b"\r\n" + command.tag + b" OK done"
        case b"NOOP":
            said = command.tag + b" OK done"
        case b"ID":
            said = b"* ID NIL\r\n" + command.tag + b" OK done"
        case b"STARTTLS":
            said = command.tag + b" BAD TLS is spoken outside of the jail; leave STARTTLS out"
        case b"LOGIN":
            is_in = True
        case b"AUTHENTICATE":
            is_in, said = _answer_exchange(client, command)
        case _:
            said = command.tag + b" BAD log in first, with any user name and password"
    if is_in:
        said = (
            command.tag
            + b" OK [CAPABILITY "
            + offered
            + b"] logged in outside of the jail; what was sent here was dropped"
        )
    client.write(said + b"\r\n")
    return is_in


def _answer_exchange(client: Side, command: _Command) -> tuple[bool, bytes]:
    name = command.words[0].decode("ascii", "replace") if command.words else ""
    steps = sasl.challenges(name, has_initial=len(command.words) > 1)
    if steps is None:
        return False, command.tag + b" NO any user name and password, by LOGIN or AUTHENTICATE PLAIN"
    for step in steps:
        client.write(b"+ " + sasl.encode(step) + b"\r\n")
        if client.line() == b"*":
            return False, command.tag + b" BAD cancelled"
    return True, b""


class ImapFilter(Filter):
    """The filter of a logged-in stream. It checks commands line by line, and passes literals as they arrive.

    It reads the service's output only while a literal waits to be accepted.
    """

    def __init__(self, *, reads_only: bool) -> None:
        self._reads_only: Final = reads_only
        self._ahead = bytearray()
        self._literal = 0
        """Number of bytes of the connector's current literal that are still to come."""
        self._is_inside = False
        """True while the connector's current command continues after a literal."""
        self._tag = b""
        self._asked: int | None = None
        """Size in bytes of a literal that the connector has announced and the service has not accepted yet; None if
        there is none.
        """
        self._start = bytearray()
        """Beginning of the service's current line, recorded while a literal waits to be accepted."""
        self._is_mid_line = False
        """True while the service has begun a line but not ended the line."""

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass the connector's complete lines, and the available part of a literal, to the service."""
        self._ahead += data
        passed = bytearray()
        while self._ahead and self._asked is None:
            taken = self._take()
            if not taken:
                break
            passed += taken
        most_bytes = _MAX_COMMAND if self._asked is None else _MAX_AHEAD
        if len(self._ahead) > most_bytes:
            raise LoginError(
                Problem.NOT_ALLOWED, f"a line, or what is sent ahead of an answer, has more than {most_bytes} bytes"
            )
        if passed:
            yield Passed(to_server=bytes(passed))

    def _take(self) -> bytes:
        if self._literal:
            size = min(self._literal, len(self._ahead))
            self._literal -= size
        else:
            size = self._ahead.find(b"\n") + 1
            if size:
                self._check_line(bytes(self._ahead[:size]))
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken

    def _check_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n") or any(character in line[:-2] for character in b"\r\n\0"):
            raise LoginError(Problem.NOT_ALLOWED, "a command has a line end or a NUL in it: commands end with CR LF")
        if len(line) > _MAX_COMMAND:
            raise LoginError(Problem.NOT_ALLOWED, f"a line has more than {_MAX_COMMAND} bytes")
        if not self._is_inside:
            self._check_command(line[:-2])
        found = _LITERAL_END.search(line[:-2])
        self._is_inside = found is not None
        if found is None:
            return
        if self._reads_only:
            raise LoginError(
                Problem.NOT_ALLOWED, "a preview sends no literal: use quoted strings, and search for ASCII"
            )
        if found[2]:
            self._literal = int(found[1])
        else:
            self._asked = int(found[1])
            self._start[:] = b"?" if self._is_mid_line else b""

    def _check_command(self, line: bytes) -> None:
        self._tag, _, rest = line.partition(b" ")
        name, _, arguments = rest.lstrip(b" ").partition(b" ")
        name = name.upper()
        is_tagless = not rest and (not line or line.upper() == b"DONE")  # the end of IDLE
        if not is_tagless and (_TAG.fullmatch(self._tag) is None or _NAME.fullmatch(name) is None):
            raise LoginError(
                Problem.NOT_ALLOWED,
                "a line is no command of IMAP: it begins with a tag, a blank and the command's name",
            )
        if name in _OTHER_LOGINS:
            raise LoginError(
                Problem.NOT_ALLOWED, f"{name.decode()} after the login: the stream is logged in, and is not compressed"
            )
        if self._reads_only:
            _check_reads(name, arguments)

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the service's bytes to the connector unchanged. Then pass the waiting literal on to the service, if the
        service has accepted it.
        """
        yield Passed(to_client=data)
        is_agreed = self._asked is not None and self._hears_answer(data)
        self._is_mid_line = not data.endswith(b"\n")
        if is_agreed:
            yield from self.up(b"")

    def _hears_answer(self, data: bytes) -> bool:
        for line in data.splitlines(keepends=True):
            self._start += line[: _MAX_START - len(self._start)]
            if self._start.startswith(b"+"):
                self._literal, self._asked = self._asked or 0, None
            elif self._start.startswith(self._tag + b" "):
                self._is_inside, self._asked = False, None
            if self._asked is None:
                return True
            if line.endswith(b"\n"):
                self._start.clear()
        return False


def _check_reads(name: bytes, arguments: bytes) -> None:
    """Raise LoginError if the command with this name and these arguments could change something, even just a flag."""
    if name == b"UID":
        name, _, arguments = arguments.lstrip(b" ").partition(b" ")
        name = name.upper()
        is_reading = name in _READING_UID
    else:
        is_reading = name in _READING
    if not is_reading:
        raise LoginError(
            Problem.NOT_ALLOWED,
            f"a preview changes nothing: {sasl.words(name)[:40]} does not pass, EXAMINE, SEARCH and FETCH do",
        )
    if name == b"FETCH" and _SETS_SEEN.search(arguments):
        raise LoginError(
            Problem.NOT_ALLOWED, "a preview sets no flag: FETCH with BODY.PEEK[…] in place of BODY[…] or RFC822"
        )
