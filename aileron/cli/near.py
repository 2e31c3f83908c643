"""Finds the word that a person meant by a mistyped word, and the command with the corrected word.

Runs in commands after something has failed, so that it never delays a command that works. The names come from the socket that
the command used, so an agent learns no name that it could not list.

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
"""Minimum difflib ratio of similar words, from 0 to 1: `list-note` and `list-notes` have 0.95, `lst` and `list` 0.86, `hlep` and
`help` 0.75. `versions` and `sessions` have 0.75 too, although nobody confuses them. Therefore the first letter, which people
rarely mistype, must also be the same.
"""
_MAX_TYPED = 1000
"""Maximum number of characters of a command to retype; a longer command contains a file's content."""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like `word`, or None if none is similar."""
    alike = [name for name in names if name.lstrip("-")[:1] == word.lstrip("-")[:1]]
    return next(iter(difflib.get_close_matches(word, alike, n=1, cutoff=_LEAST_ALIKE)), None)


def did_you_mean(word: str, names: Iterable[str]) -> tuple[str, str | None] | None:
    """Return a question that suggests the nearest word, and the command with that word if possible.

    None if no word is similar.
    """
    near = nearest(word, names)
    return None if near is None else (f"did you mean {near!r}?", retyped(word, near))


def retyped(word: str, instead: str) -> str | None:
    """Return this process's command with `word` replaced by `instead`. None unless `word` occurs exactly once in the command."""
    words = sys.argv[1:]
    if words.count(word) != 1:
        return None
    typed = shlex.join(["aileron", *(instead if argument == word else argument for argument in words)])
    return typed if typed.isprintable() and len(typed) <= _MAX_TYPED else None
