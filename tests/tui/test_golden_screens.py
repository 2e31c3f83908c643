"""The console, cell for cell, at four sizes and three ways of colouring: golden/*.txt, renewed by AILERON_GOLDEN=renew.

One of what waits contradicts its preview, one is a consent, one was denied. Times and the key's countdown stand still.
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
    """Every question has as long left as every other."""
    monkeypatch.setattr(rendering, "duration", lambda seconds: "4:41")


def fill(world: World) -> None:
    """What waits, and what does no more."""
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
    """With the contradiction under the cursor, and the third denied."""
    await shown.unlock()
    if shown.app.size.width < 80:
        await shown.press("enter")
    await shown.until("! To: the agent said")
    denied = next(one for one in world.fake.approvals if one.get("action") == "delete-repo")
    world.settle(denied, "denied")
    await shown.until("2 waiting")
    shown.app.clear_notifications()
    await shown.settled()


@sized
@pytest.mark.parametrize("colours", COLOURS)
async def test_a_contradicted_run(world: World, monkeypatch: pytest.MonkeyPatch, size: str, colours: str) -> None:
    """All that matters is above what scrolls; what only a colour says is said by a sign too."""
    if colours == "none":
        monkeypatch.setenv("NO_COLOR", "1")
    fill(world)
    async with world.console(SIZES[size], theme=COLOURS[colours], clock=lambda: 0.0) as shown:
        await open_on(shown, world)

        expect(shown.app, f"contradiction-{size}-{colours}")


@sized
async def test_the_second_step(world: World, size: str) -> None:
    """The same facts, and the word."""
    fill(world)
    async with world.console(SIZES[size], clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        await shown.press(*["enter"] * (size != "60x20"), "end")
        await shown.until("▸ proof")
        await shown.press("A")
        await shown.until("press Enter.")
        shown.app.screen.query_one("#word").cursor_blink = False  # type: ignore[attr-defined]
        await shown.settled()
        await shown.until(lambda: "? help" in shown.rows[-1])  # what lies below it is drawn too

        expect(shown.app, f"second-step-{size}")


async def test_without_a_daemon(world: World) -> None:
    """Nothing looks as if it could be decided."""
    fill(world)
    async with world.console(clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        world.lose_daemon()
        await shown.until("waiting for the daemon: nothing can be decided")
        rows = shown.rows

    assert rows[0].rstrip().endswith("! NO DAEMON")
    assert rows[1].startswith(" ! the daemon does not answer (")
    assert rows[-1] == " waiting for the daemon: nothing can be decided · ? help · q quit"


async def test_a_list_on_a_narrow_screen(world: World) -> None:
    """Each question with as much of its title as two lines hold, and under them what can be pressed."""
    fill(world)
    async with world.console(SIZES["60x20"], clock=lambda: 0.0) as shown:
        await open_on(shown, world)
        await shown.press("escape")
        await shown.settled()

        expect(shown.app, "list-60x20")
