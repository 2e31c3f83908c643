"""The Google connector as it is released: its own manifest, with Google's names, port 443 and a real jail; only Google is ours.

The daemon runs on a machine of its own where those names lead to a server of the test (tests/support/names.py). Its
credential is an access token bound by hand, so that only the connector is tested; tests/browser has the sign-ins.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.secret import Secret
from aileron.registry.connector_build import Application
from tests.support.approver import Approver, Office
from tests.support.canary import find, scan
from tests.support.google import NAMES, SCOPES, GoogleServer, digest_of
from tests.support.home import daemon_home
from tests.support.jailed_office import look_while
from tests.support.names import Names
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-google"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "google"
TOKEN = "ya29.A0-canary-of-an-access-token"
CLIENT_SECRET = "GOCSPX-canary-of-a-client"
APPLICATION = Application(client_id="12-ab.apps.example.com", client_secret=Secret(CLIENT_SECRET.encode()))
MAIL = {"to": "Ann <ann@example.com>", "subject": "Grüße", "body": "Zeile eins\nZeile zwei"}


@dataclasses.dataclass(frozen=True)
class Account(Office):
    """An account at Google, and a home that reaches it; a person decides what is gated."""

    google: GoogleServer

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, check that nothing of it was done, and return its question's id."""
        before = self.google.paths()
        question = super().ask(action, **args)
        assert self.google.paths() == before
        return question


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Provide the released connector with all its actions and one binding; at the end no file has a token."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        GoogleServer(authority.server_context(*NAMES), listener=machine.listen()) as google,
        daemon_home() as home,
    ):
        google.allow(TOKEN)
        home.reach(*(f"{name}:443" for name in NAMES), ca_file=authority.ca_file)
        machine.start_daemon(home.path)
        home.install(SOURCE, application=APPLICATION)
        home.unlock(TOKEN.encode())
        home.bind(CONNECTOR, "oauth2/google/me")
        home.add_actions(*(SOURCE / "actions").glob("*/action.md"))
        yield Account(home, Approver.of(home), google)
        assert scan([home.path], b"Drafts folder of the user"), "the scan finds nothing that is there"
        assert scan([home.path], TOKEN.encode()) == {}


@pytest.fixture(autouse=True)
def allowed(office: Account) -> None:
    """Reset the account before each test: a token for everything, and no messages or events."""
    office.google.allow(TOKEN)
    for kept in (office.google.messages, office.google.drafts, office.google.events):
        kept.clear()
    for told in (office.google.outbox, office.google.invitations, office.google.asked):
        told.clear()


# What works


def test_mail_is_listed_and_read(office: Account) -> None:
    """The host is the one that the manifest names, and no response or record has the token."""
    key = office.google.receive(subject="Rechnung für März", text="Grüße, Ada")
    listed = office.home.run("google-list-recent-emails", {"query": "is:unread", "max_results": 5})
    got = office.home.done("google-get-email", message_id=key)

    assert [message["subject"] for message in listed.body["result"]["messages"]] == ["Rechnung für März"]
    assert (got["text"], got["from"]) == ("Grüße, Ada", "Ada <ada@example.com>")
    assert {asked.authorization for asked in office.google.asked} == {digest_of(TOKEN)}
    assert {asked.host for asked in office.google.asked} == {"gmail.googleapis.com"}
    assert TOKEN not in str(listed.body) + str(office.home.events(listed.body["audit_id"]))


def test_a_draft_is_saved_at_once_and_sent_after_approval(office: Account) -> None:
    """The preview shows the draft as Gmail has it, with all recipients; it is sent once, after approval."""
    draft = office.home.done("google-draft-email", **MAIL, bcc="eve@example.com")["draft"]
    question = office.ask("google-send-draft", draft_id=draft["id"])
    shown = office.preview(question)
    assert office.google.outbox == []
    settled = office.decide(question)

    assert (shown["To"], shown["Cc"], shown["Bcc"]) == ("Ann <ann@example.com>", "", "eve@example.com")
    assert (shown["Subject"], shown["Body"], shown["Form"]) == ("Grüße", "Zeile eins\nZeile zwei", "plain text")
    assert (shown["Attached"], shown["Attachments"]) == ("", "0")
    assert settled["result"]["message"]["id"] == draft["message_id"]
    [sent] = office.google.outbox
    assert sent.recipients == ("ann@example.com", "eve@example.com")


