"""docs/how-to/use-your-mail.md, followed as it stands: its commands run in one shell, at Debian's Dovecot and Postfix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import ROOT, Shell, home, shell, with_its_own
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
    """The test does every step, from the build to the record; the message arrives, and the password stays where it was put."""
    dovecot, postfix = servers
    imap, smtp = f"{HOST}:{dovecot.imaps}", f"{HOST}:{postfix.submissions[OFFER]}"
    (home / "connectors").symlink_to(ROOT / "connectors")
    (home / "app-password.txt").write_text(PASSWORD)
    dovecot.deliver("mira", b"From: noor@example.com\r\nSubject: hello\r\n\r\nhello\r\n")
    shell.begin(imap, smtp, ca_file=authority.ca_file)

    text = with_its_own(
        PAGE,
        ("imap://imap.example.com:993", f"imap://{imap}"),
        ("smtp://smtp.example.com:465", f"smtp://{smtp}"),
        ("--username me@example.com", "--username mira"),  # the reader's is their address; the server's is not
    )
    list(shell.follow(text, home))

    wait_until(lambda: dovecot.messages("noor"), "the message arrives")
    assert b"Tomorrow at one?" in dovecot.messages("noor")[0]
    assert scan([home / ".aileron"], b"Tomorrow at one?"), "the scan finds nothing that is there"
    assert scan([home / ".aileron"], PASSWORD.encode()) == {}
