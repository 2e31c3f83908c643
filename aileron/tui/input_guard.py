"""Which keys are keys: none that may be the rest of a passphrase.

Pure; times are monotonic seconds, handed in, and of a key that at which it was pressed. Any process of the user can break a
prompt off, and who types a passphrase does not look: what they type next would open fields, in clear, whose text an agent reads.

1. what was pressed while something else had the terminal (a prompt, an editor) is no key
2. where that failed, nothing is one until nobody has pressed any for REST_S, DEAF_S at most

Not here: what a key decides (guard.py), the same in lines (approver/no_echo.py).

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
"""Nobody takes longer to see that a passphrase is not asked for any more; whoever only presses keys again is heard then."""


class InputGuard:
    """What was pressed so far, as far as it matters."""

    def __init__(self) -> None:
        self._began = self._until = self._at_most = -math.inf
        self._is_said = True

    def ended(self, *, now: float, well: bool) -> None:
        """What had the terminal is over; `well` if it ended as the person wanted."""
        self._began = now
        if not well:
            self._until, self._at_most, self._is_said = now + REST_S, now + DEAF_S, False

    def is_key(self, pressed_at: float) -> bool:
        """Whether it counts; one that does not keeps the rest from counting for a while yet."""
        if pressed_at < self._began:
            return False
        if pressed_at < self._until:
            self._until = min(max(self._until, pressed_at + REST_S), self._at_most)
            return False
        return True

    def is_to_be_said(self) -> bool:
        """Whether the person does not know yet that they are not heard: once for each time."""
        is_said, self._is_said = self._is_said, True
        return not is_said
