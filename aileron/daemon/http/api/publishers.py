"""Routes of publishers' keys and of the Hub, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.publishers import (
    HubDetail,
    HubFound,
    KeyList,
    LookForKey,
    PublishedKey,
    RevokedKeys,
    RevokeKey,
    TrustedKeys,
    TrustKey,
)
from aileron.daemon.http.api.requests import query_of
from aileron.daemon.packages.hub import HubSearch
from aileron.daemon.packages.keyring import PublisherKeys

__all__ = ["PublisherRoutes"]


class PublisherRoutes:
    """HTTP request handlers for publishers' keys and the Hub. One instance per daemon."""

    def __init__(self, trusting: PublisherKeys, hubs: HubSearch) -> None:
        self._trusting = trusting
        self._hubs = hubs

    async def list_keys(self, _request: Request) -> KeyList:
        """List the publishers' keys that are trusted here."""
        return KeyList(keyring=await self._trusting.listed())

    async def trust_key(self, _request: Request, asked: TrustKey) -> TrustedKeys | ConsentAnswer:
        """Trust a publisher's key."""
        return await self._trusting.trust_key(asked.authority, asked.key, asked.source)

    async def look_for_key(self, _request: Request, asked: LookForKey) -> PublishedKey:
        """Return the key that a repository publishes."""
        return await self._trusting.look(asked.authority)

    async def revoke_key(self, _request: Request, asked: RevokeKey) -> RevokedKeys:
        """Stop trusting a publisher's key."""
        return await self._trusting.revoke(asked.authority, asked.key)

    async def search_hub(self, request: Request) -> HubFound:
        """Search the Hub for artifacts that match a text and, if given, a kind."""
        asked = query_of(request, "text", "kind")
        return await self._hubs.search(asked.get("text", ""), asked.get("kind"))

    async def show_hub_entry(self, request: Request) -> HubDetail:
        """Return one artifact of the Hub."""
        return await self._hubs.entry(query_of(request, "name").get("name", ""))
