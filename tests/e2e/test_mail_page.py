"""docs/how-to/use-your-mail.md, followed as it stands: its commands run in one shell, at Debian's Dovecot and Postfix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Answers
from tests.e2e.test_tutorial import ROOT, Shell, home, script, shell, with_its_own
from tests.support.canary import scan
from tests.support.dovecot import HOST, PASSWORD, Dovecot
from tests.support.postfix import Postfix
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE = ROOT / "docs" / "how-to" / "use-your-mail.md"
OFFER = "plain login"


@pytest.fixture
def servers(authority: Authority) -> Iterator[tuple[Dovecot, Postfix]]:
    """Start the servers of the reader's provider."""
    with Dovecot(authority) as dovecot, Postfix(authority, dovecot, [OFFER]) as postfix:
        yield dovecot, postfix


def test_every_step_of_the_mail_page_works(
    shell: Shell, home: Path, servers: tuple[Dovecot, Postfix], authority: Authority
) -> None:
    """The test does every step, from the dialogue to the removal; the message arrives, and the password stays in the vault."""
    dovecot, postfix = servers
    imap, smtp = f"{HOST}:{dovecot.imaps}", f"{HOST}:{postfix.submissions[OFFER]}"
    dovecot.deliver("mira", b"From: noor@example.com\r\nSubject: hello\r\n\r\nhello\r\n")
    shell.begin(imap, smtp, ca_file=authority.ca_file)

    add = "aileron add mail me@example.com"
    own = f"{add} --login imap://{imap} --login smtp://{smtp}"  # what finds servers is in tests/cli/test_add_by_address.py
    answers: list[tuple[str, Answers]] = [
        (
            add,
            [
                ("Which actions? [1-3, Enter for 2] ", ""),
                ("User name [me@example.com]: ", "mira"),  # the reader's is their address; the server's is not
                ("Password: ", PASSWORD),
            ],
        ),
        ("aileron remove mail", [("[y/N] ", "y")]),
    ]
    text = with_its_own(
        PAGE,
        (f"$ {add}\n", f"$ {own}\n"),
        ("--login imap://imap.example.com:993 --login smtp://smtp.example.com:465", own.removeprefix(f"{add} ")),
        ("--username me@example.com", "--username mira"),
    )
    for step, printed in shell.follow(text, home, answers=answers):
        assert PASSWORD not in printed, step
        assert scan([home / ".aileron"], PASSWORD.encode()) == {}, step

    (home / "app-password.txt").write_text(PASSWORD)
    list(shell.follow(script(text), home))
    assert "INBOX" in shell.must("aileron run mail-list-folders")

    wait_until(lambda: dovecot.messages("noor"), "the message arrives")
    assert b"Tomorrow at one?" in dovecot.messages("noor")[0]
    assert scan([home / ".aileron"], b"Tomorrow at one?"), "the scan finds nothing that is there"
