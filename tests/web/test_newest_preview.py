"""A yes counts for the newest preview of its plan, whoever had it read: this page, another one, or a command at a terminal.

Each with its control: the yes that counts. What one page does with what it read itself is in test_deciding_here.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.home import DaemonHome
from tests.support.paged import KeptApprover, PageClient, Reply
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

MINE, SWAPPED = "/effect/mine", "/effect/swapped"
SINCE = "the current state was loaded again"


@pytest.fixture
def terminal(home: DaemonHome) -> KeptApprover:
    """Who signs at a terminal, with the key that the page opens."""
    return KeptApprover.of(home)


@pytest.fixture
def other(home: DaemonHome) -> PageClient:
    """Another browser that was unlocked."""
    client = PageClient(home)
    assert client.unlock().status == 200
    return client


@pytest.fixture
def asked(home: DaemonHome, upstream: CountingServer) -> dict[str, Any]:
    """A question whose preview shows what the service says; that is what the agent says, so far."""
    upstream.page = MINE
    return home.asked("previewed", {"path": MINE})


def opened(browser: PageClient, asked: dict[str, Any]) -> Reply:
    """Its page."""
    return browser.get(f"/approvals/{asked['approval_id']}")


def says_yes(browser: PageClient, page: Reply) -> Reply:
    """Both steps, from this page on."""
    confirm = browser.submit(page.form("/approve"))
    return browser.submit(confirm.form("/decide"), word="yes")


def waits(home: DaemonHome, asked: dict[str, Any]) -> bool:
    """Whether nothing is decided."""
    return bool(home.result(asked, wait=0)["status"] == "pending_approval")


def test_what_a_terminal_read_before_the_page_did_is_not_decided(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """A yes to it is refused; the page's own, to what it read since, counts."""
    before, effects = terminal.preview(home, asked["approval_id"])["digest"], upstream.effects
    upstream.page = SWAPPED
    page = opened(person, asked)
    assert f"the service has “{SWAPPED}”" in page.words

    refused = terminal.decide(home, asked["approval_id"], digest=before)

    assert (refused.status, SINCE in refused.body["error"]["message"]) == (400, True)
    assert (waits(home, asked), upstream.effects) == (True, effects)
    assert says_yes(person, page).status == 200
    assert (home.result(asked)["status"], upstream.effects) == ("completed", effects + 1)


def test_what_the_page_read_before_a_terminal_did_is_not_decided(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The page says so, and shows what is there now when it is looked at again: a yes to that counts."""
    page = opened(person, asked)
    upstream.page = SWAPPED
    now = terminal.preview(home, asked["approval_id"])["digest"]

    refused = says_yes(person, page)

    assert (refused.status, SINCE in refused.words) == (400, True)
    assert waits(home, asked)
    again = opened(person, asked)
    assert (f"the service has “{SWAPPED}”" in again.words, again.form("/approve").fields["digest"]) == (True, now)
    assert says_yes(person, again).status == 200
    assert home.result(asked)["status"] == "completed"


def test_what_one_browser_read_before_another_did_is_not_decided(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The first one's yes is refused, the second one's counts."""
    first = opened(person, asked)
    upstream.page = SWAPPED
    second = opened(other, asked)
    assert f"the service has “{SWAPPED}”" in second.words

    refused = says_yes(person, first)

    assert (refused.status, SINCE in refused.words) == (400, True)
    assert waits(home, asked)
    assert says_yes(other, second).status == 200
    assert home.result(asked)["status"] == "completed"


def test_what_two_browsers_read_alike_is_decided_by_either(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any]
) -> None:
    """It is the same that is there, and so the same that is signed."""
    first = opened(person, asked)
    assert opened(other, asked).form("/approve").fields["digest"] == first.form("/approve").fields["digest"]
    assert says_yes(person, first).status == 200
    assert home.result(asked)["status"] == "completed"


def test_a_no_counts_whatever_was_read_since(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """Nothing happens by it."""
    first = opened(person, asked)
    upstream.page = SWAPPED
    opened(other, asked)

    assert "denied" in person.submit(first.form("/decide", decision="deny")).words
    assert home.result(asked)["status"] == "denied"


def test_a_reading_that_fails_leaves_the_newest_what_it_was(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """Neither the one before it comes to count again, nor does the newest cease to."""
    before = terminal.preview(home, asked["approval_id"])["digest"]
    upstream.page = SWAPPED
    newest = terminal.preview(home, asked["approval_id"])["digest"]
    home.must("POST", "/v1/vault/lock")
    assert "! current state could not be loaded: " in opened(person, asked).words
    home.unlock()

    refused = terminal.decide(home, asked["approval_id"], digest=before)

    assert (refused.status, SINCE in refused.body["error"]["message"]) == (400, True)
    assert terminal.decide(home, asked["approval_id"], digest=newest).status == 200
    assert home.result(asked)["status"] == "completed"
