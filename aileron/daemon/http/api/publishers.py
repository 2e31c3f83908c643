"""Routes of publishers' keys and of the Hub, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.publishers import KeyList, LookForKey, RevokeKey, TrustKey
from aileron.daemon.http.api.requests import body_of, consent_answer, query_of
from aileron.daemon.http.responses import as_json
from aileron.daemon.packages.hub import HubSearch
from aileron.daemon.packages.keyring import PublisherKeys

__all__ = ["PublisherRoutes"]


class PublisherRoutes:
    """HTTP request handlers for publishers' keys and the Hub. One instance per daemon."""

    def __init__(self, trusting: PublisherKeys, hubs: HubSearch) -> None:
        self._trusting = trusting
        self._hubs = hubs

    async def list_keys(self, _request: Request) -> Response:
        """List the publishers' keys that are trusted here."""
        return as_json(KeyList(keyring=await self._trusting.listed()))

    async def trust_key(self, request: Request) -> Response:
        """Trust a publisher's key."""
        asked = await body_of(request, TrustKey)
        return consent_answer(await self._trusting.trust_key(asked.authority, asked.key, asked.source))

    async def look_for_key(self, request: Request) -> Response:
        """Return the key that a repository publishes."""
        return as_json(await self._trusting.look((await body_of(request, LookForKey)).authority))

    async def revoke_key(self, request: Request) -> Response:
        """Stop trusting a publisher's key."""
        asked = await body_of(request, RevokeKey)
        return as_json(await self._trusting.revoke(asked.authority, asked.key))

    async def search_hub(self, request: Request) -> Response:
        """Search the Hub for artifacts that match a text and, if given, a kind."""
        asked = query_of(request, "text", "kind")
        return as_json(await self._hubs.search(asked.get("text", ""), asked.get("kind")))

    async def show_hub_entry(self, request: Request) -> Response:
        """Return one artifact of the Hub."""
        return as_json(await self._hubs.entry(query_of(request, "name").get("name", "")))
