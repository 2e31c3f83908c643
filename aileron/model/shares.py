"""Shares: how many places each party may hold, so that no one of them keeps the others out.

A *party* is what shares are counted by: one session with all that it started, all sessions without a process together, all
callers without a token together, the person. Pure; whoever counts runs or questions asks here, and there is no other rule.

    places ─┬─ an eighth: the person's own, which no agent can hold
            └─ the rest ─┬─ an eighth: for parties that hold nothing, one place each
                         └─ the rest: a party may hold twice as many as are free after it

Rules
- The share is counted anew for each place (the dynamic threshold of shared buffers): one party alone gets half of all, and what
  it leaves is there for the next. Nobody sets a number, and nothing is taken from who has it.
- Of 64 places one party alone gets 32, and eleven parties, in whatever order they come, cannot keep a twelfth out.
- What is held after the bound was lowered is kept: nothing more is admitted until enough of it has ended.

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
"""Whoever asks on the operator's socket, and no agent that Aileron knows started them."""
BY_HAND: Final = "by hand"
"""All sessions that end with no process of whoever opened them: one more costs nothing, so they share."""
_KEPT: Final = 8
"""One place of so many is the person's, and one is for a party that holds none: of 64 runs eight each."""
_OF_FREE: Final = 2
"""How many times what is free after it a party may hold: so one agent alone has 32 runs, and the next eleven."""


class NoPlace(enum.StrEnum):
    """Why a party gets no place."""

    SHARE = "share"
    """It holds as many as its share is now. Others that hold fewer may get one."""
    FULL = "full"
    """Nobody gets one."""


class Places:
    """So many places. Knows nothing of who holds them: that is `held`, by party, and what is not in it holds none."""

    def __init__(self, total: int) -> None:
        self._kept = total // _KEPT
        self._common = total - self._kept

    def why_not(self, party: str, held: Mapping[str, int]) -> NoPlace | None:
        """None where `party` may have one more place beside those that it holds."""
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
    """AileronError(busy), which is retriable; its message is `share` or `full`, whichever it is."""
    match why:
        case NoPlace.SHARE:
            message = share
        case NoPlace.FULL:
            message = full
        case impossible:
            assert_never(impossible)
    return AileronError(FailureClass.BUSY, message, retriable=True, details={"reason": why.value})


class Turns:
    """What waits for a place, by party: each party in its turn, and within one the oldest first. Each name waits once."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()
        """The party whose turn is next comes first. None of them is empty."""
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, party: str, name: str) -> None:
        """It waits from now on, behind what its party has waiting. Harmless where it waits already."""
        if name not in self._names:
            self._names.add(name)
            self._waiting.setdefault(party, deque()).append(name)

    def next(self, may: Callable[[str], bool]) -> tuple[str, str] | None:
        """The party and the name whose turn it is, among the parties that `may`; it waits no more. None where there is none."""
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
    """Whose share it counts against: `party` where that is said, else its session's, or on the operator's socket the person's."""
    if party is not None:
        return party
    return PERSON if scope is Scope.OPERATOR else session
