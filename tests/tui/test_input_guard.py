"""Which keys are keys, after something else had the terminal. Times are handed in."""

from __future__ import annotations

import pytest

from aileron.tui.input_guard import DEAF_S, InputGuard
from aileron.tui.key_session import REST_S


def test_what_was_pressed_before_it_ended_well_is_no_key() -> None:
    """And says nothing of it; what comes after is one at once."""
    input_guard = InputGuard()
    assert input_guard.is_key(0.0)
    input_guard.ended(now=10.0, well=True)

    assert [input_guard.is_key(at) for at in (9.9, 10.0, 10.1)] == [False, True, True]
    assert not input_guard.is_to_be_said()


def test_after_what_failed_a_person_rests_before_they_are_heard() -> None:
    """Each key that is none begins the rest anew; that is said once."""
    input_guard = InputGuard()
    input_guard.ended(now=10.0, well=False)

    assert [input_guard.is_key(at) for at in (9.0, 10.5, 12.0)] == [False] * 3
    assert [input_guard.is_to_be_said() for _ in range(2)] == [True, False]
    assert not input_guard.is_key(12.0 + REST_S - 0.1)
    assert input_guard.is_key(12.0 + 2 * REST_S)


@pytest.mark.parametrize("pause_s", [0.1, REST_S - 0.1])
def test_whoever_only_presses_keys_is_heard_in_the_end(pause_s: float) -> None:
    """After fifteen seconds, and not before."""
    input_guard, at = InputGuard(), 10.0
    input_guard.ended(now=at, well=False)
    while not input_guard.is_key(at):
        at += pause_s

    assert 10.0 + DEAF_S <= at < 10.0 + DEAF_S + REST_S


def test_each_failure_is_one_of_its_own() -> None:
    """One after a rest begins anew, and is said again."""
    input_guard = InputGuard()
    for now in (10.0, 100.0):
        input_guard.ended(now=now, well=False)
        assert not input_guard.is_key(now + 1)
        assert input_guard.is_to_be_said()
