"""The page of several requests that are alike: what leads to it, what it shows, and what it leaves to a page of its own.

A real daemon where decisions have to count; else a desk that is told what to answer (daemon_port.py).
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import Preview, PreviewField
from tests.cli.alike import APART, ann_and_bob, mail
from tests.support.home import DaemonHome
from tests.support.hostile_text import GROUPS, as_in_a_file, assert_harmless_page
from tests.support.paged import PageClient, Reply
from tests.support.upstream_http import CountingServer
from tests.web.daemon_port import Browser, ToldDesk, browser_of

pytestmark = [pytest.mark.jail, pytest.mark.anyio]


def mild(home: DaemonHome, *names: str) -> list[dict[str, Any]]:
    """Requests of one action that differ in one argument."""
    return [home.asked("mild", {"path": f"/effect/{name}"}) for name in names]


def together(asked: list[dict[str, Any]]) -> str:
    """The address of their page."""
    return "/approvals/together?of=" + ",".join(one["approval_id"] for one in asked)


def states(home: DaemonHome, asked: list[dict[str, Any]], *, wait: float = 0) -> list[str]:
    """Of each."""
    return [str(home.result(one, wait=wait)["status"]) for one in asked]


def withdraw(home: DaemonHome, asked: dict[str, Any]) -> None:
    """It waits for nobody in the tests that follow."""
    home.must("POST", f"/v1/action-approvals/{asked['approval_id']}/cancel", {})


def decided(home: DaemonHome) -> list[dict[str, Any]]:
    """The decisions on record, oldest first."""
    found: list[dict[str, Any]] = home.must("GET", "/v1/audit?type=approval.decided&order=oldest&limit=1000")["events"]
    return found


# With a real daemon


def test_three_alike_are_approved_on_one_page_and_each_is_signed(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The queue leads there; two steps; each has a decision of its own on record, and has run."""
    before = upstream.effects
    asked = mild(home, "a1", "a2", "a3")
    other = home.asked("say", {"text": "something else"})
    queue = person.get("/approvals")
    assert "Review 3 alike mild" in queue.words
    assert f'href="{together(asked)}"' in queue.text
    page = person.get(together(asked))
    for fact in ("3 requests of the action “mild”", "what differs", "1 /effect/a1", "3 /effect/a3", "Deny all 3"):
        assert fact in page.words
    confirm = person.submit(page.form("/together/approve"))
    assert "1 /effect/a1" in confirm.words
    assert states(home, asked) == ["pending_approval"] * 3
    done = person.submit(confirm.form("/together/approve"))

    assert "3 of 3 approved." in done.words
    assert states(home, asked, wait=25) == ["completed"] * 3
    assert upstream.effects == before + 3
    rows = decided(home)[-3:]
    assert [(row["surface"], row["approval"]) for row in rows] == [("page", one["approval_id"]) for one in asked]
    assert len({row["signature"] for row in rows}) == 3
    assert home.must("GET", "/v1/audit/verify")["ok"] is True
    assert states(home, [other]) == ["pending_approval"]
    withdraw(home, other)


def test_what_takes_a_word_takes_it_once_for_all(home: DaemonHome, person: PageClient) -> None:
    """Without it nothing is decided."""
    asked = [home.asked("gated", {"path": f"/effect/w{number}"}) for number in (1, 2)]
    confirm = person.submit(person.get(together(asked)).form("/together/approve"))
    for word in ("", "y"):
        wrong = person.submit(confirm.form("/together/approve"), word=word)
        assert (wrong.status, "That is not the word" in wrong.words) == (400, True)
    assert states(home, asked) == ["pending_approval"] * 2
    person.submit(confirm.form("/together/approve"), word="yes")

    assert states(home, asked, wait=25) == ["completed"] * 2


def test_all_are_denied_with_one_reason(home: DaemonHome, person: PageClient) -> None:
    """One step, as for one; the agent of each reads it."""
    asked = mild(home, "d1", "d2")
    done = person.submit(person.get(together(asked)).form("/together/deny"), reason="not today")

    assert "2 of 2 denied." in done.words
    assert states(home, asked) == ["denied"] * 2
    assert [home.result(one)["reason"] for one in asked] == ["not today"] * 2


def test_one_that_was_decided_elsewhere_keeps_the_others_from_being_signed(
    home: DaemonHome, person: PageClient
) -> None:
    """What the form's page showed is not so any more: a list says what is so now."""
    asked = mild(home, "e1", "e2")
    confirm = person.submit(person.get(together(asked)).form("/together/approve"))
    first = person.submit(person.get(f"/approvals/{asked[0]['approval_id']}").form("/decide", decision="deny"))
    assert "Denied" in first.words
    late = person.submit(confirm.form("/together/approve"))

    assert (late.status, states(home, asked)) == (409, ["denied", "pending_approval"])
    assert not late.forms[1:], "nothing on it decides"
    withdraw(home, asked[1])


def test_a_form_of_another_session_or_that_was_changed_decides_nothing(
    home: DaemonHome, person: PageClient, stranger: PageClient
) -> None:
    """Nor one that names another request, nor the address of the second step alone. The form itself does."""
    asked, other = mild(home, "f1", "f2"), mild(home, "f3")
    page = person.get(together(asked))
    confirm = person.submit(page.form("/together/approve")).form("/together/approve")
    of, digests = confirm.fields["of"].split(","), confirm.fields["digest"]
    swapped = ",".join([of[0], other[0]["approval_id"]])
    assert stranger.unlock().status == 200

    def refused(client: PageClient, **changed: str) -> Reply:
        answer = client.post(confirm.action, {**confirm.fields, **changed})
        assert answer.status == 403, answer.words
        return answer

    refused(stranger)
    refused(person, of=swapped)
    refused(person, digest=digests[:-1] + ("0" if digests[-1] != "0" else "1"))
    refused(person, token=page.form("/together/deny").fields["token"])
    assert person.post(confirm.action, confirm.fields, Origin="http://evil.example").status == 403
    query = urllib.parse.urlencode({"of": ",".join(of), "digest": digests})
    led = person.get(f"/approvals/together/approve?{query}")
    assert (led.status, "Approving starts on this page" in led.words) == (403, True)
    assert states(home, [*asked, *other]) == ["pending_approval"] * 3
    assert person.post(confirm.action, confirm.fields).status == 303
    assert states(home, asked, wait=25) == ["completed"] * 2
    withdraw(home, other[0])


@pytest.mark.parametrize("of", ["", "x", "{one}", "{one},{one}", "{one},../x", ",".join(["{one}"] * 11)])
def test_what_names_no_requests_is_refused(home: DaemonHome, person: PageClient, of: str) -> None:
    """One, the same twice, too many, and what is no id."""
    asked = mild(home, "g1")
    answer = person.get(f"/approvals/together?of={of.format(one=asked[0]['approval_id'])}")

    assert (answer.status, "no such requests" in answer.words) == (400, True)
    withdraw(home, asked[0])


def test_before_it_is_unlocked_nothing_of_several_is_shown(home: DaemonHome, stranger: PageClient) -> None:
    """The same locked page as at every address."""
    asked = mild(home, "secret-plan", "secret-plan-2")
    for path in (together(asked), "/approvals/together/approve"):
        assert "secret-plan" not in stranger.get(path).text
    for path in ("approve", "deny"):
        assert stranger.post(f"/approvals/together/{path}", {"token": "x"}).status == 403
    assert states(home, asked) == ["pending_approval"] * 2
    for one in asked:
        withdraw(home, one)


# With a desk that is told what to answer


def of(asked: list[dict[str, Any]]) -> str:
    """Their ids, as the page names them."""
    return ",".join(one["approval_id"] for one in asked)


async def card_of(browser: Browser, asked: list[dict[str, Any]]) -> httpx.Response:
    """Their page."""
    return await browser.get(f"/approvals/together?of={of(asked)}")


async def approved(browser: Browser, asked: list[dict[str, Any]]) -> httpx.Response:
    """What the second step sends, followed to the list."""
    digest = ",".join(one["digest"] for one in asked)
    token = browser.session.token("approve together", of(asked), digest, "all")
    fields = {"token": token, "of": of(asked), "digest": digest, "read": "all"}
    answer = await browser.post("/approvals/together/approve", fields)
    return await browser.get(answer.headers["location"]) if answer.status_code == 303 else answer


