"""The mail connector end to end: actions, a person, the jail, a login at Debian's Dovecot and Postfix."""

from __future__ import annotations

import dataclasses
import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from aileron.model.login import LoginTarget
from tests.support.approver import Approver, Office
from tests.support.canary import scan
from tests.support.dovecot import HOST, PASSWORD, Dovecot
from tests.support.home import daemon_home
from tests.support.postfix import Postfix
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron/connector-mail"
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "mail"
BINDING = "login/mail/me"
OFFER = "plain login"
SEND = {
    "from_address": "Mira <mira@example.com>",
    "to": "noor@example.com",
    "subject": "Lunch",
    "body": "Tomorrow at one?\n\nMira",
}


@dataclasses.dataclass(frozen=True)
class Mailbox(Office):
    """Mira's mailbox, the server that sends for her, and a home whose agent may use both; she decides."""

    dovecot: Dovecot
    postfix: Postfix

    def logins(self, run: str) -> list[tuple[str, str]]:
        """Return protocol and binding of each login of a run."""
        sent = [event for event in self.home.events(run) if event["type"] == "egress.sending"]
        return [(event["method"], event["credential"]) for event in sent]

    def settled(self) -> int:
        """Return the number of messages, after all mail of earlier tests has arrived."""
        self.postfix.settle()
        return len(self.dovecot.messages("noor"))

    def arrived(self, count: int) -> list[EmailMessage]:
        """Wait until Noor has `count` messages, and return them."""
        wait_until(lambda: len(self.dovecot.messages("noor")) >= count, "mail arrives", seen=self.postfix.log)
        found = self.dovecot.messages("noor")
        return [email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default) for data in found]


@pytest.fixture(scope="module")
def office(authority: Authority) -> Iterator[Mailbox]:
    """Provide the connector with all its actions and one binding; at the end no file has the password."""
    with Dovecot(authority) as dovecot, Postfix(authority, dovecot, [OFFER]) as postfix, daemon_home() as home:
        places = [f"imap+tls://{HOST}:{dovecot.imaps}", f"smtp+tls://{HOST}:{postfix.submissions[OFFER]}"]
        logins = [LoginTarget.parse(place) for place in places]
        home.reach(*(str(login.destination) for login in logins), ca_file=authority.ca_file)
        home.install(SOURCE, logins=logins)
        home.unlock(PASSWORD.encode())
        home.bind(CONNECTOR, BINDING, username="mira")
        home.add_actions(*(SOURCE / "actions").glob("*/action.md"))
        yield Mailbox(home, Approver.of(home), dovecot, postfix)
        assert scan([home.path], b"Tomorrow at one?"), "the scan finds nothing that is there"
        assert scan([home.path], PASSWORD.encode()) == {}


def test_mail_is_found_and_read_without_approval(office: Mailbox) -> None:
    """The login is recorded with its binding; the message stays unread, and no response has the password."""
    office.dovecot.deliver(
        "mira", b"From: noor@example.com\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nshall we?\r\n"
    )
    found = office.home.run("mail-search", {"sender": "noor@", "unread": True})
    assert found.status == 200, found.body
    [listed] = found.body["result"]["messages"]
    read = office.home.done("mail-read", message_id=listed["id"])
    again = office.home.done("mail-search", unread=True)

    assert (listed["subject"], read["text"]) == ("Grüße", "shall we?")
    assert [message["id"] for message in again["messages"]] == [listed["id"]]
    assert office.logins(found.body["audit_id"]) == [("IMAP", BINDING)]
    assert PASSWORD not in str(found.body) + str(office.home.events(found.body["audit_id"]))


def test_a_draft_needs_no_approval_and_sends_nothing(office: Mailbox) -> None:
    """The draft is in the user's drafts folder."""
    before = office.settled()
    answer = office.home.run("mail-draft", {"to": "noor@example.com", "subject": "later", "body": "x"})
    assert answer.status == 200, answer.body
    assert office.logins(answer.body["audit_id"]) == [("IMAP", BINDING)]
    assert office.home.done("mail-read", message_id=answer.body["result"]["draft"]["id"])["subject"] == "later"
    assert len(office.dovecot.messages("noor")) == before


