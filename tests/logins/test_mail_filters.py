"""The streams behind a mail login, however they are cut: closed lists of commands, messages with one end, no second login."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.logins.login_messages import MAX_NOTE_BYTES, Envelope, LoginError, Note, Problem, Submitted
from aileron.logins.protocol import Filter, Passed
from aileron.logins.protocols.imap import ImapFilter
from aileron.logins.protocols.pop3 import Pop3Filter
from aileron.logins.protocols.smtp import SmtpFilter

PLACEHOLDER = b"the-library-s-own-password"
EXTENSIONS = {"SIZE": b"1000", "8BITMIME": b"", "PIPELINING": b"", "CHUNKING": b"", "STARTTLS": b"", "AUTH": b"PLAIN"}


class Server:
    """An SMTP server that accepts every command that it understands; `sends` are its answers to some."""

    def __init__(self, **sends: bytes) -> None:
        self.sends = sends
        self.heard = b""
        self._left = b""
        self._is_message = False

    def answers(self, data: bytes) -> bytes:
        """Return the answers to these bytes."""
        self.heard += data
        self._left += data
        said = b""
        while True:
            if self._is_message:
                # DATA's own line end counts, so that a message may be empty.
                _head, found, rest = (b"\r\n" + self._left).partition(b"\r\n.\r\n")
                if not found:
                    return said
                self._left, self._is_message = rest, False
                said += self.sends.get("message", b"250 queued\r\n")
                continue
            line, found, rest = self._left.partition(b"\r\n")
            if not found:
                return said
            self._left = rest
            verb = line.split(b" ")[0].upper().decode("latin-1")
            usual = (
                b"354 go on\r\n" if verb == "DATA" else b"221 bye\r\n" if verb == "QUIT" else b"250-ok\r\n250 done\r\n"
            )
            answer = self.sends.get(verb, usual)
            self._is_message = verb == "DATA" and answer.startswith(b"354")
            said += answer


class Heard:
    """The bytes that reached each end, and the notes, in order."""

    def __init__(self) -> None:
        self.client = b""
        self.order: list[Note | bytes] = []

    @property
    def notes(self) -> list[Note]:
        return [entry for entry in self.order if not isinstance(entry, bytes)]


def _talk(through: Filter, pieces: Iterable[bytes], server: Server, cut: Callable[[bytes], list[bytes]]) -> Heard:
    """Pass all pieces through the filter, with the server's answers as they come."""
    heard = Heard()

    def take(passed: Iterable[Passed]) -> None:
        for part in passed:
            if part.note is not None:
                heard.order.append(part.note)
            heard.client += part.to_client
            if part.to_server:
                heard.order.append(part.to_server)
                for piece in cut(server.answers(part.to_server)):
                    waiting.append(piece)

    waiting: list[bytes] = []
    for piece in pieces:
        take(list(through.up(piece)))
        while waiting:
            take(list(through.down(waiting.pop(0))))
    return heard


def _whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def _smtp(*, reads_only: bool = False) -> SmtpFilter:
    return SmtpFilter(b"mail.example.com", EXTENSIONS, reads_only=reads_only)


def _say(text: bytes, server: Server | None = None, *, reads_only: bool = False) -> tuple[Heard, Server]:
    server = server or Server()
    return _talk(_smtp(reads_only=reads_only), [text], server, _whole), server


LETTER = b"EHLO me\r\nMAIL FROM:<a@example.com> SIZE=12\r\nRCPT TO:<b@example.com>\r\nDATA\r\nhello\r\n..\r\nbye\r\n.\r\nQUIT\r\n"


# SMTP.


def test_smtp_extensions_that_change_the_end_of_data_are_not_offered() -> None:
    """STARTTLS and the service's AUTH are not offered to the library either."""
    heard, server = _say(b"EHLO me\r\n")
    assert heard.client == b"250-mail.example.com\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN\r\n"
    assert server.heard == b""


@pytest.mark.abuse_case("LM9")
def test_a_mail_envelope_is_noted_before_the_data_command_is_sent() -> None:
    """The library sends all commands at once; the service gets one at a time."""
    heard, _server = _say(LETTER)
    assert heard.order == [
        b"MAIL FROM:<a@example.com> SIZE=12\r\n",
        b"RCPT TO:<b@example.com>\r\n",
        Envelope(sender="a@example.com", recipients=("b@example.com",), size=12),
        b"DATA\r\n",
        b"hello\r\n..\r\nbye\r\n.\r\n",
        Submitted(size=16, code=250),
        b"QUIT\r\n",
    ]


