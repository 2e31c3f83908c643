r"""Header fields and texts of mail. Outgoing addresses and headers are protected from injection; incoming text of
strangers is made readable.

    to = mail.addresses("Mira <mira@example.com>, bob@example.com", "to")
    lines = [mail.address_field("To", to), mail.text_field("Subject", "Grüße")]

Outgoing mail: addresses have the plain form `name@example.com`, which all programs read in the same way; a line break or
another control character anywhere in a field is refused, never removed. Incoming mail: encoded words are decoded so that they
cannot pass for an address, and bytes are decoded in their declared text charset.

Pure, and runs inside the jail. Source: RFC 5322 (form), RFC 2045 to 2047, RFC 6532. Not here: MIME parts (the `email` package has
them), HTML (markup.py), sending (transports/mail.py).

>>> readable("=?utf-8?q?boss=40example=2Ecom=3E=2C_Eve?= <eve@evil.example>", is_address=True)
'"boss@example.com>, Eve" <eve@evil.example>'
"""

from __future__ import annotations

import binascii
import email.errors
import re
from collections.abc import Sequence
from email.header import Header, decode_header
from typing import Final, NamedTuple

from aileron_connector.failures import BadInput

__all__ = [
    "MAX_FIELD_CHARACTERS",
    "MAX_NAME_CHARACTERS",
    "Address",
    "address_field",
    "addresses",
    "body_text",
    "check_line",
    "decoded",
    "is_mailbox",
    "is_whole",
    "message_ids",
    "one_line",
    "quoted",
    "readable",
    "text_field",
    "without_controls",
]

MAX_NAME_CHARACTERS: Final = 128
"""Maximum number of characters of a display name. Encoded, it must fit into one line of at most 998 characters (RFC
5322 section 2.1.1).
"""
MAX_FIELD_CHARACTERS: Final = 10_000
"""Maximum number of characters of one header field: a list of about 200 recipients."""
_LINE: Final = 76  # RFC 2047 section 2
_CRLF: Final = "\r\n"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_BODY: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# Addresses

_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"  # RFC 5322 section 3.2.3
_ATOM_UTF8: Final = (
    r"(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]|[^\W_a-zA-Z0-9])+"  # RFC 6532 section 3.2, of it letters and digits
)
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # RFC 1123 section 2.1
_DOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})+"
_LENGTHS: Final = r"(?=[^@]{1,64}@)(?=.{1,254}\Z)"
_ADDRESS: Final = re.compile(rf"{_LENGTHS}{_ATOM}(?:\.{_ATOM})*@{_DOMAIN}")
_ADDRESS_UTF8: Final = re.compile(rf"{_LENGTHS}{_ATOM_UTF8}(?:\.{_ATOM_UTF8})*@{_DOMAIN}")
_IS_SPECIAL: Final = re.compile(r'[<>@,;:"\\()\[\]]')  # RFC 5322 section 3.2.3, without the dot
_ITEM: Final = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"\s*(?=<)|(?P<plain>[^"<>,;:\\@]*))<(?P<address>[^<>]*)>\s*'
)


class Address(NamedTuple):
    """A mailbox: a display name for people, which may be empty, and the mail address."""

    name: str
    address: str

    def __str__(self) -> str:
        """Return the mailbox for display. A name that could be mistaken for an address, or for two, is in quotes."""
        if not self.name:
            return self.address
        name = quoted(self.name) if _IS_SPECIAL.search(self.name) else self.name
        return f"{name} <{self.address}>"


def is_mailbox(text: str, *, utf8: bool = False) -> bool:
    """Return whether `text` has the form `name@example.com`. With `utf8`, the name may have letters outside of ASCII (RFC
    6531).
    """
    return (_ADDRESS_UTF8 if utf8 else _ADDRESS).fullmatch(text) is not None


def addresses(value: str | list[str] | None, argument: str, *, utf8: bool = False) -> list[Address]:
    """Parse text like `Mira <mira@example.com>, bob@example.com` into mailboxes. Raises BadInput, which quotes the text
    that cannot be parsed.
    """
    if value is None:
        return []
    pieces = [piece for text in ([value] if isinstance(value, str) else value) for piece in _split(text, argument)]
    return [_address(piece, argument, utf8) for piece in pieces]


def _split(text: str, argument: str) -> list[str]:
    """Split a list of addresses at commas that are not in quotes. Empty parts are dropped."""
    check_line(text, argument)
    if len(text) > MAX_FIELD_CHARACTERS:
        raise BadInput(f"{argument} has more than {MAX_FIELD_CHARACTERS} characters", argument=argument)
    return [piece for piece in re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^,])+', text) if piece.strip()]


def _address(text: str, argument: str, utf8: bool) -> Address:
    found = _ITEM.fullmatch(text)
    name, address = "", text.strip()
    if found is not None:
        as_quoted = found["quoted"]
        name = re.sub(r"\\(.)", r"\1", as_quoted) if as_quoted is not None else found["plain"]
        name, address = " ".join(name.split()), found["address"].strip()
    if not is_mailbox(address, utf8=utf8) or len(name) > MAX_NAME_CHARACTERS:
        words = "expected addresses like mira@example.com or Mira <mira@example.com>, with commas between"
        raise BadInput(f"{argument} {text.strip()[:80]!r} cannot be read; {words}", argument=argument)
    return Address(name, address)


