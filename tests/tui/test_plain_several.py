"""Several requests that are alike, approved in plain mode at a real terminal: the same card and rules as on the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aileron.model.manifest import ApprovalRule
from tests.cli.alike import APART, ann_and_bob, mail
from tests.cli.person import flat
from tests.cli.questions import sealed_preview
from tests.support.fake_daemon import error
from tests.tui.consoles import World
from tests.tui.test_plain import UNLOCK, dialogue

ALL_3 = "To approve all 3, type  yes  (anything else: not decided): "
ALL_2 = "To approve all 2, type  yes  (anything else: not decided): "


def test_three_alike_requests_take_one_card_and_one_word_and_each_is_signed(world: World) -> None:
    """Each is signed over its own digest; a request that was not named still waits."""
    world.sign()
    asked = [mail(number) for number in (1, 2, 3, 4)]
    world.ask(*asked)
    said = dialogue(world, *UNLOCK, ("> ", "approve 1 2 3"), (ALL_3, "yes"), ("> ", "list"))

    assert world.sent_to() == [request["approval_id"] for request in asked[:3]]
    assert [body["digest"] for body in world.sent()] == [request["digest"] for request in asked[:3]]
    assert len({body["signature"] for body in world.sent()}) == 3
    card = said.out.partition("3 requests of the action")[2].partition(ALL_3)[0]
    for fact in (
        "WHAT DIFFERS",
        "1  1@example.com",
        "3  3@example.com",
        "THE SAME IN ALL",
        "proof 1, proof 2, proof 3",
    ):
        assert fact in card
    assert "3 of 3 approved" in said.out
    assert "4 ~ undeclared  Send mail" in said.out.rpartition("> list")[2]


def test_any_other_word_decides_nothing(world: World) -> None:
    """A `y` does not, nor does a word typed before it was asked for. The control is the test above."""
    world.ask(mail(1), mail(2))
    said = dialogue(world, ("> ", "approve 1 2\nyes"), (ALL_2, "y"))

    assert world.sent() == []
    assert "not decided" in said.out


def test_requests_that_take_a_word_are_approved_with_one_word(world: World) -> None:
    """The word is the one that each alone would take."""
    pays = ApprovalRule(required=True)
    world.ask(*(mail(number, rule=pays) for number in (1, 2)))
    dialogue(world, ("> ", "approve 1 2"), (ALL_2, "yes"))

    assert len(world.sent()) == 2


@pytest.mark.parametrize(("asked", "why"), APART)
def test_requests_that_are_not_alike_are_refused_before_any_prompt(
    world: World, asked: Callable[[], list[dict[str, Any]]], why: str
) -> None:
    """The refusal names the request and the reason; no passphrase is asked for. The control is the first test."""
    world.sign()
    several = asked()
    world.ask(*several)
    numbers = " ".join(str(number) for number in range(1, len(several) + 1))
    said = dialogue(world, ("> ", f"approve {numbers}"))

    assert why in flat(said).replace("↳ ", "")
    assert "passphrase" not in said.out
    assert world.sent() == []


@pytest.mark.parametrize(("typed", "why"), [("1 1", "1 is named twice"), ("1 2 please", "no request 'please'")])
def test_a_wrong_request_number_approves_nothing(world: World, typed: str, why: str) -> None:
    """A slip among several numbers could mean another request."""
    world.ask(mail(1), mail(2))
    said = dialogue(world, ("> ", f"approve {typed}"))

    assert why in said.out
    assert world.sent() == []


@pytest.mark.parametrize("found", ["bob@example.com", "mallory@evil.example"])
def test_each_current_state_is_loaded_and_a_contradiction_stops_all(world: World, found: str) -> None:
    """The state stands on the card and is signed; if it contradicts the agent of one request, none is sent."""
    approver, asked = world.sign(), ann_and_bob()
    world.ask(*asked)
    for request, to in zip(asked, ("ann@example.com", found), strict=True):
        fields = [{"label": "To", "value": to, "multiline": False}]
        path = f"/v1/action-approvals/{request['approval_id']}/preview"
        world.fake.script("POST", path, sealed_preview(approver, request["digest"], fields))
    is_as_said = found == "bob@example.com"
    said = dialogue(world, *UNLOCK, ("> ", "approve 1 2"), *([(ALL_2, "yes")] if is_as_said else []))

    assert len(world.sent()) == (2 if is_as_said else 0)
    assert not {body["digest"] for body in world.sent()} & {request["digest"] for request in asked}
    assert ("CURRENT STATE OF 2" in said.out) is is_as_said
    assert ("the service has “mallory@evil.example”" in flat(said).replace("↳ ", "")) is not is_as_said


def test_the_first_refused_decision_stops_the_rest(world: World) -> None:
    """The number of approvals is told; the decisions after the refused one are not sent."""
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked)
    refused = error("already_decided", 409, "decided", details={"status": "denied"})
    world.fake.script("POST", f"/v1/action-approvals/{asked[1]['approval_id']}/decide", refused)
    said = dialogue(world, ("> ", "approve 1 2 3"), (ALL_3, "yes"))

    assert world.sent_to() == [request["approval_id"] for request in asked[:2]]
    assert "! 1 of 3 approved" in said.out
