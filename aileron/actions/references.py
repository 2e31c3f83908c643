"""References in the values of an action file: `${args.NAME}` and `${STEP.PATH}`.

Pure. A text is split into pieces only once: literal words, arguments of the call, and values from the results of earlier
steps. The value that replaces a piece is never scanned again, so no argument and no service can insert a reference.

    ${args.to}                an argument of the call
    ${find.messages.0.id}     the `id` of the first of the `messages` in the result of the step `find`

Source: docs/reference/action-file.md. Not here: which inputs and steps exist (manifest.py), inserting arguments
(resolve.py), inserting results (executor/interpolation.py).

>>> pieces("from ${find.subject}")
('from ', StepValue(step='find', path=('subject',)))
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aileron.model.plan import StepValue

__all__ = ["ARGS", "STEP_ID", "Argument", "Piece", "pieces"]

ARGS: Final = "args"
"""Word before the dot in a reference to the call's arguments; therefore no step can have this id."""
STEP_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_ARGUMENT: Final = re.compile(r"args\.([a-z][a-z0-9_]{0,63})")
_PART: Final = re.compile(r"[A-Za-z0-9_@-]{1,128}")
_MAX_PARTS: Final = 16
"""Maximum number of parts of one path; results of services are nested less than ten deep."""


class Argument(NamedTuple):
    """A reference to an argument of the call: `${args.NAME}`."""

    name: str


Piece = str | Argument | StepValue


def pieces(text: str) -> tuple[Piece, ...]:
    """Return the references in `text` and the literal text between them, in order and without empty strings. Raises ValueError
    for a `${` that does not begin a reference.
    """
    found: list[Piece] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        found += _words(text[end : match.start()], text)
        found.append(_reference(match[1], text))
        end = match.end()
    found += _words(text[end:], text)
    return tuple(found)


def _words(words: str, text: str) -> list[str]:
    if "${" in words:
        raise ValueError(f"{text!r} has a '${{' that is not ${{args.NAME}} or ${{STEP.PATH}}")
    return [words] if words else []


def _reference(inside: str, text: str) -> Argument | StepValue:
    if argument := _ARGUMENT.fullmatch(inside):
        return Argument(argument[1])
    step, *path = inside.split(".")
    is_one = STEP_ID.fullmatch(step) and step != ARGS and 1 <= len(path) <= _MAX_PARTS
    if not is_one or not all(map(_PART.fullmatch, path)):
        raise ValueError(f"{text!r} has a '${{' that is not ${{args.NAME}} or ${{STEP.PATH}}")
    return StepValue(step=step, path=tuple(path))
