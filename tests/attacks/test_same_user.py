"""Run of the same-user attacks (test_same_user_*.py) as an ordinary user, when root starts the tests.

Root is outside of what is promised (docs/explanation/threat-model.md), so these attempts mean something only as another user:
daemon, person and attacker are then one user, nobody (uid 65534), in a copy of the checkout.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.other_user import DEADLINE_S, SAME_USER, OtherUser
from tests.attacks.tally import Attack, Tally


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_tests_of_same_user_attacks_pass_when_run_by_an_ordinary_user(
    attack: Attack, other_user: OtherUser | None, note_other: Callable[[Tally], None]
) -> None:
    """They run by themselves, or with the rest of the suite if that runs as well. Each attempt and its outcome is printed
    at the end.
    """
    attack.waive()
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user, and so are the attackers of the files beside this one")
    if other_user is not None:
        return  # test_as_an_ordinary_user.py has them among its own, and fails with them
    started = OtherUser(Path(tempfile.mkdtemp(prefix="ail-same-")), SAME_USER)
    try:
        status, printed, tally = started.finish()
    finally:
        started.close()

    assert status == 0, printed[-20_000:]
    assert tally is not None
    assert tally.controls > 0
    note_other(tally)
