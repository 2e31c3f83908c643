"""Routes of the daemon itself and its record, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from aileron import __version__
from aileron.api.audit import EventList, RecordOfRun, Verification
from aileron.api.daemon import Health, Status, Stopping
from aileron.audit import query
from aileron.daemon.http.api.requests import wait_s
from aileron.daemon.http.record import verified, wait_events
from aileron.daemon.http.responses import as_json
from aileron.daemon.http.status import DaemonStatus
from aileron.home import Home
from aileron.ledger.sqlite import Ledger

__all__ = ["DaemonRoutes"]


class DaemonRoutes:
    """HTTP request handlers for the daemon itself and the audit trail. One instance per daemon."""

    def __init__(self, *, home: Home, ledger: Ledger, facts: DaemonStatus, end: Callable[[], None]) -> None:
        self._home = home
        self._ledger = ledger
        self._facts = facts
        self._end = end

    async def health(self, _request: Request) -> Health:
        """Answer that the daemon is alive."""
        return Health()

    async def openapi(self, _request: Request) -> Response:
        """Return the API's OpenAPI document."""
        from aileron.api.openapi import openapi_document  # imported on request: nothing else needs it

        return as_json(openapi_document(__version__))

    async def list_audit(self, request: Request) -> EventList:
        """List the events that match the filters, newest first. If none match yet, wait for some if the client asks for that."""
        wanted = {name: value for name, value in request.query_params.items() if name != "wait"}
        return EventList(events=await wait_events(self._ledger, wanted, wait_s(request, 0.0)))

    async def verify_audit(self, _request: Request) -> Verification:
        """Read the ledger from its file and verify its hash chain."""
        return await verified(self._home)

    async def show_audit(self, request: Request) -> RecordOfRun:
        """Return one run with its events."""
        return await query.run_with_events(self._ledger, request.path_params["id"])

    async def status(self, _request: Request) -> Status:
        """Return the daemon's version, process, start time, and the jail layers in force."""
        return await self._facts.facts()

    async def stop(self, _request: Request) -> Stopping:
        """Stop the daemon after this response."""
        self._end()
        return Stopping()
