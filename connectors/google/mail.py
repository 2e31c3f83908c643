"""Conversion of messages: outgoing ones to the bytes that Gmail sends, incoming ones from Gmail's JSON.

Outgoing messages have exactly the requested header fields. Addresses have the plain form `name@example.com`, which all
programs read in the same way; a line break or another control character anywhere in a field is refused, never removed.
Incoming messages were written by strangers. Encoded words are decoded so that they cannot pass for an address, and bodies are
decoded in their declared charset. HTML becomes text if there is no other text. Every text is bounded and marked where it was
cut.

Pure; this module logs no message. Source: RFC 5322 (form, threading), RFC 2045 to 2047, RFC 4648 section 5, Gmail API v1
`users.messages`. Not here: requests (api.py), attachments' bytes, quoted local parts and addresses outside of ASCII.
"""

from __future__ import annotations

import base64
import email.policy
import html
import re
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector import BadInput, ExternalApiError
from aileron_connector.mail import (
    Address,
    address_field,
    addresses,
    body_text,
    check_line,
    decoded,
    message_ids,
    one_line,
    readable,
    text_field,
)
from aileron_connector.markup import Texts, joined, texts_from

__all__ = ["Address", "Message", "Parent", "People", "addresses", "as_json", "compose", "field", "text_of"]

MAX_RECIPIENTS: Final = 100
"""Maximum number of recipients in to, cc and bcc together. More would be a mailing, which needs another tool."""
MAX_SUBJECT_CHARACTERS: Final = 500
MAX_BODY_CHARACTERS: Final = 200_000
"""Maximum number of characters of an outgoing message's text. The limit on all arguments of one call is lower."""
MAX_TEXT_CHARACTERS: Final = 100_000
"""Maximum number of characters of an incoming message's text. Even fully escaped it stays below the 1 MiB of a result."""
MAX_LISTED_CHARACTERS: Final = 300
"""Maximum number of characters of one header field in a listing, so that 100 messages with long subjects fit into a result."""
MAX_HTML_CHARACTERS: Final = 500_000
"""Maximum number of characters of one HTML part that is converted to text. Parsing takes time, and newsletters are shorter."""
MAX_PARTS: Final = 200
MAX_ATTACHMENTS: Final = 100
MAX_REFERENCES: Final = 20
"""Maximum number of message ids in a reply's `References`: the thread's first id, and its newest ids. Each id has at most
250 characters.
"""

_CRLF: Final = "\r\n"
_SENT: Final = email.policy.SMTP.clone(cte_type="7bit")
# Writing


class Parent(NamedTuple):
    """The message that a reply answers, as far as it determines the reply's mail thread."""

    thread_id: str
    references: tuple[str, ...]
    """Message ids of the thread, with the id of the answered message last."""

    @classmethod
    def of(cls, message: Message) -> Parent:
        """Make a Parent from a message's Message-ID and References (or else In-Reply-To). Text that is no message id is
        left out.
        """
        known = message_ids(field(message, "References")) or message_ids(field(message, "In-Reply-To"))
        ids = list(dict.fromkeys([*known, *message_ids(field(message, "Message-ID"))[:1]]))
        if len(ids) > MAX_REFERENCES:
            ids = [ids[0], *ids[1 - MAX_REFERENCES :]]
        return cls(message.thread_id, tuple(ids))


class People(NamedTuple):
    """Addresses of an outgoing message: its recipients, and the address for replies (Reply-To)."""

    to: Sequence[Address]
    cc: Sequence[Address] = ()
    bcc: Sequence[Address] = ()
    reply_to: Sequence[Address] = ()

    @property
    def recipients(self) -> int:
        """Number of addresses in to, cc and bcc."""
        return len(self.to) + len(self.cc) + len(self.bcc)


def compose(people: People, *, subject: str, body: str, parent: Parent | None = None) -> bytes:
    """Return a plain text message in the form of RFC 5322. Gmail adds sender, date and message id. Raises BadInput for
    fields that are not valid.
    """
    check_line(subject, "subject")
    if len(subject) > MAX_SUBJECT_CHARACTERS:
        raise BadInput(f"subject has more than {MAX_SUBJECT_CHARACTERS} characters", argument="subject")
    if len(body) > MAX_BODY_CHARACTERS:
        raise BadInput(f"body has more than {MAX_BODY_CHARACTERS} characters", argument="body")
    text = body_text(body, "body")
    if people.recipients > MAX_RECIPIENTS:
        raise BadInput(f"more than {MAX_RECIPIENTS} recipients", argument="to")
    fields = {"To": people.to, "Cc": people.cc, "Bcc": people.bcc, "Reply-To": people.reply_to}
    lines = [address_field(name, found) for name, found in fields.items() if found]
    lines.append(text_field("Subject", subject))
    if parent is not None and parent.references:
        lines.append(f"In-Reply-To: {parent.references[-1]}")
        lines.append("References: " + f"{_CRLF} ".join(parent.references))
    content = EmailMessage(policy=_SENT)
    content.set_content(text if text.endswith("\n") or not text else text + "\n")
    return f"{_CRLF.join(lines)}{_CRLF}".encode("ascii") + content.as_bytes()


# Reading


class _Field(msgspec.Struct):
    name: str
    value: str


class _Body(msgspec.Struct):
    size: int = 0
    data: str = ""


