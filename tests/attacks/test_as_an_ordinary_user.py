"""Run of the attack tests as an ordinary user: the jail takes different steps there."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.attacks.other_user import DEADLINE_S, OtherUser
from tests.attacks.tally import Attack, Tally


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_attack_tests_pass_when_run_by_an_ordinary_user(
    attack: Attack, other_user: OtherUser | None, note_other: Callable[[Tally], None]
) -> None:
    """The run begins beside the first attack, in a copy of the checkout; its counts are in the summary of this run."""
    attack.waive()
    if other_user is None:
        pytest.skip("this is an ordinary user")
    status, printed, tally = other_user.finish()

    assert status == 0, _failures(printed)
    assert tally is not None
    assert tally.controls > 0
    note_other(tally)


def _failures(printed: str) -> str:
    """Return the lines that name the tests that failed, then their tracebacks; the end of `printed` where there are none.

    The text has at most 16,000 characters, the names first: a report cuts off its middle or its end.
    """
    named = re.findall(r"^(?:FAILED|ERROR) .*$", printed, re.MULTILINE)
    tracebacks = re.search(r"^=+ (?:ERRORS|FAILURES) =+$", printed, re.MULTILINE)
    if not named or tracebacks is None:
        return printed[-16_000:]
    return "\n".join([*named, printed[tracebacks.start() :]])[:16_000]