def test_a_message_is_sent_after_approval(office: Account) -> None:
    """A denied message is not sent."""
    refused, question = (
        office.ask("google-send-email", **MAIL),
        office.ask("google-send-email", **MAIL, cc="bob@example.com"),
    )
    office.person.decide(office.home, refused, "deny")
    settled = office.decide(question)

    assert settled["status"] == "completed", settled
    [sent] = office.google.outbox
    assert sent.recipients == ("ann@example.com", "bob@example.com")
    assert (sent.message["Subject"], sent.message.get_content().splitlines()) == ("Grüße", ["Zeile eins", "Zeile zwei"])


def test_an_event_is_added_after_approval(office: Account) -> None:
    """Attendees get their invitations only after the approval."""
    args = {"title": "Lunch", "start_time": "2030-03-30T12:00:00+02:00", "end_time": "2030-03-30T13:00:00+02:00"}
    question = office.ask("google-create-calendar-event", **args, attendees="ann@example.com")
    assert office.google.invitations == []
    event = office.decide(question)["result"]["event"]
    times = ("2030-03-30T12:00:00+02:00", "2030-03-30T13:00:00+02:00")

    assert office.google.invitations == [(event["id"], "ann@example.com")]
    assert (event["start"], event["end"]) == times
    office.google.events[event["id"]].update(
        start={"dateTime": "2999-01-01T00:00:00Z"}, end={"dateTime": "2999-01-02T00:00:00Z"}
    )
    assert office.home.done("google-list-upcoming-events", days=1)["events"] == []
    assert {asked.host for asked in office.google.asked} == {"www.googleapis.com"}


# What does not


def test_an_invalid_token_is_an_error_of_the_service(office: Account) -> None:
    """The error has status 401 and says what to do; a credential bound by hand cannot be renewed."""
    office.google.forget(TOKEN)
    error = office.home.failed("google-list-recent-emails")

    assert (error["class"], error["details"]["status"], error["retriable"]) == ("external_api_error", 401, False)
    assert "aileron binding reauthorize" in error["message"]
    assert {asked.status for asked in office.google.asked} == {401}


@pytest.mark.parametrize(
    ("lacks", "action", "words"),
    [
        ("gmail.readonly", "google-list-recent-emails", "View your email messages and settings"),
        ("calendar.events", "google-list-upcoming-events", "View and edit events on all your calendars"),
    ],
)
def test_a_missing_scope_is_reported_in_the_words_of_the_consent_page(
    office: Account, lacks: str, action: str, words: str
) -> None:
    """The error has status 403, is for a person to fix, and the request is not repeated."""
    office.google.allow(TOKEN, [scope for scope in SCOPES if lacks not in scope])
    error = office.home.failed(action)

    assert (error["details"]["status"], error["details"]["reason"]) == (403, "insufficientPermissions")
    assert f"lacks “{words}” ({lacks})" in error["message"]
    assert len(office.google.asked) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [(429, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (503, "backendError")]
)
def test_only_a_read_is_retried_after_a_temporary_failure(office: Account, status: int, reason: str) -> None:
    """The supervisor repeats a read after the time that Google asks for; it never repeats sending."""
    key = office.google.receive(subject="there")
    office.google.fail(status, None, "Retry-After: 1", reason=reason, path="/messages")
    listed = office.home.done("google-list-recent-emails")
    lists = [asked for asked in office.google.asked if asked.path.endswith("/messages")]
    office.google.fail(status, None, "Retry-After: 1", reason=reason, path="/send")
    settled = office.decide(office.ask("google-send-email", **MAIL))

    assert ([message["id"] for message in listed["messages"]], len(lists)) == ([key], 2)
    assert settled["error"]["class"] == "external_api_error"
    assert (office.google.paths().count("POST /gmail/v1/users/me/messages/send"), office.google.outbox) == (1, [])


# Where the token is not


def test_no_token_is_in_the_jail_during_a_request_to_google(office: Account) -> None:
    """The search runs while Google has the token, in all memory below the daemon; it finds what was requested."""
    needle = "a-needle-in-the-jail"
    run = functools.partial(office.home.run, "google-list-recent-emails", {"query": needle})
    looked = look_while(office.home, office.google.gate.held("/messages"), run)

    assert looked.answer.status == 200, looked.answer.body
    assert office.google.asked[0].authorization == digest_of(TOKEN)
    assert len(looked.memories) >= 2
    looked.check_compressed(needle.encode(), TOKEN.encode(), CLIENT_SECRET.encode())


def test_the_oauth_applications_secret_is_not_shown_or_recorded(office: Account) -> None:
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
    assert holding == {"manifest.toml", "built.tar.gz"}