@pytest.mark.abuse_case("LM9")
def test_noted_recipients_are_those_that_the_service_accepted() -> None:
    """Refused recipients are left out, and so are those before RSET or EHLO."""
    for between in (b"RSET\r\n", b"EHLO me\r\n", b"HELO me\r\n"):
        first = b"MAIL FROM:<a@example.com>\r\nRCPT TO:<old@example.com>\r\n" + between
        heard, _server = _say(first + LETTER)
        (envelope,) = [note for note in heard.notes if isinstance(note, Envelope)]
        assert envelope.recipients == ("b@example.com",)
    for between in (b"RSET\r\n", b"EHLO me\r\n"):
        heard, server = _say(LETTER.partition(b"DATA")[0] + between + b"DATA\r\n")
        assert (heard.notes, b"DATA" in server.heard) == ([], False)
    heard, server = _say(LETTER, Server(RCPT=b"550 no\r\n"))
    assert heard.notes == []
    assert b"DATA" not in server.heard


def test_a_mail_message_that_the_service_refuses_after_data_is_noted_as_refused() -> None:
    """The envelope was recorded before the refusal."""
    heard, _server = _say(LETTER.partition(b"hello")[0], Server(DATA=b"451 later\r\n"))
    assert heard.notes[1:] == [Submitted(size=0, code=451)]


@pytest.mark.abuse_case("LM8")
@pytest.mark.parametrize(
    "smuggled",
    [
        b"x\n.\r\n",
        b"x\n.\n",
        b"x\r\n.\n",
        b"x\r\n.\r",
        b"x\r.\r\n",
        b"x\r.\r",
        b"\n.\r\n",
        b"x\r\r\n.\r\n",
        b"x\n\n",
        b"x\ry",
    ],
)
def test_a_second_mail_message_cannot_be_smuggled_into_the_first(smuggled: bytes) -> None:
    """CVE-2023-51764: two servers see different ends of a message. A message with such bytes is never completed."""
    head = LETTER.partition(b"hello")[0]
    evil = b"MAIL FROM:<evil@example.com>\r\nRCPT TO:<c@example.com>\r\nDATA\r\nevil\r\n.\r\n"
    for cut_at in range(len(smuggled) + 1):
        server, through = Server(), _smtp()
        _talk(through, [head], server, _whole)
        pieces = [smuggled[:cut_at], smuggled[cut_at:] + evil]
        with pytest.raises(LoginError, match="CR or LF by itself") as refused:
            _talk(through, pieces, server, _whole)
        assert refused.value.problem is Problem.NOT_ALLOWED
        assert b"\r\n.\r\n" not in server.heard
        assert b"evil" not in server.heard


def test_a_mail_message_with_escaped_dots_and_escaped_ends_of_data_passes() -> None:
    """Positive control: a message that a library escaped passes at any split."""
    body = b".\r\n"
    for text in (b"..x\r\n...\r\n.. \r\n.\r\n", b"x\r\n.x\r\n.\r\n", body):
        for cut_at in range(len(text) + 1):
            head = LETTER.partition(b"hello")[0]
            server = Server()
            heard = _talk(_smtp(), [head, text[:cut_at], text[cut_at:] + b"NOOP\r\n"], server, _whole)
            assert server.heard.endswith(text + b"NOOP\r\n")
            assert heard.notes[-1] == Submitted(size=len(text) - 3, code=250)


@pytest.mark.abuse_case("LM8")
@pytest.mark.parametrize(
    "line",
    [
        b"MAIL FROM:<a@example.com>\nRCPT TO:<b@example.com>\r\n",
        b"MAIL FROM:<a@example.com>\rRCPT TO:<b@example.com>\r\n",
        b"NOOP\n",
        b"MAIL FROM:<a\0@example.com>\r\n",
        b"NOOP " + b"x" * 20_000,
        b"NOOP " + b"x" * 20_000 + b"\r\n",
    ],
)
def test_a_line_that_could_contain_a_second_command_ends_the_stream(line: bytes) -> None:
    """The line contains a lone CR, LF or NUL, or is too long to have an end."""
    with pytest.raises(LoginError) as refused:
        _say(line)
    assert refused.value.problem is Problem.NOT_ALLOWED


