"""The counts of requests and bytes that one step has sent and received, checked against its budget.

One `Meter` per step, made by the executor from the grant and given to every request of that step. It also remembers
which secrets were lent in the step. All responses of the step are searched for these secrets, even if a secret is no
longer bound for the host. Runs in the daemon; not thread-safe (one event loop).

Rules
- Outgoing bytes over the budget are refused before they are sent; incoming bytes over the budget are not passed on.
- A request counts when the connector makes it, even if it is refused, because a budget also bounds attempts.
- After refusals, only the first refused token of a step is renewed. The new token is not, because a connector may have a host
  of its own that refuses every token.
- At most `MAX_IN_FLIGHT` requests of a step are open at once; a further request waits, until its deadline.

Not here: memory, time and processes of the jail, which the sandbox limits.
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
        """Start all counts at 0. `seen` is the digest of the effects that a person approved, which the step can commit
        once.
        """
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
        """Count one more request and return its number, from 1. Raises AileronError(resource_limit_exceeded) if the
        step's budget allows no more.
        """
        self.requests = self._within("requests", self.requests + 1, self._budget.requests)
        return self.requests

    @property
    def seen(self) -> str | None:
        """Digest of the effects that a person approved and the step can still commit. None if no effects were approved,
        or they were already committed.
        """
        return self._seen

    def commit(self, digest: str) -> None:
        """Record that the effects with this digest are about to be committed. Raises AileronError(capability_denied) if
        a person did not approve them, and for a second commit.
        """
        if digest != self._seen:
            raise AileronError(FailureClass.CAPABILITY_DENIED, "effects that were seen are committed once")
        self._seen = None

    def count_up(self, size: int) -> None:
        """Count `size` more bytes of request bodies. Raises AileronError(resource_limit_exceeded) beyond the budget."""
        self.bytes_up = self._within("bytes_up", self.bytes_up + size, self._budget.bytes_up)

    def count_down(self, size: int) -> None:
        """Count `size` more bytes of response bodies. Raises AileronError(resource_limit_exceeded) beyond the budget."""
        self.bytes_down = self._within("bytes_down", self.bytes_down + size, self._budget.bytes_down)

    def remember(self, roots: Iterable[bytes]) -> None:
        """Remember secrets that this step sends. From now on, they are scrubbed from all responses of the step."""
        self._lent |= frozenset(roots)

    def needles_with(self, bound: Needles) -> Needles:
        """Return the secrets to search a response for: those that this step sent, and those in `bound`, which are bound
        for the host of the response. Returns the same object until one of the two sets changes.
        """
        if bound.covers(self._lent):  # the usual case: lent secrets are bound for the host
            return bound
        if self._both is None or self._both[0] is not bound or self._both[1] != self._lent:
            self._both = bound, self._lent, bound.with_roots(self._lent)
        return self._both[2]

    def may_renew(self, refused: Secret) -> bool:
        """Return whether this token, which a service refused, can be renewed: only the first refused token of a step can.
        Several requests may ask about the same token.
        """
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
