"""Mail services that lie, weaken, ask again, stop or are impostors: they get no password and no stream, and are reported."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from scramp import ScramException, ScramMechanism

from aileron.logins.login_messages import Failed, LoggedIn, Order, Problem
from aileron.logins.protocol import Login
from aileron.logins.protocols.imap import ImapLogin
from aileron.logins.protocols.pop3 import Pop3Login
from aileron.logins.protocols.smtp import SmtpLogin
from tests.support.logins import LoginAt, trusting
from tests.support.mail_clients import imap, pop3
from tests.support.scripted_service import Scripted, Talk
from tests.support.upstream import Authority

SECRET = b"the-password-of-mira"
MAKES: dict[str, type[Login]] = {"smtp": SmtpLogin, "imap": ImapLogin, "pop3": Pop3Login}
HOST = "mail.example.com"
Script = Callable[[Talk], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of the service's good certificates."""
    return Authority(Path(tmp_path_factory.mktemp("authority")))


class Dialect:
    """The words of a service in each protocol."""

    def __init__(self, protocol: str, *, mechanisms: str = "PLAIN LOGIN", starttls: bool = True) -> None:
        self.protocol = protocol
        self.mechanisms = mechanisms
        self.starttls = starttls
        self.tag = b""

    GREETINGS: ClassVar[dict[str, bytes]] = {"smtp": b"220 hello", "imap": b"* OK hello", "pop3": b"+OK hello"}

    def greet(self, talk: Talk) -> None:
        """Greet; in SMTP also list the extensions, which come before STARTTLS."""
        talk.say(self.GREETINGS[self.protocol])
        if self.protocol == "smtp":
            self.tell(talk)

    def introduce(self, talk: Talk) -> None:
        """Greet, and list the capabilities, as before a login over TLS."""
        self.greet(talk)
        if self.protocol != "smtp":
            self.tell(talk)

    def tell(self, talk: Talk) -> None:
        """List the capabilities when asked."""
        asked = talk.hear()
        names = self.mechanisms.split()
        match self.protocol:
            case "smtp":
                lines = [b"250-" + HOST.encode(), *([b"250-STARTTLS"] if self.starttls else [])]
                talk.say(*lines, b"250-AUTH " + self.mechanisms.encode(), b"250 SIZE 1000")
            case "imap":
                self.tag = asked.split()[0]
                listed = " ".join(["IMAP4rev1", "SASL-IR", *(f"AUTH={name}" for name in names)])
                talk.say(b"* CAPABILITY " + listed.encode(), self.tag + b" OK done")
            case _:
                talk.say(b"+OK", b"SASL " + self.mechanisms.encode(), b"USER", b"TOP", b".")

    def hear_command(self, talk: Talk) -> list[bytes]:
        """Return a command's words, without an IMAP tag."""
        words = talk.hear().split()
        if self.protocol == "imap":
            self.tag = words.pop(0)
        return words

    def agrees_to_tls(self, talk: Talk) -> None:
        """Agree to STARTTLS or STLS."""
        self.hear_command(talk)
        said = {"smtp": b"220 go on", "imap": self.tag + b" OK go on", "pop3": b"+OK go on"}
        talk.say_raw(said[self.protocol] + b"\r\n")

    def refuses_tls(self, talk: Talk) -> None:
        """Refuse STARTTLS or STLS."""
        self.hear_command(talk)
        said = {"smtp": b"454 no", "imap": self.tag + b" BAD no", "pop3": b"-ERR no"}
        talk.say(said[self.protocol])

    def asks(self, talk: Talk, challenge: bytes) -> None:
        """Send a challenge of SASL."""
        talk.say((b"334 " if self.protocol == "smtp" else b"+ ") + base64.b64encode(challenge))

    def accepts(self, talk: Talk) -> None:
        """Accept the login."""
        said = {"smtp": b"235 ok", "imap": self.tag + b" OK in", "pop3": b"+OK in"}
        talk.say(said[self.protocol])
        if self.protocol == "imap":
            self.tell(talk)

    def refuses(self, talk: Talk, code: bytes = b"535") -> None:
        """Refuse the login."""
        said = {"smtp": code + b" no", "imap": self.tag + b" NO no", "pop3": b"-ERR no"}
        talk.say(said[self.protocol])


