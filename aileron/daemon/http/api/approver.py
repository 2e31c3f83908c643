"""Routes of the approver's key and of passkeys, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.approver import Appointment, MakePasskey, PasskeyList, PasskeyMade
from aileron.api.daemon import Removed
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.http.api.requests import body_of, caller_of, consent_answer
from aileron.daemon.http.responses import as_json

__all__ = ["ApproverRoutes"]


class ApproverRoutes:
    """HTTP request handlers for the approver's key and passkeys. One instance per daemon."""

    def __init__(self, *, approver: ApproverState, enrollment: ApproverEnrollment, passkeys: Passkeys) -> None:
        self._approver = approver
        self._enrollment = enrollment
        self._passkeys = passkeys

    async def show_approver(self, _request: Request) -> Response:
        """Return whether decisions are signed, and with which key."""
        return as_json(self._approver.facts())

    async def appoint(self, request: Request) -> Response:
        """Set the approver's key."""
        asked = await body_of(request, Appointment)
        return as_json(await self._enrollment.appoint(asked, caller_of(request).scope))

    async def inventory(self, _request: Request) -> Response:
        """Return the existing contents of this home that a new approver's key would approve."""
        return as_json(await self._enrollment.inventory())

    async def list_passkeys(self, _request: Request) -> Response:
        """List the passkeys that can sign decisions."""
        return as_json(PasskeyList(passkeys=self._passkeys.listed()))

    async def enrol_passkey(self, request: Request) -> Response:
        """Ask the approver whether a new passkey may sign decisions."""
        return consent_answer(await self._passkeys.register(await body_of(request, PasskeyMade)))

    async def passkey_options(self, request: Request) -> Response:
        """Return the WebAuthn options with which a browser creates a passkey."""
        return as_json(self._passkeys.registration((await body_of(request, MakePasskey)).name))

    async def revoke_passkey(self, request: Request) -> Response:
        """Revoke a passkey, so that it can sign no more decisions."""
        await self._passkeys.revoke(request.path_params["id"])
        return as_json(Removed(removed=request.path_params["id"]))
