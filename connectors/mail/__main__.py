"""Connector for the mail of one account: search, read, draft, send and reply, by IMAP and SMTP.

Runs inside the jail. The supervisor logs in at both servers; the connector never has the password. Everything that is
read may come from a stranger, so it is passed on as data and never interpreted. No part of a message goes into the log.

Not handled: sending HTML, sending a draft that is in the mailbox, creating or deleting folders, encrypted and signed messages,
sign-in with OAuth.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import failing
import imap
import msgspec
import reading
import sending
import writing
from imap import Opened
from writing import Attached, Attachment, Outgoing

from aileron_connector import BadInput, ConnectorError, log, op, run
from aileron_connector.mail import addresses

MAX_LISTED: Final = 50
"""Maximum number of messages in one listing. With long subjects and lists of recipients, 50 messages fill a tenth of a result."""
MAX_EXAMINED: Final = 500
"""Maximum number of messages whose parts are examined when a listing is restricted to messages with attachments."""
MAX_COUNTED: Final = 100
"""Maximum number of folders whose messages are counted. Each folder takes one command."""
_CURSOR: Final = re.compile(r"([1-9]\d{0,9})\.([1-9]\d{0,9})")
_FETCHED_AT_ONCE: Final = 50

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_LISTED)]


# Reading


@op
def list_folders(counts: bool = False) -> dict[str, Any]:
    """List the folders by name, each with its use if the server states one. With `counts`, also return how many messages
    each folder has, and how many of those are unread.
    """
    with imap.opened() as box:
        found = []
        for number, folder in enumerate(box.folders()):
            shown: dict[str, Any] = {"name": folder.name, "use": folder.use, "can_open": folder.can_open}
            if counts and folder.can_open and number < MAX_COUNTED:
                shown["messages"], shown["unread"] = box.counts(folder.name)
            found.append(shown)
        return {"folders": found}


@op
def search_messages(
    folder: str = "INBOX",
    text: str | None = None,
    sender: str | None = None,
    to: str | None = None,
    subject: str | None = None,
    since: str | None = None,
    before: str | None = None,
    unread: bool | None = None,
    has_attachment: bool | None = None,
    limit: Count = 20,
    cursor: str | None = None,
) -> dict[str, Any]:
    """List messages of a folder that match all criteria, newest first. Dates are days of arrival, such as `2026-11-24`."""
    criteria = imap.Criteria(text, sender, to, subject, _day(since, "since"), _day(before, "before"), unread)
    criteria.in_ascii()
    with imap.opened() as box:
        opened = box.look_into(folder)
        found = _Listing(opened, has_attachment, limit)
        for window in opened.search(criteria, _before(cursor, opened.validity)):
            if found.take(window):
                break
        return {"folder": folder, "messages": found.messages, "next_cursor": found.cursor}


class _Listing:
    """Collector of the messages that match a search, up to the wanted number."""

    def __init__(self, folder: imap.Folder, has_attachment: bool | None, limit: int) -> None:
        self._folder: Final = folder
        self._has_attachment: Final = has_attachment
        self._limit: Final = limit
        self._examined = 0
        self._last = 0
        self.messages: list[dict[str, Any]] = []
        self.cursor: str | None = None

    def take(self, uids: list[int]) -> bool:
        """Fetch the messages with these UIDs and add those that match. Return True once the listing has the wanted
        number of messages, or MAX_EXAMINED messages were examined. In both cases there may be another page.
        """
        while uids:
            # Fetch one more than is wanted, to see whether there is another page.
            count = self._limit - len(self.messages) + 1 if self._has_attachment is None else _FETCHED_AT_ONCE
            some, uids = uids[:count], uids[count:]
            for uid, found in self._folder.fetch(some, imap.LISTED).items():
                if self._is_over():
                    return True
                self._examined += 1
                shown = reading.listing(self._folder, uid, found)
                if self._has_attachment is None or self._has_attachment == bool(shown["attachments"]):
                    self.messages.append(shown)
                self._last = uid
        return False

    def _is_over(self) -> bool:
        if len(self.messages) < self._limit and self._examined < MAX_EXAMINED:
            return False
        self.cursor = f"{self._folder.validity}.{self._last}"
        return True


def _before(cursor: str | None, validity: int) -> int | None:
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadInput(f"cursor {cursor[:40]!r} is not a next_cursor of an earlier answer", argument="cursor")
    if int(found[1]) != validity:
        raise BadInput("the folder was numbered anew since: search again without a cursor", argument="cursor")
    return int(found[2])


def _day(text: str | None, argument: str) -> datetime.date | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    raise BadInput(f"{argument} {text[:40]!r} is not a day like 2026-11-24", argument=argument)


@op
def read_message(message_id: str) -> dict[str, Any]:
    """Read a message with its text and the names of its attachments, without their content. An unread message stays unread."""
    wanted = imap.read_id(message_id)
    with imap.opened() as box:
        return {"folder": wanted.folder, **reading.message(box.message(wanted), wanted.uid)}


@op
def read_attachment(message_id: str, part: str) -> dict[str, Any]:
    """Read the content of one attachment as text or base64. `part` is the attachment's number from read_message."""
    wanted = imap.read_id(message_id)
    with imap.opened() as box:
        return reading.attachment(box.message(wanted), wanted.uid, part)


# Writing


@op
def create_draft(
    to: str | list[str] | None = None,
    subject: str = "",
    body: str = "",
    cc: str | list[str] | None = None,
    bcc: str | list[str] | None = None,
    from_address: str | None = None,
    reply_to_id: str | None = None,
    attachments: list[Attachment] | None = None,
) -> dict[str, Any]:
    """Store a draft in the drafts folder. `reply_to_id` is the id of the message that the draft answers."""
    people = [addresses(value, name, utf8=True) for value, name in ((to, "to"), (cc, "cc"), (bcc, "bcc"))]
    from_ = None if from_address is None else writing.sender(from_address)
    wanted, answered = (
        _wanted(attachments),
        None if reply_to_id is None else imap.read_id(reply_to_id, "reply_to_id"),
    )
    with imap.opened() as box:
        answers = None if answered is None else writing.parent(box.message(answered), answered.uid)
        draft = writing.composed(
            from_,
            *people,
            subject=subject or ("" if answers is None else answers.subject),
            body=body,
            attached=_attached(wanted, box),
            references=() if answers is None else answers.references,
            shows_bcc=True,
        )
        folder = box.maybe_folder_for("drafts")
        if folder is None:
            raise ConnectorError("external_api_error", "the mailbox has no folder for drafts: create one named Drafts")
        made = box.append(folder, r"(\Draft \Seen)", draft.data)
        log.info("draft made")
        return {"draft": {"id": None if made is None else str(made), "folder": folder, "message_id": draft.message_id}}


@op
def check_recipients(
    from_address: str,
    to: str | list[str] | None = None,
    cc: str | list[str] | None = None,
    bcc: str | list[str] | None = None,
    subject: str = "",
    body: str = "",
    message_id: str | None = None,
    reply_all: bool = False,
    quote: bool = True,
    attachments: list[Attachment] | None = None,
) -> dict[str, Any]:
    """Preview reply_to_message, if `message_id` is given, or send_message: the message, and the recipients that the server
    accepts. Sends nothing.
    """
    wanted = _wanted(attachments)
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(imap.opened()) if message_id is not None or _needs_mailbox(wanted) else None
        if message_id is None:
            outgoing, answers = _new(from_address, to, cc, bcc, subject, body, wanted, box), None
        else:
            outgoing, answers = _answer(from_address, message_id, body, reply_all, quote, wanted, box)
    with sending.opened() as server:
        checked = server.check(outgoing)
    return {
        **_shown(outgoing),
        "accepted": ", ".join(checked.accepted),
        "refused": checked.refusal
        or "; ".join(f"{address} ({words})" for address, words in checked.refused.items())
        or "nobody",
        "is_accepted": checked.refusal is None and not checked.refused,
        "answers": None if answers is None else _answered(answers),
    }


def _shown(outgoing: Outgoing) -> dict[str, Any]:
    people = {"to": outgoing.to, "cc": outgoing.cc, "bcc": outgoing.bcc}
    return {
        "from": str(outgoing.sender),
        **{name: writing.as_shown(found) or None for name, found in people.items()},
        "subject": outgoing.subject,
        "text": outgoing.text,
        "size": f"{len(outgoing.data)} bytes",
        "attached": writing.as_shown(outgoing.attached) or None,
    }


def _answered(answers: writing.Parent) -> str:
    lines = [f"{name}: {answers.fields.line(name.lower())}" for name in ("From", "Date", "Subject")]
    return "\n".join([*lines, "", answers.said.text[:2000]])


@op
def send_message(
    from_address: str,
    to: str | list[str],
    subject: str,
    body: str,
    cc: str | list[str] | None = None,
    bcc: str | list[str] | None = None,
    attachments: list[Attachment] | None = None,
    save_copy: bool = True,
) -> dict[str, Any]:
    """Send a plain text message to all recipients. If the server refuses one of them, nobody receives the message. A sent
    message cannot be recalled.
    """
    wanted = _wanted(attachments)
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(imap.opened()) if save_copy or _needs_mailbox(wanted) else None
        return _sent(_new(from_address, to, cc, bcc, subject, body, wanted, box), box if save_copy else None)


@op
def reply_to_message(
    from_address: str,
    message_id: str,
    body: str,
    reply_all: bool = False,
    quote: bool = True,
    attachments: list[Attachment] | None = None,
    save_copy: bool = True,
) -> dict[str, Any]:
    """Answer a message: send to its Reply-To address, or else to its author. With `reply_all`, all its other recipients
    get a copy.
    """
    wanted = _wanted(attachments)
    with imap.opened() as box:
        outgoing, _answers = _answer(from_address, message_id, body, reply_all, quote, wanted, box)
        done = _sent(outgoing, box if save_copy else None)
        answered = imap.read_id(message_id)
        with contextlib.suppress(ConnectorError), failing.translated("the mail server (IMAP)"):
            box.message(answered, to_change=True).mark(answered.uid, "+FLAGS", r"\Answered")
        return done