def _try(
    script: Script,
    authority: Authority,
    protocol: str,
    *,
    encryption: str = "tls",
    names: tuple[str, ...] = (HOST,),
    context: ssl.SSLContext | None = None,
    login_s: float = 10.0,
    **certificate: object,
) -> tuple[LoggedIn | Failed, bytes]:
    """Try a login at the scripted service; return the outcome, and all bytes that the service received."""
    served = context or authority.server_context(*names, **certificate)

    def whole(talk: Talk) -> None:
        if encryption == "tls":
            talk.start_tls()
        script(talk)
        while True:  # whatever is tried after that
            talk.hear()

    with (
        Scripted(whole, served) as service,
        LoginAt(
            MAKES[protocol],
            f"{protocol}+{encryption}://{HOST}:1",
            "mira",
            SECRET,
            tls=trusting(authority.ca_pem),
            service=service.far,
            login_s=login_s,
        ) as login,
    ):
        told = _outcome(login)
        login.client.close()
    assert SECRET.decode() not in repr(told)
    return told, service.heard


def _outcome(login: LoginAt) -> LoggedIn | Failed:
    try:
        return login.failed()
    except AssertionError:
        return login.logged_in()


def _is_shown(heard: bytes) -> bool:
    """Return whether the bytes contain the password in a form that can be read back."""
    plain = base64.b64encode(b"\0mira\0" + SECRET)
    return any(form in heard for form in (SECRET, base64.b64encode(SECRET), plain))


def _failed(told: LoggedIn | Failed) -> Problem:
    assert isinstance(told, Failed), told
    return told.problem


PROTOCOLS = pytest.mark.parametrize("protocol", ["smtp", "imap", "pop3"])


# TLS.


@pytest.mark.abuse_case("LM1")
@PROTOCOLS
def test_a_mail_service_that_does_not_agree_to_starttls_gets_no_password(authority: Authority, protocol: str) -> None:
    """The offer is missing, or STARTTLS is refused: no password is sent. Control: the service agrees to TLS."""
    for strip in ("not offered", "refused", "agreed"):
        dialect = Dialect(protocol, starttls=strip != "not offered")

        def script(talk: Talk, dialect: Dialect = dialect, strip: str = strip) -> None:
            dialect.greet(talk)
            if strip != "agreed":
                dialect.refuses_tls(talk)
                return
            dialect.agrees_to_tls(talk)
            talk.start_tls()
            dialect.tell(talk)
            dialect.hear_command(talk)
            dialect.accepts(talk)

        told, heard = _try(script, authority, protocol, encryption="starttls")
        if strip == "agreed":
            assert told == LoggedIn(mechanism="PLAIN")
            assert _is_shown(heard)
        else:
            assert (_failed(told), _is_shown(heard)) == (Problem.NOT_ENCRYPTED, False)


@pytest.mark.abuse_case("LM1")
@PROTOCOLS
def test_bytes_injected_after_a_service_s_agreement_to_starttls_are_refused(
    authority: Authority, protocol: str
) -> None:
    """CVE-2011-0411: the packet that agrees to TLS also has words to be read after it."""
    dialect = Dialect(protocol)
    injected = {"smtp": b"250 AUTH PLAIN\r\n", "imap": b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n", "pop3": b"+OK\r\n"}

    def script(talk: Talk) -> None:
        dialect.greet(talk)
        dialect.hear_command(talk)
        said = {"smtp": b"220 go on\r\n", "imap": dialect.tag + b" OK go on\r\n", "pop3": b"+OK go on\r\n"}
        talk.say_raw(said[protocol] + injected[protocol])
        talk.start_tls()

    told, heard = _try(script, authority, protocol, encryption="starttls")
    assert (_failed(told), _is_shown(heard)) == (Problem.NOT_ENCRYPTED, False)


@pytest.mark.abuse_case("LM1")
@PROTOCOLS
def test_login_mechanisms_offered_only_before_tls_are_not_used(authority: Authority, protocol: str) -> None:
    """The service offers PLAIN before TLS and only an unusable mechanism after it: PLAIN is not used."""
    before, after = Dialect(protocol), Dialect(protocol, mechanisms="CRAM-MD5")

    def script(talk: Talk) -> None:
        before.greet(talk)
        before.agrees_to_tls(talk)
        talk.start_tls()
        if protocol == "imap":
            asked = talk.hear().split()[0]
            talk.say(b"* CAPABILITY IMAP4rev1 LOGINDISABLED AUTH=CRAM-MD5", asked + b" OK")
        elif protocol == "pop3":
            talk.hear()
            talk.say(b"+OK", b"SASL CRAM-MD5", b".")
        else:
            after.tell(talk)

    told, heard = _try(script, authority, protocol, encryption="starttls")
    assert (_failed(told), _is_shown(heard)) == (Problem.WEAK_LOGIN, False)


@pytest.mark.abuse_case("LM1")
def test_an_imap_connection_that_is_logged_in_already_is_refused(authority: Authority) -> None:
    """PREAUTH before TLS is a way around TLS; within it, the mailbox is another user's."""
    for encryption, problem in (("starttls", Problem.NOT_ENCRYPTED), ("tls", Problem.PROTOCOL)):
        told, heard = _try(lambda talk: talk.say(b"* PREAUTH hello"), authority, "imap", encryption=encryption)
        assert (_failed(told), heard) == (problem, b"")


@pytest.mark.abuse_case("LM2")
@PROTOCOLS
def test_a_mail_service_with_an_invalid_certificate_is_refused(authority: Authority, protocol: str) -> None:
    """The certificate is expired, or for another name: nothing is sent."""
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)

    def script(talk: Talk) -> None:
        Dialect(protocol).greet(talk)

    expired, heard = _try(script, authority, protocol, not_after=long_ago)
    other, heard_too = _try(script, authority, protocol, names=("mail.example.org",))
    assert (_failed(expired), _failed(other)) == (Problem.CERTIFICATE, Problem.CERTIFICATE)
    assert heard + heard_too == b""


# Mechanisms.


def _scram(
    dialect: Dialect,
    talk: Talk,
    *,
    is_plus: bool,
    binding: bytes | None = None,
    change_first: Callable[[str], str] = lambda said: said,
    change_final: Callable[[str], str | None] = lambda said: said,
) -> bool:
    """Play a service's side of SCRAM, which may lie, or leave out its final message; the caller says the last word.

    Return whether the client acknowledged the final message, or True if there was none.
    """
    mechanism = ScramMechanism("SCRAM-SHA-256-PLUS" if is_plus else "SCRAM-SHA-256")
    known = mechanism.make_auth_info(SECRET.decode(), iteration_count=4096)
    channel = None if binding is None else ("tls-server-end-point", binding)
    server = mechanism.make_server(lambda _username: known, channel_binding=channel)
    words = dialect.hear_command(talk)
    if len(words) > 2:
        first = words[2]
    else:
        dialect.asks(talk, b"")
        first = talk.hear()
    server.set_client_first(base64.b64decode(first).decode())
    dialect.asks(talk, change_first(server.get_server_first()).encode())
    server.set_client_final(base64.b64decode(talk.hear()).decode())
    final = change_final(server.get_server_final())
    if final is None:
        return True
    dialect.asks(talk, final.encode())
    return talk.hear() == b""


@pytest.mark.abuse_case("LM3")
@PROTOCOLS
def test_scram_plus_is_bound_to_the_certificate(authority: Authority, protocol: str, tmp_path: Path) -> None:
    """The service's own certificate completes the login; another one's, as behind a man in the middle, does not."""
    key, certificate = authority.server_files(tmp_path, HOST)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    pem = certificate.read_text().partition("-----END CERTIFICATE-----\n")
    own = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[0] + pem[1])).digest()
    for is_own in (True, False):
        dialect = Dialect(protocol, mechanisms="PLAIN SCRAM-SHA-256 SCRAM-SHA-256-PLUS")

        def script(talk: Talk, dialect: Dialect = dialect, is_own: bool = is_own) -> None:
            dialect.introduce(talk)
            expected = own if is_own else bytes(32)
            try:
                _scram(dialect, talk, is_plus=True, binding=expected)
            except ScramException:  # the binding is not what the service has
                dialect.refuses(talk)
            else:
                dialect.accepts(talk)

        told, heard = _try(script, authority, protocol, context=context)
        assert not _is_shown(heard)
        if is_own:
            assert told == LoggedIn(mechanism="SCRAM-SHA-256-PLUS")
        else:
            assert _failed(told) is Problem.REFUSED_CREDENTIAL


@pytest.mark.abuse_case("LM3")
@PROTOCOLS
def test_a_removed_offer_of_scram_plus_is_noticed_by_the_service(authority: Authority, protocol: str) -> None:
    """The client sends `y`, "I support channel binding". A service that offered -PLUS then refuses the login."""
    dialect = Dialect(protocol, mechanisms="SCRAM-SHA-256")
    firsts: list[bytes] = []

    def script(talk: Talk) -> None:
        dialect.introduce(talk)
        try:
            _scram(dialect, talk, is_plus=False, binding=bytes(32))
        except ScramException as error:
            firsts.append(str(error).encode())
            dialect.refuses(talk)

    told, _heard = _try(script, authority, protocol)
    assert _failed(told) is Problem.REFUSED_CREDENTIAL
    assert b"does-support-channel-binding" in firsts[0]


@pytest.mark.abuse_case("LM3", "LM4")
@PROTOCOLS
@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        ("none", None),
        ("plus refused", Problem.REFUSED_CREDENTIAL),
        ("accepts at once", Problem.PROTOCOL),
        ("accepts without a final message", Problem.PROTOCOL),
        ("no proof", Problem.PROTOCOL),
        ("another proof", Problem.PROTOCOL),
        ("asks after the proof", Problem.PROTOCOL),
        ("asks for the password", Problem.PROTOCOL),
        ("another nonce", Problem.PROTOCOL),
        ("few iterations", Problem.PROTOCOL),
        ("too many iterations", Problem.PROTOCOL),
        ("not base64", Problem.PROTOCOL),
    ],
)
def test_a_service_that_does_scram_wrongly_gets_no_password(
    authority: Authority, protocol: str, lie: str, problem: Problem | None
) -> None:
    """A single attempt is made: a weaker mechanism that is also offered is not tried."""
    plus = " SCRAM-SHA-256-PLUS" if lie == "plus refused" else ""
    dialect = Dialect(protocol, mechanisms="PLAIN LOGIN SCRAM-SHA-256" + plus)

    def script(talk: Talk) -> None:
        dialect.introduce(talk)
        if lie in ("plus refused", "accepts at once", "asks for the password", "not base64"):
            words = dialect.hear_command(talk)
            assert words[1] == (b"SCRAM-SHA-256-PLUS" if plus else b"SCRAM-SHA-256")
            if lie == "plus refused":
                dialect.refuses(talk)
            elif lie == "accepts at once":
                dialect.accepts(talk)
            elif lie == "not base64":
                talk.say(b"334 %%%" if protocol == "smtp" else b"+ %%%")
            else:
                dialect.asks(talk, b"Password:")
            return
        changes: dict[str, Callable[[str], str]] = {
            "another nonce": lambda said: "r=x" + said[2:],
            "few iterations": lambda said: said.replace("i=4096", "i=1"),
            "too many iterations": lambda said: said.replace("i=4096", "i=9000000"),
        }
        finals: dict[str, Callable[[str], str | None]] = {
            "accepts without a final message": lambda _said: None,
            "no proof": lambda _said: "",
            "another proof": lambda _said: "v=" + base64.b64encode(bytes(32)).decode(),
        }
        same: Callable[[str], str] = lambda said: said  # noqa: E731
        _scram(dialect, talk, is_plus=False, change_first=changes.get(lie, same), change_final=finals.get(lie, same))
        if lie == "asks after the proof":
            dialect.asks(talk, b"Password:")
            talk.hear()
        dialect.accepts(talk)

    told, heard = _try(script, authority, protocol)
    assert not _is_shown(heard)
    if problem is None:
        assert told == LoggedIn(mechanism="SCRAM-SHA-256")
    else:
        assert _failed(told) is problem
        assert heard.upper().count(b"AUTH") <= 1, heard


@pytest.mark.abuse_case("LM4")
@PROTOCOLS
def test_a_service_that_sends_another_challenge_after_plain_is_refused(authority: Authority, protocol: str) -> None:
    """PLAIN has only one message."""
    dialect = Dialect(protocol, mechanisms="PLAIN")

    def script(talk: Talk) -> None:
        dialect.introduce(talk)
        dialect.hear_command(talk)
        dialect.asks(talk, b"Password:")

    told, heard = _try(script, authority, protocol)
    assert _failed(told) is Problem.PROTOCOL
    assert heard.count(b"\r\n") == 2, heard


@pytest.mark.abuse_case("LM4")
@PROTOCOLS
def test_the_sasl_mechanism_login_sends_the_user_name_first(authority: Authority, protocol: str) -> None:
    """A service that asks for the password first gets neither."""
    for prompts, is_done in (((b"Username:", b"Password:"), True), ((b"Password:", b"Username:"), False)):
        dialect = Dialect(protocol, mechanisms="LOGIN")

        def script(talk: Talk, dialect: Dialect = dialect, prompts: tuple[bytes, ...] = prompts) -> None:
            dialect.introduce(talk)
            dialect.hear_command(talk)
            for prompt in prompts:
                dialect.asks(talk, prompt)
                talk.hear()
            dialect.accepts(talk)

        told, heard = _try(script, authority, protocol)
        assert _is_shown(heard) is is_done
        assert told == LoggedIn(mechanism="LOGIN") if is_done else _failed(told) is Problem.PROTOCOL


@pytest.mark.abuse_case("LM4")
@PROTOCOLS
def test_a_service_with_unknown_mechanisms_only_gets_no_password(authority: Authority, protocol: str) -> None:
    """The failure lists the offered mechanisms. The connection has no TLS."""
    dialect = Dialect(protocol, mechanisms="CRAM-MD5 DIGEST-MD5")

    def script(talk: Talk) -> None:
        dialect.greet(talk)
        if protocol == "imap":
            talk.say(
                b"* CAPABILITY IMAP4rev1 LOGINDISABLED AUTH=CRAM-MD5 AUTH=DIGEST-MD5", talk.hear().split()[0] + b" OK"
            )
        elif protocol == "pop3":
            talk.hear()
            talk.say(b"+OK", b"SASL CRAM-MD5 DIGEST-MD5", b".")

    told, heard = _try(script, authority, protocol, encryption="plain")
    assert (_failed(told), _is_shown(heard)) == (Problem.WEAK_LOGIN, False)
    assert isinstance(told, Failed)
    assert told.said == "AUTH: CRAM-MD5, DIGEST-MD5"


# Services that stop, stall, or talk without end.


@pytest.mark.abuse_case("LM11")
@PROTOCOLS
def test_a_mail_service_that_closes_during_the_login_is_reported(authority: Authority, protocol: str) -> None:
    """The service closes at once, after the greeting, after its capabilities, and after the command of the login."""
    for steps in range(4):
        dialect = Dialect(protocol)

        def script(talk: Talk, dialect: Dialect = dialect, steps: int = steps) -> None:
            if steps > 0:
                talk.say(Dialect.GREETINGS[protocol])
            if steps > 1:
                dialect.tell(talk)
            if steps > 2:
                dialect.hear_command(talk)
            talk.close()

        assert _failed(_try(script, authority, protocol)[0]) is Problem.CLOSED


@pytest.mark.abuse_case("LM11")
@PROTOCOLS
def test_a_login_at_a_silent_service_ends_at_its_deadline(authority: Authority, protocol: str) -> None:
    """The login ends at its deadline."""
    told, heard = _try(lambda talk: None, authority, protocol, login_s=0.3)
    assert (_failed(told), heard) == (Problem.TOO_SLOW, b"")


@pytest.mark.abuse_case("LM11")
@PROTOCOLS
@pytest.mark.parametrize("what", ["line", "lines", "nonsense", "literal"])
def test_the_length_of_a_mail_service_s_answers_is_bounded(authority: Authority, protocol: str, what: str) -> None:
    """The bounds are on a line, a reply and a literal; a greeting of another protocol is refused, too."""

    def script(talk: Talk) -> None:
        if what == "nonsense":
            talk.say(b"SSH-2.0-OpenSSH_9.2")
            return
        if what == "line":
            talk.say_raw(b"x" * 300_000)
            return
        talk.say(Dialect.GREETINGS[protocol])
        talk.hear()
        if what == "literal":
            talk.say(b"* X {99999999}")
            return
        lines = {"smtp": b"250-x", "imap": b"* X", "pop3": b"X"}
        talk.say(*([b"+OK"] if protocol == "pop3" else []), *(lines[protocol] + b"%d" % at for at in range(60_000)))

    assert _failed(_try(script, authority, protocol)[0]) is Problem.PROTOCOL


@pytest.mark.abuse_case("LM5")
@pytest.mark.parametrize("code", [b"535", b"534", b"454", b"550"])
def test_any_smtp_refusal_of_a_login_is_reported_as_a_refused_credential(authority: Authority, code: bytes) -> None:
    """A "temporary" code counts too: some services use it for locked accounts, so there is no second try."""
    dialect = Dialect("smtp")

    def script(talk: Talk) -> None:
        dialect.greet(talk)
        dialect.hear_command(talk)
        dialect.refuses(talk, code)

    told, heard = _try(script, authority, "smtp")
    assert (_failed(told), heard.count(b"AUTH")) == (Problem.REFUSED_CREDENTIAL, 1)


@pytest.mark.abuse_case("LM6")
@PROTOCOLS
def test_a_password_that_a_service_repeats_in_its_refusal_is_not_passed_on(authority: Authority, protocol: str) -> None:
    """The service repeats it in the clear and in base64; its other words are kept."""
    dialect = Dialect(protocol, mechanisms="PLAIN")
    echo = SECRET + b" and " + base64.b64encode(b"\0mira\0" + SECRET) + b" will not do"

    def script(talk: Talk) -> None:
        dialect.introduce(talk)
        dialect.hear_command(talk)
        said = {"smtp": b"535 ", "imap": dialect.tag + b" NO ", "pop3": b"-ERR "}
        talk.say(said[protocol] + echo)

    told, heard = _try(script, authority, protocol)
    assert _is_shown(heard)
    assert isinstance(told, Failed)
    assert told.said.endswith("will not do")
    assert not _is_shown(told.said.encode())


@pytest.mark.abuse_case("LM6")
def test_a_capability_that_contains_the_password_is_left_out(authority: Authority) -> None:
    """IMAP lists capabilities after the login, and their case is changed on the way to the library."""

    def script(talk: Talk) -> None:
        talk.start_tls()
        talk.say(b"* OK hello")
        talk.say(b"* CAPABILITY IMAP4rev1 AUTH=PLAIN", talk.hear().split()[0] + b" OK done")
        tag = talk.hear().split()[0]
        talk.say(b"+ ")
        talk.hear()
        talk.say(tag + b" OK [CAPABILITY IMAP4rev1 IDLE X-" + SECRET + b"] in")
        talk.hear()

    with (
        Scripted(script, authority.server_context(HOST)) as service,
        LoginAt(
            ImapLogin, f"imap://{HOST}:1", "mira", SECRET, tls=trusting(authority.ca_pem), service=service.far
        ) as login,
        imap(login.client) as client,
    ):
        assert "IDLE" in client.capabilities
        assert SECRET.decode().upper() not in " ".join(client.capabilities)


# Logins that no real server here has.


def test_the_imap_login_command_sends_user_name_and_password_as_literals(authority: Authority) -> None:
    """The service offers no SASL mechanism. Services differ in what a quoted string may contain."""

    def script(talk: Talk) -> None:
        talk.start_tls()
        talk.say(b"* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN] hello")
        talk.say(b"* CAPABILITY IMAP4rev1", talk.hear().split()[0] + b" OK")
        tag, name, size = talk.hear().split()
        assert (name, size) == (b"LOGIN", b"{4}")
        talk.say(b"+ go on")
        assert talk.hear_bytes(4) == b"mira"
        assert talk.hear() == b" {%d}" % len(SECRET)
        talk.say(b"+ go on")
        assert talk.hear_bytes(len(SECRET)) == SECRET
        assert talk.hear() == b""
        talk.say(tag + b" OK [CAPABILITY IMAP4rev1 IDLE COMPRESS=DEFLATE AUTH=PLAIN STARTTLS] in")
        talk.hear()

    with (
        Scripted(script, authority.server_context(HOST)) as service,
        LoginAt(
            ImapLogin, f"imap://{HOST}:1", "mira", SECRET, tls=trusting(authority.ca_pem), service=service.far
        ) as login,
    ):
        assert login.logged_in().mechanism == "LOGIN command"
        with imap(login.client) as client:
            assert {"COMPRESS=DEFLATE", "STARTTLS"}.isdisjoint(client.capabilities)
            assert "IDLE" in client.capabilities


def test_the_pop3_commands_user_and_pass_are_used_if_the_service_has_no_capa(authority: Authority) -> None:
    """Services from before RFC 2449 have no CAPA command."""

    def script(talk: Talk) -> None:
        talk.start_tls()
        talk.say(b"+OK hello <1896.697170952@mail.example.com>")
        assert talk.hear() == b"CAPA"
        talk.say(b"-ERR what")
        assert talk.hear() == b"USER mira"
        talk.say(b"+OK")
        assert talk.hear() == b"PASS " + SECRET
        talk.say(b"+OK in")
        assert talk.hear() == b"STAT"
        talk.say(b"+OK 0 0")
        talk.hear()

    with (
        Scripted(script, authority.server_context(HOST)) as service,
        LoginAt(
            Pop3Login, f"pop3://{HOST}:1", "mira", SECRET, tls=trusting(authority.ca_pem), service=service.far
        ) as login,
    ):
        assert login.logged_in().mechanism == "USER and PASS"
        with pop3(login.client) as client:
            client.user("x")
            client.pass_("y")
            assert client.stat() == (0, 0)


@PROTOCOLS
@pytest.mark.parametrize("secret", [b"", b"with\r\nline end", b"with\0nul", b"\xff\xfe"])
def test_a_secret_that_cannot_be_sent_safely_is_not_sent(authority: Authority, protocol: str, secret: bytes) -> None:
    """A line end in it would begin another command."""

    def make(order: Order) -> Login:
        return MAKES[protocol](order)

    with (
        Scripted(lambda talk: talk.start_tls(), authority.server_context(HOST)) as service,
        LoginAt(
            make, f"{protocol}+tls://{HOST}:1", "mira", secret, tls=trusting(authority.ca_pem), service=service.far
        ) as login,
    ):
        assert login.failed().problem is Problem.UNUSABLE_CREDENTIAL
    assert service.heard == b""
