"""The web side of the daemon: one loopback port, the same for as long as the home exists, and what every request must pass.

Runs in the daemon. Everything on this port is reachable by every user of the machine and by every page in the person's
browser, so nothing here is secret and nothing decides; until there are pages to decide on, a review address answers with one
page that names the commands, the same for every identifier, whether there is such an approval or not.

Rules
- Both loopback addresses are taken, or the daemon does not start: `localhost` may mean either, and whoever else listened on
  the other one would be shown what is ours.
- The Host of a request must be this port under a loopback name (a rebinding name is refused), and an Origin, where a browser
  sends one, must be this port as well.
- No script runs on a page, nothing is loaded from elsewhere, nobody may frame it, nothing is kept.

Source: RFC 9110, section 7.2 (Host); RFC 6454 (Origin); docs/reference/http-api.md. Not here: the routes of the sockets (api.py).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import re
import secrets
import socket
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.model.failure import AileronError, FailureClass

__all__ = ["listen_on_loopback", "review_base", "web_app"]

_ADDRESSES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_FIRST_PORT, _LAST_PORT = 20480, 32767
"""Where a new port is chosen: below the range from which Linux numbers outgoing connections (32768, ip(7)), so that none of
those holds it when the daemon comes back."""
_TRIES: Final = 64
"""Ports tried before it is plain that something else is wrong."""
_BACKLOG: Final = 64
_APPROVAL_ID: Final = re.compile(r"act-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}", re.ASCII)
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6570; --paper: #fcfcfb; --box: #f0f0ec; --line: #d9d9d2 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e3; --soft: #a3abb3; --paper: #16181a; --box: #212427; --line: #363a3e } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif }
main { max-width: 44rem; margin: 0 auto; padding: 3.5rem 1.25rem }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .75rem }
p { margin: 0 0 1.25rem } .soft { color: var(--soft); font-size: .925rem }
dl { margin: 0 0 1.5rem; border: 1px solid var(--line); border-radius: .5rem; overflow: hidden }
div { padding: .75rem 1rem } div + div { border-top: 1px solid var(--line) }
dt { color: var(--soft); font-size: .875rem }
dd { margin: .125rem 0 0 }
code { font: .9375rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; user-select: all }
div { background: var(--box) }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Aileron</title>
<style>{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
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


def listen_on_loopback(port: int | None) -> tuple[int, list[socket.socket]]:
    """Listening sockets on the loopback addresses there are, all on `port`; without one, on a free port that is chosen now.

    AileronError(internal_error) where the port is another program's.
    """
    if port is not None:
        try:
            return port, _listeners(port)
        except OSError as error:
            raise AileronError(
                FailureClass.INTERNAL_ERROR,
                f"port {port} on loopback cannot be listened on ({error.strerror}): end the program that has it "
                "(`ss -ltnp` names it), or remove daemon.port from config.toml, and a new one is chosen",
            ) from error
    for _ in range(_TRIES):
        candidate = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT + 1)
        try:
            return candidate, _listeners(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise AileronError(
                    FailureClass.INTERNAL_ERROR,
                    f"loopback cannot be listened on: {error.strerror}; see `ip address show lo`",
                ) from error
    raise AileronError(
        FailureClass.INTERNAL_ERROR,
        f"{_TRIES} ports of loopback were all taken: set daemon.port in config.toml to a free one",
    )


def web_app(port: int) -> ASGIApp:
    """The application of the loopback port."""
    routes = [
        Route("/approvals", _list_page, methods=["GET"]),
        Route("/approvals/{id}", _review_page, methods=["GET"]),
        Route("/healthz", _health, methods=["GET"]),
    ]
    return _OnlyThisPort(Starlette(routes=routes), port)


class _OnlyThisPort:
    """Refuses what a browser was tricked into sending here."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = frozenset(f"{name}:{port}".encode() for name in ("localhost", "127.0.0.1", "[::1]"))
        self._origins = frozenset(b"http://" + host for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["headers"])
        if refusal is not None:
            await _harmless(PlainTextResponse(refusal + "\n", 403))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "this address is served under the name localhost only"
        if any(value.lower() not in self._origins for name, value in headers if name == b"origin"):
            return "this address answers no other site"
        return None


async def _review_page(request: Request) -> Response:
    asked = request.path_params["id"]
    if not _APPROVAL_ID.fullmatch(asked):
        return _harmless(PlainTextResponse("no such page\n", 404))
    return _page("A question for you", _REVIEW.format(id=html.escape(asked)))


async def _list_page(_request: Request) -> Response:
    return _page("What waits for you", _LIST)


async def _health(_request: Request) -> Response:
    return _harmless(PlainTextResponse("ok\n"))


def _page(title: str, body: str) -> Response:
    return _harmless(HTMLResponse(_PAGE.format(title=title, style=_STYLE, body=body)))


def _harmless(response: Response) -> Response:
    """With the headers that keep a page from doing more than showing itself."""
    response.headers.update(_HEADERS)
    return response


def _listeners(port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for family, address in _ADDRESSES:
            listener = _listener(family, address, port)
            if listener is not None:
                made.append(listener)
    except OSError:
        for listener in made:
            listener.close()
        raise
    return made


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
    """None where this machine has no IPv6."""
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if family is socket.AF_INET6 and error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a daemon that ended a moment ago is no other program
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if family is socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return listener
