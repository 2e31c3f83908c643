"""Commands of docs/how-to/bind-a-login.md run in order as written, and its role reads at a real server but cannot write."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from aileron.logins.login_messages import Problem
from aileron.logins.protocols.postgres import PostgresLogin
from aileron.model.login import LoginDetails
from tests.cli.command import Command
from tests.support.home import daemon_home
from tests.support.logins import LoginAt, trusting
from tests.support.plain_host import ROOT
from tests.support.postgresql import PostgreSQL
from tests.support.upstream import Authority

PAGE = (ROOT / "docs" / "how-to" / "bind-a-login.md").read_text(encoding="utf-8")
MANIFEST = """\
[connector]
name = "github://you/connector-{name}"
version = "1.0.0"

[capabilities.network]
hosts = ["{host}"]

[capabilities.credential]
kind = "login"
scope = "Follow the page"
logins = ["{login}"]
{more}

[capabilities.runtime]
imports = ["tcp"]
"""
CONNECTORS = {
    "mail": ("imap://imap.example.com:993", ""),
    "database": ("postgres://db.example.com:5432", ""),
    "git": ("ssh://git.example.com:22", "commands = [\"git-upload-pack 'team/*.git'\"]"),
}
PASSWORD = "choose-a-long-one"


def blocks(language: str) -> list[str]:
    """Return the page's code blocks of a language, without the indent that they have in lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return ["".join(line.removeprefix(indent) for line in block.splitlines(keepends=True)) for indent, block in found]


def test_the_how_to_pages_commands_create_its_four_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command exits with 0, and the bindings have the stated details."""
    monkeypatch.chdir(tmp_path)
    for name in ("password", "reader-password", "writer-password"):
        Path(f"{name}.txt").write_text(f"{PASSWORD}-{name}\n")
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        home.unlock()
        aileron = Command(home.path)
        for name, (login, more) in CONNECTORS.items():
            source = tmp_path / name
            source.mkdir()
            host = login.partition("://")[2]
            (source / "manifest.toml").write_text(MANIFEST.format(name=name, host=host, login=login, more=more))
            (source / "__main__.py").write_text("pass\n")
            home.install(source)
        lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
        assert len(lines) == 13
        for line in lines:
            command, _, file = line.partition(" < ")
            program, *words = shlex.split(command)
            if words[0] in ("config", "daemon"):
                continue  # for a server of the reader's own network, with an authority of its own
            if program == "ssh-keygen":
                subprocess.run([program, *words], check=True, timeout=20)
                continue
            said = aileron(*words, given=Path(file).read_text() if file else "")
            assert (program, said.code) == ("aileron", 0), (line, said)
        bound = {binding["name"]: binding.get("details") for binding in home.must("GET", "/v1/bindings")["bindings"]}

    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
    assert bound == {
        "login/git/deploy": {"host_key": key},
        "login/mail/me": None,
        "login/shop/reader": {"database": "shop", "read_only": True},
        "login/shop/writer": {"database": "shop"},
    }


def test_the_how_to_pages_database_role_can_read_but_not_write(tmp_path: Path) -> None:
    """A login with the page's role passes the check; with one right more it is refused because of that right."""
    authority = Authority(tmp_path)
    (sql,) = blocks("sql")
    with PostgreSQL(authority) as server:
        with server.admin() as admin:
            admin.run("CREATE DATABASE shop")
        with server.admin("shop") as admin:
            admin.run("CREATE TABLE orders (id int)")
            for statement in sql.strip().split("\n"):
                admin.run(statement)

        def login() -> LoginAt:
            return LoginAt(
                PostgresLogin,
                f"postgres://localhost:{server.port}",
                "shop_reader",
                PASSWORD.encode(),
                tls=trusting(authority.ca_pem),
                details=LoginDetails(database="shop", read_only=True),
            )

        with login() as reading:
            assert reading.logged_in().mechanism == "SCRAM-SHA-256-PLUS"
        with server.admin("shop") as admin:
            assert admin.run("SELECT has_table_privilege('shop_reader', 'orders', 'SELECT')") == [[True]]
            admin.run("GRANT INSERT ON orders TO shop_reader")
        with login() as writing:
            failed = writing.failed()

    assert failed.problem is Problem.MAY_WRITE
    assert "orders" in failed.message
