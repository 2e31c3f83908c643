"""Routes of connectors (install, fetch, update) and suites, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.connectors import ConnectorList, InstallConnector, RemoveUnused, UpdateList
from aileron.api.daemon import Removed
from aileron.api.fetches import FetchRequest, InstallFetched, ReadSuite, ResolveFetched
from aileron.daemon.http.api.requests import body_of, consent_answer, wait_s
from aileron.daemon.http.responses import as_json
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

    async def list_connectors(self, _request: Request) -> Response:
        """List the installed connectors."""
        return as_json(ConnectorList(connectors=await self._connectors.listed()))

    async def install_connector(self, request: Request) -> Response:
        """Install a connector from a directory or a tarball on this machine."""
        asked = await body_of(request, InstallConnector)
        return consent_answer(await self._connectors.install(asked.path, asked.on_conflict))

    async def list_updates(self, request: Request) -> Response:
        """List the newest published versions of the connectors that actions use, and of the actions that have a source."""
        prerelease = request.query_params.get("prerelease") == "true"
        return as_json(UpdateList(updates=await self._upkeep.updates(prerelease=prerelease)))

    async def verify_connectors(self, _request: Request) -> Response:
        """Verify all installed connectors by hashing them again."""
        return as_json(ConnectorList(connectors=await self._upkeep.verify()))

    async def remove_unused(self, request: Request) -> Response:
        """Remove the connectors that no action, question or run is pinned to."""
        asked = await body_of(request, RemoveUnused)
        return as_json(ConnectorList(connectors=await self._upkeep.remove_unused(dry_run=asked.dry_run)))

    async def remove_connector(self, request: Request) -> Response:
        """Remove a connector by its hash."""
        await self._connectors.remove(request.path_params["hash"])
        return as_json(Removed(removed=request.path_params["hash"]))

    async def begin_fetch(self, request: Request) -> Response:
        """Begin to fetch a published artifact, which can then be shown and installed."""
        return as_json(await self._fetching.begin(await body_of(request, FetchRequest)))

    async def show_fetch(self, request: Request) -> Response:
        """Return the state of a fetch and what it would install, after waiting for its end if the client asks for that."""
        return as_json(await self._fetching.show(request.path_params["id"], wait_s(request, 0.0)))

    async def resolve_fetched(self, request: Request) -> Response:
        """Set the text of an updated action, and return what the fetch would install with this text."""
        asked = await body_of(request, ResolveFetched)
        return as_json(await self._fetching.resolve(request.path_params["id"], asked.text))

    async def install_fetched(self, request: Request) -> Response:
        """Install a fetched artifact."""
        await body_of(request, InstallFetched)
        return consent_answer(await self._fetching.install(request.path_params["id"]))

    async def cancel_fetch(self, request: Request) -> Response:
        """Cancel a fetch."""
        return as_json(await self._fetching.cancel(request.path_params["id"]))

    async def show_suite(self, request: Request) -> Response:
        """Return the actions that a suite would install."""
        asked = await body_of(request, ReadSuite)
        return as_json(await self._fetching.suite(asked.source, asked.text, asked.file))
