"""The mail connector, as it is built, by its operations: behind real logins at Debian's Dovecot and Postfix."""

from __future__ import annotations

import base64
import contextlib
import imaplib
import runpy
import socket
import sys
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.logins.login_messages import Envelope
from aileron.logins.protocols.imap import ImapLogin
from aileron.logins.protocols.smtp import SmtpLogin
from aileron.model.failure import AileronError
from aileron.model.login import LoginTarget
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron_connector import operation
from aileron_connector.testing import call
from aileron_sandbox.frames import GrantedHost, TcpOpen
from tests.support.dovecot import HOST, PASSWORD, Dovecot
from tests.support.logins import LoginAt, trusting
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.postfix import MAX_MESSAGE, Postfix
from tests.support.shaped import shaped
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

SOURCE = ROOT / "connectors" / "mail"
OFFER = "plain login"
TWO = ("https://imap.example.com:993", "https://smtp.example.com:465")
FROM = "Mira <mira@example.com>"
LOGINS = [LoginTarget.parse(text) for text in ("imap://imap.example.com:993", "smtp://smtp.example.com:465")]


class Account:
    """Mira's mailbox, a server that sends for her, and the connector behind logins at both."""

    def __init__(self, dovecot: Dovecot, postfix: Postfix, program: Path, authority: Authority) -> None:
        self.dovecot, self.postfix = dovecot, postfix
        self.logins: list[LoginAt] = []
        self.reads_only = False
        self._tls = trusting(authority.ca_file.read_text())
        self._undo = contextlib.ExitStack()
        hosts = [GrantedHost(HOST, dovecot.imaps, False), GrantedHost(HOST, postfix.submissions[OFFER], False)]
        self._host = PlainHost(program, hosts=hosts, streams=self._connect)

    def call(self, op: str, **args: Any) -> Report:
        """Run one operation."""
        self.logins.clear()
        with self._undo:
            report = self._host.call(op, **args)
        assert PASSWORD.encode() not in report.given + report.sent
        return report

    def done(self, op: str, **args: Any) -> Any:
        """Return the output of an operation that has to succeed."""
        return self.call(op, **args).output

    def failure(self, op: str, **args: Any) -> tuple[str, str]:
        """Return class and message of an operation that has to fail."""
        failed = self.call(op, **args).failure
        return failed.failure_class, failed.message

    def previewed(self, op: str, **args: Any) -> Any:
        """Return the output of an operation that may change nothing at the service."""
        self.reads_only = True
        try:
            return self.done(op, **args)
        finally:
            self.reads_only = False

    def _connect(self, asked: TcpOpen) -> socket.socket:
        protocol, make = ("imap", ImapLogin) if asked.port == self.dovecot.imaps else ("smtp", SmtpLogin)
        target = f"{protocol}+tls://{HOST}:{asked.port}"
        login = LoginAt(make, target, "mira", PASSWORD.encode(), tls=self._tls, reads_only=self.reads_only)
        self.logins.append(self._undo.enter_context(login))
        return login.client.dup()

    @contextlib.contextmanager
    def client(self) -> Iterator[imaplib.IMAP4_SSL]:
        """Open a connection of another mail program of hers."""
        with imaplib.IMAP4_SSL(HOST, self.dovecot.imaps, ssl_context=self._tls, timeout=10) as client:
            client.authenticate("PLAIN", lambda _: b"\0mira\0" + PASSWORD.encode())
            yield client

    def put(self, message: EmailMessage | bytes, folder: str = "INBOX") -> str:
        """Put a message into a folder; return its id."""
        data = message if isinstance(message, bytes) else message.as_bytes(policy=policy.SMTP)
        with self.client() as client:
            client.create(folder)
            _, answer = client.append(folder, "", None, data)
        validity, uid = answer[0].decode().partition("APPENDUID ")[2].split("]")[0].split()
        return f"{folder};UIDVALIDITY={validity}/;UID={uid}"

    def flags(self, message_id: str) -> str:
        """Return the flags of a message."""
        with self.client() as client:
            client.select(message_id.partition(";")[0], readonly=True)
            return str(client.uid("FETCH", message_id.rpartition("=")[2], "(FLAGS)")[1])

    def in_folder(self, folder: str) -> list[EmailMessage]:
        """Return all messages of a folder, as another program reads them."""
        with self.client() as client:
            assert client.select(folder, readonly=True)[0] == "OK"
            _, found = client.fetch("1:*", "(BODY.PEEK[])")
        return [read(piece[1]) for piece in found if isinstance(piece, tuple)]

    def settled(self, user: str) -> int:
        """Return how many messages a user has, once the messages of earlier tests have arrived."""
        self.postfix.settle()
        return len(self.dovecot.messages(user))

    def arrived(self, user: str, count: int) -> list[EmailMessage]:
        """Wait until a user has this many messages; return them."""
        wait_until(lambda: len(self.dovecot.messages(user)) >= count, f"{user} gets mail", seen=self.postfix.log)
        return [read(data) for data in self.dovecot.messages(user)]


