"""Malformed answers in the daemon's place: the console survives, reports them, and decides nothing by them.

Beside each stands the same question in its proper form, which can be decided.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from aileron.model.secret import Secret
from tests.cli.questions import ONE, difference, previewed, question, sealed_preview
from tests.tui.consoles import World, named

pytestmark = pytest.mark.anyio


def nested(depth: int) -> Any:
    """Return nested lists of this depth."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


MALFORMED: dict[str, dict[str, Any]] = {
    "a change that is a number": {"difference": {"decided_at": None, "changes": [1]}},
    "changes that are a text": {"difference": {"decided_at": None, "changes": "x"}},
    "a turn that is a text": {"conversation": ["x"]},
    "a conversation that is a number": {"conversation": 7},
    "edits that are texts": {"edits": ["x"]},
    "a plan that is a list": {"plan": [1]},
    "steps that are numbers": {"plan": {"action": "other", "steps": [1]}},
    "a grant that is a text": {"plan": {"action": "other", "steps": [{"grant": "x"}]}},
    "arguments that are a list": {"plan": {"action": "other", "args": [1]}},
    "a moment that is none": {"decided_at": nested(5)},
    "a subject that is a text": {"kind": "binding", "subject": "x"},
    "nested deeper than a screen can be": {"reason": nested(150)},
    "nested deeper than can be read": {"reason": nested(900)},
}


@pytest.mark.parametrize("is_signed", [False, True], ids=["nobody signs", "signed"])
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_question_is_reported_and_cannot_be_decided(
    world: World, malformed: dict[str, Any], is_signed: bool
) -> None:
    """Keys do nothing while the malformed question is shown; the next question can be decided."""
    if is_signed:
        world.sign()
    asked, sound = named("other"), named("sound", reversible=True)
    whole = {**asked, **malformed}
    world.ask(asked, sound)
    world.fake.script("GET", f"/v1/action-approvals/{asked['approval_id']}", lambda _: (200, whole))
    async with world.console() as shown:
        await shown.until(lambda: any(row.startswith("! ") for row in shown.rows[4:]))
        await shown.press_settled(
            "exclamation_mark", "A", "y", "d", "e", "t", "m", "r", "escape", "equals_sign", "escape"
        )
        await shown.settled()
        assert world.sent() == []

        await shown.press("n", until="sound 1.2.0")
        await shown.approve(until=lambda: world.sent())

    assert world.sent_to() == [sound["approval_id"]]


ROUTES: dict[str, Any] = {
    "/v1/status": {"vault": "open"},
    "/v1/approver": ["none"],
    "/v1/action-approvals": {"approvals": 7},
    "/v1/audit": {"events": [{"seq": 1, "type": nested(500)}]},
}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_malformed_response_is_shown_as_a_lost_connection_to_the_daemon(world: World, route: str) -> None:
    """The banner appears; once responses are valid again, deciding works again."""
    world.ask(named("one", reversible=True))
    async with world.console(until="one 1.2.0") as shown:
        truth = world.fake._scripts.pop(("GET", route), None)
        world.fake.script("GET", route, (200, ROUTES[route]))
        world.happen("vault.locked")
        await shown.until("! the daemon does not answer")
        await shown.press_settled("exclamation_mark", "A", until_told="nothing can be decided")
        del world.fake._scripts["GET", route]
        if truth is not None:
            world.fake.script("GET", route, *truth)
        await shown.until("daemon ok")
        await shown.approve(until=lambda: world.sent())


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "soon"])
async def test_a_timestamp_out_of_range_is_shown_unchanged(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The times lie before the first year or after the last, in a zone west of Greenwich."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    world.ask(named("one", expires_at=moment, difference=difference(at=moment)))
    world.happen("vault.locked", session="ses-1")
    world.happen("run.requested", run="run-9", session="local", action="one")
    for row in world.rows[-2:]:
        row["at"] = moment
    async with world.console(until="same as the call approved") as shown:
        await shown.press("2", until="asked · running")
        await shown.press("l", until="vault.locked")
        if str(moment).startswith("0001"):
            assert "0001-01-01T00:00:00Z" in shown.text


async def test_a_malformed_audit_record_does_not_stop_the_console(world: World) -> None:
    """The record of a completed run has strings where events belong."""
    asked = named("one", reversible=True)
    world.records["run-one"] = {"audit_id": "run-one", "status": "completed", "events": ["x"]}
    world.ask(asked, named("two"))
    async with world.console(until="one 1.2.0") as shown:
        world.settle(asked, "completed")
        await shown.until("unexpected answer from the daemon")
        await shown.press("n", until="two 1.2.0")


async def test_a_terminal_that_fails_during_a_passphrase_prompt_decides_nothing(world: World) -> None:
    """The failure is reported; the person can answer the next prompt."""
    world.sign()
    world.ask(named("one", reversible=True))
    asks = [OSError(5, "I/O error"), RuntimeError("gone")]
    ask = world.ask_passphrase

    def breaking(asked: str) -> Secret:
        if asks:
            raise asks.pop(0)
        return ask(asked)

    world.ask_passphrase = breaking
    async with world.console(until="one 1.2.0") as shown:
        for _ in range(2):
            await shown.press("L", until_told="cannot be asked for at this terminal")
            shown.rested()
        assert world.sent() == []
        await shown.approve(until=lambda: world.sent())


async def test_a_malformed_preview_is_reported_in_the_console(world: World) -> None:
    """The responses are a list, and an envelope that is a number; a valid preview is shown afterwards."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "only-for-the-approver", "multiline": False}]
    right = sealed_preview(approver, asked["digest"], fields)
    world.fake.script("POST", f"{ONE}/preview", (200, [1]), (200, {"sealed": 7}), right)
    async with world.console((80, 45)) as shown:
        await shown.unlock()
        for _ in range(2):
            await shown.until_told("unexpected answer from the daemon")
            await shown.press("p")
        await shown.until("only-for-the-approver")
