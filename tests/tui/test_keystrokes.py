"""The number of keys that a decision takes at a terminal of 80 by 24 with an open key, without passphrases, words and edits.

The console promises at most three to approve one, four besides the reason to deny one, three besides an edit, and six for three
that are alike. How long they take is measured by benchmarks/bench_decisions.py. Source: docs/adr/0047-fewer-keys.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.alike import mail
from tests.support.fake_daemon import Seen
from tests.tui.consoles import Shown, World, named

pytestmark = pytest.mark.anyio


class Hand:
    """A person's hand, which presses each key once, when it counts."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self.keys = 0

    async def press(self, key: str, brings: str = "") -> None:
        """Press a key, and wait for what it must bring on the screen."""
        await self._shown.settled()
        self.keys += 1
        await self._shown.press(key)
        if brings:
            await self._shown.until(brings)


@pytest.mark.parametrize("lines", [1, 12], ids=["one screen", "two screens"])
async def test_one_request_is_approved_with_at_most_three_keystrokes(world: World, lines: int) -> None:
    """Two keys are enough if the whole request is on the screen; otherwise Space scrolls."""
    world.sign()
    body = "\n".join(f"line {number}" for number in range(lines))
    world.ask(named("send-mail", reversible=True, args={"to": "mira@example.com", "body": body}))
    async with world.console() as shown:
        await shown.unlock()
        hand = Hand(shown)
        if lines > 1:
            await hand.press("space", "▸ proof")
        await hand.press("A", "any other key")
        await hand.press("y")
        await shown.until(lambda: world.sent())

    assert world.sent()[0]["decision"] == "approve"
    assert hand.keys == (3 if lines > 1 else 2)


async def test_one_request_is_denied_with_two_keystrokes_and_the_reason(world: World) -> None:
    """The keys are `d`, and Enter after the reason; the documentation promises at most four."""
    world.sign()
    world.ask(named("send-mail", reversible=True))
    async with world.console() as shown:
        await shown.unlock()
        hand = Hand(shown)
        await hand.press("d", "Reason for the agent")
        await shown.type("not today")
        await hand.press("enter")
        await shown.until(lambda: world.sent())

    assert [(body["decision"], body["reason"]) for body in world.sent()] == [("deny", "not today")]
    assert hand.keys == 2


async def test_an_edited_request_is_approved_with_three_keystrokes_besides_the_edit(world: World) -> None:
    """The first key opens the editor; the two keys of an approval follow."""
    world.sign()
    asked = named("send-mail", reversible=True)
    world.ask(asked)
    wanted = {"to": "mira@example.org", "body": "shorter"}
    other = named("send-mail", reversible=True, args=wanted)

    def edited(_: Seen) -> Any:
        asked["edits"] = [{"digest": other["digest"], "plan": other["plan"], "made_at": "2026-11-21T04:00:02Z"}]
        return 200, {"digest": other["digest"], "plan": other["plan"], "changes": []}

    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/edit", edited)
    world.edit = lambda _: json.dumps(wanted)
    async with world.console() as shown:
        await shown.unlock()
        hand = Hand(shown)
        await hand.press("e", "edited    ")
        await hand.press("A", "any other key")
        await hand.press("y")
        await shown.until(lambda: world.sent())

    assert world.sent()[0]["digest"] == other["digest"]
    assert hand.keys == 3


async def test_three_requests_that_are_alike_are_approved_with_four_keystrokes(world: World) -> None:
    """The key End shows the rest of their card; the documentation promises at most six."""
    world.sign()
    world.ask(*(mail(number) for number in (1, 2, 3)))
    async with world.console() as shown:
        await shown.unlock(until="3 waiting")
        hand = Hand(shown)
        await hand.press("a")
        await hand.press("A", "approve all 3")
        await hand.press("end")
        await hand.press("y")
        await shown.until(lambda: len(world.sent()) == 3)

    assert hand.keys == 4
