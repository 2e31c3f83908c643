"""PostgreSQL's messages, byte by byte: servers that lie during the login, and connectors that lie in a frame."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.logins.login_messages import LoginError, Problem
from aileron.logins.protocol import Passed
from aileron.logins.protocols import postgres_wire as wire
from aileron.logins.protocols.postgres import PostgresLogin
from aileron.logins.protocols.postgres_frame import Control, Frame, control, first_word
from aileron.model.login import LoginDetails, PasswordForm
from tests.support.logins import LoginAt, trusting
from tests.support.upstream import Authority

PASSWORD: Final = b"correct horse"

# During the login: a scripted server.


Script = Callable[[socket.socket], None]


@contextlib.contextmanager
def against(
    script: Script, tls: ssl.SSLContext | None = None, ca_pem: str | None = None, allowed: PasswordForm | None = None
) -> Iterator[LoginAt]:
    """Log in at a server that reads the first message and then follows the script."""
    ours, service = socket.socketpair()
    ours.settimeout(10)

    def serve() -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            sock = ours
            if tls is not None:
                ours.recv(100)
                ours.sendall(b"S")
                sock = tls.wrap_socket(ours, server_side=True)
            with sock:
                script(sock)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    target = f"postgres+{'plain' if tls is None else 'tls'}://localhost:5432"
    details = LoginDetails(weak_password=allowed)
    with LoginAt(
        PostgresLogin, target, "me", PASSWORD, details=details, tls=trusting(ca_pem), service=service
    ) as login:
        yield login
    ours.close()
    server.join(10)


def saying(*answers: bytes) -> Script:
    """Return a script that sends each answer after a read."""

    def script(sock: socket.socket) -> None:
        for answer in answers:
            sock.recv(4096)
            sock.sendall(answer)
        sock.recv(4096)

    return script


def asks(code: int, data: bytes = b"") -> bytes:
    """Return an authentication request."""
    return wire.message(b"R", struct.pack("!i", code) + data)


OFFER: Final = asks(10, wire.text("SCRAM-SHA-256") + b"\0")
PLUS: Final = asks(10, wire.text("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256") + b"\0")


@pytest.mark.parametrize(
    ("answers", "problem", "words"),
    [
        ([asks(3)], Problem.WEAK_LOGIN, "in the clear"),
        ([asks(5, b"salt")], Problem.WEAK_LOGIN, "MD5"),
        ([asks(7)], Problem.WEAK_LOGIN, "Kerberos"),
        ([asks(0)], Problem.WEAK_LOGIN, "without the password"),
        ([asks(10, wire.text("OAUTHBEARER") + b"\0")], Problem.WEAK_LOGIN, "SCRAM-SHA-256"),
        ([asks(10, b"SCRAM-SHA-256")], Problem.PROTOCOL, "no end"),
        ([asks(11, b"r=x,s=eA==,i=4096")], Problem.PROTOCOL, "out of order"),
        ([OFFER, asks(0)], Problem.PROTOCOL, "did not prove"),
        ([OFFER, asks(3)], Problem.WEAK_LOGIN, "in the clear"),
        ([OFFER, OFFER], Problem.PROTOCOL, "out of order"),
        ([OFFER, asks(11, b"r=other,s=c2FsdHNhbHRzYWx0,i=4096")], Problem.PROTOCOL, "SCRAM-SHA-256"),
        ([wire.error_response("28P01", "no", fatal=True)], Problem.REFUSED_CREDENTIAL, "does not accept"),
        ([wire.error_response("53300", "no", fatal=True)], Problem.CLOSED, "too many"),
        ([b"E" + struct.pack("!i", 1 << 30)], Problem.PROTOCOL, "too long"),
        ([b"E" + struct.pack("!i", -1)], Problem.PROTOCOL, "not PostgreSQL's"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], Problem.PROTOCOL, "not PostgreSQL's"),
        ([wire.message(b"R", b"")], Problem.PROTOCOL, "something else"),
        ([wire.message(b"N", b"\0") * 1000], Problem.PROTOCOL, "500"),
    ],
)
def test_a_server_that_asks_for_a_weaker_login_method_gets_no_password_or_proof(
    answers: list[bytes], problem: Problem, words: str
) -> None:
    """A proof could be tried at another server."""
    with against(saying(*answers)) as login:
        failed = login.failed()
    assert (failed.problem, words in failed.message) == (problem, True), failed
    assert PASSWORD.decode() not in f"{failed}"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"N", Problem.NOT_ENCRYPTED),
        (wire.error_response("28000", "of whoever is on the way", fatal=True), Problem.NOT_ENCRYPTED),
        (b"S" + PLUS, Problem.NOT_ENCRYPTED),
        (b"SS", Problem.NOT_ENCRYPTED),
        (b"", Problem.CLOSED),
    ],
)
def test_bytes_injected_before_tls_are_neither_used_nor_quoted(answer: bytes, problem: Problem) -> None:
    """CVE-2021-23222 and CVE-2024-10977 are attacks of this kind."""
    ours, service = socket.socketpair()
    with LoginAt(PostgresLogin, "postgres://localhost:5432", "me", PASSWORD, service=service) as login, ours:
        assert ours.recv(100) == wire.startup(80877103)
        ours.sendall(answer)
        ours.shutdown(socket.SHUT_WR)
        failed = login.failed()
        assert (failed.problem, failed.said) == (problem, "")
        assert ours.recv(100) == b""


@pytest.mark.parametrize(("offer", "said"), [(PLUS, b"p=tls-server-end-point,,"), (OFFER, b"y,,")])
def test_a_removed_offer_of_channel_binding_is_noticed_by_the_server(
    authority: Authority, offer: bytes, said: bytes
) -> None:
    """The client sends `y`, "I support channel binding": a server that offered it must refuse (RFC 5802 section 6)."""
    first: list[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(offer)
        first.append(sock.recv(4096))
        sock.sendall(wire.error_response("28000", "no", fatal=True))

    with against(script, authority.server_context("localhost"), authority.ca_pem) as login:
        assert login.failed().problem is Problem.REFUSED_CREDENTIAL
    assert said in first[0]


def hearing(heard: list[bytes], *answers: bytes) -> Script:
    """Return a script that sends each answer after a read, and keeps the bytes that it reads."""

    def script(sock: socket.socket) -> None:
        for answer in answers:
            heard.append(sock.recv(4096))
            sock.sendall(answer)
        while data := sock.recv(4096):
            heard.append(data)

    return script


DIGEST: Final = b"md5f75148848866e101fb911861e0b59d2a"
"""MD5 response for PASSWORD, user `me` and salt `salt`, by PostgreSQL's manual ("Message Flow", AuthenticationMD5Password)."""
SHOWN: Final[dict[PasswordForm, bytes]] = {"md5": DIGEST, "cleartext": PASSWORD}
ASKS: Final[dict[PasswordForm, bytes]] = {"md5": asks(5, b"salt"), "cleartext": asks(3)}


