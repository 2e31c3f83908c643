"""Reader for a message: its header fields as lines, its text, and its attachments.

Plain text takes precedence over text made from HTML, and text that is invisible in the HTML is returned separately.
Only the header and the text parts are fetched. All content may come from a stranger; it is bounded, and marked where it
was cut. Damaged parts are returned as far as they can be decoded, and `damage` says what is wrong, so a partly readable
message never looks empty.

Runs in the jail. Source: RFC 5322, RFC 2045, RFC 2046 section 5.1.4. Not here: commands (imap.py), writing (writing.py).
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from answers import Fetched, Group, Part, parts_of
from imap import MAX_HEADER_BYTES, Folder

from aileron_connector import BadInput
from aileron_connector.mail import decoded, is_whole, one_line, readable, without_controls
from aileron_connector.markup import Texts, joined, texts_from

__all__ = ["Fields", "Said", "attachment", "listing", "message", "parts", "said"]

MAX_TEXT_BYTES: Final = 256 << 10
"""Maximum number of bytes of a message's text as UTF-8: a quarter of a result."""
MAX_PART_BYTES: Final = 512 << 10
"""Maximum number of bytes of one text part in its encoded form. HTML is longer than the text that it contains."""
MAX_TEXT_PARTS: Final = 10
MAX_HTML_CHARACTERS: Final = 500_000
MAX_GROUPS: Final = 5
"""Maximum number of multipart entities whose raw bytes are fetched, because the server reports only empty parts for
them.
"""
MAX_TAIL_BYTES: Final = 4 << 10
"""Number of bytes at the end of a message that are searched for its last boundary. A mailing list may add text after the
boundary.
"""
MAX_ATTACHMENTS: Final = 100
MAX_ATTACHMENT_BYTES: Final = 512 << 10
"""Maximum number of bytes of a returned attachment. As base64 it is two thirds of a result."""
MAX_LISTED_CHARACTERS: Final = 300
_ADDRESSES: Final = frozenset({"from", "sender", "to", "cc", "bcc", "reply-to"})
_STRUCTURE: Final = "UID FLAGS INTERNALDATE RFC822.SIZE BODYSTRUCTURE"


class Fields:
    """The header fields of a message, by name in lower case."""

    def __init__(self, header: bytes) -> None:
        lines = re.sub(rb"\r?\n[ \t]+", b" ", header).splitlines()
        pairs = [line.decode("utf-8", "replace").partition(":") for line in lines if b":" in line]
        self._pairs: Final = [(name.strip().lower(), value.strip()) for name, _colon, value in pairs]

    def raw(self, name: str) -> str:
        """Return a header field in its original form on one line. Several fields with one name are joined by a comma."""
        return ", ".join(value for known, value in self._pairs if known == name)

    def line(self, name: str) -> str:
        """Return a header field as readable text. Several fields with one name are joined by a comma."""
        return ", ".join(
            readable(value, is_address=name in _ADDRESSES) for known, value in self._pairs if known == name
        )


class Said(NamedTuple):
    """The text of a message, and facts about that text."""

    text: str
    source: str
    """Source of the text: `plain`, `html`, or `none` if there is no text."""
    is_cut: bool
    has_other_html: bool
    hidden: str
    """Text that is in the HTML, but invisible to a person who reads the message."""
    damage: list[str]
    """Descriptions of the message's damage."""


