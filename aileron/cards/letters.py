"""Detection and marking of letters that look like those of another alphabet.

Pure. A word in one alphabet is normal in some language. A word that mixes two alphabets, or a mail address with letters outside
ASCII, may be taken for another. Such a letter is shown as its code, in the sentence, in a row and in the value itself:
`p<U+0430>ypal.com`.

>>> with_codes("Привет, p\u0430ypal.com"), list(look_alikes("Привет"))
('Привет, p<U+0430>ypal.com', [])

Source: Unicode Technical Standard 39 (mixed scripts). Not here: look-alike host names (lookalike.py), which findings are
alarms (alarms.py).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

__all__ = ["look_alikes", "with_codes"]

_MAX_BRIEF: Final = 100
"""Maximum number of characters shown of one suspicious word, host or address: two lines of a small terminal. The card
shows the full value.
"""
_WORD: Final = re.compile(r"[^\W\d_]+")
_PIECE: Final = re.compile(r"[^\s,;<>()\"'/]+")
"""Pattern of a piece of text between separators. It is a single character class, so that a megabyte of text is read only once."""
_ALIKE: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets with letters that look like those of another alphabet."""


def look_alikes(text: str) -> Iterator[str]:
    """Yield mail addresses with letters outside ASCII, and hosts and words in more than one alphabet.

    In the results, look-alike letters are shown as codes.
    """
    for piece in _PIECE.finditer(text):
        for _, found in _found_in(piece[0]):
            yield _in_codes(found[:_MAX_BRIEF]) + ("…" if len(found) > _MAX_BRIEF else "")


def with_codes(text: str) -> str:
    """Return the text with each look-alike letter replaced by its code point (`<U+0430>`); unchanged if it has none."""
    return text if text.isascii() else _PIECE.sub(_marked, text)


def _marked(match: re.Match[str]) -> str:
    piece, shown, at = match[0], "", 0
    for begin, found in _found_in(piece):
        shown += piece[at:begin] + _in_codes(found)
        at = begin + len(found)
    return shown + piece[at:]


def _found_in(piece: str) -> Iterator[tuple[int, str]]:
    """Yield the suspicious parts of `piece`, a text between separators, with their offsets. A part is the complete
    address, host or file name if the piece has a dot or @, otherwise a single word.
    """
    if piece.isascii():
        return
    whole = piece.strip("@.")
    is_address = "@" in whole or "." in whole
    words = [(found.start(), found[0]) for found in _WORD.finditer(piece)]
    for begin, text in [(piece.find(whole), whole)] if is_address else words:
        if not text.isascii() and ("@" in text or _is_mixed(text)):
            yield begin, text


def _is_mixed(text: str) -> bool:
    return len({_alphabet(letter) for letter in text if letter.isalpha()} & _ALIKE) > 1


def _in_codes(text: str) -> str:
    return "".join(character if character.isascii() else f"<U+{ord(character):04X}>" for character in text)


@functools.lru_cache(maxsize=4096)  # letters: as many as texts in several alphabets have
def _alphabet(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
