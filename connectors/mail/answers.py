r"""Parser for an IMAP server's responses. It returns FETCH and LIST responses as Python values, and a message's MIME structure.

Pure. The server and the author of a message are not trusted: parsed values are bounded in depth and number, and a
response that does not follow RFC 3501 raises AnswerError, never another exception.

Source: RFC 3501 sections 7.2.2, 7.4.2 and 9 (grammar), 5.1.3 (names of folders); RFC 2231 and RFC 2047 for file names.
Not here: commands (imap.py), the text of a message (reading.py).

>>> [value.items["UID"] for value in fetched([b"1 (UID 7 FLAGS (\\Seen))"])]
[b'7']
>>> folder_name(b"Entw&APw-rfe")
'Entwürfe'
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from aileron_connector.mail import one_line, readable

__all__ = ["AnswerError", "Fetched", "Part", "Values", "as_wire", "fetched", "folder_name", "parts_of", "values_in"]

MAX_TOKENS: Final = 200_000
"""Maximum number of values in one answer; enough for fifty messages of a thousand parts each."""
MAX_DEPTH: Final = 40
"""Maximum depth of nested lists. A part inside of another part takes two levels."""
MAX_PARTS: Final = 300
MAX_NAME_CHARACTERS: Final = 255
_TOKEN: Final = re.compile(
    rb'[ \t\r\n]*(?:(?P<open>\()|(?P<close>\))|"(?P<quoted>[^"\\]*+(?:\\.[^"\\]*+)*)"'
    rb'|(?P<atom>(?:BODY|BINARY)\[[^\]]*+\](?:<\d+>)?|[^\s()"]+))',
    re.IGNORECASE | re.DOTALL,
)
_LITERAL: Final = re.compile(rb"\{\d+\}$")
_SECTION: Final = re.compile(r"BODY\[(.*?)\](?:<\d+>)?", re.DOTALL)

Values = list[Any]
"""Parsed values: bytes, None for NIL, and lists of these."""


class AnswerError(Exception):
    """Error: an IMAP server's answer does not follow the protocol, or exceeds a bound."""


# Values


def values_in(pieces: Iterable[Any]) -> Values:
    """Parse an answer as `imaplib` returns it: bytes, and pairs of bytes and the literal that follows them."""
    top: Values = []
    open_lists = [top]
    for count, (kind, value) in enumerate(_tokens(pieces)):
        if count > MAX_TOKENS:
            raise AnswerError(f"an answer has more than {MAX_TOKENS} values")
        if kind == "open":
            if len(open_lists) > MAX_DEPTH:
                raise AnswerError(f"lists are nested more than {MAX_DEPTH} deep")
            inner: Values = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif kind == "close":
            if len(open_lists) == 1:
                raise AnswerError("a list ends that has not begun")
            open_lists.pop()
        else:
            open_lists[-1].append(None if kind == "atom" and value.upper() == b"NIL" else value)
    if len(open_lists) > 1:
        raise AnswerError("a list does not end")
    return top


def _tokens(pieces: Iterable[Any]) -> Iterator[tuple[str, bytes]]:
    for piece in pieces:
        text, literal = piece if isinstance(piece, tuple) else (piece, None)
        if not isinstance(text, bytes):
            continue
        if literal is not None:
            text = _LITERAL.sub(b"", text)
        text, at = text.rstrip(b" \t\r\n"), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise AnswerError("an answer has a quote that does not end")
            kind = str(found.lastgroup)
            value = found[kind]
            yield kind, re.sub(rb"\\(.)", rb"\1", value) if kind == "quoted" else value
            at = found.end()
        if literal is not None:
            yield "literal", bytes(literal)