def _new(
    from_address: str,
    to: str | list[str] | None,
    cc: str | list[str] | None,
    bcc: str | list[str] | None,
    subject: str,
    body: str,
    wanted: Sequence[Attachment],
    box: Opened | None,
) -> Outgoing:
    people = [addresses(value, name, utf8=True) for value, name in ((to, "to"), (cc, "cc"), (bcc, "bcc"))]
    if not any(people):
        raise BadInput("to is empty: nobody would get it", argument="to")
    return writing.composed(
        writing.sender(from_address), *people, subject=subject, body=body, attached=_attached(wanted, box)
    )


def _answer(
    from_address: str,
    message_id: str,
    body: str,
    reply_all: bool,
    quote: bool,
    wanted: Sequence[Attachment],
    box: Opened | None,
) -> tuple[Outgoing, writing.Parent]:
    assert box is not None
    from_, answered = writing.sender(from_address), imap.read_id(message_id)
    answers = writing.parent(box.message(answered), answered.uid)
    to, cc = answers.people(from_, reply_all=reply_all)
    outgoing = writing.composed(
        from_,
        to,
        cc,
        (),
        subject=answers.subject,
        body=f"{body}\n\n{answers.quoted()}" if quote else body,
        attached=_attached(wanted, box),
        references=answers.references,
    )
    return outgoing, answers


def _sent(outgoing: Outgoing, box: Opened | None) -> dict[str, Any]:
    with sending.opened() as server:
        said = server.send(outgoing)
    log.info("message sent", recipients=len(outgoing.recipients))
    return {
        "message_id": outgoing.message_id,
        "from": str(outgoing.sender),
        "recipients": outgoing.recipients,
        "subject": outgoing.subject,
        "server_said": said,
        "copy": _copied(outgoing, box),
    }


def _copied(outgoing: Outgoing, box: Opened | None) -> str:
    """Save a copy of the sent message, and return a phrase that says where the copy is. A failure is described in the
    phrase and not raised, because the message is already sent.
    """
    if box is None:
        return "not saved"
    if box.can("X-GM-EXT-1"):
        return "saved by the server"
    try:
        with failing.translated("the mail server (IMAP)"):
            folder = box.maybe_folder_for("sent")
            if folder is None:
                return "not saved: the mailbox has no folder for sent mail"
            box.append(folder, r"(\Seen)", outgoing.data)
            return f"saved in {folder}"
    except ConnectorError as error:
        return f"not saved: {error.message}"


# Attachments


def _wanted(attachments: list[Attachment] | None) -> list[Attachment]:
    writing.check_attachments(attachments or [])
    return attachments or []


def _needs_mailbox(wanted: Sequence[Attachment]) -> bool:
    return any(attachment.message_id is not None for attachment in wanted)


def _attached(wanted: Sequence[Attachment], box: Opened | None) -> list[Attached]:
    """Return all attachments with their contents. Raises BadInput if they have more than ATTACHMENTS_BYTES."""
    found, room = [], writing.ATTACHMENTS_BYTES
    for attachment in wanted:
        found.append(
            writing.text_attachment(attachment)
            if attachment.message_id is None
            else _of_a_message(attachment, box, room)
        )
        room -= len(found[-1].data)
        if room < 0:
            raise BadInput(f"the attachments have more than {writing.ATTACHMENTS_BYTES} bytes", argument="attachments")
    return found


def _of_a_message(attachment: Attachment, box: Opened | None, room: int) -> Attached:
    assert box is not None
    wanted = imap.read_id(attachment.message_id or "", "attachments")
    return writing.mailbox_attachment(attachment, box.message(wanted), wanted.uid, room)


# Order in the mailbox


@op
def mark_message(message_id: str, read: bool | None = None, flagged: bool | None = None) -> dict[str, Any]:
    """Mark a message as read or unread, and as flagged or not flagged."""
    wanted = imap.read_id(message_id)
    changes = [(flag, value) for flag, value in ((r"\Seen", read), (r"\Flagged", flagged)) if value is not None]
    if not changes:
        raise BadInput("neither read nor flagged is given: nothing would change", argument="read")
    with imap.opened() as box:
        folder = box.message(wanted, to_change=True)
        folder.fetch_one(wanted.uid, "UID")
        for flag, value in changes:
            folder.mark(wanted.uid, "+FLAGS" if value else "-FLAGS", flag)
        return {"id": message_id, **{flag.removeprefix("\\").lower(): value for flag, value in changes}}


@op
def move_message(message_id: str, to_folder: str) -> dict[str, Any]:
    """Move a message to another existing folder, such as the archive or the trash."""
    wanted = imap.read_id(message_id)
    with imap.opened() as box:
        if to_folder not in {listed.name for listed in box.folders() if listed.can_open}:
            raise BadInput(f"there is no folder {to_folder[:80]!r}", argument="to_folder")
        folder = box.message(wanted, to_change=True)
        folder.fetch_one(wanted.uid, "UID")
        folder.move(wanted.uid, to_folder)
        return {"moved": message_id, "folder": to_folder}


if __name__ == "__main__":
    run()
