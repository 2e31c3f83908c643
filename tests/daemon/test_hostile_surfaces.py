"""Hostile text through a real daemon is kept unchanged, and is harmless wherever a person or a terminal meets it."""

from __future__ import annotations

import http.client
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.hostile_text import (
    CORPUS,
    EVERYTHING,
    GROUPS,
    MEGABYTE,
    as_in_a_file,
    assert_harmless,
    assert_harmless_page,
    assert_no_line_begins,
)
from tests.support.probed import lend_probe

pytestmark = [pytest.mark.jail, pytest.mark.abuse_case("T3")]

OURS = ("  fix: curl", "Approve? [y/N] yes", "Approver's passphrase", "signed by")


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with a gated action whose argument is any text, and with an approver."""
    with daemon_home() as made:
        lend_probe(made)
        made.add_probe_action("give_back", "text:string", gated=True)
        Approver().appoint(made)
        yield made


def test_hostile_text_is_stored_unchanged_and_escaped_when_shown(home: DaemonHome) -> None:
    """The text is an argument, a question and its answer, and the reason of a refusal."""
    aileron = Command(home.path)
    for text in map(as_in_a_file, GROUPS.values()):
        asked = home.asked("give-back", {"text": text})
        this = f"/v1/action-approvals/{asked['approval_id']}"
        home.must("POST", f"{this}/ask", {"question": text[:3000]})
        answer = home.agent.request("POST", f"{this}/answer", {"answer": text[:3000]})
        assert answer.status == 200, answer.body
        home.decide(asked, "approve", text[:3000])  # unsigned: refused, and on record
        shown = home.must("GET", this)

        assert shown["plan"]["args"] == {"text": text}
        assert shown["conversation"] == [{"question": text[:3000], "answer": text[:3000]}]
        for words in (("approval", "show", asked["approval_id"]), ("approval", "show", asked["approval_id"], "--full")):
            seen = aileron.at_terminal(*words).exits(0)
            assert_harmless(seen.out)
            assert_no_line_begins(seen.out, *OURS)
    assert_harmless(aileron.at_terminal("audit", "list").out)
    assert_harmless(aileron.at_terminal("audit", "show", shown["audit_id"]).out)
    assert_harmless(aileron.at_terminal("approval", "list").out)


def test_text_too_long_for_an_argument_or_question_or_edit_or_reason_is_refused(home: DaemonHome) -> None:
    """The text takes most of the megabyte that a body may have, as argument, question, edit and reason: each gets a
    short error, and no question is added.
    """
    text = MEGABYTE[:300_000]  # twice as long in JSON
    before = len(home.must("GET", "/v1/action-approvals")["approvals"])
    asked = home.asked("give-back", {"text": "short"})
    this = f"/v1/action-approvals/{asked['approval_id']}"
    tries = {
        "an argument": home.run("give-back", {"text": text}),
        "a question": home.ask("POST", f"{this}/ask", {"question": text}),
        "an edit": home.ask("POST", f"{this}/edit", {"args": {"text": text}}),
        "a reason": home.ask("POST", f"{this}/decide", {"decision": "deny", "digest": "x", "reason": text}),
    }

    assert {name: answer.is_error for name, answer in tries.items()} == dict.fromkeys(tries, True)
    assert all(len(str(answer.body)) < 10_000 for answer in tries.values())
    assert len(home.must("GET", "/v1/action-approvals")["approvals"]) == before + 1


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_no_review_page_repeats_its_url(home: DaemonHome, text: str) -> None:
    """A malformed id gets 404 and fixed words: no part of the URL, a header or the query is in the response."""
    port = int(home.must("GET", "/v1/status")["web"].rpartition(":")[2])
    quoted = urllib.parse.quote(as_in_a_file(text), safe="")
    for path in (f"/approvals/{quoted}", f"/{quoted}", f"/approvals?x={quoted}"):
        connection = http.client.HTTPConnection("localhost", port, timeout=10)
        try:
            connection.request("GET", path, headers={"User-Agent": quoted, "Referer": quoted})
            page = connection.getresponse().read().decode()
        finally:
            connection.close()

        assert_harmless_page(page)
        assert text.strip() not in page or len(text.strip()) < 4
        assert quoted not in page


def test_a_locked_review_page_reveals_nothing_of_its_question(home: DaemonHome) -> None:
    """Apart from the id, the page is the same for every question."""
    pages = set()
    for text in ("harmless", as_in_a_file(EVERYTHING)):
        asked = home.asked("give-back", {"text": text})
        address = urllib.parse.urlsplit(asked["review_url"])
        connection = http.client.HTTPConnection("localhost", address.port or 0, timeout=10)
        try:
            connection.request("GET", address.path)
            page = connection.getresponse().read().decode()
        finally:
            connection.close()
        assert_harmless_page(page)
        pages.add(page.replace(asked["approval_id"], "ID"))

    assert len(pages) == 1


def test_the_log_contains_no_terminal_control_sequences(home: DaemonHome) -> None:
    """The raw file is searched after all of the hostile requests."""
    asked = home.asked("give-back", {"text": as_in_a_file(EVERYTHING)})
    home.decide(asked, "deny", as_in_a_file(EVERYTHING)[:3000])
    name = urllib.parse.quote(as_in_a_file(EVERYTHING)[:500].replace("/", "|"), safe="")
    home.ask("POST", f"/v1/actions/{name}/run", {"args": {}})
    home.ask("POST", "/v1/actions", {"text": as_in_a_file(EVERYTHING), "file": as_in_a_file(EVERYTHING)[:500]})
    log = (home.path / "logs" / "daemon.log").read_text(encoding="utf-8")

    assert "ready" in log
    assert_harmless(log)
