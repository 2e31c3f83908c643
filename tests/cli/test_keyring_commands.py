"""`aileron keyring` with a real daemon and a forge: what a person sees before a key is trusted, and the need for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.model.secret import Secret
from aileron.registry.signatures import SigningKey
from tests.cli.command import Command
from tests.support.forge import ForgeServer
from tests.support.home import DaemonHome, daemon_home

pytestmark = pytest.mark.jail
KEY, OTHER = (SigningKey(Secret(letter * 32)).public for letter in (b"k", b"o"))
QUESTION = "Trust it? [y/N] "
MAIL = "github://acme/mail"


@pytest.fixture
def home(forge: ForgeServer) -> Iterator[DaemonHome]:
    """A home that is configured with a forge, in which one repository publishes a key."""
    forge.keys[MAIL] = KEY.to_pem()
    with daemon_home() as home:
        home.configure(forge.toml())
        yield home


def test_a_publishers_key_is_trusted_after_its_fingerprint_is_confirmed(aileron: Command, forge: ForgeServer) -> None:
    """The key's source is shown, and Enter alone means no. The trusted key is listed and can be revoked."""
    declined = aileron.at_terminal("keyring", "trust", MAIL, answers=[(QUESTION, "")], NO_COLOR="1")
    assert (declined.code, "nothing changed" in declined.out) == (6, True)
    assert aileron("keyring", "list").out == ""

    agreed = aileron.at_terminal(
        "keyring", "trust", f"{MAIL}/connectors/imap", answers=[(QUESTION, "y")], NO_COLOR="1"
    ).exits(0)
    for shown in (MAIL, KEY.fingerprint, f"keys/publisher.pub of {MAIL}", "trusted"):
        assert shown in agreed.out
    assert "whoever holds this key can sign for them" in " ".join(agreed.out.split())
    assert aileron("keyring", "list").out == f"{MAIL}\t{KEY.fingerprint}\n"
    again = aileron("keyring", "trust", MAIL, "--yes")
    assert (again.code, again.out, "already trusted" in again.err) == (0, f"{KEY.fingerprint}\n", True)
    forge.keys[MAIL] = OTHER.to_pem()
    assert "NOT THE KEY that it publishes now" in aileron("keyring", "trust", MAIL).err
    assert aileron("keyring", "revoke", MAIL).err == f"{KEY.fingerprint} is no longer trusted for {MAIL}\n"
    assert aileron("keyring", "list", "--json").json == {"keyring": []}


def test_trusting_a_publishers_key_without_a_terminal_requires_the_option_yes(aileron: Command) -> None:
    """The error names --yes."""
    said = aileron("keyring", "trust", MAIL)

    assert (said.code, "a person must confirm" in said.err) == (2, True)
    assert f"fix: aileron keyring trust {MAIL} --yes" in said.err
    assert aileron("keyring", "trust", MAIL, "--yes", "--json").json["key"] == KEY.fingerprint


def test_the_key_of_a_repository_owner_must_be_given_as_a_file(aileron: Command, tmp_path: Path) -> None:
    """Forges publish keys for repositories only, not for owners; a missing file is reported."""
    file = tmp_path / "acme.pub"
    file.write_text(KEY.to_pem())
    missing = aileron("keyring", "trust", "github://acme", "--key", str(tmp_path / "none"))
    asked = aileron("keyring", "trust", "github://acme", "--yes")

    assert (asked.code, "--key FILE" in asked.err) == (2, True)
    assert (missing.code, "No such file" in missing.err) == (2, True)
    assert aileron("keyring", "trust", "github://acme", "--key", str(file), "--yes").code == 0
    assert aileron("keyring", "list").out == f"github://acme\t{KEY.fingerprint}\n"
    assert aileron("keyring", "revoke", "github://acme", "--key", OTHER.fingerprint).code == 3


def test_a_missing_publisher_key_or_an_unknown_forge_is_reported(aileron: Command) -> None:
    """The repositories have no key, or the scheme is unknown."""
    for authority, code, problem in (
        ("github://acme/none", 3, "no keys/publisher.pub"),
        ("gitlab://acme/none", 3, "no keys/publisher.pub"),
        ("svn://acme/mail", 2, "has no known scheme"),
    ):
        said = aileron("keyring", "trust", authority, "--yes")
        assert (said.code, problem in said.err) == (code, True), said
