"""Views of runs and of malformed rows on the page, with a scripted daemon port."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from aileron.model.timestamp import local_time
from aileron.web.admission import MAX_STRANGERS
from aileron.web.views import milliseconds
from tests.support.paged import Reply
from tests.support.waiting import wait_until_async
from tests.web.daemon_port import ASKED, ToldDesk, asking, browser_of

pytestmark = pytest.mark.anyio

# The locked page


@pytest.mark.abuse_case("D40")
async def test_the_number_of_concurrent_unlock_attempts_is_bounded() -> None:
    """Further programs are turned away with an explanation; once no attempt waits, the next is admitted."""
    desk = ToldDesk(holds="process")
    turned_away: list[bool] = []
    async with browser_of(desk) as browser:

        async def ask() -> None:
            answer = await browser.post("/approvals/unlock", {"passphrase": "wrong"})
            turned_away.append("Too many programs want to unlock this page" in answer.text)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(MAX_STRANGERS + 5):
                    tasks.start_soon(ask)
                await desk.arrived.wait()
                await wait_until_async(lambda: len(turned_away) >= 4, "four are turned away", seen=lambda: turned_away)
                desk.go_on.set()
        await ask()
    assert turned_away == [True] * 4 + [False] * (MAX_STRANGERS + 2)


async def test_two_questions_about_one_action_are_distinguishable_on_the_queue_page() -> None:
    """The row has its headline, escaped."""
    lines = ["to=mira@example.com", "to=\u202e<b>mallory</b>", ""]
    desk = ToldDesk(*(asking(approval_id=f"{ASKED[:-1]}{n}", headline=line) for n, line in enumerate(lines)))
    async with browser_of(desk) as browser:
        page = (await browser.get("/approvals")).text

    assert '<span class="name">to=mira@example.com</span>' in page
    assert '<span class="name">to=\\u202e&lt;b&gt;mallory&lt;/b&gt;</span>' in page
    assert page.count('class="name"') == len(lines)


# The outcome of a question

_SENT = {
    "at": "2026-01-01T00:00:00Z",
    "type": "egress.sending",
    "step": "s",
    "request": 1,
    "method": "GET",
    "host": "a.example",
}
_CAME = {"at": "2026-01-01T00:00:01Z", "type": "egress.finished", "step": "s", "request": 1, "status": 200}


@pytest.mark.parametrize(("scrubbed", "is_cut"), [(0, False), (2, False), (0, True)])
async def test_a_runs_page_reports_masked_secrets_and_a_truncated_record(scrubbed: int, is_cut: bool) -> None:
    """The page uses the words of the terminal."""
    desk = ToldDesk(asking(status="completed", audit_id="run-1"))
    events = [
        _SENT,
        {**_CAME, "scrubbed": scrubbed},
        {"at": _CAME["at"], "type": "run.finished", "class": "some-class"},
    ]
    desk.ran = {"audit_id": "run-1", "status": "completed", "events": events, "truncated": is_cut}
    async with browser_of(desk) as browser:
        page = (await browser.get(f"/approvals/{ASKED}")).text

    assert ("the secret came back 2 times, and was blotted out" in page) is (scrubbed == 2)
    assert ("Not all of the record is shown here." in page) is is_cut
    assert "class=some-class" in page


_OTHER = {
    "class": "external_api_error",
    "message": "the service answered 503",
    "retriable": True,
    "boundary": "external",
}
_ERROR = {**_OTHER, "audit_id": None, "details": {}}


@pytest.mark.parametrize(
    ("status", "found", "said"),
    [
        (
            "completed",
            {"result": {"uid": "3f1c", "count": 2, "all": [1, 2, 3]}},
            "✓ done uid: “3f1c” · count: 2 · all: 3 items",
        ),
        ("completed", {"result": "sent"}, "✓ done “sent”"),
        ("completed", {"result": {}}, "✓ done"),
        ("failed", {"error": _ERROR}, "Approved, but it failed: the service answered 503 (external_api_error)"),
        (
            "unknown",
            {"error": _ERROR},
            "Approved, but the outcome is unknown: the service answered 503 (external_api_error) Look at the service",
        ),
        ("approved", {"error": _ERROR}, "✓ approved Not started yet: the service answered 503 (external_api_error)"),
        ("approved", {"held_until": "2099-01-01T00:00:00Z"}, "You can withdraw it until then."),
        ("running", {}, "✓ approved, running"),
        ("denied", {}, "Denied: nothing ran"),
        ("expired", {}, "Expired: nothing ran Nobody decided in time. The agent can ask again."),
        ("cancelled", {}, "Withdrawn: nothing ran"),
    ],
)
async def test_the_page_of_a_run_shows_its_result_in_a_line_below_the_headline(
    status: str, found: dict[str, Any], said: str
) -> None:
    """The line has the words of the card, with the result or the reason of a failure."""
    desk = ToldDesk(asking(status=status, audit_id="run-1"))
    desk.came = {"status": status, **found}
    async with browser_of(desk) as browser:
        page = Reply(200, {}, (await browser.get(f"/approvals/{ASKED}")).text)

    assert said in page.words


async def test_a_hostile_result_is_escaped_on_the_page() -> None:
    """The text is the service's: it stands in quotes that it cannot close, and is never markup."""
    desk = ToldDesk(asking(status="completed", audit_id="run-1"))
    desk.came = {"result": {"to\u202e": "<b>” · ✓ done"}}
    async with browser_of(desk) as browser:
        page = (await browser.get(f"/approvals/{ASKED}")).text

    assert '<p class="result">to\\u202e: “&lt;b&gt;\' · ✓ done”</p>' in page.replace("&#39;", "'")


