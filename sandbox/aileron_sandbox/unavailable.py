"""The error of a machine that gives no jail and no cell, with what would change that.

By itself, because a cell starts by it and needs none of the endings of a jail (ending.py), which take 3 ms to import.
"""

from __future__ import annotations

__all__ = ["JailUnavailable"]


class JailUnavailable(Exception):
    """No jail can be had on this machine as it is. `fix` says what would change that, as a command where there is one."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix
