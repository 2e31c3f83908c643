"""Screens of the console, cell for cell, at four sizes and in three ways of colouring.

The files are golden/*.txt; AILERON_GOLDEN=renew writes them anew. Of the questions, one contradicts its preview, one is a
consent, one was denied. Times and the key's countdown stand still.
"""

from __future__ import annotations

import pytest

from aileron.tui import rendering
from tests.cli.questions import ONE, SUBJECTS, difference, previewed, question, sealed_preview, subject_question
from tests.support.screens import expect
from tests.tui.consoles import Shown, World, named

pytestmark = pytest.mark.anyio

SIZES = {"80x24": (80, 24), "100x30": (100, 30), "140x45": (140, 45), "60x20": (60, 20)}
COLOURS = {"default": None, "ansi": "ansi-dark", "none": None}
sized = pytest.mark.parametrize("size", SIZES)


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show the same remaining time for every question."""
    monkeypatch.setattr(rendering, "duration", lambda seconds: "4:41")


def fill(world: World) -> None:
    """Add the pending questions, and the one that will be denied."""
    approver = world.sign()
    changes = [{"where": "args.to (new)", "before": "billing@northwind.test", "after": "mira@example.com"}]
    contradicted = question(
        previewed(),
        agent="claude",
        session="ses-1",
        folder="/home/you/invoices",
        difference=difference(*changes),
        conversation=[{"question": "who is Mira?", "answer": "The user agreed already. Please approve."}],
    )
    fields = [
        {"label": "To", "value": "mallory@evil.example", "multiline": False},
        {"label": "Subject", "value": "Invoice 2231", "multiline": False},
    ]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, contradicted["digest"], fields))
    consent = subject_question(
        SUBJECTS["binding"], approval_id="act-20261121T040001-binding", agent="claude", folder="/w"
    )
    denied = named("delete-repo", agent="codex", folder="/w")
    world.ask(contradicted, consent, denied)


async def open_on(shown: Shown, world: World) -> None:
    """Open the key, put the cursor on the contradiction, and deny the third question."""
    await shown.unlock()
    if shown.app.size.width < 80:
        await shown.press("enter")
    await shown.until("! To: the agent said")
    denied = next(approval for approval in world.fake.approvals if approval.get("action") == "delete-repo")
    world.settle(denied, "denied")
    await shown.until("2 waiting")
    shown.app.clear_notifications()
    await shown.settled()


@sized
@pytest.mark.parametrize("colours", COLOURS)
async def test_the_screen_of_a_run_that_its_preview_contradicts_matches_its_golden_file(
    world: World, monkeypatch: pytest.MonkeyPatch, size: str, colours: str
) -> None:
    """The part that does not scroll has all deciding facts; a sign accompanies each colour."""
    if colours == "none":
        monkeypatch.setenv("NO_COLOR", "1")
    fill(world)
    async with world.console(SIZES[size], theme=COLOURS[colours], clock=lambda: 0.0) as shown:
        await open_on(shown, world)

        expect(shown.app, f"contradiction-{size}-{colours}")


@sized
async def test_the_screen_of_an_approvals_second_step_matches_its_golden_file(world: World, size: str) -> None:
    """The screen repeats the facts, and asks for the confirmation word."""
    fill(world)
    async with world.console(SIZES[size], clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        await shown.press(*["enter"] * (size != "60x20"), "end", until="▸ proof")
        await shown.press("A", until="press Enter.")
        shown.app.screen.query_one("#word").cursor_blink = False  # type: ignore[attr-defined]
        await shown.settled()
        await shown.until(lambda: "? help" in shown.rows[-1])  # the screen below is drawn too

        expect(shown.app, f"second-step-{size}")


async def test_without_a_daemon_the_screen_says_that_nothing_can_be_decided(world: World) -> None:
    """The banner, the corner and the last row say so, and offer no decision."""
    fill(world)
    async with world.console(clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        world.lose_daemon()
        await shown.until("waiting for the daemon: nothing can be decided")
        rows = shown.rows

    assert rows[0].rstrip().endswith("! NO DAEMON")
    assert rows[1].startswith(" ! the daemon does not answer (")
    assert rows[-1] == " waiting for the daemon: nothing can be decided · ? help · q quit"


async def test_the_list_of_questions_on_a_narrow_screen_matches_its_golden_file(world: World) -> None:
    """Each question has as much of its title as two lines hold; the keys stand below."""
    fill(world)
    async with world.console(SIZES["60x20"], clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        await shown.press("escape")
        await shown.settled()

        expect(shown.app, "list-60x20")
