"""A line filter that raises the contrast of all text to at least 4.5 to 1 (WCAG 2.1, 1.4.3), in any theme, even for dimmed text.

Runs after Textual's own line filters. An RGB colour with too little contrast is moved towards black or white, whichever
is further from the background, until the text is readable. Of the terminal's own sixteen colours, only those that are
readable on a dark or a light background in most terminals' palettes are used. Any other becomes the default colour, and
signs and bold text still carry the meaning.

Not here: what the colours mean (rendering.py), the proof (tests/tui/test_contrast.py).

>>> strengthened((0x7f, 0x7f, 0x7f), (0xe0, 0xe0, 0xe0))
(95, 95, 95)
"""

from __future__ import annotations

import functools
from typing import Final

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

__all__ = ["LEAST", "Readable", "ratio", "strengthened"]

LEAST: Final = 4.5
_STEPS: Final = 20
_KNOWN: Final = 2048
_Rgb = tuple[int, int, int]
_FRAMES: Final = " ─│┌┐└┘├┤╭╮╰╯━┃▁▂▃▄▅▆▇█▔▎▊▌▐▏▕"
"""Characters of frames and scroll bars. A segment of only these characters keeps its colour, because nobody reads it."""
_PLAIN: Final = RichColor.default()
_ON_DARK: Final = {1: 9, 2: 10, 3: 11, 5: 13, 6: 14, 7: 7, 9: 9, 10: 10, 11: 11, 13: 13, 14: 14, 15: 15}
"""ANSI colours for letters on a terminal's dark background, by original colour. A colour without an entry becomes the
default colour.

The colours are bright; blue, black and grey have no entry.
"""
_ON_LIGHT: Final = {0: 0, 1: 1, 4: 4}
"""ANSI colours for letters on a terminal's light background, by original colour: black, red and blue stay. Any other
becomes the default colour.
"""
_LIGHT_GROUNDS: Final = frozenset((2, 3, 6, 7, 9, 10, 11, 13, 14, 15))
"""ANSI background colours that get black letters. All other background colours get white letters."""


class Readable(LineFilter):
    """A filter that changes colours of letters that are hard to read.

    `is_native`: the console uses the terminal's 16 colours; `is_dark`: its background is dark.
    """

    def __init__(self, *, is_native: bool, is_dark: bool) -> None:
        super().__init__()
        self._is_native: Final = is_native
        self._is_dark: Final = is_dark

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same text in readable colours."""
        return [
            Segment(text, self._readable(style, background.rich_color), control)
            if style is not None and text.strip(_FRAMES)
            else Segment(text, style, control)
            for text, style, control in segments
        ]

    def _readable(self, style: Style, ground: RichColor) -> Style:
        if self._is_native:
            return _of_the_terminal(style, is_dark=self._is_dark)
        return style if style.color is None else _in_rgb(style, ground)


@functools.lru_cache(_KNOWN)
def _in_rgb(style: Style, ground: RichColor) -> Style:
    below = style.bgcolor or ground
    if style.color is None or style.color.triplet is None or below.triplet is None:
        return style
    colour, other = style.color.triplet, below.triplet
    letters = strengthened((colour.red, colour.green, colour.blue), (other.red, other.green, other.blue))
    return style if letters == colour else style + Style(color=RichColor.from_rgb(*letters))


@functools.lru_cache(_KNOWN)
def _of_the_terminal(style: Style, *, is_dark: bool) -> Style:
    number = _own(style.color)
    below = _own(style.bgcolor)
    if below is not None:
        return style + Style(color=RichColor.from_ansi(0 if below in _LIGHT_GROUNDS else 15))
    if style.color is None or style.color.is_default:
        return style
    kept = None if number is None else (_ON_DARK if is_dark else _ON_LIGHT).get(number)
    return style + Style(color=_PLAIN if kept is None else RichColor.from_ansi(kept))


def _own(colour: RichColor | None) -> int | None:
    """Return the number of a colour among the terminal's sixteen; None for any other colour."""
    is_own = colour is not None and colour.type is ColorType.STANDARD
    return colour.number if is_own and colour is not None else None


def strengthened(letters: _Rgb, ground: _Rgb) -> _Rgb:
    """Return the colour `letters` if it is readable on the background `ground`, otherwise the nearest readable colour."""
    target = (0, 0, 0) if _luminance(ground) > 0.18 else (255, 255, 255)  # at 0.179, both have the same contrast
    for step in range(_STEPS + 1):
        shade = tuple(round(start + (end - start) * step / _STEPS) for start, end in zip(letters, target, strict=True))
        found = (shade[0], shade[1], shade[2])
        if ratio(found, ground) >= LEAST:
            return found
    return target


def ratio(color: _Rgb, other: _Rgb) -> float:
    """Return the contrast ratio of two colours, 1 to 21."""
    lighter, darker = sorted((_luminance(color), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: _Rgb) -> float:
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.03928 else float(((part + 0.055) / 1.055) ** 2.4)
