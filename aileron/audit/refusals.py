"""Limits on records of events that a hostile caller can repeat at will: the first few are recorded singly, then only a count.

Pure; holds a bounded number of counts in memory. Unrecorded counts are lost if the daemon is killed; the first events were
recorded.

Source: docs/reference/audit-events.md. Not here: the records themselves (log.py).

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
"""Length of the period in which repeated events are counted: a minute, in microseconds. A person who follows the audit
trail sees the count soon enough.
"""
MAX_GROUPS: Final = 64
"""Maximum number of groups of events, and of keys in a group, that are counted separately. The daemon has fewer routes
than that; requests for routes that do not exist share one count.
"""

K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Tally(Generic[K]):
    """The number of events with the same key that were not recorded one by one, and the time of the first."""

    key: K
    count: int
    since_us: int
    note: str
    """The text `note` that was passed with the last counted event."""


@dataclasses.dataclass
class _Window(Generic[K]):
    since_us: int
    told: int = 0
    counted: dict[K, tuple[int, int, str]] = dataclasses.field(default_factory=dict)


class Throttle(Generic[K]):
    """A limit of `rows` recorded events per minute for each group of events, such as those of one route. Further events
    are only counted, with one tally per key when the minute ends.

    The caller names the group and the key of each event. A group has at most MAX_GROUPS keys; events with further keys are
    counted under the last of these.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._windows: dict[Hashable, _Window[K]] = {}

    def admits(self, group: Hashable, key: K, now_us: int, note: str = "") -> bool:
        """Return whether to record this event by itself now; otherwise count it. Call `over` first, and record its tallies."""
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
        """Return and reset the counts of the periods that are over, which the caller records now. A period is also over
        if the clock was set back.
        """
        return self._take([group for group, window in self._windows.items() if _is_over(window, now_us)])

    def rest(self) -> list[Tally[K]]:
        """Return and reset all counts that were not recorded yet."""
        return self._take(list(self._windows))

    @property
    def is_idle(self) -> bool:
        """True if no counted event waits to be recorded, and no counting period of a minute is in progress."""
        return not self._windows

    def _count(self, window: _Window[K], key: K, now_us: int, note: str) -> bool:
        if len(window.counted) >= MAX_GROUPS and key not in window.counted:
            key = next(reversed(window.counted))  # made-up keys: they are counted under the last key
        count, since_us, _ = window.counted.get(key, (0, now_us, ""))
        window.counted[key] = (count + 1, since_us, note)
        return False

    def _take(self, groups: list[Hashable]) -> list[Tally[K]]:
        windows = [self._windows.pop(group) for group in groups]
        return [Tally(key, *counted) for window in windows for key, counted in window.counted.items()]


def _is_over(window: _Window[K], now_us: int) -> bool:
    return not window.since_us <= now_us < window.since_us + WINDOW_US