@pytest.mark.abuse_case("LM9")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"BDAT 5 LAST", b"502"),
        (b"STARTTLS", b"502"),
        (b"ETRN example.com", b"502"),
        (b"XCLIENT ADDR=127.0.0.1", b"502"),
        (b"AUTH CRAM-MD5", b"504"),
        (b"AUTH", b"504"),
        (b"MAIL FROM:a@example.com", b"501"),
        (b"MAIL FROM:<a@example.com> AUTH=<>", b"501"),
        (b"RCPT TO:<>", b"501"),
        (b"RCPT TO:<a@b>,<c@d>", b"501"),
        (b"RCPT TO:<\xff@example.com>", b"501"),
        (b"DATA", b"503"),
        (b"", b"502"),
    ],
)
def test_a_command_that_is_not_allowed_gets_an_error_and_the_stream_continues(line: bytes, code: bytes) -> None:
    """The relay answers in place of the service."""
    heard, server = _say(line + b"\r\nNOOP\r\n")
    assert heard.client.startswith(code)
    assert server.heard == b"NOOP\r\n"


@pytest.mark.abuse_case("LM9")
@pytest.mark.parametrize(
    "path",
    [b"<a@b>", b'<"a b"@example.com>', b'<"a\\"<b>"@example.com>', b"<postmaster>", "<jörg@exämple.com>".encode()],
)
def test_addresses_are_noted_as_the_service_reads_them(path: bytes) -> None:
    """Quoted addresses keep all of their quotes."""
    heard, _server = _say(b"MAIL FROM:<>\r\nRCPT TO:" + path + b"\r\nDATA\r\n.\r\n")
    assert heard.notes[0] == Envelope(sender="", recipients=(path[1:-1].decode(),))


def test_the_size_of_a_noted_mail_envelope_is_bounded() -> None:
    """Further recipients get the answer of a server that has no room for more."""
    import msgspec

    for address in (b"%d@example.com", b'"' + b'\\"' * 60 + b'%d"@example.com'):
        many = b"".join(b"RCPT TO:<" + address % at + b">\r\n" for at in range(300))
        heard, server = _say(
            b"MAIL FROM:<a@example.com>\r\n" + many[:60_000].rpartition(b"\r\n")[0] + b"\r\nDATA\r\n.\r\n"
        )
        assert b"452 4.5.3" in heard.client
        assert server.heard.count(b"RCPT") <= 100
        assert len(msgspec.json.encode(heard.notes[0])) < MAX_NOTE_BYTES


def test_a_mail_library_may_send_only_a_bounded_amount_before_the_service_answers() -> None:
    """The service has not answered, and PIPELINING was not offered."""
    through = _smtp()
    list(through.up(b"NOOP\r\n"))
    list(through.up(b"NOOP\r\n" * 10_000))
    with pytest.raises(LoginError, match="PIPELINING") as refused:
        list(through.up(b"NOOP\r\n" * 1_000))
    assert refused.value.problem is Problem.NOT_ALLOWED


@pytest.mark.abuse_case("LM11")
def test_an_smtp_answer_before_a_message_s_end_is_noted_and_an_unrequested_answer_is_refused() -> None:
    """An early answer comes before the end of a message. Of unrequested answers only 421, a goodbye, passes."""
    through, server = _smtp(), Server()
    _talk(through, [LETTER.partition(b"hello")[0], b"hello\r\n"], server, _whole)
    early = list(through.down(b"552 too large\r\n"))
    assert early == [Passed(to_client=b"552 too large\r\n", note=Submitted(size=7, code=552))]
    assert [part.to_server for part in through.up(b"bye\r\n.\r\nNOOP\r\n")] == [b"bye\r\n.\r\n", b"NOOP\r\n"]
    assert [part.to_client for part in _smtp().down(b"421 bye\r\n")] == [b"421 bye\r\n"]
    for said in (b"250 ok\r\n", b"hello\r\n", b"250-a\r\n251 b\r\n", b"x" * 70_000, b"250-x\r\n" * 200):
        with pytest.raises(LoginError) as refused:
            list(_smtp().down(said))
        assert refused.value.problem is Problem.PROTOCOL


