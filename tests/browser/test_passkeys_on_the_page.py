"""Passkeys on the page in a real Chromium: creation, enrollment and use, and refused uses beside accepted ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.paging import base_of, elsewhere, rested, unlocked, without_scripts
from tests.support.browser import Browser
from tests.support.home import DaemonHome
from tests.support.paged import PageClient
from tests.support.passkeys import Device
from tests.support.told import of_kind, state
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

_TOLD = """
const [path, css] = arguments;
const form = css ? document.querySelector(css) : null;
const body = new URLSearchParams(form ? new FormData(form) : {});
return fetch(path || form.dataset.challenge, {method: "POST", body}).then((answer) => answer.json());
"""
"""Script that returns what the page's own script is told: at a path, or for the form that decides."""
_SIGN = """
const [{publicKey}, userVerification] = arguments;
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const allowCredentials = publicKey.allowCredentials.map((one) => ({...one, id: bytes(one.id)}));
const challenge = bytes(publicKey.challenge);
return navigator.credentials.get({publicKey: {...publicKey, challenge, allowCredentials, userVerification}})
  .then(({response: r}) => [r.signature, r.authenticatorData, r.clientDataJSON].map(text).join("."));
"""
_MAKE = """
const {publicKey} = arguments[0];
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
return navigator.credentials.create({publicKey: {...publicKey, challenge: bytes(publicKey.challenge),
    user: {...publicKey.user, id: bytes(publicKey.user.id)},
    excludeCredentials: publicKey.excludeCredentials.map((one) => ({...one, id: bytes(one.id)}))}})
  .then(({response: r}) => ({client_data: text(r.clientDataJSON), attestation: text(r.attestationObject),
    transports: r.getTransports()}));
"""
_SEND = """
const [css, fields] = arguments;
const form = document.querySelector(css);
for (const [name, value] of Object.entries(fields)) {
  const field = form.querySelector(`input[name="${name}"]`) || form.appendChild(document.createElement("input"));
  Object.assign(field, {name, value});
}
form.submit();
"""
_REFUSED = """
const [css, fields] = arguments;
const form = document.querySelector(css);
const body = new URLSearchParams(new FormData(form));
for (const [name, value] of Object.entries(fields)) body.set(name, value);
return fetch(form.dataset.challenge, {method: "POST", body}).then((answer) => answer.text());
"""


@pytest.fixture
def chromium(browser: Browser) -> Iterator[Browser]:
    """Provide a browser with a device that knows its user."""
    with browser.authenticator():
        yield browser


@pytest.fixture(autouse=True)
def no_passkeys_before(home: DaemonHome) -> None:
    """Revoke all passkeys before each test."""
    for passkey in home.must("GET", "/v1/passkeys")["passkeys"]:
        home.must("DELETE", f"/v1/passkeys/{passkey['id']}")


def press(browser: Browser, css: str) -> None:
    """Press a button once the buttons are active."""
    browser.wait(lambda: "" if browser.has("body.dead") else "awake", "the buttons stayed dead")
    browser.script(
        "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", css
    )  # from below the bar
    browser.click(css)


def seen(browser: Browser, css: str, part: str) -> str:
    """Wait until this text can be read there, and return it."""
    return browser.wait(lambda: text if part in (text := browser.text(css)) else "", f"no {part!r} in {css}")


def enrolled(browser: Browser, home: DaemonHome, name: str = "laptop") -> str:
    """Create a passkey of this browser on the page, approve it there with the approver's key, and return its id. The page
    stays unlocked.
    """
    unlocked(browser, home)
    browser.click(".aside a")
    browser.fill("#name", name)
    browser.click("form.add button")
    seen(browser, "h1", f"passkey “{name}”")
    key_id = browser.text(".note").partition("counted its key to be ")[2].partition(".")[0]
    assert key_id.startswith("webauthn:")
    assert key_id in browser.text(".known")  # what the daemon asks about
    press(browser, ".yes button.go")
    browser.wait_url("digest=")
    if browser.has("#word"):
        browser.fill("#word", browser.text("label code"))
    press(browser, ".yes button.go")
    seen(browser, ".verdict", "✓ done")
    assert [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"] if passkey["name"] == name] == [
        key_id
    ]
    return key_id


