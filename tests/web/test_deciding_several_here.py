"""The page of several requests that are alike: the way to it, its content, and the cases that are left to single pages.

The tests use a real daemon where decisions must count, and otherwise a scripted daemon port (daemon_port.py).
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
    """Ask for runs of one action that differ in one argument."""
    return [home.asked("mild", {"path": f"/effect/{name}"}) for name in names]


def together(asked: list[dict[str, Any]]) -> str:
    """Return the address of the page for these requests."""
    return "/approvals/together?of=" + ",".join(request["approval_id"] for request in asked)


def states(home: DaemonHome, asked: list[dict[str, Any]], *, wait: float = 0) -> list[str]:
    """Return the status of each."""
    return [str(home.result(request, wait=wait)["status"]) for request in asked]


def withdraw(home: DaemonHome, asked: dict[str, Any]) -> None:
    """Withdraw a request, so that later tests do not see it."""
    home.must("POST", f"/v1/action-approvals/{asked['approval_id']}/cancel", {})


def decided(home: DaemonHome) -> list[dict[str, Any]]:
    """Return the recorded decisions, oldest first."""
    found: list[dict[str, Any]] = home.must("GET", "/v1/audit?type=approval.decided&order=oldest&limit=1000")["events"]
    return found


# With a real daemon


def test_three_requests_that_are_alike_are_approved_on_one_page_and_each_is_signed(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The queue leads there; after two steps each has a decision of its own on record, and has run."""
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
    assert [(row["surface"], row["approval"]) for row in rows] == [
        ("page", request["approval_id"]) for request in asked
    ]
    assert len({row["signature"] for row in rows}) == 3
    assert home.must("GET", "/v1/audit/verify")["ok"] is True
    assert states(home, [other]) == ["pending_approval"]
    withdraw(home, other)


def test_several_requests_that_need_a_typed_word_need_it_only_once(home: DaemonHome, person: PageClient) -> None:
    """A wrong word, or none, decides nothing."""
    asked = [home.asked("gated", {"path": f"/effect/w{number}"}) for number in (1, 2)]
    confirm = person.submit(person.get(together(asked)).form("/together/approve"))
    for word in ("", "y"):
        wrong = person.submit(confirm.form("/together/approve"), word=word)
        assert (wrong.status, "That is not the word" in wrong.words) == (400, True)
    assert states(home, asked) == ["pending_approval"] * 2
    person.submit(confirm.form("/together/approve"), word="yes")

    assert states(home, asked, wait=25) == ["completed"] * 2


def test_several_requests_are_denied_with_one_reason(home: DaemonHome, person: PageClient) -> None:
    """Denying takes one step, as for a single request; each agent gets the reason."""
    asked = mild(home, "d1", "d2")
    done = person.submit(person.get(together(asked)).form("/together/deny"), reason="not today")

    assert "2 of 2 denied." in done.words
    assert states(home, asked) == ["denied"] * 2
    assert [home.result(request)["reason"] for request in asked] == ["not today"] * 2


def test_a_request_decided_elsewhere_keeps_the_remaining_requests_from_being_signed(
    home: DaemonHome, person: PageClient
) -> None:
    """The form belongs to an outdated page, so the response lists the current state."""
    asked = mild(home, "e1", "e2")
    confirm = person.submit(person.get(together(asked)).form("/together/approve"))
    first = person.submit(person.get(f"/approvals/{asked[0]['approval_id']}").form("/decide", decision="deny"))
    assert "Denied" in first.words
    late = person.submit(confirm.form("/together/approve"))

    assert (late.status, states(home, asked)) == (409, ["denied", "pending_approval"])
    assert not late.forms[1:], "nothing on it decides"
    withdraw(home, asked[1])


def test_a_form_of_another_page_session_or_a_changed_form_decides_nothing(
    home: DaemonHome, person: PageClient, stranger: PageClient
) -> None:
    """A form for another request and the bare address of the second step do not either. The control is the form itself."""
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
def test_an_invalid_list_of_requests_is_refused(home: DaemonHome, person: PageClient, of: str) -> None:
    """The cases are a single request, a repeated one, too many, and malformed ids."""
    asked = mild(home, "g1")
    answer = person.get(f"/approvals/together?of={of.format(one=asked[0]['approval_id'])}")

    assert (answer.status, "no such requests" in answer.words) == (400, True)
    withdraw(home, asked[0])


def test_a_locked_page_for_several_requests_shows_nothing_of_them(home: DaemonHome, stranger: PageClient) -> None:
    """The locked page at these addresses shows nothing of them, and forms are refused."""
    asked = mild(home, "secret-plan", "secret-plan-2")
    for path in (together(asked), "/approvals/together/approve"):
        assert "secret-plan" not in stranger.get(path).text
    for path in ("approve", "deny"):
        assert stranger.post(f"/approvals/together/{path}", {"token": "x"}).status == 403
    assert states(home, asked) == ["pending_approval"] * 2
    for request in asked:
        withdraw(home, request)


