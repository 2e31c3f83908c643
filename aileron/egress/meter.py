"""What one step has sent and received so far, held against its budget.

One `Meter` per step, made by the executor from the grant and given to every request of that step. It also remembers
which secrets were lent in the step: whatever is bound for a host by then, what this step was lent is looked for in all its
answers. Runs in the daemon; not thread-safe (one event loop).

Rules
- What would go over is refused before it is sent, and what came in over is not passed on.
- A request counts when it is asked for, refused ones included: a budget also bounds attempts.
- One token of a step is renewed because a service refused it, and not what replaced it: a connector may have a host of its
  own, which refuses whatever it is shown.
- At most `MAX_IN_FLIGHT` requests of a step are open at once; a further one waits, until its deadline.

Not here: memory, time and processes of the jail, which are the sandbox's to limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio

from aileron.egress.held import PLACES_OF_ONE
from aileron.egress.scrub import Needles
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import Budget
from aileron.model.secret import Secret

__all__ = ["MAX_IN_FLIGHT", "Meter"]

MAX_IN_FLIGHT: Final = 16  # of one step; browsers open 6 to a host, HTTP clients pool 10 to 100


class Meter:
    """Counters of one step: requests, bytes of request bodies, bytes of response bodies after decoding."""

    def __init__(self, budget: Budget, seen: str | None = None) -> None:
        """`seen`: the digest of the effects that a person saw, which the step may commit once."""
        self._budget = budget
        self._seen = seen
        self._lent = frozenset[bytes]()
        self._both: tuple[Needles, frozenset[bytes], Needles] | None = None
        self.in_flight: Final = anyio.Semaphore(MAX_IN_FLIGHT)
        self.holding: Final = anyio.Semaphore(PLACES_OF_ONE)
        self.requests = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._refused: Secret | None = None

    def count_request(self) -> int:
        """One more request; its number, from 1. AileronError(resource_limit_exceeded) past the budget."""
        self.requests = self._within("requests", self.requests + 1, self._budget.requests)
        return self.requests

    @property
    def seen(self) -> str | None:
        """The effects that may be committed; None where none were seen, or they were committed."""
        return self._seen

    def commit(self, digest: str) -> None:
        """These effects are committed next. AileronError(capability_denied) for any others, and the second time."""
        if digest != self._seen:
            raise AileronError(FailureClass.CAPABILITY_DENIED, "effects that were seen are committed once")
        self._seen = None

    def count_up(self, size: int) -> None:
        """`size` more bytes of request bodies. AileronError(resource_limit_exceeded) past the budget."""
        self.bytes_up = self._within("bytes_up", self.bytes_up + size, self._budget.bytes_up)

    def count_down(self, size: int) -> None:
        """`size` more bytes of response bodies. AileronError(resource_limit_exceeded) past the budget."""
        self.bytes_down = self._within("bytes_down", self.bytes_down + size, self._budget.bytes_down)

    def remember(self, roots: Iterable[bytes]) -> None:
        """These secrets go out in this step: from now on they are scrubbed from all its answers."""
        self._lent |= frozenset(roots)

    def needles_with(self, bound: Needles) -> Needles:
        """What was lent in this step, and what is bound for a host. The same value until one of them changes."""
        if bound.covers(self._lent):  # as a rule: what was lent for a host is bound for it, and its forms are known
            return bound
        if self._both is None or self._both[0] is not bound or self._both[1] != self._lent:
            self._both = bound, self._lent, bound.with_roots(self._lent)
        return self._both[2]

    def may_renew(self, refused: Secret) -> bool:
        """Whether this token, which a service refused, is to be renewed; many requests may ask about the same one."""
        if self._refused is None:
            self._refused = refused
        return self._refused == refused

    @staticmethod
    def _within(limit: str, value: int, most: int) -> int:
        if value > most:
            raise AileronError(
                FailureClass.RESOURCE_LIMIT_EXCEEDED,
                f"this step would use {value} {limit}; its limit is {most}",
                boundary=Boundary.RUNTIME,
                details={"limit": limit},
            )
        return value
