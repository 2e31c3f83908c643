"""What a message says: its fields as lines, its text, and what is attached.

Text that the sender wrote goes before text that is made of HTML. Only what is shown is fetched: the header, and the parts
that are text. Everything may come from a stranger, and has a bound that says where it was cut.

Runs in the jail. Source: RFC 5322, RFC 2045, RFC 2046 section 5.1.4. Not here: asking (imap.py), what is written (writing.py).
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from typing import Any, Final, NamedTuple

from answers import Fetched, Group, Part, parts_of
from imap import MAX_HEADER_BYTES, Folder

from aileron_connector import BadInput
from aileron_connector.mail import decoded, one_line, readable, without_controls
from aileron_connector.markup import text_from

__all__ = ["Fields", "Said", "attachment", "listing", "message", "parts", "said"]

MAX_TEXT_BYTES: Final = 256 << 10
"""Of a message's text, as UTF-8: a quarter of what a result holds."""
MAX_PART_BYTES: Final = 512 << 10
"""Of one part that is text, as encoded: HTML is longer than the text in it."""
MAX_TEXT_PARTS: Final = 10
MAX_HTML_CHARACTERS: Final = 500_000
MAX_ATTACHMENTS: Final = 100
MAX_ATTACHMENT_BYTES: Final = 512 << 10
"""Of one that is given back: as base64 two thirds of what a result holds."""
MAX_LISTED_CHARACTERS: Final = 300
_ADDRESSES: Final = frozenset({"from", "sender", "to", "cc", "bcc", "reply-to"})
_STRUCTURE: Final = "UID FLAGS INTERNALDATE RFC822.SIZE BODYSTRUCTURE"


class Fields:
    """A message's header."""

    def __init__(self, header: bytes) -> None:
        lines = re.sub(rb"\r?\n[ \t]+", b" ", header).splitlines()
        pairs = [line.decode("utf-8", "replace").partition(":") for line in lines if b":" in line]
        self._pairs: Final = [(name.strip().lower(), value.strip()) for name, _colon, value in pairs]

    def raw(self, name: str) -> str:
        """As it was written, on one line; several fields of one name joined by a comma."""
        return ", ".join(value for known, value in self._pairs if known == name)

    def line(self, name: str) -> str:
        """Readable."""
        return ", ".join(
            readable(value, is_address=name in _ADDRESSES) for known, value in self._pairs if known == name
        )


class Said(NamedTuple):
    """What a message says."""

    text: str
    source: str
    """`plain`, `html`, or `none` where there is no text at all."""
    is_cut: bool
    has_other_html: bool


def listing(folder: Folder, uid: int, found: Fetched) -> dict[str, Any]:
    """What a search says of one message."""
    fields = Fields(found.section("HEADER"))
    shown = {name: _brief(fields.line(name)) for name in ("from", "to", "cc", "subject", "date")}
    return {
        "id": folder.id_of(uid),
        **shown,
        **_state(found),
        "attachments": len(attachments_of(parts(found))),
    }


def _state(found: Fetched) -> dict[str, Any]:
    flags = {flag.lower() for flag in found.words("FLAGS")}
    return {
        "received": one_line(found.text("INTERNALDATE").decode("ascii", "replace"))[:40],
        "size": found.number("RFC822.SIZE"),
        "unread": r"\seen" not in flags,
        "flagged": r"\flagged" in flags,
        "answered": r"\answered" in flags,
    }


def _brief(text: str) -> str:
    return text if len(text) <= MAX_LISTED_CHARACTERS else text[:MAX_LISTED_CHARACTERS] + "…"


