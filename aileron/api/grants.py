"""Standing grants: runs that need no approval, within limits.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

import msgspec

from aileron.api.body import Body
from aileron.model.consent import Constraint

__all__ = ["AddGrant", "GrantEntry", "GrantList"]


class AddGrant(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/grants`: a standing grant for `uses` runs of `action` (1 to 1000), within `for_s`
    seconds (60 to 2592000, which is 30 days). `binding` selects the credential if several match.
    """

    action: str
    constraints: tuple[Constraint, ...] = ()
    uses: int
    for_s: int
    binding: str | None = None


class GrantEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A standing grant. `used` is the number of runs that it has let through so far, out of `uses`. `until` is in
    UTC. `over` says whether its time has passed or its uses are spent.
    """

    id: str
    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    used: int
    until: str
    over: bool


class GrantList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the standing grants that have not been revoked."""

    grants: list[GrantEntry]
