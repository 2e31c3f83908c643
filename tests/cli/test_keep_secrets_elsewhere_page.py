"""Commands of docs/how-to/keep-secrets-elsewhere.md run as written, with a real pass and a server of the tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.home import daemon_home
from tests.support.key_value_store import TOKEN, KeyValueStore
from tests.support.password_store import PasswordStore, needs_pass
from tests.support.plain_host import ROOT
from tests.support.upstream import Authority

pytestmark = needs_pass

PAGE = (ROOT / "docs" / "how-to" / "keep-secrets-elsewhere.md").read_text(encoding="utf-8")
MANIFEST = """\
[connector]
name = "github://you/connector-mail"
version = "1.0.0"

[capabilities.network]
hosts = ["mail.example.com:443"]

[capabilities.credential]
kind = "basic"
scope = "Follow the page"

[capabilities.runtime]
imports = ["http"]
"""
THERE = "vault.example.com:8200"


def test_the_how_to_pages_commands_bind_two_secrets_that_are_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command exits with 0; only the server's address is replaced. Both bindings then show where a secret is."""
    monkeypatch.chdir(tmp_path)
    Path("password.txt").write_text("canary-the-first-password\n")
    Path("next-password.txt").write_text("canary-the-next-password\n")
    Path("token.txt").write_text(TOKEN.decode() + "\n")
    authority = Authority(tmp_path)
    with PasswordStore() as passwords, KeyValueStore("canary-at-the-server", authority) as store, daemon_home() as home:
        for name, value in passwords.environment.items():
            monkeypatch.setenv(name, value)
        home.configure(f'[egress]\nca_file = "{authority.ca_file}"\n')
        home.ask("GET", "/healthz")
        home.unlock()
        source = tmp_path / "mail"
        source.mkdir()
        (source / "manifest.toml").write_text(MANIFEST)
        (source / "__main__.py").write_text("pass\n")
        home.install(source)
        aileron = Command(home.path)
        lines = re.findall(r"^ *\$ (.*)$", PAGE, re.MULTILINE)
        assert len(lines) == 11
        for line in lines:
            command, _, file = (
                line.replace(THERE, store.address).replace("secret/mail#", "secret/mail/home#").partition(" < ")
            )
            program, *words = shlex.split(command)
            text = Path(file).read_text() if file else ""
            if program == "pass":
                done = subprocess.run(
                    [program, *words], input=text, text=True, timeout=20, env=dict(os.environ), check=False
                )
                assert done.returncode == 0, line
                continue
            said = aileron(*words, given=text)
            assert (program, said.code) == ("aileron", 0), (line, said)
        bound = {name: home.must("GET", f"/v1/bindings/basic/mail/{name}")["elsewhere"] for name in ("me", "work")}
        address = store.address

    assert bound == {
        "me": {"reference": "pass:mail/moved", "program": "/usr/bin/pass"},
        "work": {"reference": f"vault://{address}/secret/mail/home#password", "token": "store-token"},
    }
