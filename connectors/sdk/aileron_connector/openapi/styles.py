"""Serialization of values in paths, queries, headers and forms, by the styles of OpenAPI and with percent-encoding.

    query("color", ["blue", "black"], Way("form", True))        # [("color", "blue"), ("color", "black")], percent-encoded
    segment("color", ["blue", "black"], Way("matrix", False))   # ';color=blue,black'

Rules
- All characters except RFC 3986's unreserved ones are percent-encoded; `allowReserved` also excepts `_RESERVED`. So no value
  can end its parameter, its path segment or the URL. Header fields are not encoded; request.py checks their characters.
- Booleans are `true` and `false`, numbers are as in JSON, but integral numbers have no fraction. null is not written, and
  neither are empty lists and empty objects: RFC 6570 calls them undefined.
- Some cases are undefined in OpenAPI. A value nested deeper than its style allows is written as JSON. `spaceDelimited` and
  `pipeDelimited` with `explode` are `form`. A `deepObject` is nested as far as the value is, `a[b][c]=1`, with `a[]=1` for
  members of a list, or `a[0][b]=1` if they have members of their own.

Pure. Source: OpenAPI 3.1.1, sections 4.8.12.2 to 4.8.12.6 and appendices C and E; RFC 6570 sections 2.3 and 3.2; RFC 3986.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector.openapi.document import Style

__all__ = ["Pair", "Way", "encoded", "field", "query", "scalar", "segment"]

Pair = tuple[str, str]
"""Name and value of a query parameter or a form field, both percent-encoded."""

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED: Final = frozenset(b":/?@!$'()*,=")
"""Characters that `allowReserved` does not encode. They are the reserved characters of RFC 3986 that a query may have and
that no server takes for the end of a parameter. `%` is encoded, because an argument is a plain value, not an encoded one.
"""


class Way(NamedTuple):
    """The serialization of a parameter's value: its `style`, `explode` and `allowReserved`."""

    style: Style
    explode: bool
    allow_reserved: bool = False

    @classmethod
    def of(cls, style: Style | None, explode: bool | None, default: Style, allow_reserved: bool = False) -> Way:
        """Make a Way from a document's values, with defaults for missing ones: `explode` is true for `form` only."""
        chosen = style or default
        return cls(chosen, chosen == "form" if explode is None else explode, allow_reserved)


def _table(kept: frozenset[int]) -> list[str]:
    return [chr(byte) if byte in kept else f"%{byte:02X}" for byte in range(256)]


_STRICT: Final = _table(_UNRESERVED)
_LOOSE: Final = _table(_UNRESERVED | _RESERVED)
_LOOSE_MEMBER: Final = _table((_UNRESERVED | _RESERVED) - frozenset(b",="))
"""Encoding table for members of a list or an object, which are separated by commas and equals signs."""


def encoded(text: str) -> str:
    """Percent-encode text, so that only letters, digits and the characters `-._~%` remain."""
    return _by(_STRICT, text)


def _by(table: list[str], text: str) -> str:
    return "".join([table[byte] for byte in text.encode("utf-8", "replace")])


def scalar(value: Any) -> str:
    """Return a JSON value as plain text. A list or an object is returned as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return msgspec.json.encode(value).decode()


def segment(name: str, value: Any, way: Way) -> str:
    """Return the percent-encoded text of a parameter in a path. It is empty for null, an empty list or an empty object."""
    write = encoded
    if way.style == "label":
        pieces = _pieces(value, way.explode, write)
        return "" if pieces is None else "." + ("." if way.explode else ",").join(pieces)
    if way.style == "matrix":
        return _matrix(write(name), value, way.explode, write)
    return ",".join(_pieces(value, way.explode, write) or ())


def field(value: Any, explode: bool) -> str:
    """Return the value of a header field (style `simple`) without encoding."""
    return ",".join(_pieces(value, explode, str) or ())


def _matrix(name: str, value: Any, explode: bool, write: Callable[[str], str]) -> str:
    pieces = _pieces(value, explode, write)
    if pieces is None:
        return ""
    if not explode or not isinstance(value, list | dict):
        text = ",".join(pieces)
        return f";{name}={text}" if text else f";{name}"
    return "".join([f";{piece}" if isinstance(value, dict) else f";{name}={piece}" for piece in pieces])


def _pieces(value: Any, explode: bool, write: Callable[[str], str]) -> list[str] | None:
    """Return the parts of a value as `write` writes them, which the caller joins with the style's delimiter; None for
    null, an empty list or an empty object.
    """
    if isinstance(value, dict):
        pairs = [(write(name), write(scalar(member))) for name, member in value.items() if member is not None]
        if explode:
            return [f"{name}={member}" for name, member in pairs] or None
        return [piece for pair in pairs for piece in pair] or None
    if isinstance(value, list):
        return [write(scalar(member)) for member in value if member is not None] or None
    return None if value is None else [write(scalar(value))]


def query(name: str, value: Any, way: Way) -> list[Pair]:
    """Return the name-value pairs of a parameter in a query or a form."""
    if way.style == "deepObject" and isinstance(value, dict | list):
        return list(_deep(name, value, _LOOSE if way.allow_reserved else _STRICT))
    is_apart = way.explode and way.style != "deepObject"
    table = _STRICT if not way.allow_reserved else _LOOSE_MEMBER if isinstance(value, list | dict) else _LOOSE

    def write(text: str) -> str:
        return _by(table, text)

    if is_apart and isinstance(value, dict):
        return [(encoded(key), write(scalar(member))) for key, member in value.items() if member is not None]
    pieces = _pieces(value, False, write)
    if pieces is None:
        return []
    if is_apart:
        return [(encoded(name), piece) for piece in pieces]
    return [(encoded(name), _DELIMITERS.get(way.style, ",").join(pieces))]


_DELIMITERS: Final[dict[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


def _deep(name: str, value: Any, table: list[str]) -> list[Pair]:
    """Return the pairs of a value in the style `deepObject`, `name[key]=…`, with as many keys as the value has levels:
    at most 64, because it came in a frame.
    """
    if isinstance(value, dict):
        return [pair for key, member in value.items() for pair in _deep(f"{name}[{key}]", member, table)]
    if isinstance(value, list):
        has_members = any(isinstance(member, dict | list) for member in value)
        return [
            pair
            for index, member in enumerate(value)
            for pair in _deep(f"{name}[{index if has_members else ''}]", member, table)
        ]
    return [] if value is None else [(encoded(name), _by(table, scalar(value)))]
