"""The effects of operations, as declared by their author, with their words and the stakes.

Separate from manifest.py, because help texts need nothing else from it.

>>> Effect.SEND.verb, Effect.SEND.sign, Effect.SEND.only_adds
('sends', '»', False)

Not here: effects that are guessed from words (actions/operation_names.py, importing/effects.py).
"""

from __future__ import annotations

import enum
from typing import NamedTuple, assert_never

__all__ = ["Effect", "Stakes"]


class Stakes(enum.Enum):
    """The cost that a wrong decision about a step can have, from low to high."""

    LOW = "low"
    MARKED = "marked"
    HIGH_IF_FINAL = "high if final"
    """High stakes if the author declares that the step cannot be undone."""
    HIGH = "high"


class _Facts(NamedTuple):
    verb: str
    sign: str
    stakes: Stakes
    name_verbs: str


class Effect(enum.StrEnum):
    """The effect of one step on the world, as declared by its author, from light to heavy.

    The effect decides how prominently a person is asked. The order counts: the card of an action shows the verb of its heaviest
    step first, and has the stakes of that step (cards/weight.py).
    """

    READ = "read"
    CREATE = "create"
    CHANGE = "change"
    SEND = "send"
    DELETE = "delete"
    PAY = "pay"

    @property
    def verb(self) -> str:
        """The verb of a sentence whose subject is a step, such as `reads`."""
        return self._facts().verb

    @property
    def sign(self) -> str:
        """The character that marks a step of this effect in a list."""
        return self._facts().sign

    @property
    def stakes(self) -> Stakes:
        """The cost that a wrong decision about a step with this effect can have."""
        return self._facts().stakes

    @property
    def name_verbs(self) -> tuple[str, ...]:
        """Verbs with which the names of operations with this effect usually begin."""
        return tuple(self._facts().name_verbs.split())

    @property
    def only_adds(self) -> bool:
        """True if a step with this effect changes nothing that exists, and tells nobody anything."""
        return self.stakes is Stakes.LOW

    def _facts(self) -> _Facts:
        match self:
            case Effect.READ:
                return _Facts("reads", "·", Stakes.LOW, "check count fetch find get list look query read search show")
            case Effect.CREATE:
                return _Facts(
                    "creates", "+", Stakes.LOW, "add book create draft insert make open register schedule upload"
                )
            case Effect.CHANGE:
                verbs = "assign change edit mark move patch put rename replace set update"
                return _Facts("changes", "~", Stakes.MARKED, verbs)
            case Effect.SEND:
                verbs = "announce forward invite mail notify post publish reply send share"
                return _Facts("sends", "»", Stakes.MARKED, verbs)
            case Effect.DELETE:
                return _Facts("deletes", "~", Stakes.HIGH_IF_FINAL, "cancel clear delete drop erase purge remove")
            case Effect.PAY:
                return _Facts("pays", "!", Stakes.HIGH, "buy charge order pay purchase refund transfer")
            case _:
                assert_never(self)
