"""Comparison of a call with the most similar approved one, sorted for its card.

Pure. The daemon found the differences (approvals/difference.py), and nobody signs them: they can make a person look longer, and
anything that the daemon leaves out is on the card nevertheless.

Rules
- If there is no such call, or none that can be compared, nothing counts as approved before.
- Arguments that the person edited since are not compared.

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
    """Differences from the approved call.

    `arguments` maps a name to the kind of difference and the earlier value; `others` has the changes of anything but
    arguments, accounts and hosts; `edited` has the names of the arguments that the person edited.
    """

    arguments: Mapping[str, tuple[str, str | None]]
    accounts: tuple[Change, ...]
    hosts: tuple[Change, ...]
    others: tuple[Change, ...]
    is_known: bool
    """True if there is such a call, and it could be compared."""
    edited: frozenset[str]

    def had(self, name: str) -> bool:
        """Return whether a person approved exactly this value of the argument in that call."""
        return self.is_known and name not in self.arguments and name not in self.edited


def compared(question: Question, edited: Sequence[Change]) -> Compared:
    """Return the differences that the daemon found for a question.
    `edited` has the person's changes to the question since then.
    """
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
    """Return the argument that a difference is about, and how it differs; None if it is about something else."""
    match = _ARGUMENT.fullmatch(change.where)
    return None if match is None else (match[1], match[2])
