"""The content that the loopback port serves to browsers: the page, and a health check of the daemon.

Runs in the daemon. Everything on this port is reachable by every user of the machine and by every page in the person's browser:
a page that is not unlocked shows nothing (web/admission.py).

Source: docs/reference/page.md. Not here: access to the port, and its other applications (listeners.py).
"""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from aileron.model.page import PageFrame
from aileron.web.app import Page

__all__ = ["harmless", "pages", "review_base"]

_PLAIN: Final = PageFrame("")


def review_base(port: int) -> str:
    """Return the base URL of the pages."""
    return f"http://localhost:{port}"


def pages(page: Page) -> ASGIApp:
    """Return the application that serves the pages."""
    app = Starlette(routes=[*page.routes(), Route("/healthz", _health, methods=["GET"])])
    app.router.redirect_slashes = False  # a redirect would go to an address that the request named itself
    return app


async def _health(_request: Request) -> Response:
    return harmless(PlainTextResponse("ok\n"))


def harmless(response: Response) -> Response:
    """Return the response with security headers, so that a page can do nothing except show itself."""
    response.headers.update(_PLAIN.headers)
    return response
