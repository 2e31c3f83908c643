"""`aileron binding` for logins, with a real daemon: what it shows before it asks, what it asks for, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from aileron.model.host_key import fingerprint
from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports
from tests.support.sshd import SshPeer, public_line

MANIFEST = """\
[connector]
name = "{name}"
version = "1.0.0"

[capabilities.network]
hosts = ["bound-at-build"]

[capabilities.credential]
kind = "login"
scope = "Try a login"
{logins}

[capabilities.runtime]
imports = ["tcp"]
"""
MAIL, DATABASE, GIT = (f"github://aileron-tests/{name}" for name in ("mail", "database", "git"))
LOGINS = {
    MAIL: 'logins = ["imap://bound-at-build", "smtp://bound-at-build"]',
    DATABASE: 'logins = ["postgres://bound-at-build"]',
    GIT: 'logins = ["ssh://bound-at-build"]\ncommands = ["git-upload-pack \'team/*.git\'"]',
}
READS = '\n[[operations]]\nname = "query"\nlogin = "read_only"\n'
PROGRAM = "from aileron_connector import op, run\n\n@op\ndef query():\n    return 1\n\nrun()\n"
KEY = asyncssh.generate_private_key("ssh-ed25519")


def source(where: Path, name: str) -> Path:
    """Write a connector's source and return its directory."""
    directory = where / name.rpartition("/")[2]
    directory.mkdir()
    text = MANIFEST.format(name=name, logins=LOGINS[name]) + (READS if name == DATABASE else "")
    (directory / "manifest.toml").write_text(text)
    (directory / "__main__.py").write_text(PROGRAM)
    return directory


@pytest.fixture(scope="module")
def peer() -> Iterator[SshPeer]:
    """An SSH server that shows its host key."""
    with SshPeer() as made:
        yield made