def in_any_form(heard: list[bytes]) -> list[bytes]:
    """Return those of the password and its digest that were received."""
    return [form for form in (PASSWORD, DIGEST[3:]) if form in b"".join(heard)]


@pytest.mark.parametrize("form", ["md5", "cleartext"])
def test_an_allowed_password_form_is_sent_once_over_tls(authority: Authority, form: PasswordForm) -> None:
    """The server asks for this form. Without TLS it is not sent, and allowing it is not offered as a fix."""
    heard: list[bytes] = []
    script = hearing(heard, ASKS[form], asks(0) + wire.ready(b"I"))
    with against(script, authority.server_context("localhost"), authority.ca_pem, form) as login:
        assert login.logged_in().mechanism == form
    assert heard[1] == wire.message(b"p", SHOWN[form] + b"\0")

    plain: list[bytes] = []
    with against(hearing(plain, ASKS[form]), allowed=form) as login:
        failed = login.failed()
    assert (failed.problem, failed.may_allow) == (Problem.WEAK_LOGIN, None)
    assert in_any_form(plain) == []


@pytest.mark.parametrize(
    ("allowed", "answers", "problem", "words"),
    [
        (None, [asks(5, b"salt")], Problem.WEAK_LOGIN, "as an MD5 hash"),
        (None, [asks(3)], Problem.WEAK_LOGIN, "in the clear"),
        ("md5", [asks(3)], Problem.WEAK_LOGIN, "in the clear"),
        ("cleartext", [asks(5, b"salt")], Problem.WEAK_LOGIN, "MD5"),
        ("md5", [PLUS, asks(5, b"salt")], Problem.WEAK_LOGIN, "MD5"),
        ("cleartext", [PLUS, asks(3)], Problem.WEAK_LOGIN, "in the clear"),
        ("md5", [asks(0)], Problem.WEAK_LOGIN, "without the password"),
        ("md5", [asks(5, b"salt!")], Problem.PROTOCOL, "no salt of 4 bytes"),
        ("md5", [asks(5)], Problem.PROTOCOL, "no salt of 4 bytes"),
        ("cleartext", [asks(7)], Problem.WEAK_LOGIN, "Kerberos"),
    ],
    ids=[
        *(
            "nothing-md5",
            "nothing-cleartext",
            "md5-cleartext",
            "cleartext-md5",
            "scram-then-md5",
            "scram-then-cleartext",
        ),
        *("nothing-asked", "long-salt", "no-salt", "kerberos"),
    ],
)
def test_only_the_allowed_form_of_the_password_is_sent(
    authority: Authority, allowed: PasswordForm | None, answers: list[bytes], problem: Problem, words: str
) -> None:
    """The allowed form is not sent after SCRAM has begun either. Allowing a form is offered only if none was allowed: a server
    that asks for more than it used to must not be given it.
    """
    heard: list[bytes] = []
    with against(hearing(heard, *answers), authority.server_context("localhost"), authority.ca_pem, allowed) as login:
        failed = login.failed()
    assert (failed.problem, words in failed.message) == (problem, True), failed
    offered = {"as an MD5 hash": "md5", "in the clear": "cleartext"}[words] if allowed is None else None
    assert failed.may_allow == offered
    assert in_any_form(heard) == []


