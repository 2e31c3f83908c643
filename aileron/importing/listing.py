"""The list in a response, and the fields of its members that an agent gets if the list is large.

Pure. The fields are guessed from the schema: required fields, and those that identify a member or have its place or time. An
author can choose other fields, and so can each call.

Source: docs/reference/packed-openapi.md. Not here: reducing a response to these fields (aileron_connector/openapi/answer.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from aileron.importing.schemas import Packed, UnusableError
from aileron.importing.words import is_visible
from aileron_connector.check import Schema
from aileron_connector.openapi.document import ListShape

__all__ = ["Lookup", "fields_of", "listing_of", "properties_of"]

Lookup = Callable[[str], Packed]

_MAX_FIELDS: Final = 12
"""Maximum number of fields of one member: a line or two, which a person or a model can take in."""
_MAX_HOPS: Final = 12
_MAX_PARTS: Final = 64
"""Maximum number of `allOf` parts, including the parts of those parts."""
_MAX_AROUND: Final = 200
"""Maximum number of properties of a response that are searched for its list."""
_WRAPPERS: Final = ("data", "items", "results", "values", "entries", "records", "list", "content", "chunk", "objects")
_TELLING: Final = (
    "id number key name title login username email subject summary slug label status state type kind path full_name "
    "display_name displayName html_url web_url price amount currency total count date start end due created created_at "
    "createdAt updated updated_at updatedAt modified timestamp"
).split()
"""Names of properties that identify an object, the most telling first."""
_NAMES: Final = (
    "name",
    "title",
    "login",
    "username",
    "email",
    "id",
    "key",
    "slug",
    "login",
    "displayName",
    "display_name",
)
"""Names of properties that identify an object nested in a member."""


def listing_of(answer: Packed, lookup: Lookup) -> ListShape | None:
    """Return the list in a response: the response itself, an array of objects in it with a name in `_WRAPPERS`, or the
    only array of objects in it. None if there is no such list.
    """
    found = _seen(answer, lookup)
    if found.get("type") == "array" or "items" in found:
        return ListShape(at=[], fields=fields_of(found.get("items", True), lookup))
    arrays = [
        name
        for name, inner in itertools.islice(properties_of(found, lookup).items(), _MAX_AROUND)
        if "items" in (seen := _seen(inner, lookup)) and properties_of(_seen(seen["items"], lookup), lookup)
    ]
    wrapped = [name for name in _WRAPPERS if name in arrays]
    if len(arrays) != 1 and not wrapped:
        return None
    name = wrapped[0] if wrapped else arrays[0]
    items = _seen(properties_of(found, lookup)[name], lookup).get("items", True)
    return ListShape(at=[name], fields=fields_of(items, lookup))


def fields_of(member: Packed, lookup: Lookup) -> list[str]:
    """Return the most telling fields of an object; a field of a nested object is written with a dot."""
    found = _seen(member, lookup)
    properties = properties_of(found, lookup)
    required = set(found.get("required", ()))
    telling = [name for name in _TELLING if name in properties]
    other = [name for name in properties if name in required and name not in telling]
    fields: list[str] = []
    for name in (*telling, *other):
        if len(fields) == _MAX_FIELDS:
            break
        if "." in name or not is_visible(name) or (name not in telling and name.endswith("_url")):
            continue
        fields += _of_one(name, properties[name], lookup)
    return fields


def _of_one(name: str, inner: Any, lookup: Lookup) -> Iterator[str] | list[str]:
    """Return the name of a property that is a plain value. For a nested object, return the dotted name of the nested
    field that identifies the object; empty if there is no such field.
    """
    seen = _seen(inner, lookup)
    if "items" in seen:
        seen = _seen(seen["items"], lookup)
    own = properties_of(seen, lookup)
    if not own:
        return [] if "additionalProperties" in seen else [name]
    best = next(
        (field for field in _NAMES if field in own and not properties_of(_seen(own[field], lookup), lookup)), None
    )
    return [] if best is None else [f"{name}.{best}"]


def properties_of(schema: Packed, lookup: Lookup) -> dict[str, Packed]:
    """Return the properties of an object schema, including those of its `allOf` parts and of the first alternative of
    an `anyOf` or `oneOf`.
    """
    found: dict[str, Packed] = {}
    waiting = [schema]
    for _ in range(_MAX_PARTS):  # a schema can refer to itself
        if not waiting:
            break
        seen = _seen(waiting.pop(), lookup)
        found |= {name: inner for name, inner in seen.get("properties", {}).items() if inner is not False}
        waiting += reversed(seen.get("allOf", ()))
    return found


def _seen(schema: Packed, lookup: Lookup) -> Schema:
    """Return a schema with references resolved, and with the first alternative that is not null in place of an `anyOf`
    or `oneOf`.
    """
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            try:
                schema = lookup(schema["$ref"])
            except (UnusableError, KeyError):
                return {}
        elif len(schema.get("allOf", ())) == 1 and "properties" not in schema:
            schema = schema["allOf"][0]
        elif branches := [
            branch for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())) if branch != {"type": "null"}
        ]:
            if "properties" in schema:
                return schema
            schema = branches[0]
        else:
            return schema
    return {}
