"""The ten requests of ten_requests.py on the page itself, over a real connection, for a real browser, without a daemon.

    with served_page() as page:
        page.let_in(browser)
        browser.open(page.url(page_id(TEN[0])))
        page.change(lambda desk: desk.ask(page_question(TEN[1])))

Not here: the page of a real daemon (paged.py), the same without a browser (tests/web/daemon_port.py).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio
import anyio.from_thread

from aileron.daemon.http.pages import pages
from aileron.ingress.known import KnownCallers
from aileron.ingress.server import serve
from aileron.model.decision import digest_with_preview
from aileron.model.preview import Preview, PreviewField, shown_digest
from aileron.model.timestamp import utc
from aileron.web.app import Page
from aileron.web.sessions import Sessions
from tests.support.browser import Browser
from tests.support.ten_requests import TEN, Request
from tests.web.daemon_port import Key, NoPasskeys, Process, ToldDesk

__all__ = ["ServedPage", "TenDesk", "page_id", "page_question", "served_page"]

_START_S: Final = 20.0


def page_id(request: Request) -> str:
    """Return the id of the request's approval, in the form that ids have."""
    return f"act-20261121T040000-{TEN.index(request):020x}"


def page_question(request: Request, *, lasts_s: float = 840.0) -> dict[str, Any]:
    """Return the question as the daemon shows it; it can be decided for `lasts_s` seconds."""
    until = utc(time.time() + lasts_s)
    return {
        **request.question(),
        "approval_id": page_id(request),
        "created_at": utc(time.time() - 60),
        "expires_at": until,
    }


class TenDesk(ToldDesk):
    """A daemon port that shows the questions it is given, and returns for each request what its service says."""

    def ask(self, *asked: dict[str, Any]) -> None:
        """Add waiting questions."""
        self.questions += asked

    def settle(self, approval_id: str, status: str, **more: Any) -> None:
        """Record that a question was decided, here or elsewhere."""
        (question,) = [question for question in self.questions if question["approval_id"] == approval_id]
        question.update(status=status, decided_at="2026-11-21T04:01:00Z", **more)

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Return the preview with the fields that the service has."""
        (request,) = [request for request in TEN if page_id(request) == approval_id]
        fields = [PreviewField(**field) for field in request.found or ()]
        digest = digest_with_preview(plan_digest, shown_digest(fields))
        return Preview(fields, None, "2026-11-21T04:00:01Z", digest)


class ServedPage:
    """The served page: its address, and its daemon port."""

    def __init__(self, port: int, cookie: str, desk: TenDesk, portal: Callable[..., Any]) -> None:
        self.port = port
        self.desk = desk
        self._cookie = cookie
        self._portal = portal

    def url(self, approval_id: str = "", query: str = "") -> str:
        """Return the URL of a question, or of the queue."""
        return f"http://localhost:{self.port}/approvals{approval_id and '/' + approval_id}{query}"

    def let_in(self, browser: Browser, *, same_site: str = "Strict") -> None:
        """Give the browser the cookie of an unlocked page, as no passphrase is right here. `same_site`: its attribute."""
        browser.cdp(
            "Network.setCookie",
            name=f"aileron-page-{self.port}",
            value=self._cookie,
            url=self.url(),
            path="/approvals",
            httpOnly=True,
            sameSite=same_site,
        )

    def change(self, how: Callable[[TenDesk], None]) -> None:
        """Change the questions between two steps of the server, and wake the requests that wait for news."""

        def do() -> None:
            how(self.desk)
            written, self.desk.written = self.desk.written, anyio.Event()
            written.set()

        self._portal(do)


@contextlib.contextmanager
def served_page(*asked: dict[str, Any]) -> Iterator[ServedPage]:
    """Serve the page on a port of its own, unlocked for one cookie, with these questions."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    made: list[ServedPage] = []
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        desk = TenDesk()
        desk.ask(*asked)
        no_passkeys, process, daemon = NoPasskeys(), Process(desk.pid), desk
        sessions = Sessions(daemon, KnownCallers(), now=lambda: float(desk.now))  # type: ignore[arg-type]
        page = Page(daemon, sessions, port, no_passkeys)  # type: ignore[arg-type]
        _session, cookie = await sessions.open(Key(), Key.key_id, process)

        async def stopped() -> None:
            await anyio.to_thread.run_sync(stop.wait, abandon_on_cancel=True)
            desk.stopping.set()

        async with anyio.from_thread.BlockingPortal() as portal:
            made.append(ServedPage(port, cookie, desk, portal.call))
            ready.set()
            await serve(pages(page), [listener], stopped)

    thread = threading.Thread(target=anyio.run, args=(run,), daemon=True)
    thread.start()
    assert ready.wait(_START_S)
    try:
        yield made[0]
    finally:
        stop.set()
        thread.join(_START_S)
        assert not thread.is_alive()
