"""Routes of bindings and sign-ins, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.bindings import AddBinding, BeginSignIn, BindingList, ChangeBinding
from aileron.daemon.http.api.requests import body_of, consent_answer, wait_s
from aileron.daemon.http.responses import as_json
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.signins import SignIns

__all__ = ["BindingRoutes"]


class BindingRoutes:
    """HTTP request handlers for bindings and sign-ins. One instance per daemon."""

    def __init__(self, credentials: Credentials, sign_ins: SignIns) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins

    async def list_bindings(self, _request: Request) -> Response:
        """List all bindings."""
        return as_json(BindingList(bindings=await self._credentials.listed()))

    async def add_binding(self, request: Request) -> Response:
        """Bind a stored secret to a connector."""
        asked = await body_of(request, AddBinding)
        return consent_answer(
            await self._credentials.bind(asked.connector, asked.name, asked.username, asked.secret, asked.details)
        )

    async def show_binding(self, request: Request) -> Response:
        """Return one binding with its reach, and the versions and actions that use it."""
        return as_json(await self._credentials.show(request.path_params["name"]))

    async def change_binding(self, request: Request) -> Response:
        """Change a binding to the access that its connector requests now."""
        asked = await body_of(request, ChangeBinding)
        return consent_answer(
            await self._credentials.rebind(request.path_params["name"], asked.username, asked.secret, asked.details)
        )

    async def remove_binding(self, request: Request) -> Response:
        """Revoke a binding."""
        return as_json(await self._credentials.unbind(request.path_params["name"]))

    async def begin_sign_in(self, request: Request) -> Response:
        """Begin a sign-in, and return the address that the person must visit."""
        asked = await body_of(request, BeginSignIn)
        return as_json(
            await self._sign_ins.begin(
                asked.connector, asked.name, asked.flow, replace=asked.replace, username=asked.username
            )
        )

    async def show_sign_in(self, request: Request) -> Response:
        """Return the state of a sign-in, after waiting for its end if the client asks for that."""
        return as_json(await self._sign_ins.show(request.path_params["id"], wait_s(request, 0.0)))

    async def cancel_sign_in(self, request: Request) -> Response:
        """Cancel a sign-in."""
        return as_json(await self._sign_ins.cancel(request.path_params["id"]))
