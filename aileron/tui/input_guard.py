"""Filter of key presses: drops those that may be the rest of a passphrase.

Pure; times are monotonic seconds, which the caller passes; the time of a key is when it was pressed. Any process of the
user can interrupt a prompt while a person types a passphrase without looking. The rest of the passphrase would then act
as keys of the console: some open a text field, which shows the text and sends it to an agent.

1. a key that was pressed while a prompt or an editor had the terminal is dropped
2. if the prompt or editor failed, further keys are dropped until none was pressed for REST_S, but for DEAF_S at most

Not here: what a key decides (guard.py).

>>> guard = InputGuard()
>>> guard.ended(now=10.0, well=False)
>>> guard.is_key(12.0), guard.is_key(14.5), guard.is_key(18.0)
(False, False, True)
"""

from __future__ import annotations

import math
from typing import Final

from aileron.tui.key_session import REST_S

__all__ = ["DEAF_S", "InputGuard"]

DEAF_S: Final = 15.0
"""Maximum seconds for which keys are dropped if the person types without a pause.

By then, the person has noticed that the prompt is gone.
"""


class InputGuard:
    """Filter that drops key presses meant for a prompt: those during the prompt and, if it failed, those right after it."""

    def __init__(self) -> None:
        self._began = self._until = self._at_most = -math.inf
        self._is_said = True

    def ended(self, *, now: float, well: bool) -> None:
        """Record that a prompt or an editor has ended; `well` is false if it was interrupted or failed."""
        self._began = now
        if not well:
            self._until, self._at_most, self._is_said = now + REST_S, now + DEAF_S, False

    def is_key(self, pressed_at: float) -> bool:
        """Return whether to handle a key press; False to drop it. A key press that is dropped after a failed prompt
        prolongs the time in which keys are dropped.
        """
        if pressed_at < self._began:
            return False
        if pressed_at < self._until:
            self._until = min(max(self._until, pressed_at + REST_S), self._at_most)
            return False
        return True

    def is_to_be_said(self) -> bool:
        """Return whether the person must be notified that keys are dropped: true once for each interrupted prompt."""
        is_said, self._is_said = self._is_said, True
        return not is_said
