"""Sign-ins of a person at a real provider, on its pages in a real browser; then a service is asked with the tokens."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.browser.desk import MINE, SCOPES, WORK, Desk, desk
from tests.browser.person import MIRA, NOOR, agrees, signs_in, types_a_code
from tests.support.browser import Browser, BrowserError
from tests.support.descendants import read_descendants
from tests.support.provider import CONFIDENTIAL, Provider
from tests.support.upstream import Upstream, answer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.jail]
DONE = "You are signed in."
NOT_DONE = "You are not signed in."
STRANGE = "This page does not belong to a sign-in in progress."


def _parts(url: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))


def test_a_sign_in_connects_an_account_that_the_service_recognizes(at_desk: Desk, browser: Browser) -> None:
    """The request has S256, a state and a temporary port; the last page says that it worked; the service sees the account."""
    unbound = at_desk.whoami()

    begun = at_desk.begin()
    asked = _parts(begun["authorize_url"])
    signs_in(browser, begun["authorize_url"])
    agrees(browser)
    browser.wait_url("/callback")
    page, over = browser.text(), at_desk.ended(begun)
    used = at_desk.whoami()

    assert unbound.body["error"]["class"] == "binding_required"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"].startswith("http://localhost:")
    assert len(asked["state"]) >= 43
    assert DONE in page
    assert (over["status"], over["result"]["account"]) == ("done", MIRA)
    assert used.body["result"]["account"] == MIRA
    assert at_desk.binding()["grant"]["scopes"] == sorted(SCOPES)
    assert at_desk.binding()["state"] == "ok"


def test_the_connector_sees_no_token_even_if_the_service_repeats_it(at_desk: Desk, browser: Browser) -> None:
    """The request carries the token; in everything that comes back, asterisks replace it."""
    at_desk.sign_in(browser)
    (token,) = at_desk.provider.tokens("access_token")

    reflected = at_desk.home.run("reflect")

    assert f"Bearer {token}" in at_desk.mail.requests[-1].values("authorization")
    assert token not in str(reflected.body)
    assert "*" * len(token) in reflected.body["result"]["body"]
    assert "*" * len(token) in str(reflected.body["result"]["headers"])


def _memory_of(process: psutil.Process) -> Iterator[bytes]:
    """Yield the readable memory of a process, a mapping at a time. OSError if it may not be read."""
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as maps, open(f"/proc/{process.pid}/mem", "rb") as memory:
        for line in maps:
            span, access, *_ = line.split()
            first, end = (int(bound, 16) for bound in span.split("-"))
            if access.startswith("r") and first < 1 << 47:
                with contextlib.suppress(OSError):  # [vvar] and the like
                    memory.seek(first)
                    yield memory.read(end - first)


def _is_in(process: psutil.Process, *tokens: bytes) -> bool:
    return any(token in part for part in _memory_of(process) for token in tokens)


@pytest.mark.skipif(os.geteuid() != 0, reason="nobody else may read it")
def test_no_token_is_in_the_memory_of_a_jail(at_desk: Desk, browser: Browser) -> None:
    """The search runs during the request with the token. As control, it finds the token in the daemon."""
    at_desk.sign_in(browser)
    tokens = [value.encode() for value in at_desk.provider.tokens("access_token", "refresh_token")]
    at_desk.mail.may_answer.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(at_desk.whoami)
        try:
            wait_until(lambda: at_desk.mail.requests, "the service is asked")
            daemon = psutil.Process(at_desk.home.daemon_pid)
            found = read_descendants(daemon.pid, lambda process: _is_in(process, *tokens))
            control = _is_in(daemon, *tokens)
        finally:
            at_desk.mail.may_answer.set()

    assert len(found) >= 2
    assert not any(found.values()), found
    assert control
    assert running.result().body["result"]["account"] == MIRA


def test_a_denied_sign_in_says_what_to_do(at_desk: Desk, browser: Browser) -> None:
    """The page and the error agree; nothing is bound, and the next sign-in works."""
    begun = at_desk.begin()
    signs_in(browser, begun["authorize_url"])
    agrees(browser, "deny")
    browser.wait_url("/callback")
    page, over = browser.text(), at_desk.ended(begun)

    assert NOT_DONE in page
    assert over["status"] == "failed"
    assert over["error"]["class"] == "binding_failed"
    assert "access was denied at" in over["error"]["message"]
    assert "aileron binding setup" in over["error"]["message"]
    assert at_desk.home.must("GET", "/v1/bindings") == {"bindings": []}
    assert at_desk.sign_in(browser)["result"]["account"] == MIRA


def test_a_sign_in_with_a_missing_scope_binds_nothing(at_desk: Desk, browser: Browser) -> None:
    """The error names the missing scope, and nothing is bound."""
    begun = at_desk.begin()
    signs_in(browser, begun["authorize_url"])
    agrees(browser, without=["mail.send"])
    browser.wait_url("/callback")
    over = at_desk.ended(begun)

    assert over["error"]["class"] == "binding_failed"
    assert "missing: mail.send" in over["error"]["message"]
    assert at_desk.home.must("GET", "/v1/bindings") == {"bindings": []}


def test_a_second_tab_cannot_complete_the_same_sign_in(at_desk: Desk, browser: Browser) -> None:
    """The first tab that comes back completes it, and the port is closed for the other."""
    begun = at_desk.begin()
    browser.open(begun["authorize_url"])
    first = browser.tab
    second = browser.new_tab()
    signs_in(browser, begun["authorize_url"])
    browser.switch(first)
    signs_in(browser, begun["authorize_url"])
    agrees(browser)
    browser.wait_url("/callback")
    over, used = at_desk.ended(begun), at_desk.whoami()
    browser.switch(second)
    with contextlib.suppress(BrowserError):  # the page that says so may be one
        agrees(browser)

    browser.wait(lambda: "yes" if "ERR_CONNECTION_REFUSED" in browser.text() else "", "it was answered once more")
    assert over["status"] == "done"
    assert used.body["result"]["account"] == MIRA  # before: a second yes ends at this provider what the first one gave
    assert at_desk.provider.asked("token") == [200]


def test_an_authorization_code_from_the_browsers_history_is_useless(at_desk: Desk, browser: Browser) -> None:
    """The port is closed to a code found in the browser's history, and the provider wants a verifier that never left the
    daemon.
    """
    begun = at_desk.begin()
    signs_in(browser, begun["authorize_url"])
    agrees(browser)
    found = browser.wait_url("/callback")
    assert at_desk.ended(begun)["status"] == "done"

    with pytest.raises(BrowserError, match="ERR_CONNECTION_REFUSED"):
        browser.open(found)
    asked = _parts(begun["authorize_url"])
    form = {"grant_type": "authorization_code", "code": _parts(found)["code"], "redirect_uri": asked["redirect_uri"]}
    stolen = at_desk.provider.post("token", {**form, "client_id": asked["client_id"], "code_verifier": "x" * 43})

    assert stolen["error"] == "invalid_grant"


_FORM = """<form id="{0}" method="{0}" target="hidden" action="{1}"><input name="code" value="theirs">
<input name="state" value="x"></form>"""
_TRY = """
const [callback] = arguments;
const ends = [];
const note = (promise) => ends.push(promise.then((r) => r.type, () => 'blocked'));
for (const method of ['GET', 'POST', 'HEAD']) {
  note(fetch(callback + '?code=theirs&state=x', {method, mode: 'no-cors'}));
  note(fetch(callback + '?error=access_denied', {method, mode: 'no-cors'}));
  note(fetch(callback, {method, mode: 'cors', headers: {'x-own': '1'}}));
}
ends.push(new Promise((done) => {
  const img = new Image();
  img.onload = img.onerror = () => done('image');
  img.src = callback + '?code=theirs&state=x';
}));
for (const id of ['post', 'get']) document.getElementById(id).submit();
return Promise.all(ends);
"""


def test_a_strangers_page_cannot_answer_for_the_provider(at_desk: Desk, browser: Browser) -> None:
    """Requests, images and forms of another page in the browser can read nothing, and do not end the sign-in."""
    begun = at_desk.begin()
    callback = _parts(begun["authorize_url"])["redirect_uri"]
    forms = "".join(_FORM.format(method, callback) for method in ("post", "get"))
    page = f'<!doctype html><title>a page</title><iframe name="hidden"></iframe>{forms}'.encode()
    with Upstream(lambda _seen: answer(page, "Content-Type: text/html")) as stranger:
        browser.open(f"http://127.0.0.1:{stranger.port}/")
        tried = browser.script(_TRY, callback)
        browser.open(f"{callback}?code=theirs&state=x&iss={at_desk.provider.issuer}")
        shown = browser.text()
    waiting = at_desk.home.must("GET", f"/v1/sign-ins/{begun['id']}")
    signs_in(browser, begun["authorize_url"])
    agrees(browser)
    browser.wait_url("/callback")

    assert set(tried) <= {"opaque", "blocked", "image"}
    assert STRANGE in shown
    assert waiting["status"] == "waiting"
    assert at_desk.ended(begun)["result"]["account"] == MIRA
    assert at_desk.provider.asked("token") == [200]


def test_a_host_name_rebound_to_this_machine_is_refused_by_the_callback_port(at_desk: Desk, provider: Provider) -> None:
    """A page under that name could read the port's responses, so the port serves only its own name."""
    begun = at_desk.begin()
    asked = _parts(begun["authorize_url"])
    right = f"/callback?error=access_denied&state={asked['state']}&iss={provider.issuer}"
    port = urllib.parse.urlsplit(asked["redirect_uri"]).port
    with Browser(arguments=["--host-resolver-rules=MAP evil.example 127.0.0.1"]) as browser:
        browser.open(f"http://evil.example:{port}{right}")
        status = browser.script("return performance.getEntriesByType('navigation')[0].responseStatus")
        waiting = at_desk.home.must("GET", f"/v1/sign-ins/{begun['id']}")["status"]
        browser.open(f"http://localhost:{port}{right}")

    assert (status, waiting) == (421, "waiting")
    assert at_desk.ended(begun)["error"]["details"]["code"] == "access_denied"


