r"""How many cells of a terminal a text takes, at most.

Programs and terminals do not agree: a sign with an emoji's style is one cell or two, a spacing mark none, one or two. A line that
is taken for shorter than it is goes on at the left margin of the next row, where only lines of ours stand. So the largest counts.

Pure. The text is harmless already (visible.py). Source: Unicode Standard Annex 11 (East Asian Width); wcwidth(3). Not here: what
is cut or folded by it.

>>> cells_of("abc"), cells_of("日本"), cells_of("e\u0301"), cells_of("\u2601\ufe0f")
(3, 4, 2, 2)
"""

from __future__ import annotations

__all__ = ["cells_of", "narrowed", "widened"]

_FILLER = "\0"
"""Stands in no harmless text."""
_ALSO_WIDE = (range(0x3248, 0x3250), range(0x4DC0, 0x4E00))
"""Numbers in circles and hexagrams: narrow, says Unicode; two cells, say terminals."""


def cells_of(text: str) -> int:
    """One for each character, two for each that East Asian text writes in two; marks count too."""
    if text.isascii():
        return len(text)
    return len(text) + sum(map(_is_wide, text))


def widened(text: str) -> str:
    """The text with a filler before each character of two cells: as many characters as it has cells. `narrowed` undoes it."""
    if text.isascii():
        return text
    return "".join(_FILLER + one if _is_wide(one) else one for one in text)


def _is_wide(character: str) -> bool:
    from unicodedata import east_asian_width

    return east_asian_width(character) in ("W", "F") or any(ord(character) in some for some in _ALSO_WIDE)


def narrowed(text: str) -> str:
    """Without the fillers."""
    return text.replace(_FILLER, "")