@pytest.mark.parametrize("again", [asks(5, b"tlas"), asks(3), PLUS], ids=["md5", "cleartext", "scram"])
def test_a_server_gets_only_one_password_hash(authority: Authority, again: bytes) -> None:
    """The server asks for hashes with salts of its choice, or for more after the first."""
    heard: list[bytes] = []
    script = hearing(heard, asks(5, b"salt"), again)
    with against(script, authority.server_context("localhost"), authority.ca_pem, "md5") as login:
        failed = login.failed()
    assert (failed.problem, "asks for the password again" in failed.message) == (Problem.PROTOCOL, True), failed
    assert heard[1:] == [wire.message(b"p", DIGEST + b"\0")]


@pytest.mark.parametrize("form", ["md5", "cleartext"])
def test_a_server_with_a_wrong_certificate_gets_no_form_of_the_password(
    authority: Authority, form: PasswordForm
) -> None:
    """The certificate is another host's. TLS without a verified name is not enough."""
    heard: list[bytes] = []
    with against(hearing(heard, ASKS[form]), authority.server_context("db.example"), authority.ca_pem, form) as login:
        assert login.failed().problem is Problem.CERTIFICATE
    assert heard == []


@pytest.mark.parametrize("form", ["md5", "cleartext"])
def test_a_refusal_quotes_no_part_of_a_sent_password(authority: Authority, form: PasswordForm) -> None:
    """The server repeats the password, or its digest, in its error."""
    said = f"no such password: {SHOWN[form].decode()}"
    script = saying(ASKS[form], wire.error_response("28P01", said, fatal=True))
    with against(script, authority.server_context("localhost"), authority.ca_pem, form) as login:
        failed = login.failed()
    assert (failed.problem, failed.said.startswith("no such password: ")) == (Problem.REFUSED_CREDENTIAL, True)
    assert in_any_form([str(failed).encode()]) == []


