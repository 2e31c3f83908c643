"""A yes counts only for the newest preview, whether this page, another page or a command at a terminal loaded it.

Each test has its control: the yes that counts. What one page does with its own previews is in test_deciding_here.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.home import DaemonHome
from tests.support.paged import KeptApprover, PageClient, Reply
from tests.support.upstream_http import CountingServer

pytestmark = [pytest.mark.jail, pytest.mark.abuse_case("D41")]

MINE, SWAPPED = "/effect/mine", "/effect/swapped"
SINCE = "the current state was loaded again"


@pytest.fixture
def terminal(home: DaemonHome) -> KeptApprover:
    """Return an approver who signs at a terminal, with the key that the page opens."""
    return KeptApprover.of(home)


@pytest.fixture
def other(home: DaemonHome) -> PageClient:
    """Return another browser with an unlocked page."""
    client = PageClient(home)
    assert client.unlock().status == 200
    return client


@pytest.fixture
def asked(home: DaemonHome, upstream: CountingServer) -> dict[str, Any]:
    """Ask a question whose preview shows the service's answer, which so far equals the agent's."""
    upstream.page = MINE
    return home.asked("previewed", {"path": MINE})


def opened(browser: PageClient, asked: dict[str, Any]) -> Reply:
    """Open the question's page."""
    return browser.get(f"/approvals/{asked['approval_id']}")


def says_yes(browser: PageClient, page: Reply) -> Reply:
    """Take both steps of an approval, from this page on."""
    confirm = browser.submit(page.form("/approve"))
    return browser.submit(confirm.form("/decide"), word="yes")


def waits(home: DaemonHome, asked: dict[str, Any]) -> bool:
    """Return whether the question is still pending."""
    return bool(home.result(asked, wait=0)["status"] == "pending_approval")


def test_a_terminal_cannot_approve_a_preview_after_the_page_loaded_a_newer_preview(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The page's own approval, of the newer preview, counts."""
    before, effects = terminal.preview(home, asked["approval_id"])["digest"], upstream.effects
    upstream.page = SWAPPED
    page = opened(person, asked)
    assert f"the service has “{SWAPPED}”" in page.words

    refused = terminal.decide(home, asked["approval_id"], digest=before)

    assert (refused.status, SINCE in refused.body["error"]["message"]) == (400, True)
    assert (waits(home, asked), upstream.effects) == (True, effects)
    assert says_yes(person, page).status == 200
    assert (home.result(asked)["status"], upstream.effects) == ("completed", effects + 1)


def test_the_page_cannot_approve_a_preview_after_a_terminal_loaded_a_newer_preview(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The page says so, and shows the newer state when it is opened again, which can be approved."""
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


def test_a_browser_cannot_approve_a_preview_after_another_browser_loaded_a_newer_preview(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The first browser's approval is refused, and the second one's counts."""
    first = opened(person, asked)
    upstream.page = SWAPPED
    second = opened(other, asked)
    assert f"the service has “{SWAPPED}”" in second.words

    refused = says_yes(person, first)

    assert (refused.status, SINCE in refused.words) == (400, True)
    assert waits(home, asked)
    assert says_yes(other, second).status == 200
    assert home.result(asked)["status"] == "completed"


def test_a_browser_can_approve_its_preview_after_another_browser_loaded_an_equal_preview(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any]
) -> None:
    """Both browsers saw the same state, so the same digest is signed."""
    first = opened(person, asked)
    assert opened(other, asked).form("/approve").fields["digest"] == first.form("/approve").fields["digest"]
    assert says_yes(person, first).status == 200
    assert home.result(asked)["status"] == "completed"


def test_a_denial_is_accepted_even_if_a_newer_preview_was_loaded(
    home: DaemonHome, person: PageClient, other: PageClient, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """A denial is safe, because nothing runs."""
    first = opened(person, asked)
    upstream.page = SWAPPED
    opened(other, asked)

    assert "denied" in person.submit(first.form("/decide", decision="deny")).words
    assert home.result(asked)["status"] == "denied"


def test_a_failed_preview_leaves_the_newest_preview_valid(
    home: DaemonHome, person: PageClient, terminal: KeptApprover, asked: dict[str, Any], upstream: CountingServer
) -> None:
    """The newest preview still counts, and an older one does not count again."""
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
