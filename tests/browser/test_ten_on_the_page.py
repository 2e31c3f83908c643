"""The ten requests as the page shows them, in a real Chromium, at the sizes of a phone and of a desktop: measured, not
pictured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from aileron.model.consent import ActionFileConsent, Change
from tests.browser.paging import CONTRAST, PHONE, Size, overflow, rested
from tests.cli.questions import subject_question
from tests.support.browser import Browser
from tests.support.ten_on_the_page import ServedPage, page_id, page_question, served_page
from tests.support.ten_requests import TEN, Request

DESK: Final[Size] = {"width": 1440, "height": 900}
SIZES: Final[dict[str, Size]] = {"phone": PHONE, "desk": DESK}
sized = pytest.mark.parametrize("size", SIZES)
each = pytest.mark.parametrize("request_", TEN, ids=lambda request: request.name)
_BOXES: Final = """
return Object.fromEntries(arguments[0].map((css) => [css, [...document.querySelectorAll(css)].map((e) => {
  const r = e.getBoundingClientRect();
  return [r.left, r.top, r.right, r.bottom].map(Math.round); // a page ends in the middle of a pixel
})]));
"""
_HIT: Final = """
const r = document.querySelector(arguments[0]).getBoundingClientRect();
const e = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
return e !== null && e.closest(arguments[0]) !== null;
"""
Box = tuple[float, float, float, float]


@pytest.fixture
def page(chromium: Browser) -> Iterator[ServedPage]:
    """Serve all ten questions, and let the browser in."""
    with served_page(*(page_question(request) for request in TEN)) as served:
        served.let_in(chromium)
        yield served


def shown(chromium: Browser, page: ServedPage, request: Request, size: str = "phone", *, dark: bool = False) -> None:
    """Open a request's page, with the person's edit if there is one, and wait for its buttons."""
    chromium.look(dark=dark, **SIZES[size])
    chromium.open(page.url(page_id(request), "" if request.edit is None else f"?edit={request.edit.digest}"))
    rested(chromium)


def second_step(chromium: Browser) -> None:
    """Go from the question's page to the second step."""
    if chromium.has("#read input"):
        chromium.script("document.querySelector('#read input').checked = true")
    chromium.click(".yes button.go")
    chromium.wait_url("digest=")
    rested(chromium)


def boxes(chromium: Browser, *selectors: str) -> dict[str, list[Box]]:
    """Return where each element is in the window: left, top, right, bottom."""
    found: dict[str, list[Box]] = chromium.script(_BOXES, list(selectors))
    return found


def is_on_screen(box: Box, size: str) -> bool:
    """Return whether the whole box is on the screen."""
    left, top, right, bottom = box
    return left >= 0 and top >= 0 and right <= SIZES[size]["width"] and bottom <= SIZES[size]["height"] and bottom > top