@pytest.mark.abuse_case("LM10")
def test_an_smtp_stream_of_a_preview_sends_no_message() -> None:
    """MAIL and RCPT pass, so that recipients are checked; DATA ends the stream."""
    with pytest.raises(LoginError) as refused:
        _say(LETTER, reads_only=True)
    assert refused.value.problem is Problem.NOT_ALLOWED
    heard, server = _say(LETTER.partition(b"DATA")[0] + b"RSET\r\n", reads_only=True)
    assert server.heard.endswith(b"RCPT TO:<b@example.com>\r\nRSET\r\n")
    assert heard.notes == []


# IMAP.


def _imap_up(through: Filter, *pieces: bytes) -> bytes:
    return b"".join(part.to_server for piece in pieces for part in through.up(piece))


@pytest.mark.abuse_case("LM7")
@pytest.mark.parametrize("size", [b"{5}", b"{5+}", b"~{5}"])
def test_an_imap_literal_is_not_read_as_a_command(size: bytes) -> None:
    """A message that contains a LOGIN line is appended; outside a literal, that line is a command and refused."""
    through = ImapFilter(reads_only=False)
    first, text, rest = b"a APPEND x " + size + b"\r\n", b"b LOG", b"IN x\r\n"
    assert _imap_up(through, first + text) == (first if b"+" not in size else first + text)
    if b"+" not in size:
        assert list(through.down(b"+ go on\r\n")) == [
            Passed(to_client=b"+ go on\r\n"),
            Passed(to_server=text),
        ]
    assert _imap_up(through, rest) == rest  # within the command, behind the literal
    with pytest.raises(LoginError, match="LOGIN after the login"):
        _imap_up(through, b"b login x y\r\n")


@pytest.mark.abuse_case("LM7")
def test_the_line_after_a_refused_imap_literal_is_checked_as_a_command() -> None:
    """The line is checked like any command, and only the refusal itself ends the wait for the literal."""
    through = ImapFilter(reads_only=False)
    assert _imap_up(through, b"a APPEND x {90}\r\n", b"b LOGIN x y\r\n") == b"a APPEND x {90}\r\n"
    with pytest.raises(LoginError, match="LOGIN after the login"):
        list(through.down(b"a NO full\r\n"))
    through = ImapFilter(reads_only=False)
    assert _imap_up(through, b"a APPEND x {90}\r\n", b"b NOOP\r\n") == b"a APPEND x {90}\r\n"
    assert list(through.down(b"* 1 EXISTS\r\nz OK\r\n"))[1:] == []
    assert list(through.down(b"a N")) == [Passed(to_client=b"a N"), Passed(to_server=b"b NOOP\r\n")]
    with pytest.raises(LoginError):
        _imap_up(through, b"c LOGIN x y\r\n")


@pytest.mark.abuse_case("LM7")
@pytest.mark.parametrize(
    "command", [b"LOGIN x y", b"login x y", b"AUTHENTICATE PLAIN", b"STARTTLS", b"COMPRESS DEFLATE", b"UNAUTHENTICATE"]
)
def test_a_second_login_and_compression_are_refused_on_an_imap_stream(command: bytes) -> None:
    """The spelling does not matter."""
    for spelt in (b"a " + command, b"a  " + command, b"a NOOP\nb " + command, b"a NOOP\rb " + command):
        with pytest.raises(LoginError) as refused:
            _imap_up(ImapFilter(reads_only=False), spelt + b"\r\n")
        assert refused.value.problem is Problem.NOT_ALLOWED


@pytest.mark.abuse_case("LM12")
@pytest.mark.parametrize(
    "line", [b" SEARCH DELETE x", b"\tx SEARCH DELETE", b"x\tDELETE SEARCH x", b"a SEARCH\tx", b"a", b"+ NOOP"]
)
@pytest.mark.parametrize("reads_only", [True, False])
def test_a_line_that_a_service_may_read_in_another_way_is_refused(line: bytes, reads_only: bool) -> None:
    """A service that skips leading blanks, or takes a tab for one, would find another command in it."""
    with pytest.raises(LoginError, match="no command of IMAP"):
        _imap_up(ImapFilter(reads_only=reads_only), line + b"\r\n")
    through = ImapFilter(reads_only=False)
    usual = b"a IDLE\r\nDONE\r\n\r\nb X-GM.EXT1 1\r\nc UID  NOOP\r\n"
    assert _imap_up(through, usual) == usual


