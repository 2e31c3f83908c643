"""Guesses from an operation's name, such as its effect, which the author of a new connector or action file then checks.

Pure. A guess decides nothing: it is only written into the author's file. If the name suggests nothing, there is no guess.

>>> guessed_effect("delete_note"), guessed_effect("frobnicate")
(<Effect.DELETE: 'delete'>, None)
>>> words_of("send-weekly_report")
'send weekly report'

Source: docs/reference/action-file.md (Effects). Not here: the files (template.py, commands/action_author.py).
"""

from __future__ import annotations

import re
from typing import Final

from aileron.model.manifest import Effect

__all__ = ["guessed_effect", "words_of"]

_EFFECTS: Final = {verb: effect for effect in Effect for verb in effect.name_verbs}
_JOINTS: Final = re.compile(r"[-_.]+")


def words_of(name: str) -> str:
    """Return the name of an action, an operation or a parameter as words."""
    return _JOINTS.sub(" ", name).strip()


def guessed_effect(op: str) -> Effect | None:
    """Return the effect that the first word of an operation's name suggests; None if it is not a known verb."""
    return _EFFECTS.get(op.partition("_")[0])
