"""The time of day for signatures and certificates: the only place in egress that reads it.

Runs in the daemon. No wait ends by it: setting the clock could stretch such a wait (tests/runs/test_limits.py). A wrong time
makes a signature that the service refuses (refused.py).
"""

from __future__ import annotations

import datetime

__all__ = ["time_of_day"]


def time_of_day() -> datetime.datetime:
    """Return the current time, in UTC."""
    return datetime.datetime.now(datetime.UTC)
