"""Routes of bindings and sign-ins, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import (
    AddBinding,
    BeginSignIn,
    BindingDetail,
    BindingEntry,
    BindingList,
    ChangeBinding,
    RevokedBinding,
    SignInState,
)
from aileron.daemon.http.api.requests import wait_s
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.signins import SignIns

__all__ = ["BindingRoutes"]


class BindingRoutes:
    """HTTP request handlers for bindings and sign-ins. One instance per daemon."""

    def __init__(self, credentials: Credentials, sign_ins: SignIns) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins

    async def list_bindings(self, _request: Request) -> BindingList:
        """List all bindings."""
        return BindingList(bindings=await self._credentials.listed())

    async def add_binding(self, _request: Request, asked: AddBinding) -> BindingEntry | ConsentAnswer:
        """Bind a stored secret to a connector."""
        return await self._credentials.bind(asked.connector, asked.name, asked.username, asked.secret, asked.details)

    async def show_binding(self, request: Request) -> BindingDetail:
        """Return one binding with its reach, and the versions and actions that use it."""
        return await self._credentials.show(request.path_params["name"])

    async def change_binding(self, request: Request, asked: ChangeBinding) -> BindingEntry | ConsentAnswer:
        """Change a binding to the access that its connector requests now."""
        return await self._credentials.rebind(request.path_params["name"], asked.username, asked.secret, asked.details)

    async def remove_binding(self, request: Request) -> RevokedBinding:
        """Revoke a binding."""
        return await self._credentials.unbind(request.path_params["name"])

    async def begin_sign_in(self, _request: Request, asked: BeginSignIn) -> SignInState:
        """Begin a sign-in, and return the address that the person must visit."""
        return await self._sign_ins.begin(
            asked.connector, asked.name, asked.flow, replace=asked.replace, username=asked.username
        )

    async def show_sign_in(self, request: Request) -> SignInState:
        """Return the state of a sign-in, after waiting for its end if the client asks for that."""
        return await self._sign_ins.show(request.path_params["id"], wait_s(request, 0.0))

    async def cancel_sign_in(self, request: Request) -> SignInState:
        """Cancel a sign-in."""
        return await self._sign_ins.cancel(request.path_params["id"])