def meet(box: Box, other: Box) -> bool:
    """Return whether two boxes overlap."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


# What is seen at once


@each
@sized
def test_the_headline_and_the_alarms_and_the_buttons_are_on_the_first_screen(
    chromium: Browser, page: ServedPage, request_: Request, size: str
) -> None:
    """The buttons are not covered, proof is folded, and the page is no wider than the window."""
    shown(chromium, page, request_, size)
    found = boxes(chromium, "h1", ".verdict", ".alarms p", ".no button", ".yes button")
    (dock,) = boxes(chromium, ".dock")[".dock"]

    for css, places in found.items():
        assert all(is_on_screen(box, size) for box in places), (css, places)
    for css in ("h1", ".verdict", ".alarms p"):
        assert not any(meet(box, dock) for box in found[css]), css
    assert all(len(found[css]) == 1 for css in ("h1", ".verdict", ".no button", ".yes button"))
    assert all(chromium.script(_HIT, css) for css in (".no button", ".yes button"))
    assert chromium.script("return document.querySelector('.proof').open") is False
    assert overflow(chromium) <= 0


@each
def test_the_buttons_stay_in_place_while_the_page_is_scrolled(
    chromium: Browser, page: ServedPage, request_: Request
) -> None:
    """The bar sticks, and covers nothing at the end of the page."""
    shown(chromium, page, request_)
    before = boxes(chromium, ".no button", ".yes button")
    chromium.script("scrollTo(0, document.documentElement.scrollHeight)")

    assert boxes(chromium, ".no button", ".yes button") == before
    ends = boxes(chromium, "main", ".dock")
    assert ends["main"][0][3] <= ends[".dock"][0][1]


@each
@sized
def test_the_button_of_the_second_step_is_where_the_first_step_had_no_button(
    chromium: Browser, page: ServedPage, request_: Request, size: str
) -> None:
    """A double click must not approve: the button is where neither Approve… nor Deny was. The alarms are repeated."""
    shown(chromium, page, request_, size)
    first = boxes(chromium, ".no button", ".yes button")
    second_step(chromium)
    found = boxes(chromium, "h1", ".alarms p", ".yes button")
    (approve,) = found[".yes button"]

    assert not any(meet(approve, box) for boxes_ in first.values() for box in boxes_), (approve, first)
    assert all(is_on_screen(box, size) for places in found.values() for box in places), found
    assert chromium.text(".yes button") == "Approve"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_pages_of_all_ten_requests_have_enough_contrast(chromium: Browser, page: ServedPage, dark: bool) -> None:
    """The contrast is at least 4.5 on both steps, unfolded, and when they are over."""
    for request in TEN:
        shown(chromium, page, request, dark=dark)
        chromium.script("document.querySelector('.proof').open = true")
        assert chromium.script(CONTRAST)[1] == [], request.name
        second_step(chromium)
        chromium.script("document.getAnimations().forEach((one) => one.finish())")
        assert chromium.script(CONTRAST)[1] == [], request.name
    for request, status in zip(TEN, ("completed", "failed", "denied", "expired", "cancelled", "unknown"), strict=False):
        page.change(lambda desk, request=request, status=status: desk.settle(page_id(request), status))  # type: ignore[misc]
        chromium.open(page.url(page_id(request)))
        assert chromium.script(CONTRAST)[1] == [], status


def test_a_long_request_shows_where_to_confirm_that_it_was_read(chromium: Browser, page: ServedPage) -> None:
    """The browser scrolls to the missing choice by itself, and nothing is sent."""
    long = next(request for request in TEN if request.name == "gate gone")
    shown(chromium, page, long)
    chromium.click(".yes button")
    chromium.wait(lambda: "there" if boxes(chromium, "#read input")["#read input"][0][1] > 0 else "", "not asked for")
    found = boxes(chromium, "#read input", ".dock")

    assert "digest=" not in chromium.url
    assert found["#read input"][0][3] <= found[".dock"][0][1]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_long_alarms_are_shortened_on_the_first_screen(chromium: Browser, dark: bool) -> None:
    """Three alarms of 4,000 characters begin there, say how much more there is, and are complete below."""
    long = ActionFileConsent(
        name="send-mail",
        text="+++\n+++\n",
        before="sha256:" + "0" * 64,
        changes=tuple(Change(where=f"approval.{name}", before="x " * 2000, after=None) for name in ("a", "b", "c")),
        reaches=("mail.example:443",),
        credentials=("basic",),
    )
    asked = {**page_question(TEN[3]), **subject_question(long, approval_id=page_id(TEN[3]))}
    with served_page(asked) as page:
        page.let_in(chromium)
        shown(chromium, page, TEN[3], dark=dark)
        found = boxes(chromium, "h1", ".alarms p", ".essentials dl > div:first-child", ".dock")
        alarms = chromium.script("return [...document.querySelectorAll('.alarms p')].map((e) => e.textContent)")
        changes = chromium.script(
            "return [...document.querySelectorAll('.known .line.alarm')].map((e) => e.textContent)"
        )

        assert all(
            box[3] <= found[".dock"][0][1] for places in found.values() for box in places if places != found[".dock"]
        )
        assert all(len(alarm) < 260 for alarm in alarms)
        assert all(any(line.startswith(alarm.partition("…")[0]) for line in changes) for alarm in alarms[-2:])
        assert "more characters, below)" in alarms[-1]
        assert chromium.script(CONTRAST)[1] == []


# By itself


def title(chromium: Browser, wanted: str) -> None:
    """Wait until the tab has this title."""
    chromium.wait(lambda: "so" if chromium.title == wanted else "", f"the title is not {wanted}: {chromium.title}")


def test_the_tabs_title_counts_waiting_requests(chromium: Browser) -> None:
    """The queue and a question's page both count; the title has no values, because a browser keeps titles."""
    first, second, third = TEN[:3]
    with served_page(page_question(first)) as page:
        page.let_in(chromium)
        chromium.open(page.url())
        title(chromium, "(1) Aileron")
        page.change(lambda desk: desk.ask(page_question(second)))
        title(chromium, "(2) Aileron")
        chromium.open(page.url(page_id(first)))
        title(chromium, "(2) caldav-create-event · Aileron")
        page.change(lambda desk: desk.ask(page_question(third)))
        title(chromium, "(3) caldav-create-event · Aileron")
        for request in (first, second, third):
            page.change(lambda desk, request=request: desk.settle(page_id(request), "denied"))  # type: ignore[misc]
        title(chromium, "denied: caldav-create-event · Aileron")


