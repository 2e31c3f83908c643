"""Attacks on an unlocked page by a page of another origin, another server on localhost and another process of the same user.

Each attack has a positive control in the same browser: the same form sent by the page, the same cookie from the browser.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.paging import base_of, elsewhere, unlocked
from tests.support.browser import Browser, needs_browser
from tests.support.home import DaemonHome
from tests.support.hostile_text import EVERYTHING, as_in_a_file
from tests.support.paged import paged_home, port_of
from tests.support.told import of_kind, state
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

REBOUND = "rebound.example"


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """Start a clean browser, for which a stranger's name leads to this machine."""
    needs_browser()
    with Browser(arguments=[f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"]) as opened:
        yield opened


def cookie_of(browser: Browser) -> str:
    """Return the session's cookie, as the browser has it; no script sees it."""
    found = browser.cdp("Network.getAllCookies")["cookies"]
    (session_cookie,) = [cookie for cookie in found if cookie["name"].startswith("aileron-page-")]
    assert (
        session_cookie["httpOnly"],
        session_cookie["sameSite"],
        session_cookie["path"],
        session_cookie["session"],
    ) == (True, "Strict", "/approvals", True)
    return f"{session_cookie['name']}={session_cookie['value']}"


# Pages of elsewhere


@pytest.mark.abuse_case("D28")
def test_a_form_sent_by_another_page_decides_nothing(home: DaemonHome, chromium: Browser) -> None:
    """The cookie is sent, because all ports of localhost are one site; the form's foreign Origin is refused."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    fields = chromium.script(
        "return Object.fromEntries(new FormData(document.querySelector('form.no')).entries())"
    )  # as if the attacker knew them
    inputs = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields.items())
    target = f"{base_of(home)}/approvals/{asked['approval_id']}/decide"
    page = f'<form id="f" method="post" action="{target}">{inputs}</form><script>document.getElementById("f").submit()</script>'
    with elsewhere(lambda _path: page) as (port, _):
        for host in ("localhost", "127.0.0.1"):
            chromium.open(f"http://{host}:{port}/")
            chromium.wait_url("/decide")
            assert "this address answers no other site" in chromium.text()
            assert state(home, asked) == "pending_approval"
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")  # still unlocked: nothing was done to it
    chromium.wait(lambda: "" if chromium.has("body.dead") else "awake", "the buttons stayed dead")
    chromium.click(".no button")
    chromium.wait(lambda: "denied" if "Denied" in chromium.text(".verdict") else "", "not denied")


@pytest.mark.abuse_case("D28")
def test_a_foreign_pages_script_can_neither_read_pages_nor_send_decisions(home: DaemonHome, chromium: Browser) -> None:
    """Fetches with and without CORS fail, also for updates; the same fetch from the page itself succeeds."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    address = f"{base_of(home)}/approvals/{asked['approval_id']}"
    attempt = """
        const [url, options] = arguments;
        return fetch(url, {credentials: "include", ...options})
          .then((a) => a.text().then((t) => [a.status, a.type, t.length]), (e) => ["refused", e.name]);
    """
    form = {"method": "POST", "body": "decision=deny", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    assert chromium.script(attempt, address, {})[0] == 200
    with elsewhere(lambda _path: "<p>elsewhere") as (port, _):
        chromium.open(f"http://localhost:{port}/")
        for url in (address, f"{base_of(home)}/approvals", f"{base_of(home)}/approvals/news"):
            assert chromium.script(attempt, url, {}) == ["refused", "TypeError"]
            blind = chromium.script(attempt, url, {"mode": "no-cors"})
            assert blind in (["refused", "TypeError"], [0, "opaque", 0]), blind
        for options in (form, {**form, "mode": "no-cors"}, {**form, "headers": {"X-Own": "1"}}):
            said = chromium.script(attempt, f"{address}/decide", options)
            assert said in (["refused", "TypeError"], [0, "opaque", 0]), said
    assert state(home, asked) == "pending_approval"


@pytest.mark.abuse_case("D28")
def test_another_page_can_neither_frame_the_page_nor_keep_a_reference_to_its_window(
    home: DaemonHome, chromium: Browser
) -> None:
    """A frame stays empty, against clickjacking, and a page that opened the window has no reference to it."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    address = f"{base_of(home)}/approvals/{asked['approval_id']}"
    page = f"""<p>click here</p><iframe id="f" src="{address}"></iframe><iframe id="own" src="/own"></iframe>
        <button onclick="window.held = window.open('{address}')">open</button>"""
    with elsewhere(lambda path: "<p id=own>mine" if path == "/own" else page) as (port, _):
        chromium.open(f"http://localhost:{port}/")
        for frame, wanted in (("#f", False), ("#own", True)):
            element = chromium._do("POST", "/element", {"using": "css selector", "value": frame})
            chromium._do("POST", "/frame", {"id": element})
            text = chromium.script("return document.body ? document.body.innerText : ''")
            assert ("Effect" in text or "mine" in text) is wanted, (frame, text)
            chromium._do("POST", "/frame", {"id": None})
        mine = chromium.tab
        chromium.click("button")
        handles = chromium.wait(
            lambda: json.dumps(found) if len(found := chromium._do("GET", "/window/handles")) > 1 else "", "no window"
        )
        assert chromium.wait(
            lambda: "cut" if chromium.script("return held.closed") else "", "the opener holds the page's window"
        )
        (other,) = set(json.loads(handles)) - {mine}
        chromium.switch(other)
        chromium.wait(lambda: "seen" if chromium.text("h1") == "Effect" else "", "the page itself was not shown")
        assert chromium.script("return window.opener") is None
    assert state(home, asked) == "pending_approval"


@pytest.mark.abuse_case("D28")
def test_a_host_name_rebound_to_this_machine_is_refused(home: DaemonHome, chromium: Browser) -> None:
    """The name's pages would have the attacker's own origin and could read everything; the page's own names are served."""
    unlocked(chromium, home)
    chromium.open(f"http://{REBOUND}:{port_of(home)}/approvals")
    assert chromium.text() == "this address is served under its own names only"
    chromium.open(f"{base_of(home)}/approvals")
    assert chromium.has("#left")


# Who had the port while no daemon ran

_WORKER = """
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => new URL(event.request.url).pathname === "/approvals" && event.respondWith(
  new Response("<h1>of the worker</h1>", { headers: { "Content-Type": "text/html" } })));
"""
_LEAVES = """<h1>of another program</h1><script>
navigator.serviceWorker.register("SCRIPT", { scope: "/", updateViaCache: "CACHE" })
  .then(() => navigator.serviceWorker.ready).then(() => { document.title = "left"; });
</script>"""
_YEAR = {"Cache-Control": "public, max-age=31536000, immutable"}
_WORKERS = "return navigator.serviceWorker.getRegistrations().then((all) => all.length)"


def of_a_worker(path: str) -> dict[str, str]:
    """Return fields of a worker's script that may respond for the whole origin, and stay for a year."""
    return {"Content-Type": "text/javascript", "Service-Worker-Allowed": "/", **_YEAR} if path.endswith(".js") else {}


def shows(browser: Browser, home: DaemonHome, path: str = "") -> str:
    """Return the heading that the browser shows at an address of the page."""
    browser.open(f"{base_of(home)}/approvals{path}")
    return browser.text("h1")


@pytest.mark.abuse_case("D38")
@pytest.mark.parametrize("script", ["/worker.js", "/some/where/worker.js", "/v1/worker.js"])
def test_an_earlier_programs_service_worker_removes_itself_on_update(
    chromium: Browser, upstream: CountingServer, script: str
) -> None:
    """The worker answers once in the daemon's place; then the browser fetches its script, which unregisters it."""
    with paged_home(upstream) as own:
        port, address = port_of(own), f"{base_of(own)}/approvals"
        own.kill()
        page = _LEAVES.replace("SCRIPT", script).replace("CACHE", "none")
        with elsewhere(lambda path: _WORKER if path == script else page, port=port, fields=of_a_worker):
            chromium.open(address)
            chromium.wait(lambda: chromium.title.replace("left", "so") if chromium.title == "left" else "", "no worker")
        own.unlock()
        assert shows(chromium, own) == "of the worker"
        until = time.monotonic() + 60
        while shows(chromium, own) == "of the worker":
            assert time.monotonic() < until
            time.sleep(3)  # a browser waits for a moment without requests before it updates a worker
        assert chromium.has("#passphrase")
        assert chromium.script(_WORKERS) == 0


@pytest.mark.abuse_case("D38")
def test_another_programs_workers_and_cached_pages_are_cleared_before_unlocking(
    chromium: Browser, upstream: CountingServer
) -> None:
    """A worker that never updates and a page cached for a year are shown until the daemon sends any page."""
    with paged_home(upstream) as own:
        port, address = port_of(own), f"{base_of(own)}/approvals"
        own.kill()
        page = _LEAVES.replace("SCRIPT", "/worker.js").replace("CACHE", "all")

        def fields(path: str) -> dict[str, str]:
            return _YEAR if path == "/approvals/passkeys" else of_a_worker(path)

        with elsewhere(lambda path: _WORKER if path == "/worker.js" else page, port=port, fields=fields):
            for path in ("", "/passkeys"):
                chromium.open(address + path)
                chromium.wait(lambda: "so" if chromium.title == "left" else "", "no worker")
        own.unlock()
        assert shows(chromium, own, "/passkeys") == "of another program"
        assert shows(chromium, own) == "of the worker"
        assert shows(chromium, own, "/act-20260101T000000-00000000000000000000") == "A request may be waiting for you"
        for path in ("", "/passkeys"):
            assert shows(chromium, own, path) == "A request may be waiting for you"
        assert chromium.script(_WORKERS) == 0


def test_clearing_another_programs_data_ends_no_page_session(home: DaemonHome, chromium: Browser) -> None:
    """Cookies are kept: another name of the page asks for the passphrase, and the first one stays unlocked."""
    unlocked(chromium, home)
    chromium.open(f"{base_of(home, '127.0.0.1')}/approvals")
    assert chromium.has("#passphrase")
    chromium.open(f"{base_of(home)}/approvals")
    assert chromium.has("#left")


# Another server on localhost, and another process of the same user

_THIEF = """
import http.client, sys
port, cookie = int(sys.argv[1]), sys.argv[2]
for method, path in (("GET", "/approvals"), ("GET", "/approvals/news")):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": f"localhost:{port}", "Cookie": cookie, "Sec-Fetch-Site": "none"})
    answer = connection.getresponse()
    print(answer.status, "What waits for you" in answer.read().decode())
"""


def stolen(port: int, cookie: str) -> list[str]:
    """Return the responses to another process that has the cookie."""
    words = [sys.executable, "-c", _THIEF, str(port), cookie]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


@pytest.mark.abuse_case("D26")
def test_a_cookie_sent_to_another_server_on_localhost_is_useless(home: DaemonHome, chromium: Browser) -> None:
    """Cookies are not bound to ports: a server that has the person open its own /approvals is sent the cookie.

    Another process then has the cookie and is refused; the page is locked and says why.
    """
    unlocked(chromium, home)
    real = cookie_of(chromium)
    with elsewhere(lambda _path: "<p>look") as (port, seen):
        chromium.open(f"http://localhost:{port}/approvals")
        (sent,) = [headers.get("Cookie", "") for path, headers in seen if path == "/approvals"]
    assert real in sent
    chromium.open(f"{base_of(home)}/approvals")
    assert chromium.has("#left")
    since = len(of_kind(home, "approval.refused"))
    assert stolen(port_of(home), real) == ["403 False", "401 False"]
    assert [(event["decision"], event["reason"]) for event in of_kind(home, "approval.refused")[since:]] == [
        ("page", "process")
    ]
    chromium.open(f"{base_of(home)}/approvals")
    assert "its cookie came from another program than this browser" in chromium.text(".note")


@pytest.mark.abuse_case("D26")
def test_files_of_the_browsers_profile_cannot_unlock_the_page(home: DaemonHome, chromium: Browser) -> None:
    """The profile has neither the passphrase nor what was shown, and no cookie; the live cookie is refused to another process."""
    asked = home.asked("say", {"text": "the-shown-argument-of-this-question"})
    unlocked(chromium, home, asked["approval_id"])
    real = cookie_of(chromium)
    value = real.partition("=")[2].encode()
    profile = Path(chromium._folder.name)
    found: dict[str, list[str]] = {}
    for file in profile.rglob("*"):
        if file.is_file() and not file.is_symlink():
            data = file.read_bytes()
            for what, needle in (
                ("cookie", value),
                ("passphrase", b"nine green bottles"),
                ("shown", b"the-shown-argument"),
            ):
                if needle in data:
                    found.setdefault(what, []).append(str(file.relative_to(profile)))
    assert "passphrase" not in found, found
    assert "shown" not in found, found  # nothing of a page is kept
    names = {row[0] for row in _cookies(profile)}
    assert not any(name.startswith("aileron-page") for name in names), names  # a session's cookie is in memory only
    with_profile = stolen(port_of(home), real)  # and if it were there
    assert with_profile == ["403 False", "401 False"]
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    assert chromium.has("#passphrase")
    assert of_kind(home, "page.locked")[-1]["reason"] == "process"


def test_an_unlocked_page_session_is_valid_in_all_tabs_of_its_browser_but_in_no_other_browser(
    home: DaemonHome, chromium: Browser
) -> None:
    """A session is bound to the browser's network process. A second browser must unlock the page for itself."""
    unlocked(chromium, home)
    pid = of_kind(home, "page.unlocked")[-1]["pid"]
    for _ in range(3):
        chromium.new_tab()
        chromium.open(f"{base_of(home)}/approvals")
        assert chromium.has("#left")
    assert os.path.exists(f"/proc/{pid}")
    assert b"network" in Path(f"/proc/{pid}/cmdline").read_bytes()
    with Browser() as second:
        second.open(f"{base_of(home)}/approvals")
        assert second.has("#passphrase")
        name, _, value = cookie_of(chromium).partition("=")
        second.cdp(
            "Network.setCookie",
            name=name,
            value=value,
            url=f"{base_of(home)}/approvals",
            path="/approvals",
            httpOnly=True,
        )
        second.open(f"{base_of(home)}/approvals")
        assert "This page is locked." in second.text("h1")
    chromium.open(f"{base_of(home)}/approvals")
    assert chromium.has("#passphrase")


def _cookies(profile: Path) -> list[tuple[str]]:
    for file in profile.rglob("Cookies"):
        with contextlib.closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as database:
            return list(database.execute("select name from cookies"))
    return []


def test_an_agents_text_runs_no_script_and_loads_nothing_on_the_page(home: DaemonHome, chromium: Browser) -> None:
    """The whole hostile corpus is shown as text. An inserted element would not run either, although it runs elsewhere."""
    asked = home.asked("say", {"text": as_in_a_file(EVERYTHING)})
    unlocked(chromium, home, asked["approval_id"])
    loaded = chromium.script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert all(name.startswith(f"{base_of(home)}/approvals/news?") for name in loaded), loaded
    assert "<script>fetch('/v1/action-approvals/a/decide')</script>" in chromium.text("main")
    assert (
        chromium.script("return document.querySelectorAll('img, svg, iframe, base, main script, main style').length")
        == 0
    )
    inserted = """
        const made = document.createElement("script");
        made.textContent = "window.ran = true";
        document.body.append(made);
        const shown = new Image();
        shown.src = location.origin + "/healthz?shown";
        return [window.ran === true, document.body.append(shown)][0];
    """
    assert chromium.script(inserted) is False
    with elsewhere(lambda _path: "<p>elsewhere") as (port, _):
        chromium.open(f"http://localhost:{port}/")
        assert chromium.script(inserted) is True
    assert state(home, asked) == "pending_approval"