def test_a_message_is_sent_after_approval(office: Mailbox) -> None:
    """The server is only queried before that. Then the message arrives, and a copy is kept."""
    before = office.settled()
    question = office.ask("mail-send", **SEND)
    shown = office.preview(question)
    assert (shown["Server accepts"], shown["Server refuses"]) == ("noor@example.com", "nobody")
    assert len(office.dovecot.messages("noor")) == before

    settled = office.decide(question)
    assert settled["status"] == "completed", settled
    got = office.arrived(before + 1)[-1]
    assert (got["Subject"], got.get_content().replace("\r\n", "\n")) == ("Lunch", SEND["body"] + "\n")
    assert (settled["result"]["message_id"], settled["result"]["copy"]) == (got["Message-ID"], "saved in Gesendet")
    events = office.home.events(settled["audit_id"])
    envelopes = [event for event in events if "recipients" in event]
    assert [(envelope["sender"], envelope["recipients"]) for envelope in envelopes] == [
        ("mira@example.com", ["noor@example.com"])
    ]


def test_a_denied_message_is_not_sent(office: Mailbox) -> None:
    """An approved message beside it arrives."""
    before = office.settled()
    denied, agreed = (
        office.ask("mail-send", **SEND | {"subject": "no"}),
        office.ask("mail-send", **SEND | {"subject": "yes"}),
    )
    assert office.decide(denied, "deny")["status"] == "denied"
    assert office.decide(agreed)["status"] == "completed"

    assert [message["Subject"] for message in office.arrived(before + 1)[before:]] == ["yes"]


def test_the_preview_shows_recipients_that_the_server_would_refuse(office: Mailbox) -> None:
    """A message that is approved all the same reaches nobody, and the failure says who was refused."""
    before = office.settled()
    question = office.ask("mail-send", **SEND | {"to": "noor@example.com, nobody@example.com"})
    shown = office.preview(question)
    assert shown["Server accepts"] == "noor@example.com"
    assert shown["Server refuses"].startswith("nobody@example.com (550 5.1.1")

    settled = office.decide(question)
    assert settled["status"] == "failed", settled
    assert settled["error"]["class"] == "external_api_error"
    assert list(settled["error"]["details"]["refused"]) == ["nobody@example.com"]
    assert len(office.dovecot.messages("noor")) == before


def test_a_reply_is_shown_in_full_before_it_is_sent(office: Mailbox) -> None:
    """Recipient and quoted text come from the mailbox, not from the agent."""
    office.dovecot.deliver(
        "mira",
        b"From: Noor <noor@example.com>\r\nTo: mira@example.com\r\nSubject: Plans\r\n"
        b"Message-ID: <p@example.com>\r\n\r\nand then?\r\n",
    )
    [message] = office.home.done("mail-search", subject="Plans")["messages"]
    before = office.settled()
    question = office.ask("mail-reply", from_address=SEND["from_address"], message_id=message["id"], body="home")
    shown = office.preview(question)
    assert (shown["To"], shown["Subject"]) == ("Noor <noor@example.com>", "Re: Plans")
    assert "and then?" in shown["Answers"]
    assert shown["Sent text"].startswith("home\n\n")

    assert office.decide(question)["status"] == "completed"
    got = office.arrived(before + 1)[-1]
    assert (got["Subject"], got["In-Reply-To"]) == ("Re: Plans", "<p@example.com>")


def test_a_message_is_moved_after_the_person_has_seen_its_subject(office: Mailbox) -> None:
    """The subject in the preview comes from the mailbox, not from the agent."""
    office.dovecot.deliver("mira", b"From: noor@example.com\r\nSubject: Old\r\n\r\nx\r\n")
    [message] = office.home.done("mail-search", subject="Old")["messages"]
    question = office.ask("mail-move", message_id=message["id"], to_folder="Gesendet")
    assert office.preview(question)["Subject"] == "Old"
    assert office.decide(question)["status"] == "completed"
    assert office.home.done("mail-search", subject="Old")["messages"] == []


def test_a_wrong_password_is_not_tried_again(office: Mailbox) -> None:
    """The second run is refused without a request to the server, which could lock the account; the right password works."""
    office.home.store("wrong", b"not her password")
    second = {"connector": CONNECTOR, "name": "login/mail/other", "username": "noor", "secret": "wrong"}
    office.person.agree(office.home, office.home.ask("POST", "/v1/bindings", second))
    args = {"args": {}, "binding": "login/mail/other"}
    failed, again = (office.home.ask("POST", "/v1/actions/mail-search/run?wait=25", args) for _ in range(2))
    right = office.home.ask("POST", "/v1/actions/mail-search/run?wait=25", {"args": {}, "binding": BINDING})

    assert failed.body["error"]["class"] == again.body["error"]["class"] == "binding_failed", (failed.body, again.body)
    assert right.status == 200, right.body
    wait_until(lambda: "auth failed" in office.dovecot.log(), "Dovecot writes down the first")
    assert office.dovecot.log().count("auth failed") == 1, office.dovecot.log()