def message(folder: Folder, uid: int) -> dict[str, Any]:
    """One message: who, what about, its text, what is attached."""
    found = folder.fetch_one(uid, f"{_STRUCTURE} BODY.PEEK[HEADER]<0.{MAX_HEADER_BYTES}>")
    fields, structure = Fields(found.section("HEADER")), parts(found)
    text, attached = said(folder, uid, structure), attachments_of(structure)
    names = ("from", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id")
    return {
        "id": folder.id_of(uid),
        **{name.replace("-", "_"): fields.line(name) for name in names},
        **_state(found),
        "text": text.text,
        "text_from": text.source,
        "text_is_cut": text.is_cut,
        "has_other_html": text.has_other_html,
        "attachments": [_attached(part) for part in attached[:MAX_ATTACHMENTS]],
        "attachments_in_all": len(attached),
    }


def parts(found: Fetched) -> Part | Group:
    """AnswerError where the server gave no structure."""
    return parts_of(found.items.get("BODYSTRUCTURE"))


def _attached(part: Part) -> dict[str, Any]:
    return {
        "part": part.section,
        "filename": part.filename,
        "mime_type": part.kind,
        "size": part.decoded_size,
        "inline": part.disposition == "inline",
    }


def attachments_of(structure: Part | Group) -> list[Part]:
    """All parts that are not the message's own text, in order."""
    if isinstance(structure, Part):
        return [structure] if structure.is_attachment else []
    return [part for inner in structure.parts for part in attachments_of(inner)]


# Text


def said(folder: Folder, uid: int, structure: Part | Group) -> Said:
    """The text of a message, fetched."""
    chosen = _texts(structure)
    pieces, is_cut = [], len(chosen) > MAX_TEXT_PARTS
    for part in chosen[:MAX_TEXT_PARTS]:
        pieces.append(_text_of(folder.part(uid, part, MAX_PART_BYTES), part))
        is_cut = is_cut or part.size > MAX_PART_BYTES
    lines = (piece.replace("\r\n", "\n").replace("\r", "\n").strip("\n") for piece in pieces)
    text = without_controls("\n".join(lines)).strip()
    data = text.encode("utf-8", "replace")
    is_html = any(part.kind == "text/html" for part in chosen)
    source = "none" if not text else "html" if is_html else "plain"
    return Said(
        data[:MAX_TEXT_BYTES].decode("utf-8", "ignore"),
        source,
        is_cut or len(data) > MAX_TEXT_BYTES,
        source == "plain" and _has_html(structure),
    )


def _texts(structure: Part | Group) -> list[Part]:
    if isinstance(structure, Part):
        return [] if structure.is_attachment else [structure]
    found = [texts for texts in map(_texts, structure.parts) if texts]
    if structure.kind == "alternative":
        # The same in several forms. Text as it was written goes before text that we make.
        full = [texts for texts in found if any(part.size for part in texts)]
        plain = [texts for texts in full if all(part.kind == "text/plain" for part in texts)]
        found = plain[:1] or full[-1:]
    return [part for texts in found for part in texts]


def _has_html(structure: Part | Group) -> bool:
    if isinstance(structure, Part):
        return structure.kind == "text/html" and not structure.is_attachment
    return any(map(_has_html, structure.parts))


def _text_of(data: bytes, part: Part) -> str:
    text = decoded(content(data, part), part.charset)
    return text_from(text[:MAX_HTML_CHARACTERS]) if part.kind == "text/html" else text


def content(data: bytes, part: Part) -> bytes:
    """A part's bytes, out of their transfer encoding; as far as they go where they are cut or are none."""
    if part.encoding == "base64":
        letters = re.sub(rb"[^A-Za-z0-9+/]", b"", data)
        try:
            return base64.b64decode(letters[: len(letters) // 4 * 4] + _rest(letters))
        except binascii.Error:  # pragma: no cover - four letters of the alphabet always decode
            return b""
    return quopri.decodestring(data) if part.encoding == "quoted-printable" else data


def _rest(letters: bytes) -> bytes:
    rest = letters[len(letters) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""


# Attachments


def attachment(folder: Folder, uid: int, section: str) -> dict[str, Any]:
    """One part's content: text where it is text, else base64. BadInput."""
    part, data = attached_bytes(folder, uid, section, MAX_ATTACHMENT_BYTES)
    found: dict[str, Any] = {**_attached(part), "size": len(data)}
    if part.kind.startswith("text/") or part.kind == "message/rfc822":
        text = without_controls(decoded(data, part.charset)).encode("utf-8", "replace")
        shown = text[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
        return {**found, "encoding": "text", "content": shown, "is_cut": len(text) > MAX_TEXT_BYTES}
    return {**found, "encoding": "base64", "content": base64.b64encode(data).decode("ascii"), "is_cut": False}


def attached_bytes(
    folder: Folder, uid: int, section: str, limit_bytes: int, argument: str = "part"
) -> tuple[Part, bytes]:
    """A part and its content. BadInput about `argument` if there is no such part, or it is larger."""
    found = folder.fetch_one(uid, "UID BODYSTRUCTURE")
    part = next((one for one in _all(parts(found)) if one.section == section), None)
    if part is None:
        known = ", ".join(one.section for one in attachments_of(parts(found))[:20]) or "none"
        raise BadInput(f"the message has no part {section[:20]!r}; its attachments are {known}", argument=argument)
    data = b""
    if part.decoded_size <= limit_bytes:
        # Twice as much as may come of it: encoded, it is longer. What the server said of its size may be wrong.
        data = content(folder.part(uid, part, limit_bytes * 2), part)
    if max(part.decoded_size, len(data)) > limit_bytes:
        words = f"the attachment has more than the {limit_bytes} bytes that can be used here"
        raise BadInput(words, argument=argument)
    return part, data


def _all(structure: Part | Group) -> list[Part]:
    if isinstance(structure, Part):
        return [structure]
    return [part for inner in structure.parts for part in _all(inner)]
