"""Mail at Debian's Dovecot and Postfix: each mechanism, by unmodified client libraries that never know the password."""

from __future__ import annotations

import contextlib
import email.message
import imaplib
import smtplib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aileron.logins.login_messages import Envelope, Failed, LoggedIn, Order, Over, Problem, Submitted
from aileron.logins.protocol import Login
from aileron.logins.protocols.imap import ImapLogin
from aileron.logins.protocols.pop3 import Pop3Login
from aileron.logins.protocols.smtp import SmtpLogin
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.logins import LoginAt, trusting
from tests.support.mail_clients import imap, pop3, smtp
from tests.support.postfix import MAX_MESSAGE, Postfix
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

SECRET = PASSWORD.encode()
TOKEN = b"ya29.a-token-of-the-tests"
PLACEHOLDER = "any-password-will-do"
HELLO = b"From: noor@example.com\r\nTo: mira@example.com\r\nSubject: hello\r\n\r\nhello mira\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of all servers here."""
    return Authority(Path(tmp_path_factory.mktemp("authority")))


@pytest.fixture(scope="module")
def dovecots(authority: Authority) -> Iterator[Callable[[str], Dovecot]]:
    """Return a function that starts a Dovecot with given mechanisms, once."""
    running: dict[str, Dovecot] = {}
    with contextlib.ExitStack() as undo:

        def with_mechanisms(mechanisms: str) -> Dovecot:
            if mechanisms not in running:
                running[mechanisms] = undo.enter_context(Dovecot(authority, mechanisms))
                running[mechanisms].tokens[TOKEN.decode()] = "mira"
            return running[mechanisms]

        yield with_mechanisms


@pytest.fixture(scope="module")
def dovecot(dovecots: Callable[[str], Dovecot]) -> Dovecot:
    """Return the Dovecot with all mechanisms."""
    return dovecots(ALL)


@pytest.fixture(scope="module")
def postfix(authority: Authority, dovecot: Dovecot) -> Iterator[Postfix]:
    """Start a Postfix whose logins are checked by a Dovecot with all mechanisms; ports of its own offer fewer."""
    with Postfix(authority, dovecot) as running:
        yield running


ALL = "plain login scram-sha-256 xoauth2 oauthbearer"
MECHANISMS = [
    (ALL, "password", "SCRAM-SHA-256"),
    ("plain login", "password", "PLAIN"),
    ("login", "password", "LOGIN"),
    (ALL, "token", "XOAUTH2"),
    ("plain oauthbearer", "token", "OAUTHBEARER"),
]


MAKES: dict[str, type[Login]] = {"imap": ImapLogin, "pop3": Pop3Login, "smtp": SmtpLogin}
SECRETS = {"password": SECRET, "token": TOKEN}


def tls_port(protocol: str, dovecot: Dovecot, postfix: Postfix, offered: str = ALL) -> int:
    """Return the port at which a protocol's server speaks TLS from the start; Postfix has one for each offer of mechanisms."""
    return {"imap": dovecot.imaps, "pop3": dovecot.pop3s, "smtp": postfix.submissions[offered]}[protocol]


def _login(
    make: Callable[[Order], Login],
    target: str,
    authority: Authority,
    *,
    username: str = "mira",
    secret: bytes = b"",
    credential: str = "password",
    reads_only: bool = False,
    login_s: float = 10.0,
) -> LoginAt:
    return LoginAt(
        make,
        target,
        username,
        secret or SECRETS[credential],
        tls=trusting(authority.ca_pem),
        credential="token" if credential == "token" else "password",
        reads_only=reads_only,
        login_s=login_s,
    )


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
@pytest.mark.parametrize(("offered", "credential", "mechanism"), MECHANISMS)
def test_imaplib_reads_a_mailbox_by_each_mechanism(
    dovecots: Callable[[str], Dovecot],
    authority: Authority,
    encryption: str,
    offered: str,
    credential: str,
    mechanism: str,
) -> None:
    """The mailbox is that of the binding, whatever user and password the library sends."""
    dovecot = dovecots(offered)
    dovecot.deliver("mira", HELLO)
    port = dovecot.imaps if encryption == "tls" else dovecot.imap
    with _login(ImapLogin, f"imap+{encryption}://localhost:{port}", authority, credential=credential) as login:
        assert LoggedIn(mechanism=mechanism) == login.logged_in()
        with imap(login.client) as client:
            assert client.login("somebody", PLACEHOLDER)[0] == "OK"
            assert client.select()[0] == "OK"
            body = client.fetch("1", "(RFC822)")[1][0]
            assert isinstance(body, tuple)
            assert b"hello mira" in body[1]
            assert client.logout()[0] == "BYE"
        assert login.over() == Over(scrubbed=0)


