"""The contrast of everything that a console draws: each text on its background, in the colours of a terminal's palette.

A ratio is that of WCAG 2.1 (relative luminance, 1 to 21). Colours of a theme are RGB; those that a theme leaves to the terminal
are those of its palette: xterm's and the kernel console's (VGA), which are the two that most others are made after.

Not here: what is drawn (test_contrast.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rich.color import Color, ColorType
from rich.segment import Segment

__all__ = ["PALETTES", "Pair", "Palette", "pairs_of", "ratio"]

_Rgb = tuple[int, int, int]
_LINES: Final = frozenset("─│┌┐└┘├┤╭╮╰╯▁▔▊▎▌▐▏▕━┃╸╺▂▃▄▅▆▇█ ")
"""Characters that are drawn and not read: frames, bars, the scroll bar."""


@dataclasses.dataclass(frozen=True)
class Palette:
    """The colours that a terminal uses for its own sixteen and for the default, on a dark or a light background."""

    colours: tuple[_Rgb, ...]
    dark: tuple[_Rgb, _Rgb]
    """Text and background colour of a dark terminal."""
    light: tuple[_Rgb, _Rgb]


def _rgb(*hexadecimal: str) -> tuple[_Rgb, ...]:
    return tuple((int(code[:2], 16), int(code[2:4], 16), int(code[4:], 16)) for code in hexadecimal)


_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)
PALETTES: Final[Mapping[str, Palette]] = {
    "xterm": Palette(
        _rgb(*"000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5".split())
        + _rgb(*"7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff".split()),
        dark=((229, 229, 229), _BLACK),
        light=(_BLACK, _WHITE),
    ),
    "vga": Palette(
        _rgb(*"000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa".split())
        + _rgb(*"555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff".split()),
        dark=((170, 170, 170), _BLACK),
        light=(_BLACK, _WHITE),
    ),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A text as it is drawn, and its ratio."""

    text: str
    letters: str
    ground: str
    ratio: float


def ratio(color: _Rgb, other: _Rgb) -> float:
    """Return the contrast of two colours, 1 to 21.

    >>> round(ratio((255, 255, 255), (0, 0, 0)), 1)
    21.0
    """
    lighter, darker = sorted((_luminance(color), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def pairs_of(rows: Iterable[Iterable[Segment]], palette: Palette, *, is_dark: bool) -> Iterator[Pair]:
    """Yield every readable text on the screen with its ratio; reversed texts have their colours swapped."""
    letters_of, ground_of = palette.dark if is_dark else palette.light
    for row in rows:
        for text, style, _ in row:
            if style is None or not set(text) - _LINES:
                continue
            letters = _seen(style.color, letters_of, palette)
            ground = _seen(style.bgcolor, ground_of, palette)
            if style.reverse:
                letters, ground = ground, letters
            yield Pair(text.strip(), _spelled(letters), _spelled(ground), ratio(letters, ground))


def _seen(colour: Color | None, default: _Rgb, palette: Palette) -> _Rgb:
    if colour is None or colour.type is ColorType.DEFAULT:
        return default
    if colour.number is not None and colour.number < 16 and colour.type is not ColorType.TRUECOLOR:
        return palette.colours[colour.number]
    found = colour.get_truecolor()
    return (found.red, found.green, found.blue)


def _spelled(colour: _Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _luminance(colour: _Rgb) -> float:
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (c / 255 for c in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
