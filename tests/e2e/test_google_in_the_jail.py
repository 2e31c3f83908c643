"""The Google connector as it is released: its own manifest, with Google's names, port 443 and a real jail; only Google is ours.

The daemon runs on a machine of its own where those names lead to a server of the test (tests/support/names.py). Its credential is
an access token bound by hand, so that what is tried here is the connector; signing in is tried in tests/browser.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.secret import Secret
from aileron.registry.build import Application, build
from tests.support.approver import Approver
from tests.support.canary import find, scan
from tests.support.google import NAMES, SCOPES, GoogleServer, digest_of
from tests.support.home import DaemonHome, daemon_home
from tests.support.memories import descendants_of, memory_of
from tests.support.names import Names
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-google"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "google"
TOKEN = "ya29.A0-canary-of-an-access-token"
CLIENT_SECRET = "GOCSPX-canary-of-a-client"
APPLICATION = Application(client_id="12-ab.apps.example.com", client_secret=Secret(CLIENT_SECRET.encode()))
HELD_S = 20.0
MAIL = {"to": "Ann <ann@example.com>", "subject": "Grüße", "body": "Zeile eins\nZeile zwei"}


@dataclasses.dataclass(frozen=True)
class Office:
    """One account at Google, and a home that reaches it; a person decides what is gated."""

    google: GoogleServer
    home: DaemonHome
    person: Approver

    def run(self, action: str, **args: Any) -> Any:
        """The result of an action that is not gated."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def failure(self, action: str, **args: Any) -> dict[str, Any]:
        """The error of an action that is not gated."""
        answer = self.home.run(action, args)
        assert answer.is_error, answer.body
        error: dict[str, Any] = answer.body["error"]
        return error

    def ask(self, action: str, **args: Any) -> str:
        """The question about a gated action; nothing of it has been done."""
        before = self.google.paths()
        answer = self.home.run(action, args)
        assert (answer.status, answer.body["status"]) == (202, "pending_approval"), answer.body
        assert self.google.paths() == before
        return str(answer.body["approval_id"])

    def agree(self, question: str) -> dict[str, Any]:
        """What came of it once the person has agreed."""
        decided = self.person.decide(self.home, question)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question}, wait=20.0)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """The connector as it is released, all of its actions, one binding; and at the end no token is in any file."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        GoogleServer(authority.server_context(*NAMES), listener=machine.listen()) as google,
        daemon_home() as home,
    ):
        google.allow(TOKEN)
        private = ", ".join(f'"{name}:443"' for name in NAMES)
        home.configure(f'[egress]\nprivate = [{private}]\nca_file = "{authority.ca_file}"\n')
        start = [*machine.prefix, sys.executable, "-m", "aileron", "daemon", "start"]
        subprocess.run(start, env={**os.environ, "AILERON_HOME": str(home.path)}, check=True, timeout=60)
        archive = home.path / "google.tar.gz"
        archive.write_bytes(build(SOURCE, (), APPLICATION).archive)
        home.must("POST", "/v1/connectors", {"path": str(archive)})
        home.unlock(TOKEN.encode())
        home.must("POST", "/v1/bindings", {"connector": CONNECTOR, "name": "oauth2/google/me", "secret": "pw"})
        for path in sorted((SOURCE / "actions").glob("*/action.md")):
            home.must("POST", "/v1/actions", {"text": path.read_text(encoding="utf-8"), "file": str(path)})
        person = Approver()
        person.appoint(home)
        yield Office(google, home, person)
        assert scan([home.path], b"Drafts folder of the user"), "the scan finds nothing that is there"
        assert scan([home.path], TOKEN.encode()) == {}


@pytest.fixture(autouse=True)
def allowed(office: Office) -> None:
    """Each test begins with a token for everything, and an empty account."""
    office.google.allow(TOKEN)
    for kept in (office.google.messages, office.google.drafts, office.google.events):
        kept.clear()
    for told in (office.google.outbox, office.google.invitations, office.google.asked):
        told.clear()


# What works


def test_mail_is_listed_and_read(office: Office):
    """With its words, from a host that the manifest names, and with the token, which is in no answer and on no record."""
    key = office.google.receive(subject="Rechnung für März", text="Grüße, Ada")
    listed = office.home.run("google-list-recent-emails", {"query": "is:unread", "max_results": 5})
    got = office.run("google-get-email", message_id=key)

    assert [message["subject"] for message in listed.body["result"]["messages"]] == ["Rechnung für März"]
    assert (got["text"], got["from"]) == ("Grüße, Ada", "Ada <ada@example.com>")
    assert {asked.authorization for asked in office.google.asked} == {digest_of(TOKEN)}
    assert {asked.host for asked in office.google.asked} == {"gmail.googleapis.com"}
    assert TOKEN not in str(listed.body) + str(office.home.events(listed.body["audit_id"]))


def test_a_draft_waits_for_nobody_and_its_sending_for_a_person(office: Office):
    """They see the draft as Gmail has it, everybody it goes to included; sent once, when they agree."""
    draft = office.run("google-draft-email", **MAIL, bcc="eve@example.com")["draft"]
    question = office.ask("google-send-draft", draft_id=draft["id"])
    preview = office.person.preview(office.home, question)
    shown = {line["label"]: line["value"] for line in preview["fields"]}
    assert office.google.outbox == []
    settled = office.agree(question)

    assert (shown["To"], shown["Cc"], shown["Bcc"]) == ("Ann <ann@example.com>", "", "eve@example.com")
    assert (shown["Subject"], shown["Body"], shown["Form"]) == ("Grüße", "Zeile eins\nZeile zwei", "plain text")
    assert (shown["Attached"], shown["Attachments"]) == ("", "0")
    assert settled["result"]["message"]["id"] == draft["message_id"]
    [sent] = office.google.outbox
    assert sent.recipients == ("ann@example.com", "eve@example.com")


def test_a_message_is_sent_once_a_person_agrees(office: Office):
    """And not if they do not."""
    refused, question = (
        office.ask("google-send-email", **MAIL),
        office.ask("google-send-email", **MAIL, cc="bob@example.com"),
    )
    office.person.decide(office.home, refused, "deny")
    settled = office.agree(question)

    assert settled["status"] == "completed", settled
    [sent] = office.google.outbox
    assert sent.recipients == ("ann@example.com", "bob@example.com")
    assert (sent.message["Subject"], sent.message.get_content().splitlines()) == ("Grüße", ["Zeile eins", "Zeile zwei"])


def test_an_event_is_added_once_a_person_agrees_and_is_listed(office: Office):
    """Who is invited hears of it then."""
    args = {"title": "Lunch", "start_time": "2030-03-30T12:00:00+02:00", "end_time": "2030-03-30T13:00:00+02:00"}
    question = office.ask("google-create-calendar-event", **args, attendees="ann@example.com")
    assert office.google.invitations == []
    event = office.agree(question)["result"]["event"]
    times = ("2030-03-30T12:00:00+02:00", "2030-03-30T13:00:00+02:00")

    assert office.google.invitations == [(event["id"], "ann@example.com")]
    assert (event["start"], event["end"]) == times
    office.google.events[event["id"]].update(
        start={"dateTime": "2999-01-01T00:00:00Z"}, end={"dateTime": "2999-01-02T00:00:00Z"}
    )
    assert office.run("google-list-upcoming-events", days=1)["events"] == []
    assert {asked.host for asked in office.google.asked} == {"www.googleapis.com"}


# What does not


def test_a_token_that_is_no_good_any_more_is_the_services_refusal(office: Office):
    """401: with its status and what to do; a credential that was bound by hand cannot be renewed."""
    office.google.forget(TOKEN)
    error = office.failure("google-list-recent-emails")

    assert (error["class"], error["details"]["status"], error["retriable"]) == ("external_api_error", 401, False)
    assert "aileron binding reauthorize" in error["message"]
    assert {asked.status for asked in office.google.asked} == {401}


def test_a_missing_scope_is_said_as_such(office: Office):
    """403, for a person; and not tried again."""
    office.google.allow(TOKEN, [scope for scope in SCOPES if "readonly" not in scope])
    error = office.failure("google-list-recent-emails")

    assert (error["details"]["status"], error["details"]["reason"]) == (403, "insufficientPermissions")
    assert len(office.google.asked) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [(429, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (503, "backendError")]
)
def test_what_passes_is_tried_again_where_it_only_reads(office: Office, status: int, reason: str):
    """By the supervisor, after the time Google asks for; sending is not, whatever Google says."""
    key = office.google.receive(subject="there")
    office.google.disturb(status, None, "Retry-After: 1", reason=reason, path="/messages")
    listed = office.run("google-list-recent-emails")
    lists = [asked for asked in office.google.asked if asked.path.endswith("/messages")]
    office.google.disturb(status, None, "Retry-After: 1", reason=reason, path="/send")
    settled = office.agree(office.ask("google-send-email", **MAIL))

    assert ([message["id"] for message in listed["messages"]], len(lists)) == ([key], 2)
    assert settled["error"]["class"] == "external_api_error"
    assert (office.google.paths().count("POST /gmail/v1/users/me/messages/send"), office.google.outbox) == (1, [])


# Where the token is not


def test_no_token_is_in_the_jail_while_google_is_asked_with_it(office: Office):
    """In no memory of the connector or of whatever started it, at the moment Google has the token; what was asked is there."""
    needle = "a-needle-in-the-jail"
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(office.home.run("google-list-recent-emails", {"query": needle}))
    )
    with office.google.held("/messages") as arrived:
        asking.start()
        assert arrived.wait(HELD_S)
        daemon = office.home.daemon_pid
        assert daemon is not None
        memories = {pid: memory_of(pid) for pid in descendants_of(daemon)}
    asking.join(HELD_S)

    assert [answer.status for answer in answers] == [200], answers
    assert office.google.asked[0].authorization == digest_of(TOKEN)
    assert any(needle.encode() in memory for memory in memories.values()), "the connector's memory was not looked at"
    assert len(memories) >= 2
    for memory in memories.values():
        for secret in (TOKEN, CLIENT_SECRET):
            assert find(memory, secret.encode()) == []


def test_the_applications_secret_is_told_nobody(office: Office):
    """It is in the connector's manifest, which whoever installs it has, and in nothing that is shown, asked or recorded."""
    question = office.ask("google-send-email", **MAIL)
    shown = [
        office.home.must("GET", path)
        for path in ("/v1/connectors", "/v1/bindings", "/v1/actions", "/v1/audit", f"/v1/action-approvals/{question}")
    ]
    holding = {Path(file).name for file in scan([office.home.path], CLIENT_SECRET.encode())}

    assert CONNECTOR in str(shown)
    assert find(str(shown).encode(), CLIENT_SECRET.encode()) == []
    assert holding == {"manifest.toml", "google.tar.gz"}
