"""The effects of operations, by their author's word. Apart from manifest.py, because help needs nothing else of it."""

from __future__ import annotations

import enum

__all__ = ["Effect"]


class Effect(enum.StrEnum):
    """The effect of one step on the world, as its author says, from light to heavy: it decides how loudly a person is asked."""

    READ = "read"
    CREATE = "create"
    CHANGE = "change"
    SEND = "send"
    DELETE = "delete"
    PAY = "pay"
