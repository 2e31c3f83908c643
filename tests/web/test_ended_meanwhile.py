"""A session of the page that ends during a request: nothing more is shown, and the outcome of the request is told.

The tests use a scripted daemon port that stops in the middle.
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
    """Lock the page, as the person does in another tab."""
    await browser.sessions.lock(browser.session, "asked")


def over(desk: ToldDesk) -> None:
    """Advance the clock beyond the session's time."""
    desk.now += 901


async def while_held(
    desk: ToldDesk, asks: Callable[[], Awaitable[httpx.Response]], end: Callable[[], Awaitable[None]]
) -> str:
    """Return the answer to a request during which the session ends."""
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
async def test_a_preview_that_arrives_after_its_page_session_ended_is_not_shown(how: str) -> None:
    """A slow service's response must not appear on a page that was locked meanwhile."""
    desk = ToldDesk(previewed(), holds="preview")
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
async def test_a_decision_recorded_just_before_its_page_session_ended_is_confirmed(how: str) -> None:
    """The page says what is on record then."""
    desk = ToldDesk(asking(), holds="decide")
    async with browser_of(desk) as browser:

        async def end() -> None:
            await asked_for(browser) if how == "locked" else over(desk)

        page = await while_held(desk, lambda: browser.deny(asking()["digest"]), end)
    assert (ASKED, "deny") in desk.told
    assert "The request is decided. On record: denied." in page


async def test_a_decision_that_arrives_after_its_page_session_ended_is_not_recorded() -> None:
    """The session ended before anything was signed: the page says that the question is still pending."""
    desk = ToldDesk(previewed(), holds="preview")
    async with browser_of(desk) as browser:
        page = await while_held(desk, lambda: browser.deny(previewed()["digest"]), lambda: asked_for(browser))
    assert (ASKED, "deny") not in desk.told
    assert "Your decision was not recorded: the request still waits." in page


async def test_a_page_locked_after_a_decision_shows_the_outcome_to_its_browser_only() -> None:
    """The session ended before the page with the outcome. Another process with the cookie sees nothing."""
    desk = ToldDesk(asking())
    async with browser_of(desk) as browser:
        assert (await browser.deny(asking()["digest"])).status_code == 303
        over(desk)
        said = "On record: denied."
        assert said in (await browser.get(f"/approvals/{ASKED}")).text
        assert said not in (await browser.get("/approvals")).text
        desk.pid = 2
        assert said not in (await browser.get(f"/approvals/{ASKED}")).text


async def test_a_page_that_waits_for_updates_learns_at_once_that_it_is_locked() -> None:
    """The response must not wait for the next update."""
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


async def test_a_page_that_waits_for_updates_does_not_delay_the_daemons_stop() -> None:
    """A stopping daemon waits for its open requests, so this one must be answered."""
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