def test_a_callback_with_another_issuer_is_refused(at_desk: Desk, browser: Browser) -> None:
    """The state is right, but the issuer is wrong or missing (a mix-up attack), so the code is sent nowhere."""
    for issuer in ("&iss=https://evil.example", ""):
        begun = at_desk.begin()
        asked = _parts(begun["authorize_url"])
        browser.open(f"{asked['redirect_uri']}?code=theirs&state={asked['state']}{issuer}")
        page, over = browser.text(), at_desk.ended(begun)

        assert NOT_DONE in page
        assert over["error"]["class"] == "binding_failed"
        assert over["error"]["details"]["code"] == "issuer_mismatch"
    assert at_desk.provider.asked("token") == []


def test_a_run_must_name_the_account_if_two_are_connected(at_desk: Desk, browser: Browser, provider: Provider) -> None:
    """Aileron must not guess. Each account has its own browser session."""
    at_desk.sign_in(browser, MINE)
    with Browser([provider.certificate]) as other:
        at_desk.sign_in(other, WORK, NOOR)

    unsaid = at_desk.whoami()
    said = [
        at_desk.home.ask("POST", "/v1/actions/whoami/run?wait=20", {"args": {}, "binding": name}, wait_s=20)
        for name in ("mine", WORK)
    ]

    assert unsaid.body["error"]["class"] == "binding_required"
    assert [response.body["result"]["account"] for response in said] == [MIRA, NOOR]


