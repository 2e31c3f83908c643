"""What an operation does to the world, by its author's word. Apart from manifest.py, as help needs nothing else of it."""

from __future__ import annotations

import enum

__all__ = ["Effect"]


class Effect(enum.StrEnum):
    """What one step does to the world, as its author says: what a person's question is weighed by, the heaviest last."""

    READ = "read"
    CREATE = "create"
    CHANGE = "change"
    SEND = "send"
    DELETE = "delete"
    PAY = "pay"
