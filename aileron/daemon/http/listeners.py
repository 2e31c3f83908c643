"""The daemon's TCP listeners: one loopback port, the same for as long as the home exists, and another address if it is
configured.

Runs in the daemon. These addresses can be reached by every user of the machine, by every page in the person's browser and, at
the configured address, by other machines. So no caller is `local` here: actions need a session token, the gateway passes on
what its caller sends, and the page shows nothing before it is unlocked (web/admission.py).

    loopback, http          pages · /mcp · the agents' routes below /v1 · the gateway
    daemon.listen, https    the same without pages

Rules
- The Host of a request must be a name of this listener (a rebinding name is refused). On loopback, that is `localhost` or one
  of its addresses; elsewhere, it is the configured address or a name in its certificate. An Origin, if a browser sends one,
  must be that of the loopback port; no page may use the configured address. A browser that reports another site as the
  requester (Sec-Fetch-Site) is answered only if a person follows a link to a page, because a browser sends no Origin with the
  requests for content that another site's page only embeds.

Source: RFC 9110, section 7.2 (Host); RFC 6454 (Origin); W3C, Fetch Metadata Request Headers; docs/reference/http-api.md. Not
here: the routes of the sockets (api/).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.daemon.http.pages import harmless
from aileron.daemon.http.responses import failure_answer
from aileron.daemon.http.sessions import Sessions
from aileron.gateway.upstreams import PATHS
from aileron.ingress.server import drained
from aileron.model.failure import AileronError
from aileron.model.invocation import Scope as CallerScope

__all__ = ["OnlyHere", "Served", "WithToken", "loopback_names"]

_FOR_A_PROGRAM: Final = (b"", b"empty")
"""Values of Sec-Fetch-Dest for requests by a program, or by a script that reads the response. With other values, the browser
shows or executes the response.
"""
_OTHER_SITES: Final = (b"cross-site", b"same-site")
"""Values of Sec-Fetch-Site for requests from pages of other origins. For a page at another port of this machine, browsers send
`same-site`.
"""


class Served:
    """Application that dispatches each request to another application by the beginning of the request's path."""

    def __init__(self, *, pages: ASGIApp | None, agents: ASGIApp, mcp: ASGIApp, gateway: ASGIApp) -> None:
        self._pages = pages
        self._agents = agents
        self._mcp = mcp
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        await self._app(scope.get("path", ""))(scope, receive, send)

    def _app(self, path: str) -> ASGIApp:
        if any(_is_below(path, prefix) for prefix in PATHS):
            return self._gateway
        if _is_below(path, "/mcp"):
            return self._mcp
        if self._pages is None or _is_below(path, "/v1"):
            return self._agents
        return self._pages


class OnlyHere:
    """Middleware that refuses requests that another site makes a browser send here. `hosts` are host names with their port, in
    lower case; `origins` are complete origins.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.encode() for host in hosts)
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await harmless(PlainTextResponse(refusal + "\n", 403))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "this address is served under its own names only"
        if any(value.lower() not in self._origins for name, value in headers if name == b"origin"):
            return "this address answers no other site"
        if _fetched(headers, b"site") in _OTHER_SITES and not _is_link_to_a_page(scope):
            return "this address answers no other site"
        if _is_for_programs(scope) and _fetched(headers, b"dest") not in _FOR_A_PROGRAM:
            return "what a service answers is shown by no browser as if it came from here"
        return None


class WithToken:
    """Middleware that admits callers that send the token of an open session, and sets `scope["state"]["session"]`.

    A response that is in progress when the session ends is cut off (sessions.py), because a stream may last as long as its
    client.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        try:
            shown = Headers(scope=scope).getlist("authorization")
            session = self._sessions.caller(CallerScope.AGENT, shown, needs_token=True).session
        except AileronError as error:
            refused = failure_answer(error.failure)
            refused.headers["WWW-Authenticate"] = "Bearer"
            await drained(receive)
            await refused(scope, receive, send)
            return
        scope = {**scope, "state": {**scope.get("state", {}), "session": session}}
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self._sessions.until_over(session)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            await self._app(scope, receive, send)
            tasks.cancel_scope.cancel()


def loopback_names(port: int) -> list[str]:
    """Return the names of the loopback port as they appear in a Host header."""
    return [f"{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]")]


def _is_link_to_a_page(scope: Scope) -> bool:
    """Return whether the request is a top-level navigation to one of our pages, so that the response is not embedded in another
    site's page.

    A model API's response never counts as a page, because a browser would show it as content of our origin.
    """
    headers = scope["headers"]
    return (
        scope.get("method") == "GET"
        and _fetched(headers, b"mode") == b"navigate"
        and _fetched(headers, b"dest") == b"document"
        and not _is_for_programs(scope)
    )


def _is_for_programs(scope: Scope) -> bool:
    """Return whether the path is for programs, not pages. If a browser showed the response as a page, content that others
    wrote would have the origin of our pages.
    """
    return any(_is_below(scope.get("path", ""), prefix) for prefix in ("/mcp", "/v1", *PATHS))


def _fetched(headers: list[tuple[bytes, bytes]], what: bytes) -> bytes:
    return next((value.lower() for name, value in headers if name == b"sec-fetch-" + what), b"")


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
