"""Routes of services, with the types of their bodies.

Source: docs/reference/http-api.md#services.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import SignInState
from aileron.api.fetches import Installed
from aileron.api.services import AddService, RemovedService, ServiceList, SignInToService, UpdateService
from aileron.daemon.packages.connected import ConnectedServices
from aileron.daemon.packages.service_updates import ServiceUpdates
from aileron.daemon.packages.services import Services

__all__ = ["ServiceRoutes"]


class ServiceRoutes:
    """HTTP request handlers for services. One instance per daemon."""

    def __init__(self, services: Services, connected: ConnectedServices, updates: ServiceUpdates) -> None:
        self._services = services
        self._connected = connected
        self._updates = updates

    async def list_services(self, _request: Request) -> ServiceList:
        """List the accounts that are connected."""
        return ServiceList(services=await self._connected.listed())

    async def add_service(self, _request: Request, asked: AddService) -> Installed | ConsentAnswer:
        """Add a service that comes with Aileron, for one account."""
        return await self._services.add(asked)

    async def begin_sign_in(self, _request: Request, asked: SignInToService) -> SignInState:
        """Begin a sign-in for a service, which is added when the person has signed in."""
        return await self._services.sign_in(asked)

    async def update_service(self, request: Request, _asked: UpdateService) -> Installed | ConsentAnswer:
        """Update the connector of an account to the one that came with this version of Aileron."""
        return await self._updates.update(request.path_params["name"])

    async def remove_service(self, request: Request) -> RemovedService:
        """Remove an account with all that came with it."""
        return await self._connected.remove(request.path_params["name"])
