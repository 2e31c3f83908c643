"""Requests of the agent in `aileron demo`, on both surfaces: a real terminal of 80×24 and a phone's browser.

The first screen has the sentence, effect, destination, account and difference, and any contradiction with the preview.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from aileron.model.visible import FURTHER
from tests.browser.paging import PHONE, unlocked
from tests.cli.test_console_terminal import variables, words
from tests.support.browser import Browser, needs_browser
from tests.support.demo_home import DENTIST, FOLDER, LUNCH, SAILING, WRONG, DemoHome, demo_home
from tests.support.paged import APPROVER
from tests.support.tmux import Tmux

pytestmark = pytest.mark.jail

_RUN: Final = ("goes to localhost:", "account ada", f"asked by claude in {FOLDER}")
_FIRST: Final = "compared first time for this action"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of the demo: how it is made, how its sentence begins, and what must be on the first screen."""

    name: str
    asks: Callable[[DemoHome], str]
    sentence: str
    shown: tuple[str, ...]
    is_read: bool = True
    """True if a preview must be loaded before a decision."""


REQUESTS: Final = (
    Request(
        "lunch",
        lambda demo: demo.asks("caldav-create-event", LUNCH),
        "Add “Lunch with Mira”",
        ("+ creates", *_RUN, _FIRST, "action caldav-create-event", "CURRENT STATE, LOADED"),
    ),
    Request(
        "sailing",
        lambda demo: demo.asks("caldav-create-event", SAILING),
        "Add “Sailing with Mira”",
        ("+ creates", *_RUN, "compared ≠ Title", "action caldav-create-event", "At that time Lunch with Mira"),
    ),
    Request(
        "another event than it says",
        lambda demo: demo.asks("caldav-delete-event", WRONG),
        f"Delete “{DENTIST}”",
        (
            "! DELETES · cannot be undone",
            f"! Title: the agent said “{SAILING['title']}”, the service has “{DENTIST}”",
            *_RUN,
            _FIRST,
            "action caldav-delete-event",
            f"Title {DENTIST}",
        ),
    ),
    Request(
        "the gate taken away",
        lambda demo: demo.takes_the_gate_away(),
        "Change the action “caldav-create-event”",
        (
            "! LASTING PERMISSION",
            "! RUNS WITHOUT APPROVAL",
            "! ALLOWS MORE: approval.required: true → false",
            "goes to localhost:",
            "account basic: Read and write your calendars",
            "undo you can remove the action",
            "compared ≠ 2 of 3 changes allow more",
        ),
        is_read=False,
    ),
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoHome]:
    """Provide one home for all requests, in which the first is approved and the others wait."""
    needs_browser()
    with demo_home(tmp_path_factory.mktemp("radicale")) as made:
        yield made


@pytest.fixture
def phone(browser: Browser) -> Browser:
    """Return a browser with a phone's screen, which has not opened the page before."""
    browser.look(**PHONE)
    return browser


def _on_the_phone(browser: Browser, demo: DemoHome, request: Request, approval: str) -> list[str]:
    """Return what is on the phone's first screen, line by line."""
    unlocked(browser, demo.home, approval)
    shown: list[str] = browser.script("""
        const all = "h1, .verdict, .alarms > *, .essentials dt, .essentials .line, .known h2, .known dt, .known .line";
        return [...document.querySelectorAll(all)].filter((e) => {
          const r = e.getBoundingClientRect();
          return r.top >= 0 && r.bottom <= document.querySelector(".dock").getBoundingClientRect().top;
        }).map((e) => (e.tagName === "H2" ? e.innerText.toUpperCase() : e.innerText).replace(/\\s+/g, " "));""")
    return shown


def _at_the_terminal(demo: DemoHome, request: Request) -> str:
    """Return what is on the console's screen, 80×24, under the list."""
    with Tmux(words(), variables(demo.home.path)) as at:
        at.until("1 waiting", "asked by")
        if request.is_read:
            at.until_pressed("p", "Approver passphrase")
            at.type(APPROVER)
            at.until("CURRENT STATE, LOADED")
        return at.until("asked by").partition("─" * 80)[2]


def _spaced(text: str) -> str:
    """Return the text in one line, without the sign of a row that goes on."""
    return " ".join(text.replace(FURTHER, "").split())


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_both_surfaces_show_the_deciding_facts_on_the_first_screen(
    demo: DemoHome, phone: Browser, request_: Request
) -> None:
    """Terminal and phone have the same facts in the same order; the requests are made as the demo makes them."""
    approval = request_.asks(demo)
    console = _spaced(_at_the_terminal(demo, request_))
    page = " ".join(_on_the_phone(phone, demo, request_, approval))
    for surface in (console, page):
        assert surface.startswith(request_.sentence), surface
        for part in request_.shown:
            assert part in surface, (part, surface)
    assert sorted(request_.shown, key=console.index) == sorted(request_.shown, key=page.index), (console, page)

    if request_.name == "lunch":
        demo.approves(approval, "")
    else:
        demo.denies(approval)
