r"""Hostile text made harmless: hidden characters, and those that a terminal would obey, are spelled out.

Names, messages and results come from agents, upstreams, connectors and files. Control characters move the cursor and rewrite the
lines above them, bidirectional ones show words in another order, zero-width ones hide them, and heaps of marks smear over the
lines around them; the width of characters without a name in Unicode is unknown. All of them appear as escapes, except those that
are part of an emoji. Runs in commands, and in the daemon for what agents are told. Pure.

>>> visible("paid\x1b[2K\u202e")
'paid\\x1b[2K\\u202e'

Source: text.py lists the characters, emoji.py the sequences that are seen, docs/reference/cli.md has the promise. Not here:
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
"""Bar before each line that others wrote, so that none can pass for one of Aileron's lines."""

FURTHER = "↳ "
"""Sign before each further row of a line that is wider than the screen,
so that none can pass for one of Aileron's lines either.
"""

_MOST_MARKS = 8
"""Marks on one letter: Hebrew and Vietnamese need four; further ones are spelled out."""
_MARKS = ("Mn", "Me", "Mc")
"""Categories of marks, including those that take a cell of their own: a terminal and a program seldom agree how much."""
_MOST_KNOWN = 4096
"""Characters that are remembered: as many as a text in one script has.
In a process that stays, a hostile text could use a million.
"""
GAP = re.compile(r"[^\S\n]{2,}")
"""Pattern of several blanks in a row, of any width. Blank characters that count as letters are spelled out."""
_STYLES = (0xFE0E, 0xFE0F)
"""Variation selectors of an emoji, which are hidden characters anywhere else."""
_BARE = re.compile(r"[\w@.:/+%,-]+")
_SHORT = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


class _Spelling(dict[int, str]):
    """A table for str.translate: code point → itself or its escape, computed once. `kept` stays as it is."""

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
        """Return `text` as it is shown."""
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
    """Return `text` on one line: line ends and tabs are escaped too, so that it cannot pretend to be one of Aileron's lines."""
    return text if _is_plain(text) else _LINE.spelled(text)


def visible_lines(text: str) -> list[str]:
    """Return `text` as lines without their ends. The caller that prints them marks each as not Aileron's own."""
    return [
        line if _is_plain(line) else _LINES.spelled(line)
        for line in text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    ]


def visible_json(document: str) -> str:
    r"""Return a JSON document that is still the same JSON: hidden characters in its strings become `\u` escapes."""
    return document if _is_plain(document) else _JSON.spelled(document)


def as_text(value: Any) -> str:
    """Return a value on one line, harmless; as JSON if it is not text."""
    if isinstance(value, str):
        return visible(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    import json

    return visible_json(json.dumps(value, ensure_ascii=False))


def as_fact(value: Any, most: int | None = None) -> str:
    r"""Return a value for a row of others, after its name: text that could pass for the next name is quoted, as JSON.

    If a text is longer than `most` characters, the rest is not read: for rows that are cut and cannot show it.

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
    """Return a text for one of Aileron's lines:
    blanks in a row are counted, so that the text after them cannot begin a row of its own.

    >>> without_gaps("hello" + 60 * " " + "! checked")
    'hello (60 blanks) ! checked'
    """
    return GAP.sub(lambda gap: f" ({len(gap[0]):,} blanks) ", text)


def is_bare(text: str) -> bool:
    """Return whether nothing in `text` could pass for the next name or value of a row."""
    return _BARE.fullmatch(text) is not None


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _utf16(code: int) -> list[int]:
    if code <= 0xFFFF:
        return [code]
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
