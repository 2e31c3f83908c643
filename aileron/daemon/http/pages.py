"""What the loopback port serves to browsers: the page, and whether the daemon is alive.

Runs in the daemon. Everything on this port is reachable by every user of the machine and by every page in the person's browser:
what is not unlocked shows nothing (web/admission.py).

Source: docs/reference/page.md. Not here: who may ask the port at all, and what else is served there (listeners.py).
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
    """What a review address begins with."""
    return f"http://localhost:{port}"


def pages(page: Page) -> ASGIApp:
    """The application that serves them."""
    app = Starlette(routes=[*page.routes(), Route("/healthz", _health, methods=["GET"])])
    app.router.redirect_slashes = False  # to an address that the request named itself
    return app


async def _health(_request: Request) -> Response:
    return harmless(PlainTextResponse("ok\n"))


def harmless(response: Response) -> Response:
    """With the headers that keep a page from doing more than showing itself."""
    response.headers.update(_PLAIN.headers)
    return response
