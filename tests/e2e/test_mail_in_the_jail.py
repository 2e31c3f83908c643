"""The mail connector end to end: actions, a person, the jail, a login at Debian's Dovecot and Postfix."""

from __future__ import annotations

import base64
import dataclasses
import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from aileron.model.login import LoginTarget
from aileron.registry.connector_build import build
from tests.support.approver import Approver
from tests.support.canary import scan
from tests.support.dovecot import HOST, PASSWORD, Dovecot
from tests.support.home import DaemonHome, daemon_home
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
class Office:
    """Mira's mailbox, the server that sends for her, and a home whose agent may use both; she decides."""

    dovecot: Dovecot
    postfix: Postfix
    home: DaemonHome
    person: Approver

    def run(self, action: str, **args: Any) -> Any:
        """Run an action that is not gated, and return its result."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, and return its question's id."""
        answer = self.home.run(action, args)
        assert (answer.status, answer.body["status"]) == (202, "pending_approval"), answer.body
        return str(answer.body["approval_id"])

    def preview(self, question: str) -> dict[str, str]:
        """Return what the person sees of the effect, by label."""
        shown = self.person.preview(self.home, question)
        assert shown["fields"] is not None, shown
        return {line["label"]: line["value"] for line in shown["fields"]}

    def decide(self, question: str, decision: Any = "approve") -> dict[str, Any]:
        """Decide the question, and return its outcome."""
        decided = self.person.decide(self.home, question, decision)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question}, wait=20.0)

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
def office(authority: Authority) -> Iterator[Office]:
    """Provide the connector with all its actions and one binding; at the end no file has the password."""
    with Dovecot(authority) as dovecot, Postfix(authority, dovecot, [OFFER]) as postfix, daemon_home() as home:
        places = [f"imap+tls://{HOST}:{dovecot.imaps}", f"smtp+tls://{HOST}:{postfix.submissions[OFFER]}"]
        logins = [LoginTarget.parse(place) for place in places]
        private = ", ".join(f'"{login.destination}"' for login in logins)
        home.configure(f'[egress]\nprivate = [{private}]\nca_file = "{authority.ca_file}"\n')
        home.ask("GET", "/healthz")
        archive = home.path / "mail.tar.gz"
        archive.write_bytes(build(SOURCE, logins=logins).archive)
        home.must("POST", "/v1/connectors", {"path": str(archive)})
        home.unlock(PASSWORD.encode())
        binding = {"connector": CONNECTOR, "name": BINDING, "username": "mira", "secret": "pw"}
        home.must("POST", "/v1/bindings", binding)
        for path in sorted((SOURCE / "actions").glob("*/action.md")):
            home.must("POST", "/v1/actions", {"text": path.read_text(encoding="utf-8"), "file": str(path)})
        person = Approver()
        person.appoint(home)
        yield Office(dovecot, postfix, home, person)
        assert scan([home.path], b"Tomorrow at one?"), "the scan finds nothing that is there"
        assert scan([home.path], PASSWORD.encode()) == {}


def test_mail_is_found_and_read_without_approval(office: Office) -> None:
    """The login is recorded with its binding; the message stays unread, and no response has the password."""
    office.dovecot.deliver(
        "mira", b"From: noor@example.com\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nshall we?\r\n"
    )
    found = office.home.run("search-mail", {"sender": "noor@", "unread": True})
    assert found.status == 200, found.body
    [listed] = found.body["result"]["messages"]
    read = office.run("read-mail", message_id=listed["id"])
    again = office.run("search-mail", unread=True)

    assert (listed["subject"], read["text"]) == ("Grüße", "shall we?")
    assert [message["id"] for message in again["messages"]] == [listed["id"]]
    assert office.logins(found.body["audit_id"]) == [("IMAP", BINDING)]
    assert PASSWORD not in str(found.body) + str(office.home.events(found.body["audit_id"]))


def test_a_draft_needs_no_approval_and_sends_nothing(office: Office) -> None:
    """The draft is in the user's drafts folder."""
    before = office.settled()
    answer = office.home.run("draft-email", {"to": "noor@example.com", "subject": "later", "body": "x"})
    assert answer.status == 200, answer.body
    assert office.logins(answer.body["audit_id"]) == [("IMAP", BINDING)]
    assert office.run("read-mail", message_id=answer.body["result"]["draft"]["id"])["subject"] == "later"
    assert len(office.dovecot.messages("noor")) == before


