"""Messages: as bytes for Gmail to send, and out of what Gmail says of one.

What goes out has exactly the header fields that are asked for. Addresses are plain `name@example.com` forms, nothing that two
programs could read in two ways; a line break or another control character anywhere in a field is refused, never taken out.
What comes in was written by strangers: encoded words are decoded so that they cannot pass for an address, bodies in whatever
charset they claim, HTML becomes text when there is nothing else, and everything has a bound and says where it was cut.

Pure; no message is logged from here. Source: RFC 5322 (form, threading), RFC 2045 to 2047, RFC 4648 section 5, Gmail API v1
`users.messages`. Not here: asking (api.py), attachments' bytes, quoted local parts and addresses outside of ASCII.
"""

from __future__ import annotations

import base64
import binascii
import email.errors
import email.policy
import html
import re
from collections.abc import Sequence
from email.header import Header, decode_header
from email.message import EmailMessage
from typing import Any, Final, NamedTuple

import msgspec
from markup import text_from

from aileron_connector import BadInput, ExternalApiError

__all__ = ["Address", "Message", "Parent", "People", "addresses", "as_json", "compose", "field", "text_of"]

MAX_RECIPIENTS: Final = 100
"""Of one message, to, cc and bcc together: more is a mailing, which is another tool's."""
MAX_SUBJECT_CHARACTERS: Final = 500
MAX_NAME_CHARACTERS: Final = 128
"""Of a display name: it may stand on one line, which has at most 998 characters (RFC 5322 section 2.1.1)."""
MAX_BODY_CHARACTERS: Final = 200_000
"""What is sent; a call's arguments have less than that."""
MAX_TEXT_CHARACTERS: Final = 100_000
"""Of the text of a message that is read: even all escaped it stays below the 1 MiB of a result."""
MAX_FIELD_CHARACTERS: Final = 10_000
"""Of one header field that is read: a list of about 200 recipients."""
MAX_LISTED_CHARACTERS: Final = 300
"""Of one field in a listing: a hundred messages fit into a result, however long somebody made their subjects."""
MAX_HTML_CHARACTERS: Final = 500_000
"""Of one part that is turned into text: parsing it costs time, and newsletters stay below."""
MAX_PARTS: Final = 200
MAX_ATTACHMENTS: Final = 100
MAX_REFERENCES: Final = 20
"""Message ids of a thread that a reply names, the first and the last ones; each has at most 250 characters."""

_LINE: Final = 76  # RFC 2047 section 2
_CRLF: Final = "\r\n"
_SENT: Final = email.policy.SMTP.clone(cte_type="7bit")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_BODY: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# Addresses

_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"  # RFC 5322 section 3.2.3
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # RFC 1123 section 2.1
_ADDRESS: Final = re.compile(rf"(?=[^@]{{1,64}}@)(?=.{{1,254}}\Z){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})+")
_ITEM: Final = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"\s*(?=<)|(?P<plain>[^"<>,;:\\@]*))<(?P<address>[^<>]*)>\s*'
)


class Address(NamedTuple):
    """One mailbox: a name for people, maybe empty, and where mail goes."""

    name: str
    address: str


def addresses(value: str | list[str] | None, argument: str) -> list[Address]:
    """`Mira <mira@example.com>, bob@example.com` as mailboxes. BadInput, which quotes what cannot be read."""
    if value is None:
        return []
    pieces = [piece for text in ([value] if isinstance(value, str) else value) for piece in _split(text, argument)]
    return [_address(piece, argument) for piece in pieces]


def _split(text: str, argument: str) -> list[str]:
    """At the commas that are not in quotes; nothing between two commas is nobody."""
    _check_line(text, argument)
    if len(text) > MAX_FIELD_CHARACTERS:
        raise BadInput(f"{argument} has more than {MAX_FIELD_CHARACTERS} characters", argument=argument)
    return [piece for piece in re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^,])+', text) if piece.strip()]


