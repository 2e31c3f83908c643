"""Routes of connectors (install, fetch, update) and suites, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.connectors import ConnectorList, InstallConnector, InstalledConnector, RemoveUnused, UpdateList
from aileron.api.daemon import Removed
from aileron.api.fetches import (
    Fetch,
    FetchRequest,
    Installed,
    InstallFetched,
    ReadSuite,
    ResolveFetched,
    SuiteRead,
)
from aileron.daemon.http.api.requests import wait_s
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.packages.fetch import FetchJobs
from aileron.daemon.packages.updates import Updates

__all__ = ["ConnectorRoutes"]


class ConnectorRoutes:
    """HTTP request handlers for connectors, fetches and suites. One instance per daemon."""

    def __init__(self, *, connectors: ConnectorService, upkeep: Updates, fetching: FetchJobs) -> None:
        self._connectors = connectors
        self._upkeep = upkeep
        self._fetching = fetching

    async def list_connectors(self, _request: Request) -> ConnectorList:
        """List the installed connectors."""
        return ConnectorList(connectors=await self._connectors.listed())

    async def install_connector(self, _request: Request, asked: InstallConnector) -> InstalledConnector | ConsentAnswer:
        """Install a connector from a directory or a tarball on this machine."""
        return await self._connectors.install(asked.path, asked.on_conflict)

    async def list_updates(self, request: Request) -> UpdateList:
        """List the newest published versions of the connectors that actions use, and of the actions that have a source."""
        prerelease = request.query_params.get("prerelease") == "true"
        return UpdateList(updates=await self._upkeep.updates(prerelease=prerelease))

    async def verify_connectors(self, _request: Request) -> ConnectorList:
        """Verify all installed connectors by hashing them again."""
        return ConnectorList(connectors=await self._upkeep.verify())

    async def remove_unused(self, _request: Request, asked: RemoveUnused) -> ConnectorList:
        """Remove the connectors that no action, question or run is pinned to."""
        return ConnectorList(connectors=await self._upkeep.remove_unused(dry_run=asked.dry_run))

    async def remove_connector(self, request: Request) -> Removed:
        """Remove a connector by its hash."""
        await self._connectors.remove(request.path_params["hash"])
        return Removed(removed=request.path_params["hash"])

    async def begin_fetch(self, _request: Request, asked: FetchRequest) -> Fetch:
        """Begin to fetch a published artifact, which can then be shown and installed."""
        return await self._fetching.begin(asked)

    async def show_fetch(self, request: Request) -> Fetch:
        """Return the state of a fetch and what it would install, after waiting for its end if the client asks for that."""
        return await self._fetching.show(request.path_params["id"], wait_s(request, 0.0))

    async def resolve_fetched(self, request: Request, asked: ResolveFetched) -> Fetch:
        """Set the text of an updated action, and return what the fetch would install with this text."""
        return await self._fetching.resolve(request.path_params["id"], asked.text)

    async def install_fetched(self, request: Request, _asked: InstallFetched) -> Installed | ConsentAnswer:
        """Install a fetched artifact."""
        return await self._fetching.install(request.path_params["id"])

    async def cancel_fetch(self, request: Request) -> Fetch:
        """Cancel a fetch."""
        return await self._fetching.cancel(request.path_params["id"])

    async def show_suite(self, _request: Request, asked: ReadSuite) -> SuiteRead:
        """Return the actions that a suite would install."""
        return await self._fetching.suite(asked.source, asked.text, asked.file)
