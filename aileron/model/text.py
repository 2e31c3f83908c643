r"""Detection of characters that a reader cannot see.

Names, descriptions and prose are untrusted, and are read by people and by language models. A character
that is invisible (control, zero width), that changes the order of others (bidirectional overrides) or that
can carry a hidden message (tag characters, variation selectors) makes two readers see different texts. So files
with such a character are refused.

Pure. Knows no file formats. Surfaces decide how to show such characters to a person.

Source: Unicode Standard Annex 44 (general categories), DerivedCoreProperties.txt of 17.0
(Default_Ignorable_Code_Point), Unicode Technical Report 36. Not here: emoji, whose joiners hide nothing (emoji.py).

>>> hidden_at("plain text"), hidden_at("ab\u202ecd")
(None, 2)
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["hidden_at", "spelled"]

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
# Invisible although their category is a letter, a mark or a symbol, or not assigned yet.
# U+FE0E and U+FE0F (text and emoji style) are absent: ordinary emoji need them.
_HIDDEN_RANGES: Final = (
    # Default_Ignorable_Code_Point without those in the categories: fillers, joiners, selectors, tags.
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0D),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
    # Blank by the code charts (Braille, Egyptian, Khitan, a note without a head), and by every font of Noto, DejaVu, FreeFont
    # and Symbola that has them, whose outlines were measured: also what only joins letters of Gondi.
    (0x2800, 0x2800),
    (0x11D45, 0x11D45),
    (0x11D97, 0x11D97),
    (0x13441, 0x13442),
    (0x16FE4, 0x16FE4),
    (0x1D159, 0x1D159),
)
_PROSE: Final = frozenset("\n\r\t\u00ad\u200c\u200d\u200e\u200f")
"""Hidden characters allowed in running text: line ends, tabs, soft hyphen, and those needed for Persian, Hebrew and emoji."""
_PLAIN_ASCII: Final = re.compile(r"[\x20-\x7e]*")
_PLAIN_ASCII_PROSE: Final = re.compile(r"[\n\r\t\x20-\x7e]*")


def hidden_at(text: str, *, prose: bool = False) -> int | None:
    """Return the index of the first character in `text` that cannot be seen; None if all can be seen.

    `prose` allows the characters in _PROSE: line ends, tabs, soft hyphens, joiners and direction marks.
    """
    if (_PLAIN_ASCII_PROSE if prose else _PLAIN_ASCII).fullmatch(text):
        return None
    # Each letter of a long text is looked up once, not at each of its places.
    hidden = {character for character in set(text) if _is_hidden(character)} - (_PROSE if prose else frozenset())
    return next((index for index, character in enumerate(text) if character in hidden), None) if hidden else None


def spelled(character: str) -> str:
    """Return the name that a message uses for a character that it must not print: `U+202E RIGHT-TO-LEFT OVERRIDE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def _is_hidden(character: str) -> bool:
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return True
    return any(first <= ord(character) <= last for first, last in _HIDDEN_RANGES)
