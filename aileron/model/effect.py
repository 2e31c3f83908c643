"""The effects of operations, as declared by their author.

Separate from manifest.py, because help texts need nothing else from it.
"""

from __future__ import annotations

import enum

__all__ = ["Effect"]


class Effect(enum.StrEnum):
    """The effect of one step on the world, as declared by its author, from light to heavy.

    The effect decides how prominently a person is asked.
    """

    READ = "read"
    CREATE = "create"
    CHANGE = "change"
    SEND = "send"
    DELETE = "delete"
    PAY = "pay"
