"""A clock that cannot be set, and that counts suspend time. It measures how long a session or value has been open or unused.

Runs in the daemon and in its clients. `time.monotonic` stands still while the machine sleeps, and the time of day can be set.

>>> since_boot() <= since_boot()
True

Source: clock_gettime(2), CLOCK_BOOTTIME. Not here: deadlines of running tasks (anyio's clock), the time of day
(timestamp.py).
"""

from __future__ import annotations

import time

__all__ = ["since_boot"]


def since_boot() -> float:
    """Return the seconds since the machine was started, including the time that it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