def _address(text: str, argument: str) -> Address:
    found = _ITEM.fullmatch(text)
    name, address = "", text.strip()
    if found is not None:
        quoted = found["quoted"]
        name = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else found["plain"]
        name, address = " ".join(name.split()), found["address"].strip()
    if _ADDRESS.fullmatch(address) is None or len(name) > MAX_NAME_CHARACTERS:
        words = "expected addresses like mira@example.com or Mira <mira@example.com>, with commas between"
        raise BadInput(f"{argument} {text.strip()[:80]!r} cannot be read; {words}", argument=argument)
    return Address(name, address)


def _check_line(text: str, argument: str) -> None:
    if _CONTROL.search(text):
        raise BadInput(f"{argument} has a line break or another control character in it", argument=argument)


# Writing


class Parent(NamedTuple):
    """What a reply has to say of the message it answers."""

    thread_id: str
    references: tuple[str, ...]
    """Message ids of the thread, the answered message's last."""

    @classmethod
    def of(cls, message: Message) -> Parent:
        """From a message with its Message-ID and References; what is no message id is left out."""
        known = _message_ids(field(message, "References")) or _message_ids(field(message, "In-Reply-To"))
        ids = list(dict.fromkeys([*known, *_message_ids(field(message, "Message-ID"))[:1]]))
        if len(ids) > MAX_REFERENCES:
            ids = [ids[0], *ids[1 - MAX_REFERENCES :]]
        return cls(message.thread_id, tuple(ids))


class People(NamedTuple):
    """Everybody a message names."""

    to: Sequence[Address]
    cc: Sequence[Address] = ()
    bcc: Sequence[Address] = ()
    reply_to: Sequence[Address] = ()

    @property
    def recipients(self) -> int:
        """How many get it."""
        return len(self.to) + len(self.cc) + len(self.bcc)


def compose(people: People, *, subject: str, body: str, parent: Parent | None = None) -> bytes:
    """A message of text, as RFC 5322 has it. Sender, date and message id are Gmail's to add. BadInput."""
    _check_line(subject, "subject")
    if len(subject) > MAX_SUBJECT_CHARACTERS:
        raise BadInput(f"subject has more than {MAX_SUBJECT_CHARACTERS} characters", argument="subject")
    if len(body) > MAX_BODY_CHARACTERS:
        raise BadInput(f"body has more than {MAX_BODY_CHARACTERS} characters", argument="body")
    text = body.replace("\r\n", "\n").replace("\r", "\n")
    if _CONTROL_IN_BODY.search(text):
        raise BadInput("body has a control character in it", argument="body")
    if people.recipients > MAX_RECIPIENTS:
        raise BadInput(f"more than {MAX_RECIPIENTS} recipients", argument="to")
    fields = {"To": people.to, "Cc": people.cc, "Bcc": people.bcc, "Reply-To": people.reply_to}
    lines = [_list_field(name, found) for name, found in fields.items() if found]
    lines.append(f"Subject: {_words(' '.join(subject.split()), len('Subject: '))}")
    if parent is not None and parent.references:
        lines.append(f"In-Reply-To: {parent.references[-1]}")
        lines.append("References: " + f"{_CRLF} ".join(parent.references))
    content = EmailMessage(policy=_SENT)
    content.set_content(text if text.endswith("\n") or not text else text + "\n")
    return f"{_CRLF.join(lines)}{_CRLF}".encode("ascii") + content.as_bytes()


def _list_field(name: str, found: Sequence[Address]) -> str:
    """Each mailbox on a line of its own: where the line is folded is not left to chance."""
    return f"{name}: " + f",{_CRLF} ".join(_mailbox(one, len(name) + 2) for one in found)


def _mailbox(one: Address, indent: int) -> str:
    name = one.name
    if not name:
        return one.address
    if not name.isascii() or "=?" in name:
        name = _words(name, indent)
    elif re.fullmatch(rf"(?:{_ATOM} ?)*", name) is None:
        name = _quoted(name)
    separator = f"{_CRLF} " if len(name.rpartition(_CRLF)[2]) + len(one.address) > _LINE - 4 else " "
    return f"{name}{separator}<{one.address}>"


