"""Shares: the number of places (runs or questions) that each party can hold, so that no party keeps the others out.

A *party* is the unit that shares are counted for: one session with all that it started, all sessions without a process
together, all callers without a token together, or the person. Pure. This one rule serves all code that counts runs or
questions.

    places ─┬─ an eighth: the person's own, which no agent can hold
            └─ the rest ─┬─ an eighth: for parties that hold nothing, one place each
                         └─ the rest: a party may hold at most twice as many as then remain free

Rules
- The share is recomputed for each place (the dynamic threshold of shared buffers): one party alone gets half of all places, and
  leaves the rest for the next party. Nobody configures a number, and no party loses a place that it holds.
- Of 64 places one party alone gets 32, and eleven parties, in whatever order they come, cannot keep a twelfth out.
- If the number of places is lowered, parties keep the places that they hold; no party gets another until enough are free.

>>> places = Places(64)
>>> places.why_not("ses-1", {"ses-1": 32}), places.why_not("ses-2", {"ses-1": 32})
(<NoPlace.SHARE: 'share'>, None)

Source: A. K. Choudhury, E. L. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998;
docs/adr/0052-fair-between-sessions.md. Not here: which party a caller belongs to (daemon/http/sessions.py), what is counted
(daemon/runner.py, audit/questions.py).
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope

__all__ = ["BY_HAND", "PERSON", "NoPlace", "Places", "Turns", "no_place", "party_of"]

PERSON: Final = "person"
"""Party of callers on the operator's socket, unless Aileron knows that an agent started them."""
BY_HAND: Final = "by hand"
"""Party of all sessions that do not depend on a process of their opener.

They share, because it costs nothing to open another such session.
"""
_KEPT: Final = 8
"""Divisor for the reserved places: one eighth is the person's and one eighth is for parties that hold none (of 64: 8 each)."""
_OF_FREE: Final = 2
"""Ratio of the places that a party can hold to the free places that are not reserved. So of 64 places, 16 of them reserved, one
agent alone can have 32, and the next agent eleven.
"""


class NoPlace(enum.StrEnum):
    """The reason why a party gets no further place."""

    SHARE = "share"
    """The party already holds its current share of the places. Parties that hold fewer may still get one."""
    FULL = "full"
    """All places that the parties share are taken."""


class Places:
    """A fixed number of places (for runs or questions) that parties share. The holders are not stored here.

    Callers pass `held`, the count by party; a party that is missing from `held` holds no place.
    """

    def __init__(self, total: int) -> None:
        self._kept = total // _KEPT
        self._common = total - self._kept

    def why_not(self, party: str, held: Mapping[str, int]) -> NoPlace | None:
        """Return why `party` cannot have one more place; None if it can. `held` is the number of places that each party
        holds.
        """
        has = held.get(party, 0)
        if party == PERSON and has < self._kept:
            return None
        free = self._common - sum(self._from_common(each, count) for each, count in held.items())
        if free <= 0:
            return NoPlace.FULL
        return None if self._from_common(party, has) < max(1, (free - self._kept) * _OF_FREE) else NoPlace.SHARE

    def _from_common(self, party: str, count: int) -> int:
        return max(0, count - self._kept) if party == PERSON else count


def no_place(why: NoPlace, *, share: str, full: str) -> AileronError:
    """Return AileronError(busy), which is retriable, with the message `share` or `full`, depending on `why`."""
    match why:
        case NoPlace.SHARE:
            message = share
        case NoPlace.FULL:
            message = full
        case impossible:
            assert_never(impossible)
    return AileronError(FailureClass.BUSY, message, retriable=True, details={"reason": why.value})


class Turns:
    """The queue of names, such as ids of approvals, that wait for a place: parties take turns, the oldest name of a party first.

    Each name is queued at most once.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()
        """Waiting names, by party. The party whose turn is next comes first. No party's queue is empty."""
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, party: str, name: str) -> None:
        """Add a name to its party's queue. Do nothing if the name is already waiting."""
        if name not in self._names:
            self._names.add(name)
            self._waiting.setdefault(party, deque()).append(name)

    def next(self, may: Callable[[str], bool]) -> tuple[str, str] | None:
        """Remove and return the next party in turn and its oldest name, among the parties for which `may` is true.

        None if no such party has a name that waits.
        """
        party = next(filter(may, self._waiting), None)
        if party is None:
            return None
        queue = self._waiting.pop(party)
        name = queue.popleft()
        self._names.discard(name)
        if queue:
            self._waiting[party] = queue  # behind all others
        return party, name


def party_of(scope: Scope, session: str, party: str | None) -> str:
    """Return the party whose share a request counts against.

    The result is `party` if it is given, else PERSON for a request on the operator's socket, and otherwise the session.
    """
    if party is not None:
        return party
    return PERSON if scope is Scope.OPERATOR else session
