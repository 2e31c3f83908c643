"""Routes of standing grants, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.daemon import Removed
from aileron.api.grants import AddGrant, GrantList
from aileron.daemon.consent_service.standing_grants import GrantService

__all__ = ["GrantRoutes"]


class GrantRoutes:
    """HTTP request handlers for standing grants. One instance per daemon."""

    def __init__(self, grants: GrantService) -> None:
        self._grants = grants

    async def list_grants(self, _request: Request) -> GrantList:
        """List the standing grants in force."""
        return GrantList(grants=await self._grants.listed())

    async def add_grant(self, _request: Request, asked: AddGrant) -> ConsentAnswer:
        """Ask the approver to approve a standing grant."""
        return await self._grants.add(asked.action, asked.constraints, asked.uses, asked.for_s, asked.binding)

    async def revoke_grant(self, request: Request) -> Removed:
        """Revoke a standing grant."""
        await self._grants.revoke(request.path_params["id"])
        return Removed(removed=request.path_params["id"])