class Fetched(NamedTuple):
    """The data of one message in a FETCH answer: its data items by their names in upper case."""

    items: dict[str, Any]

    def number(self, name: str) -> int:
        """Return the FETCH item `name` as a number, or 0 if the item is missing or not a number."""
        value = self.items.get(name)
        return int(value) if isinstance(value, bytes) and re.fullmatch(rb"\d{1,20}", value) else 0

    def text(self, name: str) -> bytes:
        """Return the FETCH item `name` as bytes, empty if the item is missing."""
        value = self.items.get(name)
        return value if isinstance(value, bytes) else b""

    def words(self, name: str) -> list[str]:
        """Return the atoms of the FETCH item `name`, a list such as FLAGS."""
        value = self.items.get(name)
        return [atom.decode("ascii", "replace") for atom in value if isinstance(atom, bytes)] if value else []

    def section(self, section: str) -> bytes:
        """Return the content of `BODY[section]`, empty if the section is missing."""
        return self.text(f"BODY[{section.upper()}]")


def fetched(pieces: Iterable[Any]) -> list[Fetched]:
    """Parse a FETCH answer, and return its messages that have a UID."""
    values = values_in(pieces)
    found = []
    for number, items in zip(values[::2], values[1::2], strict=False):
        if not isinstance(number, bytes) or not number.isdigit() or not isinstance(items, list):
            raise AnswerError("an answer to FETCH is not a number and a list")
        found.append(Fetched(dict(_named(items))))
    return [message for message in found if "UID" in message.items]


def _named(items: Values) -> Iterator[tuple[str, Any]]:
    for name, value in zip(items[::2], items[1::2], strict=False):
        if isinstance(name, bytes):
            spelled = name.decode("ascii", "replace").upper()
            section = _SECTION.fullmatch(spelled)
            # Only one kind of header is ever requested, and servers write the names of its fields in different ways.
            yield (f"BODY[{section[1].partition('.FIELDS')[0]}]" if section else spelled), value


# Parts


class Part(NamedTuple):
    """A MIME part with content of its own, unlike a Group of parts."""

    section: str
    """Section number of the part in FETCH, such as `1.2`."""
    kind: str
    """Media type in lower case, such as `text/plain`."""
    charset: str
    encoding: str
    """Transfer encoding, in lower case."""
    size: int
    """Number of bytes in the encoded form."""
    filename: str
    disposition: str
    """Disposition of the part: `attachment`, `inline`, or empty."""
    damage: str = ""
    """Description of a mismatch between the part and what its sender declared; usually empty."""

    @property
    def is_attachment(self) -> bool:
        """True if the part is an attachment, that is, not the message's own text."""
        is_text = self.kind in {"text/plain", "text/html"}
        return not is_text or self.disposition == "attachment" or bool(self.filename)

    @property
    def decoded_size(self) -> int:
        """Estimated number of decoded bytes. In base64, a line of 78 bytes stands for 57 (RFC 2045 section 6.8)."""
        return self.size * 57 // 78 if self.encoding == "base64" else self.size


class Group(NamedTuple):
    """A MIME multipart entity with its parts: `mixed`, `alternative`, `related`, …"""

    kind: str
    parts: list[Part | Group]
    section: str
    """Section of the group in FETCH; empty for the whole message."""
    boundary: str
    """MIME boundary between the parts; empty if the message does not declare a boundary."""

    @property
    def is_empty(self) -> bool:
        """True if all parts of the group have zero bytes. Servers report such parts if the boundary is not declared, or
        does not occur in the body.
        """
        return all(part.is_empty if isinstance(part, Group) else not part.size for part in self.parts)


def parts_of(structure: Any) -> Part | Group:
    """Return the parts that a BODYSTRUCTURE describes. Raises AnswerError if the structure does not follow the protocol."""
    return _part(structure, "", [MAX_PARTS])


