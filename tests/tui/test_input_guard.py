"""The keys that count after another program had the terminal. The test supplies the times."""

from __future__ import annotations

import pytest

from aileron.tui.input_guard import DEAF_S, InputGuard
from aileron.tui.key_session import REST_S


def test_keystrokes_during_a_successful_passphrase_prompt_are_ignored() -> None:
    """The console does not mention them; keys after the prompt's end count at once."""
    input_guard = InputGuard()
    assert input_guard.is_key(0.0)
    input_guard.ended(now=10.0, well=True)

    assert [input_guard.is_key(at) for at in (9.9, 10.0, 10.1)] == [False, True, True]
    assert not input_guard.is_to_be_said()


def test_after_a_failed_passphrase_prompt_keystrokes_are_accepted_only_after_a_pause() -> None:
    """Each ignored key starts the pause again; the person is told once."""
    input_guard = InputGuard()
    input_guard.ended(now=10.0, well=False)

    assert [input_guard.is_key(at) for at in (9.0, 10.5, 12.0)] == [False] * 3
    assert [input_guard.is_to_be_said() for _ in range(2)] == [True, False]
    assert not input_guard.is_key(12.0 + REST_S - 0.1)
    assert input_guard.is_key(12.0 + 2 * REST_S)


@pytest.mark.parametrize("pause_s", [0.1, REST_S - 0.1])
def test_keystrokes_are_accepted_again_after_fifteen_seconds_even_without_a_pause(pause_s: float) -> None:
    """The limit is DEAF_S, fifteen seconds: a person who keeps pressing keys must not be locked out."""
    input_guard, at = InputGuard(), 10.0
    input_guard.ended(now=at, well=False)
    while not input_guard.is_key(at):
        at += pause_s

    assert 10.0 + DEAF_S <= at < 10.0 + DEAF_S + REST_S


def test_each_failed_passphrase_prompt_starts_a_new_pause() -> None:
    """The person is told again."""
    input_guard = InputGuard()
    for now in (10.0, 100.0):
        input_guard.ended(now=now, well=False)
        assert not input_guard.is_key(now + 1)
        assert input_guard.is_to_be_said()
