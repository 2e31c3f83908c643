"""The page decides as a command does: shown whole, in two steps, signed for exactly what was shown, and without a script."""

from __future__ import annotations

import contextlib
import sqlite3
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.home import DaemonHome
from tests.support.hostile_text import GROUPS, as_in_a_file, assert_harmless_page
from tests.support.paged import PageClient, Reply
from tests.support.told import of_kind
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_still, wait_until

pytestmark = pytest.mark.jail

NEVER = "act-20260101T000000-00000000000000000000"
UNREAD = "The current state could not be loaded."


def opened(person: PageClient, question: dict[str, object]) -> Reply:
    """Open the question's page."""
    return person.get(f"/approvals/{question['approval_id']}")


def let_expire(home: DaemonHome, question: dict[str, object]) -> None:
    """Expire a question in the record; once the daemon has closed it, restore the recorded time."""
    name = question["approval_id"]
    ledger = sqlite3.connect(home.path / "ledger.db", isolation_level=None)
    with contextlib.closing(ledger) as record:
        (recorded_us,) = record.execute("SELECT expires_us FROM approvals WHERE id = ?", (name,)).fetchone()
        record.execute("UPDATE approvals SET expires_us = created_us WHERE id = ?", (name,))
        home.asked("mild")  # each new question makes the daemon look for expired ones
        wait_until(lambda: home.result(question, wait=0)["status"] == "expired", "it expires")
        record.execute("UPDATE approvals SET expires_us = ? WHERE id = ?", (recorded_us, name))


# The locked page


def test_a_locked_review_page_shows_nothing_of_its_question(home: DaemonHome, stranger: PageClient) -> None:
    """A pending question's page equals that of an id that never existed, except for the id; the list is empty."""
    asked = home.asked("say", {"text": "a very secret plan"})
    there, never, queue = (
        stranger.get(path) for path in (f"/approvals/{asked['approval_id']}", f"/approvals/{NEVER}", "/approvals")
    )

    assert there.text.replace(asked["approval_id"], NEVER) == never.text
    for page in (there, never, queue):
        assert "secret plan" not in page.text
        assert "say" not in page.words.split()
    assert f"aileron approve {NEVER}" in never.text
    assert_harmless_page(there.text)
    for path in ("/approvals/news", f"/approvals/news?of={asked['approval_id']}&known=x"):
        assert (stranger.get(path).status, stranger.get(path).text) == (401, '{"locked":true}')
    for path in ("decide", "challenge", "ask", "preview", "cancel"):
        refused = stranger.post(f"/approvals/{asked['approval_id']}/{path}", {"token": "x"})
        assert refused.status == 403
        assert "locked" in refused.words
    assert home.result(asked, wait=0)["status"] == "pending_approval"


def test_unlocking_the_page_with_a_wrong_passphrase_is_refused_and_recorded(
    home: DaemonHome, stranger: PageClient
) -> None:
    """A refusal sets no cookie; the right passphrase does, and is recorded with the process that sent it."""
    since = len(of_kind(home, "approval.refused"))
    refused = stranger.unlock("not this one")

    assert (refused.status, refused.cookies) == (403, [])
    assert "That is not the passphrase." in refused.words
    assert [(row["decision"], row["reason"], row["surface"]) for row in of_kind(home, "approval.refused")[since:]] == [
        ("unlock", "passphrase", "page")
    ]
    answer = stranger.post("/approvals/unlock", {"passphrase": "nine green bottles", "to": ""})
    (cookie,) = answer.cookies
    assert answer.status == 303
    name, _, attributes = cookie.partition("=")
    assert name == f"aileron-page-{stranger.port}"
    assert attributes.partition("; ")[2] == "HttpOnly; Path=/approvals; SameSite=strict"
    assert of_kind(home, "page.unlocked")[-1]["program"] == Path("/proc/self/comm").read_text().strip()


# Deciding