def read(data: bytes) -> EmailMessage:
    """Return a message as another program reads it."""
    return BytesParser(EmailMessage, policy=policy.default).parsebytes(data.replace(b"\r\n", b"\n"))


def mail(text: str = "hello", **fields: str) -> EmailMessage:
    """Return a message as another sender's program writes it."""
    message = EmailMessage()
    named = {"From": "Noor <noor@example.com>", "To": FROM, "Subject": "news", **fields}
    for name, value in named.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE, logins=LOGINS)


@pytest.fixture(scope="module")
def loaded() -> Iterator[None]:
    """Declare the connector's operations in this process, for calls that are refused before any request: streams are
    refused here.
    """
    operations, modules = dict(operation.OPERATIONS), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SOURCE))
        runpy.run_path(str(SOURCE / "__main__.py"), run_name="mail")
        yield
    operation.OPERATIONS.clear()
    operation.OPERATIONS.update(operations)
    for name in set(sys.modules) - modules:
        if str(SOURCE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def account(program: Path, authority: Authority) -> Iterator[Account]:
    """Return one account for all of these tests."""
    with Dovecot(authority) as dovecot, Postfix(authority, dovecot, [OFFER]) as postfix:
        yield Account(dovecot, postfix, program, authority)


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as in an install, with both servers bound; without bound servers the build is refused."""
    manifest = parse_connector_manifest(build(SOURCE, logins=LOGINS).manifest, file="m")
    assert manifest.credential is not None
    assert manifest.credential.logins == tuple(LOGINS)
    assert [str(host) for host in manifest.hosts] == ["imap.example.com:993", "smtp.example.com:465"]
    with pytest.raises(AileronError, match="bound-at-build"):
        build(SOURCE)

    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    gated = {name for name, action in actions.items() if action.approval.required}
    assert gated == {"mail-send", "mail-reply", "mail-mark", "mail-move"}
    reads = {name for name, action in actions.items() if action.steps[0].idempotent}
    assert set(actions) - gated - reads == {"mail-draft"}


# Reading


def test_messages_are_found_newest_first_and_page_by_page(account: Account) -> None:
    """Each has an id that names it permanently; the cursor continues where the page ended."""
    ids = [account.put(mail(Subject=f"number {number}"), "Paged") for number in range(5)]

    first = account.done("search_messages", folder="Paged", limit=2)
    second = account.done("search_messages", folder="Paged", limit=2, cursor=first["next_cursor"])
    third = account.done("search_messages", folder="Paged", limit=2, cursor=second["next_cursor"])

    listed = [message["id"] for page in (first, second, third) for message in page["messages"]]
    assert listed == ids[::-1]
    assert [message["subject"] for message in first["messages"]] == ["number 4", "number 3"]
    assert first["messages"][0]["from"] == "Noor <noor@example.com>"
    assert third["next_cursor"] is None


@pytest.mark.parametrize(
    ("args", "subjects"),
    [
        ({"sender": "ann@"}, ["Prices"]),
        ({"to": "team@example.com"}, ["Lunch"]),
        ({"subject": "price"}, ["Prices"]),
        ({"text": "walrus"}, ["Lunch"]),
        ({"text": "Grüße"}, ["Lunch"]),
        ({"text": "Grüße", "subject": "Grüße"}, []),
        ({"has_attachment": True}, ["Prices"]),
        ({"has_attachment": False}, ["Lunch"]),
        ({"since": "2020-01-01", "before": "2021-01-01"}, []),
        ({"since": "2020-01-01"}, ["Prices", "Lunch"]),
        ({"unread": False}, []),
        ({"subject": 'a" OR SUBJECT "price'}, []),
        ({"subject": "\\"}, []),
    ],
)
def test_every_search_condition_is_applied(
    account: Account, searched: None, args: dict[str, Any], subjects: list[str]
) -> None:
    """Values may be outside ASCII, and quotes in them have no special meaning."""
    found = account.done("search_messages", folder="Searched", **args)
    assert [message["subject"] for message in found["messages"]] == subjects


@pytest.fixture(scope="module")
def searched(account: Account) -> None:
    """Put two messages to find into a folder."""
    account.put(mail("the walrus says Grüße", To="team@example.com", Subject="Lunch"), "Searched")
    message = mail("see attached", From="Ann <ann@example.com>", Subject="Prices")
    message.add_attachment(b"a;b", maintype="text", subtype="csv", filename="prices.csv")
    account.put(message, "Searched")


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"text": "x\r\na1 LOGOUT"}, "text"),
        ({"subject": "\n"}, "subject"),
        ({"sender": "x\0"}, "sender"),
        ({"to": "x" * 501}, "to"),
        ({"since": "24 Nov 2026"}, "since"),
        ({"before": "2026-02-30"}, "before"),
        ({"limit": 51}, "limit"),
    ],
)
def test_arguments_that_would_break_a_mail_command_are_refused(
    loaded: None, args: dict[str, Any], argument: str
) -> None:
    """The failure names the argument, and no request is made."""
    failed = call("search_messages", args).failure
    assert (failed.failure_class, failed.details["argument"]) == ("bad_input", argument)


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"folder": "INBOX\r\na1 DELETE Searched"}, "folder"),
        ({"folder": "no such folder"}, "folder"),
        ({"cursor": "1.5"}, "cursor"),
    ],
)
def test_unknown_folders_and_cursors_are_refused(account: Account, args: dict[str, Any], argument: str) -> None:
    """The failure names the argument, and no part of it becomes a command."""
    failed = account.call("search_messages", **args).failure
    assert (failed.failure_class, failed.details["argument"]) == ("bad_input", argument)


def test_a_message_is_read_and_stays_unread(account: Account) -> None:
    """Plain text is preferred to HTML, the header is decoded, attachments have numbers, and the message is not marked."""
    message = mail("plain wörds", Subject="Grüße", Cc="team@example.com", Reply_To="list@example.com")
    message.add_alternative("<p>html words</p>", subtype="html")
    message.add_attachment(b"%PDF-1", maintype="application", subtype="pdf", filename="Überweisung.pdf")
    message_id = account.put(message)

    found = account.done("read_message", message_id=message_id)

    assert (found["text"], found["text_from"], found["has_other_html"]) == ("plain wörds", "plain", True)
    assert (found["subject"], found["reply_to"], found["cc"]) == ("Grüße", "list@example.com", "team@example.com")
    assert found["id"] == message_id
    [attached] = found["attachments"]
    assert (attached["part"], attached["filename"]) == ("2", "Überweisung.pdf")
    assert "Seen" not in account.flags(message_id)


HEAD = b"From: a@example.com\r\nSubject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed"
PLAIN = b"--q\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
NESTED = b"--q\r\nContent-Type: multipart/alternative%s\r\n\r\n--r\r\n\r\ninner\r\n--r--\r\n"


@pytest.mark.parametrize(
    ("raw", "text", "damage"),
    [
        (HEAD + b"; boundary=q\r\n\r\n" + PLAIN + b"--q--\r\n", "hello", ""),
        (HEAD + b"; boundary=q\r\n\r\n" + PLAIN + b"--q--\r\nand a list's own words\r\n", "hello", ""),
        (HEAD + b"; boundary=q\r\n\r\n--q\r\n\r\n\r\n--q--\r\n", "", ""),
        (HEAD + b"; boundary=q\r\n\r\n" + PLAIN, "hello", "the message ends without its last boundary"),
        (HEAD + b"\r\n\r\n" + PLAIN + b"--q--\r\n", "hello", "the message: no boundary"),
        (HEAD + b"; boundary=other\r\n\r\n" + PLAIN + b"--q--\r\n", "hello", "the message: no boundary"),
        (HEAD + b"; boundary=q\r\n\r\nonly these words\r\n", "only these words", "the message: no boundary"),
        (HEAD + b"; boundary=q\r\n\r\n" + NESTED % b"" + b"--q--\r\n", "inner", "part 1: no boundary"),
        (HEAD + b"; boundary=q\r\n\r\n" + PLAIN + NESTED % b"" + b"--q--\r\n", "inner", "part 2: no boundary"),
        (HEAD + b"; boundary=q\r\n\r\n" + NESTED % b"; boundary=r" + b"--q--\r\n", "inner", ""),
    ],
    ids=["whole", "epilogue", "empty", "cut", "none", "another", "preamble", "nested", "second", "nested whole"],
)
def test_the_text_of_a_multipart_message_without_its_boundary_is_returned(
    account: Account, raw: bytes, text: str, damage: str
) -> None:
    """The damage is reported. A real server finds no part in such a message."""
    found = account.done("read_message", message_id=account.put(raw))
    assert text in found["text"]
    assert [report[: len(damage)] for report in found.get("damage", [])] == ([damage] if damage else [])


def test_attachments_are_read_by_their_number(account: Account) -> None:
    """Text is returned as text, anything else as base64; the error for an unknown part lists the known ones."""
    message = mail("see below")
    message.add_attachment("a;ü\n", subtype="csv", filename="a.csv")
    message.add_attachment(bytes(range(256)), maintype="image", subtype="png", filename="b.png")
    message_id = account.put(message)

    text = account.done("read_attachment", message_id=message_id, part="2")
    image = account.done("read_attachment", message_id=message_id, part="3")
    missing = account.failure("read_attachment", message_id=message_id, part="9")

    assert (text["encoding"], text["content"], text["is_cut"]) == ("text", "a;ü\r\n", False)
    assert base64.b64decode(image["content"]) == bytes(range(256))
    assert missing == ("bad_input", "the message has no part '9'; its attachments are 2, 3")


def test_an_attachment_too_large_for_an_answer_is_refused(account: Account) -> None:
    """The attachment's size is checked before it is fetched."""
    message = mail("see below")
    message.add_attachment(b"x" * ((512 << 10) + 1), maintype="application", subtype="zip", filename="a.zip")
    failed = account.failure("read_attachment", message_id=account.put(message), part="2")
    assert failed[0] == "bad_input"
    assert "more than the 524288 bytes" in failed[1]


def test_a_message_id_never_refers_to_another_message(account: Account) -> None:
    """A folder that was created again numbers its messages from the start, and an old id is refused."""
    old = account.put(mail(Subject="old"), "Anew")
    with account.client() as client:
        client.delete("Anew")
    new = account.put(mail(Subject="new"), "Anew")
    assert old.rpartition("=")[2] == new.rpartition("=")[2]

    assert account.done("read_message", message_id=new)["subject"] == "new"
    assert account.failure("read_message", message_id=old)[1].startswith("the folder was numbered anew")
    gone = new.rpartition("=")[0] + "=999"
    assert account.failure("read_message", message_id=gone)[1].startswith("there is no such message any more")


@pytest.mark.parametrize(
    "text", ["", "INBOX", "INBOX;UIDVALIDITY=1/;UID=0", "x\r\n;UIDVALIDITY=1/;UID=1", "a;UIDVALIDITY=1/;UID=1,2"]
)
def test_an_invalid_id_is_refused(loaded: None, text: str) -> None:
    """The failure comes before any request."""
    assert call("read_message", {"message_id": text}).failure.failure_class == "bad_input"


def test_folders_are_listed_with_their_use(account: Account) -> None:
    """Names in any script are decoded from modified UTF-7, and encoded back into it."""
    account.put(mail(), '"Entw&APw-rfe &- mehr"')
    folders = {folder["name"]: folder for folder in account.done("list_folders", counts=True)["folders"]}

    assert folders["Entwürfe"]["use"] == "drafts"
    assert folders["Gesendet"]["use"] == "sent"
    assert folders["Entwürfe & mehr"]["messages"] == folders["Entwürfe & mehr"]["unread"] == 1
    found = account.done("search_messages", folder="Entwürfe & mehr")
    assert len(found["messages"]) == 1
    assert account.done("read_message", message_id=found["messages"][0]["id"])["folder"] == "Entwürfe & mehr"


# Writing


def test_a_draft_is_saved_in_the_servers_drafts_folder(account: Account) -> None:
    """The draft is in the thread of the message it answers, with its Bcc, and nothing is sent."""
    parent = account.put(mail(Subject="question", Message_ID="<q@example.com>"))
    made = account.done(
        "create_draft", to="noor@example.com", bcc="team@example.com", body="not yet", reply_to_id=parent
    )["draft"]

    [draft] = [message for message in account.in_folder("Entw&APw-rfe") if message["Message-ID"] == made["message_id"]]
    assert (draft["Subject"], draft["Bcc"], draft["In-Reply-To"]) == (
        "Re: question",
        "team@example.com",
        "<q@example.com>",
    )
    assert draft.get_content() == "not yet\n"
    assert account.done("read_message", message_id=made["id"])["text"] == "not yet"
    assert [login.order.target.protocol for login in account.logins] == ["imap"]


def test_a_sent_message_arrives_and_a_copy_of_it_is_saved(account: Account) -> None:
    """The recipient does not see the Bcc, and the envelope is noted."""
    before = account.settled("noor")
    sent = account.done(
        "send_message",
        from_address=FROM,
        to='"Nöor, of the team" <noor@example.com>',
        bcc="mira@example.com",
        subject="Grüße aus Köln und noch viel mehr davon, so that the line has to be folded somewhere",
        body=".\nline\n..\nFrom here\n",
        attachments=[{"filename": "notes.txt", "text": "one\ntwo"}],
    )
    got = account.arrived("noor", before + 1)[-1]

    assert sent["recipients"] == ["noor@example.com", "mira@example.com"]
    assert sent["server_said"].startswith("250 ")
    assert (sent["copy"], got["Message-ID"]) == ("saved in Gesendet", sent["message_id"])
    assert got["Bcc"] is None
    assert str(got["From"]) == FROM
    assert [(address.display_name, address.addr_spec) for address in got["To"].addresses] == [
        ("Nöor, of the team", "noor@example.com")
    ]
    assert got["Subject"].endswith("has to be folded somewhere")
    body = got.get_body()
    assert body is not None
    assert body.get_content() == ".\nline\n..\nFrom here\n"
    assert [part.get_filename() for part in got.iter_attachments()] == ["notes.txt"]
    assert sent["message_id"] in [message["Message-ID"] for message in account.in_folder("Gesendet")]
    [smtp] = [login for login in account.logins if login.order.target.protocol == "smtp"]
    envelope = smtp.notes[0]
    assert isinstance(envelope, Envelope)
    assert (envelope.sender, envelope.recipients) == ("mira@example.com", ("noor@example.com", "mira@example.com"))


def test_an_attachment_of_a_message_is_forwarded(account: Account) -> None:
    """The attachment is named by message id and part: the bytes go from the mailbox into the new message."""
    message = mail("see below")
    message.add_attachment(bytes(range(256)) * 20, maintype="image", subtype="png", filename="b.png")
    before = account.settled("noor")
    wanted = {"message_id": account.put(message), "part": "2"}
    account.done("send_message", from_address=FROM, to="noor@example.com", subject="on", body="x", attachments=[wanted])

    [attached] = account.arrived("noor", before + 1)[-1].iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("image/png", "b.png")
    assert attached.get_content() == bytes(range(256)) * 20


def test_a_refused_recipient_stops_the_whole_message(account: Account) -> None:
    """The check names the refused recipient. A message sent anyway goes to nobody; without that recipient it arrives."""
    people = {"from_address": FROM, "to": "noor@example.com, nobody@example.com", "subject": "x", "body": "y"}
    before = account.settled("noor")
    asked = account.previewed("check_recipients", **people)
    failed = account.call("send_message", **people).failure
    account.done("send_message", **people | {"to": "noor@example.com", "save_copy": False})

    assert (asked["accepted"], asked["is_accepted"]) == ("noor@example.com", False)
    assert asked["refused"].startswith("nobody@example.com (550 5.1.1")
    assert failed.failure_class == "external_api_error"
    assert failed.message.startswith(
        "nothing was sent, to nobody: the server refuses 1 of the recipients: nobody@example.com: 550"
    )
    assert list(shaped(failed.details)["refused"]) == ["nobody@example.com"]
    assert len(account.arrived("noor", before + 1)) == before + 1


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(account: Account) -> None:
    """The limit is the one that the server announces."""
    message = mail("see below")
    message.add_attachment(b"x" * MAX_MESSAGE, maintype="application", subtype="zip", filename="a.zip")
    wanted = {"message_id": account.put(message), "part": "2"}
    sending = {"from_address": FROM, "to": "noor@example.com", "subject": "x", "body": "y", "attachments": [wanted]}

    assert f"the server takes {MAX_MESSAGE}" in account.previewed("check_recipients", **sending)["refused"]
    assert f"the server takes {MAX_MESSAGE}" in account.failure("send_message", **sending)[1]


def test_a_reply_goes_to_the_addresses_that_the_message_asks_for(account: Account) -> None:
    """The preview shows people, subject and quote as they are sent; and the reply belongs to the thread."""
    message = mail(
        "shall we?\n\nNoor",
        Subject="Lunch",
        Message_ID="<2@example.com>",
        References="<1@example.com>",
        Reply_To="noor@example.com",
        From="Noor's bot <bot@example.com>",
        To="Mira <MIRA@example.com>, mira@example.com",
        Cc="Locked <locked@example.com>, broken <>, NOOR@example.com",
    )
    message_id, before = account.put(message), account.settled("noor")
    reply = {"from_address": FROM, "message_id": message_id, "body": "yes", "reply_all": True}
    shown = account.previewed("check_recipients", **reply)
    sent = account.done("reply_to_message", **reply)
    got = account.arrived("noor", before + 1)[-1]

    assert (shown["to"], shown["cc"], shown["subject"]) == (
        "noor@example.com",
        "Locked <locked@example.com>",
        "Re: Lunch",
    )
    assert shown["answers"].startswith("From: Noor's bot <bot@example.com>\n")
    assert "shall we?" in shown["answers"]
    assert shown["is_accepted"]
    assert sent["recipients"] == ["noor@example.com", "locked@example.com"]
    assert (got["In-Reply-To"], got["References"]) == ("<2@example.com>", "<1@example.com> <2@example.com>")
    assert got.get_content().splitlines()[0] == "yes"
    assert "\n> shall we?\n>\n> Noor\n" in got.get_content()
    assert shown["text"].rstrip() == got.get_content().rstrip()
    assert "Answered" in account.flags(message_id)


def test_a_reply_to_the_user_s_own_message_goes_to_the_recipients_of_that_message(account: Account) -> None:
    """The preview has no other recipient without reply_all."""
    message_id = account.put(mail(From=FROM, To="noor@example.com", Cc="locked@example.com", Subject="Re: Lunch"))
    shown = account.previewed("check_recipients", from_address=FROM, message_id=message_id, body="and?", quote=False)
    assert (shown["to"], shown["cc"], shown["subject"], shown["text"]) == (
        "noor@example.com",
        None,
        "Re: Lunch",
        "and?",
    )


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({"subject": "x\r\nBcc: eve@evil.example"}, "subject"),
        ({"to": "noor@example.com\r\nBcc: eve@evil.example"}, "to"),
        ({"to": "noor@example.com> SIZE=1"}, "to"),
        ({"to": "noor@example.com, <eve@evil.example"}, "to"),
        ({"to": ""}, "to"),
        ({"from_address": "a@example.com, b@example.com"}, "from_address"),
        ({"from_address": ""}, "from_address"),
        ({"body": "x\0"}, "body"),
        ({"attachments": [{"filename": "../a", "text": "x"}]}, "attachments"),
        ({"attachments": [{"filename": "a\r\nX: y", "text": "x"}]}, "attachments"),
        ({"attachments": [{"filename": "=?utf-8?Q?invoice=2Eexe?=", "text": "x"}]}, "attachments"),
        ({"attachments": [{"filename": "a"}]}, "attachments"),
        ({"attachments": [{"filename": "a", "text": "x", "part": "1"}]}, "attachments"),
        ({"attachments": [{"filename": "a", "text": "x"}] * 11}, "attachments"),
        ({"to": ["noor@example.com"] * 101}, "to"),
    ],
)
def test_no_argument_can_add_a_header_field_or_another_recipient(
    loaded: None, args: dict[str, Any], argument: str
) -> None:
    """The failure names the argument, before the server is contacted. The control without that argument contacts it."""
    sending = {"from_address": FROM, "to": "noor@example.com", "subject": "x", "body": "y", "save_copy": False}
    failed = call("send_message", sending | args, hosts=TWO).failure
    assert (failed.failure_class, failed.details.get("argument")) == ("bad_input", argument)
    assert call("send_message", sending, hosts=TWO).failure.failure_class == "network_error"


