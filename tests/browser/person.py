"""A person's steps in a browser on the provider's pages (tests/support/provider.mjs): sign in, allow, deny.

Not here: the browser (tests/support/browser.py), what Aileron shows the person (the tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.support.browser import Browser

__all__ = ["MIRA", "NOOR", "agrees", "signs_in", "types_a_code"]

MIRA: Final = "mira@example.org"
NOOR: Final = "noor@example.org"


def signs_in(browser: Browser, url: str, account: str = MIRA) -> None:
    """Open the address and sign in, if this browser is not signed in yet; the page that asks for consent comes next."""
    browser.open(url)
    _logs_in(browser, account)


def agrees(browser: Browser, answer: str = "allow", *, without: Sequence[str] = ()) -> None:
    """Press `allow` or `deny`, with some scopes unticked, and wait until the provider has received it."""
    for scope in without:
        browser.click(f'input[name=scope][value="{scope}"]')
    _leaves_by(browser, f"button[value={answer}]")


def types_a_code(browser: Browser, url: str, code: str, account: str = MIRA) -> None:
    """Do the device grant: open the address, type the code, confirm it, sign in; the page that asks for consent comes next."""
    browser.open(url)
    if code not in url:
        browser.fill("input[name=user_code]", code)
        browser.click("button[type=submit]")
    browser.wait(lambda: code if code in browser.text() else "", "the page does not show the code to compare")
    browser.click("button[type=submit]")
    _logs_in(browser, account)


def _logs_in(browser: Browser, account: str) -> None:
    browser.wait_url("/interaction/")
    if not browser.has("input[name=login]"):
        return
    browser.fill("input[name=login]", account)
    browser.fill("input[name=password]", "a password of a test")
    _leaves_by(browser, "button[value=login]")


def _leaves_by(browser: Browser, button: str) -> None:
    browser.click(button)
    browser.wait(lambda: "" if browser.has(button) else "gone", f"the page still has {button}")
