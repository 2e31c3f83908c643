"""Activity in the console from a real daemon's record: an approved run, a denied one, and the last hour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.cli.person import APPROVER, INIT, at_terminal
from tests.cli.test_console_terminal import variables, words
from tests.support.home import DaemonHome, asking_home
from tests.support.tmux import Tmux


@pytest.fixture
def asking() -> Iterator[DaemonHome]:
    """A home with an approver, and an action that asks."""
    with asking_home() as home:
        assert at_terminal(Command(home.path), "approver", "init", answers=INIT).code == 0
        yield home


@pytest.mark.jail
def test_an_approved_run_and_a_denial_are_told_on_the_screen_and_in_lines(asking: DaemonHome) -> None:
    """Each story has the request, its display, the decision with a reason, and the end. `--plain` shows the same."""
    first, second = (asking.asked("ask-first", {"text": text}) for text in ("one", "two"))
    aileron, word = Command(asking.path), "not decided): "
    at_terminal(
        aileron,
        "console",
        "--plain",
        answers=[
            ("> ", "unlock"),
            ("to decide for 15 minutes: ", APPROVER),
            ("left", "approve 1"),
            (word, "yes"),
            ("approved: 1 ", "deny 2 not today"),
            ("denied", "quit"),
        ],
    )
    assert [asking.result(question)["status"] for question in (first, second)] == ["completed", "denied"]
    said = at_terminal(aileron, "console", "--plain", answers=[("> ", "activity"), ("last hour", "quit")])
    told = ("asked · shown · denied: “not today”", "asked · shown · approved", "✓ done")
    for text in told:
        assert text in said.out

    with Tmux(words(), variables(asking.path), size=(100, 30)) as at:
        at.until("daemon ok")
        at.keys("2")
        screen = at.until("LAST HOUR", *told)
        assert "█" in screen
        at.keys("l")
        at.until("approval.decided", "run.finished")