# Malformed rows


@pytest.mark.parametrize(
    "moment",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "99999-01-01T00:00:00Z",
        "soon",
        "2026-01-01T00:00:00",
        "",
        None,
        7,
    ],
)
def test_a_timestamp_out_of_range_is_shown_unchanged_on_the_page(moment: object) -> None:
    """The page shows no countdown for it."""
    assert (local_time(moment), milliseconds(moment)) == (str(moment), 0)


@pytest.mark.parametrize(
    "change",
    [
        {"created_at": "0001-01-01T00:00:00+14:00", "expires_at": "9999-12-31T23:59:59-14:00"},
        {"decided_at": "9999-12-31T23:59:59-14:00", "status": "denied"},
    ],
)
async def test_the_pages_of_a_question_with_a_timestamp_out_of_range_are_shown(change: dict[str, str]) -> None:
    """The queue and the question's own page show it."""
    desk = ToldDesk(asking(**change))
    async with browser_of(desk) as browser:
        for path in ("", f"/{ASKED}"):
            page = await browser.get(f"/approvals{path}")
            assert (page.status_code, "-14:00" in page.text) == (200, True)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"edits": [7]}, (500, 500)),
        ({"plan": "none"}, (500, 500)),
        ({"plan": {"steps": 7}}, (409, 200)),
        ({"plan": {"args": [7]}}, (409, 200)),
        ({"kind": "secret", "subject": 7}, (500, 500)),
    ],
    ids=str,
)
@pytest.mark.parametrize("status", ["pending_approval", "denied"])
async def test_a_malformed_question_gets_an_error_page_that_says_what_to_do(
    change: dict[str, object], codes: tuple[int, int], status: str
) -> None:
    """The error page has a content security policy and says what to do; the next page is answered. A subject that is an
    object is shown as it was received once it is decided.
    """
    desk = ToldDesk(asking(status=status) | change)
    async with browser_of(desk) as browser:
        page = await browser.get(f"/approvals/{ASKED}")
        after = await browser.get("/approvals")

    said = {
        500: ("This request cannot be shown.", f"aileron approval show {ASKED}"),
        409: (f"{ASKED} cannot be shown in full here, so nothing was signed",),
        200: ("Denied: nothing ran", f"as received kind action content {json.dumps(change.get('plan'))}"),
    }
    words = Reply(200, {}, page.text).words
    assert page.status_code == codes[status == "denied"]
    assert [part for part in said[page.status_code] if part not in words] == []
    assert "Traceback" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert after.status_code == 200


async def test_a_question_without_an_id_gets_an_error_page() -> None:
    """This is the control of the other tests here: this question cannot be shown."""
    desk = ToldDesk({"status": "denied"})
    async with browser_of(desk) as browser:
        page = await browser.get(f"/approvals/{ASKED}")

    assert (page.status_code, "This request cannot be shown." in page.text) == (500, True)
