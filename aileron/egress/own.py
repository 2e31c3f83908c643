"""What the supervisor asks for itself: one request to one server, and its whole answer, in bounds.

Runs in the daemon, and in commands that import. The server is trusted with what it is sent and nothing more.

Rules
- The grant is that HOST:PORT alone. An address that is not public needs the user's `egress.private`; without TLS goes what their
  `egress.private_plain` names, and nothing else.
- A redirect is an answer like any other: it is not followed, and what it means says whoever asked.
- The answer is read whole, up to the bound of its grant, until the deadline. Nothing is tried again.

Source: docs/reference/egress.md. Not here: what is sent, and what an answer means.
"""

from __future__ import annotations

from typing import NamedTuple

from aileron.config import Settings
from aileron.egress.engine import Egress
from aileron.egress.journal import Journal, Unrecorded
from aileron.egress.meter import Meter
from aileron.egress.rules import EgressRequest
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant

__all__ = ["OwnAnswer", "ask", "own_grant"]


class OwnAnswer(NamedTuple):
    """One, whole. It may hold a secret, and so shows nothing."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"<answered with {self.status}>"


def own_grant(to: HostPort, settings: Settings, limit_bytes: int) -> Grant:
    """One request to `to`, as far as the user's settings let it, with an answer of `limit_bytes` at most."""
    return Grant(
        hosts=(to,),
        private=(settings.egress_private | settings.egress_private_plain) & {to},
        plain=settings.egress_private_plain & {to},
        budget=Budget(requests=1, bytes_down=limit_bytes),
    )


async def ask(
    egress: Egress, request: EgressRequest, grant: Grant, deadline: float, journal: Journal | None = None
) -> OwnAnswer:
    """The answer, of whatever status. AileronError as Egress.open_own, and (resource_limit_exceeded) for one that is too large.

    `deadline` as in `anyio.current_time()`. `journal` is told what is sent; None: nobody is.
    """
    told = Unrecorded() if journal is None else journal
    async with egress.open_own(request, grant, Meter(grant.budget), told, deadline) as response:
        body = b"".join([piece async for piece in response])
        return OwnAnswer(response.status, tuple(response.headers), body)
