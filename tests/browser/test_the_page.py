"""The page in a real Chromium: decided without scripts, by keyboard, on a phone, in the dark; live if scripts run."""

from __future__ import annotations

import pytest

from tests.browser.paging import CONTRAST, PHONE, base_of, elsewhere, overflow, rested, unlocked, without_scripts
from tests.support.browser import Browser, BrowserError
from tests.support.home import DaemonHome
from tests.support.hostile_text import EVERYTHING, as_in_a_file
from tests.support.paged import PageClient, paged_home, port_of
from tests.support.told import state
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_still, wait_until

pytestmark = pytest.mark.jail

TAB, ENTER, SPACE = "\ue004", "\ue007", " "


def keys(browser: Browser, text: str) -> None:
    """Type at the keyboard, whatever has the focus."""
    actions = []
    for key in text:
        actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
    browser._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})


_FADED_IN = "return document.getAnimations().every(one => one.playState === 'finished')"


# Without scripts


def test_requests_are_decided_without_scripts(home: DaemonHome, chromium: Browser, upstream: CountingServer) -> None:
    """Unlock, approve with the word, deny with a reason, and lock are plain forms. The session covers every page and tab."""
    yes, no = home.asked("gated", {"path": "/effect/chromium"}), home.asked("mild")
    before = upstream.effects
    with without_scripts(chromium):
        unlocked(chromium, home, yes["approval_id"])
        rested(chromium)
        chromium.click(".yes button")
        chromium.wait_url("digest=")
        chromium.fill("#word", "yes")
        rested(chromium)
        chromium.click(".yes button")
        chromium.wait(lambda: "so" if "✓" in chromium.text(".verdict") else "", "not approved")  # it may run yet
        assert home.result(yes)["status"] == "completed"
        chromium.new_tab()
        chromium.cdp("Emulation.setScriptExecutionDisabled", value=True)  # of a tab
        chromium.open(f"{base_of(home)}/approvals/{no['approval_id']}")
        chromium.fill("#reason", "not\nnow")
        rested(chromium)
        chromium.click(".no button")
        chromium.wait(lambda: "denied" if "Denied" in chromium.text(".verdict") else "", "not denied")
        chromium.open(f"{base_of(home)}/approvals/{yes['approval_id']}")
        assert f"POST localhost:{upstream.port}/effect/chromium" in chromium.text(".requests")
        chromium.click(".bar button")
        chromium.wait(lambda: "locked" if chromium.has("#passphrase") else "", "not locked")
    assert home.result(no)["reason"] == "not\nnow"
    assert upstream.effects == before + 1
    assert chromium.script("return document.cookie") == ""  # no script reads it


def test_a_long_question_must_be_marked_as_read(home: DaemonHome, chromium: Browser) -> None:
    """The browser itself asks for the choice, because its field is required."""
    asked = home.asked("say", {"text": "\n".join("line" for _ in range(80))})
    with without_scripts(chromium):
        unlocked(chromium, home, asked["approval_id"])
        rested(chromium)
        chromium.click(".yes button.go")
        assert "digest=" not in chromium.url
        chromium.click("input[value=all]")
        chromium.click(".yes button.go")
        chromium.wait_url("read=all")


BEGUN = """
const button = document.querySelector(arguments[0]);
button.style.animation = "none"; button.offsetWidth; button.style.animation = "";  // from its beginning
const [begun] = button.getAnimations();
begun.pause(); begun.currentTime = 399;
return [begun.animationName, getComputedStyle(button).animationDuration];
"""
"""Script that sets a button's animation to 399 ms after the page came, for as long as a test needs to press it."""


