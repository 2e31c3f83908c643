"""Routes of standing grants, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.daemon import Removed
from aileron.api.grants import AddGrant, GrantList
from aileron.daemon.consent_service.standing_grants import GrantService
from aileron.daemon.http.api.requests import body_of, consent_answer
from aileron.daemon.http.responses import as_json

__all__ = ["GrantRoutes"]


class GrantRoutes:
    """HTTP request handlers for standing grants. One instance per daemon."""

    def __init__(self, grants: GrantService) -> None:
        self._grants = grants

    async def list_grants(self, _request: Request) -> Response:
        """List the standing grants in force."""
        return as_json(GrantList(grants=await self._grants.listed()))

    async def add_grant(self, request: Request) -> Response:
        """Ask the approver to approve a standing grant."""
        asked = await body_of(request, AddGrant)
        return consent_answer(
            await self._grants.add(asked.action, asked.constraints, asked.uses, asked.for_s, asked.binding)
        )

    async def revoke_grant(self, request: Request) -> Response:
        """Revoke a standing grant."""
        await self._grants.revoke(request.path_params["id"])
        return as_json(Removed(removed=request.path_params["id"]))