_HURRIES: Final = """
const every = setInterval;
window.setInterval = (what, ms) => every(what, ms === 10000 ? 200 : ms);
"""
"""Script that makes a page do five times a second what it does every ten seconds."""


def test_a_hidden_tab_counts_requests_and_lists_them_when_shown(chromium: Browser) -> None:
    """Headless browsers show every tab, so the page is told that it is hidden. It polls faster here than in use."""
    be = """
        const state = arguments[0];
        Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
        document.dispatchEvent(new Event("visibilitychange"));"""
    with served_page(page_question(TEN[0])) as page, chromium.first(_HURRIES):
        page.let_in(chromium)
        chromium.open(page.url())
        title(chromium, "(1) Aileron")
        chromium.script(be, "hidden")
        page.change(lambda desk: desk.ask(page_question(TEN[1])))
        title(chromium, "(2) Aileron")
        assert len(chromium.script("return [...document.querySelectorAll('.queue li')]")) == 1
        chromium.script(be, "visible")
        chromium.wait(lambda: "there" if chromium.has(f'li[data-id="{page_id(TEN[1])}"]') else "", "it did not arrive")


def test_new_content_of_a_question_disables_its_buttons_for_a_moment(chromium: Browser, page: ServedPage) -> None:
    """The agent's answer appears without a reload. Typed and unfolded parts stay; an immediate click does nothing."""
    draft = next(request for request in TEN if request.name == "draft")
    shown(chromium, page, draft)
    chromium.script("document.querySelector('.proof').open = true; document.querySelector('#reason').value = 'not now'")
    before = boxes(chromium, ".no button", ".yes button")
    chromium.script("""
        window.were = [];
        new MutationObserver(() => were.push(document.body.classList.contains("dead"))).observe(
            document.querySelector("main"), { childList: true });""")

    def answered(desk: Any) -> None:
        (question,) = [question for question in desk.questions if question["approval_id"] == page_id(draft)]
        question["conversation"] = [
            *question["conversation"],
            {"question": "Why today?", "answer": "Because of the holidays."},
        ]

    page.change(answered)
    chromium.wait(lambda: "there" if "Because of the holidays." in chromium.text() else "", "it is not shown")

    assert chromium.script("return were.length > 0 && were.every(Boolean)")  # dead before anything is exchanged
    assert boxes(chromium, ".no button", ".yes button") == before
    assert "This page has changed. Look again before you decide." in chromium.text("#live")
    assert chromium.script(
        "return [document.querySelector('.proof').open, document.querySelector('#reason').value]"
    ) == [
        True,
        "not now",
    ]
    rested(chromium)
    chromium.click(".no button")
    chromium.wait(lambda: "so" if chromium.text(".verdict") == "Denied: nothing ran" else "", "not denied")
    assert page.desk.told[-1] == (page_id(draft), "deny")


