"""Passkeys on the page in a real Chromium: made, agreed to, asked; and what does not count, each beside what does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.paging import base_of, unlocked
from tests.support.browser import Browser, needs_browser
from tests.support.home import DaemonHome
from tests.support.paged import paged_home
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """The world outside."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Gated actions and an approver."""
    with paged_home(upstream) as made:
        yield made


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """A clean one, with a device in it that knows its user."""
    needs_browser()
    with Browser() as opened, opened.authenticator():
        yield opened


@pytest.fixture(autouse=True)
def no_passkeys_before(home: DaemonHome) -> None:
    """Each test has its own."""
    for one in home.must("GET", "/v1/passkeys")["passkeys"]:
        home.must("DELETE", f"/v1/passkeys/{one['id']}")


def press(browser: Browser, css: str) -> None:
    """Once the buttons are no longer dead."""
    browser.wait(lambda: "" if browser.has("body.dead") else "awake", "the buttons stayed dead")
    browser.click(css)


def seen(browser: Browser, css: str, part: str) -> str:
    """Until this can be read there."""
    return browser.wait(lambda: text if part in (text := browser.text(css)) else "", f"no {part!r} in {css}")


def enrolled(browser: Browser, home: DaemonHome, name: str = "laptop") -> str:
    """A passkey of this browser, made on the page and agreed to with the approver's key there; its id. Unlocked after."""
    unlocked(browser, home)
    browser.click(".aside a")
    browser.fill("#name", name)
    browser.click("form.add button")
    seen(browser, "h1", f"passkey {name}")
    key_id = browser.text(".note").partition("counted its key to be ")[2].partition(".")[0]
    assert key_id.startswith("webauthn:")
    assert key_id in browser.text(".known")  # what the daemon asks about
    press(browser, ".yes button.go")
    browser.wait_url("digest=")
    if browser.has("#word"):
        browser.fill("#word", browser.text("label code"))
    press(browser, ".yes button.go")
    seen(browser, ".verdict", "approved")
    assert [one["id"] for one in home.must("GET", "/v1/passkeys")["passkeys"] if one["name"] == name] == [key_id]
    return key_id


def locked(browser: Browser) -> None:
    """Press Lock."""
    browser.click(".bar button")
    browser.wait(lambda: "locked" if browser.has("#passphrase") else "", "not locked")


def unlocked_by_touch(browser: Browser, home: DaemonHome, path: str = "") -> None:
    """With the passkey."""
    browser.open(f"{base_of(home)}/approvals{path and '/' + path}")
    browser.click("button[data-passkey]")
    browser.wait(lambda: "there" if browser.has("#left") else "", "it was not unlocked")


def approved_by_touch(browser: Browser, word: str = "") -> None:
    """The two steps of a yes, the second with the passkey."""
    press(browser, ".yes button.go")
    browser.wait_url("digest=")
    if word:
        browser.fill("#word", word)
    press(browser, ".yes button[data-passkey]")


def of_kind(home: DaemonHome, kind: str) -> list[dict[str, Any]]:
    """Events of one type, oldest first."""
    found: list[dict[str, Any]] = home.must("GET", f"/v1/audit?type={kind}&order=oldest&limit=1000")["events"]
    return found


def state(home: DaemonHome, asked: dict[str, Any]) -> str:
    """Of a question."""
    return str(home.result(asked, wait=0)["status"])


# What counts


def test_a_passkey_is_made_agreed_to_unlocks_and_decides(
    home: DaemonHome, chromium: Browser, upstream: CountingServer
) -> None:
    """From the first touch to a record that verifies: what is previewed is seen without the approver's key, and decided."""
    upstream.page = "pay 90 to mira@example.com"
    key_id = enrolled(chromium, home)
    locked(chromium)
    asked = home.asked("previewed", {"path": "pay 90 to mira@example.com"})
    before = upstream.effects
    unlocked_by_touch(chromium, home, asked["approval_id"])
    assert "pay 90 to mira@example.com" in chromium.text(".known")
    assert not chromium.has(".no button.stop:not([data-passkey])")
    approved_by_touch(chromium, "previewed")
    seen(chromium, ".verdict", "approved")
    assert home.result(asked)["status"] == "completed"
    assert upstream.effects == before + 1
    decided = of_kind(home, "approval.approved")[-1]
    assert (decided["surface"], decided["key_id"]) == ("page", key_id)
    assert of_kind(home, "page.unlocked")[-1]["key_id"] == key_id
    verified = home.command("audit", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