def test_addresses_outside_ascii_need_a_server_that_supports_them(account: Account) -> None:
    """Postfix does, but has no such user; a domain has to be given in ASCII."""
    account.put(mail())
    sending = {"from_address": FROM, "subject": "x", "body": "y"}
    asked = account.previewed("check_recipients", **sending, to="jürgen@example.com")
    assert asked["refused"].startswith("jürgen@example.com (550")
    assert account.failure("check_recipients", **sending, to="a@köln.example")[0] == "bad_input"


def test_messages_are_marked_and_moved(account: Account) -> None:
    """Only the named message changes; an unknown folder is refused."""
    message_id, other = account.put(mail(Subject="this"), "Here"), account.put(mail(Subject="other"), "Here")
    account.put(mail(), "There")
    account.done("mark_message", message_id=message_id, read=True, flagged=True)
    assert "Seen" in account.flags(message_id)
    assert "Flagged" not in account.flags(other)
    account.done("mark_message", message_id=message_id, read=False)
    assert "Seen" not in account.flags(message_id)

    assert account.failure("move_message", message_id=message_id, to_folder="Nowhere")[0] == "bad_input"
    account.done("move_message", message_id=message_id, to_folder="There")
    assert account.failure("read_message", message_id=message_id)[1].startswith("there is no such message any more")
    assert account.done("search_messages", folder="There")["messages"][0]["subject"] == "this"
    assert account.done("read_message", message_id=other)["subject"] == "other"


def test_a_repeated_step_sends_its_mail_with_the_same_message_id(account: Account) -> None:
    """A person can therefore tell whether an earlier try arrived. All calls here belong to one run."""
    sending = {"from_address": FROM, "to": "noor@example.com", "subject": "x", "body": "y", "save_copy": False}
    first, second = (account.done("send_message", **sending) for _ in range(2))
    assert first["message_id"] == second["message_id"]
    assert first["message_id"].endswith("@example.com>")