@pytest.mark.parametrize("form", ["md5", "cleartext"])
def test_a_sent_password_is_masked_in_the_whole_stream(authority: Authority, form: PasswordForm) -> None:
    """The hexadecimal digits of a digest are masked, with `md5` before them or without."""
    secret = DIGEST[3:] if form == "md5" else PASSWORD

    def script(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(ASKS[form])
        sock.recv(4096)
        sock.sendall(asks(0) + wire.ready(b"I"))
        for _ in range(2):
            sock.recv(4096)
            sock.sendall(wire.message(b"N", b"Mnot " + DIGEST + b" nor " + PASSWORD + b"\0\0") + wire.ready(b"I"))

    with against(script, authority.server_context("localhost"), authority.ca_pem, form) as login:
        login.logged_in()
        login.client.sendall(wire.startup(3 << 16, wire.text("user", "x") + b"\0"))
        greeted = login.client.recv(4096)
        for _ in range(2):
            login.client.sendall(query("SELECT 1"))
            heard = b""
            while not heard.endswith(wire.ready(b"I")):
                heard += login.client.recv(4096)
            assert (secret in heard, b"*" * len(secret) in heard) == (False, True), heard
        login.client.close()
        assert login.over().scrubbed == 2
    assert greeted.endswith(wire.ready(b"I"))


# After the login: the frame, without a server.


def messages(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return all messages, each whole."""
    found = wire.Cutter(dict.fromkeys((bytes([n]) for n in range(256)), 1 << 30), "x").cut(data)
    assert all(isinstance(part, wire.Head) and part.is_last for part in found)
    return [(part.kind, part.body) for part in found if isinstance(part, wire.Head)]


def to_server(passed: Iterable[Passed]) -> bytes:
    """Return the bytes that go to the server."""
    return b"".join(part.to_server for part in passed)


def to_client(passed: Iterable[Passed]) -> bytes:
    """Return the bytes that go to the client."""
    return b"".join(part.to_client for part in passed)


def query(sql: str) -> bytes:
    """Return a simple query."""
    return wire.message(b"Q", wire.text(sql))


def parse(sql: str, name: str = "") -> bytes:
    """Return a message that prepares a statement."""
    return wire.message(b"P", wire.text(name, sql) + bytes(2))


def statements(data: bytes) -> list[bytes]:
    """Return the statements that the server would carry out."""
    found = []
    for kind, body in messages(data):
        assert kind not in (b"Q",) or body.startswith(b"ROLLBACK TO SAVEPOINT aileron_"), body
        if kind in (b"Q", b"P"):
            found.append(body.split(b"\0")[kind == b"P"])
    return found


BLANKS: Final = st.lists(
    st.sampled_from(
        [" ", "\n", "\t", "\r", "\f", "\v", ";", "/* c */", "/*/**/*/", "/* -- */", "-- c\n", "--\r", "/*'*/"]
    ),
    max_size=6,
).map("".join)
ENDINGS: Final = st.sampled_from(
    [
        "COMMIT",
        "END",
        "ROLLBACK",
        "ABORT",
        "BEGIN",
        "START TRANSACTION",
        "PREPARE TRANSACTION 'x'",
        "COMMIT PREPARED 'x'",
        "DISCARD ALL",
    ]
)


def any_case(text: str, data: st.DataObject) -> str:
    """Return the text with the case of each letter chosen at random."""
    return "".join(c.upper() if data.draw(st.booleans()) else c.lower() for c in text)


@given(st.data(), BLANKS, ENDINGS, BLANKS, st.booleans(), st.booleans())
def test_no_spelling_of_a_statement_that_ends_the_transaction_reaches_the_server(
    data: st.DataObject, before: str, ending: str, after: str, only_reads: bool, simple: bool
) -> None:
    """Spaces, comments and semicolons before the word do not hide it."""
    sql = before + any_case(ending, data) + after
    said = query(sql) if simple else parse(sql)
    (carried_out,) = statements(to_server(Frame(only_reads=only_reads).up(said)))
    assert carried_out in (b"CLOSE ALL", b"aileron_refused_this_statement") or carried_out.startswith(
        b"ROLLBACK TO SAVEPOINT aileron_"
    )


@given(st.text(max_size=40), st.booleans())
@example("COMMIT\0", True)
@example("(COMMIT)", False)
@example("ＣＯＭＭＩＴ", False)
@example("/* SELECT */ /", False)
@example("/*" * 60 + "*/" * 60 + "COMMIT", False)
@example("SELECT/**/1", True)
@example("commitment", True)
def test_only_statements_that_begin_with_a_listed_word_reach_the_server(sql: str, only_reads: bool) -> None:
    """Any text is tried."""
    if "\0" in sql:
        with pytest.raises(LoginError):
            to_server(Frame(only_reads=only_reads).up(query(sql)))
        return
    (carried_out,) = statements(to_server(Frame(only_reads=only_reads).up(query(sql))))
    with contextlib.suppress(ValueError):
        word = first_word(carried_out)
        assert word not in (
            "COMMIT",
            "END",
            "ABORT",
            "BEGIN",
            "START",
            "PREPARE",
            "DISCARD",
            "VACUUM",
            "LISTEN",
            "LOAD",
            "EXECUTE",
        )
        if only_reads:
            assert word not in ("INSERT", "UPDATE", "DELETE", "DO", "CALL", "CREATE")


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("begin", Control.BEGIN),
        ("BEGIN WORK ISOLATION LEVEL READ COMMITTED, READ ONLY NOT DEFERRABLE;", Control.BEGIN),
        ("start /**/ transaction", Control.BEGIN),
        ("commit and no chain", Control.COMMIT),
        ("end;", Control.COMMIT),
        ("abort", Control.ROLLBACK),
        ("rollback to savepoint a", None),
        ("ROLLBACK WORK TO a", None),
        ("select 1", None),
    ],
)
def test_statements_that_control_a_transaction_are_recognized(sql: str, meant: Control | None) -> None:
    """Recognized statements are answered locally, and never reach the server."""
    assert control(sql.encode()) is meant


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "COMMIT AND CHAIN",
        "COMMIT PREPARED 'x'",
        "ROLLBACK PREPARED 'to'",
        "START",
        "END x",
    ],
)
def test_a_transaction_statement_that_cannot_be_emulated_is_refused(sql: str) -> None:
    """Inside the enclosing transaction it would have another effect than it says."""
    with pytest.raises(ValueError, match="only BEGIN, COMMIT and ROLLBACK"):
        control(sql.encode())


READY_FAILED: Final = wire.ready(b"E")
MESSAGE: Final = st.one_of(
    st.sampled_from(
        [query("SELECT 1"), query("COPY a FROM STDIN"), query("COMMIT"), query("INSERT INTO a VALUES (1)")]
    ),
    st.sampled_from(
        [parse("SELECT 1"), parse("commit", "c"), wire.message(b"S"), wire.message(b"H"), wire.message(b"c")]
    ),
    st.binary(max_size=40).map(lambda data: wire.message(b"d", data)),
    st.binary(max_size=40).map(lambda data: wire.message(b"B", wire.text("", "c") + data)),
    st.binary(max_size=3000).map(lambda data: wire.message(b"B", wire.text("", "") + data)),
)
ANSWER: Final = st.sampled_from(
    [
        READY_FAILED,
        wire.ready(b"T"),
        wire.message(b"C", b"SELECT 1\0"),
        wire.error_response("42601", "no", fatal=False),
        wire.message(b"G", b"\0\0\0"),
    ]
)


@given(st.lists(MESSAGE, max_size=8), st.lists(st.tuples(st.integers(0, 400), ANSWER), max_size=12))
@example([wire.message(b"B", wire.text("", "") + query("COMMIT") * 200)], [(0, READY_FAILED)])
@example([query("SELECT x"), wire.message(b"d", query("COMMIT") * 9)], [(30, READY_FAILED)])
def test_aileron_s_own_messages_are_never_inserted_into_a_message_of_the_connector(
    said: list[bytes], answers: list[tuple[int, bytes]]
) -> None:
    """A rollback may be due while the connector's message is half sent: the server would misread the rest."""
    frame = Frame(only_reads=False)
    data = b"".join(said)
    sent = b""
    try:
        for size, answer in answers:
            sent += to_server(frame.up(data[:size]))
            data = data[size:]
            sent += to_server(frame.down(answer))
        sent += to_server(frame.up(data))
    except LoginError:
        return
    assert b"COMMIT" not in b"".join(statements(sent)).upper()


@given(st.lists(MESSAGE, max_size=6), st.data())
def test_the_filter_of_a_connector_s_messages_does_not_depend_on_how_the_bytes_are_split(
    said: list[bytes], data: st.DataObject
) -> None:
    """The reason of a refusal does not depend on it either."""
    whole, cut = Frame(only_reads=True), Frame(only_reads=True)
    stream = b"".join(said)
    pieces, at = [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        pieces.append(stream[at : at + size])
        at += size

    def outcome(frame: Frame, parts: list[bytes]) -> bytes:
        sent = b""
        try:
            for part in parts:
                sent += to_server(frame.up(part))
        except LoginError as error:
            return str(error).encode()
        return sent.replace(frame.begin.split()[-1].encode(), b"aileron_x")

    assert outcome(whole, [stream]) == outcome(cut, pieces)


ROWS: Final = st.lists(st.binary(max_size=30).map(lambda data: wire.message(b"D", data)), max_size=6).map(b"".join)


@given(ROWS, st.data())
def test_the_filter_of_a_server_s_answers_does_not_depend_on_how_the_bytes_are_split(
    rows: bytes, data: st.DataObject
) -> None:
    """Rows pass unchanged; the answers to our own messages are removed."""
    own = wire.message(b"1") + wire.message(b"2")
    stream = own + wire.message(b"T", b"x") + rows + wire.message(b"C", b"SELECT 1\0") + wire.ready(b"T")
    frame = Frame(only_reads=True)
    to_server(frame.up(query("SELECT 1")))
    heard = b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        heard += to_client(frame.down(stream[:size]))
        stream = stream[size:]
    assert heard == wire.message(b"T", b"x") + rows + wire.message(b"C", b"SELECT 1\0") + wire.ready(b"I")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (wire.message(b"p", b"x\0"), "not passed on"),
        (wire.message(b"\xff"), "not passed on"),
        (b"Q" + struct.pack("!i", 3), "no message"),
        (b"Q" + struct.pack("!i", -5), "no message"),
        (b"d" + struct.pack("!i", 0x7FFFFFFF), "no message"),
        (parse("SELECT 1") + query("SELECT 1"), "before the Sync"),
        (query("SELECT 1\0COMMIT"), "no end, or something behind it"),
        (wire.message(b"B", b"x" * 2000), "1024 bytes"),
    ],
)
def test_a_message_that_no_regular_library_sends_ends_the_stream(said: bytes, words: str) -> None:
    """The reason is for the connector's author."""
    with pytest.raises(LoginError, match=words):
        to_server(Frame(only_reads=True).up(said))


def test_a_server_that_leaves_the_enclosing_transaction_ends_the_stream() -> None:
    """The cause makes no difference."""
    frame = Frame(only_reads=True)
    to_server(frame.up(query("SELECT 1")))
    with pytest.raises(LoginError, match="transaction is over") as caught:
        to_client(frame.down(wire.ready(b"I")))
    assert caught.value.problem is Problem.NOT_ALLOWED


def test_the_length_of_a_statement_is_bounded_and_that_of_a_value_is_not() -> None:
    """A statement is held until it is complete and checked as a whole; values are passed on."""
    frame = Frame(only_reads=True)
    with pytest.raises(LoginError, match="at most 1048576"):
        to_server(frame.up(b"Q" + struct.pack("!i", 2 << 20) + b" " * (1 << 20)))
    frame = Frame(only_reads=True)
    bind = wire.message(b"B", wire.text("", "") + b"x" * (3 << 20))
    assert to_server(frame.up(bind)) == bind