@pytest.mark.parametrize("protocol", MAKES)
def test_tls_at_a_starttls_port_and_starttls_at_a_tls_port_are_reported(
    dovecot: Dovecot,
    postfix: Postfix,
    authority: Authority,
    protocol: str,
) -> None:
    """TLS at a STARTTLS port, and STARTTLS at a TLS port: both ends wait until the login times out."""
    ports = {"imap": (dovecot.imap, dovecot.imaps), "pop3": (dovecot.pop3, dovecot.pop3s)}
    begins_plain, begins_tls = ports.get(protocol, (postfix.submission[ALL], postfix.submissions[ALL]))

    with _login(MAKES[protocol], f"{protocol}+tls://localhost:{begins_plain}", authority) as login:
        plain = login.failed()
    with _login(MAKES[protocol], f"{protocol}+starttls://localhost:{begins_tls}", authority, login_s=0.5) as login:
        silent = login.failed()

    assert (plain.problem, silent.problem) == (Problem.NOT_ENCRYPTED, Problem.TOO_SLOW)
    assert f"build the connector with --login {protocol}+starttls://localhost:{begins_plain}" in plain.message
    assert f"build the connector with --login {protocol}+tls://localhost:{begins_tls}" in silent.message


def test_a_server_that_accepts_only_tokens_is_sent_no_password(
    dovecots: Callable[[str], Dovecot], authority: Authority
) -> None:
    """The server announces LOGINDISABLED, so no login is tried."""
    dovecot = dovecots("xoauth2")
    with _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority) as login:
        failed = login.failed()
    assert (failed.problem, failed.said) == (Problem.WEAK_LOGIN, "AUTH: XOAUTH2")
    assert "method=" not in dovecot.log()


@pytest.mark.parametrize("authenticates", ["LOGIN", "PLAIN", "PLAIN-IR"])
def test_imaplib_can_log_in_by_login_and_by_authenticate(
    dovecot: Dovecot, authority: Authority, authenticates: str
) -> None:
    """LOGIN and AUTHENTICATE work alike; a message is appended by a literal, as drafts are."""
    with (
        _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority, username="noor") as login,
        imap(login.client) as client,
    ):
        assert "STARTTLS" not in client.capabilities
        assert "IMAP4REV1" in client.capabilities
        if authenticates == "LOGIN":
            client.login("x", 'a "quoted" \\ password')
        elif authenticates == "PLAIN":
            client.authenticate("PLAIN", lambda _challenge: b"\0x\0y")
        else:
            assert client._simple_command("AUTHENTICATE", "PLAIN", "AHgAeQ==")[0] == "OK"
            client.state = "AUTH"
        before = len(dovecot.messages("noor"))
        draft = HELLO + b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * 4000
        assert client.append("INBOX", "(\\Seen)", "", draft)[0] == "OK"
        assert client.noop()[0] == "OK"
        assert len(dovecot.messages("noor")) == before + 1


@pytest.mark.abuse_case("LM10")
def test_a_preview_of_imap_reads_and_changes_nothing(dovecot: Dovecot, authority: Authority) -> None:
    """EXAMINE, SEARCH and a FETCH that peeks pass; SELECT, STORE and a FETCH that sets a flag end the stream."""
    dovecot.deliver("mira", HELLO)
    target = f"imap://localhost:{dovecot.imaps}"
    with (
        _login(ImapLogin, target, authority, reads_only=True) as login,
        imap(login.client) as client,
    ):
        client.login("x", "y")
        assert client.select(readonly=True)[0] == "OK"
        assert client.search(None, "SUBJECT", '"hello"')[0] == "OK"
        assert client.fetch("1", "(UID RFC822.SIZE BODY.PEEK[HEADER])")[0] == "OK"
        assert client.uid("FETCH", "1:*", "(FLAGS)")[0] == "OK"
    refused: list[Callable[[imaplib.IMAP4], object]] = [
        lambda client: client.select(),
        lambda client: client.fetch("1", "(BODY[])"),
        lambda client: client.fetch("1", "(RFC822)"),
        lambda client: client.uid("STORE", "1", "+FLAGS", "\\Deleted"),
        lambda client: client.create("new"),
        lambda client: client.append("INBOX", "", "", HELLO),
    ]
    for ask in refused:
        with _login(ImapLogin, target, authority, reads_only=True) as login:
            with imap(login.client) as client:
                client.login("x", "y")
                client.select(readonly=True)
                with pytest.raises(imaplib.IMAP4.abort):
                    ask(client)
            assert login.over().problem is Problem.NOT_ALLOWED