class Part(msgspec.Struct, rename="camel"):
    """A MIME part of a message in Gmail's JSON."""

    mime_type: str = ""
    filename: str = ""
    headers: list[_Field] = []
    body: _Body = msgspec.field(default_factory=_Body)
    parts: list[Part] = []


class Message(msgspec.Struct, rename="camel"):
    """A message in Gmail's JSON (`Message`, format `full` or `metadata`), reduced to the fields that this connector uses."""

    id: str
    thread_id: str = ""
    label_ids: list[str] = []
    snippet: str = ""
    internal_date: str = ""
    payload: Part = msgspec.field(default_factory=Part)


def field(message: Message, name: str) -> str:
    """Return a header field as one readable line, with encoded words decoded. Several fields with one name are joined by a
    comma.
    """
    values = [found.value for found in message.payload.headers if found.name.lower() == name.lower()]
    return ", ".join(readable(value, is_address=name.lower() in _ADDRESS_FIELDS) for value in values)


_ADDRESS_FIELDS: Final = frozenset({"from", "sender", "to", "cc", "bcc", "reply-to"})


class Text(NamedTuple):
    """The text of a message, and its attachments."""

    text: str
    source: str
    """Source of the text: `plain`, `html`, or `none` if there is no text."""
    is_cut: bool
    has_other: bool
    """True if the text is plain and the message also has HTML, whose text may differ."""
    hidden: str
    """Text that is in the HTML, but invisible to a person who reads the message."""
    attachments: list[dict[str, Any]]


def text_of(message: Message) -> Text:
    """Return a message's text and attachments. Raises ExternalApiError if a body is not base64url, or if there are too many
    parts.
    """
    attachments: list[dict[str, Any]] = []
    pieces, is_html = _read(message.payload, attachments, [MAX_PARTS])
    text, hidden = joined(pieces)
    source = "none" if not text else "html" if is_html else "plain"
    has_other = source == "plain" and _has_html(message.payload)
    is_cut = len(text) > MAX_TEXT_CHARACTERS
    return Text(text[:MAX_TEXT_CHARACTERS], source, is_cut, has_other, hidden, attachments)


def _has_html(part: Part) -> bool:
    return (part.mime_type.lower() == "text/html" and not part.filename) or any(map(_has_html, part.parts))


def _read(part: Part, attachments: list[dict[str, Any]], room: list[int]) -> tuple[list[Texts], bool]:
    """Return the texts of a MIME part and the parts in it, and whether one of them was HTML. Add attachments to
    `attachments`. `room[0]` is the number of parts that may still be read.
    """
    room[0] -= 1
    if room[0] < 0:
        raise ExternalApiError(f"the message has more than {MAX_PARTS} parts")
    kind = part.mime_type.lower()
    if part.parts and kind.startswith("multipart/"):
        found = [_read(child, attachments, room) for child in part.parts]
        if kind == "multipart/alternative":
            # RFC 2046 section 5.1.4: the same content in several forms. Prefer plain text to text made from HTML.
            said = [form for form in found if any(text.seen.strip() or text.hidden for text in form[0])]
            found = next(([form] for form in said if not form[1]), said[-1:])
        return [text for texts, _ in found for text in texts], any(is_html for _, is_html in found)
    if part.filename or not kind.startswith("text/") or kind == "text/calendar":
        attachments.append({"filename": _name(part), "mime_type": kind[:100], "size": part.body.size})
        return [], False
    text = decoded(_base64url(part.body.data), _charset(part))
    return ([texts_from(text[:MAX_HTML_CHARACTERS])], True) if kind == "text/html" else ([Texts(text, "")], False)


def _name(part: Part) -> str:
    return one_line(part.filename)[:255]


def _charset(part: Part) -> str:
    content_type = next((found.value for found in part.headers if found.name.lower() == "content-type"), "")
    found = re.search(r"""charset\*?=\s*["']?(?:us-ascii'')?([A-Za-z0-9._:-]{1,40})""", content_type, re.IGNORECASE)
    return found.group(1).lower() if found else "utf-8"


def _base64url(data: str) -> bytes:
    stripped = data.rstrip("=")
    if re.fullmatch(r"[A-Za-z0-9_-]*", stripped) is None or len(stripped) % 4 == 1:
        raise ExternalApiError("a part of the message is not base64url")
    return base64.urlsafe_b64decode(stripped + "=" * (-len(stripped) % 4))


def as_json(message: Message, *, is_listed: bool = False) -> dict[str, Any]:
    """Return a message's data for listings and for reading: people, subject, date and labels. In a listing the fields are
    shorter.
    """
    names = {"from": "From", "to": "To", "cc": "Cc", "subject": "Subject", "date": "Date"}
    fields = {key: field(message, name) for key, name in names.items()}
    if is_listed:
        fields = {key: _cut(text) for key, text in fields.items()}
    return {
        "id": message.id,
        "thread_id": message.thread_id,
        **fields,
        "labels": [label[:100] for label in message.label_ids[:30]],
        "unread": "UNREAD" in message.label_ids,
        "snippet": _cut(_unescaped(message.snippet)),
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LISTED_CHARACTERS else text[:MAX_LISTED_CHARACTERS] + "…"


def _unescaped(snippet: str) -> str:
    return one_line(html.unescape(snippet))