def test_a_click_just_after_a_change_decides_nothing(chromium: Browser, page: ServedPage) -> None:
    """The click is in the same event-loop turn as the change of the page; the same click later denies."""
    draft = next(request for request in TEN if request.name == "draft")
    shown(chromium, page, draft)
    chromium.script("""
        new MutationObserver(() => document.querySelector(".no button").click()).observe(
            document.querySelector("#live"), { childList: true });""")

    def edited(desk: Any) -> None:
        (question,) = [question for question in desk.questions if question["approval_id"] == page_id(draft)]
        question["conversation"] = []

    page.change(edited)
    chromium.wait(lambda: chromium.text("#live"), "nothing changed")
    rested(chromium)
    assert page.desk.questions[TEN.index(draft)]["status"] == "pending_approval"
    chromium.script("document.querySelector('.no button').click()")
    chromium.wait(lambda: "so" if chromium.text(".verdict") == "Denied: nothing ran" else "", "not denied")


def test_a_question_decided_elsewhere_shows_its_result_and_disabled_buttons(
    chromium: Browser, page: ServedPage
) -> None:
    """The page shows it without a reload; its buttons stay where they were, and do nothing."""
    lunch = TEN[0]
    shown(chromium, page, lunch)
    before = boxes(chromium, ".no button", ".yes button")
    page.desk.came = {"result": {"uid": "3f1c", "url": "https://caldav.example/lunch"}}
    page.change(lambda desk: desk.settle(page_id(lunch), "completed", surface="operator"))
    chromium.wait(lambda: "so" if chromium.text(".verdict") == "✓ done" else "", "it is not said")

    assert chromium.text(".result") == "uid: “3f1c” · url: “https://caldav.example/lunch”"
    assert "The buttons here do nothing now." in chromium.text("#live")
    assert boxes(chromium, ".no button", ".yes button") == before
    assert chromium.script("return [...document.querySelectorAll('[data-guard] button')].every((one) => one.disabled)")


def test_a_second_step_is_disabled_if_its_question_changed(chromium: Browser, page: ServedPage) -> None:
    """A person must confirm exactly what they read, so the page links back to the question."""
    shown(chromium, page, TEN[0])
    second_step(chromium)
    page.change(lambda desk: desk.settle(page_id(TEN[0]), "cancelled"))
    chromium.wait(lambda: chromium.text("#live"), "nothing is said")

    assert "Something about this request has changed. Look at it again." in chromium.text("#live")
    assert chromium.script("return document.querySelector('.yes button').disabled")


def test_a_page_opened_from_another_site_does_not_load_the_preview_by_itself(
    chromium: Browser, page: ServedPage
) -> None:
    """A page of another origin led here: neither that nor later changes load the preview. Its button loads it."""
    wrong = next(request for request in TEN if request.name == "another event")
    chromium.look(**PHONE)
    page.let_in(chromium, same_site="Lax")  # else it is asked for the passphrase first, and looks again by itself
    chromium.open("data:text/html,elsewhere")
    chromium.script("location.href = arguments[0]", page.url(page_id(wrong)))
    chromium.wait(lambda: "there" if chromium.has("#card") else "", "not opened")
    assert "! current state not loaded" in chromium.text(".alarms")
    assert not chromium.has(".yes button")
    (load,) = boxes(chromium, ".load button")[".load button"]
    assert is_on_screen(load, "phone")

    def answered(desk: Any) -> None:
        (question,) = [question for question in desk.questions if question["approval_id"] == page_id(wrong)]
        question["conversation"] = [{"question": "Which?", "answer": "The one on Tuesday."}]

    page.change(answered)
    chromium.wait(lambda: "there" if "The one on Tuesday." in chromium.text() else "", "it is not shown")
    assert "! current state not loaded" in chromium.text(".alarms")
    chromium.click(".load button")
    chromium.wait(lambda: "so" if "the service has “Dentist”" in chromium.text(".alarms") else "", "not loaded")
    (approve,) = boxes(chromium, ".yes button")[".yes button"]
    assert not meet(approve, load)