@pytest.mark.abuse_case("LM7")
def test_a_second_login_of_a_library_ends_the_stream(dovecot: Dovecot, authority: Authority) -> None:
    """The second password does not reach the service."""
    with _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority) as login:
        with imap(login.client) as client:
            client.login("x", "y")
            client.state = "NONAUTH"
            with pytest.raises(imaplib.IMAP4.abort):
                client._simple_command("LOGIN", "x", PLACEHOLDER)
        over = login.over()
        assert (over.problem, PLACEHOLDER in over.message) == (Problem.NOT_ALLOWED, False)


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
@pytest.mark.parametrize(("offered", "credential", "mechanism"), MECHANISMS)
def test_poplib_reads_a_mailbox_by_each_mechanism(
    dovecots: Callable[[str], Dovecot],
    authority: Authority,
    encryption: str,
    offered: str,
    credential: str,
    mechanism: str,
) -> None:
    """The library's USER and PASS are dropped."""
    dovecot = dovecots(offered)
    dovecot.deliver("mira", HELLO)
    port = dovecot.pop3s if encryption == "tls" else dovecot.pop3
    with _login(Pop3Login, f"pop3+{encryption}://localhost:{port}", authority, credential=credential) as login:
        assert LoggedIn(mechanism=mechanism) == login.logged_in()
        with pop3(login.client) as client:
            assert client.capa()["SASL"] == ["PLAIN", "LOGIN"]
            client.user("somebody")
            assert client.pass_(PLACEHOLDER).startswith(b"+OK")
            count, _size = client.stat()
            assert b"hello mira" in client.retr(count)[1]
            client.quit()
        assert login.over() == Over(scrubbed=0)


def test_a_preview_of_pop3_deletes_nothing(dovecot: Dovecot, authority: Authority) -> None:
    """A preview reads by TOP; DELE ends the stream."""
    dovecot.deliver("noor", HELLO)
    target = f"pop3://localhost:{dovecot.pop3s}"
    with _login(Pop3Login, target, authority, username="noor", reads_only=True) as login:
        with pop3(login.client) as client:
            client.user("x")
            client.pass_("y")
            assert b"hello mira" in client.top(1, 100)[1]
            with pytest.raises((OSError, EOFError, Exception), match=r"EOF|reset|unexpected"):
                client.dele(1)
        assert login.over().problem is Problem.NOT_ALLOWED
    assert dovecot.messages("noor")


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
@pytest.mark.parametrize(("offered", "credential", "mechanism"), MECHANISMS)
def test_smtplib_sends_by_each_mechanism(
    postfix: Postfix,
    dovecot: Dovecot,
    authority: Authority,
    encryption: str,
    offered: str,
    credential: str,
    mechanism: str,
) -> None:
    """The message arrives, and its envelope was on record before: the recipients that the service accepted."""
    port = (postfix.submissions if encryption == "tls" else postfix.submission)[offered]
    before = len(dovecot.messages("noor"))
    message = email.message.EmailMessage()
    message["Subject"] = f"by {mechanism}"
    message.set_content(".begins with a dot\nand ends\n.\n")
    with _login(SmtpLogin, f"smtp+{encryption}://localhost:{port}", authority, credential=credential) as login:
        assert LoggedIn(mechanism=mechanism) == login.logged_in()
        with smtp(login.client) as client:
            client.login("somebody", PLACEHOLDER)
            refused = client.send_message(message, "mira@example.com", ["noor@example.com", "nobody@example.com"])
            assert list(refused) == ["nobody@example.com"]
            assert client.noop()[0] == 250
            client.quit()
        assert login.over() == Over(scrubbed=0)
    envelope, submitted = login.notes
    assert isinstance(envelope, Envelope)
    assert (envelope.sender, envelope.recipients) == ("mira@example.com", ("noor@example.com",))
    assert isinstance(submitted, Submitted)
    assert submitted.code == 250
    assert submitted.size >= (envelope.size or 0) > 0
    wait_until(lambda: len(dovecot.messages("noor")) == before + 1, "a message arrives")
    assert any(
        b"\n.begins with a dot\nand ends\n.\n" in mail.replace(b"\r\n", b"\n") for mail in dovecot.messages("noor")
    )