def given(browser: Browser, home: DaemonHome, name: str = "laptop") -> str:
    """Create and approve a passkey without the page's forms, and return its id. No session is unlocked in this browser."""
    browser.open(f"{base_of(home)}/approvals")
    made = browser.script(_MAKE, home.must("POST", "/v1/passkeys/options", {"name": name}))
    return agreed(home, home.must("POST", "/v1/passkeys", made), name)


def agreed(home: DaemonHome, asked: dict[str, Any], name: str) -> str:
    """Approve the passkey with the approver's key, from another page, and return its id."""
    person = PageClient(home)
    page = person.unlock(to=asked["approval_id"])
    confirm = person.submit(page.form("/approve")).form("/decide")
    person.submit(confirm, **({"word": "allow"} if "word" in confirm.fields else {}))
    (key_id,) = [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"] if passkey["name"] == name]
    return str(key_id)


def knows(browser: Browser, device: str, is_verified: bool) -> None:
    """Set whether the device recognises its user from now on."""
    browser._do("POST", f"/webauthn/authenticator/{device}/uv", {"isUserVerified": is_verified})


def send(browser: Browser, css: str, told: dict[str, Any], signature: str) -> None:
    """Submit a form of the page with this assertion, bypassing the page's script, and wait for the next page."""
    fields: dict[str, Any] = {name: told[name] for name in ("nonce", "at") if name in told}
    if css == "form[data-does=unlock]":
        fields["to"] = ""
    browser.script("window.isBefore = true")
    browser.script(_SEND, css, {**fields, "key_id": told["statements"][0]["key_id"], "signature": signature})
    browser.wait(lambda: "" if browser.script("return window.isBefore === true") else "next", "the form led nowhere")


def shown_buttons(browser: Browser) -> list[str]:
    """Return the visible buttons that use a passkey."""
    found: list[str] = browser.script(
        "return [...document.querySelectorAll('button[data-passkey]')].filter((e) => e.getClientRects().length)"
        ".map((e) => e.textContent.trim())"
    )
    return found


def choose(browser: Browser, name: str) -> None:
    """Press the button of that passkey."""
    find = "[...document.querySelectorAll('button[data-passkey]')].find((e) => e.textContent.endsWith(arguments[0]))"
    browser.script(f"{find}.click()", name)


def refusals(home: DaemonHome, since: int) -> list[tuple[str, str]]:
    """Return the refusals after the first `since` ones."""
    return [(event["decision"], event["reason"]) for event in of_kind(home, "approval.refused")[since:]]


def cookie_of(browser: Browser) -> str:
    """Return the session's cookie, as the browser has it."""
    found = browser.cdp("Network.getAllCookies")["cookies"]
    (session_cookie,) = [cookie for cookie in found if cookie["name"].startswith("aileron-page-")]
    return f"{session_cookie['name']}={session_cookie['value']}"


def locked(browser: Browser) -> None:
    """Press Lock, and wait until the page is locked."""
    browser.click(".bar button")
    browser.wait(lambda: "locked" if browser.has("#passphrase") else "", "not locked")


def unlocked_by_touch(browser: Browser, home: DaemonHome, path: str = "") -> None:
    """Unlock the page with the passkey."""
    browser.open(f"{base_of(home)}/approvals{path and '/' + path}")
    browser.click("button[data-passkey]")
    browser.wait(lambda: "there" if browser.has("#left") else "", "it was not unlocked")


def approved_by_touch(browser: Browser, word: str = "") -> None:
    """Do the two steps of an approval, the second with the passkey."""
    press(browser, ".yes button.go")
    browser.wait_url("digest=")
    if word:
        browser.fill("#word", word)
    press(browser, ".yes button[data-passkey]")


# What counts


def test_a_passkey_is_created_and_enrolled_then_unlocks_and_decides(
    home: DaemonHome, chromium: Browser, upstream: CountingServer
) -> None:
    """A question is previewed and decided without the approver's key, and the record verifies."""
    upstream.page = "pay 90 to mira@example.com"
    key_id = enrolled(chromium, home)
    locked(chromium)
    asked = home.asked("previewed", {"path": "/effect/lunch"})
    before = upstream.effects
    unlocked_by_touch(chromium, home, asked["approval_id"])
    assert "pay 90 to mira@example.com" in chromium.text(".known")
    assert not chromium.has(".no button.stop:not([data-passkey])")
    approved_by_touch(chromium, "yes")
    seen(chromium, ".verdict", "✓ done")
    assert home.result(asked)["status"] == "completed"
    assert upstream.effects == before + 1
    decided = of_kind(home, "approval.decided")[-1]
    assert (decided["surface"], decided["key_id"]) == ("page", key_id)
    assert of_kind(home, "page.unlocked")[-1]["key_id"] == key_id
    environment = {**os.environ, "AILERON_HOME": str(home.path)}
    words = [sys.executable, "-m", "aileron", "audit", "verify"]
    verified = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_passkey_approves_and_denies_beside_the_approvers_key(home: DaemonHome, chromium: Browser) -> None:
    """A session with an open key offers both ways; the reason is part of what is signed."""
    key_id = given(chromium, home)
    yes, no = home.asked("mild"), home.asked("mild")
    unlocked(chromium, home, yes["approval_id"])
    press(chromium, ".yes button.go")
    chromium.wait_url("digest=")
    assert chromium.has(".yes button.go:not([hidden])")
    press(chromium, ".yes button[data-passkey]")
    seen(chromium, ".verdict", "✓ done")
    chromium.open(f"{base_of(home)}/approvals/{no['approval_id']}")
    chromium.fill("#reason", "not\nnow")
    press(chromium, "button[form=no][data-passkey]")
    seen(chromium, ".verdict", "Denied")
    assert home.result(yes)["status"] == "completed"
    assert home.result(no)["reason"] == "not\nnow"
    assert [event["key_id"] for event in of_kind(home, "approval.decided")[-2:]] == [key_id] * 2


def test_the_person_chooses_among_several_passkeys_by_name(home: DaemonHome, chromium: Browser) -> None:
    """A challenge is for one passkey, so the person says which device they have with them."""
    here = given(chromium, home, "laptop")
    other = Device(home)
    assert agreed(home, other.made("phone").body, "phone") == other.key_id
    asked = home.asked("mild")
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    press(chromium, "button[data-passkey]")
    wanted = ["Unlock with laptop", "Unlock with phone"]
    chromium.wait(lambda: "so" if sorted(shown_buttons(chromium)) == wanted else "", "no choice")
    choose(chromium, "phone")
    assert "Nothing was done" in seen(chromium, ".told", "!")
    choose(chromium, "laptop")
    chromium.wait(lambda: "there" if chromium.has("#left") else "", "it was not unlocked")
    assert of_kind(home, "page.unlocked")[-1]["key_id"] == here
    press(chromium, f'button[form=no][data-passkey="{here}"]')
    seen(chromium, ".verdict", "Denied")
    assert of_kind(home, "approval.decided")[-1]["key_id"] == here


# What does not


@pytest.mark.abuse_case("D36")
def test_a_device_that_does_not_verify_its_user_cannot_unlock_or_decide(home: DaemonHome, browser: Browser) -> None:
    """The browser refuses, and so does the daemon if a script requests less; once verified, both succeed."""
    chromium = browser
    with chromium.authenticator() as device:
        given(chromium, home)
        asked = home.asked("mild")
        knows(chromium, device, False)
        chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
        press(chromium, "button[data-passkey]")
        assert "Nothing was done" in seen(chromium, ".told", "!")
        since = len(of_kind(home, "approval.refused"))
        told = chromium.script(_TOLD, "/approvals/passkeys/unlocking", None)
        send(chromium, "form[data-does=unlock]", told, chromium.script(_SIGN, told["statements"][0], "discouraged"))
        assert "the device did not verify the person" in seen(chromium, ".note.alarm", "!")
        knows(chromium, device, True)
        unlocked_by_touch(chromium, home, asked["approval_id"])
        knows(chromium, device, False)
        told = chromium.script(_TOLD, None, ".no")
        send(chromium, ".no", told, chromium.script(_SIGN, told["statements"][0], "discouraged"))
        assert "the device did not verify the person" in seen(chromium, ".note.alarm", "!")
        assert state(home, asked) == "pending_approval"
        assert refusals(home, since) == [("unlock", "signature"), ("deny", "signature")]
        knows(chromium, device, True)
        chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
        press(chromium, ".no button[data-passkey]")
        seen(chromium, ".verdict", "Denied")


@pytest.mark.abuse_case("D36")
def test_an_assertion_made_for_a_page_of_another_port_is_refused(home: DaemonHome, chromium: Browser) -> None:
    """Browsers let every port of localhost use the passkey, so another page gets an assertion for this challenge."""
    given(chromium, home)
    asked = home.asked("mild")
    address = f"{base_of(home)}/approvals/{asked['approval_id']}"
    unlocked_by_touch(chromium, home, asked["approval_id"])
    told = chromium.script(_TOLD, None, ".no")
    since = len(of_kind(home, "approval.refused"))
    with elsewhere(lambda _path: "<p>elsewhere") as (port, _):
        chromium.open(f"http://localhost:{port}/")
        lent = chromium.script(_SIGN, told["statements"][0], "required")
    assert lent.count(".") == 2
    chromium.open(address)
    send(chromium, ".no", told, lent)
    assert f"http://localhost:{port}" in seen(chromium, ".note.alarm", "!")
    assert (state(home, asked), refusals(home, since)) == ("pending_approval", [("deny", "signature")])
    chromium.open(address)
    send(chromium, ".no", told, chromium.script(_SIGN, told["statements"][0], "required"))  # the same challenge, here
    seen(chromium, ".verdict", "Denied")


@pytest.mark.abuse_case("D36")
def test_an_assertion_for_one_question_is_refused_for_another(home: DaemonHome, chromium: Browser) -> None:
    """An assertion does not serve for another decision either; for its own question it is accepted, once."""
    given(chromium, home)
    mine, other = home.asked("mild"), home.asked("mild")
    unlocked_by_touch(chromium, home, mine["approval_id"])
    told = chromium.script(_TOLD, None, ".no")
    signature = chromium.script(_SIGN, told["statements"][0], "required")
    since = len(of_kind(home, "approval.refused"))
    chromium.open(f"{base_of(home)}/approvals/{other['approval_id']}")
    send(chromium, ".no", told, signature)
    seen(chromium, ".note.alarm", "it answers a different challenge")
    chromium.open(f"{base_of(home)}/approvals/{mine['approval_id']}")
    press(chromium, ".yes button.go")
    chromium.wait_url("digest=")
    send(chromium, ".yes", told, signature)
    seen(chromium, ".note.alarm", "it answers a different challenge")
    assert (state(home, mine), state(home, other)) == ("pending_approval", "pending_approval")
    assert refusals(home, since) == [("deny", "signature"), ("approve", "signature")]
    chromium.open(f"{base_of(home)}/approvals/{mine['approval_id']}")
    send(chromium, ".no", told, signature)
    seen(chromium, ".verdict", "Denied")


@pytest.mark.abuse_case("D36")
def test_a_revoked_passkey_unlocks_and_decides_nothing(home: DaemonHome, chromium: Browser) -> None:
    """Earlier signatures are refused, and its unlocked pages are locked. The page has a form to revoke a passkey."""
    key_id = given(chromium, home)
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    told = chromium.script(_TOLD, None, ".no")
    signature = chromium.script(_SIGN, told["statements"][0], "required")
    since = len(of_kind(home, "approval.refused"))
    chromium.open(f"{base_of(home)}/approvals/passkeys")
    assert key_id in chromium.text(".queue")
    chromium.click("summary")
    press(chromium, ".queue button.stop")
    seen(chromium, ".note", "Revoked.")
    assert home.must("GET", "/v1/passkeys")["passkeys"] == []
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    assert not chromium.has("button[data-passkey]")
    send(chromium, ".no", told, signature)
    seen(chromium, ".note.alarm", "!")
    assert (state(home, asked), refusals(home, since)) == ("pending_approval", [("deny", "key")])
    chromium.open(f"{base_of(home)}/approvals")
    locked(chromium)
    again = given(chromium, home, "another")
    unlocked_by_touch(chromium, home)
    home.must("DELETE", f"/v1/passkeys/{again}")
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    seen(chromium, ".note.alarm", "the passkey that unlocked it was revoked")
    assert of_kind(home, "page.locked")[-1]["reason"] == "passkey"


@pytest.mark.abuse_case("D36")
def test_a_passkey_may_deny_what_it_may_not_approve(home: DaemonHome, chromium: Browser) -> None:
    """The page shows no approval for another passkey and refuses one that is sent all the same; a denial is accepted."""
    given(chromium, home)
    asked = Device(home).made("of an agent").body
    address = f"{base_of(home)}/approvals/{asked['approval_id']}"
    unlocked_by_touch(chromium, home, asked["approval_id"])
    assert not chromium.has(".yes")
    assert "A passkey cannot approve this." in chromium.text("#read")
    digest = chromium.script("return document.querySelector('.no input[name=digest]').value")
    chromium.open(f"{address}/approve?digest={digest}&read=all&edit=")
    assert not chromium.has(".yes")  # its address alone is no second step
    assert "was changed: nothing was done" in chromium.script(_REFUSED, ".no", {"decision": "approve", "read": "all"})
    chromium.open(address)
    press(chromium, ".no button[data-passkey]")
    seen(chromium, ".verdict", "Denied")
    chromium.open(f"{base_of(home)}/approvals/passkeys")
    assert not chromium.has("form.add")  # it takes the approver's own key


@pytest.mark.abuse_case("D37")
def test_another_process_cannot_use_the_cookie_of_a_passkey_session(home: DaemonHome, chromium: Browser) -> None:
    """The process has the cookie and the form's token, and still sees and decides nothing and gets no challenge."""
    given(chromium, home)
    asked = home.asked("say", {"text": "what-was-shown"})
    path = f"/approvals/{asked['approval_id']}"
    for steal in ("see", "challenge", "decide"):
        unlocked_by_touch(chromium, home, asked["approval_id"])
        assert "what-was-shown" in chromium.text()
        fields = chromium.script("return Object.fromEntries(new FormData(document.querySelector('.no')).entries())")
        client = PageClient(home, cookie=cookie_of(chromium))  # this process, with all that the browser has
        if steal == "see":
            answer = client.get(path)
        elif steal == "challenge":
            answer = client.post(f"{path}/challenge", fields)
        else:
            told = chromium.script(_TOLD, None, ".no")
            signed = {"at": told["at"], "key_id": told["statements"][0]["key_id"], "signature": "AAAA.AAAA.AAAA"}
            answer = client.post(f"{path}/decide", {**fields, **signed})
        assert answer.status == 403
        assert "what-was-shown" not in answer.text
        assert "This page is locked." in answer.text
        assert state(home, asked) == "pending_approval"
        chromium.open(f"{base_of(home)}{path}")
        seen(chromium, ".note.alarm", "its cookie came from another program")


def test_without_scripts_the_page_offers_only_the_passphrase(home: DaemonHome, chromium: Browser) -> None:
    """The page shows no passkey button, and everything else works as it does if none is enrolled."""
    given(chromium, home)
    asked = home.asked("mild")
    with without_scripts(chromium):
        chromium.open(f"{base_of(home)}/approvals")
        assert "passkey" not in chromium.text()
        unlocked(chromium, home, asked["approval_id"])
        assert shown_buttons(chromium) == []
        rested(chromium)
        chromium.click(".yes button.go")
        chromium.wait_url("digest=")
        assert shown_buttons(chromium) == []
        rested(chromium)
        chromium.click(".yes button.go")
        seen(chromium, ".verdict", "✓")  # it may run yet
        chromium.open(f"{base_of(home)}/approvals/passkeys")
        assert not chromium.script("return document.querySelector('form.add').getClientRects().length")
    assert home.result(asked)["status"] == "completed"


def test_a_page_opened_by_ip_address_links_to_the_page_where_passkeys_work(home: DaemonHome, chromium: Browser) -> None:
    """A passkey is for the name `localhost`: at an address the page links there."""
    given(chromium, home)
    chromium.open(f"{base_of(home, '127.0.0.1')}/approvals")
    assert shown_buttons(chromium) == []
    chromium.click("p[data-no-passkeys] a")
    chromium.wait(lambda: "there" if shown_buttons(chromium) else "", "no passkey there")
    assert chromium.url.startswith(base_of(home))