@pytest.fixture(scope="module")
def home(peer: SshPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """A home with the three connectors, built and installed by commands, and a private key and a password in the vault."""
    where = tmp_path_factory.mktemp("connectors")
    with daemon_home() as made:
        made.ask("GET", "/healthz")
        made.unlock()
        aileron = Command(made.path)
        built = {
            MAIL: ("--login", "imap://imap.example:993", "--login", "smtp://smtp.example:587"),
            DATABASE: ("--host", "db.example:5432"),
            GIT: ("--login", f"ssh://localhost:{peer.port}"),
        }
        for name, options in built.items():
            archive = str(where / "built.tar.gz")
            for words in (
                ("connector", "build", str(source(where, name)), *options, "-o", archive),
                ("connector", "install", archive),
            ):
                aileron(*words).exits(0)
        assert aileron("secret", "set", "key", given=KEY.export_private_key().decode()).code == 0
        yield made


def test_check_manifest_says_where_a_connector_logs_in(aileron: Command, tmp_path: Path) -> None:
    """Each login is shown in words, with who sees the secret; a source without bound hosts is shown as not bound yet."""
    directory = source(tmp_path, GIT)
    unbound = aileron("connector", "check-manifest", str(directory))
    text = (directory / "manifest.toml").read_text()
    (directory / "manifest.toml").write_text(
        text.replace("ssh://bound-at-build", "ssh://a.b:22").replace("bound-at-build", "a.b:22")
    )
    bound = aileron("connector", "check-manifest", str(directory))

    assert "logs in at the hosts given at build time" in " ".join(unbound.out.split())
    assert (
        "logs in at a.b:22 by SSH the connector gets the stream behind the login, and never the password or key "
        "executes git-upload-pack 'team/*.git'"
    ) in " ".join(bound.out.split())


def test_a_script_binds_a_read_only_login_in_one_command_and_the_list_shows_its_role(aileron: Command) -> None:
    """`binding list` and `binding inspect` show the database and that its role only reads."""
    bound = aileron(
        *("binding", "setup", DATABASE, "--name", "login/db/reader", "--username", "app_reader"),
        *("--secret", "pw", "--database", "shop", "--read-only"),
    )
    listed = " ".join(aileron("binding", "list").out.split())
    shown = " ".join(aileron("binding", "inspect", "login/db/reader").out.split())

    assert bound.code == 0, bound
    assert "login/db/reader app_reader (database shop, only reads) ok" in listed
    assert "account app_reader database shop role only reads, which is checked after each login" in shown
    assert "logs in at db.example:5432 by PostgreSQL over TLS the connector gets the stream behind the login" in shown


def test_a_weaker_password_form_of_a_login_must_be_allowed_by_an_option(aileron: Command) -> None:
    """The warning is shown at the binding, in the list and by inspect; the login's other details stay."""
    words = ("binding", "setup", DATABASE, "--name", "login/db/old", "--username", "app", "--secret", "pw")
    said = aileron(*words, "--database", "shop", "--allow-password-form", "md5")
    listed = " ".join(aileron("binding", "list").out.split())
    again = aileron("binding", "rebind", "login/db/old", "--allow-password-form", "cleartext")
    shown = aileron("binding", "inspect", "login/db/old")
    after = aileron("binding", "inspect", "login/db/old", "--json")
    aileron("binding", "rebind", "login/db/old", "--allow-password-form", "scram")
    withdrawn = aileron("binding", "inspect", "login/db/old", "--json")
    wrong = aileron("binding", "rebind", "login/db/old", "--allow-password-form", "sha1")

    assert (said.code, again.code, wrong.code) == (0, 0, 2), (said, again, wrong)
    assert withdrawn.json["details"] == {"database": "shop"}
    assert "as an MD5 hash: as good as the password to the server" in " ".join(said.err.split())
    assert "login/db/old app (database shop, md5 password) ok" in listed
    seen = "password the server may have it as it is: the server, and whoever holds its certificate, sees the password"
    assert seen in " ".join(shown.out.split())
    assert after.json["details"] == {"database": "shop", "weak_password": "cleartext"}


def test_the_error_for_a_missing_login_option_has_the_whole_command(aileron: Command) -> None:
    """The command repeats the options that were given; for a missing host key, the error says how to get one."""
    said = aileron("binding", "setup", GIT, "--name", "login/git/me", "--username", "git user", "--secret", "key")
    mail = aileron("binding", "setup", MAIL)

    assert said.code == 2
    assert "--host-key is missing" in said.err
    assert (
        f"fix: aileron binding setup {GIT} --name login/git/me --username 'git user' --secret key "
        "--host-key 'TYPE BASE64'"
    ) in said.err
    assert "prints the server's keys; compare them with its owner's" in said.err
    assert f"aileron binding setup {MAIL} --name login/SERVICE/IDENTITY --username USER --secret NAME" in mail.err


@pytest.mark.parametrize(
    "option",
    [("--database", "x"), ("--read-only",), ("--host-key", public_line(KEY)), ("--allow-password-form", "md5")],
    ids=["database", "role", "host-key", "password-form"],
)
def test_a_login_option_that_the_protocol_lacks_is_refused(aileron: Command, option: tuple[str, ...]) -> None:
    """The error names the option to leave out, and nothing is bound."""
    said = aileron("binding", "setup", MAIL, "--name", "login/mail/x", "--username", "me", "--secret", "pw", *option)

    assert said.code != 0
    assert f"leave {option[0]} out" in said.err
    assert "login/mail/x" not in aileron("binding", "list").out


def test_an_ssh_host_key_can_be_given_with_its_comment_as_in_a_key_file(aileron: Command) -> None:
    """The comment is not kept; an invalid key is refused before anything is done. `binding rebind` changes the key."""
    words = ("binding", "setup", GIT, "--name", "login/git/script", "--username", "git", "--secret", "key")
    key, other = public_line(KEY), public_line(asyncssh.generate_private_key("ssh-ed25519"))
    wrong = aileron(*words, "--host-key", "ssh-ed25519 AAAA")
    bound = aileron(*words, "--host-key", f"{key} root at host")
    shown = aileron("binding", "inspect", "login/git/script")
    again = aileron("binding", "rebind", "login/git/script", "--host-key", other)
    after = aileron("binding", "inspect", "login/git/script", "--json")

    assert (wrong.code, bound.code, again.code) == (2, 0, 0), (wrong, bound, again)
    assert "--host-key: the host key is not 'TYPE BASE64'" in wrong.err
    assert fingerprint(key) in shown.out
    assert after.json["details"] == {"host_key": other}


def test_rebind_changes_a_role_from_reading_to_writing_and_back(aileron: Command) -> None:
    """Details that are not given stay, such as the database. Both role options together are refused."""
    name, rebind = "login/db/roles", ("binding", "rebind", "login/db/roles")
    words = ("--name", name, "--username", "app", "--secret", "pw", "--database", "shop", "--read-only")
    aileron("binding", "setup", DATABASE, *words)
    found = []
    for options in ((), ("--read-write",), ("--username", "owner"), ("--read-only",)):
        assert aileron(*rebind, *options).code == 0, options
        found.append(aileron("binding", "inspect", name, "--json").json)
    both = aileron(*rebind, "--read-only", "--read-write")

    reader, writer = {"database": "shop", "read_only": True}, {"database": "shop"}
    assert [binding["details"] for binding in found] == [reader, writer, writer, reader]
    assert [binding["username"] for binding in found] == ["app", "app", "owner", "owner"]
    assert (both.code, both.err.splitlines()[0]) == (2, "error: --read-only and --read-write cannot be used together")
    assert aileron("binding", "inspect", name, "--json").json["details"] == reader


def test_setup_at_a_terminal_fetches_the_host_key_for_comparison(
    aileron: Command, peer: SshPeer, tmp_path: Path
) -> None:
    """The reach is shown first, then come the user, the fingerprint to compare and the private key's file; a no binds nothing."""
    file = tmp_path / "id_ed25519"
    file.write_bytes(KEY.export_private_key())
    words = ("binding", "setup", GIT, "--name", "login/git/me")
    key = public_line(peer.host_key)

    denied = at_terminal(aileron, *words, answers=[("User name: ", "git"), ("Is it the same? [y/N] ", "n")])
    nothing = aileron("binding", "list").out
    bound = at_terminal(
        aileron,
        *words,
        answers=[
            ("User name: ", "git"),
            ("Is it the same? [y/N] ", "y"),
            ("File of the private key, without a passphrase: ", str(file)),
        ],
    )
    shown = aileron("binding", "inspect", "login/git/me", "--json").json

    assert denied.code == 75
    assert "nothing bound" in denied.out
    assert "login/git/me" not in nothing
    assert bound.code == 0, bound
    before, _, asked = flat(bound).partition("User name: ")
    assert f"logs in at localhost:{peer.port} by SSH" in before
    assert "executes git-upload-pack 'team/*.git'" in before
    assert fingerprint(key) in asked
    assert "Compare the fingerprint with what the server's owner publishes" in asked
    assert shown["details"] == {"host_key": key}
    assert "PRIVATE KEY" not in bound.out


def test_setup_at_a_terminal_asks_for_a_database_and_its_role(aileron: Command) -> None:
    """An empty answer means the server's default database; the password is not echoed."""
    said = at_terminal(
        aileron,
        *("binding", "setup", DATABASE, "--name", "login/db/typed"),
        answers=[
            ("User name: ", "app"),
            ("Database (empty for the server's default): ", ""),
            ("Is this a role that only reads? [y/N] ", "y"),
            ("Password: ", "a password that is typed"),
        ],
    ).exits(0)
    assert "a password that is typed" not in said.out
    assert aileron("binding", "inspect", "login/db/typed", "--json").json["details"] == {"read_only": True}


def test_a_server_that_shows_no_host_key_is_reported_with_a_fix(tmp_path: Path) -> None:
    """The server's port is closed: the error says how to get the key by other means."""
    (port,) = reserve_ports(1)
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        home.unlock()
        aileron = Command(home.path)
        archive = str(tmp_path / "built.tar.gz")
        aileron("connector", "build", str(source(tmp_path, GIT)), "--host", f"localhost:{port}", "-o", archive)
        aileron("connector", "install", archive)
        said = at_terminal(aileron, "binding", "setup", GIT, "--name", "login/git/me", answers=[("User name: ", "git")])

    assert said.code == 7
    assert f"localhost:{port} did not show its public key" in flat(said)
    assert f"fix: ssh-keyscan -p {port} localhost" in flat(said)


@pytest.mark.jail
def test_a_run_that_lacks_a_read_only_login_offers_to_bind_such_a_login(tmp_path: Path) -> None:
    """Only a login that can write is bound, and a query does not use it. The login bound in place only reads, without a question
    about its role, and the run goes on.
    """
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        home.unlock()
        aileron = Command(home.path)
        home.install(source(tmp_path, DATABASE), "db.example:5432")
        home.add_probe_action("query", connector=DATABASE)
        aileron("binding", "setup", DATABASE, "--name", "login/db/writer", "--username", "app", "--secret", "pw")
        script = aileron("run", "query")
        said = at_terminal(
            aileron,
            *("run", "query"),
            answers=[
                ("Bind one now and continue? [y/N] ", "y"),
                ("Service [database]: ", ""),
                ("whose credential it is [", "reader"),
                ("User name: ", "app_reader"),
                ("Database (empty for the server's default): ", "shop"),
                ("Password: ", "a password that is typed"),
            ],
        )
        bound = aileron("binding", "inspect", "login/database/reader", "--json")

    assert script.code == 4
    assert "and has none (what is bound can write)" in " ".join(script.err.split()), script.err
    assert (
        f"aileron binding setup {DATABASE} --name login/SERVICE/IDENTITY --username USER --secret NAME --read-only"
        in (" ".join(script.err.split()))
    )
    assert said.code == 0, said
    assert bound.json["details"] == {"database": "shop", "read_only": True}