def test_an_irreversible_run_needs_the_typed_word_of_its_effect(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """A wrong word decides nothing. Once the run has completed, its page shows every request that it sent."""
    asked, before = home.asked("gated", {"path": "/effect/word"}), upstream.effects
    page = opened(person, asked)
    assert "! CANNOT BE UNDONE" in page.words
    confirm = person.submit(page.form("/approve"))

    for word in ("", "y", "gated"):
        wrong = person.submit(confirm.form("/decide"), word=word)
        assert (wrong.status, "That is not the word" in wrong.words) == (400, True)
    assert (home.result(asked, wait=0)["status"], upstream.effects) == ("pending_approval", before)
    person.submit(confirm.form("/decide"), word=" yes ")
    assert home.result(asked)["status"] == "completed"
    done = opened(person, asked).words
    assert "✓ done status: 200" in done
    assert f"POST localhost:{upstream.port}/effect/word 200" in done
    assert "3 B out, 4 B in" in done
    assert upstream.effects == before + 1
    decided = of_kind(home, "approval.decided")[-1]
    assert (decided["surface"], decided["approval"], "signature" in decided) == ("page", asked["approval_id"], True)
    assert home.must("GET", "/v1/audit/verify")["ok"] is True


def test_a_run_that_can_be_undone_needs_no_typed_word(home: DaemonHome, person: PageClient) -> None:
    """A button, and one more to confirm, are enough."""
    asked = home.asked("mild")
    confirm = person.submit(opened(person, asked).form("/approve"))
    assert "word" not in confirm.form("/decide").fields
    person.submit(confirm.form("/decide"))

    assert home.result(asked)["status"] == "completed"


def test_a_denial_on_the_page_takes_one_step_and_its_reason_reaches_the_agent(
    home: DaemonHome, person: PageClient
) -> None:
    """The run does not start."""
    asked = home.asked("gated", {"path": "/effect/denied"})
    page = person.submit(opened(person, asked).form("/decide", decision="deny"), reason="not\r\ntoday")

    assert home.result(asked) | {"error": None} == {
        "status": "denied",
        "audit_id": home.result(asked)["audit_id"],
        "action": "gated",
        "approval_id": asked["approval_id"],
        "reason": "not\ntoday",
        "error": None,
    }
    assert "denied" in page.words
    assert "What went wrong" not in page.text  # a denial is not a failure


def test_a_reason_that_is_too_long_is_refused_but_not_lost(home: DaemonHome, person: PageClient) -> None:
    """The page reports the limit, nothing is decided, and the typed text stays in the form."""
    asked = home.asked("mild")
    page = person.submit(opened(person, asked).form("/decide", decision="deny"), reason="no" * 2001)

    assert page.status == 400
    assert "at most 4000 characters" in page.words
    assert "nono" in page.words
    assert home.result(asked, wait=0)["status"] == "pending_approval"


def test_a_consent_can_be_approved_on_the_page(home: DaemonHome, person: PageClient) -> None:
    """The person types the consent's word, and the change is carried out."""
    answer = home.ask("PUT", "/v1/secrets/pw", {"value_base64": "aHVudGVyMi1odW50ZXIy"})
    assert answer.status == 202, answer.body
    page = opened(person, answer.body)
    assert "! LASTING PERMISSION" in page.words
    confirm = person.submit(page.form("/approve"))
    assert "Type allow to approve" in confirm.words
    over = person.submit(confirm.form("/decide"), word="allow")

    assert "✓ done" in over.words
    assert home.must("GET", f"/v1/action-approvals/{answer.body['approval_id']}")["status"] == "completed"


def test_a_run_can_be_withdrawn_on_the_page_during_its_undo_window(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The page says until when, and has a button for it."""
    asked, before = home.asked("held", {"path": "/effect/held"}), upstream.effects
    confirm = person.submit(opened(person, asked).form("/approve"))
    over = person.submit(confirm.form("/decide"), word="yes")
    assert "Held until" in over.words
    back = person.submit(over.form("/cancel"))

    assert "withdrawn" in back.words
    assert (home.result(asked)["status"], upstream.effects) == ("cancelled", before)


def test_an_agents_answer_is_shown_in_a_box_that_calls_it_unverified(home: DaemonHome, person: PageClient) -> None:
    """The box says that the answer is not verified, and comes after the known facts."""
    asked = home.asked("gated")
    page = person.submit(opened(person, asked).form("/ask"), text="why?")
    assert "Sent to the agent. Its answer appears on this page." in page.words
    this = f"/v1/action-approvals/{asked['approval_id']}"
    assert home.agent.request("POST", f"{this}/answer", {"answer": "<b>trust me</b>"}).status == 200
    text = opened(person, asked).text

    assert '<section class="said">' in text
    assert "&lt;b&gt;trust me&lt;/b&gt;" in text
    assert text.index("arguments from the agent") < text.index("agent says (not verified)") < text.index("trust me")


# Only what was shown is decided


def test_reloading_the_page_loads_no_second_preview_and_a_contradiction_is_an_alarm(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """A reload of the page does not load the preview again; the decision covers the plan and what was shown."""
    upstream.page = "/effect/other"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    reads = len([request for request in upstream.requests if request[1] == "/read"])
    for _ in range(3):
        page = opened(person, asked)
        assert "! Path: the agent said “/effect/mine”, the service has “/effect/other”" in page.words
    confirm = person.submit(page.form("/approve"))
    assert "the service has “/effect/other”" in confirm.words
    assert len([request for request in upstream.requests if request[1] == "/read"]) == reads + 1
    person.submit(confirm.form("/decide"), word="yes")

    assert home.result(asked)["status"] == "completed"
    assert of_kind(home, "approval.decided")[-1]["preview"]


@pytest.mark.abuse_case("D29")
def test_reloading_a_preview_makes_earlier_forms_invalid(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """A second tab loads another state, so what the first tab showed can no longer be signed."""
    upstream.page = "/effect/mine"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    first = opened(person, asked)
    confirm = person.submit(first.form("/approve"))
    upstream.page = "/effect/swapped"
    second = person.submit(opened(person, asked).form("/preview"))
    assert "the service has “/effect/swapped”" in second.words

    for form, more in ((first.form("/approve"), {}), (confirm.form("/decide"), {"word": "yes"})):
        refused = person.submit(form, **more)
        assert refused.status == 409
        assert "This request has changed since the page was shown. Nothing was signed." in refused.words
        assert "the service has “/effect/swapped”" in refused.words
    assert home.result(asked, wait=0)["status"] == "pending_approval"
    denied = person.submit(first.form("/decide", decision="deny"))
    assert denied.status == 409
    confirm = person.submit(second.form("/approve"))
    person.submit(confirm.form("/decide"), word="yes")
    assert home.result(asked)["status"] == "completed"


def test_edited_arguments_are_shown_and_decided_in_place_of_the_original_request(
    home: DaemonHome, person: PageClient
) -> None:
    """The page of the edit decides the edit, and the original's page links to it."""
    asked = home.asked("say", {"text": "one"})
    this = f"/v1/action-approvals/{asked['approval_id']}"
    edit = home.must("POST", f"{this}/edit", {"args": {"text": "two"}})["digest"]
    original = opened(person, asked)
    assert edit in original.text
    edited = person.get(f"/approvals/{asked['approval_id']}?edit={edit}")
    assert "text two" in edited.words
    confirm = person.submit(edited.form("/approve"))
    person.submit(confirm.form("/decide"), word="yes")

    result = home.result(asked)
    assert (result["status"], result["executed_arguments"]) == ("completed", {"text": "two"})


def test_of_two_decisions_about_one_request_in_two_browser_tabs_the_later_is_refused(
    home: DaemonHome, person: PageClient
) -> None:
    """The later tab shows the first decision, and says that its own does not count."""
    asked = home.asked("mild")
    page = opened(person, asked)
    confirm = person.submit(page.form("/approve"))
    person.submit(page.form("/decide", decision="deny"), reason="first")
    second = person.submit(confirm.form("/decide"))

    assert second.status == 409
    assert "It was already decided when your decision arrived. Yours does not count." in second.words
    assert "denied" in second.words
    assert home.result(asked)["status"] == "denied"
    again = person.submit(page.form("/decide", decision="deny"), reason="first")  # the very same form, replayed
    assert again.status == 409


def test_the_page_of_an_expired_question_says_so_and_has_no_form(home: DaemonHome, person: PageClient) -> None:
    """A form that was loaded before the expiry decides nothing."""
    asked = home.asked("mild")
    page = opened(person, asked)
    confirm = person.submit(page.form("/approve"))
    let_expire(home, asked)
    late = person.submit(confirm.form("/decide"))

    assert late.status == 409
    assert "It expired before you decided." in late.words
    shown = opened(person, asked)
    assert "Expired: nothing ran Nobody decided in time. The agent can ask again." in shown.words
    assert [form.action for form in shown.forms] == ["/approvals/lock"]
    assert "expired" in person.get("/approvals").words
    assert home.must("GET", "/v1/audit/verify")["ok"] is True


def test_the_page_of_a_long_question_asks_whether_all_of_it_was_read(home: DaemonHome, person: PageClient) -> None:
    """The second step requires a choice; after `part` it repeats that not everything was read."""
    asked = home.asked("say", {"text": "\n".join(f"line {number}" for number in range(60))})
    page = opened(person, asked)
    assert "I have not read all of it" in page.words
    refused = person.submit(page.form("/approve"))
    assert (refused.status, "Say below whether you have read all of it" in refused.words) == (400, True)
    part = person.submit(page.form("/approve"), read="part")
    assert "! You have not read all of it." in part.words
    person.submit(part.form("/decide"), word="yes")

    assert home.result(asked)["status"] == "completed"
    assert "I have read" not in opened(person, home.asked("say", {"text": "short"})).words


def test_a_page_that_is_locked_during_a_decision_shows_the_decisions_outcome(
    home: DaemonHome, person: PageClient
) -> None:
    """Another program blocks the ledger during the decision, and the person locks the page in another tab."""
    asked = home.asked("mild")
    page = opened(person, asked)
    deny, lock = page.form("/decide", decision="deny"), page.form("/lock")
    tabs = [PageClient(home, cookie=person.cookie) for _ in range(2)]
    ledger = sqlite3.connect(home.path / "ledger.db", isolation_level=None)
    with contextlib.closing(ledger) as disk, ThreadPoolExecutor(2) as both:
        disk.execute("BEGIN IMMEDIATE")
        deciding = both.submit(tabs[0].post, deny.action, deny.fields)
        _wait_idle(home)
        locking = both.submit(tabs[1].post, lock.action, lock.fields)
        _wait_idle(home)
        assert not deciding.done()
        disk.execute("ROLLBACK")
        said, locked = deciding.result(30), locking.result(30)

    assert locked.status == 303
    assert "The request is decided. On record: denied." in said.words
    assert home.result(asked)["status"] == "denied"


def _wait_idle(home: DaemonHome) -> None:
    """Wait until the daemon is idle: its requests are done or waiting."""
    daemon = psutil.Process(home.daemon_pid)
    wait_still(lambda: daemon.cpu_times()[:2], "the daemon computes no more", for_s=0.5)


# Hostile text


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
def test_hostile_text_is_shown_and_not_interpreted_on_every_page(
    home: DaemonHome, person: PageClient, text: str
) -> None:
    """The text is an argument, an answer, a reason and a result; it is shown and never interpreted."""
    text = as_in_a_file(text)
    asked = home.asked("say", {"text": text})
    this = f"/v1/action-approvals/{asked['approval_id']}"
    home.must("POST", f"{this}/ask", {"question": text[:3000]})
    assert home.agent.request("POST", f"{this}/answer", {"answer": text[:3000]}).status == 200
    page = opened(person, asked)
    confirm = person.submit(page.form("/approve"), read="part")
    person.submit(confirm.form("/decide"), word="yes", reason=text[:3000])
    result = home.result(asked)
    assert result["status"] == "completed", result
    for shown in (page, confirm, opened(person, asked), person.get("/approvals")):
        assert shown.status == 200
        assert_harmless_page(shown.text)


def test_the_queue_page_lists_requests_in_order_of_arrival_and_an_outdated_page_gets_news_at_once(
    home: DaemonHome, person: PageClient
) -> None:
    """Requests for updates with malformed or unknown ids are refused."""
    first, second = home.asked("mild"), home.asked("mild")
    queue = person.get("/approvals").text

    assert queue.index(first["approval_id"]) < queue.index(second["approval_id"])
    news = person.get("/approvals/news?known=old")
    assert news.status == 200
    assert '"news"' in news.text
    assert person.get("/approvals/news?of=x").status == 400
    assert person.get(f"/approvals/{NEVER}").status == 404


def test_a_link_from_another_site_loads_no_preview(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The page says that nothing was loaded, and offers no approval until the person loads the preview."""
    upstream.page = "/effect/mine"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    reads = len([request for request in upstream.requests if request[1] == "/read"])
    led = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    page = person.get(f"/approvals/{asked['approval_id']}", **led)

    assert "! current state not loaded" in page.words
    assert len([request for request in upstream.requests if request[1] == "/read"]) == reads
    assert [form.action.rpartition("/")[2] for form in page.forms] == ["lock", "preview", "ask"]
    assert person.submit(page.form("/preview")).form("/approve")
    assert len([request for request in upstream.requests if request[1] == "/read"]) == reads + 1


@pytest.mark.abuse_case("D39")
@pytest.mark.parametrize(
    "how", ["a link of elsewhere", "no token", "another digest's token", "another session's token"]
)
def test_an_approvals_second_step_opens_only_from_the_form_of_its_first_step(
    home: DaemonHome, person: PageClient, upstream: CountingServer, how: str
) -> None:
    """The address alone shows the first step and loads no preview."""
    upstream.page = "/effect/mine"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    address = f"/approvals/{asked['approval_id']}"
    digest = home.must("GET", f"/v1/action-approvals/{asked['approval_id']}")["digest"]
    fields, led = {"digest": digest, "read": "all", "edit": ""}, {}
    if how != "no token":
        whose = PageClient(home) if how == "another session's token" else person
        if whose is not person:
            whose.unlock()
        fields = {**whose.get(address).form("/approve").fields, "read": "all"}
    if how == "a link of elsewhere":
        led = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    if how == "another digest's token":
        fields["digest"] = digest
    runs = len(of_kind(home, "approval.previewed"))
    reads = len([request for request in upstream.requests if request[1] == "/read"])
    page = person.get(f"{address}/approve?{urllib.parse.urlencode(fields)}", **led)

    assert page.status in (403, 409), page.words
    assert not [form for form in page.forms if form.fields.get("decision") == "approve"]
    assert len([request for request in upstream.requests if request[1] == "/read"]) == reads
    assert len(of_kind(home, "approval.previewed")) == runs
    confirm = person.submit(person.get(address).form("/approve"))
    assert confirm.form("/decide").fields["decision"] == "approve"


def test_a_preview_that_cannot_be_loaded_is_an_alarm_and_the_question_can_be_denied(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The vault is locked, so the preview fails; the failure is not cached."""
    asked = home.asked("previewed", {"path": "/effect/mine"})
    home.must("POST", "/v1/vault/lock")
    page = opened(person, asked)
    assert "! current state could not be loaded: " in page.words
    assert "aileron vault unlock" in page.words
    home.unlock()
    assert "could not be loaded" not in opened(person, asked).words
    person.submit(opened(person, asked).form("/decide", decision="deny"))
    assert home.result(asked)["status"] == "denied"


@pytest.mark.parametrize("is_locked", [True, False])
def test_reloading_a_preview_shows_the_new_preview_or_the_reason_for_its_failure(
    home: DaemonHome, person: PageClient, upstream: CountingServer, is_locked: bool
) -> None:
    """An earlier preview must not be shown as the current state; earlier forms decide nothing."""
    upstream.page = "/effect/mine"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    first = opened(person, asked)
    confirm = person.submit(first.form("/approve"))
    upstream.page = "/effect/swapped"
    if is_locked:
        home.must("POST", "/v1/vault/lock")
    again = person.submit(first.form("/preview"))
    home.unlock()

    assert (UNREAD in again.words) is is_locked
    assert ("! current state could not be loaded: " in again.words) is is_locked
    assert ("the service has “/effect/swapped”" in again.words) is not is_locked
    assert again.form("/approve").fields["digest"] != first.form("/approve").fields["digest"]
    stale = person.submit(confirm.form("/decide"), word="yes")
    assert (stale.status, "the service has “/effect/swapped”" in stale.words) == (409, True)
    assert UNREAD not in opened(person, asked).words
    assert home.result(asked, wait=0)["status"] == "pending_approval"


def test_a_failed_reload_of_a_preview_discards_the_earlier_preview(
    home: DaemonHome, person: PageClient, upstream: CountingServer
) -> None:
    """The page then says why there is no approval, even if another site links here, and loads only on request."""
    upstream.page = "/effect/mine"
    asked = home.asked("previewed", {"path": "/effect/mine"})
    first = opened(person, asked)
    home.must("POST", "/v1/vault/lock")
    led = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    form = first.form("/preview")
    page = person.get(person.post(form.action, form.fields).headers["location"], **led)
    home.unlock()

    assert UNREAD in page.words
    assert "! current state not loaded" in page.words
    assert [form.action.rpartition("/")[2] for form in page.forms] == ["lock", "preview", "ask"]
    read = person.submit(page.form("/preview"))
    assert UNREAD not in read.words
    assert read.form("/approve").fields["digest"] == first.form("/approve").fields["digest"]


def test_the_page_of_a_failed_run_shows_its_error_and_the_requests_that_were_refused(
    home: DaemonHome, person: PageClient
) -> None:
    """The page has the failure's class and message, and each request that a rule refused, with its reason."""
    pages = []
    for action, args in (("fails", {}), ("strays", {"url": "https://elsewhere.example/take?it=1"})):
        asked = home.asked(action, args)
        confirm = person.submit(opened(person, asked).form("/approve"))
        person.submit(confirm.form("/decide"), word="yes")
        assert home.result(asked)["status"] == "failed"
        pages.append(opened(person, asked).words)
    failed, strayed = pages

    assert "Approved, but it failed: the upstream said 503 (external_api_error)" in failed
    assert "(capability_denied)" in strayed
    assert "elsewhere.example" in strayed
    assert "! NOT LET OUT: " in strayed
