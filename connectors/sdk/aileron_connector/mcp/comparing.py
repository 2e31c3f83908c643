"""Comparison of a tool's present description, as the server lists it, with its description when the connector was made.

    differences({"name": "a", "description": "Adds."}, {"name": "a", "description": "Deletes."})
    # [Difference(place='description', before='"Adds."', after='"Deletes."')]

Pure. Both sides come from a server, so they are bounded, and invisible characters are escaped.

Not here: acting on a difference (service.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector.mcp.document import canonical
from aileron_sandbox.frames import JSONObject

__all__ = ["Difference", "differences"]

_MAX_TOLD: Final = 8
_MAX_TEXT: Final = 240
"""Maximum number of characters shown of each of the two texts: a sentence or two around the first difference."""
_BEFORE: Final = 80
"""Number of equal characters that are shown before the first difference."""
_MAX_PLACE: Final = 200
_MAX_DEPTH: Final = 24


class Difference(NamedTuple):
    """A value that differs between two descriptions of a tool: its place, and both sides as JSON. A side that lacks the
    value is empty.
    """

    place: str
    before: str
    after: str


def differences(frozen: JSONObject, now: JSONObject) -> list[Difference]:
    """Return the first few differences between a tool as packed and as listed now, or an empty list if both are equal."""
    if canonical(frozen) == canonical(now):
        return []
    return list(islice(_found(frozen, now, "", 0), _MAX_TOLD))


_ABSENT: Final = object()


def _found(frozen: Any, other: Any, place: str, depth: int) -> Iterator[Difference]:
    if isinstance(frozen, dict) and isinstance(other, dict) and depth < _MAX_DEPTH:
        for name in [*frozen, *(name for name in other if name not in frozen)]:
            here = f"{place}.{_visible(name)}" if place else _visible(name)
            yield from _found(frozen.get(name, _ABSENT), other.get(name, _ABSENT), here, depth + 1)
    elif isinstance(frozen, list) and isinstance(other, list) and len(frozen) == len(other) and depth < _MAX_DEPTH:
        for number, (left, right) in enumerate(zip(frozen, other, strict=True)):
            yield from _found(left, right, f"{place}[{number}]", depth + 1)
    else:
        before, after = _text(frozen), _text(other)
        if before != after:
            at = next((number for number, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
            yield Difference(place[:_MAX_PLACE], _around(before, at), _around(after, at))


def _text(value: Any) -> str:
    return "" if value is _ABSENT else msgspec.json.encode(value, order="sorted").decode()


def _around(text: str, at: int) -> str:
    """Return the part of a text around position `at`, the first difference."""
    begin = max(0, at - _BEFORE) if len(text) > _MAX_TEXT else 0
    piece = text[begin : begin + _MAX_TEXT]
    return f"{'…' if begin else ''}{_visible(piece)}{'…' if begin + _MAX_TEXT < len(text) else ''}"


def _visible(text: str) -> str:
    return "".join([char if char.isprintable() else f"\\u{ord(char):04x}" for char in text])
