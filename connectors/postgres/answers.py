"""Values and rows between JSON and PostgreSQL's text forms.

Pure; runs inside the jail. A number that JSON's readers could round (numeric, and what is no number at all) stays a text.

>>> as_json("12", 23), as_json("1.10", 1700), as_json('{"a": [1]}', 3802), as_json(None, 23)
(12, '1.10', {'a': [1]}, None)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from wire import Column, Result

_BOOL: Final = 16
_INTEGERS: Final = frozenset((20, 21, 23, 26))  # int8, int2, int4, oid
_FLOATS: Final = frozenset((700, 701))
_JSON: Final = frozenset((114, 3802))
_SAFE: Final = 2**53
"""Integers beyond are rounded by whoever reads JSON numbers as doubles (RFC 8259 section 6)."""


def as_json(text: str | None, type_number: int) -> Any:
    """A value of a row."""
    if text is None:
        return None
    if type_number == _BOOL:
        return text == "t"
    if type_number in _INTEGERS:
        return int(text) if abs(int(text)) <= _SAFE else text
    if type_number in _FLOATS:
        return float(text) if math.isfinite(float(text)) else text
    if type_number in _JSON:
        return _maybe_json(text)
    return text


def _maybe_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: Any) -> str | None:
    """A value for `$1` and so on; the server decides what type it has there."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return json.dumps(value)


def rows(result: Result) -> list[dict[str, Any]]:
    """Each as an object by the names of its columns; where two have one name, the second is `name_2`."""
    names = _names(result.columns)
    types = [column.type_number for column in result.columns]
    return [
        {name: as_json(text, kind) for name, text, kind in zip(names, row, types, strict=True)} for row in result.rows
    ]


def _names(columns: Sequence[Column]) -> list[str]:
    found: list[str] = []
    for column in columns:
        name, number = column.name, 1
        while name in found:
            number += 1
            name = f"{column.name}_{number}"
        found.append(name)
    return found
