"""The same attacks by the same tests, as an ordinary user: the jail takes different steps there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.attacks.other_user import DEADLINE_S, OtherUser
from tests.attacks.tally import Attack, Tally


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_same_holds_for_an_ordinary_user(
    attack: Attack, other_user: OtherUser | None, note_other: Callable[[Tally], None]
) -> None:
    """Begun beside the first attack, in a copy of the checkout; what it counted is in the summary of this run."""
    attack.waive()
    if other_user is None:
        pytest.skip("this is an ordinary user")
    status, printed, tally = other_user.finish()

    assert status == 0, printed[-20_000:]
    assert tally is not None
    assert tally.controls > 0
    note_other(tally)