def test_smtplib_can_send_without_a_login_of_its_own(postfix: Postfix, authority: Authority) -> None:
    """The stream is already logged in. Each of several messages has its own envelope."""
    with (
        _login(SmtpLogin, f"smtp://localhost:{postfix.submissions[ALL]}", authority) as login,
        smtp(login.client) as client,
    ):
        for to in ("noor@example.com", "mira@example.com"):
            client.sendmail("mira@example.com", to, "Subject: x\r\n\r\nx\r\n")
        assert not client.has_extn("starttls")
        assert not client.has_extn("pipelining")
        assert not client.has_extn("chunking")
        assert client.has_extn("size")
    envelopes = [note for note in login.notes if isinstance(note, Envelope)]
    assert [envelope.recipients for envelope in envelopes] == [("noor@example.com",), ("mira@example.com",)]
    assert [note.code for note in login.notes if isinstance(note, Submitted)] == [250, 250]


def test_a_message_that_the_server_refuses_is_recorded_as_refused(postfix: Postfix, authority: Authority) -> None:
    """The message is refused after its last byte, and the stream stays open."""
    with (
        _login(SmtpLogin, f"smtp://localhost:{postfix.submissions[ALL]}", authority) as login,
        smtp(login.client) as client,
    ):
        client.ehlo()
        client.mail("mira@example.com")
        client.rcpt("noor@example.com")
        code, _words = client.data(
            b"Subject: x\r\n\r\n" + b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * (MAX_MESSAGE // 70)
        )
        assert code == 552
        assert client.rset()[0] == 250
    assert [note.code for note in login.notes if isinstance(note, Submitted)] == [552]


def test_a_preview_of_smtp_checks_recipients_and_sends_nothing(
    postfix: Postfix, dovecots: Callable[[str], Dovecot], authority: Authority
) -> None:
    """MAIL, RCPT and RSET pass and show which recipients the server accepts. DATA ends the stream."""
    with _login(SmtpLogin, f"smtp://localhost:{postfix.submissions[ALL]}", authority, reads_only=True) as login:
        with smtp(login.client) as client:
            client.ehlo()
            client.mail("mira@example.com")
            assert client.rcpt("noor@example.com")[0] == 250
            assert client.rcpt("nobody@example.com")[0] == 550
            client.rset()
            client.mail("mira@example.com")
            client.rcpt("noor@example.com")
            with pytest.raises(smtplib.SMTPServerDisconnected):
                client.data(b"x")
        assert login.over().problem is Problem.NOT_ALLOWED
    assert login.notes == []


@pytest.mark.abuse_case("LM5")
@pytest.mark.parametrize("protocol", ["smtp", "imap", "pop3"])
@pytest.mark.parametrize("offered", [ALL, "plain login"])
def test_a_wrong_password_is_reported_and_tried_once(
    postfix: Postfix,
    dovecots: Callable[[str], Dovecot],
    authority: Authority,
    protocol: str,
    offered: str,
) -> None:
    """The server's log has one attempt: none by a weaker mechanism. The failure does not contain the password."""
    dovecot = dovecots(offered)
    target = f"{protocol}+tls://localhost:{tls_port(protocol, dovecot, postfix, offered)}"
    with _login(MAKES[protocol], target, authority, secret=b"wrong-password") as login:
        failed = login.failed()
    assert failed.problem is Problem.REFUSED_CREDENTIAL
    assert "wrong-password" not in failed.message + failed.said
    assert failed.said
    if protocol != "smtp":
        wait_until(lambda: "auth failed, 1 attempts" in dovecot.log(), "the failure is logged", seen=dovecot.log)
        assert "auth failed, 2 attempts" not in dovecot.log()


@pytest.mark.parametrize("protocol", ["imap", "pop3", "smtp"])
def test_an_invalid_token_is_refused(postfix: Postfix, dovecot: Dovecot, authority: Authority, protocol: str) -> None:
    """The server reports the error within the exchange, which must be answered before it ends."""
    target = f"{protocol}+tls://localhost:{tls_port(protocol, dovecot, postfix)}"
    with _login(MAKES[protocol], target, authority, secret=b"expired-token", credential="token") as login:
        failed = login.failed()
    assert failed.problem is Problem.REFUSED_CREDENTIAL
    assert "expired-token" not in failed.message + failed.said


@pytest.mark.parametrize("protocol", ["imap", "pop3", "smtp"])
def test_a_token_that_is_too_long_for_one_command_line_logs_in(
    postfix: Postfix, dovecot: Dovecot, authority: Authority, protocol: str
) -> None:
    """A command has 512 bytes in SMTP and 255 in POP3, and an access token may have thousands."""
    token = "ya29." + "x" * 3000
    dovecot.tokens[token] = "mira"
    target = f"{protocol}+tls://localhost:{tls_port(protocol, dovecot, postfix)}"
    with _login(MAKES[protocol], target, authority, secret=token.encode(), credential="token") as login:
        assert login.logged_in().mechanism == "XOAUTH2"


def test_a_locked_account_is_reported(dovecot: Dovecot, authority: Authority) -> None:
    """The failure has the service's own reason."""
    with _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority, username="locked") as login:
        failed = login.failed()
    assert failed.problem is Problem.REFUSED_CREDENTIAL
    assert "account_is_locked" in failed.said


