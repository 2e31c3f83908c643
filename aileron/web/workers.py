"""What another program may have left in a browser under the page's own address, and how it goes.

Runs in the daemon, before everything else on the loopback port. While no daemon runs, any program of this machine can listen on
that port. It cannot read what the page keeps, which is nothing, but to a browser what it serves is of the page's own origin: a
service worker, which answers in our place from then on, and what the browser keeps in its cache.

Rules
- A worker's script, whatever its path, is answered with one that removes itself, also for who has no session. A browser asks for
  it after each page that the worker has answered, or, where the worker was registered so, once a day.
- It may have any scope (`Service-Worker-Allowed`): a narrower one makes the update fail, and leaves the old worker where it is.
  So does a 404.
- The page that asks for the passphrase has the browser forget what it keeps for this origin (`CLEARED`). Cookies are not part of
  that: who has unlocked stays so.

Source: Service Workers (W3C), Update and Soft Update; Clear Site Data (W3C). Not here: what remains (docs/reference/page.md).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.model.page import PageFrame

__all__ = ["CLEARED", "NoWorkers"]

CLEARED: Final = {"Clear-Site-Data": '"cache", "storage"'}
"""A field of an answer. `storage` has the workers in it."""
_SCRIPT: Final = """\
addEventListener("install", () => self.skipWaiting());
addEventListener("activate", (event) => event.waitUntil(self.registration.unregister()));
"""
_FIELDS: Final = {**PageFrame("").headers, "Content-Type": "text/javascript", "Service-Worker-Allowed": "/"}


class NoWorkers:
    """Answers who asks for a service worker, and nobody else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        is_asked = scope["type"] == "http" and (b"service-worker", b"script") in scope["headers"]
        await (Response(_SCRIPT, headers=_FIELDS) if is_asked else self._app)(scope, receive, send)
