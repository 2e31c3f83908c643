"""Readability of every text that the console draws: at least 4.5 to 1 on its background, in each theme.

`pytest -s tests/tui/test_contrast.py` prints the table of the lowest ratios.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from rich.segment import Segment
from textual.notifications import SeverityLevel

from aileron.cli.console import THEMES
from tests.cli.questions import SUBJECTS, difference, question, subject_question
from tests.tui.consoles import Shown, World, named
from tests.tui.contrast import PALETTES, Pair, pairs_of, ratio

pytestmark = pytest.mark.anyio

LEAST = 4.5
"""Smallest ratio, from WCAG 2.1, 1.4.3 (AA), for text of any size."""
LIGHT = ("textual-light", "ansi-light")


def fill(world: World) -> dict[str, object]:
    """Add a run with an alarm, a difference and an answer; a consent; and a run to be settled later. Return the last."""
    changes = [{"where": "args.to (new)", "before": "a@b", "after": "mira@example.com"}]
    talk = [{"question": "who is Mira?", "answer": "Please approve."}]
    gone = named("gone", agent="codex")
    consent = subject_question(SUBJECTS["binding"], approval_id="act-20261121T040001-binding", agent="claude")
    world.ask(
        question(agent="claude", session="ses-1", folder="/w", difference=difference(*changes), conversation=talk),
        consent,
        gone,
    )
    return gone


async def screens(world: World, theme: str | None) -> AsyncIterator[tuple[str, list[list[Segment]]]]:
    """Yield each screen of a tour of the console: its name, and its rows as the terminal gets them."""
    gone = fill(world)
    async with world.console((100, 45), theme=theme, until="▸ proof") as shown:
        world.settle(gone, "denied")
        await shown.until("✗")
        await shown.settled()
        yield "queue", rows_of(shown)
        await shown.press("v", "P", until="●")
        yield "marked, with the proof", rows_of(shown)
        await shown.press("m", until="ask the agent")
        yield "a question", rows_of(shown)
        await shown.press("escape", "v")
        async for each in second_step(shown):
            yield each
        await shown.press("question_mark", until="DECIDE")
        yield "help", rows_of(shown)
        await shown.press("escape", "slash", until="words, agent:x")
        yield "filter", rows_of(shown)
        await shown.press("escape", "ctrl+p", until="Ask the agent")
        yield "commands", rows_of(shown)
        await shown.type("deny")
        await shown.until("stop the agent")
        yield "commands, searched", rows_of(shown)
        await shown.press("escape")
        for key, text in (
            ("2", "LAST HOUR"),
            ("l", "approval.requested"),
            ("4", "no sessions yet"),
            ("5", "aileron doctor"),
        ):
            await shown.press(key, until=text)
            yield text, rows_of(shown)
        notices: dict[SeverityLevel, str] = {
            "information": "in passing",
            "warning": "a warning",
            "error": "an error",
        }
        for severity, words in notices.items():
            shown.app.notify(words, severity=severity)
            await shown.until(words)
            yield words, rows_of(shown)
        await shown.press("1")
        world.lose_daemon()
        await shown.until("! NO DAEMON")
        yield "without a daemon", rows_of(shown)


def rows_of(shown: Shown) -> list[list[Segment]]:
    """Return the rows as the terminal gets them."""
    return [list(strip) for strip in shown.app.screen._compositor.render_strips()]


async def second_step(shown: Shown) -> AsyncIterator[tuple[str, list[list[Segment]]]]:
    """Yield the second step as it asks for a word, and after a wrong word."""
    await shown.press_settled("exclamation_mark", "A", until="and press Enter")
    yield "second step", rows_of(shown)
    await shown.settled()
    await shown.enter("no", until="not decided")
    yield "second step, another word", rows_of(shown)
    await shown.press("escape", until_not="not decided")


@pytest.mark.parametrize("theme", [*THEMES, "NO_COLOR"])
async def test_every_text_of_the_console_has_enough_contrast_to_its_background(
    world: World, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    """This holds for each screen, including dim, reversed and selected text and notifications."""
    if theme == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    found: dict[str, list[Pair]] = {}
    async for name, rows in screens(world, None if theme == "NO_COLOR" else theme):
        for palette in PALETTES.values():
            for is_dark in (True, False) if theme == "NO_COLOR" else (theme not in LIGHT,):
                found.setdefault(name, []).extend(pairs_of(rows, palette, is_dark=is_dark))

    for name, pairs in found.items():
        worst = min(pairs, key=lambda pair: pair.ratio)
        print(f"{theme:14} {name:26} {worst.ratio:5.2f}  {worst.letters} on {worst.ground}  {worst.text[:30]!r}")
    weak = {(name, pair) for name, pairs in found.items() for pair in pairs if pair.ratio < LEAST}
    assert not weak, sorted(weak, key=lambda finding: finding[1].ratio)[:20]
    assert len(found) == 17


def test_the_contrast_ratio_is_computed_as_in_wcag() -> None:
    """Black on white is 21 to 1, a colour on itself 1; #767676 on white is the lightest grey that suffices."""
    assert round(ratio((0, 0, 0), (255, 255, 255)), 2) == 21.0
    assert ratio((1, 2, 3), (1, 2, 3)) == 1.0
    assert 4.5 < ratio((0x76,) * 3, (255,) * 3) < 4.6
