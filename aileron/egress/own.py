"""The supervisor's own requests: one request to one server, and its complete response, within bounds.

Runs in the daemon, and in commands that import an MCP server. The server is trusted with the request that it gets, and
nothing more.

Rules
- The grant covers only the HOST:PORT of that server. An address that is not public needs the user's `egress.private`; only
  hosts in `egress.private_plain` are reached without TLS.
- A redirect is a response like any other: it is not followed, and the caller interprets it.
- The complete response is read, up to the bound of its grant, until the deadline. Nothing is retried.

Source: docs/reference/egress.md. Not here: the content of requests, and the meaning of responses.
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
    """A complete response. Its repr shows nothing of the content, which may hold a secret."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"<answered with {self.status}>"


def own_grant(to: HostPort, settings: Settings, limit_bytes: int) -> Grant:
    """Return a grant for one request to `to`, with a response of at most `limit_bytes`. The grant is limited by the
    user's settings.
    """
    return Grant(
        hosts=(to,),
        private=(settings.egress_private | settings.egress_private_plain) & {to},
        plain=settings.egress_private_plain & {to},
        budget=Budget(requests=1, bytes_down=limit_bytes),
    )


async def ask(
    egress: Egress, request: EgressRequest, grant: Grant, deadline: float, journal: Journal | None = None
) -> OwnAnswer:
    """Send a request and return its response with any status. Raises AileronError as Egress.open_own does, and
    resource_limit_exceeded for a response that is too large.

    `deadline` as in `anyio.current_time()`. `journal` records what is sent; None: it is not recorded.
    """
    told = Unrecorded() if journal is None else journal
    async with egress.open_own(request, grant, Meter(grant.budget), told, deadline) as response:
        body = b"".join([piece async for piece in response])
        return OwnAnswer(response.status, tuple(response.headers), body)