def listing(folder: Folder, uid: int, found: Fetched) -> dict[str, Any]:
    """Return a message's row in a search result: id, sender and recipients, subject, dates, flags, and number of
    attachments.
    """
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
    """Fetch a message: its sender and recipients, subject, text, and list of attachments."""
    found = folder.fetch_one(uid, f"{_STRUCTURE} BODY.PEEK[HEADER]<0.{MAX_HEADER_BYTES}>")
    fields, structure = Fields(found.section("HEADER")), parts(found)
    text, attached = said(folder, uid, structure), attachments_of(structure)
    damage = text.damage + _without_end(folder, uid, structure, found)
    names = ("from", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id")
    return {
        "id": folder.id_of(uid),
        **{name.replace("-", "_"): fields.line(name) for name in names},
        **_state(found),
        "text": text.text,
        "text_from": text.source,
        "text_is_cut": text.is_cut,
        "has_other_html": text.has_other_html,
        **({"hidden_text": text.hidden} if text.hidden else {}),
        **({"damage": damage} if damage else {}),
        "attachments": [_attached(part) for part in attached[:MAX_ATTACHMENTS]],
        "attachments_in_all": len(attached),
    }


def parts(found: Fetched) -> Part | Group:
    """Return the parts of a fetched message. Raises AnswerError if its BODYSTRUCTURE is missing or malformed."""
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
    """Return all parts that are not the message's own text, in order."""
    if isinstance(structure, Part):
        return [structure] if structure.is_attachment else []
    return [part for inner in structure.parts for part in attachments_of(inner)]


# Text


def said(folder: Folder, uid: int, structure: Part | Group) -> Said:
    """Fetch the text of a message, and return it with facts about it."""
    chosen = _texts(structure)
    texts, damage, is_cut = [], [], len(chosen) > MAX_TEXT_PARTS
    for part in chosen[:MAX_TEXT_PARTS]:
        data = folder.part(uid, part, MAX_PART_BYTES)
        texts.append(_text_of(data, part))
        damage += [f"part {part.section}: {words}" for words in _damage(data, part)]
        is_cut = is_cut or part.size > MAX_PART_BYTES
    for group, data in _unparted(folder, uid, structure):
        texts.append(Texts(decoded(data, "utf-8"), ""))
        damage.append(f"{_where(group)}: no boundary tells its parts apart, so it is given as it came")
        is_cut = is_cut or len(data) >= MAX_PART_BYTES
    text, hidden = joined(texts)
    data = text.encode("utf-8", "replace")
    is_html = any(part.kind == "text/html" for part in chosen)
    source = "none" if not text else "html" if is_html else "plain"
    return Said(
        data[:MAX_TEXT_BYTES].decode("utf-8", "ignore"),
        source,
        is_cut or len(data) > MAX_TEXT_BYTES,
        source == "plain" and _has_html(structure),
        hidden,
        damage,
    )


def _texts(structure: Part | Group) -> list[Part]:
    if isinstance(structure, Part):
        return [] if structure.is_attachment else [structure]
    found = [texts for texts in map(_texts, structure.parts) if texts]
    if structure.kind == "alternative":
        # The same content in several forms. Prefer plain text to text made from HTML.
        full = [texts for texts in found if any(part.size for part in texts)]
        plain = [texts for texts in full if all(part.kind == "text/plain" for part in texts)]
        found = plain[:1] or full[-1:]
    return [part for texts in found for part in texts]


def _has_html(structure: Part | Group) -> bool:
    if isinstance(structure, Part):
        return structure.kind == "text/html" and not structure.is_attachment
    return any(map(_has_html, structure.parts))


def _text_of(data: bytes, part: Part) -> Texts:
    text = decoded(content(data, part), part.charset)
    return texts_from(text[:MAX_HTML_CHARACTERS]) if part.kind == "text/html" else Texts(text, "")


def content(data: bytes, part: Part) -> bytes:
    """Decode the transfer encoding of a part's bytes. If the bytes are cut or invalid, decode as much as possible."""
    if part.encoding == "base64":
        return data if _is_plain(data, part) else b"".join(map(_from_base64, re.split(rb"=+", _letters(data))))
    return quopri.decodestring(data) if part.encoding == "quoted-printable" else data


def _letters(data: bytes) -> bytes:
    return re.sub(rb"[^A-Za-z0-9+/=]", b"", data)


def _from_base64(letters: bytes) -> bytes:
    """Decode one run of base64 letters, which ends at its padding. A body can have several such runs, if a program
    joined separately encoded pieces.
    """
    rest = len(letters) % 4
    whole = letters[:-1] if rest == 1 else letters + b"=" * (-rest % 4)
    try:
        return base64.b64decode(whole)
    except binascii.Error:  # pragma: no cover - letters of the alphabet always decode
        return b""


def _is_plain(data: bytes, part: Part) -> bool:
    """Return whether a text part that is declared as base64 is in fact plain text."""
    others = len(re.sub(rb"[A-Za-z0-9+/=\s]", b"", data))
    has_words = re.search(rb"[A-Za-z]{2,}[,.]? [A-Za-z]{2,}", data) is not None
    return part.kind.startswith("text/") and (has_words or 5 * others > len(data))


# Damage

_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_NO_QUOTE: Final = re.compile(rb"=(?![0-9A-Fa-f]{2}|[ \t]*\r?\n|[ \t]*\Z)")
_KNOWN: Final = frozenset({"7bit", "8bit", "binary", "quoted-printable", "base64"})


def _damage(data: bytes, part: Part) -> Iterator[str]:
    """Yield descriptions of the damage in the fetched bytes of a part."""
    if part.damage:
        yield part.damage
    is_cut = len(data) >= MAX_PART_BYTES
    if part.encoding not in _KNOWN:
        yield f"its transfer encoding {part.encoding!r} is not known, so it is given as it came"
    elif part.encoding == "base64":
        packed = re.sub(rb"\s", b"", data)
        if _is_plain(data, part):
            yield "it says that it is base64 and is not, so it is given as it came"
        elif not (_BASE64.fullmatch(packed) and (len(packed.rstrip(b"=")) % 4 != 1 or is_cut)):
            yield "its base64 is broken, and is given as far as it can be read"
    elif part.encoding == "quoted-printable" and _NO_QUOTE.search(data) and not is_cut:
        yield "its quoted-printable is broken, and is given as far as it can be read"
    if part.kind.startswith("text/") and not is_cut and not is_whole(content(data, part), part.charset):
        yield f"it has bytes that are no text in {part.charset!r}: they are given as U+FFFD"


def _unparted(folder: Folder, uid: int, structure: Part | Group) -> Iterator[tuple[Group, bytes]]:
    """Yield the multipart entities whose boundary is not declared or does not occur in their raw bytes, each with these
    bytes. The server reports only empty parts for such an entity. At most MAX_GROUPS are examined.
    """
    for group in list(_empty_groups(structure))[:MAX_GROUPS]:
        data = _bytes_of(folder, uid, group, 0, MAX_PART_BYTES)
        if data.strip() and not (group.boundary and b"--" + group.boundary.encode() in data):
            yield group, data


def _empty_groups(structure: Part | Group) -> Iterator[Group]:
    if isinstance(structure, Group):
        if structure.is_empty:
            yield structure
        for part in structure.parts:
            yield from _empty_groups(part)


def _bytes_of(folder: Folder, uid: int, group: Group, start: int, most: int) -> bytes:
    section = group.section or "TEXT"
    found = folder.fetch([uid], f"UID BODY.PEEK[{section}]<{start}.{most}>").get(uid)
    return b"" if found is None else found.section(section)


def _where(group: Group) -> str:
    return f"part {group.section}" if group.section else "the message"


def _without_end(folder: Folder, uid: int, structure: Part | Group, found: Fetched) -> list[str]:
    """Return a list with one description of damage if the message ends before its last MIME boundary, as a truncated
    message does; else an empty list.
    """
    if isinstance(structure, Part) or not structure.boundary or structure.is_empty:
        return []
    size = found.number("RFC822.SIZE") - len(found.section("HEADER"))
    tail = _bytes_of(folder, uid, structure, max(0, size - MAX_TAIL_BYTES), 2 * MAX_TAIL_BYTES)
    is_there = b"--" + structure.boundary.encode() + b"--" in tail
    return [] if is_there or not tail else ["the message ends without its last boundary: it may have been cut"]


# Attachments


def attachment(folder: Folder, uid: int, section: str) -> dict[str, Any]:
    """Fetch one part's content, as text if it is text, else as base64. Raises BadInput if there is no such part, or it is
    too large.
    """
    part, raw = _raw(folder, uid, section, MAX_ATTACHMENT_BYTES, "part")
    data, damage = content(raw, part), list(_damage(raw, part))
    found: dict[str, Any] = {**_attached(part), "size": len(data), **({"damage": damage} if damage else {})}
    if part.kind.startswith("text/") or part.kind == "message/rfc822":
        text = without_controls(decoded(data, part.charset)).encode("utf-8", "replace")
        shown = text[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
        return {**found, "encoding": "text", "content": shown, "is_cut": len(text) > MAX_TEXT_BYTES}
    return {**found, "encoding": "base64", "content": base64.b64encode(data).decode("ascii"), "is_cut": False}


def attached_bytes(
    folder: Folder, uid: int, section: str, limit_bytes: int, argument: str = "part"
) -> tuple[Part, bytes]:
    """Fetch a part and its decoded content. Raises BadInput about `argument` if there is no such part, or it is too large."""
    part, raw = _raw(folder, uid, section, limit_bytes, argument)
    return part, content(raw, part)


def _raw(folder: Folder, uid: int, section: str, limit_bytes: int, argument: str) -> tuple[Part, bytes]:
    """Fetch a part and its encoded bytes. Raises BadInput if there is no such part, or it is too large."""
    found = folder.fetch_one(uid, "UID BODYSTRUCTURE")
    part = next((candidate for candidate in _all(parts(found)) if candidate.section == section), None)
    if part is None:
        known = ", ".join(candidate.section for candidate in attachments_of(parts(found))[:20]) or "none"
        raise BadInput(f"the message has no part {section[:20]!r}; its attachments are {known}", argument=argument)
    data = b""
    if part.decoded_size <= limit_bytes:
        # Twice the limit, since the encoded part is longer. The server's size may be wrong.
        data = folder.part(uid, part, limit_bytes * 2)
    if max(part.decoded_size, len(content(data, part))) > limit_bytes:
        words = f"the attachment has more than the {limit_bytes} bytes that can be used here"
        raise BadInput(words, argument=argument)
    return part, data


def _all(structure: Part | Group) -> list[Part]:
    if isinstance(structure, Part):
        return [structure]
    return [part for inner in structure.parts for part in _all(inner)]
