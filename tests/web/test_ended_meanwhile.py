"""A session that ends while something is done in it: nothing more is shown, and what was done is said.

On a desk of the test's own, which stops in the middle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import httpx
import pytest

from aileron.web.questions import NEWS_S
from tests.web.daemon_port import ASKED, Browser, ToldDesk, asking, browser_of, previewed

pytestmark = pytest.mark.anyio


async def asked_for(browser: Browser) -> None:
    """The person locks the page, in another tab."""
    await browser.sessions.lock(browser.session, "asked")


def over(desk: ToldDesk) -> None:
    """Its time is over."""
    desk.now += 901


async def while_held(
    desk: ToldDesk, asks: Callable[[], Awaitable[httpx.Response]], end: Callable[[], Awaitable[None]]
) -> str:
    """What is answered where the session ends in the middle of it."""
    found: list[httpx.Response] = []

    async def ask() -> None:
        found.append(await asks())

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await desk.arrived.wait()
            await end()
            desk.go_on.set()
    return " ".join(found[0].text.split())


@pytest.mark.parametrize("how", ["goes on", "locked", "over"])
async def test_a_preview_that_was_read_for_a_session_is_shown_in_it_alone(how: str) -> None:
    """A service may take its time, and what it says is not for a page that is locked by then."""
    desk = ToldDesk()
    desk.questions, desk.holds = [previewed()], "preview"
    async with browser_of(desk) as browser:

        async def end() -> None:
            if how == "locked":
                await asked_for(browser)
            elif how == "over":
                over(desk)

        page = await while_held(desk, lambda: browser.get(f"/approvals/{ASKED}"), end)
        assert ("what-is-there-now" in page) is (how == "goes on")
        assert ("Approver passphrase" in page) is (how != "goes on")
        assert (browser.session.preview_of(ASKED, previewed()["digest"]) is not None) is (how == "goes on")


@pytest.mark.parametrize("how", ["locked", "over"])
async def test_a_decision_that_was_recorded_before_the_session_ended_is_said_to_be(how: str) -> None:
    """By what is on record then."""
    desk = ToldDesk()
    desk.questions, desk.holds = [asking()], "decide"
    async with browser_of(desk) as browser:

        async def end() -> None:
            await asked_for(browser) if how == "locked" else over(desk)

        page = await while_held(desk, lambda: browser.deny(asking()["digest"]), end)
    assert (ASKED, "deny") in desk.told
    assert "The request is decided. On record: denied." in page


async def test_a_decision_that_came_too_late_for_the_session_is_said_not_to_count() -> None:
    """It ended before anything was signed: the question waits."""
    desk = ToldDesk()
    desk.questions, desk.holds = [previewed()], "preview"
    async with browser_of(desk) as browser:
        page = await while_held(desk, lambda: browser.deny(previewed()["digest"]), lambda: asked_for(browser))
    assert (ASKED, "deny") not in desk.told
    assert "Your decision was not recorded: the request still waits." in page


async def test_who_decided_and_comes_back_to_a_locked_page_is_told_what_became_of_it() -> None:
    """The session ended between the decision and the page that shows it. Another process with the cookie is told nothing."""
    desk = ToldDesk()
    desk.questions = [asking()]
    async with browser_of(desk) as browser:
        assert (await browser.deny(asking()["digest"])).status_code == 303
        over(desk)
        said = "On record: denied."
        assert said in (await browser.get(f"/approvals/{ASKED}")).text
        assert said not in (await browser.get("/approvals")).text
        desk.pid = 2
        assert said not in (await browser.get(f"/approvals/{ASKED}")).text


async def test_a_page_that_waits_for_news_hears_at_once_that_it_is_locked() -> None:
    """And not with the next that is new."""
    desk = ToldDesk()
    async with browser_of(desk) as browser:
        known = (await browser.get("/approvals/news?known=x")).json()["news"]

        async def ask() -> None:
            answer = await browser.get(f"/approvals/news?known={known}")
            assert (answer.status_code, answer.json()) == (401, {"locked": True})

        with anyio.fail_after(NEWS_S - 5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                await asked_for(browser)


async def test_a_page_that_waits_for_news_is_answered_when_the_daemon_stops() -> None:
    """Nothing is new; a daemon that stops would wait for this request as long as for any other."""
    desk, answers = ToldDesk(), []
    async with browser_of(desk) as browser:
        known = (await browser.get("/approvals/news?known=x")).json()["news"]

        async def ask() -> None:
            answers.append(await browser.get(f"/approvals/news?known={known}"))

        with anyio.fail_after(NEWS_S - 5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                assert answers == []
                desk.stopping.set()
        (answer,) = answers
        assert (answer.status_code, answer.json()["news"]) == (200, known)
