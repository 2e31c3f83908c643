"""Ten requests as a person meets them, as text: the console at two sizes, and the command. golden/ten-*.txt.

Each was reviewed by eye: the effect stands first, alarms stand above the part that scrolls, and the surfaces agree.
AILERON_GOLDEN=renew writes them anew. Not here: how cells are drawn (test_golden_screens.py), the page (tests/browser).
"""

from __future__ import annotations

import json
import re

import pytest

from aileron.cards.card import Card
from aileron.tui import rendering
from tests.cli.command import Command
from tests.cli.person import SIGN
from tests.cli.questions import Approver, sealed_preview
from tests.support.fake_daemon import Reply, Seen
from tests.support.screens import is_like, text_of
from tests.support.ten_requests import TEN, Request
from tests.tui.consoles import World

pytestmark = pytest.mark.anyio

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
each = pytest.mark.parametrize("example", TEN, ids=lambda example: named(example))


def ask(world: World, example: Request) -> None:
    """Add a request as the agent asked it, with its edit and its preview."""
    approver: Approver = world.sign()
    world.fake.passphrase, world.fake.is_locked = "x", False
    asked = example.question()
    edits, asked["edits"] = asked.get("edits", []), []
    world.ask(asked)
    digest = asked["digest"] if example.edit is None else example.edit.digest
    if example.found is not None:
        path = f"/v1/action-approvals/{example.id}/preview"
        world.fake.script("POST", path, sealed_preview(approver, digest, example.found))
    if example.edit is None:
        return

    def edited(seen: Seen) -> Reply:
        asked["edits"] = edits
        return 200, {"digest": edits[0]["digest"], "plan": edits[0]["plan"], "changes": []}

    world.fake.script("POST", f"/v1/action-approvals/{example.id}/edit", edited)
    world.edit = lambda _: json.dumps(example.edit.args if example.edit else {})


@each
@pytest.mark.parametrize("size", SIZES)
async def test_the_console_screen_of_each_of_ten_requests_matches_its_golden_file(
    world: World, monkeypatch: pytest.MonkeyPatch, example: Request, size: str
) -> None:
    """The test freezes the remaining time, so that screens can be compared with the files."""
    monkeypatch.setattr(rendering, "duration", lambda seconds: "14:41")
    monkeypatch.setenv("TZ", "UTC")
    ask(world, example)
    async with world.console(SIZES[size], clock=lambda: 0.0) as shown:
        await shown.until(lambda: shown.app.card is not None)
        if example.edit is not None:
            await shown.press_settled("e", until="edited  ")
        await shown.unlock(
            until=lambda: shown.app.card is not None and (example.found is None or has_state(shown.app.card))
        )
        shown.app.clear_notifications()
        await shown.settled()

        is_like(f"ten-{named(example)}-{size}.txt", text_of(shown.app) + "\n")


@each
async def test_the_command_output_of_each_of_ten_requests_matches_its_golden_file(
    world: World, example: Request
) -> None:
    """The command shows the same card, unfolded."""
    ask(world, example)
    words = ["show", example.id, *(["--preview"] if example.found is not None else [])]
    answers = [SIGN] * (example.found is not None)
    if example.edit is not None:
        words, answers = (
            ["edit", example.id, "--args", json.dumps(example.edit.args)],
            [*answers, ("Approve? [y/N] ", "n")],
        )
    said = Command(world.home).at_terminal("approval", *words, answers=answers, NO_COLOR="1", TZ="UTC")

    assert said.code == (0 if example.edit is None else 75), said
    is_like(f"ten-{named(example)}-command.txt", re.sub(r"in [0-9]+ d\b", "later", said.out))


def has_state(card: Card) -> bool:
    """Return whether the card has what its preview found."""
    return any(section.title.startswith("current state, loaded") for section in card.sections)


def named(example: Request) -> str:
    """Return the request's name as it stands in file names."""
    return example.name.replace(" ", "-")
