"""Several requests that are alike, approved with one look: which are, what stands on their card, and what is sent for each.

The rule of the console's safety rules that this changes: several are approved at once only where they are alike, and each is
signed. Source: docs/adr/0047-fewer-keys.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aileron.model.manifest import ApprovalRule
from tests.cli.alike import APART, ann_and_bob, mail
from tests.cli.questions import SUBJECTS, plan, question, sealed_preview, subject_question
from tests.tui.consoles import World

pytestmark = pytest.mark.anyio


async def test_three_alike_are_approved_with_one_look_and_each_is_signed(world: World) -> None:
    """Six keys or fewer; each decision is about its own digest, and what is not selected still waits."""
    approver = world.sign()
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked, question(plan(action="other"), approval_id="act-other"))
    async with world.console((100, 40)) as shown:
        await shown.unlock()
        await shown.until("4 waiting")
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("approve all 3")
        text = shown.text
        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: len(world.sent()) == 3)
        await shown.until_told("3 of 3 approved")

    assert [body["digest"] for body in world.sent()] == [one["digest"] for one in asked]
    assert len({body["signature"] for body in world.sent()}) == 3
    assert world.sent_to() == [one["approval_id"] for one in asked]
    assert approver.key_id == world.sent()[0]["key_id"]
    for fact in ("3 requests of the action “send-mail”", "WHAT DIFFERS", "1  1@example.com", "3  3@example.com"):
        assert fact in text
    assert text.count("lunch is at noon.") >= 1
    assert "THE SAME IN ALL" in text
    assert "goes to   mail.example:443" in text


async def test_what_deletes_takes_its_word_once_for_all(world: World) -> None:
    """`y` decides nothing there, and Enter after it nothing either."""
    world.ask(*(mail(number, rule=ApprovalRule(required=True)) for number in (1, 2)))
    async with world.console((100, 40)) as shown:
        await shown.until("2 waiting")
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("To approve all 2, type  yes")
        await shown.settled()
        await shown.press("y", "enter")
        await shown.until("not decided")
        assert world.sent() == []

        await shown.type("es")
        await shown.press("enter")
        await shown.until(lambda: len(world.sent()) == 2)


@pytest.mark.parametrize(
    "keys", [["pagedown"] * 8, ["space"] * 8, ["end"], ["end", "home"]], ids=lambda keys: f"{len(keys)} x {keys[-1]}"
)
async def test_their_card_has_to_be_read_to_its_end(world: World, keys: list[str]) -> None:
    """On a small screen a `y` before that decides nothing, and says why; the keys that scroll a card scroll this one."""
    world.ask(*(mail(number, note="\n".join(f"line {line}" for line in range(40))) for number in (1, 2)))
    async with world.console() as shown:
        await shown.until("2 waiting")
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("approve all 2")
        await shown.settled()
        await shown.press("y")
        await shown.until("not all of it was on screen")
        assert world.sent() == []

        await shown.press(*keys)
        await shown.until("line 1 " if keys[-1] == "home" else "line 39")
        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: len(world.sent()) == 2)


async def test_a_key_that_was_on_its_way_approves_none(world: World) -> None:
    """As everywhere: dead for a moment after it came up, and the same key counts later."""
    world.ask(mail(1), mail(2))
    async with world.console((100, 40)) as shown:
        await shown.until("2 waiting")
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("approve all 2")
        await shown.press("y")
        await shown.pilot.pause()
        assert world.sent() == []

        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: len(world.sent()) == 2)


# A mark cannot be put on what is another action, so permissions are marked in a test of their own.
@pytest.mark.parametrize(("asked", "why"), [one for one in APART if "permissions" not in one[1]])
async def test_what_asks_for_a_look_of_its_own_is_not_approved_with_others(
    world: World, asked: Callable[[], list[dict[str, Any]]], why: str
) -> None:
    """It is said which, and why; nothing is sent. The control is the first test."""
    waiting = asked()
    world.ask(*waiting)
    async with world.console((120, 40)) as shown:
        await shown.until("waiting")
        await shown.until(lambda: shown.app.guard.digest)
        await shown.settled()
        await shown.press(*("v", "j") * len(waiting))
        await shown.settled()
        await shown.press("A")
        await shown.until_told(why)
        await shown.press("y")
        await shown.pilot.pause()

    assert world.sent() == []


async def test_lasting_permissions_are_decided_one_by_one(world: World) -> None:
    """However alike two of them are."""
    world.ask(*(subject_question(SUBJECTS["grant"], approval_id=f"act-{number}") for number in (1, 2)))
    async with world.console((120, 40)) as shown:
        await shown.until("LASTING PERMISSION")
        await shown.settled()
        await shown.press("v", "j", "v")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("decide lasting permissions one by one")

    assert world.sent() == []


def ask_about_two(world: World, *found: str) -> list[dict[str, Any]]:
    """Mails to Ann and to Bob, by what their agents say; `found` is what the service says of each."""
    approver = world.sign()
    asked = ann_and_bob()
    world.ask(*asked)
    for one, to in zip(asked, found, strict=True):
        fields = [{"label": "To", "value": to, "multiline": False}]
        path = f"/v1/action-approvals/{one['approval_id']}/preview"
        world.fake.script("POST", path, sealed_preview(approver, one["digest"], fields))
    return asked


async def test_the_current_state_of_each_is_read_and_part_of_what_is_signed(world: World) -> None:
    """What the service has of each stands on the card; one that contradicts its agent keeps all of them from going out."""
    asked = ask_about_two(world, "ann@example.com", "bob@example.com")
    async with world.console((120, 40)) as shown:
        await shown.unlock()
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("approve all 2")
        await shown.until("CURRENT STATE OF 2")
        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: len(world.sent()) == 2)

    assert not {body["digest"] for body in world.sent()} & {one["digest"] for one in asked}


async def test_what_can_be_told_without_the_key_is_told_before_it_is_asked_for(world: World) -> None:
    """Where each preview takes the passphrase, as under tmux. The control is the test above: what can go out loads them."""
    first, _ = ask_about_two(world, "ann@example.com", "bob@example.com")
    first["conversation"] = [{"question": "why?", "answer": "The user agreed."}]
    async with world.console((120, 40), not_kept="tmux") as shown:
        await shown.until("2 waiting")
        await shown.settled()
        await shown.press("v", "j", "v")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("you asked the agent about it")

    assert world.asked_for == []
    assert world.sent() == []


async def test_one_whose_agent_is_contradicted_keeps_all_from_going_out(world: World) -> None:
    """The pair of the test above."""
    ask_about_two(world, "ann@example.com", "mallory@evil.example")
    async with world.console((120, 40)) as shown:
        await shown.unlock()
        await shown.settled()
        await shown.press("a", "A")
        await shown.until_told("the service has “mallory@evil.example”")

    assert world.sent() == []


async def test_one_that_was_decided_elsewhere_ends_it_and_says_how_many_went_out(world: World) -> None:
    """What was approved by then stays approved; nothing is sent for those after it."""
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked)
    refused = (409, {"error": {"class": "already_decided", "message": "decided", "details": {"status": "denied"}}})
    world.fake.script("POST", f"/v1/action-approvals/{asked[1]['approval_id']}/decide", refused)
    async with world.console((100, 40)) as shown:
        await shown.until("3 waiting")
        await shown.settled()
        await shown.press("a", "A")
        await shown.until("approve all 3")
        await shown.settled()
        await shown.press("y")
        await shown.until_told("1 of 3 approved")

    assert world.sent_to() == [one["approval_id"] for one in asked[:2]]