# Writing


def check_line(text: str, argument: str) -> None:
    """Raise BadInput if the text has a line break or another control character."""
    if _CONTROL.search(text):
        raise BadInput(f"{argument} has a line break or another control character in it", argument=argument)


def body_text(text: str, argument: str) -> str:
    """Return `text` with line feeds as its only line breaks. Raises BadInput for other control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if _CONTROL_IN_BODY.search(lines):
        raise BadInput(f"{argument} has a control character in it", argument=argument)
    return lines


def address_field(name: str, found: Sequence[Address]) -> str:
    """Return a header field with these addresses, without its line end. Each mailbox is on a line of its own, so that
    folding is predictable.
    """
    return f"{name}: " + f",{_CRLF} ".join(_mailbox(address, len(name) + 2) for address in found)


def text_field(name: str, text: str) -> str:
    """Return a folded header field with this text, without its line end. Text outside of ASCII becomes encoded words
    (RFC 2047).
    """
    return f"{name}: {_words(' '.join(text.split()), len(name) + 2)}"


def _mailbox(address: Address, indent: int) -> str:
    name = address.name
    if not name:
        return address.address
    if not name.isascii() or "=?" in name:
        name = _words(name, indent)
    elif re.fullmatch(rf"(?:{_ATOM} ?)*", name) is None:
        name = quoted(name)
    separator = f"{_CRLF} " if len(name.rpartition(_CRLF)[2]) + len(address.address) > _LINE - 4 else " "
    return f"{name}{separator}<{address.address}>"


def _words(text: str, indent: int) -> str:
    """Fold `text` into the lines of a header field. ASCII without `=?` is kept as it is; other text becomes encoded
    words (RFC 2047).
    """
    charset = "us-ascii" if text.isascii() and "=?" not in text else "utf-8"
    return Header(text, charset, maxlinelen=_LINE, header_name="x" * (indent - 2)).encode(linesep=_CRLF)


def quoted(text: str) -> str:
    """Return `text` as a quoted string (RFC 5322 section 3.2.4)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Reading

_WORD: Final = r"=\?[^?\s]{1,40}\?[bBqQ]\?[^?\s]{0,998}\?="
_RUN: Final = re.compile(rf"{_WORD}(?:\s+{_WORD})*")


def message_ids(text: str) -> list[str]:
    """Return the message ids in a field such as `References`. Other text is left out."""
    return [found for found in re.findall(r"<[!-;=?-~]+>", text) if len(found) <= 250 and "@" in found]


def readable(value: str, *, is_address: bool) -> str:
    """Return a header field as one line, with encoded words decoded and no control characters. A long field is cut and
    marked as cut.
    """
    if len(value) > MAX_FIELD_CHARACTERS:
        value = f"{value[:MAX_FIELD_CHARACTERS]}… (cut: it has {len(value)} characters)"

    def said(run: re.Match[str]) -> str:
        text = _decoded_words(run.group())
        if is_address and _IS_SPECIAL.search(text):
            # Encoded words are part of a name, whatever they spell: they must not become an address by being decoded.
            return quoted(text)
        return text

    return one_line(_RUN.sub(said, value))


def _decoded_words(run: str) -> str:
    try:
        pieces = decode_header(run)
        return "".join(
            piece if isinstance(piece, str) else decoded(piece, charset or "ascii") for piece, charset in pieces
        )
    except (email.errors.HeaderParseError, binascii.Error, ValueError):
        return run


def one_line(text: str) -> str:
    """Return `text` on one line, without control characters. Each run of blanks becomes one space."""
    return " ".join(_CONTROL.sub(" ", text).split())


def without_controls(text: str) -> str:
    """Replace control characters, except line breaks and tabs, in a text of several lines with U+FFFD."""
    return _CONTROL_IN_BODY.sub("\ufffd", text)


_TEXT_CHARSETS: Final = re.compile(
    r"(utf[-_]?(8|16|32)([-_]?[bl]e)?|us-ascii|ascii|latin-?1|iso[-_]?8859[-_]\d{1,2}|(windows|cp|ibm)[-_]?\d{3,4}|koi8[-_][rtu]|"
    r"iso[-_]?2022[-_](jp|kr)([-_][0-9a-z]+)?|(shift|s)[-_]?jis|euc[-_]?(jp|kr|cn)|gb2312|gbk|gb18030|big5(hkscs)?|"
    r"big5-hkscs|tis-620|hz(-gb-2312)?|mac[-_]?roman)"
)
"""Pattern of the names of charsets that are accepted in mail. Python's other codecs are not for text (zip, hex, rot13)
or are slow (idna).
"""


def decoded(data: bytes, charset: str) -> str:
    """Decode `data` as UTF-8 if it is valid UTF-8, since some programs convert text without changing the declared
    charset; otherwise in `charset`.

    Data with an escape or null byte, and data declared as HZ, looks like UTF-8 although it is not, so `charset` is
    tried first. If `charset` is unknown here, bytes that are not UTF-8 become U+FFFD. Never raises.
    """
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


def is_whole(data: bytes, charset: str) -> bool:
    """Return whether `decoded` decodes every byte, without U+FFFD."""
    charset = charset.lower()
    for name in ("utf-8", *([charset] if _TEXT_CHARSETS.fullmatch(charset) else [])):
        try:
            data.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
        return True
    return False
