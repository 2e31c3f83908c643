"""Logs in over SMTP as a submission client, then passes commands one by one. Each envelope is recorded before its message is
sent.

    service ◄── EHLO, STARTTLS, EHLO, AUTH ── log_in
    library ──► 220, and the filter answers EHLO, AUTH and STARTTLS itself
                MAIL, RCPT, DATA … one at a time; a message to its end; then the next one

Runs in the process of one login. Trusts neither end: the record has only sender and recipients that the service accepted.

Rules
- The service gets one command at a time, even if the library sends several ahead. So PIPELINING is not offered, nor is
  CHUNKING (BDAT), which would be a second way to end a message.
- A closed list of commands passes. AUTH and its responses never pass.
- The envelope is the sender and the recipients that the service accepted with a 2xx reply. The envelope is on disk before DATA
  is sent.
- A message ends at CR LF . CR LF and nowhere else. A CR or LF by itself in a message ends the stream, before the message is
  complete. If one server detects the end of a message where another does not, a second message can be smuggled
  (CVE-2023-51764).

Source: RFC 5321, RFC 6409, RFC 4954 (AUTH), RFC 3207 (STARTTLS), RFC 2920, RFC 1870. Not here: mechanisms (sasl.py).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple

from aileron.logins.login_messages import MAX_RECIPIENTS, Envelope, LoginError, Order, Problem, Submitted
from aileron.logins.protocol import Filter, Login, Passed
from aileron.logins.protocols import sasl
from aileron.logins.side import MAX_LINE, Side

__all__ = ["SmtpFilter", "SmtpLogin"]

_OWN_NAME: Final = b"[127.0.0.1]"
"""The name that we send in EHLO. It has the form for a client without a name (RFC 5321 section 4.1.3), and does not reveal the
machine's name.
"""
_MAX_REPLY_LINES: Final = 100
_MAX_REPLY: Final = 64 << 10
_MAX_AHEAD: Final = 64 << 10
"""Maximum number of bytes that a library can send before the reply to its previous command, although PIPELINING was not
offered. The bytes of a message are not counted.
"""
_MAX_COMMAND: Final = 512
"""Maximum size in bytes of a command to the service, with CR LF (RFC 4954 section 3). An initial response that does not fit is
sent separately.
"""
_MAX_RECIPIENT_BYTES: Final = 12 << 10
"""Maximum size in bytes of all recipients together. JSON escapes can double the size, and the note that records
the envelope has at most 64 KiB.
"""
_EXTENSIONS: Final = frozenset(
    "SIZE 8BITMIME SMTPUTF8 DSN ENHANCEDSTATUSCODES VRFY EXPN HELP DELIVERBY FUTURERELEASE MT-PRIORITY REQUIRETLS".split()
)
"""Extensions of the service that are also offered to the library. Other extensions could add commands, or change how a
message ends.
"""
_PASSING: Final = frozenset({b"MAIL", b"RCPT", b"RSET", b"NOOP", b"QUIT", b"VRFY", b"EXPN", b"HELP"})
_REPLY: Final = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)
_PLAIN_PATH: Final = rb"""[^\s<>"\\\x00-\x1f\x7f]{1,512}"""
_QUOTED_PATH: Final = rb""""(?:[^"\\\x00-\x1f\x7f]|\\[\x20-\x7e]){0,128}"@[^\s<>"\\\x00-\x1f\x7f]{1,256}"""
_PATH: Final = rb"<((?:" + _PLAIN_PATH + rb"|" + _QUOTED_PATH + rb")?)>"
_ENVELOPE_COMMAND: Final = re.compile(
    rb"(?:MAIL FROM|RCPT TO): ?" + _PATH + rb"((?: [A-Z0-9][A-Z0-9-]*(?:=[^\s=\x00-\x1f\x7f]+)?)*) *", re.IGNORECASE
)
_SIZE: Final = re.compile(rb" SIZE=([0-9]{1,19})(?= |$)", re.IGNORECASE)
_END: Final = b"\r\n.\r\n"


class Reply(NamedTuple):
    """A complete reply from the service: its code, its lines without the code, and its bytes."""

    code: int
    lines: tuple[bytes, ...]
    raw: bytes

    @property
    def text(self) -> bytes:
        """The code and the lines of the reply, joined as text for a person."""
        return b"%d " % self.code + b" ".join(self.lines)


class SmtpLogin(Login):
    """The login to a mail server as a submission client."""

    can_read_only: ClassVar[bool] = True

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._extensions: dict[str, bytes] = {}

    def log_in(self, server: Side) -> None:
        """Read the greeting, begin TLS, and log in with AUTH. Raises LoginError if the login fails."""
        credential = sasl.Credential.of(self.order)
        encryption = self.order.target.encryption
        if encryption == "tls":
            server.start_tls()
        greeting = _read(server)
        if greeting.code != 220:
            raise LoginError(Problem.CLOSED, "the service takes no mail now", sasl.words(greeting.text))
        self._extensions = _ask_extensions(server)
        if encryption == "starttls":
            self._start_tls(server)
        offered = self._extensions.get("AUTH", b"").decode("ascii", "replace").split()
        exchange = sasl.choose(credential, offered, server, is_plain=encryption == "plain")
        if exchange is None:
            raise sasl.no_mechanism(credential, offered, server)
        self.mechanism = exchange.name
        self.sent_in_clear = exchange.in_clear()
        self._authenticate(server, exchange)

    def _start_tls(self, server: Side) -> None:
        if "STARTTLS" not in self._extensions:
            raise LoginError(
                Problem.NOT_ENCRYPTED,
                "the service does not offer STARTTLS, or somebody on the way took it off its list",
            )
        server.write(b"STARTTLS\r\n")
        answer = _read(server)
        if answer.code != 220:
            raise LoginError(Problem.NOT_ENCRYPTED, "the service does not begin TLS", sasl.words(answer.text))
        server.start_tls()
        self._extensions = _ask_extensions(server)  # extensions from before TLS are void: RFC 3207 section 4.2

    def _authenticate(self, server: Side, exchange: sasl.Exchange) -> None:
        first = exchange.first()
        command = b"AUTH " + exchange.name.encode()
        if first is not None and len(command) + 3 + len(sasl.encode(first)) <= _MAX_COMMAND:
            command, first = command + b" " + (sasl.encode(first) or b"="), None
        server.write(command + b"\r\n")
        sasl.show(exchange, lambda data: server.write(sasl.encode(data) + b"\r\n"), lambda: _hear(server), first)

    def greet(self, client: Side, server: Side) -> Filter:
        """Greet the library with 220, and return the filter. The filter answers EHLO and AUTH, because a library need not log in,
        and can ask for the extensions more than once.
        """
        host = self.order.target.destination.host.encode("ascii", "replace")
        client.write(b"220 " + host + b" ESMTP\r\n")
        return SmtpFilter(host, self._extensions, reads_only=self.order.reads_only)


def _hear(server: Side) -> sasl.Answer:
    reply = _read(server)
    match reply.code:
        case 334:
            return sasl.Challenge(sasl.decode(reply.lines[0]))
        case 235:
            return sasl.Accepted()
        case 421:
            return sasl.Rejected(Problem.CLOSED, reply.text)
        case 500 | 501 | 502 | 503 | 504:
            return sasl.Rejected(Problem.PROTOCOL, reply.text)
        case _:
            # This includes 454: services also report an account that is locked for a while as "temporary".
            return sasl.Rejected(Problem.REFUSED_CREDENTIAL, reply.text)


def _ask_extensions(server: Side) -> dict[str, bytes]:
    server.write(b"EHLO " + _OWN_NAME + b"\r\n")
    answer = _read(server)
    if answer.code != 250:
        raise LoginError(
            Problem.PROTOCOL, "the service has no ESMTP, without which nobody logs in", sasl.words(answer.text)
        )
    extensions: dict[str, bytes] = {}
    for line in answer.lines[1:]:
        name, _, parameters = line.replace(b"=", b" ", 1).partition(b" ")  # `AUTH=LOGIN`, from before the RFC
        if name.isascii() and parameters.isascii():
            known = extensions.get(name.decode().upper(), b"")
            extensions[name.decode().upper()] = (known + b" " + parameters).strip()
    return extensions


def _read(server: Side) -> Reply:
    collected = _Replies()
    while True:
        for reply in collected.feed(server.line() + b"\r\n"):
            return reply


class _Replies:
    """A parser that assembles complete replies from the service's bytes, which arrive in pieces of any size."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._lines: list[bytes] = []
        self._raw = bytearray()
        self._code = b""

    def feed(self, data: bytes) -> Iterator[Reply]:
        """Yield the replies that these bytes complete. Raises LoginError if the bytes are not replies."""
        self._partial += data
        while (at := self._partial.find(b"\n")) >= 0:
            line = bytes(self._partial[: at + 1])
            del self._partial[: at + 1]
            reply = self._line(line)
            if reply is not None:
                yield reply
        if len(self._partial) > MAX_LINE:
            raise LoginError(Problem.PROTOCOL, f"the service sent a line of more than {MAX_LINE} bytes")

    def _line(self, line: bytes) -> Reply | None:
        found = _REPLY.fullmatch(line.rstrip(b"\r\n"))
        if found is None or (self._lines and found[1] != self._code):
            raise LoginError(Problem.PROTOCOL, "the service's answer is not one of SMTP")
        self._code = found[1]
        self._lines.append(found[3] or b"")
        self._raw += line.rstrip(b"\r\n") + b"\r\n"
        if len(self._lines) > _MAX_REPLY_LINES or len(self._raw) > _MAX_REPLY:
            raise LoginError(Problem.PROTOCOL, f"the service's answer has more than {_MAX_REPLY_LINES} lines")
        if found[2] == b"-":
            return None
        reply = Reply(int(self._code), tuple(self._lines), bytes(self._raw))
        self._lines.clear()
        self._raw.clear()
        return reply


class _Doing(enum.Enum):
    """The state of an SMTP stream: the command to which the service's next reply belongs, or the state of a mail
    message in transit.
    """

    NOTHING = enum.auto()
    PASSED = enum.auto()
    MAIL = enum.auto()
    RCPT = enum.auto()
    RSET = enum.auto()
    EHLO = enum.auto()
    DATA = enum.auto()
    MESSAGE = enum.auto()
    MESSAGE_END = enum.auto()
    QUIT = enum.auto()


class SmtpFilter(Filter):
    """The filter of a logged-in stream. It passes commands one at a time, and messages up to their end."""

    def __init__(self, host: bytes, extensions: dict[str, bytes], *, reads_only: bool) -> None:
        self._host: Final = host
        self._extensions: Final = {
            name: text for name, text in extensions.items() if name in _EXTENSIONS and len(text) <= _MAX_COMMAND
        }
        self._reads_only: Final = reads_only
        self._doing = _Doing.NOTHING
        self._asked: list[bytes] = []
        """Challenges for the library's own login that are still to be sent. `_is_asking` is true while a challenge waits for a
        response.
        """
        self._is_asking = False
        self._is_extended = False
        self._ahead = bytearray()
        self._replies = _Replies()
        self._sender: bytes | None = None
        self._recipients: list[bytes] = []
        self._announced: int | None = None
        self._path = b""
        self._path_size: int | None = None
        self._message = _Message()
        self._is_answered_early = False

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass each command once the previous command was answered; pass a message as it arrives."""
        self._ahead += data
        return self._go_on()

    def down(self, data: bytes) -> Iterable[Passed]:
        """Handle each complete reply of the service, then the commands that waited for it."""
        for reply in self._replies.feed(data):
            yield from self._answered(reply)
            yield from self._go_on()

    def _go_on(self) -> Iterator[Passed]:
        while self._ahead:
            if self._doing is _Doing.MESSAGE:
                yield from self._more_of_message()
            elif self._doing is _Doing.NOTHING and (at := self._ahead.find(b"\n")) >= 0:
                line = bytes(self._ahead[: at + 1])
                del self._ahead[: at + 1]
                yield from self._line(line)
            else:
                break
        self._check_ahead()

    def _check_ahead(self) -> None:
        waits_for_line = self._doing is _Doing.NOTHING
        if len(self._ahead) > (MAX_LINE if waits_for_line else _MAX_AHEAD):
            problem = (
                "a command line is too long" if waits_for_line else "commands were sent ahead of the service's answer"
            )
            raise LoginError(Problem.NOT_ALLOWED, f"{problem}, and PIPELINING was not offered")

    # Bytes from the library.

    def _line(self, line: bytes) -> Iterator[Passed]:
        if len(line) > MAX_LINE:
            raise LoginError(Problem.NOT_ALLOWED, f"a command has more than {MAX_LINE} bytes")
        if not line.endswith(b"\r\n") or any(character in line[:-2] for character in b"\r\n\0"):
            raise LoginError(Problem.NOT_ALLOWED, "a command has a line end or a NUL in it: commands end with CR LF")
        if self._is_asking:
            yield self._challenge(line[:-2])
            return
        verb, _, rest = line[:-2].partition(b" ")
        match verb.upper():
            case b"EHLO" | b"HELO" as greeting:
                yield self._greeted(is_extended=greeting == b"EHLO")
            case b"AUTH":
                yield self._library_logs_in(rest.split())
            case b"STARTTLS":
                yield _answer(b"502 5.5.1 TLS is spoken outside of the jail; leave starttls out")
            case b"DATA":
                yield self._data(rest)
            case b"MAIL" | b"RCPT" as command:
                yield self._address(command, line)
            case verb if verb in _PASSING:
                self._doing = {b"RSET": _Doing.RSET, b"QUIT": _Doing.QUIT}.get(verb, _Doing.PASSED)
                yield Passed(to_server=line)
            case _:
                yield _answer(b"502 5.5.1 this command does not pass")

    def _greeted(self, *, is_extended: bool) -> Passed:
        self._is_extended = is_extended
        if self._sender is None:
            return self._extensions_said()
        self._doing = _Doing.EHLO  # EHLO resets the transaction: RFC 5321 section 4.1.4
        return Passed(to_server=b"RSET\r\n")

    def _extensions_said(self) -> Passed:
        if not self._is_extended:
            return _answer(b"250 " + self._host)
        lines = [self._host, *((name.encode() + b" " + text).strip() for name, text in self._extensions.items())]
        return Passed(to_client=b"".join(b"250-" + line + b"\r\n" for line in lines) + b"250 AUTH PLAIN LOGIN\r\n")

    def _library_logs_in(self, words: list[bytes]) -> Passed:
        name = words[0].decode("ascii", "replace") if words else ""
        steps = sasl.challenges(name, has_initial=len(words) > 1)
        if steps is None:
            return _answer(b"504 5.5.4 any user name and password, by AUTH PLAIN or AUTH LOGIN")
        self._asked = list(steps)
        return self._next_challenge()

    def _challenge(self, said: bytes) -> Passed:
        if said == b"*":
            self._is_asking = False
            return _answer(b"501 5.7.0 cancelled")
        return self._next_challenge()

    def _next_challenge(self) -> Passed:
        self._is_asking = bool(self._asked)
        if not self._is_asking:
            return _answer(b"235 2.7.0 logged in outside of the jail; what was sent here was dropped")
        return _answer(b"334 " + sasl.encode(self._asked.pop(0)))

    def _address(self, command: bytes, line: bytes) -> Passed:
        found = _ENVELOPE_COMMAND.fullmatch(line[:-2])
        if found is None or b" AUTH=" in found[2].upper() or (command == b"RCPT" and not found[1]):
            return _answer(b"501 5.5.4 expected MAIL FROM:<address> or RCPT TO:<address>, and parameters without AUTH=")
        if not _is_utf8(found[1]):
            return _answer(b"501 5.5.4 the address is not UTF-8")
        if command == b"RCPT" and self._is_full(found[1]):
            return _answer(b"452 4.5.3 too many recipients; send another message to the rest")
        size = _SIZE.search(found[2])
        self._path, self._path_size = found[1], int(size[1]) if size else None
        self._doing = _Doing.MAIL if command == b"MAIL" else _Doing.RCPT
        return Passed(to_server=line)

    def _is_full(self, path: bytes) -> bool:
        size = sum(len(known) for known in self._recipients) + len(path)
        return len(self._recipients) >= MAX_RECIPIENTS or size > _MAX_RECIPIENT_BYTES

    def _data(self, rest: bytes) -> Passed:
        if self._reads_only:
            raise LoginError(
                Problem.NOT_ALLOWED, "a preview sends no message: it may ask by MAIL and RCPT, and then RSET"
            )
        if rest.strip():
            return _answer(b"501 5.5.4 DATA has no parameters")
        if self._sender is None or not self._recipients:
            return _answer(b"503 5.5.1 no sender, or no recipient that the service accepted")
        self._doing = _Doing.DATA
        recipients = tuple(recipient.decode("utf-8") for recipient in self._recipients)
        envelope = Envelope(sender=self._sender.decode("utf-8"), recipients=recipients, size=self._announced)
        return Passed(to_server=b"DATA\r\n", note=envelope)

    def _more_of_message(self) -> Iterator[Passed]:
        piece = self._message.take(self._ahead)
        if self._message.is_over:
            self._doing = _Doing.NOTHING if self._is_answered_early else _Doing.MESSAGE_END
            self._is_answered_early = False
        yield Passed(to_server=piece)

    # Replies of the service.

    def _answered(self, reply: Reply) -> Iterator[Passed]:
        doing, is_done = self._doing, 200 <= reply.code < 300
        if doing is _Doing.MESSAGE:
            yield self._message_answered(reply, is_early=True)
            return
        if doing is _Doing.NOTHING and reply.code != 421:
            raise LoginError(Problem.PROTOCOL, "the service answered what nobody asked", sasl.words(reply.text))
        self._doing = _Doing.NOTHING
        match doing:
            case _Doing.DATA if reply.code == 354:
                self._doing, self._message = _Doing.MESSAGE, _Message()
                yield Passed(to_client=reply.raw)
            case _Doing.DATA | _Doing.MESSAGE_END:
                yield self._message_answered(reply, is_early=False)
            case _Doing.EHLO if is_done:
                self._begin_anew()
                yield self._extensions_said()
            case _:
                self._remember(doing, is_done=is_done)
                yield Passed(to_client=reply.raw)

    def _message_answered(self, reply: Reply, *, is_early: bool) -> Passed:
        if is_early and self._is_answered_early:
            raise LoginError(Problem.PROTOCOL, "the service answered one message twice", sasl.words(reply.text))
        self._is_answered_early = is_early
        size, self._message = self._message.size, self._message if is_early else _Message()
        self._begin_anew()
        return Passed(to_client=reply.raw, note=Submitted(size=size, code=reply.code))

    def _remember(self, doing: _Doing, *, is_done: bool) -> None:
        if not is_done:
            return
        match doing:
            case _Doing.MAIL:
                self._sender, self._recipients, self._announced = self._path, [], self._path_size
            case _Doing.RCPT:
                self._recipients.append(self._path)
            case _Doing.RSET:
                self._begin_anew()
            case _:
                pass

    def _begin_anew(self) -> None:
        self._sender, self._recipients, self._announced = None, [], None


class _Message:
    """The parser of one mail message in transit: finds its end, and checks that every line ends with CR LF."""

    def __init__(self) -> None:
        self.size = 0
        self.is_over = False
        self._before = b"\r\n"
        """The last bytes before the next piece, which are needed to find the end of the message; initially the line end of
        DATA.
        """

    def take(self, ahead: bytearray) -> bytes:
        """Remove the bytes of the message that have arrived from `ahead`, and return them. Raises LoginError for a CR
        or LF by itself.
        """
        at = (self._before + ahead).find(_END)
        size = len(ahead) if at < 0 else at + len(_END) - len(self._before)
        piece = bytes(ahead[:size])
        del ahead[:size]
        seen = self._before + piece
        self._check_lines(seen, is_over=at >= 0)
        self._before, self.is_over = seen[-len(_END) + 1 :], at >= 0
        self.size += len(piece) - (len(b".\r\n") if self.is_over else 0)
        return piece

    def _check_lines(self, seen: bytes, *, is_over: bool) -> None:
        """Raise LoginError if the bytes of the message have a CR or LF by itself. `is_over` is true at the end of the
        message.

        `seen` begins with bytes that were checked before. A CR at the end of `seen` is accepted, because its LF can still
        follow.
        """
        begins = 1 if seen.startswith(b"\n") else 0  # the preceding CR was in the previous piece
        ends = len(seen) - (1 if seen.endswith(b"\r") and not is_over else 0)
        alone = seen[begins:ends].replace(b"\r\n", b"")
        if b"\r" in alone or b"\n" in alone:
            raise LoginError(
                Problem.NOT_ALLOWED,
                "the message has a CR or LF by itself: end each line with CR LF, as smtplib.send_message does",
            )


def _answer(line: bytes) -> Passed:
    return Passed(to_client=line + b"\r\n")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
