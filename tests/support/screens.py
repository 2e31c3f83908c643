"""The screen of a Textual app as text, and golden screens: files that say how it must look.

    expect(app, "queue-80x24")          # tests/tui/golden/queue-80x24.txt

A golden file has the rows of the screen, and under them, row for row, how each cell is drawn: a dot for no style, else the
letter of a style that is spelled out at the end. This shows what only a colour says.

AILERON_GOLDEN=renew writes the files anew instead: check the result of `git diff`, and commit it or fix the code.

Not here: how the app is driven (tests/tui/consoles.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import App

__all__ = ["expect", "is_like", "text_of"]

_GOLDEN: Final = Path(__file__).resolve().parents[1] / "tui" / "golden"
_IS_RENEWED: Final = os.environ.get("AILERON_GOLDEN") == "renew"


def text_of(app: App[Any]) -> str:
    """Return the rows of the screen in front, as they were composed last."""
    return "\n".join("".join(segment.text for segment in row).rstrip() for row in _rows(app))


def expect(app: App[Any], name: str) -> None:
    """Check that the screen is the golden one of that name, cell for cell."""
    is_like(f"{name}.txt", _picture(_rows(app)))


def is_like(name: str, shown: str) -> None:
    """Check that a text equals the golden file of that name."""
    file = _GOLDEN / name
    if _IS_RENEWED:
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8"), f"{file.name}: AILERON_GOLDEN=renew writes it anew"


def _rows(app: App[Any]) -> list[list[Segment]]:
    return [list(strip) for strip in app.screen._compositor.render_strips()]  # there is no public way to the rows


def _picture(rows: list[list[Segment]]) -> str:
    letters: dict[str, str] = {}
    lines, drawn = [], []
    for row in rows:
        lines.append("".join(segment.text for segment in row).rstrip())
        cells = "".join(_letter(segment.style, letters) * segment.cell_length for segment in row)
        drawn.append(cells.rstrip("."))
    legend = [f"{letter} {style}" for style, letter in letters.items()]
    return "\n".join([*lines, "---", *drawn, "---", *legend, ""])


def _letter(style: Style | None, letters: dict[str, str]) -> str:
    said = _spelled(style)
    return "." if not said else letters.setdefault(said, chr(ord("a") + len(letters)))


def _spelled(style: Style | None) -> str:
    """Return the attributes, and the hue of coloured letters: shades differ with every version of the library."""
    if style is None:
        return ""
    words = [name for name in ("bold", "dim", "reverse", "underline") if getattr(style, name)]
    return " ".join([*words, *_hue(style)])


def _hue(style: Style) -> list[str]:
    if style.color is None or style.color.is_default:
        return []
    red, green, blue = style.color.get_truecolor()
    if max(red, green, blue) - min(red, green, blue) < 60:
        return []
    high = [value > (max(red, green, blue) + min(red, green, blue)) / 2 for value in (red, green, blue)]
    names = {
        (True, False, False): "red",
        (True, True, False): "yellow",
        (False, True, False): "green",
        (False, True, True): "cyan",
        (False, False, True): "blue",
        (True, False, True): "magenta",
    }
    return [names.get((high[0], high[1], high[2]), "coloured")]