def _part(node: Any, section: str, room: list[int]) -> Part | Group:
    room[0] -= 1
    if room[0] < 0:
        raise AnswerError(f"the message has more than {MAX_PARTS} parts")
    if not isinstance(node, list) or not node:
        raise AnswerError("the structure of the message cannot be read")
    if isinstance(node[0], list):
        inner = list(_leading_lists(node))
        kind = _word(node[len(inner)]) if len(node) > len(inner) else "mixed"
        prefix = f"{section}." if section else ""
        parameters = _parameters(node[len(inner) + 1]) if len(node) > len(inner) + 1 else {}
        parts = [_part(child, f"{prefix}{number}", room) for number, child in enumerate(inner, 1)]
        return Group(kind, parts, section, parameters.get("boundary", ""))
    if len(node) < 7:
        raise AnswerError("the structure of the message cannot be read")
    kind, damage = f"{_word(node[0])}/{_word(node[1])}", ""
    if not node[1] or kind.startswith("multipart/"):  # RFC 2045, section 5.2: an unreadable type means text
        kind, damage = "text/plain", "its content type cannot be read, so it is taken for text"
    parameters = _parameters(node[2])
    disposition, of_disposition = _disposition(node)
    filename = of_disposition.get("filename") or parameters.get("name") or ""
    size = int(node[6]) if isinstance(node[6], bytes) and re.fullmatch(rb"\d{1,19}", node[6]) else 0
    return Part(
        section=section or "1",
        kind=kind,
        charset=parameters.get("charset", "utf-8")[:40],
        encoding=_word(node[5]),
        size=size,
        filename=one_line(filename)[:MAX_NAME_CHARACTERS],
        disposition=disposition,
        damage=damage,
    )


def _leading_lists(node: Values) -> Iterator[Any]:
    for child in node:
        if not isinstance(child, list):
            return
        yield child


def _word(value: Any) -> str:
    """Return a media type or an encoding in lower case, or `unknown` if it is too long or has unsafe characters."""
    text = value.decode("ascii", "replace").lower() if isinstance(value, bytes) else ""
    return text if re.fullmatch(r"[a-z0-9!#$&^_.+-]{1,80}", text) else "unknown"


def _disposition(node: Values) -> tuple[str, dict[str, str]]:
    """Return a part's disposition and its parameters, from the list like `(attachment (filename …))` in the part's
    BODYSTRUCTURE. The list is recognised by its first word.
    """
    for field in node[7:]:
        if isinstance(field, list) and len(field) == 2 and isinstance(field[0], bytes):
            word = field[0].decode("ascii", "replace").lower()
            if word in {"attachment", "inline"} or isinstance(field[1], list):
                return ("inline" if word == "inline" else "attachment"), _parameters(field[1])
    return "", {}


def _parameters(node: Any) -> dict[str, str]:
    """Return a part's MIME parameters by name. RFC 2231's continuations are joined, and encoded words (RFC 2047), which
    some programs use in parameters, are decoded.
    """
    if not isinstance(node, list):
        return {}
    pairs = [
        (_text(name).lower(), _text(value))
        for name, value in zip(node[::2], node[1::2], strict=False)
        if isinstance(name, bytes) and isinstance(value, bytes)
    ][:50]
    plain = {name: readable(value, is_address=False) for name, value in pairs if "*" not in name}
    return {**plain, **_extended([pair for pair in pairs if "*" in pair[0]])}


def _extended(pairs: list[tuple[str, str]]) -> dict[str, str]:
    try:
        found = email.utils.decode_params([("", ""), *((name, email.utils.quote(value)) for name, value in pairs)])[1:]
        return {name: one_line(email.utils.unquote(email.utils.collapse_rfc2231_value(value))) for name, value in found}
    except (ValueError, TypeError, LookupError, AttributeError):  # for invalid names, such as `filename*x`
        return {}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# Names of folders


def folder_name(wire: bytes) -> str:
    """Decode a folder's name from modified UTF-7. A name that is not valid modified UTF-7 is returned unchanged."""
    text = wire.decode("utf-8", "replace")

    def shifted(run: re.Match[str]) -> str:
        if not run[1]:
            return "&"
        padded = run[1].replace(",", "/") + "=" * (-len(run[1]) % 4)
        return base64.b64decode(padded, validate=True).decode("utf-16-be")

    try:
        return re.sub(r"&([^-&]*)-", shifted, text)
    except (binascii.Error, ValueError):
        return text


def as_wire(name: str) -> str:
    """Encode a folder's name as a quoted string in modified UTF-7."""
    pieces = re.sub("[^\x20-\x7e]+|&", _shift, name)
    return '"' + pieces.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shift(run: re.Match[str]) -> str:
    if run[0] == "&":
        return "&-"
    coded = base64.b64encode(run[0].encode("utf-16-be")).decode("ascii").rstrip("=").replace("/", ",")
    return f"&{coded}-"
