"""Requests to forges: a GET with a response of bounded size, through egress like all outgoing traffic.

Runs in the daemon. A forge's address comes from the user's settings, or from a redirect that the forge's client accepts
(registry/forges/forge.py); it is checked here like any destination. An address that is not public needs `egress.private`.

Source: docs/reference/forges.md. Not here: the requests, and what a response means (registry/forges/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from aileron.config import LiveSettings
from aileron.egress import Egress, EgressRequest, Meter, Unrecorded
from aileron.egress.refusal import RefusedError
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from aileron.registry.forges.forge import Answer, Progress

__all__ = ["ForgeWeb"]

_ANSWER_S: Final = 30.0
"""Seconds allowed for any response, in addition to the time that its maximum size takes at _LEAST_BYTES_S."""
_LEAST_BYTES_S: Final = 64 << 10
"""Lowest allowed rate of a large response in bytes per second: 64 KiB/s, as on a poor mobile connection. An archive of 64 MiB
may take 17 minutes.
"""
_AGENT: Final = ("User-Agent", "aileron")  # GitHub's API refuses requests without one


class ForgeWeb:
    """HTTP client for forges. Implements registry.forges.forge.Web. One instance per daemon."""

    def __init__(self, egress: Egress, settings: LiveSettings) -> None:
        self._egress: Final = egress
        self._settings: Final = settings

    async def get(
        self, url: str, *, headers: Sequence[tuple[str, str]], limit_bytes: int, progress: Progress | None = None
    ) -> Answer:
        """Send one GET request through egress and return the response, as registry.forges.forge.Web describes."""
        to, allowed = _destination(url), self._settings.now.egress_private
        grant = Grant(hosts=(to,), private=allowed & {to}, budget=Budget(requests=1, bytes_down=limit_bytes))
        request = EgressRequest("GET", url, (_AGENT, *headers))
        deadline = anyio.current_time() + _ANSWER_S + limit_bytes / _LEAST_BYTES_S
        try:
            async with self._egress.open_own(request, grant, Meter(grant.budget), Unrecorded(), deadline) as response:
                fields = {name.lower(): value for name, value in response.headers}
                size, body = fields.get("content-length", ""), bytearray()
                async for piece in response:
                    body += piece
                    if progress is not None and response.status == 200:
                        progress(len(body), int(size) if size.isdecimal() else None)
                return Answer(response.status, fields, bytes(body))
        except AileronError as error:
            if error.failure.failure_class is FailureClass.RESOURCE_LIMIT_EXCEEDED:
                raise _too_much(to, limit_bytes) from error
            raise


def _destination(url: str) -> HostPort:
    try:
        return parse_url(url).destination
    except RefusedError as error:
        raise AileronError(
            FailureClass.CAPABILITY_DENIED, f"an address of a forge is not taken: {error}", boundary=Boundary.EXTERNAL
        ) from None


def _too_much(to: HostPort, limit_bytes: int) -> AileronError:
    return AileronError(
        FailureClass.RESOURCE_LIMIT_EXCEEDED,
        f"{to} sent more than {limit_bytes} bytes: nothing of it was kept",
        boundary=Boundary.EXTERNAL,
        details={"limit": "output"},
    )
