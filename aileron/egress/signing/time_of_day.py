"""The time of day, as signatures and certificates have it: the one place in egress that asks for it.

Runs in the daemon. No wait ends by it: anybody who can set the clock could stretch that (tests/runs/test_limits.py). A wrong time
makes a signature that the service refuses (refused.py).
"""

from __future__ import annotations

import datetime

__all__ = ["time_of_day"]


def time_of_day() -> datetime.datetime:
    """Now, in UTC."""
    return datetime.datetime.now(datetime.UTC)
