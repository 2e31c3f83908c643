"""Activity in the console from a real daemon's record: an approved run, a denied one, and the last hour."""

from __future__ import annotations

import pytest

from tests.cli.command import Command
from tests.cli.person import SIGN, at_terminal
from tests.cli.test_console_terminal import variables, words
from tests.support.home import DaemonHome
from tests.support.tmux import Tmux


@pytest.mark.jail
def test_the_activity_screen_shows_an_approved_run_and_a_denied_request(asking: DaemonHome) -> None:
    """Each story has the request, when it was shown, the decision with its reason, and the end."""
    first, second = (asking.asked("ask-first", {"text": text}) for text in ("one", "two"))
    aileron = Command(asking.path)
    approved = at_terminal(aileron, "approve", first["approval_id"], answers=[("to approve: ", "yes"), SIGN])
    denied = at_terminal(aileron, "deny", second["approval_id"], "--reason", "not today", answers=[SIGN])
    assert (approved.code, denied.code) == (0, 0)
    assert [asking.result(question)["status"] for question in (first, second)] == ["completed", "denied"]
    told = ("asked · shown · denied: “not today”", "asked · shown · approved", "✓ done")
    with Tmux(words(), variables(asking.path), size=(100, 30)) as at:
        at.until("daemon ok")
        at.keys("2")
        screen = at.until("LAST HOUR", *told)
        assert "█" in screen
        at.keys("l")
        at.until("approval.decided", "run.finished")
