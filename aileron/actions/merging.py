"""Merge of an action file's new version with the user's own edits of the old one.

Pure. Lines are merged, as in version control: a change by only one side is taken, and if both sides changed the same lines
differently, a person must choose. Adjacent lines count as the same lines, because a sentence may continue on the next line. In a
generated file each line is a separate fact, so `merged_closely` treats adjacent lines as different.

Source: docs/tutorial/publish-and-update.md; the merge3 package for the algorithm. Not here: parsing the result and the
consent that it needs, which are as for any file (actions/manifest.py and actions/widening.py).
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import merge3

__all__ = ["Merged", "difference", "merged", "merged_closely"]

MINE: Final = "<<<<<<< yours"
THEIRS: Final = ">>>>>>> published"
_BETWEEN: Final = "======="
_MAX_LINES: Final = 3000
"""Maximum number of lines of a text that is compared line by line.

Known action files have about a hundred, and 256 KiB of the worst lines take minutes.
"""
_Lines = Sequence[str]
_Settling = Callable[[_Lines, _Lines, _Lines], list[str] | None]
"""Function that merges lines of base, mine and theirs that both sides changed; it returns None if a person must resolve
the conflict.
"""


class Merged(NamedTuple):
    """A merged text. `conflicts` is the number of places where both sides changed the same lines;
    at each, the text has both versions, between markers.
    """

    text: str
    conflicts: int


def merged(base: str, mine: str, theirs: str) -> Merged:
    r"""Return `theirs` with the changes that `mine` made to `base`.

    >>> merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n")
    Merged(text='A\nb\nC\n', conflicts=0)
    """
    return _merged(base, mine, theirs, _nothing)


def merged_closely(base: str, mine: str, theirs: str) -> Merged:
    r"""Merge like `merged`, but changes to adjacent lines do not conflict:
    only changes to the same line, or insertions at the same place, do.

    >>> merged_closely("a\nb\n", "a\nnew\nb\n", "a\nB\n")
    Merged(text='a\nnew\nB\n', conflicts=0)
    """
    return _merged(base, mine, theirs, _side_by_side)


def _merged(base: str, mine: str, theirs: str, settled: _Settling) -> Merged:
    if base in (mine, theirs) or mine == theirs:
        return Merged(theirs if base == mine else mine, 0)
    base_lines, my_lines, their_lines = sides = [text.splitlines(keepends=True) for text in (base, mine, theirs)]
    if max(map(len, sides)) > _MAX_LINES:
        return Merged("".join(_conflict(my_lines, their_lines)), 1)
    merge = merge3.Merge3(base_lines, my_lines, their_lines)
    lines: list[str] = []
    conflicts = 0
    for group in merge.merge_groups():
        if group[0] != "conflict":
            lines += group[1]
        elif (both := settled(*group[1:])) is not None:
            lines += both
        else:
            conflicts += 1
            lines += _conflict(group[2], group[3])
    return Merged("".join(lines), conflicts)


def _nothing(base: _Lines, mine: _Lines, theirs: _Lines) -> list[str] | None:
    return None


class _Edit(NamedTuple):
    """A change to the base text: the lines from `begin` up to but not including `end`, and the lines that replace them."""

    begin: int
    end: int
    lines: tuple[str, ...]


def _side_by_side(base: _Lines, mine: _Lines, theirs: _Lines) -> list[str] | None:
    edits = sorted({*_edits(base, mine), *_edits(base, theirs)})
    for before, after in itertools.pairwise(edits):
        if after.begin < before.end or (before.begin, before.end) == (after.begin, after.end):
            return None
    lines: list[str] = []
    at = 0
    for edit in edits:
        lines += [*base[at : edit.begin], *edit.lines]
        at = edit.end
    return [*lines, *base[at:]]


def _edits(base: _Lines, changed: _Lines) -> list[_Edit]:
    found = difflib.SequenceMatcher(None, base, changed, autojunk=False).get_opcodes()
    return [_Edit(begin, end, tuple(changed[a:b])) for kind, begin, end, a, b in found if kind != "equal"]


def difference(before: str, after: str, *, names: tuple[str, str]) -> str:
    """Return the changes from `before` to `after` as a unified diff; empty if there are none. `names` are the names of
    the two texts in the diff's header.

    If very long texts differ, all lines of both are in the diff.
    """
    was, would_be = (_ended(text.splitlines(keepends=True)) for text in (before, after))
    if max(len(was), len(would_be)) <= _MAX_LINES:
        return "".join(difflib.unified_diff(was, would_be, *names))
    if was == would_be:
        return ""
    head = [f"--- {names[0]}\n", f"+++ {names[1]}\n", f"@@ -1,{len(was)} +1,{len(would_be)} @@\n"]
    return "".join([*head, *(f"-{line}" for line in was), *(f"+{line}" for line in would_be)])


def _conflict(mine: Sequence[str], theirs: Sequence[str]) -> list[str]:
    return [f"{MINE}\n", *_ended(mine), f"{_BETWEEN}\n", *_ended(theirs), f"{THEIRS}\n"]


def _ended(lines: Sequence[str]) -> list[str]:
    """Return the lines, with a line end added to the last one if it has none."""
    return [*lines[:-1], lines[-1] if lines[-1].endswith("\n") else f"{lines[-1]}\n"] if lines else []
