"""Comparison of a call with the most similar approved call, sorted for the card.

Pure. The daemon computes the differences (approvals/difference.py), and nobody signs them. They only draw a person's attention,
and the card also shows every value for which the daemon reports no difference.

Rules
- If there is no approved call, or none that can be compared, nothing counts as approved before.
- Arguments that the person edited since then are not compared.

Source: docs/reference/consents.md (Against an earlier call). Not here: how differences are shown (card.py), which of them are
alarms (alarms.py).
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
    """The differences of a call from the most similar approved call.

    `arguments` maps a name to the kind of difference and the earlier value; `others` has the changes except those of
    arguments, accounts and hosts; `edited` has the names of the arguments that the person edited.
    """

    arguments: Mapping[str, tuple[str, str | None]]
    accounts: tuple[Change, ...]
    hosts: tuple[Change, ...]
    others: tuple[Change, ...]
    is_known: bool
    """True if there is an approved call that the call could be compared with."""
    edited: frozenset[str]

    def had(self, name: str) -> bool:
        """Return whether the argument `name` has the same value as in the most similar approved call."""
        return self.is_known and name not in self.arguments and name not in self.edited


def compared(question: Question, edited: Sequence[Change]) -> Compared:
    """Return the differences from the most similar approved call that the daemon computed for a question.

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
    """Return the name of the argument that a change is about, and how it differs; None if the change is not about an argument."""
    match = _ARGUMENT.fullmatch(change.where)
    return None if match is None else (match[1], match[2])
