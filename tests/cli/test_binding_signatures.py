"""`aileron binding setup` for signed requests and digest authentication, with a real daemon: what is shown, asked and kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.home import DaemonHome, daemon_home
from tests.support.plain_host import ROOT

WEBHOOK, DOOR = "github://aileron/connector-webhook", "github://aileron-tests/door"
GOOD, BAD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MANIFEST = f"""\
[connector]
name = "{DOOR}"
version = "1.0.0"

[capabilities.network]
hosts = ["door.example.com:443"]

[capabilities.credential]
kind = "digest"
scope = "Open the door"

[capabilities.runtime]
imports = ["http"]
"""
PROGRAM = "from aileron_connector import op, run\n\n@op\ndef knock():\n    return 1\n\nrun()\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """A home with both connectors, and an open vault."""
    door = tmp_path_factory.mktemp("door")
    (door / "manifest.toml").write_text(MANIFEST)
    (door / "__main__.py").write_text(PROGRAM)
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        home.install(ROOT / "connectors" / "webhook", "hooks.example.com:443")
        home.install(Path(door))
        home.unlock()
        yield home


def test_setup_prompts_for_a_signing_key_and_rejects_an_undecodable_one(aileron: Command, home: DaemonHome) -> None:
    """The signed text is shown first; a key that cannot be decoded is not stored, and a good one is bound."""

    def setup(key: str) -> str:
        answers = [("Service [webhook]: ", "hooks"), ("]: ", "me"), ("Signing secret: ", key)]
        return flat(at_terminal(aileron, "binding", "setup", WEBHOOK, answers=answers))

    refused = setup(BAD)
    before, _, _ = refused.partition("Service [webhook]")
    assert "msg_{id}.{time}.{body}" in before
    assert "cannot be the key of an HMAC: it does not begin with whsec_" in refused
    assert [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]
    assert home.must("GET", "/v1/bindings")["bindings"] == []

    said = setup(GOOD)
    (bound,) = home.must("GET", "/v1/bindings")["bindings"]
    assert bound["name"] == "hmac/hooks/me"
    assert "whsec_M" not in refused + said
    shown = aileron("binding", "inspect", "hmac/hooks/me").out
    assert "an HMAC-SHA256 of msg_{id}.{time}.{body} in webhook-id: msg_{id}" in " ".join(shown.split())


def test_replacing_a_signing_key_rejects_an_undecodable_one(aileron: Command) -> None:
    """The error does not contain the key's value."""
    said = aileron("secret", "set", "hooks-me", given=BAD)

    assert said.code != 0
    assert "cannot be the key of an HMAC" in said.err
    assert BAD not in said.err
    assert aileron("secret", "set", "hooks-me", given=GOOD).code == 0


def test_setup_for_digest_authentication_prompts_for_user_name_and_password(aileron: Command, home: DaemonHome) -> None:
    """The command says that the password is not sent, and refuses a colon in the user name."""
    answers = [("Service [door]: ", ""), ("]: ", "me"), ("User name: ", "mira"), ("Password: ", "open, sesame!")]
    said = flat(at_terminal(aileron, "binding", "setup", DOOR, answers=answers))

    assert "Authorization: Digest, without the password" in said
    assert "open, sesame!" not in said
    found = {binding["name"]: binding for binding in home.must("GET", "/v1/bindings")["bindings"]}
    assert found["digest/door/me"]["username"] == "mira"
    refused = aileron("binding", "setup", DOOR, "--name", "digest/door/you", "--username", "a:b", "--secret", "pw")
    assert refused.code != 0
    assert "colon" in refused.err
