"""docs/how-to/use-telegram.md, followed as it stands: its commands run in one shell, at a server that responds as
Telegram does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Answers
from tests.e2e.test_tutorial import ROOT, Shell, home, script, shell
from tests.support.canary import scan
from tests.support.names import Names
from tests.support.telegram import NAMES, TelegramServer
from tests.support.upstream import Authority

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE = ROOT / "docs" / "how-to" / "use-telegram.md"
TOKEN = "110201543:AAHcanary-of-the-readers_token-012345"


@pytest.fixture
def telegram(authority: Authority) -> Iterator[tuple[TelegramServer, Names]]:
    """Start a server with the reader's bot, on a machine where Telegram's name leads to it."""
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        TelegramServer(authority.server_context(*NAMES), listener=machine.listen()) as server,
    ):
        server.allow(TOKEN)
        yield server, machine


def test_every_step_of_the_telegram_page_works(
    shell: Shell, home: Path, telegram: tuple[TelegramServer, Names], authority: Authority
) -> None:
    """The test does every step, from the dialogue to the removal; the message arrives, and the token stays in the vault."""
    server, machine = telegram
    server.write(server.chat("Releases", username="releases"), "is it out?")
    shell.must(f"aileron config add egress.private {NAMES[0]}:443")
    shell.must(f"aileron config set egress.ca_file {authority.ca_file}")
    shell.must(" ".join([*machine.prefix, "aileron", "daemon", "start"]))
    shell.must("export AILERON_VAULT_PASSPHRASE=correct-horse-battery-staple && aileron vault init")
    answers: list[tuple[str, Answers]] = [
        ("aileron add telegram", [("Which actions? [1-3, Enter for 2] ", ""), ("API key or token: ", TOKEN)]),
        ("aileron remove telegram", [("[y/N] ", "y")]),
    ]
    for step, printed in shell.follow(PAGE.read_text(encoding="utf-8"), home, answers=answers):
        assert TOKEN not in printed
        assert scan([home / ".aileron"], TOKEN.encode()) == {}, step

    (home / "token.txt").write_text(TOKEN)
    list(shell.follow(script(PAGE.read_text(encoding="utf-8")), home))
    assert "is it out?" in shell.must("aileron run telegram-read-updates")

    assert [sent.text for sent in server.sent] == ["1.2 is out."]
    assert scan([home / ".aileron"], b"1.2 is out."), "the scan finds nothing that is there"