@pytest.mark.parametrize(("asked", "why"), [one for one in APART if "2 to 10" not in one[1]])
async def test_what_asks_for_a_look_of_its_own_is_listed_with_a_page_for_each(
    asked: Callable[[], list[dict[str, Any]]], why: str
) -> None:
    """No button, no link from the queue, and a form that was made for it decides nothing. The control is the next test."""
    desk = ToldDesk()
    desk.questions = asked()
    async with browser_of(desk) as browser:
        listed, queue = await card_of(browser, desk.questions), await browser.get("/approvals")
        forced = await approved(browser, desk.questions)

    assert why in listed.text
    assert "/together/" not in listed.text
    assert "/approvals/together" not in queue.text
    for one in desk.questions:
        assert f'href="/approvals/{one["approval_id"]}"' in listed.text
    assert forced.status_code == 409
    assert not [who for who, _ in desk.told if who.startswith("act-")]


async def test_the_first_that_is_not_taken_ends_it_and_says_why() -> None:
    """What was approved by then stays so; the rest is not sent. Without it all of them are."""
    for fails in (True, False):
        desk = FailingDesk("act-20261121T040002-0123456789abcdef0002" if fails else "")
        desk.questions = [mail(number) for number in (1, 2, 3)]
        async with browser_of(desk) as browser:
            done = await approved(browser, desk.questions)
            again = await card_of(browser, desk.questions)
        taken = [who[-1] for who, what in desk.told if what == "approve"]

        assert taken == (["1"] if fails else ["1", "2", "3"])
        said = "1 of 3 approved. One was not taken: the disk is full" if fails else "3 of 3 approved."
        assert said in done.text
        assert said in again.text


class FailingDesk(ToldDesk):
    """One whose disk is full for one decision."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    async def decide(self, key: Any, asked: Any) -> Any:
        """Not that one."""
        if asked.approval_id == self._name:
            raise AileronError(FailureClass.BUSY, "the disk is full")
        return await super().decide(key, asked)


async def test_a_session_without_a_key_decides_them_one_by_one() -> None:
    """A passkey is touched for each: the queue leads to no page of several, and that page has no button."""
    desk = ToldDesk()
    desk.questions = [mail(1), mail(2)]
    async with browser_of(desk) as browser:
        assert "Review 2 alike" in (await browser.get("/approvals")).text
        assert "Approve all 2" in (await card_of(browser, desk.questions)).text
        browser.session.key = None
        assert "Review 2 alike" not in (await browser.get("/approvals")).text
        page, forced = await card_of(browser, desk.questions), await approved(browser, desk.questions)

    assert "Decide them one by one." in page.text
    assert "Approve all" not in page.text
    assert forced.status_code == 409
    assert not [who for who, what in desk.told if what == "approve"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_the_current_state_of_each_is_read_where_a_person_opens_the_page(is_elsewhere: bool) -> None:
    """Not because a page of elsewhere led here."""
    desk = ReadDesk()
    desk.questions = ann_and_bob()
    async with browser_of(desk) as browser:
        if is_elsewhere:
            browser._headers["Sec-Fetch-Site"] = "cross-site"
        page = await card_of(browser, desk.questions)

    assert ("current state of 2" in page.text) is not is_elsewhere
    assert ("its current state is not loaded" in page.text) is is_elsewhere
    assert desk.read == ([] if is_elsewhere else [one["approval_id"] for one in desk.questions])


async def test_one_whose_agent_is_contradicted_keeps_all_of_them_back() -> None:
    """The pair of the test above."""
    desk = ReadDesk(bob="mallory@evil.example")
    desk.questions = ann_and_bob()
    async with browser_of(desk) as browser:
        page = await card_of(browser, desk.questions)

    assert "the service has “mallory@evil.example”" in page.text
    assert "Approve all" not in page.text


class ReadDesk(ToldDesk):
    """One whose service has Ann, and Bob or somebody else."""

    def __init__(self, bob: str = "bob@example.com") -> None:
        super().__init__()
        self.read: list[str] = []
        self._has = iter(("ann@example.com", bob))

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """What is there."""
        self.read.append(approval_id)
        return Preview([PreviewField("To", next(self._has), multiline=False)], None, None, "sha256:" + "2" * 64)


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
async def test_hostile_text_of_several_is_harmless(text: str) -> None:
    """In the list, where it has an alarm, and on the card, where it is the name of an agent."""
    for more in ({"note": as_in_a_file(text)}, {}):
        desk = ToldDesk()
        desk.questions = [{**mail(number, **more), "agent": as_in_a_file(text)} for number in (1, 2)]
        async with browser_of(desk) as browser:
            page, queue = await card_of(browser, desk.questions), await browser.get("/approvals")

        assert more or "Approve all 2" in page.text
        assert_harmless_page(page.text)
        assert_harmless_page(queue.text)
