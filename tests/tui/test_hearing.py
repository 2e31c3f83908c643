"""Which keys are keys, after something else had the terminal. Times are handed in."""

from __future__ import annotations

import pytest

from aileron.tui.hearing import DEAF_S, Hearing
from aileron.tui.holder import REST_S


def test_what_was_pressed_before_it_ended_well_is_no_key() -> None:
    """And says nothing of it; what comes after is one at once."""
    hearing = Hearing()
    assert hearing.is_key(0.0)
    hearing.ended(now=10.0, well=True)

    assert [hearing.is_key(at) for at in (9.9, 10.0, 10.1)] == [False, True, True]
    assert not hearing.is_to_be_said()


def test_after_what_failed_a_person_rests_before_they_are_heard() -> None:
    """Each key that is none begins the rest anew; that is said once."""
    hearing = Hearing()
    hearing.ended(now=10.0, well=False)

    assert [hearing.is_key(at) for at in (9.0, 10.5, 12.0)] == [False] * 3
    assert [hearing.is_to_be_said() for _ in range(2)] == [True, False]
    assert not hearing.is_key(12.0 + REST_S - 0.1)
    assert hearing.is_key(12.0 + 2 * REST_S)


@pytest.mark.parametrize("pause_s", [0.1, REST_S - 0.1])
def test_whoever_only_presses_keys_is_heard_in_the_end(pause_s: float) -> None:
    """After fifteen seconds, and not before."""
    hearing, at = Hearing(), 10.0
    hearing.ended(now=at, well=False)
    while not hearing.is_key(at):
        at += pause_s

    assert 10.0 + DEAF_S <= at < 10.0 + DEAF_S + REST_S


def test_each_failure_is_one_of_its_own() -> None:
    """One after a rest begins anew, and is said again."""
    hearing = Hearing()
    for now in (10.0, 100.0):
        hearing.ended(now=now, well=False)
        assert not hearing.is_key(now + 1)
        assert hearing.is_to_be_said()
