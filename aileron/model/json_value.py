"""The types of decoded JSON that has no closed shape, and the functions that read such values.

`JSON` is for values whose shape somebody else decides: arguments of an action, a JSON Schema, a request that is passed on. The
type checker lets no member of such a value be read before the value is known to be an object. `JSONMembers` is for objects that
are only passed on, or read with isinstance. A value of a known shape is a `msgspec.Struct`.

Pure. Not here: the one spelling of a JSON value (canonical.py).

>>> dict_of({"a": 1}), dict_of("a"), list_of({"a": 1})
({'a': 1}, {}, [])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "JSON",
    "JSONMembers",
    "JSONObject",
    "checked_dict",
    "checked_int",
    "checked_text",
    "dict_of",
    "list_of",
    "maybe_text",
]

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
    JSONObject: TypeAlias = "dict[str, JSON]"
    JSONMembers: TypeAlias = Mapping[str, object]
else:
    # msgspec reads the fields' types of a Struct, knows no recursive type, and decodes any JSON for `Any`.
    JSON = Any
    JSONObject = JSONMembers = dict[str, Any]


def dict_of(value: object) -> JSONObject:
    """Return `value` if it is a JSON object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[JSON]:
    """Return `value` if it is a JSON array, otherwise an empty array."""
    return value if isinstance(value, list) else []


def maybe_text(value: object) -> str | None:
    """Return `value` if it is a text, otherwise None."""
    return value if isinstance(value, str) else None


def checked_dict(value: object) -> JSONObject:
    """Return `value`, which must be a JSON object. Raises TypeError for any other value."""
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} instead of an object")
    return value


def checked_text(value: object) -> str:
    """Return `value`, which must be a text. Raises TypeError for any other value."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value


def checked_int(value: object) -> int:
    """Return `value`, which must be a whole number. Raises TypeError for any other value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} instead of a whole number")
    return value
