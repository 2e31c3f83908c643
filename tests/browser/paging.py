"""A person at the page in a real Chromium who unlocks, reads and decides; and pages of other origins that attack it.

Not here: the same without a browser (tests/support/paged.py).
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypedDict

from tests.support.browser import Browser
from tests.support.home import DaemonHome
from tests.support.paged import APPROVER, port_of
from tests.support.waiting import wait_until

__all__ = ["CONTRAST", "PHONE", "Size", "base_of", "elsewhere", "overflow", "rested", "unlocked", "without_scripts"]


class Size(TypedDict):
    """A screen's size in CSS pixels."""

    width: int
    height: int


PHONE: Final[Size] = {"width": 390, "height": 844}
CONTRAST: Final = """
const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number);
  return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = (c) => { const [r, g, b] = c.map((v) => linear(v / 255));
  return .2126 * r + .7152 * g + .0722 * b; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; }
  return [255, 255, 255]; };
const poor = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || e.closest("script, style") || !e.getClientRects().length) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  seen += 1;
  if ((a + .05) / (b + .05) < 4.5) poor.push([walk.currentNode.data.trim().slice(0, 40), (a + .05) / (b + .05)]);
}
return [seen, poor];
"""
"""Script that returns the number of texts on a page, and those with too little contrast, by their first words."""


_AWAKE: Final = """
const buttons = [...document.querySelectorAll("[data-guard] button")];
return !document.body.classList.contains("dead") && buttons.every((one) => getComputedStyle(one).pointerEvents === "auto");
"""


def base_of(home: DaemonHome, host: str = "localhost") -> str:
    """Return the origin of the page."""
    return f"http://{host}:{port_of(home)}"


def unlocked(browser: Browser, home: DaemonHome, path: str = "") -> None:
    """Type the passphrase, and go to the page of a question, or to the queue."""
    browser.open(f"{base_of(home)}/approvals{path and '/' + path}")
    browser.fill("#passphrase", APPROVER)
    browser.click("button.go")
    browser.wait(lambda: "there" if browser.has("#left") else "", "it was not unlocked")


@contextlib.contextmanager
def without_scripts(browser: Browser) -> Iterator[None]:
    """Keep all scripts of pages from running for the length of the block; the driver's still run."""
    browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        yield
    finally:
        browser.cdp("Emulation.setScriptExecutionDisabled", value=False)


def rested(browser: Browser) -> None:
    """Wait until the buttons are active, by the page's script or, without one, by its style."""
    browser.wait(lambda: "awake" if browser.script(_AWAKE) else "", "the buttons stayed dead")


def overflow(browser: Browser) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(
        browser.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth") or 0
    )


def _bound(make: Callable[[], http.server.HTTPServer]) -> http.server.HTTPServer:
    """Return a server on a port that may not be free yet: a killed daemon's ingress keeps it until it notices."""

    def made() -> http.server.HTTPServer | None:
        try:
            return make()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None

    server = wait_until(made, "the port is free")
    assert server is not None
    return server


@contextlib.contextmanager
def elsewhere(
    page: Callable[[str], str],
    address: str = "127.0.0.1",
    port: int = 0,
    fields: Callable[[str], dict[str, str]] = lambda _path: {},
) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """Run another server on this machine, whose pages `page` writes by their path. Yield its port, and what it was sent.

    `fields` returns header fields of a response by its path, besides the type of a page.
    """
    seen: list[tuple[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, dict(self.headers)))
            body = page(self.path).encode()
            self.send_response(200)
            said = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body)), **fields(self.path)}
            for name, value in said.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore the error: a client that goes away is expected here."""

    server = _bound(lambda: Server((address, port), Handler))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
