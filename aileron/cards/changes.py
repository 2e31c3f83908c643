"""Lines that show the changes to arguments, files, manifests or settings, one change per line.

Pure. `more` is the command that shows the rest of a text that is cut; if it is None, nothing is cut. Not here: what counts as a
change (approvals/difference.py, actions/widening.py).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aileron.cards.plan import missing_lines

if TYPE_CHECKING:
    from aileron.model.consent import Change

__all__ = ["change_lines", "is_on_one_line"]

_MAX_CHANGES = 30
"""Maximum number of lines for one comparison; a screen has 24."""
_MAX_SIDE = 160
"""Maximum number of characters for each side of a change: two lines."""
_FROM_THE_RIGHT: Final = frozenset({"R", "AL", "AN"})


def change_lines(changes: Iterable[Change], more: str | None = None, *, marks: bool = False) -> list[str]:
    """Return the lines of all changes, as `where: before → after`. With `marks`, lines of widening changes are marked.
    `more` is a command that shows everything; if it is given, long values and lists are cut, followed by that command.
    """
    lines: list[str] = []
    listed = list(changes)
    for number, change in enumerate(listed):
        if more is not None and len(lines) >= _MAX_CHANGES:
            lines += missing_lines(len(listed) - number, "changes", more)
            break
        mark = "ALLOWS MORE: " if marks and change.widens else ""
        where, is_short = change.where, more is not None and marks
        if is_short and where.endswith(": hash"):  # the version stands beside it, and key f shows the whole hash
            lines.append(f"{mark}{where}: {_digits(change.before)} → {_digits(change.after)}")
            continue
        if is_short and where == "body" and not change.widens:
            lines.append("body: changed (description only)")
            continue
        if change.before is not None:  # the arrow already says that the value is new
            where = where.removesuffix(" (new)")
        lines += _change(f"{mark}{where}: ", change.before, change.after, more)
    return lines


def is_on_one_line(text: str) -> bool:
    """Return whether a text can stand on the same line as an arrow between the old and the new value.

    If the values have letters that are written from right to left, the reader sees the new value on the left of the arrow
    (Unicode, UAX 9). Such values are shown on two lines.
    """
    return "\n" not in text and not any(unicodedata.bidirectional(letter) in _FROM_THE_RIGHT for letter in text)


def _digits(pin: str | None) -> str:
    """Return the first characters of a pin's hash, enough to tell two hashes apart."""
    return f"{str(pin).removeprefix('sha256:')[:12]}…"


def _change(where: str, before: str | None, after: str | None, more: str | None) -> list[str]:
    """Return the lines of a change at `where`: the old and the new value on one line if they are short; otherwise one
    below the other. `more` is the command that shows values in full.
    """
    if before is None or after is None:
        side, word = (after, "new, ") if before is None else (before, "gone, was ")
        return _side(f"{where}{word}", str(side), more)
    if len(where) + len(str(before)) + len(str(after)) <= _MAX_SIDE // 2 and is_on_one_line(f"{before}{after}"):
        return [f"{where}{before} → {after}"]
    return [*_side(f"{where}was ", str(before), more), *_side(f"{where}is ", str(after), more)]


def _side(before: str, value: str, more: str | None) -> list[str]:
    missing = len(value) - _MAX_SIDE
    if more is None or missing <= 0:
        return [f"{before}{value}"]
    return [f"{before}{value[:_MAX_SIDE]}…", *missing_lines(missing, "characters", more)]