def test_in_a_browser_without_scripts_buttons_are_also_inactive_for_a_moment(
    home: DaemonHome, chromium: Browser
) -> None:
    """A press on either step is ignored for 0.4 s after the page loaded. The same press works afterwards."""
    asked = home.asked("mild")
    with without_scripts(chromium):
        unlocked(chromium, home, asked["approval_id"])
        for press in (".no button", ".yes button"):
            assert chromium.script(BEGUN, press) == ["dead", "0.4s"]
            with pytest.raises(BrowserError, match="click intercepted"):
                chromium.click(press)
        chromium.script("document.querySelector('.yes button').getAnimations()[0].currentTime = 400")
        chromium.click(".yes button")
        chromium.wait_url("digest=")
        assert chromium.script(BEGUN, ".second button") == ["dead", "0.4s"]
        with pytest.raises(BrowserError, match="click intercepted"):
            chromium.click(".second button")
        assert state(home, asked) == "pending_approval"
        chromium.script("document.querySelector('.second button').getAnimations()[0].currentTime = 400")
        chromium.click(".second button")
        chromium.wait(lambda: "so" if "✓" in chromium.text(".verdict") else "", "not approved")


# By keyboard


def test_a_request_can_be_approved_with_the_keyboard_alone(home: DaemonHome, chromium: Browser) -> None:
    """The focus is always visible, and the first Tab stop skips to the content."""
    asked = home.asked("gated", {"path": "/effect/keys"})
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    keys(chromium, "nine green bottles" + ENTER)  # the field has the focus
    chromium.wait(lambda: "there" if chromium.has("#left") else "", "it was not unlocked")
    rested(chromium)
    stops = []
    for _ in range(20):
        keys(chromium, TAB)
        seen = chromium.script(
            "const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();"
            "return [e.textContent.trim(), s.outlineStyle, parseFloat(s.outlineWidth), r.width * r.height > 0 && r.bottom > 0]"
        )
        stops.append(seen[0])
        assert seen[1:3] == ["solid", 3], seen
        assert seen[3], seen
        if seen[0] == "Approve…":
            break
    assert stops[0] == "To the content"
    assert stops[-1] == "Approve…"
    rested(chromium)  # the first key brought the window to the front
    keys(chromium, ENTER)
    chromium.wait_url("digest=")
    while chromium.script("return document.activeElement.id") != "word":
        keys(chromium, TAB)
    keys(chromium, "yes" + TAB)
    rested(chromium)
    keys(chromium, SPACE)
    chromium.wait(lambda: "so" if chromium.text(".verdict") == "✓ done" else "", "not approved")
    assert home.result(asked)["status"] == "completed"


# How it looks


_VISIBLE = """
const seen = [];
for (const css of arguments[0]) {
  const r = document.querySelector(css).getBoundingClientRect();
  seen.push([css, r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth && r.height > 0]);
}
return Object.fromEntries(seen);
"""


