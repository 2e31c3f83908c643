"""The error for a machine that cannot run a jail or a cell, with the fix.

It has a module of its own because the start of a cell needs it, but not the endings of a jail (ending.py), which take 3 ms to
import.
"""

from __future__ import annotations

__all__ = ["JailUnavailable"]


class JailUnavailable(Exception):
    """Error: this machine cannot run a jail in its present state. `fix` says what would change that, as a command if
    there is one.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix
