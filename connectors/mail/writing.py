"""Composition of outgoing messages: header fields, text, attachments, and the recipients of a reply.

A message has exactly the requested header fields; text in an argument cannot add a field. The recipients of a blind copy
are only in the envelope. The Message-ID is derived from the run, so that each attempt of a step gives the same id.

Runs in the jail. Source: RFC 5322 (form; section 3.6.4, threads), RFC 6532 (UTF-8 in fields), RFC 2183. Not here: addresses
(aileron_connector.mail), sending (sending.py).
"""

from __future__ import annotations

import email.policy
import email.utils
import hashlib
import re
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any, Final, NamedTuple

import msgspec
from imap import Folder
from reading import Fields, Said, attached_bytes, parts, said

from aileron_connector import BadInput, ExternalApiError, idempotency_key
from aileron_connector.mail import (
    MAX_FIELD_CHARACTERS,
    MAX_NAME_CHARACTERS,
    Address,
    address_field,
    addresses,
    body_text,
    check_line,
    is_mailbox,
    message_ids,
    readable,
    text_field,
)

__all__ = [
    "ATTACHMENTS_BYTES",
    "Attached",
    "Attachment",
    "Outgoing",
    "Parent",
    "as_shown",
    "check_attachments",
    "composed",
    "mailbox_attachment",
    "parent",
    "sender",
    "text_attachment",
]

MAX_RECIPIENTS: Final = 100
"""Maximum number of recipients in to, cc and bcc together. More would be a mailing, which needs another tool."""
MAX_SUBJECT_CHARACTERS: Final = 500
MAX_BODY_CHARACTERS: Final = 200_000
MAX_QUOTED_CHARACTERS: Final = 20_000
"""Maximum number of characters that a reply quotes from the answered message."""
MAX_REFERENCES: Final = 20
MAX_ATTACHMENTS: Final = 10
ATTACHMENTS_BYTES: Final = 10 << 20
"""Maximum total size of all attachments in bytes. Many servers accept at most 25 MB, and base64 makes messages larger."""
_BETWEEN_COMMAS: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,])+')
_NOT_IN_A_FILENAME: Final = re.compile(r"[/\\]|=\?")
"""Pattern of characters that a file name must not have: separators of paths, and `=?`, which many mail programs decode
as an encoded word, and then show another name.
"""
_CRLF: Final = "\r\n"
_POLICY: Final = email.policy.SMTP.clone(cte_type="7bit")
_HEADER: Final = "UID FLAGS INTERNALDATE RFC822.SIZE BODYSTRUCTURE BODY.PEEK[HEADER]<0.131072>"


class Attachment(msgspec.Struct, forbid_unknown_fields=True):
    """A requested attachment, as an argument: a part of a message in the mailbox, or a text and its file name."""

    message_id: str | None = None
    part: str | None = None
    filename: str | None = None
    text: str | None = None


class Attached(NamedTuple):
    """A requested attachment together with its content."""

    filename: str
    kind: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.filename} ({self.kind}, {len(self.data)} bytes)"


class Outgoing(NamedTuple):
    """A message that is ready to be sent or stored."""

    sender: Address
    to: Sequence[Address]
    cc: Sequence[Address]
    bcc: Sequence[Address]
    subject: str
    text: str
    message_id: str
    data: bytes
    attached: Sequence[Attached]

    @property
    def recipients(self) -> list[str]:
        """Addresses of all recipients for the envelope, without duplicates."""
        return list(dict.fromkeys(recipient.address for recipient in (*self.to, *self.cc, *self.bcc)))

    @property
    def needs_utf8(self) -> bool:
        """True if an address has letters outside of ASCII, which the server has to support (RFC 6531)."""
        return not all(map(str.isascii, (self.sender.address, *self.recipients)))


class Parent(NamedTuple):
    """The message to be answered: its header fields and its text."""

    fields: Fields
    said: Said

    @property
    def references(self) -> list[str]:
        """Message ids of the thread, with the id of the answered message last."""
        known = message_ids(self.fields.raw("references")) or message_ids(self.fields.raw("in-reply-to"))
        ids = list(dict.fromkeys([*known, *message_ids(self.fields.raw("message-id"))[:1]]))
        return ids if len(ids) <= MAX_REFERENCES else [ids[0], *ids[1 - MAX_REFERENCES :]]

    @property
    def subject(self) -> str:
        """Subject of the reply."""
        subject = self.fields.line("subject")[: MAX_SUBJECT_CHARACTERS - 4]
        return subject if re.match(r"re:", subject, re.IGNORECASE) else f"Re: {subject}".strip()

    def people(self, sender: Address, *, reply_all: bool) -> tuple[list[Address], list[Address]]:
        """Return To and Cc of a reply by `sender`. Raises ExternalApiError if the message has no address to reply to."""
        own = sender.address.lower()
        wrote, asked_for = self._mailboxes("from"), self._mailboxes("reply-to")
        is_own = any(mailbox.address.lower() == own for mailbox in wrote)
        # An answer to the sender's own message goes to the recipients of that message.
        to = self._mailboxes("to") if is_own and not asked_for else asked_for or wrote
        if not to:
            raise ExternalApiError("the message names no address that could be answered")
        others = [*self._mailboxes("to"), *self._mailboxes("cc")] if reply_all else []
        known = {own, *(mailbox.address.lower() for mailbox in to)}
        copies = {mailbox.address.lower(): mailbox for mailbox in others if mailbox.address.lower() not in known}
        return to, list(copies.values())

    def _mailboxes(self, name: str) -> list[Address]:
        """Return the valid mailboxes in the header field `name`, with decoded names and unchanged addresses. Raises
        ExternalApiError if the field is too long.
        """
        field = self.fields.raw(name)
        if len(field) > MAX_FIELD_CHARACTERS:
            raise ExternalApiError(f"the message names more people than can be answered: its {name} is too long")
        found: dict[str, Address] = {}
        # Parse one at a time: newer versions of getaddresses() return nothing if one of them cannot be read.
        for piece in _BETWEEN_COMMAS.findall(field):
            shown, address = email.utils.parseaddr(piece)
            if is_mailbox(address, utf8=True):
                readable_name = readable(shown, is_address=False)[:MAX_NAME_CHARACTERS]
                found.setdefault(address.lower(), Address(readable_name, address))
        return list(found.values())

    def quoted(self) -> str:
        """Return the message's text as a reply quotes it: a line that says who wrote it and when, then each line after `>`."""
        lines = self.said.text[:MAX_QUOTED_CHARACTERS].split("\n")
        if len(self.said.text) > MAX_QUOTED_CHARACTERS:
            lines.append("[…]")
        written = f"{self.fields.line('from')[:200]} wrote on {self.fields.line('date')[:60]}:"
        return "\n".join([written, *(f"> {line}".rstrip() for line in lines)])


def sender(text: str) -> Address:
    """Return the sender's address. Raises BadInput unless `text` is exactly one address."""
    found = addresses(text, "from_address", utf8=True)
    if len(found) != 1:
        raise BadInput("from_address has to be one address, your own", argument="from_address")
    return found[0]


def parent(folder: Folder, uid: int) -> Parent:
    """Fetch the message to be answered."""
    found = folder.fetch_one(uid, _HEADER)
    return Parent(Fields(found.section("HEADER")), said(folder, uid, parts(found)))


# Attachments


def check_attachments(wanted: Sequence[Attachment]) -> None:
    """Raise BadInput if an attachment is neither a part of a message nor a text, or if there are too many attachments."""
    if len(wanted) > MAX_ATTACHMENTS:
        raise BadInput(f"more than {MAX_ATTACHMENTS} attachments", argument="attachments")
    for attachment in wanted:
        is_part = attachment.message_id is not None and attachment.part is not None and attachment.text is None
        is_text = (
            attachment.text is not None
            and attachment.filename is not None
            and attachment.message_id is None
            and attachment.part is None
        )
        if not (is_part or is_text):
            words = "each attachment has message_id and part, or filename and text"
            raise BadInput(words, argument="attachments")
        if attachment.filename is not None:
            _check_filename(attachment.filename)


