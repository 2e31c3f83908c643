"""The Google connector as it is released: its own manifest, with Google's names, port 443 and a real jail; only Google is ours.

The daemon runs on a machine of its own where those names lead to a server of the test (tests/support/names.py). Its
credential is an access token bound by hand, so that only the connector is tested; tests/browser has the sign-ins.
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
from aileron.registry.connector_build import Application, build
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
    """An account at Google, and a home that reaches it; a person decides what is gated."""

    google: GoogleServer
    home: DaemonHome
    person: Approver

    def run(self, action: str, **args: Any) -> Any:
        """Run an action that is not gated, and return its result."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def failure(self, action: str, **args: Any) -> dict[str, Any]:
        """Run an action that is not gated and must fail, and return its error."""
        answer = self.home.run(action, args)
        assert answer.is_error, answer.body
        error: dict[str, Any] = answer.body["error"]
        return error

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, check that nothing of it was done, and return its question's id."""
        before = self.google.paths()
        answer = self.home.run(action, args)
        assert (answer.status, answer.body["status"]) == (202, "pending_approval"), answer.body
        assert self.google.paths() == before
        return str(answer.body["approval_id"])

    def agree(self, question: str) -> dict[str, Any]:
        """Approve the question as the person, and return its outcome."""
        decided = self.person.decide(self.home, question)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question}, wait=20.0)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Provide the released connector with all its actions and one binding; at the end no file has a token."""
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
    """Reset the account before each test: a token for everything, and no messages or events."""
    office.google.allow(TOKEN)
    for kept in (office.google.messages, office.google.drafts, office.google.events):
        kept.clear()
    for told in (office.google.outbox, office.google.invitations, office.google.asked):
        told.clear()


# What works


def test_mail_is_listed_and_read(office: Office) -> None:
    """The host is the one that the manifest names, and no response or record has the token."""
    key = office.google.receive(subject="Rechnung für März", text="Grüße, Ada")
    listed = office.home.run("google-list-recent-emails", {"query": "is:unread", "max_results": 5})
    got = office.run("google-get-email", message_id=key)

    assert [message["subject"] for message in listed.body["result"]["messages"]] == ["Rechnung für März"]
    assert (got["text"], got["from"]) == ("Grüße, Ada", "Ada <ada@example.com>")
    assert {asked.authorization for asked in office.google.asked} == {digest_of(TOKEN)}
    assert {asked.host for asked in office.google.asked} == {"gmail.googleapis.com"}
    assert TOKEN not in str(listed.body) + str(office.home.events(listed.body["audit_id"]))


def test_a_draft_is_saved_at_once_and_sent_after_approval(office: Office) -> None:
    """The preview shows the draft as Gmail has it, with all recipients; it is sent once, after approval."""
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


def test_a_message_is_sent_after_approval(office: Office) -> None:
    """A denied message is not sent."""
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


def test_an_event_is_added_after_approval(office: Office) -> None:
    """Attendees are invited only then."""
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


def test_an_invalid_token_is_an_error_of_the_service(office: Office) -> None:
    """The error has status 401 and says what to do; a credential bound by hand cannot be renewed."""
    office.google.forget(TOKEN)
    error = office.failure("google-list-recent-emails")

    assert (error["class"], error["details"]["status"], error["retriable"]) == ("external_api_error", 401, False)
    assert "aileron binding reauthorize" in error["message"]
    assert {asked.status for asked in office.google.asked} == {401}


def test_a_missing_scope_is_reported(office: Office) -> None:
    """The error has status 403, is for a person to fix, and the request is not repeated."""
    office.google.allow(TOKEN, [scope for scope in SCOPES if "readonly" not in scope])
    error = office.failure("google-list-recent-emails")

    assert (error["details"]["status"], error["details"]["reason"]) == (403, "insufficientPermissions")
    assert len(office.google.asked) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [(429, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (503, "backendError")]
)
def test_a_temporary_failure_is_retried_only_for_a_read(office: Office, status: int, reason: str) -> None:
    """The supervisor repeats a read after the time that Google asks for; it never repeats sending."""
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


def test_no_token_is_in_the_jail_during_a_request_to_google(office: Office) -> None:
    """The search runs while Google has the token, in all memory below the daemon; it finds what was requested."""
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


def test_the_applications_secret_is_not_shown_or_recorded(office: Office) -> None:
    """The secret is in the connector's manifest, which every installer has, and in nothing that is shown, requested or
    recorded.
    """
    question = office.ask("google-send-email", **MAIL)
    shown = [
        office.home.must("GET", path)
        for path in ("/v1/connectors", "/v1/bindings", "/v1/actions", "/v1/audit", f"/v1/action-approvals/{question}")
    ]
    holding = {Path(file).name for file in scan([office.home.path], CLIENT_SECRET.encode())}

    assert CONNECTOR in str(shown)
    assert find(str(shown).encode(), CLIENT_SECRET.encode()) == []
    assert holding == {"manifest.toml", "google.tar.gz"}