def _words(text: str, indent: int) -> str:
    """As it is, where it is ASCII and cannot be taken for something else; else as encoded words (RFC 2047). Folded."""
    charset = "us-ascii" if text.isascii() and "=?" not in text else "utf-8"
    return Header(text, charset, maxlinelen=_LINE, header_name="x" * (indent - 2)).encode(linesep=_CRLF)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _message_ids(text: str) -> list[str]:
    return [found for found in re.findall(r"<[!-;=?-~]+>", text) if len(found) <= 250 and "@" in found]


# Reading


class _Field(msgspec.Struct):
    name: str
    value: str


class _Body(msgspec.Struct):
    size: int = 0
    data: str = ""


class Part(msgspec.Struct, rename="camel"):
    """One MIME part, as `users.messages` has it."""

    mime_type: str = ""
    filename: str = ""
    headers: list[_Field] = []
    body: _Body = msgspec.field(default_factory=_Body)
    parts: list[Part] = []


class Message(msgspec.Struct, rename="camel"):
    """The `Message` of the reference, in the format `full` or `metadata`, as far as it is used here."""

    id: str
    thread_id: str = ""
    label_ids: list[str] = []
    snippet: str = ""
    internal_date: str = ""
    payload: Part = msgspec.field(default_factory=Part)


def field(message: Message, name: str) -> str:
    """A header field as one readable line: encoded words decoded, several fields of one name joined by a comma."""
    values = [found.value for found in message.payload.headers if found.name.lower() == name.lower()]
    return ", ".join(_readable(value, is_address=name.lower() in _ADDRESS_FIELDS) for value in values)


_ADDRESS_FIELDS: Final = frozenset({"from", "sender", "to", "cc", "bcc", "reply-to"})
_WORD: Final = r"=\?[^?\s]{1,40}\?[bBqQ]\?[^?\s]{0,998}\?="
_RUN: Final = re.compile(rf"{_WORD}(?:\s+{_WORD})*")


def _readable(value: str, *, is_address: bool) -> str:
    if len(value) > MAX_FIELD_CHARACTERS:
        value = f"{value[:MAX_FIELD_CHARACTERS]}… (cut: it has {len(value)} characters)"

    def decoded(run: re.Match[str]) -> str:
        text = _decoded(run.group())
        if is_address and re.search(r'[<>@,;:"\\()\[\]]', text):
            # As words they were a name, whatever they spell: they must not become an address by being decoded.
            return _quoted(text)
        return text

    return " ".join(_CONTROL.sub(" ", _RUN.sub(decoded, value)).split())


def _decoded(run: str) -> str:
    try:
        pieces = decode_header(run)
        return "".join(
            piece if isinstance(piece, str) else _text(piece, charset or "ascii") for piece, charset in pieces
        )
    except (email.errors.HeaderParseError, binascii.Error, ValueError):
        return run


class Text(NamedTuple):
    """What a message says."""

    text: str
    source: str
    """`plain`, `html`, or `none` where there is no text at all."""
    is_cut: bool
    has_other: bool
    """There is HTML beside the plain text, and it may say something else."""
    attachments: list[dict[str, Any]]


def text_of(message: Message) -> Text:
    """Its text and what is attached to it. ExternalApiError for a body that is not base64url, or parts without end."""
    attachments: list[dict[str, Any]] = []
    pieces, is_html = _read(message.payload, attachments, [MAX_PARTS])
    lines = (piece.replace("\r\n", "\n").replace("\r", "\n").strip("\n") for piece in pieces)
    text = _CONTROL_IN_BODY.sub("\ufffd", "\n".join(lines)).strip()
    source = "none" if not text else "html" if is_html else "plain"
    has_other = source == "plain" and _has_html(message.payload)
    return Text(text[:MAX_TEXT_CHARACTERS], source, len(text) > MAX_TEXT_CHARACTERS, has_other, attachments)