def _check_filename(name: str) -> None:
    check_line(name, "attachments")
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS or _NOT_IN_A_FILENAME.search(name):
        words = f"filename {name[:80]!r} is empty, longer than {MAX_NAME_CHARACTERS} characters, or has a slash or =?"
        raise BadInput(words, argument="attachments")


def text_attachment(attachment: Attachment) -> Attached:
    """Make an attachment from a text in the arguments: plain text in UTF-8 with CRLF as line ends."""
    text = body_text(attachment.text or "", "attachments").replace("\n", _CRLF)
    return Attached(attachment.filename or "text.txt", "text/plain", text.encode())


def mailbox_attachment(attachment: Attachment, folder: Folder, uid: int, room: int) -> Attached:
    """Fetch a part of a message in the mailbox as an attachment. Raises BadInput if the part has more than `room` bytes."""
    part, data = attached_bytes(folder, uid, attachment.part or "", room, "attachments")
    name = (
        attachment.filename
        or _NOT_IN_A_FILENAME.sub("_", part.filename)[:MAX_NAME_CHARACTERS]
        or f"part-{part.section}"
    )
    # An attached message would have to be readable by the `email` package; as a plain file it stays unchanged.
    kind = (
        part.kind
        if re.fullmatch(r"(text|image|audio|video|application|font)/\S+", part.kind)
        else "application/octet-stream"
    )
    return Attached(name, kind, data)


# The message


def composed(
    from_: Address | None,
    to: Sequence[Address],
    cc: Sequence[Address],
    bcc: Sequence[Address],
    *,
    subject: str,
    body: str,
    attached: Sequence[Attached] = (),
    references: Sequence[str] = (),
    shows_bcc: bool = False,
) -> Outgoing:
    """Compose a message in the form of RFC 5322. `shows_bcc` adds a Bcc field to a draft, which is stored rather than sent.
    Raises BadInput for fields that are not valid.
    """
    check_line(subject, "subject")
    if len(subject) > MAX_SUBJECT_CHARACTERS:
        raise BadInput(f"subject has more than {MAX_SUBJECT_CHARACTERS} characters", argument="subject")
    if len(body) > MAX_BODY_CHARACTERS:
        raise BadInput(f"body has more than {MAX_BODY_CHARACTERS} characters", argument="body")
    if len(to) + len(cc) + len(bcc) > MAX_RECIPIENTS:
        raise BadInput(f"more than {MAX_RECIPIENTS} recipients", argument="to")
    text = body_text(body, "body")
    from_ = from_ or Address("", "")
    message_id = _message_id(from_)
    people = {"From": [from_] if from_.address else [], "To": to, "Cc": cc, "Bcc": bcc if shows_bcc else []}
    lines = [address_field(name, found) for name, found in people.items() if found]
    lines += [text_field("Subject", subject), f"Date: {email.utils.formatdate()}", f"Message-ID: {message_id}"]
    if references:
        lines += [f"In-Reply-To: {references[-1]}", "References: " + f"{_CRLF} ".join(references)]
    data = f"{_CRLF.join(lines)}{_CRLF}".encode() + _content(text, attached)
    return Outgoing(from_, to, cc, bcc, subject, text, message_id, data, attached)


def _message_id(from_: Address) -> str:
    """Return the Message-ID for this step of the run: the same for each attempt, and different for any other step."""
    domain = from_.address.rpartition("@")[2] or "localhost"
    return f"<{hashlib.sha256(f'message {idempotency_key()}'.encode()).hexdigest()[:32]}@{domain}>"


def _content(text: str, attached: Sequence[Attached]) -> bytes:
    content = EmailMessage(policy=_POLICY)
    content.set_content(text if text.endswith("\n") or not text else text + "\n")
    for attachment in attached:
        maintype, _slash, subtype = attachment.kind.partition("/")
        content.add_attachment(attachment.data, maintype=maintype, subtype=subtype, filename=attachment.filename)
    return content.as_bytes()


def as_shown(found: Sequence[Any]) -> str:
    """Return addresses or attachments as one line of text."""
    return ", ".join(map(str, found))