def test_the_deciding_facts_are_visible_on_a_phone_without_scrolling(
    home: DaemonHome, chromium: Browser, upstream: CountingServer
) -> None:
    """Sentence, verdict, contradiction, destination, account, difference, the beginning of the effect and both buttons
    are visible.
    """
    upstream.page = "pay 9000 to someone-else@example.com"
    asked = home.asked("previewed", {"path": "pay 90 to mira@example.com"})
    chromium.look(**PHONE)
    unlocked(chromium, home, asked["approval_id"])
    wanted = [
        "h1",
        ".verdict",
        *(f".essentials dl > div:nth-child({number})" for number in range(1, 6)),
        ".alarms p",
        ".known h2",
        ".known dl > div:first-child",
        ".no button",
        ".yes button",
    ]
    assert chromium.script(_VISIBLE, wanted) == dict.fromkeys(wanted, True)
    facts = chromium.text(".essentials").split("\n")
    names = ("goes to", "account", "asked by", "compared", "action")
    assert [name for name in facts if name in names] == list(names)
    said = "! Path: the agent said “pay 90 to mira@example.com”, the service has “pay 9000 to someone-else@example.com”"
    assert said in chromium.text(".alarms")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_is_readable_and_fits_its_window(home: DaemonHome, chromium: Browser, dark: bool) -> None:
    """Every text has a contrast of at least 4.5, and nothing is wider than the window, whatever an agent wrote."""
    text = as_in_a_file(EVERYTHING)[:4000] + "x" * 2000
    asked = home.asked("say", {"text": text})
    this = f"/v1/action-approvals/{asked['approval_id']}"
    home.must("POST", f"{this}/ask", {"question": "why?"})
    home.agent.request("POST", f"{this}/answer", {"answer": text[:4000]})
    previewed = home.asked("previewed", {"path": "/effect/looks"})
    consent = home.ask("PUT", "/v1/secrets/pw", {"value_base64": "aHVudGVyMi1odW50ZXIy"}).body
    done = home.asked("mild", {"path": "/effect/" + "y" * 300})
    decider = PageClient(home)
    decider.unlock()
    confirm = decider.submit(decider.get(f"/approvals/{done['approval_id']}").form("/approve"))
    decider.submit(confirm.form("/decide"))
    assert home.result(done)["status"] == "completed"
    chromium.look(dark=dark, **PHONE)
    chromium.open(f"{base_of(home)}/approvals/{asked['approval_id']}")
    pages = [
        "locked",
        "",
        "passkeys",
        *(question["approval_id"] for question in (asked, previewed, consent, done)),
        "confirm",
    ]
    for name in pages:
        if name == "":
            unlocked(chromium, home)
        elif name == "confirm":
            chromium.open(f"{base_of(home)}/approvals/{previewed['approval_id']}")
            rested(chromium)
            chromium.click(".yes button")
            chromium.wait_url("digest=")
        elif name != "locked":
            chromium.open(f"{base_of(home)}/approvals/{name}")
            rested(chromium)
        for width, height in ((390, 844), (1280, 900)):
            chromium.look(dark=dark, width=width, height=height)
            assert overflow(chromium) <= 0, (name, width)
        chromium.look(dark=dark, **PHONE)
        if chromium.has("body.dead"):
            rested(chromium)
        wait_until(lambda: chromium.script(_FADED_IN), "the buttons have faded in")
        seen, poor = chromium.script(CONTRAST)
        assert seen > 5
        assert poor == [], name


def test_no_meaning_is_conveyed_by_colour_alone(home: DaemonHome, chromium: Browser) -> None:
    """Every line that is an alarm or a change begins with its sign."""
    asked = home.asked("gated")
    unlocked(chromium, home, asked["approval_id"])
    lines = chromium.script(
        "return [...document.querySelectorAll('.line.alarm, .line.changed, .verdict.alarm')].map((e) => e.textContent)"
    )

    assert lines
    assert all(line.startswith(("! ", "≠ ")) for line in lines), lines


# Live


def test_new_requests_are_appended_to_the_queue_and_nothing_moves(home: DaemonHome, chromium: Browser) -> None:
    """A question that was decided elsewhere says so in its place."""
    first = home.asked("mild")
    unlocked(chromium, home)
    rows = "[...document.querySelectorAll('.queue li[data-id]')]"
    where = f"return {rows}.map((e) => [e.dataset.id, e.getBoundingClientRect().top])"
    before = chromium.script(where)
    second = home.asked("mild")
    chromium.wait(
        lambda: "there" if chromium.has(f'#arrived li[data-id="{second["approval_id"]}"]') else "", "it did not arrive"
    )
    after = chromium.script(where)
    assert after[: len(before)] == before
    assert [name for name, _ in after[len(before) :]] == [second["approval_id"]]
    assert "1 new, at the end of this page." in chromium.text("#live")
    home.must("POST", f"/v1/action-approvals/{first['approval_id']}/cancel")
    row = f'li[data-id="{first["approval_id"]}"]'
    chromium.wait(lambda: "so" if "withdrawn" in chromium.text(f"{row} .state") else "", "it is not said")
    assert chromium.script(where)[: len(before)] == before


def test_the_buttons_of_a_question_that_ended_are_disabled(home: DaemonHome, chromium: Browser) -> None:
    """The page says so, and puts nothing in their place under the pointer."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    rested(chromium)
    assert not chromium.script("return document.querySelector('.yes button').disabled")
    home.must("POST", f"/v1/action-approvals/{asked['approval_id']}/cancel")
    chromium.wait(lambda: chromium.text("#live"), "nothing is said")
    assert "Withdrawn: nothing ran. The buttons here do nothing now." in chromium.text("#live")
    assert chromium.script("return [...document.querySelectorAll('#decide button')].every((b) => b.disabled)")


def test_buttons_are_inactive_for_a_moment_after_a_page_loads(home: DaemonHome, chromium: Browser) -> None:
    """A click that was meant for the previous page does nothing; the same click a moment later works."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    chromium.script("dispatchEvent(new Event('pageshow')); document.querySelector('.yes button').click()")
    assert "digest=" not in chromium.url
    assert chromium.has("body.dead")
    rested(chromium)
    chromium.script("document.querySelector('.yes button').click()")
    chromium.wait_url("digest=")


