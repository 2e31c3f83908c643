"""Conversion of values and rows between JSON and PostgreSQL's text forms.

Pure; runs inside the jail. A number that JSON parsers could round (type numeric, large integers), and values such as
NaN, stay text, also within a value of the type json. A lone UTF-16 surrogate in a json value becomes U+FFFD. So every
value of a database can be returned.

>>> as_json("12", 23), as_json("1.10", 1700), as_json('{"a": [1]}', 3802), as_json(None, 23)
(12, '1.10', {'a': [1]}, None)
>>> as_json('{"a": 100000000000000000000, "b": 1e400}', 3802)
{'a': '100000000000000000000', 'b': '1e400'}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from wire import Column, Result

_BOOL: Final = 16
_INTEGERS: Final = frozenset((20, 21, 23, 26))  # int8, int2, int4, oid
_FLOATS: Final = frozenset((700, 701))
_JSON: Final = frozenset((114, 3802))
_DIGITS: Final = 17
"""Maximum number of digits of a number that is parsed; longer numbers stay text. A double has at most 17. Parsing a
million digits would take Python seconds.
"""
_NO_DIGITS: Final = re.compile("[-.]|[eE].*")
"""Pattern for the parts of a number's text that do not count as its digits: sign, point and exponent."""
_SAFE: Final = 2**53
"""Largest integer that becomes a JSON number. Readers that use doubles for JSON round larger integers (RFC 8259 section 6)."""


_MAX_DEPTH: Final = 50
"""Maximum depth of arrays and objects in a json value. A frame has at most 64 levels, some of which surround the value."""
_HALF: Final = re.compile("[\ud800-\udfff]")


def as_json(text: str | None, type_number: int) -> Any:
    """Convert a value from PostgreSQL's text form to JSON. `type_number` is PostgreSQL's number for its type (OID)."""
    if text is None:
        return None
    if type_number == _BOOL:
        return text == "t"
    if type_number in _INTEGERS:
        return _integer(text)
    if type_number in _FLOATS:
        return _float(text)
    if type_number in _JSON:
        return _maybe_json(text)
    return text


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _DIGITS and abs(int(text)) <= _SAFE else text


def _float(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


def _json_float(text: str) -> float | str:
    digits = _NO_DIGITS.sub("", text).lstrip("0")
    return _float(text) if len(digits) <= _DIGITS and (float(text) or not digits) else text


def _maybe_json(text: str) -> Any:
    try:
        return _sound(json.loads(text, parse_int=_integer, parse_float=_json_float), _MAX_DEPTH)
    except (ValueError, RecursionError):
        return text


def _sound(value: Any, levels: int) -> Any:
    """Return a JSON value in which each lone surrogate is replaced by U+FFFD. Raises ValueError if it is nested deeper
    than `levels`, or if two names become equal.
    """
    match value:
        case str():
            return _HALF.sub("\ufffd", value)
        case list() | dict() if not levels:
            raise ValueError("nested too deep")
        case list():
            return [_sound(item, levels - 1) for item in value]
        case dict():
            found = {_HALF.sub("\ufffd", name): _sound(item, levels - 1) for name, item in value.items()}
            if len(found) != len(value):
                raise ValueError("two names differ only in halves of characters")
            return found
        case _:
            return value


def as_text(value: Any) -> str | None:
    """Return the text of a value for a parameter such as `$1`; the server decides the parameter's type."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return json.dumps(value)


def rows(result: Result) -> list[dict[str, Any]]:
    """Return each row as an object with the column names as keys. If two columns have the same name, the second key is
    `name_2`.
    """
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
