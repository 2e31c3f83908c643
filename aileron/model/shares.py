"""Shares: the number of places that each party can hold, so that no party keeps the others out.

A *party* is what shares are counted by: one session with all that it started, all sessions without a process together, all
callers without a token together, the person. Pure; all code that counts runs or questions asks here, and there is no other rule.

    places ─┬─ an eighth: the person's own, which no agent can hold
            └─ the rest ─┬─ an eighth: for parties that hold nothing, one place each
                         └─ the rest: a party may hold twice as many as are free after it

Rules
- The share is counted anew for each place (the dynamic threshold of shared buffers): one party alone gets half of all, and leaves
  the rest for the next. Nobody sets a number, and nothing is taken from a party that has it.
- Of 64 places one party alone gets 32, and eleven parties, in whatever order they come, cannot keep a twelfth out.
- Places that are held when the bound is lowered are kept: nothing more is admitted until enough of them are free.

>>> places = Places(64)
>>> places.why_not("ses-1", {"ses-1": 32}), places.why_not("ses-2", {"ses-1": 32})
(<NoPlace.SHARE: 'share'>, None)

Source: A. K. Choudhury, E. L. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998;
docs/adr/0052-fair-between-sessions.md. Not here: which party a caller is (daemon/http/sessions.py), what is counted
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
"""Party of all sessions that do not depend on a process of their opener: another such session costs nothing, so they share."""
_KEPT: Final = 8
"""Divisor for the kept places: an eighth is the person's, and an eighth is for parties that hold none: eight each of 64 runs."""
_OF_FREE: Final = 2
"""Factor on the free places that gives a party's share: one agent alone has 32 runs, and the next eleven."""


class NoPlace(enum.StrEnum):
    """The reason why a party gets no place."""

    SHARE = "share"
    """The party holds its current share. Others that hold fewer may get a place."""
    FULL = "full"
    """All places that parties share are taken."""


class Places:
    """A number of places. It does not know the holders:
    `held` has the count by party, and a party that is not in it holds none.
    """

    def __init__(self, total: int) -> None:
        self._kept = total // _KEPT
        self._common = total - self._kept

    def why_not(self, party: str, held: Mapping[str, int]) -> NoPlace | None:
        """Return why `party` cannot have one more place; None if it can."""
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
    """Return AileronError(busy), which is retriable, with the message `share` or `full`, as `why` says."""
    match why:
        case NoPlace.SHARE:
            message = share
        case NoPlace.FULL:
            message = full
        case impossible:
            assert_never(impossible)
    return AileronError(FailureClass.BUSY, message, retriable=True, details={"reason": why.value})


class Turns:
    """The queue for places: parties take turns, and within a party the oldest name comes first. Each name waits once."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()
        """Names that wait, by party; the party whose turn is next comes first. No queue is empty."""
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, party: str, name: str) -> None:
        """Let a name wait, behind the others of its party. Do nothing if it waits already."""
        if name not in self._names:
            self._names.add(name)
            self._waiting.setdefault(party, deque()).append(name)

    def next(self, may: Callable[[str], bool]) -> tuple[str, str] | None:
        """Return the party and the name whose turn it is, among the parties that `may`, and remove it; None if there is none."""
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

    That is `party` if it is given, the person on the operator's socket, and otherwise the session.
    """
    if party is not None:
        return party
    return PERSON if scope is Scope.OPERATOR else session