def _has_html(part: Part) -> bool:
    return (part.mime_type.lower() == "text/html" and not part.filename) or any(map(_has_html, part.parts))


def _read(part: Part, attachments: list[dict[str, Any]], room: list[int]) -> tuple[list[str], bool]:
    """The texts in a part, and whether one of them was HTML. `room`: how many parts may still come."""
    room[0] -= 1
    if room[0] < 0:
        raise ExternalApiError(f"the message has more than {MAX_PARTS} parts")
    kind = part.mime_type.lower()
    if part.parts and kind.startswith("multipart/"):
        found = [_read(child, attachments, room) for child in part.parts]
        if kind == "multipart/alternative":
            # RFC 2046 section 5.1.4: the same in several forms. Text as it was written goes before text we make.
            said = [one for one in found if any(map(str.strip, one[0]))]
            found = next(([one] for one in said if not one[1]), said[-1:])
        return [text for texts, _ in found for text in texts], any(is_html for _, is_html in found)
    if part.filename or not kind.startswith("text/") or kind == "text/calendar":
        attachments.append({"filename": _name(part), "mime_type": kind[:100], "size": part.body.size})
        return [], False
    text = _text(_base64url(part.body.data), _charset(part))
    return ([text_from(text[:MAX_HTML_CHARACTERS])], True) if kind == "text/html" else ([text], False)


def _name(part: Part) -> str:
    return _CONTROL.sub(" ", part.filename)[:255]


def _charset(part: Part) -> str:
    content_type = next((found.value for found in part.headers if found.name.lower() == "content-type"), "")
    found = re.search(r"""charset\*?=\s*["']?(?:us-ascii'')?([A-Za-z0-9._:-]{1,40})""", content_type, re.IGNORECASE)
    return found.group(1).lower() if found else "utf-8"


def _base64url(data: str) -> bytes:
    stripped = data.rstrip("=")
    if re.fullmatch(r"[A-Za-z0-9_-]*", stripped) is None or len(stripped) % 4 == 1:
        raise ExternalApiError("a part of the message is not base64url")
    return base64.urlsafe_b64decode(stripped + "=" * (-len(stripped) % 4))


_TEXT_CHARSETS: Final = re.compile(
    r"(utf[-_]?(8|16|32)([-_]?[bl]e)?|us-ascii|ascii|latin-?1|iso[-_]?8859[-_]\d{1,2}|(windows|cp|ibm)[-_]?\d{3,4}|koi8[-_][rtu]|"
    r"iso[-_]?2022[-_](jp|kr)([-_][0-9a-z]+)?|(shift|s)[-_]?jis|euc[-_]?(jp|kr|cn)|gb2312|gbk|gb18030|big5(hkscs)?|"
    r"big5-hkscs|tis-620|hz(-gb-2312)?|mac[-_]?roman)"
)
"""Charsets of text, by the names mail uses: Python's codecs have others, which are not (zip, hex, rot13) or cost much (idna)."""


def _text(data: bytes, charset: str) -> str:
    """As its charset says; as UTF-8 where that is what it is, since Gmail hands some bodies on converted and some not."""
    charset = charset.lower()
    is_stateful = b"\x1b" in data or b"\0" in data or charset.startswith("hz")
    for name, errors in (("utf-8", "strict"), (charset, "strict"), (charset, "replace"), ("utf-8", "replace")):
        if (name == charset and not _TEXT_CHARSETS.fullmatch(name)) or (
            name == "utf-8" and errors == "strict" and is_stateful
        ):
            continue
        try:
            return data.decode(name, errors)
        except (UnicodeDecodeError, LookupError):
            continue
    raise AssertionError("UTF-8 with replacement decodes anything")


def as_json(message: Message, *, is_listed: bool = False) -> dict[str, Any]:
    """What every listing and every message says of one: who, what about, when, where it stands. Shorter in a listing."""
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
    return " ".join(_CONTROL.sub(" ", html.unescape(snippet)).split())
