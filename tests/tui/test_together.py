"""Several requests that are alike, approved with one look: which ones are, their card, and what is sent for each.

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


async def test_three_requests_that_are_alike_are_approved_on_one_card_and_each_is_signed(world: World) -> None:
    """Each decision has its own digest, and a request that is not selected stays pending."""
    approver = world.sign()
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked, question(plan(action="other"), approval_id="act-other"))
    async with world.console((100, 40)) as shown:
        await shown.unlock(until="4 waiting")
        await shown.press_settled("a", "A", until="approve all 3")
        text = shown.text
        await shown.press_settled("y", until=lambda: len(world.sent()) == 3)
        await shown.until_told("3 of 3 approved")

    assert [body["digest"] for body in world.sent()] == [request["digest"] for request in asked]
    assert len({body["signature"] for body in world.sent()}) == 3
    assert world.sent_to() == [request["approval_id"] for request in asked]
    assert approver.key_id == world.sent()[0]["key_id"]
    for fact in ("3 requests of the action “send-mail”", "WHAT DIFFERS", "1  1@example.com", "3  3@example.com"):
        assert fact in text
    assert text.count("lunch is at noon.") >= 1
    assert "THE SAME IN ALL" in text
    assert "goes to   mail.example:443" in text


async def test_several_requests_that_need_a_typed_word_need_it_only_once(world: World) -> None:
    """A `y` decides nothing there, even with Enter."""
    world.ask(*(mail(number, rule=ApprovalRule(required=True)) for number in (1, 2)))
    async with world.console((100, 40), until="2 waiting") as shown:
        await shown.press_settled("a", "A", until="To approve all 2, type  yes")
        await shown.press_settled("y", "enter", until="not decided")
        assert world.sent() == []

        await shown.enter("es", until=lambda: len(world.sent()) == 2)


@pytest.mark.parametrize(
    "keys", [["pagedown"] * 8, ["space"] * 8, ["end"], ["end", "home"]], ids=lambda keys: f"{len(keys)} x {keys[-1]}"
)
async def test_the_common_card_of_several_requests_must_be_read_to_its_end(world: World, keys: list[str]) -> None:
    """A `y` before its end decides nothing on a small screen, and says why; the usual keys scroll this card."""
    world.ask(*(mail(number, note="\n".join(f"line {line}" for line in range(40))) for number in (1, 2)))
    async with world.console(until="2 waiting") as shown:
        await shown.press_settled("a", "A", until="approve all 2")
        await shown.press_settled("y", until="not all of it was on screen")
        assert world.sent() == []

        await shown.press(*keys, until="line 1 " if keys[-1] == "home" else "line 39")
        await shown.press_settled("y", until=lambda: len(world.sent()) == 2)


async def test_a_keystroke_too_soon_after_the_card_appears_approves_none_of_several_requests(world: World) -> None:
    """Keys are ignored for a moment after the card appears, as everywhere; the same key counts later."""
    world.ask(mail(1), mail(2))
    async with world.console((100, 40), until="2 waiting") as shown:
        await shown.press_settled("a", "A", until="approve all 2")
        await shown.press("y")
        await shown.pilot.pause()
        assert world.sent() == []

        await shown.press_settled("y", until=lambda: len(world.sent()) == 2)


# Only requests of one action can be selected together, so permissions have a test of their own.
@pytest.mark.parametrize(("asked", "why"), [case for case in APART if "permissions" not in case[1]])
async def test_a_request_that_must_be_read_by_itself_is_not_approved_with_other_requests(
    world: World, asked: Callable[[], list[dict[str, Any]]], why: str
) -> None:
    """The person is told the request and the reason; nothing is sent. The control is the first test."""
    waiting = asked()
    world.ask(*waiting)
    async with world.console((120, 40), until="waiting") as shown:
        await shown.until(lambda: shown.app.guard.digest)
        await shown.press_settled(*("v", "j") * len(waiting))
        await shown.press_settled("A", until_told=why)
        await shown.press("y")
        await shown.pilot.pause()

    assert world.sent() == []


async def test_several_consents_must_be_decided_one_by_one(world: World) -> None:
    """This holds even for two permissions that are alike."""
    world.ask(*(subject_question(SUBJECTS["grant"], approval_id=f"act-{number}") for number in (1, 2)))
    async with world.console((120, 40), until="LASTING PERMISSION") as shown:
        await shown.press_settled("v", "j", "v")
        await shown.press_settled("A", until_told="decide lasting permissions one by one")

    assert world.sent() == []


def ask_about_two(world: World, *found: str) -> list[dict[str, Any]]:
    """Ask about mails to Ann and to Bob; `found` is the recipient that the service has of each."""
    approver = world.sign()
    asked = ann_and_bob()
    world.ask(*asked)
    for request, to in zip(asked, found, strict=True):
        fields = [{"label": "To", "value": to, "multiline": False}]
        path = f"/v1/action-approvals/{request['approval_id']}/preview"
        world.fake.script("POST", path, sealed_preview(approver, request["digest"], fields))
    return asked


async def test_previews_of_several_requests_are_loaded_and_signed(world: World) -> None:
    """The preview of each is on their common card, and the digests cover it."""
    asked = ask_about_two(world, "ann@example.com", "bob@example.com")
    async with world.console((120, 40)) as shown:
        await shown.unlock(until="CURRENT STATE, LOADED")
        await shown.press_settled("a", "A", until="approve all 2")
        await shown.until("CURRENT STATE OF 2")
        await shown.press_settled("y", until=lambda: len(world.sent()) == 2)

    assert not {body["digest"] for body in world.sent()} & {request["digest"] for request in asked}


async def test_an_approval_of_several_requests_refused_before_their_previews_load_asks_for_no_passphrase(
    world: World,
) -> None:
    """Each preview would need the passphrase, as in tmux. The control is the test above, which loads previews."""
    first, _ = ask_about_two(world, "ann@example.com", "bob@example.com")
    first["conversation"] = [{"question": "why?", "answer": "The user agreed."}]
    async with world.console((120, 40), not_kept="tmux", until="2 waiting") as shown:
        await shown.press_settled("v", "j", "v")
        await shown.press_settled("A", until_told="you asked the agent about it")

    assert world.asked_for == []
    assert world.sent() == []


async def test_a_preview_that_contradicts_one_request_blocks_the_approval_of_all_requests(world: World) -> None:
    """This is the counterpart of the test that signs previews: here one recipient differs."""
    ask_about_two(world, "ann@example.com", "mallory@evil.example")
    async with world.console((120, 40)) as shown:
        await shown.unlock(until="CURRENT STATE, LOADED")
        await shown.press_settled("a", "A", until_told="the service has “mallory@evil.example”")

    assert world.sent() == []


async def test_a_request_decided_elsewhere_stops_the_approval_of_the_remaining_requests(world: World) -> None:
    """Requests approved before stay approved, later ones are not sent, and the message has the numbers."""
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked)
    refused = (409, {"error": {"class": "already_decided", "message": "decided", "details": {"status": "denied"}}})
    world.fake.script("POST", f"/v1/action-approvals/{asked[1]['approval_id']}/decide", refused)
    async with world.console((100, 40), until="3 waiting") as shown:
        await shown.press_settled("a", "A", until="approve all 3")
        await shown.press_settled("y", until_told="1 of 3 approved")

    assert world.sent_to() == [request["approval_id"] for request in asked[:2]]
