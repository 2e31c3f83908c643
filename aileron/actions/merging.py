"""A new version of an action's file and the user's own edits of the old one, made into one text.

Pure. Lines are what is merged, as everybody's version control does it: what only one side changed is taken, and where both
changed the same lines in two ways somebody has to say which.

Source: docs/tutorial/publish-and-update.md; the merge3 package for the algorithm. Not here: what may be done with the result
(it is parsed and agreed to as any file, actions/manifest.py and actions/widening.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final, NamedTuple

import merge3

__all__ = ["Merged", "difference", "merged"]

MINE: Final = "<<<<<<< yours"
THEIRS: Final = ">>>>>>> published"
_BETWEEN: Final = "======="


class Merged(NamedTuple):
    """`conflicts` are places where both sides changed the same lines; each stands in the text between marks."""

    text: str
    conflicts: int


def merged(base: str, mine: str, theirs: str) -> Merged:
    r"""`theirs` with what `mine` changed of `base`.

    >>> merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n")
    Merged(text='A\nb\nC\n', conflicts=0)
    """
    base_lines, my_lines, their_lines = (text.splitlines(keepends=True) for text in (base, mine, theirs))
    merge = merge3.Merge3(base_lines, my_lines, their_lines)
    lines: list[str] = []
    conflicts = 0
    for group in merge.merge_groups():
        if group[0] == "conflict":
            conflicts += 1
            lines += [f"{MINE}\n", *_ended(group[2]), f"{_BETWEEN}\n", *_ended(group[3]), f"{THEIRS}\n"]
        else:
            lines += group[1]
    return Merged("".join(lines), conflicts)


def difference(before: str, after: str, *, names: tuple[str, str]) -> str:
    """What changes, as a unified diff; empty where nothing does."""
    lines = difflib.unified_diff(
        _ended(before.splitlines(keepends=True)), _ended(after.splitlines(keepends=True)), *names
    )
    return "".join(lines)


def _ended(lines: Sequence[str]) -> list[str]:
    """The same with a line end after the last."""
    return [*lines[:-1], lines[-1] if lines[-1].endswith("\n") else f"{lines[-1]}\n"] if lines else []
