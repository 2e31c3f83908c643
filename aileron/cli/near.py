"""Find what a mistyped word was meant to be, and the command with that word in its place.

Runs in commands, where something failed already, so that nothing of it is in front of a command that works. The names come from
the socket that the command asked, so an agent is told none that it could not list.

Not here: keys of documents (model/document.py), the arguments of an action (arguments.py).

>>> nearest("list-note", ["list-notes", "delete-note"])
'list-notes'
>>> nearest("version", ["sessions", "demo"]) is None
True
"""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest", "retyped"]

_LEAST_ALIKE = 0.7
"""Least difflib ratio, from 0 to 1: `list-note` and `list-notes` have 0.95, `lst` and `list` 0.86, `hlep` and `help` 0.75. So
have `versions` and `sessions`, which nobody confuses: people rarely mistype the first letter, so it must be the same."""
_MAX_TYPED = 1000
"""Characters of a command to be typed again: more is a file's content."""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that is most like `word`, or None where none is like it."""
    alike = [name for name in names if name.lstrip("-")[:1] == word.lstrip("-")[:1]]
    return next(iter(difflib.get_close_matches(word, alike, n=1, cutoff=_LEAST_ALIKE)), None)


def did_you_mean(word: str, names: Iterable[str]) -> tuple[str, str | None] | None:
    """A sentence that asks for the nearest name, and the command with it where that can be told; None where nothing is near."""
    near = nearest(word, names)
    return None if near is None else (f"did you mean {near!r}?", retyped(word, near))


def retyped(word: str, instead: str) -> str | None:
    """The command of this process with `instead` for `word`. None where `word` is not one of its words, or not just one."""
    words = sys.argv[1:]
    if words.count(word) != 1:
        return None
    typed = shlex.join(["aileron", *(instead if argument == word else argument for argument in words)])
    return typed if typed.isprintable() and len(typed) <= _MAX_TYPED else None
