"""A hundred kills at random points: nothing lost, nothing doubled, nothing unrecorded. `make bench` does a thousand."""

from __future__ import annotations

import os
import secrets

import pytest

from tests.faults.kills import PHASES, kill_at_random

pytestmark = pytest.mark.jail

KILLS = 100


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_random_kills_neither_lose_nor_repeat_nor_hide_an_effect() -> None:
    """`AILERON_KILL_SEED` repeats a series as far as chance allows. Kills must fall in every phase, or the series proves
    nothing.
    """
    seed = int(os.environ.get("AILERON_KILL_SEED") or secrets.randbits(32))
    print(f"seed {seed}")

    series = kill_at_random(KILLS, seed)

    assert series.wrong == [], f"seed {seed}"
    assert (series.lost, series.doubled, series.unrecorded) == (0, 0, 0), f"seed {seed}"
    assert {phase for phase in PHASES if not series.phases[phase]} == set(), f"seed {seed}: {series.phases}"