def test_a_sign_in_of_an_application_with_a_client_secret_connects_the_account(
    provider: Provider, browser: Browser, tmp_path: Path
) -> None:
    """The secret is in the manifest, and is sent to the token endpoint."""
    with desk(provider, tmp_path, client=CONFIDENTIAL) as at_desk:
        at_desk.sign_in(browser)

        assert at_desk.whoami().body["result"]["account"] == MIRA


def test_a_device_code_connects_an_account(at_desk: Desk, browser: Browser) -> None:
    """The device grant gives an address and a code, for a browser on any machine."""
    begun = at_desk.begin(flow="device")
    types_a_code(browser, begun["verification_uri"], begun["user_code"])
    agrees(browser)
    browser.wait(lambda: "yes" if "Success" in browser.text() else "", "no success")
    over = at_desk.ended(begun)

    assert over["result"]["account"] == MIRA
    assert at_desk.whoami().body["result"]["account"] == MIRA


def test_a_denied_device_code_is_reported(at_desk: Desk, browser: Browser) -> None:
    """The error says that access was denied."""
    begun = at_desk.begin(flow="device")
    types_a_code(browser, begun["verification_uri_complete"], begun["user_code"])
    agrees(browser, "deny")
    over = at_desk.ended(begun)

    assert over["error"]["class"] == "binding_failed"
    assert "access was denied at" in over["error"]["message"]


def test_a_cancelled_sign_in_leaves_nothing_behind(at_desk: Desk, browser: Browser) -> None:
    """The port is closed, and the name is free."""
    begun = at_desk.begin()
    busy = at_desk.home.ask("POST", "/v1/sign-ins", {"connector": begun["connector"], "name": MINE, "flow": "browser"})

    ended = at_desk.home.must("DELETE", f"/v1/sign-ins/{begun['id']}")
    with pytest.raises(BrowserError, match="ERR_CONNECTION_REFUSED"):
        browser.open(_parts(begun["authorize_url"])["redirect_uri"])

    assert busy.body["error"]["class"] == "busy"
    assert ended["status"] == "cancelled"
    assert at_desk.sign_in(browser)["status"] == "done"