def test_a_message_is_sent_after_approval(office: Office) -> None:
    """The server is only asked before that; then the message arrives, a copy is kept, and the record had the envelope first."""
    before = office.settled()
    question = office.ask("send-email", **SEND)
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


def test_a_denied_message_is_not_sent(office: Office) -> None:
    """An approved message beside it arrives."""
    before = office.settled()
    denied, agreed = (
        office.ask("send-email", **SEND | {"subject": "no"}),
        office.ask("send-email", **SEND | {"subject": "yes"}),
    )
    assert office.decide(denied, "deny")["status"] == "denied"
    assert office.decide(agreed)["status"] == "completed"

    assert [message["Subject"] for message in office.arrived(before + 1)[before:]] == ["yes"]


def test_the_preview_shows_recipients_that_the_server_would_refuse(office: Office) -> None:
    """A message that is approved all the same reaches nobody, and the failure says who was refused."""
    before = office.settled()
    question = office.ask("send-email", **SEND | {"to": "noor@example.com, nobody@example.com"})
    shown = office.preview(question)
    assert shown["Server accepts"] == "noor@example.com"
    assert shown["Server refuses"].startswith("nobody@example.com (550 5.1.1")

    settled = office.decide(question)
    assert settled["status"] == "failed", settled
    assert settled["error"]["class"] == "external_api_error"
    assert list(settled["error"]["details"]["refused"]) == ["nobody@example.com"]
    assert len(office.dovecot.messages("noor")) == before


def test_a_reply_is_shown_in_full_before_it_is_sent(office: Office) -> None:
    """Recipient and quoted text come from the mailbox, not from the agent."""
    office.dovecot.deliver(
        "mira",
        b"From: Noor <noor@example.com>\r\nTo: mira@example.com\r\nSubject: Plans\r\n"
        b"Message-ID: <p@example.com>\r\n\r\nand then?\r\n",
    )
    [message] = office.run("search-mail", subject="Plans")["messages"]
    before = office.settled()
    question = office.ask("reply-to-email", from_address=SEND["from_address"], message_id=message["id"], body="home")
    shown = office.preview(question)
    assert (shown["To"], shown["Subject"]) == ("Noor <noor@example.com>", "Re: Plans")
    assert "and then?" in shown["Answers"]
    assert shown["Sent text"].startswith("home\n\n")

    assert office.decide(question)["status"] == "completed"
    got = office.arrived(before + 1)[-1]
    assert (got["Subject"], got["In-Reply-To"]) == ("Re: Plans", "<p@example.com>")


def test_a_message_is_moved_after_the_person_has_seen_which(office: Office) -> None:
    """The preview has the message's subject, which comes from the mailbox."""
    office.dovecot.deliver("mira", b"From: noor@example.com\r\nSubject: Old\r\n\r\nx\r\n")
    [message] = office.run("search-mail", subject="Old")["messages"]
    question = office.ask("move-mail", message_id=message["id"], to_folder="Gesendet")
    assert office.preview(question)["Subject"] == "Old"
    assert office.decide(question)["status"] == "completed"
    assert office.run("search-mail", subject="Old")["messages"] == []


def test_a_wrong_password_is_not_tried_again(office: Office) -> None:
    """The second run is refused without a request to the server, which could lock the account; the right password works."""
    wrong = {"value_base64": base64.b64encode(b"not her password").decode()}
    office.home.must("PUT", "/v1/secrets/wrong", wrong)
    second = {"connector": CONNECTOR, "name": "login/mail/other", "username": "noor", "secret": "wrong"}
    office.person.agree(office.home, office.home.ask("POST", "/v1/bindings", second))
    args = {"args": {}, "binding": "login/mail/other"}
    failed, again = (office.home.ask("POST", "/v1/actions/search-mail/run?wait=25", args) for _ in range(2))
    right = office.home.ask("POST", "/v1/actions/search-mail/run?wait=25", {"args": {}, "binding": BINDING})

    assert failed.body["error"]["class"] == again.body["error"]["class"] == "binding_failed", (failed.body, again.body)
    assert right.status == 200, right.body
    wait_until(lambda: "auth failed" in office.dovecot.log(), "Dovecot writes down the first")
    assert office.dovecot.log().count("auth failed") == 1, office.dovecot.log()
