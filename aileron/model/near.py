"""Guess of the known word that a mistyped one probably meant.

Imports difflib only if a word is wrong, because the import takes 4 ms and wrong words are rare.

>>> did_you_mean("subjct", ["subject", "body"], "it accepts subject, body")
"did you mean 'subject'?"
>>> did_you_mean("x", ["subject", "body"], "it accepts subject, body")
'it accepts subject, body'

Source: difflib.get_close_matches, with its own cutoff of 0.6. Not here: the names of commands, where the first letter counts
(cli/near.py); the names of tools, of which there may be a thousand (mcp/calls.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["did_you_mean"]

_MAX_CHARS: Final = 100
"""Maximum number of characters of a word that is compared; the longest name has 64."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question such as `did you mean 'list'?` that suggests the most similar known word; return `otherwise` if
    no word is similar.
    """
    import difflib

    near = difflib.get_close_matches(word[:_MAX_CHARS], map(str, known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise
