"""Logins in a connector's manifest: what is read, what is refused with its fix, and how a build binds their hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.credential import Reach
from aileron.model.failure import AileronError, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.release import release
from tests.registry.conftest import refusal_as

MAIL = """\
[connector]
name = "github://acme/mail"
version = "1.2.0"

[capabilities.network]
hosts = ["imap.example.com:993", "smtp.example.com:587"]

[capabilities.credential]
kind = "login"
scope = "Read and send mail"
logins = ["imap://imap.example.com:993", "smtp://smtp.example.com:587"]

[capabilities.runtime]
imports = ["log", "tcp"]
"""
GIT = """\
[connector]
name = "github://acme/git"
version = "1.0.0"

[capabilities.network]
hosts = ["git.example.com:22"]

[capabilities.credential]
kind = "login"
scope = "Fetch repositories"
logins = ["ssh://git.example.com:22"]
commands = ["git-upload-pack 'team/*.git'", "subsystem sftp"]

[capabilities.runtime]
imports = ["tcp"]
"""
DATABASE = """\
[connector]
name = "github://acme/db"
version = "1.0.0"

[capabilities.network]
hosts = ["bound-at-build"]

[capabilities.credential]
kind = "login"
scope = "Query a database"
logins = ["postgres://bound-at-build"]

[capabilities.runtime]
imports = ["tcp"]

[[operations]]
name = "query"
login = "read_only"

[[operations]]
name = "execute"
"""
OAUTH2 = """
[capabilities.credential.oauth2]
authorize_url = "https://accounts.example.com/authorize"
token_url = "https://accounts.example.com/token"
client_id = "123.apps.example.com"
scopes = ["mail"]
"""


def parse(text: str) -> ConnectorManifest:
    """Parse the manifest as an installed one."""
    return parse_connector_manifest(text.encode(), file="manifest.toml")


def refusal(text: str) -> str:
    """Return the message with which the manifest is refused."""
    return refusal_as(FailureClass.INVALID_REQUEST, parse, text)


def target(text: str) -> LoginTarget:
    """Return the login target of the text."""
    return LoginTarget.parse(text)


def test_the_logins_of_a_mail_account_are_read() -> None:
    """Each login has its place, its protocol, and the encryption that its port implies."""
    need = parse(MAIL).credential

    assert need is not None
    assert [str(login) for login in need.logins] == [
        "imap+tls://imap.example.com:993",
        "smtp+starttls://smtp.example.com:587",
    ]
    assert need.commands == ()


def test_the_commands_of_an_ssh_login_are_read_as_written() -> None:
    """The commands are kept as written."""
    need = parse(GIT).credential

    assert need is not None
    assert need.commands == ("git-upload-pack 'team/*.git'", "subsystem sftp")


def test_an_oauth2_credential_can_log_in_too() -> None:
    """The connector logs in to mail with the token of a sign-in."""
    found = parse(MAIL.replace('"login"', '"oauth2"') + OAUTH2)

    assert found.credential is not None
    assert len(found.credential.logins) == 2
    assert Reach.of(found).wire == ("oauth2 login imap+tls://imap.example.com:993 smtp+starttls://smtp.example.com:587")


WRONG = [
    (MAIL, "logins = ", "# ", ":8: a credential of kind login with no logins; name where to log in, such as logins"),
    (
        MAIL,
        '["imap://imap.example.com:993", "smtp://smtp.example.com:587"]',
        "[]",
        ':11: logins is empty; expected 1 to 8, such as ["imap://imap.example.com:993"], or',
    ),
    (MAIL, '"login"', '"basic"', ':11: logins needs kind = "login" or "oauth2", but this is \'basic\''),
    (MAIL, '"login"', '"api_key"', ':11: logins needs kind = "login" or "oauth2", but this is \'api_key\''),
    (
        MAIL,
        "imap://",
        "telnet://",
        ":11: logins: 'telnet://imap.example.com:993' is not PROTOCOL://HOST:PORT, the proto",
    ),
    (MAIL, "imap://imap", "imap://me:secret" + chr(64) + "imap", "is not a lower-case host name"),
    (
        MAIL,
        "imap://imap.example.com:993",
        "imap://imap.example.com:143",
        "imap.example.com:143 is not in [capabilities.net",
    ),
    (MAIL, "imap://imap.example.com:993", "pop3://smtp.example.com:587", "two logins at one HOST:PORT"),
    (MAIL, "imap://imap", "imap://*.imap", "wildcards are not allowed"),
    (MAIL, "imap://", "postgres+starttls://", "postgres has no STARTTLS; leave +starttls out"),
    (
        MAIL,
        "imap://",
        "ssh://",
        "an ssh login without commands could do nothing; name what it may run, such as commands",
    ),
    (MAIL, 'scope = "Read and send mail"', 'scope = "x"\ncommands = ["ls"]', ":11: commands without an ssh login"),
    (MAIL, '"log", "tcp"', '"log", "http"', ':11: logins without "tcp" in [capabilities.runtime] imports'),
    (
        MAIL,
        'kind = "login"',
        'kind = "login"\nheader = "X-Key"',
        "header needs kind = \"api_key\", but this is 'login'",
    ),
    (
        MAIL,
        "imap://imap.example.com:993",
        "imap://bound-at-build",
        "build it with `aileron connector build DIR --login imap",
    ),
    (
        MAIL,
        "[capabilities.runtime]",
        '[[operations]]\nname = "a"\nlogin = "read_only"\n[capabilities.runtime]',
        "login needs postgres or mysql logins",
    ),
    (
        DATABASE.replace('["bound-at-build"]', '["a.b:1", "a.b:2"]').replace(
            '"postgres://bound-at-build"', '"postgres://a.b:1", "redis://a.b:2"'
        ),
        "x",
        "x",
        "login needs postgres or mysql logins in [capabilities.credential] logins, and no others",
    ),
    (
        DATABASE.replace('["bound-at-build"]', '["a.b:1"]').replace('kind = "login"', 'kind = "api_key"'),
        'logins = ["postgres://bound-at-build"]\n',
        "",
        "login needs postgres or mysql logins in [capabilities.credential] logins, and no others",
    ),
    (
        DATABASE.replace('["bound-at-build"]', '["a.b:1", "a.b:2"]').replace(
            '"postgres://bound-at-build"', '"postgres://a.b:1", "mysql://a.b:2"'
        ),
        'login = "read_only"',
        'login = "previewed"',
        'login = "previewed" needs postgres logins in [capabilities.credential] logins, and no others',
    ),
    (GIT, '"subsystem sftp"', '"subsystem\\tsftp"', "hidden character"),
    (GIT, '"subsystem sftp"', '"subsystem sftp "', ":12: commands: 'subsystem sftp ' begins or ends with a blank"),
    (GIT, '"subsystem sftp"', '"süd"', ":12: commands: 's\\xfcd' is not ASCII"),
    (GIT, '"subsystem sftp"', '"subsystem *"', "commands: 'subsystem *' is not `subsystem NAME`"),
    (GIT, "git-upload-pack 'team", "* 'team", "leaves the program open; spell out the first word"),
    (
        GIT,
        '"subsystem sftp"',
        "\"git-upload-pack 'team/*.git'\"",
        ":12: commands has \"git-upload-pack 'team/*.git'\" twice",
    ),
    (GIT, '["git-upload-pack \'team/*.git\'", "subsystem sftp"]', "[]", ":12: commands is empty; expected 1 to 16"),
    (GIT, "ssh://", "ssh+plain://", "ssh is always encrypted; leave +plain out"),
    (
        GIT.replace('hosts = ["git', 'hosts = ["imap.example.com:993", "git'),
        'logins = ["ssh',
        'logins = ["imap://imap.example.com:993", "ssh',
        "an ssh login has a host key and a private key, and the others a password; make two connectors of it",
    ),
    (
        GIT.replace('hosts = ["git', 'hosts = ["h.example.com:22", "git'),
        'logins = ["ssh',
        'logins = ["ssh://h.example.com:22", "ssh',
        "several ssh logins: a binding pins the host key of one server; make a connector for each",
    ),
    (DATABASE, "x", "x", ":6: hosts is the placeholder 'bound-at-build': build it with"),
    (DATABASE.replace('hosts = ["bound-at-build"]', 'hosts = ["a.b:1"]'), "x", "x", "--login postgres://NAME:PORT"),
    (
        DATABASE.replace('["bound-at-build"]', '["a.b:1"]').replace("bound-at-build", "a.b:1"),
        'login = "read_only"',
        'login = "read_only"\ncredential = false',
        "login and credential = false: an operation without a credential logs in nowhere",
    ),
    (
        MAIL.replace('"login"', '"oauth2"').replace("imap://", "redis://") + OAUTH2,
        "x",
        "x",
        'redis cannot log in with an access token; use kind = "login"',
    ),
]


@pytest.mark.parametrize(("text", "what", "instead", "words"), WRONG)
def test_contradictory_logins_are_refused_with_the_fix(text: str, what: str, instead: str, words: str) -> None:
    """Each message has the line and says what to change."""
    assert words in refusal(text.replace(what, instead))


def test_a_manifest_may_declare_at_most_eight_logins() -> None:
    """Eight logins are read, nine are refused."""

    def with_logins(count: int) -> str:
        hosts = [f"h{number}.example.com:993" for number in range(count)]
        text = MAIL.replace('["imap.example.com:993", "smtp.example.com:587"]', str(hosts))
        logins = [f"imap://{host}" for host in hosts]
        return text.replace('["imap://imap.example.com:993", "smtp://smtp.example.com:587"]', str(logins))

    need = parse(with_logins(8)).credential
    assert need is not None
    assert len(need.logins) == 8
    assert "logins has 9 entries; expected 1 to 8" in refusal(with_logins(9))


def test_a_build_binds_the_logins_and_their_hosts(tmp_path: Path) -> None:
    """Each protocol has its own placeholder, and the hosts become those of the logins."""
    text = MAIL.replace("imap.example.com:993", "bound-at-build").replace("smtp.example.com:587", "bound-at-build")
    text = text.replace('["bound-at-build", "bound-at-build"]', '["bound-at-build"]')
    (tmp_path / "manifest.toml").write_text(text)
    (tmp_path / "__main__.py").write_text("pass\n")
    logins = (target("imap://imap.example.net:993"), target("smtp://smtp.example.net:587"))

    built = parse(build(tmp_path, logins=logins).manifest.decode())

    assert built.credential is not None
    assert built.credential.logins == logins
    assert built.hosts == (HostPort("imap.example.net", 993), HostPort("smtp.example.net", 587))
    with pytest.raises(AileronError, match='"smtp://bound-at-build" is left; add --login smtp://NAME:PORT'):
        build(tmp_path, logins=logins[:1])
    with pytest.raises(AileronError, match='0 lines contain "redis://bound-at-build"; --login replaces exactly one'):
        build(tmp_path, logins=(*logins, target("redis://redis.example.net:6379")))
    with pytest.raises(AileronError, match="--login imap://NAME:PORT"):
        build(tmp_path, hosts=(HostPort("imap.example.net", 993), HostPort("smtp.example.net", 587)))
    released = release(tmp_path, "1.2.0", parse=None, fits=None, logins=logins)  # type: ignore[arg-type]
    assert parse(released.built.manifest.decode()).hosts == built.hosts


def test_a_host_without_a_protocol_replaces_the_placeholder_if_the_manifest_has_one_login(tmp_path: Path) -> None:
    """The manifest's placeholder already states the protocol. Logins without a placeholder cannot be bound again."""
    (tmp_path / "manifest.toml").write_text(DATABASE)
    (tmp_path / "__main__.py").write_text("pass\n")

    built = parse(build(tmp_path, (HostPort("db.example.net", 5432),)).manifest.decode())

    assert built.credential is not None
    assert built.credential.logins == (target("postgres://db.example.net:5432"),)
    assert next(operation.login for operation in built.operations or ()) == "read_only"
    (tmp_path / "manifest.toml").write_text(MAIL)
    with pytest.raises(AileronError, match="leave --login out"):
        build(tmp_path, logins=(target("imap://imap.example.com:993"),))


WIDER = [
    ("smtp://smtp", "smtp+tls://smtp", "login at smtp.example.com:587 by SMTP over TLS"),
    (
        '"smtp://smtp.example.com:587"]',
        '"pop3+tls://smtp.example.com:587"]',
        "login at smtp.example.com:587 by POP3 over TLS",
    ),
    ("imap://imap", "imap+plain://imap", "login at imap.example.com:993 by IMAP WITHOUT ENCRYPTION"),
]


@pytest.mark.parametrize(("what", "instead", "words"), WIDER)
def test_a_login_with_a_changed_protocol_or_encryption_widens_the_reach(what: str, instead: str, words: str) -> None:
    """A changed protocol or encryption needs a new approval; a changed order of the same logins does not."""
    agreed = Reach.of(parse(MAIL))
    swapped = MAIL.replace(
        '["imap://imap.example.com:993", "smtp://smtp.example.com:587"]',
        '["smtp://smtp.example.com:587", "imap://imap.example.com:993"]',
    )

    assert agreed.widened_to(Reach.of(parse(MAIL.replace(what, instead)))) == (words,)
    assert agreed.widened_to(Reach.of(parse(swapped))) == ()


def test_an_added_login_or_command_widens_the_reach_and_a_removed_one_does_not() -> None:
    """The description of the change names the login or the command."""
    git, less = Reach.of(parse(GIT)), Reach.of(parse(GIT.replace(', "subsystem sftp"', "")))
    mail = Reach.of(parse(MAIL))
    imap_only = Reach.of(parse(MAIL.replace(', "smtp://smtp.example.com:587"', "")))

    assert (less.widened_to(git), git.widened_to(less)) == (("command subsystem sftp",), ())
    assert imap_only.widened_to(mail) == ("login at smtp.example.com:587 by SMTP over TLS (STARTTLS)",)
    assert mail.widened_to(imap_only) == ()
    assert git.logins == (target("ssh://git.example.com:22"),)


def test_a_header_whose_value_begins_with_login_is_not_a_login() -> None:
    """Only the first word of the wire form says whether it describes a header or a login."""
    agreed = Reach(wire="header X: login {key}")

    assert agreed.logins == ()
    assert agreed.widened_to(Reach(wire="header X: login imap+tls://a.b:1")) == (
        "sent as X: login imap+tls://a.b:1, not as X: login KEY",
    )


@given(st.text(max_size=80) | st.from_regex(r"(oauth2 )?login [a-z+]{1,6}://[a-z.]{1,6}:[0-9]{1,3}( \[.{0,9})?"))
def test_any_form_on_the_wire_that_a_binding_stores_can_be_described_to_a_person(wire: str) -> None:
    """The wire form comes from the vault's file, which can contain any text."""
    assert Reach(wire=wire).widened_to(Reach(wire=wire)) == ()
    assert isinstance(Reach(wire="basic").widened_to(Reach(wire=wire)), tuple)
