r"""The width of a text: the largest number of terminal cells that it can take.

Programs and terminals do not agree: a sign with an emoji's style takes one cell or two, a spacing mark none, one or two. If a
line is wider than computed, it continues at the left margin of the next row, where only Aileron's own lines may begin. So the
largest number is used.

Pure. The text must already be escaped (visible.py). The table does not depend on the interpreter's version of Unicode (14.0 in
Python 3.11, 16.0 in 3.14). The terminal has its own version, and from one version to the next, characters only become wider.

Source: Unicode Standard Annex 11 (East Asian Width), EastAsianWidth.txt of 17.0; wcwidth(3). Not here: cutting and folding
by width.

>>> text_width("abc"), text_width("日本"), text_width("e\u0301"), text_width("\u2601\ufe0f")
(3, 4, 2, 2)
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

__all__ = ["narrowed", "text_width", "widened"]

_FILLER = "\0"
"""Character that stands for the additional cell of a wide character; no escaped text contains it."""
_WIDE = """
    1100-115F 231A-231B 2329-232A 23E9-23EC 23F0 23F3 25FD-25FE 2614-2615 2630-2637 2648-2653 267F 268A-268F 2693
    26A1 26AA-26AB 26BD-26BE 26C4-26C5 26CE 26D4 26EA 26F2-26F3 26F5 26FA 26FD 2705 270A-270B 2728 274C 274E
    2753-2755 2757 2795-2797 27B0 27BF 2B1B-2B1C 2B50 2B55 2E80-2E99 2E9B-2EF3 2F00-2FD5 2FF0-303E 3041-3096
    3099-30FF 3105-312F 3131-318E 3190-31E5 31EF-321E 3220-A48C A490-A4C6 A960-A97C AC00-D7A3 F900-FAFF FE10-FE19
    FE30-FE52 FE54-FE66 FE68-FE6B FF01-FF60 FFE0-FFE6 16FE0-16FE4 16FF0-16FF6 17000-18CD5 18CFF-18D1E 18D80-18DF2
    1AFF0-1AFF3 1AFF5-1AFFB 1AFFD-1AFFE 1B000-1B122 1B132 1B150-1B152 1B155 1B164-1B167 1B170-1B2FB 1D300-1D356
    1D360-1D376 1F004 1F0CF 1F18E 1F191-1F19A 1F200-1F202 1F210-1F23B 1F240-1F248 1F250-1F251 1F260-1F265
    1F300-1F320 1F32D-1F335 1F337-1F37C 1F37E-1F393 1F3A0-1F3CA 1F3CF-1F3D3 1F3E0-1F3F0 1F3F4 1F3F8-1F43E 1F440
    1F442-1F4FC 1F4FF-1F53D 1F54B-1F54E 1F550-1F567 1F57A 1F595-1F596 1F5A4 1F5FB-1F64F 1F680-1F6C5 1F6CC
    1F6D0-1F6D2 1F6D5-1F6D8 1F6DC-1F6DF 1F6EB-1F6EC 1F6F4-1F6FC 1F7E0-1F7EB 1F7F0 1F90C-1F93A 1F93C-1F945
    1F947-1F9FF 1FA70-1FA7C 1FA80-1FA8A 1FA8E-1FAC6 1FAC8 1FACD-1FADC 1FADF-1FAEA 1FAEF-1FAF8 20000-2FFFD
    30000-3FFFD
"""
"""Code points that take two cells, in hex: East_Asian_Width W and F of Unicode 17.0, and U+3248 to U+324F, circled
numbers, which are narrow in Unicode but two cells wide in terminals.
"""


def text_width(text: str) -> int:
    """Return the number of cells that a text takes: one for each character, marks included, and two for a wide East Asian one."""
    if text.isascii():
        return len(text)
    return len(text) + sum(map(_is_wide, text))


def widened(text: str) -> str:
    """Return the text with a filler before each character of two cells, so that it has as many characters as cells.

    `narrowed` removes the fillers.
    """
    if text.isascii():
        return text
    return "".join(_FILLER + char if _is_wide(char) else char for char in text)


def _is_wide(character: str) -> bool:
    return bisect_right(_borders(), ord(character)) % 2 == 1


@cache
def _borders() -> list[int]:
    """Return the start and the exclusive end of each range of wide characters, in order.

    A character is in a range if an odd number of borders is less than or equal to it.
    """
    ranges = (word.partition("-") for word in _WIDE.split())
    return [border for first, _, last in ranges for border in (int(first, 16), int(last or first, 16) + 1)]


def narrowed(text: str) -> str:
    """Return the text without the fillers that `widened` inserted."""
    return text.replace(_FILLER, "")