def test_the_second_step_is_inactive_for_a_moment_after_gaining_focus(home: DaemonHome, chromium: Browser) -> None:
    """A click that was meant for another window or the previous page approves nothing. A moment later it does."""
    asked = home.asked("mild")
    unlocked(chromium, home, asked["approval_id"])
    for event in ("focus", "pageshow"):
        rested(chromium)
        if "digest=" not in chromium.url:
            chromium.click(".yes button")
            chromium.wait_url("digest=")
            rested(chromium)
        chromium.script("dispatchEvent(new Event(arguments[0])); document.querySelector('.yes button').click()", event)
        assert chromium.has("body.dead")
        assert state(home, asked) == "pending_approval"
    rested(chromium)
    chromium.click(".yes button")
    chromium.wait(lambda: "so" if chromium.text(".verdict") == "✓ done" else "", "not approved")


@pytest.mark.abuse_case("D38")
def test_a_page_is_cleared_when_the_daemon_is_gone(upstream: CountingServer, chromium: Browser) -> None:
    """Neither question nor button stays. The page loads nothing by itself: another program may have the port."""
    with paged_home(upstream) as own:
        asked = own.asked("say", {"text": "what-was-shown"})
        unlocked(chromium, own, asked["approval_id"])
        assert "what-was-shown" in chromium.text()
        port = port_of(own)
        own.kill()
        # A browser that is told later than the port has another owner sends what was under way once more.
        chromium.wait(lambda: "so" if "does not answer" in chromium.text("h1") else "", "nothing is said")
        with elsewhere(lambda _path: "<h1>of another program</h1>", port=port) as (_, seen):
            assert "what-was-shown" not in chromium.script("return document.documentElement.outerHTML")
            assert chromium.script("return document.querySelectorAll('button, form').length") == 0
            assert "aileron status" in chromium.text(".note")
            wait_still(lambda: len(seen), "nothing is loaded", for_s=1.5)
            assert [path for path, _ in seen if path != "/favicon.ico"] == []
        own.unlock()
        chromium.click("main a")
        chromium.wait(lambda: "so" if chromium.has("#passphrase") else "", "the page is not asked for again")
        assert chromium.url.endswith(asked["approval_id"])


def test_a_page_whose_session_expired_is_cleared(home: DaemonHome, chromium: Browser) -> None:
    """The browser's clock alone locks the page, without a request to the daemon."""
    asked = home.asked("say", {"text": "what-was-shown"})
    unlocked(chromium, home, asked["approval_id"])
    chromium.script("const now = Date.now; Date.now = () => now() + 901000")
    chromium.wait(lambda: "so" if chromium.text("h1") == "Locked" else "", "it is still shown")
    assert "what-was-shown" not in chromium.script("return document.documentElement.outerHTML")


def test_a_page_that_is_locked_in_another_tab_is_cleared(home: DaemonHome, chromium: Browser) -> None:
    """The tab locks with the next update that it receives."""
    asked = home.asked("say", {"text": "what-was-shown"})
    unlocked(chromium, home, asked["approval_id"])
    token = chromium.script("return document.querySelector('.bar input').value")
    body = {
        "method": "POST",
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
        "body": f"token={token}",
    }
    chromium.script("return fetch('/approvals/lock', arguments[0]).then((answer) => answer.status)", body)
    home.must("POST", f"/v1/action-approvals/{asked['approval_id']}/ask", {"question": "why?"})
    chromium.wait(lambda: "so" if chromium.text("h1") == "Locked" else "", "it is still shown")
    assert "what-was-shown" not in chromium.script("return document.documentElement.outerHTML")
