"""Routes of the approver's key and of passkeys, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.approver import (
    Appointment,
    ApproverFacts,
    ApproverInventory,
    ApproverNamed,
    MakePasskey,
    PasskeyList,
    PasskeyMade,
    PasskeyOptions,
)
from aileron.api.daemon import Removed
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.http.api.requests import caller_of

__all__ = ["ApproverRoutes"]


class ApproverRoutes:
    """HTTP request handlers for the approver's key and passkeys. One instance per daemon."""

    def __init__(self, *, approver: ApproverState, enrollment: ApproverEnrollment, passkeys: Passkeys) -> None:
        self._approver = approver
        self._enrollment = enrollment
        self._passkeys = passkeys

    async def show_approver(self, _request: Request) -> ApproverFacts:
        """Return whether decisions are signed, and with which key."""
        return self._approver.facts()

    async def appoint(self, request: Request, asked: Appointment) -> ApproverNamed:
        """Set the approver's key."""
        return await self._enrollment.appoint(asked, caller_of(request).scope)

    async def inventory(self, _request: Request) -> ApproverInventory:
        """Return the existing contents of this home that a new approver's key would approve."""
        return await self._enrollment.inventory()

    async def list_passkeys(self, _request: Request) -> PasskeyList:
        """List the passkeys that can sign decisions."""
        return PasskeyList(passkeys=self._passkeys.listed())

    async def enrol_passkey(self, _request: Request, asked: PasskeyMade) -> ConsentAnswer:
        """Ask the approver whether a new passkey may sign decisions."""
        return await self._passkeys.register(asked)

    async def passkey_options(self, _request: Request, asked: MakePasskey) -> PasskeyOptions:
        """Return the WebAuthn options with which a browser creates a passkey."""
        return self._passkeys.registration(asked.name)

    async def revoke_passkey(self, request: Request) -> Removed:
        """Revoke a passkey, so that it can sign no more decisions."""
        await self._passkeys.revoke(request.path_params["id"])
        return Removed(removed=request.path_params["id"])
