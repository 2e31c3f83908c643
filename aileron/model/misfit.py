r"""Search for the place of a value that JSON cannot carry, for the message that refuses it.

A parser accepts values that cannot be written in canonical JSON or in UTF-8: infinite numbers, NaN, lone surrogates. A
message gives the value's place by its keys, and never the value, which may be a secret.

>>> misfit_in({"rates": [1.5, float("inf")]})
'rates[1] is no number that JSON can carry (such as 1e400 or NaN)'

Pure.
"""

from __future__ import annotations

import math
from typing import Any, Final

from aileron.model.visible import visible

__all__ = ["misfit_in"]

_MAX_DEPTH: Final = 64
"""Maximum number of nesting levels that are searched; no arguments have more."""
_MAX_PLACE: Final = 200
"""Maximum number of characters of a value's path, such as `to[0].name`, that a message shows."""
_LARGEST_INT: Final = 2**53 - 1
"""The largest integer in canonical JSON, because integers are written as IEEE doubles (RFC 8785, section 3.2.2.3)."""


def misfit_in(value: Any, *, is_canonical: bool = False) -> str | None:
    """Return the path and the fault of the first part of `value` that JSON cannot carry, as text safe for a terminal;
    None if there is none.

    `is_canonical` is for canonical JSON, which has no integers of 2**53 and more.
    """
    return _misfit(value, "", 0, is_canonical)


def _misfit(value: Any, place: str, depth: int, is_canonical: bool) -> str | None:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        return None if _is_whole(value) else f"{_shown(place)} has half of a character (such as \\ud83d alone)"
    if isinstance(value, int):
        is_small = -_LARGEST_INT <= value <= _LARGEST_INT
        return None if is_small or not is_canonical else f"{_shown(place)} is an integer of 2**53 or more"
    if isinstance(value, float):
        return (
            None if math.isfinite(value) else f"{_shown(place)} is no number that JSON can carry (such as 1e400 or NaN)"
        )
    if isinstance(value, list):
        members = ((f"{place}[{number}]", member) for number, member in enumerate(value))
    elif isinstance(value, dict):
        if any(not _is_whole(name) for name in value):
            return f"{_shown(place)} has a key with half of a character (such as \\ud83d alone)"
        members = ((f"{place}.{name}", member) for name, member in value.items())
    else:
        return None
    return next(
        (found for inner, member in members if (found := _misfit(member, inner, depth + 1, is_canonical))), None
    )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(place: str) -> str:
    return visible(place.removeprefix(".")[:_MAX_PLACE]) or "the value"
