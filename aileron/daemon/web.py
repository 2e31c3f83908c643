"""The pages of the loopback port.

Runs in the daemon. Everything on this port is reachable by every user of the machine and by every page in the person's
browser, so nothing here is secret and nothing decides; until there are pages to decide on, a review address answers with one
page that names the commands, the same for every identifier, whether there is such an approval or not.

Rules
- No script runs on a page, nothing is loaded from elsewhere, nobody may frame it, nothing is kept.

Source: docs/reference/http-api.md. Not here: who may ask the port at all, and what else is served there (ports.py).
"""

from __future__ import annotations

import html
import re
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from aileron.model.page import PageFrame

__all__ = ["harmless", "pages", "review_base"]

_APPROVAL_ID: Final = re.compile(r"act-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}", re.ASCII)
_FRAME: Final = PageFrame("""
main { max-width: 44rem }
p { margin: 0 0 1.25rem } .soft { color: var(--soft); font-size: .925rem }
dl { margin: 0 0 1.5rem; border: 1px solid var(--line); border-radius: .5rem; overflow: hidden }
div { padding: .75rem 1rem } div + div { border-top: 1px solid var(--line) }
dt { color: var(--soft); font-size: .875rem }
dd { margin: .125rem 0 0 }
code { font: .9375rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; user-select: all }
div { background: var(--box) }
""")
_REVIEW: Final = """<h1>An agent asks for something. You decide it in a terminal.</h1>
<p>This page shows nothing of the request and cannot decide it. In a terminal on this machine:</p>
<dl>
<div><dt>See exactly what would be done, then decide</dt><dd><code>aileron approve {id}</code></dd></div>
<div><dt>Only look</dt><dd><code>aileron approval show {id}</code></dd></div>
<div><dt>Say no, with a reason that the agent reads</dt><dd><code>aileron deny {id} --reason "…"</code></dd></div>
</dl>
<p class="soft">Without your approval nothing happens. This page is the same for every address of this form, whether the question
exists, is decided, or has expired.</p>"""
_LIST: Final = """<h1>What waits for you is listed in a terminal.</h1>
<dl><div><dt>What waits</dt><dd><code>aileron approval list</code></dd></div></dl>"""


def review_base(port: int) -> str:
    """What a review address begins with."""
    return f"http://localhost:{port}"


def pages() -> ASGIApp:
    """The application that serves them."""
    routes = [
        Route("/approvals", _list_page, methods=["GET"]),
        Route("/approvals/{id}", _review_page, methods=["GET"]),
        Route("/healthz", _health, methods=["GET"]),
    ]
    return Starlette(routes=routes)


async def _review_page(request: Request) -> Response:
    asked = request.path_params["id"]
    if not _APPROVAL_ID.fullmatch(asked):
        return harmless(PlainTextResponse("no such page\n", 404))
    return _page("A question for you", _REVIEW.format(id=html.escape(asked)))


async def _list_page(_request: Request) -> Response:
    return _page("What waits for you", _LIST)


async def _health(_request: Request) -> Response:
    return harmless(PlainTextResponse("ok\n"))


def _page(title: str, body: str) -> Response:
    return harmless(HTMLResponse(_FRAME.html(title, body)))


def harmless(response: Response) -> Response:
    """With the headers that keep a page from doing more than showing itself."""
    response.headers.update(_FRAME.headers)
    return response
