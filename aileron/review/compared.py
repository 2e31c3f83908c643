"""A call against the most similar one that was approved, sorted as a card tells it.

Pure. What differs was found by the daemon (approvals/difference.py), is its word, and is signed by nobody: it can make a person
look longer, and what it hushes is on the card nevertheless.

Rules
- Where there is no such call, or none that can be compared, nothing counts as approved before.
- What the person edited since is compared with nothing.

Source: docs/reference/consents.md (Against an earlier call). Not here: how it is drawn (card.py), what is an alarm (alarms.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from aileron.api.approvals import Question
    from aileron.model.consent import Change

__all__ = ["Compared", "argument_in", "compared"]

_ARGUMENT: Final = re.compile(r"args\.(.+) \(([a-z ]+)\)", re.DOTALL)
_ACCOUNT: Final = "credential of "
_HOST: Final = "host (new)"


class Compared(msgspec.Struct, frozen=True):
    """What differs. `arguments`: by name, how, and what it was; `others`: what is no argument, account or host."""

    arguments: Mapping[str, tuple[str, str | None]]
    accounts: tuple[Change, ...]
    hosts: tuple[Change, ...]
    others: tuple[Change, ...]
    is_known: bool
    """There is such a call, and it could be compared."""
    edited: frozenset[str]

    def had(self, name: str) -> bool:
        """Whether a person approved exactly this value of the argument in that call."""
        return self.is_known and name not in self.arguments and name not in self.edited


def compared(question: Question, edited: Sequence[Change]) -> Compared:
    """What the daemon found of a question; `edited` is what the person changed of what it found it of."""
    found = question.difference
    arguments: dict[str, tuple[str, str | None]] = {}
    rest: list[Change] = []
    for change in found.changes if found else []:
        if (argument := argument_in(change)) is None:
            rest.append(change)
        else:
            name, how = argument
            arguments[name] = how, change.before
    accounts = tuple(change for change in rest if change.where.startswith(_ACCOUNT))
    hosts = tuple(change for change in rest if change.where == _HOST)
    return Compared(
        arguments=arguments,
        accounts=accounts,
        hosts=hosts,
        others=tuple(change for change in rest if change not in accounts + hosts),
        is_known=not found.problem if found else False,
        edited=frozenset(argument[0] for change in edited if (argument := argument_in(change))),
    )


def argument_in(change: Change) -> tuple[str, str] | None:
    """The argument that a difference is of, and how it differs; None: it is of something else."""
    match = _ARGUMENT.fullmatch(change.where)
    return None if match is None else (match[1], match[2])