@pytest.mark.parametrize(
    "command",
    [
        b"EXAMINE INBOX",
        b"UID FETCH 1:* (FLAGS BODY.PEEK[] RFC822.SIZE RFC822.HEADER)",
        b"FETCH 1 BODYSTRUCTURE",
        b"UID SEARCH TEXT x",
        b'LIST "" *',
        b"STATUS INBOX (UNSEEN)",
        b"LOGOUT",
    ],
)
def test_an_imap_stream_of_a_preview_may_read(command: bytes) -> None:
    """This is the positive control of the next test."""
    assert _imap_up(ImapFilter(reads_only=True), b"a " + command + b"\r\n") == b"a " + command + b"\r\n"


@pytest.mark.abuse_case("LM10")
@pytest.mark.parametrize(
    "command",
    [
        b"SELECT INBOX",
        b"FETCH 1 (FLAGS BODY[])",
        b"FETCH 1 body[text]<0.5>",
        b"FETCH 1 RFC822",
        b"FETCH 1 (RFC822.TEXT)",
        b"FETCH 1 BINARY[1]",
        b"UID FETCH 1 RFC822",
        b"STORE 1 FLAGS x",
        b"UID STORE 1 FLAGS x",
        b"UID  EXPUNGE 1",
        b"EXPUNGE",
        b"CLOSE",
        b"APPEND x {5+}",
        b"SEARCH TEXT {5}",
        b"SEARCH TEXT {5+}",
        b"CREATE x",
        b"DELETE x",
        b"RENAME x y",
        b"COPY 1 x",
        b"MOVE 1 x",
        b"SETMETADATA x (y z)",
        b"SUBSCRIBE x",
        b"NOOP\nb STORE 1 FLAGS x",
        b"",
    ],
)
def test_an_imap_stream_of_a_preview_changes_nothing(command: bytes) -> None:
    """Only listed commands pass, and none of them changes even a flag."""
    with pytest.raises(LoginError) as refused:
        _imap_up(ImapFilter(reads_only=True), b"a " + command + b"\r\n")
    assert refused.value.problem is Problem.NOT_ALLOWED


# POP3.


@pytest.mark.parametrize(
    "command", [b"USER x", b"PASS x", b"apop x y", b"AUTH PLAIN", b"STLS", b" USER x", b"NOOP\nUSER x", b"NOOP\rUSER x"]
)
def test_a_second_login_on_a_pop3_stream_is_refused(command: bytes) -> None:
    """The stream ends before the command is sent."""
    with pytest.raises(LoginError) as refused:
        list(Pop3Filter(reads_only=False).up(command + b"\r\n"))
    assert refused.value.problem is Problem.NOT_ALLOWED


@pytest.mark.abuse_case("LM10")
@pytest.mark.parametrize("command", [b"DELE 1", b"RETR 1", b"XTND XMIT", b""])
def test_a_pop3_stream_of_a_preview_changes_nothing(command: bytes) -> None:
    """RETR marks a message as read at some services; without a preview each command passes."""
    line = command + b"\r\n"
    assert list(Pop3Filter(reads_only=False).up(line)) == [Passed(to_server=line)]
    assert list(Pop3Filter(reads_only=True).up(b"TOP 1 0\r\n")) == [Passed(to_server=b"TOP 1 0\r\n")]
    with pytest.raises(LoginError):
        list(Pop3Filter(reads_only=True).up(line))


# Properties.

SMTP_LINES = st.sampled_from(
    [
        b"EHLO me\r\n",
        b"MAIL FROM:<a@example.com>\r\n",
        b"RCPT TO:<b@example.com>\r\n",
        b"RCPT TO:<c@example.com> NOTIFY=NEVER\r\n",
        b"DATA\r\n",
        b"hello\r\n",
        b"..\r\n",
        b".\r\n",
        b"RSET\r\n",
        b"NOOP\r\n",
        b"AUTH PLAIN " + PLACEHOLDER + b"\r\n",
        b"AUTH PLAIN\r\n",
        b"AUTH LOGIN\r\n",
        b"AUTH XOAUTH2\r\n",
        b"*\r\n",
        b"QUIT\r\n",
        b"\n",
        b"\r",
    ]
)
IMAP_LINES = st.sampled_from(
    [
        b"a NOOP\r\n",
        b"b SEARCH TEXT {3+}\r\nabc\r\n",
        b"c APPEND x {4+}\r\nd LO {2+}\r\nab\r\n",
        b"d FETCH 1 BODY.PEEK[]\r\n",
        b"e EXAMINE x\r\n",
        b"f LOGIN x " + PLACEHOLDER + b"\r\n",
        b"DONE\r\n",
        b"\n",
    ]
)
POP3_LINES = st.sampled_from(
    [b"STAT\r\n", b"TOP 1 0\r\n", b"RETR 1\r\n", b"PASS " + PLACEHOLDER + b"\r\n", b"USER x\r\n", b"\n", b"\r"]
)
MAKES: dict[str, tuple[Callable[[bool], Filter], st.SearchStrategy[bytes]]] = {
    "smtp": (lambda reads_only: _smtp(reads_only=reads_only), SMTP_LINES),
    "imap": (lambda reads_only: ImapFilter(reads_only=reads_only), IMAP_LINES),
    "pop3": (lambda reads_only: Pop3Filter(reads_only=reads_only), POP3_LINES),
}


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def _outcome(through: Filter, pieces: list[bytes], *, is_smtp: bool, cuts: list[int]) -> tuple[object, ...]:
    server, heard = Server(), Heard()
    answers = (lambda said: _cut(said, cuts)) if is_smtp else (lambda said: [])
    problem = None
    for piece in pieces:
        try:
            result = _talk(through, [piece], server, answers)
        except LoginError as error:
            problem = error.problem
            break
        heard.client += result.client
        heard.order += result.order
    return problem, server.heard, heard.client, heard.notes


@pytest.mark.parametrize("protocol", list(MAKES))
@given(data=st.data(), reads_only=st.booleans(), cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_the_outcome_of_a_mail_stream_does_not_depend_on_how_its_bytes_are_split(
    protocol: str, data: st.DataObject, reads_only: bool, cuts: list[int]
) -> None:
    """Service, library and record get the same bytes; of errors only the kind is compared."""
    make, lines = MAKES[protocol]
    text = b"".join(data.draw(st.lists(lines, max_size=14)))
    is_smtp = protocol == "smtp"
    whole = _outcome(make(reads_only), [text] if text else [], is_smtp=is_smtp, cuts=[])
    pieces = _outcome(make(reads_only), _cut(text, cuts), is_smtp=is_smtp, cuts=cuts)
    assert whole[0] == pieces[0]
    if whole[0] is None:
        assert whole == pieces


@pytest.mark.abuse_case("LM7")
@pytest.mark.parametrize("protocol", list(MAKES))
@given(data=st.data())
def test_a_library_s_placeholder_credential_never_reaches_the_mail_service(protocol: str, data: st.DataObject) -> None:
    """The placeholder is dropped wherever a library logs in, except in a message that contains the words."""
    make, lines = MAKES[protocol]
    text = b"".join(data.draw(st.lists(lines, max_size=14)))
    _problem, at_server, _client, _notes = _outcome(make(False), [text], is_smtp=protocol == "smtp", cuts=[])
    assert isinstance(at_server, bytes)
    if protocol == "smtp":
        at_server = re.sub(rb"DATA\r\n.*?(?:(?<=\r\n)\.\r\n|\Z)", b"", at_server, flags=re.DOTALL)
    assert PLACEHOLDER not in at_server


@pytest.mark.parametrize("protocol", list(MAKES))
@given(
    talk=st.lists(
        st.tuples(st.booleans(), st.binary(max_size=60) | st.sampled_from([b"MAIL FROM:<a@b>\r\n", b"250 ok\r\n"]))
    ),
    reads_only=st.booleans(),
)
def test_any_bytes_of_service_or_library_pass_or_raise_a_login_error(
    protocol: str, talk: list[tuple[bool, bytes]], reads_only: bool
) -> None:
    """The bytes come from the service and from the library."""
    through = MAKES[protocol][0](reads_only)
    with contextlib.suppress(LoginError):
        for is_up, data in talk:
            list(through.up(data) if is_up else through.down(data))
