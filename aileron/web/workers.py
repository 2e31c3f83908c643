"""Defense against service workers and caches that another program left in a browser under the page's own address.

Runs in the daemon, before everything else on the loopback port. While no daemon runs, any program of this machine can listen on
that port. The page stores nothing that such a program could read. But to a browser, such a program's responses have the page's
own origin. So the program can leave a service worker, which responds instead of the page from then on, and entries in the
browser's cache.

Rules
- A request for a worker's script, at any path, gets a script that removes the worker, even without a session. A browser
  requests the script after each page that the worker has answered or, depending on how the worker was registered, once
  a day.
- The script may have any scope (`Service-Worker-Allowed`): with a narrower scope, or a 404, the update fails and the
  old worker stays in place.
- The page that asks for the passphrase tells the browser to clear the data stored for this origin (`CLEARED`), except
  cookies: an unlocked page stays unlocked.

Source: Service Workers (W3C), Update and Soft Update; Clear Site Data (W3C). Not here: the remaining risk
(docs/reference/page.md).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.model.page import PageFrame

__all__ = ["CLEARED", "NoWorkers"]

CLEARED: Final = {"Clear-Site-Data": '"cache", "storage"'}
"""Response header that makes the browser clear stored data. `storage` includes the service workers."""
_SCRIPT: Final = """\
addEventListener("install", () => self.skipWaiting());
addEventListener("activate", (event) => event.waitUntil(self.registration.unregister()));
"""
_FIELDS: Final = {**PageFrame("").headers, "Content-Type": "text/javascript", "Service-Worker-Allowed": "/"}


class NoWorkers:
    """ASGI middleware that answers requests for a service worker's script with a script that unregisters the worker."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a service worker's script; pass any other request on to the application."""
        is_asked = scope["type"] == "http" and (b"service-worker", b"script") in scope["headers"]
        await (Response(_SCRIPT, headers=_FIELDS) if is_asked else self._app)(scope, receive, send)
