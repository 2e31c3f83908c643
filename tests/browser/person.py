"""What a person does in a browser on the provider's pages (tests/support/provider.mjs): sign in, agree, say no.

Not here: the browser (tests/support/browser.py), what is shown to them by Aileron (the tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.support.browser import Browser

__all__ = ["MIRA", "NOOR", "agrees", "signs_in", "types_a_code"]

MIRA: Final = "mira@example.org"
NOOR: Final = "noor@example.org"


def signs_in(browser: Browser, url: str, account: str = MIRA) -> None:
    """Open the address and sign in, where this browser is not yet; what comes next is the page that asks for consent."""
    browser.open(url)
    _logs_in(browser, account)


def agrees(browser: Browser, answer: str = "allow", *, without: Sequence[str] = ()) -> None:
    """`allow` or `deny`, with some scopes unticked; the provider has heard it when this returns."""
    for scope in without:
        browser.click(f'input[name=scope][value="{scope}"]')
    _leaves_by(browser, f"button[value={answer}]")


def types_a_code(browser: Browser, url: str, code: str, account: str = MIRA) -> None:
    """The device grant: open the address, type the code, confirm it, sign in; what comes next asks for consent."""
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
