r"""Escaping of hostile text: hidden characters and terminal control characters are spelled out.

Names, messages and results come from agents, upstreams, connectors and files. Control characters move the cursor and rewrite
the lines above them, bidirectional characters reorder words, zero-width characters hide words, and many combining marks
overwrite the lines around the text. The width of characters that Unicode does not name is unknown. All these are shown as
escapes, except in an emoji. Used in commands, and in the daemon for texts sent to agents. Pure.

>>> visible("paid\x1b[2K\u202e")
'paid\\x1b[2K\\u202e'

Source: text.py lists the characters, emoji.py the visible sequences, docs/reference/cli.md states the guarantee. Not here:
which text is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = [
    "BAR",
    "FURTHER",
    "GAP",
    "as_fact",
    "as_text",
    "is_bare",
    "visible",
    "visible_json",
    "visible_lines",
    "without_gaps",
]

BAR = "│ "
"""Bar printed before each line of untrusted text, so that no such line can be taken for one of Aileron's own."""

FURTHER = "↳ "
"""Sign before each continuation row of a line that is wider than the screen.

Like the bar, it prevents such a row from being taken for one of Aileron's lines.
"""

_MOST_MARKS = 8
"""Maximum number of combining marks shown on one letter, as Hebrew and Vietnamese need four; further marks are escaped."""
_MARKS = ("Mn", "Me", "Mc")
"""Unicode categories of marks, including spacing marks, because terminals and programs seldom agree about the width of a mark."""
_MOST_KNOWN = 4096
"""Maximum number of characters whose spelling is cached, as many as a text in one script has.

In a long-lived process, hostile text could otherwise fill the cache with a million characters.
"""
GAP = re.compile(r"[^\S\n]{2,}")
"""Pattern of several blanks in a row, of any width. (Blank characters that count as letters are escaped.)"""
_STYLES = (0xFE0E, 0xFE0F)
"""Variation selectors of an emoji, which are hidden characters anywhere else."""
_BARE = re.compile(r"[\w@.:/+%,-]+")
_SHORT = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


class _Spelling(dict[int, str]):
    """A cached table for str.translate that maps a code point to itself or its escape.

    The characters in `kept` are not escaped.
    """

    def __init__(self, kept: str, *, is_json: bool) -> None:
        super().__init__({ord(character): character for character in kept})
        self._is_json = is_json

    def __missing__(self, code: int) -> str:
        from aileron.model.text import hidden_at  # unicodedata is not free, and most text is plain

        character = chr(code)
        is_shown = hidden_at(character) is None and code not in _STYLES
        spelled = character if is_shown else self._spell(code)
        if len(self) < _MOST_KNOWN:
            self[code] = spelled
        return spelled

    def spelled(self, text: str) -> str:
        """Return `text` with hidden characters escaped."""
        from aileron.model.emoji import EMOJI, MAY_BE_EMOJI  # not free either

        if MAY_BE_EMOJI.search(text) is None:
            return self._without_emoji(text)
        parts, at = [], 0
        for emoji in EMOJI.finditer(text):
            parts += [self._without_emoji(text[at : emoji.start()]), *self._few_marks(emoji[0])]
            at = emoji.end()
        return "".join([*parts, self._without_emoji(text[at:])])

    def _without_emoji(self, text: str) -> str:
        shown = text.translate(self)
        return shown if shown.isascii() else "".join(self._few_marks(shown))

    def _few_marks(self, text: str) -> Iterator[str]:
        from unicodedata import category

        marks = 0
        for letter in text:
            kind = category(letter)
            marks = marks + 1 if kind in _MARKS else 0
            yield letter if marks <= _MOST_MARKS and kind != "Cn" else self._spell(ord(letter))

    def _spell(self, code: int) -> str:
        if self._is_json:
            return "".join(f"\\u{unit:04x}" for unit in _utf16(code))
        if code in _SHORT:
            return _SHORT[code]
        if code <= 0xFF:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


_LINE = _Spelling("", is_json=False)
_LINES = _Spelling("\n", is_json=False)
_JSON = _Spelling("\n", is_json=True)


def visible(text: str) -> str:
    """Return `text` on one line, with hidden characters escaped.

    Line ends and tabs are escaped too, so that no part of it can be taken for one of Aileron's lines.
    """
    return text if _is_plain(text) else _LINE.spelled(text)


def visible_lines(text: str) -> list[str]:
    """Return the lines of `text` without their ends, with hidden characters escaped.

    The caller that prints them must mark each as untrusted.
    """
    return [
        line if _is_plain(line) else _LINES.spelled(line)
        for line in text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    ]


def visible_json(document: str) -> str:
    r"""Return a JSON document with the same content, in which hidden characters in strings are `\u` escapes."""
    return document if _is_plain(document) else _JSON.spelled(document)


def as_text(value: Any) -> str:
    """Return a value as escaped text on one line; a value that is not text becomes JSON."""
    if isinstance(value, str):
        return visible(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    import json

    return visible_json(json.dumps(value, ensure_ascii=False))


def as_fact(value: Any, most: int | None = None) -> str:
    r"""Return a value as text for a row of names and values. Text that could be taken for the next name is quoted as JSON.

    `most` limits how many characters of a text are read, for rows that are cut and cannot show more.

    >>> as_fact("because decision=approve"), as_fact("mira@example.com")
    ('"because decision=approve"', 'mira@example.com')
    """
    if value is None or isinstance(value, bool):
        return as_text(value)
    if isinstance(value, str) and is_bare(value[:most]):
        return visible(value[:most])
    import json

    spelled = json.dumps(value[:most] if isinstance(value, str) else value, ensure_ascii=False)
    return visible_json(spelled if most is None else spelled[: most + 1])


def without_gaps(text: str) -> str:
    """Return a text with each run of blanks replaced by its count, for use in one of Aileron's lines.
    So the text after many blanks cannot be pushed to the beginning of a row.

    >>> without_gaps("hello" + 60 * " " + "! checked")
    'hello (60 blanks) ! checked'
    """
    return GAP.sub(lambda gap: f" ({len(gap[0]):,} blanks) ", text)


def is_bare(text: str) -> bool:
    """Return whether no part of `text` could be taken for the next name or value in a row of names and values."""
    return _BARE.fullmatch(text) is not None


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _utf16(code: int) -> list[int]:
    if code <= 0xFFFF:
        return [code]
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