# With a scripted daemon port


def of(asked: list[dict[str, Any]]) -> str:
    """Return the ids of the questions as the page names them."""
    return ",".join(request["approval_id"] for request in asked)


async def card_of(browser: Browser, asked: list[dict[str, Any]]) -> httpx.Response:
    """Open the page for these requests."""
    return await browser.get(f"/approvals/together?of={of(asked)}")


async def approved(browser: Browser, asked: list[dict[str, Any]]) -> httpx.Response:
    """Send the form of the second step, and follow it to the list."""
    digest = ",".join(request["digest"] for request in asked)
    token = browser.session.token("approve together", of(asked), digest, "all")
    fields = {"token": token, "of": of(asked), "digest": digest, "read": "all"}
    answer = await browser.post("/approvals/together/approve", fields)
    return await browser.get(answer.headers["location"]) if answer.status_code == 303 else answer


@pytest.mark.parametrize(("asked", "why"), [case for case in APART if "2 to 10" not in case[1]])
async def test_requests_that_are_not_alike_have_no_common_page(
    asked: Callable[[], list[dict[str, Any]]], why: str
) -> None:
    """The list has no button, the queue no link, and a forged form decides nothing. The control is the next test."""
    desk = ToldDesk(*asked())
    async with browser_of(desk) as browser:
        listed, queue = await card_of(browser, desk.questions), await browser.get("/approvals")
        forced = await approved(browser, desk.questions)

    assert why in listed.text
    assert "/together/" not in listed.text
    assert "/approvals/together" not in queue.text
    for question in desk.questions:
        assert f'href="/approvals/{question["approval_id"]}"' in listed.text
    assert forced.status_code == 409
    assert not [who for who, _ in desk.told if who.startswith("act-")]


async def test_the_first_refused_decision_stops_the_remaining_decisions_and_says_why() -> None:
    """Requests approved before it stay approved; later ones are not sent. The control approves all three."""
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
    """A daemon port whose disk is full for one decision."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    async def decide(self, key: Any, asked: Any) -> Any:
        """Refuse that decision, and take all others."""
        if asked.approval_id == self._name:
            raise AileronError(FailureClass.BUSY, "the disk is full")
        return await super().decide(key, asked)


async def test_a_page_session_unlocked_by_a_passkey_decides_requests_one_by_one() -> None:
    """Each decision needs a touch, so the list has no link to a common page, and that page has no button."""
    desk = ToldDesk(mail(1), mail(2))
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
async def test_previews_of_several_requests_load_only_if_a_person_opens_the_page(is_elsewhere: bool) -> None:
    """A link from another site loads none."""
    desk = ReadDesk()
    desk.questions = ann_and_bob()
    async with browser_of(desk) as browser:
        if is_elsewhere:
            browser._headers["Sec-Fetch-Site"] = "cross-site"
        page = await card_of(browser, desk.questions)

    assert ("current state of 2" in page.text) is not is_elsewhere
    assert ("its current state is not loaded" in page.text) is is_elsewhere
    assert desk.read == ([] if is_elsewhere else [question["approval_id"] for question in desk.questions])


async def test_a_preview_that_contradicts_one_request_blocks_the_approval_of_all_requests() -> None:
    """This is the counterpart of the test that loads previews: here one recipient differs."""
    desk = ReadDesk(bob="mallory@evil.example")
    desk.questions = ann_and_bob()
    async with browser_of(desk) as browser:
        page = await card_of(browser, desk.questions)

    assert "the service has “mallory@evil.example”" in page.text
    assert "Approve all" not in page.text


class ReadDesk(ToldDesk):
    """A daemon port whose service has Ann, and Bob or another name, as recipients."""

    def __init__(self, bob: str = "bob@example.com") -> None:
        super().__init__()
        self.read: list[str] = []
        self._has = iter(("ann@example.com", bob))

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Return a preview with the next recipient."""
        self.read.append(approval_id)
        return Preview([PreviewField("To", next(self._has), multiline=False)], None, None, "sha256:" + "2" * 64)


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
async def test_hostile_text_of_several_requests_is_escaped(text: str) -> None:
    """The text is in the list, where it raises an alarm, and on the card, where it is an agent's name."""
    notes: tuple[dict[str, Any], ...] = ({"note": as_in_a_file(text)}, {})
    for more in notes:
        desk = ToldDesk(*({**mail(number, **more), "agent": as_in_a_file(text)} for number in (1, 2)))
        async with browser_of(desk) as browser:
            page, queue = await card_of(browser, desk.questions), await browser.get("/approvals")

        assert more or "Approve all 2" in page.text
        assert_harmless_page(page.text)
        assert_harmless_page(queue.text)
