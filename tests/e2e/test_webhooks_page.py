"""docs/how-to/sign-webhooks.md, followed as it stands: its commands run in one shell, and the event is verified with that key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.cli.command import Answers
from tests.e2e.test_tutorial import ROOT, Shell, home, script, shell
from tests.support.canary import scan
from tests.support.upstream import Authority, Upstream, answer
from tests.support.waiting import wait_until

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE = ROOT / "docs" / "how-to" / "sign-webhooks.md"


@pytest.fixture
def receiver(authority: Authority) -> Iterator[Upstream]:
    """Start the reader's program, which does not know the key yet."""
    with Upstream(lambda _seen: answer(b"thanks"), authority.server_context("localhost")) as upstream:
        yield upstream


def test_every_step_of_the_webhooks_page_works(
    shell: Shell, home: Path, receiver: Upstream, authority: Authority
) -> None:
    """The test does every step; the event arrives with a signature that the library accepts, and the key stays where it
    was put.
    """
    host = f"localhost:{receiver.port}"
    shell.begin(host, ca_file=authority.ca_file)
    text = PAGE.read_text(encoding="utf-8").replace("--host hooks.example.com:443", f"--host {host}")
    key = ""

    def made() -> str:
        nonlocal key
        key = (home / "webhook-key.txt").read_text()
        return key

    answers: list[tuple[str, Answers]] = [
        (
            "aileron add webhook",
            [
                ("Server, such as hooks.example.com: ", host),
                ("Which actions? [1-3, Enter for 2] ", ""),
                ("Signing secret: ", made),
            ],
        ),
        ("aileron remove webhook", [("[y/N] ", "y")]),
    ]
    for step, printed in shell.follow(text, home, answers=answers):
        assert not key or key not in printed, step
        assert not key or scan([home / ".aileron"], key.encode()) == {}, step

    (home / "webhook-key.txt").write_text(key)
    list(shell.follow(script(text), home))
    assert "webhook-send" in shell.must("aileron action list")

    wait_until(lambda: bool(receiver.requests), "the event arrives")
    (seen,) = receiver.requests
    event = Webhook(key).verify(seen.body, {name.lower(): value for name, value in seen.fields})
    assert (seen.target, event["type"], event["data"]) == ("/hooks/orders", "order.placed", {"order": 42})
    assert json.loads(seen.body) == event
    assert scan([home / ".aileron"], b"order.placed"), "the scan finds nothing that is there"