@pytest.mark.abuse_case("LM2")
@pytest.mark.parametrize("protocol", ["imap", "pop3", "smtp"])
def test_a_certificate_for_another_name_is_refused(
    postfix: Postfix, dovecot: Dovecot, authority: Authority, protocol: str
) -> None:
    """The servers' certificates name localhost; the binding names mail.example.org, and then an authority that nobody trusts."""
    port = tls_port(protocol, dovecot, postfix)
    with _login(MAKES[protocol], f"{protocol}+tls://mail.example.org:{port}", authority) as login:
        assert login.failed().problem is Problem.CERTIFICATE
    with LoginAt(MAKES[protocol], f"{protocol}+tls://localhost:{port}", "mira", SECRET) as login:  # trusts no authority
        assert login.failed().problem is Problem.CERTIFICATE


def test_a_connection_without_tls_uses_scram_if_the_server_offers_it(
    dovecots: Callable[[str], Dovecot], authority: Authority
) -> None:
    """The user allowed `imap+plain` in `egress.private_plain`; SCRAM is preferred there as anywhere."""
    scram, plain = dovecots(ALL), dovecots("plain login")
    for dovecot, mechanism in ((scram, "SCRAM-SHA-256"), (plain, "PLAIN")):
        with _login(ImapLogin, f"imap+plain://localhost:{dovecot.imap}", authority) as login:
            assert login.logged_in().mechanism == mechanism


@pytest.mark.abuse_case("LM6")
def test_a_mail_library_does_not_get_the_password_even_from_a_message_that_contains_it(
    dovecots: Callable[[str], Dovecot], authority: Authority
) -> None:
    """A message that contains the secret is masked on its way to the library, in each form in which it was sent."""
    dovecot = dovecots("plain login")
    dovecot.deliver("noor", b"Subject: x\r\n\r\nit is " + SECRET + b" indeed\r\n")
    with _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority, username="noor") as login:
        with imap(login.client) as client:
            client.login("x", "y")
            client.select()
            found = client.search(None, "ALL")[1][0].split()
            fetched = repr([client.fetch(number.decode(), "(BODY.PEEK[])")[1] for number in found])
            assert SECRET not in fetched.encode()
            assert "battery" not in fetched
            client.logout()
        assert login.over().scrubbed >= 1


def test_a_failed_login_prints_no_secret(dovecot: Dovecot, authority: Authority) -> None:
    """Neither the order nor the failure has it in its repr."""
    with _login(ImapLogin, f"imap://localhost:{dovecot.imaps}", authority, username="nobody-here") as login:
        failed = login.failed()
    assert isinstance(failed, Failed)
    assert PASSWORD not in repr((login.order, failed))
