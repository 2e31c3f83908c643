"""The time of day for signatures and certificates: the only place in egress that reads it.

Runs in the daemon. No wait depends on the time of day, because setting the clock could prolong the wait
(tests/runs/test_limits.py). With a wrong time, a service refuses the signature (refused.py).
"""

from __future__ import annotations

import datetime

__all__ = ["time_of_day"]


def time_of_day() -> datetime.datetime:
    """Return the current time, in UTC."""
    return datetime.datetime.now(datetime.UTC)
