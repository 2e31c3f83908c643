"""Several similar requests together on the page, in a real Chromium: on a phone, without scripts, and while something changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.paging import CONTRAST, PHONE, base_of, overflow, rested, unlocked
from tests.support.browser import Browser
from tests.support.home import DaemonHome

pytestmark = pytest.mark.jail


def mild(home: DaemonHome, *names: str) -> list[dict[str, Any]]:
    """Request one action several times, with one argument that differs."""
    return [home.asked("mild", {"path": f"/effect/{name}"}) for name in names]


def states(home: DaemonHome, asked: list[dict[str, Any]], *, wait: float = 0) -> list[str]:
    """Return the status of each question."""
    return [str(home.result(question, wait=wait)["status"]) for question in asked]


def withdraw(home: DaemonHome, asked: dict[str, Any]) -> None:
    """Withdraw a question elsewhere, so that it can no longer be decided."""
    home.must("POST", f"/v1/action-approvals/{asked['approval_id']}/cancel", {})


def together(home: DaemonHome, asked: list[dict[str, Any]]) -> str:
    """Return the address of the page for all of them."""
    return f"{base_of(home)}/approvals/together?of={','.join(question['approval_id'] for question in asked)}"


@pytest.mark.parametrize("has_scripts", [True, False])
def test_three_similar_requests_are_approved_together_on_a_phone(
    home: DaemonHome, chromium: Browser, has_scripts: bool
) -> None:
    """The differences can be read and the buttons are on the first screen in both steps, with and without scripts."""
    asked = mild(home, "p1", "p2", "p3")
    chromium.cdp("Emulation.setDeviceMetricsOverride", **PHONE, deviceScaleFactor=3, mobile=True)
    chromium.cdp("Emulation.setScriptExecutionDisabled", value=not has_scripts)
    unlocked(chromium, home)
    chromium.click(".alike a")
    chromium.wait_url("together")
    for step in ("first", "second"):
        assert "/effect/p3" in chromium.text("main")
        assert overflow(chromium) == 0
        seen, poor = chromium.script(CONTRAST)
        assert seen > 20, step
        assert poor == []
        bottom = chromium.script("return document.querySelector('button.go').getBoundingClientRect().bottom")
        assert bottom <= PHONE["height"]
        rested(chromium)
        assert states(home, asked) == ["pending_approval"] * 3
        chromium.click("button.go")
        if step == "first":
            chromium.wait_url("digest=")
    chromium.wait(lambda: "so" if "3 of 3 approved" in chromium.text("main") else "", "not approved")

    assert states(home, asked, wait=25) == ["completed"] * 3


@pytest.mark.parametrize("step", ["first", "second"])
def test_a_page_of_several_requests_is_disabled_as_soon_as_one_request_changes(
    home: DaemonHome, chromium: Browser, step: str
) -> None:
    """Compared requests are not replaced while a person may be pressing a button; new requests beside them change
    nothing. A reload shows the current state.
    """
    asked = mild(home, f"{step}1", f"{step}2")
    unlocked(chromium, home)
    chromium.open(together(home, asked))
    rested(chromium)
    if step == "second":
        chromium.click("button.go")
        chromium.wait_url("digest=")
        rested(chromium)
    other = home.asked("say", {"text": "beside them"})
    chromium.wait(lambda: "so" if "(3)" in chromium.script("return document.title") else "", "it was not counted")
    assert not chromium.script("return document.querySelector('button.go').disabled")
    withdraw(home, asked[0])
    chromium.wait(lambda: "so" if "these requests has changed" in chromium.text("#live") else "", "not told")
    assert chromium.script("return [...document.querySelectorAll('[data-guard] button')].every((one) => one.disabled)")
    chromium.click("#live a")
    chromium.wait(lambda: "so" if "Approve all" not in chromium.text() else "", "it can still be pressed")

    assert chromium.url == together(home, asked)
    assert states(home, asked) == ["cancelled", "pending_approval"]
    for question in (asked[1], other):
        withdraw(home, question)


def test_a_page_of_several_requests_is_cleared_when_it_is_locked(home: DaemonHome, chromium: Browser) -> None:
    """Another tab of the same browser locks the page."""
    asked = mild(home, "locked1", "locked2")
    unlocked(chromium, home)
    chromium.open(together(home, asked))
    first = chromium.tab
    chromium.new_tab()
    chromium.open(f"{base_of(home)}/approvals")
    chromium.click(".bar button")
    chromium.wait(lambda: "so" if chromium.has("#passphrase") else "", "not locked")
    chromium.switch(first)
    chromium.wait(lambda: "so" if "/effect/locked1" not in chromium.text() else "", "it is still shown")

    assert chromium.script("return document.querySelector('main a').getAttribute('href')") == together(
        home, asked
    ).removeprefix(base_of(home))
    for question in asked:
        withdraw(home, question)
