"""How often something is told that a hostile caller may do as often as they like: the first ones each, then a count.

Pure; holds counts in memory, bounded. What was counted and not yet told is lost with a killed daemon; that it began was told.

Source: docs/reference/audit-events.md. Not here: what is told (log.py).

>>> throttle = Throttle(rows=1)
>>> throttle.admits("a", "key", 0), throttle.admits("a", "key", 1), throttle.over(WINDOW_US + 1)
(True, False, [Tally(key='key', count=1, since_us=1, note='')])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["WINDOW_US", "Tally", "Throttle"]

WINDOW_US: Final = 60 * 1_000_000
"""A minute: what a person who follows the record sees soon enough."""
MAX_GROUPS: Final = 64
"""Counted apart at once. There are fewer routes; what else is asked for is made up, and is counted together."""

K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Tally(Generic[K]):
    """What was not told one by one: how many of these, the first of them when."""

    key: K
    count: int
    since_us: int
    note: str
    """What was noted of the last of them."""


@dataclasses.dataclass
class _Window(Generic[K]):
    since_us: int
    told: int = 0
    counted: dict[K, tuple[int, int, str]] = dataclasses.field(default_factory=dict)


class Throttle(Generic[K]):
    """At most `rows` a minute for each group, and at its end one for each key of what came beside them.

    Whoever uses it bounds the keys of a group.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._windows: dict[Hashable, _Window[K]] = {}

    def admits(self, group: Hashable, key: K, now_us: int, note: str = "") -> bool:
        """Whether this one is told now; else it is counted. Take what is `over` first."""
        window = self._windows.get(group)
        if window is None:
            if len(self._windows) >= MAX_GROUPS:
                return self._count(self._windows.setdefault(None, _Window(now_us, self._rows)), key, now_us, note)
            window = self._windows[group] = _Window(now_us)
        if window.told < self._rows:
            window.told += 1
            return True
        return self._count(window, key, now_us, note)

    def over(self, now_us: int) -> list[Tally[K]]:
        """What was counted in windows that are over, to be told now. A clock that was set back ends them too."""
        return self._take([group for group, window in self._windows.items() if _is_over(window, now_us)])

    def rest(self) -> list[Tally[K]]:
        """Everything that was counted and not yet told."""
        return self._take(list(self._windows))

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing: no minute has begun."""
        return not self._windows

    def _count(self, window: _Window[K], key: K, now_us: int, note: str) -> bool:
        if len(window.counted) >= MAX_GROUPS and key not in window.counted:
            key = next(reversed(window.counted))  # made up, all of them: the count is right, the words are one's
        count, since_us, _ = window.counted.get(key, (0, now_us, ""))
        window.counted[key] = (count + 1, since_us, note)
        return False

    def _take(self, groups: list[Hashable]) -> list[Tally[K]]:
        windows = [self._windows.pop(group) for group in groups]
        return [Tally(key, *counted) for window in windows for key, counted in window.counted.items()]


def _is_over(window: _Window[K], now_us: int) -> bool:
    return not window.since_us <= now_us < window.since_us + WINDOW_US
