"""The mouse in a real terminal: a click selects, the wheel scrolls, and neither ever decides."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_console_terminal import variables, words
from tests.support.fake_daemon import FakeDaemon
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until
from tests.tui.consoles import World, named

LEFT, WHEEL_UP, WHEEL_DOWN = 0, 64, 65
"""Buttons, as SGR mouse reports (xterm's ctlseqs, 1006) number them."""


def mouse(at: Tmux, button: int, column: int, row: int) -> None:
    """Send a terminal's report of a press and its release; a wheel has no release. Columns and rows count from 1."""
    reports = [f"\x1b[<{button};{column};{row}M"]
    if button == LEFT:
        reports.append(f"\x1b[<{button};{column};{row}m")
    at.do("send-keys", "-l", "".join(reports))


def row_of(at: Tmux, text: str) -> int:
    """Return the row on which the text stands, from 1."""
    return next(number for number, row in enumerate(at.text.split("\n"), start=1) if text in row)


def test_a_click_selects_and_the_wheel_scrolls_in_the_console(home: Path, fake: FakeDaemon) -> None:
    """The test clicks in the list, on the card and on the names of the screens."""
    world = World(home, fake)
    body = "\n".join(f"line-{number:02}" for number in range(60))
    world.ask(named("one"), named("two", args={"to": "mira@example.com", "body": body}))
    with Tmux(words(), variables(home)) as at:
        at.until("one 1.2.0", "Two: to")
        mouse(at, LEFT, 10, row_of(at, "Two: to"))
        at.until("two 1.2.0", "│ line-00")
        for _ in range(10):
            mouse(at, WHEEL_DOWN, 20, 20)
        at.until("│ line-20")
        assert "│ line-00" not in at.text
        for _ in range(20):
            mouse(at, WHEEL_UP, 20, 20)
        at.until("│ line-00")
        mouse(at, LEFT, at.text.split("\n")[1].index("activity") + 1, 2)
        at.until("LAST HOUR")

    assert world.sent() == []


def test_no_mouse_click_approves_or_denies_anything(home: Path, fake: FakeDaemon) -> None:
    """Every second row is clicked twice: in the console, in the second step of an approval and a denial, in help."""
    world = World(home, fake)
    world.ask(named("one", reversible=True))
    with Tmux(words(), variables(home)) as at:
        at.until("one 1.2.0", "▸ proof")
        click_everywhere(at)
        at.until_pressed("1", "[1 queue]")
        at.until_pressed("A", "any other key")
        click_everywhere(at)
        assert "any other key" in at.text
        leave(at, "any other key")
        at.until_pressed("d", "Reason")
        click_everywhere(at)
        assert "Reason" in at.text
        leave(at, "Reason")
        at.until_pressed("?", "DECIDE")
        click_everywhere(at)
        leave(at, "DECIDE")
        assert [world.sent(end) for end in ("decide", "cancel", "end", "edit")] == [[], [], [], []]

        at.until_pressed("A", "any other key")  # the positive control: the same question is decided by its keys
        at.until_pressed("y", "approved: one")

    assert [body["decision"] for body in world.sent()] == ["approve"]


def leave(at: Tmux, shown: str) -> None:
    """Press Escape and wait until the text is gone; every mouse report is handled by then.

    Only one Escape is sent: a second would arrive with the next key and be read as one key with Alt, which has no meaning.
    """
    at.keys("Escape")
    wait_until(lambda: shown not in at.text, f"{shown} is left", seen=lambda: at.text)


def click_everywhere(at: Tmux) -> None:
    """Click twice at three places of every second row, then turn the wheel."""
    for row in range(1, 25, 2):
        for column in (3, 30, 70):
            mouse(at, LEFT, column, row)
            mouse(at, LEFT, column, row)
    mouse(at, WHEEL_DOWN, 40, 12)
    at.do("display-message", "-p", "done")
