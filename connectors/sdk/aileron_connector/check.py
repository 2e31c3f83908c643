"""Validation of a value against a schema, in the subset of JSON Schema 2020-12 that packed documents use.

    problem = maybe_problem({"state": "opne"}, {"properties": {"state": {"enum": ["open", "closed"]}}}, Schemas())
    str(problem)        # '.state is not one of "open", "closed"'

Keywords: `type`, `enum`, `const`; `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`; `minLength`,
`maxLength`, `pattern`; `items`, `prefixItems`, `minItems`, `maxItems`, `uniqueItems`; `properties`, `required`,
`additionalProperties`, `minProperties`, `maxProperties`; `allOf`, `anyOf`, `oneOf`, `not`; `$ref` to `#/components/schemas/NAME`.
All other keywords, including `format`, are treated as annotations.

Runs in the jail. The schema comes from an installed document, the value from a caller or from the service: neither may take
more time or stack than MAX_CHECKS and MAX_DEPTH allow. A value that cannot be checked within these limits counts as invalid.

Rules
- A problem names the path of the value and the violated rule, never the value itself, because it goes to logs and to
  people. Names of properties may appear.
- Only the first problem is reported. If all alternatives fail, the problem of the alternative that matched furthest is
  reported, since that one was probably meant.
- `pattern` is evaluated with Python's `re`, so a document must not have patterns that mean something else there.

Source: JSON Schema 2020-12, Validation. Not here: reducing a document to these keywords (the import).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from aileron_connector.carried import LargeNumber, place_of, quoted
from aileron_connector.failures import ConnectorError

__all__ = ["MAX_CHECKS", "MAX_DEPTH", "Problem", "Reading", "Schema", "Schemas", "maybe_problem"]

if TYPE_CHECKING:
    from typing import TypedDict

    Schema = TypedDict(
        "Schema",
        {
            "$ref": str,
            "type": str | list[str],
            "enum": list[Any],
            "const": Any,
            "minimum": float,
            "maximum": float,
            "exclusiveMinimum": float,
            "exclusiveMaximum": float,
            "multipleOf": float,
            "minLength": int,
            "maxLength": int,
            "pattern": str,
            "items": "Schema | bool",
            "prefixItems": "list[Schema | bool]",
            "minItems": int,
            "maxItems": int,
            "uniqueItems": bool,
            "properties": "dict[str, Schema | bool]",
            "required": list[str],
            "additionalProperties": "Schema | bool",
            "minProperties": int,
            "maxProperties": int,
            "allOf": "list[Schema | bool]",
            "anyOf": "list[Schema | bool]",
            "oneOf": "list[Schema | bool]",
            "not": "Schema | bool",
            "title": str,
            "description": str,
            "default": Any,
            "example": Any,
            "format": str,
            "contentEncoding": str,
            "contentMediaType": str,
            "readOnly": bool,
            "$comment": str,
        },
        total=False,
    )
else:
    # A schema is decoded as it is: msgspec would leave out the keywords that a TypedDict does not name.
    Schema = dict[str, Any]

MAX_CHECKS: Final = 1_000_000
"""Maximum number of checks, each of one value against one schema. They take about a second; an answer of 1 MiB takes a
twentieth of that. The bound stops nested alternatives, whose number doubles with every level.
"""
MAX_DEPTH: Final = 192
"""Maximum depth of nested schemas. A value has at most 64 levels, as a frame does; each level may take a `$ref` and an
`allOf`.
"""

_PREFIX: Final = "#/components/schemas/"
_MAX_SHOWN: Final = 200
"""Maximum number of characters of allowed values, or of a pattern, that a problem quotes from the schema."""


class Schemas:
    """The named schemas of a document. Each is decoded when it is first used.

    `search` is a function that searches a text for a pattern. The default, Python's `re`, can take very long, so it is
    only for processes that a deadline ends.
    """

    def __init__(
        self, raw: Mapping[str, msgspec.Raw] | None = None, *, search: Callable[[str, str], object] = re.search
    ) -> None:
        self._raw: Final = raw or {}
        self.search: Final = search
        self._known: Final[dict[str, Schema | bool]] = {}

    def at(self, reference: str) -> Schema | bool:
        """Return the schema to which `#/components/schemas/NAME` refers. Raises ConnectorError if the document is broken
        and has no such schema.
        """
        if reference not in self._known:
            raw = self._raw.get(reference.removeprefix(_PREFIX)) if reference.startswith(_PREFIX) else None
            if raw is None:
                raise ConnectorError("connector_runtime_error", f"the document has no schema {reference[:200]!r}")
            self._known[reference] = msgspec.json.decode(raw)
        return self._known[reference]

    def resolved(self, schema: Schema | bool) -> Schema:
        """Return a schema whose top-level reference, if there is one, is replaced by its target. The schema `true`
        becomes {}.
        """
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict):
                return {}
            if "$ref" not in schema:
                return schema
            schema = self.at(schema["$ref"])
        return {}


class Problem(NamedTuple):
    """A violation of a schema by a value: the path of the invalid value, and the violated rule. As text:
    `.items[3].state is not a string`.
    """

    path: tuple[str | int, ...]
    words: str
    is_of_kind: bool = False
    """True if the value has a wrong type, or a wrong value in a property that distinguishes alternatives; that
    alternative was then not meant.
    """
    missing: str | None = None
    """Name of the missing property, if a missing property is the problem."""

    @property
    def place(self) -> str:
        """Path of the invalid value as text; empty for the checked value itself."""
        return place_of(self.path)

    def below(self, step: str | int) -> Problem:
        """Return this problem as seen from the containing value: the path begins with `step`, a property's name or an
        index.
        """
        return self._replace(path=(step, *self.path))

    def __str__(self) -> str:
        return f"{self.place or 'the value'} {self.words}"


def maybe_problem(
    value: Any, schema: Schema | bool, schemas: Schemas, *, reading: Reading = "schema"
) -> Problem | None:
    """Return the first problem of `value`, or None if it is valid. `reading` is the role in which the value is checked
    (see Reading).
    """
    try:
        return _Check(schemas, reading).problem(value, schema, 0)
    except _TooMuchError as error:
        return Problem((), str(error))


Reading = Literal["schema", "argument", "answer"]
"""Role in which a value is checked.

`schema`: strictly by JSON Schema. `argument`: as `schema`, but 1.0 is not an integer, because many services refuse it.
`answer`: properties may be missing or null (Swagger 2.0 cannot express null), additional ones may be present, a value
need not be listed in `enum` and `const` and may match several schemas of `oneOf`, and `not` is ignored.

Services add properties without notice, and require properties that they do not send: 22% of the examples in GitHub's own
document do not fit it strictly, and 13% in Jira's. Checked as answers, 7% and 4% do not fit, and most of those are examples
of something else. An answer with the documented types is useful, and an error would hide that the request was executed.
"""


class _TooMuchError(Exception):
    """Error: MAX_CHECKS or MAX_DEPTH is exceeded. It ends the whole validation, not only that of one alternative."""


class _Check:
    """A check of one value against a schema, with the number of checks that are left."""

    def __init__(self, schemas: Schemas, reading: Reading) -> None:
        self.schemas: Final = schemas
        self.is_argument: Final = reading == "argument"
        self._rules: Final = _RULES_OF_ANSWERS if reading == "answer" else _RULES
        self._left = MAX_CHECKS

    def spend(self, checks: int) -> None:
        """Count this number of further checks. Raises _TooMuchError if there are more than MAX_CHECKS in all."""
        self._left -= checks
        if self._left < 0:
            raise _TooMuchError(f"takes more than {MAX_CHECKS} checks")

    def problem(self, value: Any, schema: Schema | bool, depth: int) -> Problem | None:
        if schema is True:
            return None
        if schema is False:
            return Problem((), "is not allowed here", is_of_kind=True)
        self.spend(1)
        if depth > MAX_DEPTH:
            raise _TooMuchError(f"is nested deeper than {MAX_DEPTH} levels")
        if "type" in schema and (wrong := _type(self, value, schema, depth)) is not None:
            return wrong
        for keyword in schema:
            rule = self._rules.get(keyword)
            if rule is not None and (wrong := rule(self, value, schema, depth)) is not None:
                return wrong
        return None


_Rule = Callable[[_Check, Any, Schema, int], Problem | None]


# Any value


def _type(check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    wanted = schema["type"]
    kind = _KINDS.get(type(value), "")
    if kind == wanted or (wanted == "number" and kind == "integer"):
        return None
    names = [wanted] if isinstance(wanted, str) else wanted
    if kind in names or (kind == "integer" and "number" in names):
        return None
    if kind == "number" and "integer" in names and not check.is_argument and value.is_integer():
        return None
    return Problem((), f"is not {' or '.join(_ARTICLES.get(name, name) for name in names)}", is_of_kind=True)


_KINDS: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    LargeNumber: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_ARTICLES: Final = {
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def _enum(check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    allowed = schema["enum"]
    check.spend(len(allowed) // 16)  # most comparisons are cheap
    if any(_is_same(check, value, choice) for choice in allowed):
        return None
    return Problem((), f"is not one of {_listed(allowed)}", is_of_kind=True)


def _const(check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    if _is_same(check, value, schema["const"]):
        return None
    return Problem((), f"is not {_listed([schema['const']])}", is_of_kind=True)


def _ref(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    return check.problem(value, check.schemas.at(schema["$ref"]), depth + 1)


# Numbers


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _minimum(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    least = schema["minimum"]
    return Problem((), f"is less than {least}") if _is_number(value) and value < least else None


def _maximum(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    most = schema["maximum"]
    return Problem((), f"is more than {most}") if _is_number(value) and value > most else None


def _exclusive_minimum(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    bound = schema["exclusiveMinimum"]
    return Problem((), f"is not more than {bound}") if _is_number(value) and value <= bound else None


def _exclusive_maximum(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    bound = schema["exclusiveMaximum"]
    return Problem((), f"is not less than {bound}") if _is_number(value) and value >= bound else None


def _multiple_of(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    unit = schema["multipleOf"]
    if not _is_number(value) or _is_multiple(value, unit):
        return None
    return Problem((), f"is not a multiple of {unit}")


def _is_multiple(value: float, unit: float) -> bool:
    if type(unit) is int and unit:
        return value % unit == 0
    try:
        quotient = value / unit
    except (OverflowError, ZeroDivisionError):
        return False
    # 19.99 is a multiple of 0.01, but their quotient is 1998.9999999999998: rounding of binary fractions is no reason to refuse.
    return math.isfinite(quotient) and abs(quotient - round(quotient)) <= 1e-9 * max(1.0, abs(quotient))


# Strings


def _min_length(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    least = schema["minLength"]
    return _shorter("character", least) if type(value) is str and len(value) < least else None


def _max_length(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    most = schema["maxLength"]
    return _longer("character", most) if type(value) is str and len(value) > most else None


def _pattern(check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    if type(value) is not str:
        return None
    pattern = schema["pattern"]
    try:
        found = check.schemas.search(pattern, value)  # compiled once: `re` keeps the latest 512
    except (re.error, OverflowError, RecursionError):
        return Problem((), "has a pattern that cannot be read")
    return None if found else Problem((), f"does not match the pattern {_bounded(pattern)}")


# Arrays


def _prefix_items(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    if type(value) is list:
        for index, (member, rule) in enumerate(zip(value, schema["prefixItems"], strict=False)):
            if (wrong := check.problem(member, rule, depth + 1)) is not None:
                return wrong.below(index)
    return None


def _items(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    if type(value) is list:
        rule = schema["items"]
        for index in range(len(schema.get("prefixItems", ())), len(value)):
            if (wrong := check.problem(value[index], rule, depth + 1)) is not None:
                return wrong.below(index)
    return None


def _min_items(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    least = schema["minItems"]
    return _shorter("member", least) if type(value) is list and len(value) < least else None


def _max_items(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    most = schema["maxItems"]
    return _longer("member", most) if type(value) is list and len(value) > most else None


def _unique_items(check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    if (
        schema["uniqueItems"]
        and type(value) is list
        and len({_frozen(check, member, 0) for member in value}) < len(value)
    ):
        return Problem((), "has the same member twice")
    return None


# Objects


def _properties(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    if type(value) is dict:
        for name, rule in schema["properties"].items():
            if name in value and (wrong := check.problem(value[name], rule, depth + 1)) is not None:
                return wrong.below(name)
    return None


def _required(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    if type(value) is dict:
        for name in schema["required"]:
            if name not in value:
                return Problem((), f"has no {quoted(name)}", missing=name)
    return None


def _additional_properties(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    rule = schema["additionalProperties"]
    if type(value) is not dict or rule is True:
        return None
    known = schema.get("properties", {})
    for name in value:
        if name not in known and (wrong := check.problem(value[name], rule, depth + 1)) is not None:
            return wrong.below(name)
    return None


def _min_properties(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    least = schema["minProperties"]
    return _shorter("property", least) if type(value) is dict and len(value) < least else None


def _max_properties(_check: _Check, value: Any, schema: Schema, _depth: int) -> Problem | None:
    most = schema["maxProperties"]
    return _longer("property", most) if type(value) is dict and len(value) > most else None


# Schemas of schemas


def _all_of(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    for branch in schema["allOf"]:
        if (wrong := check.problem(value, branch, depth + 1)) is not None:
            return wrong
    return None


def _any_of(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    problems = []
    for branch in schema["anyOf"]:
        wrong = check.problem(value, branch, depth + 1)
        if wrong is None:
            return None
        problems.append(wrong)
    return _furthest(problems)


def _one_of(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    branches, problems = schema["oneOf"], []
    for branch in branches:
        wrong = check.problem(value, branch, depth + 1)
        if wrong is not None:
            problems.append(wrong)
    fitting = len(branches) - len(problems)
    if fitting > 1:
        return Problem((), f"fits {fitting} of {len(branches)} alternatives, of which it must fit one")
    return None if fitting else _furthest(problems)


def _not(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    if check.problem(value, schema["not"], depth + 1) is None:
        return Problem((), "is what the schema excludes")
    return None


def _furthest(problems: list[Problem]) -> Problem:
    """Return, of the problems that a value has with several alternatives of a schema, the problem with the alternative
    that was probably meant.

    An alternative was not meant if its type, or the property that distinguishes alternatives, does not match. Of the
    other alternatives, the one that fails at the deepest level was probably meant.
    """
    if not problems:
        return Problem((), "has no alternative to fit")
    furthest = max(
        problems, key=lambda problem: (not (problem.is_of_kind and len(problem.path) < 2), len(problem.path))
    )
    if len(problems) == 1:
        return furthest
    # Another alternative may not need the property that this one misses.
    return furthest._replace(words=f"{furthest.words} (closest of {len(problems)} alternatives)", missing=None)


_RULES: Final[dict[str, _Rule]] = {
    "enum": _enum,
    "const": _const,
    "$ref": _ref,
    "minimum": _minimum,
    "maximum": _maximum,
    "exclusiveMinimum": _exclusive_minimum,
    "exclusiveMaximum": _exclusive_maximum,
    "multipleOf": _multiple_of,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "prefixItems": _prefix_items,
    "items": _items,
    "minItems": _min_items,
    "maxItems": _max_items,
    "uniqueItems": _unique_items,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional_properties,
    "minProperties": _min_properties,
    "maxProperties": _max_properties,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
}
"""The checking function of each keyword. `type` is not listed, because it is always checked first, and no other problem
is reported for a value of the wrong type.
"""


def _properties_of_answer(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    return _properties(check, _without_null(value), schema, depth)


def _additional_of_answer(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    if schema["additionalProperties"] is False:
        return None
    return _additional_properties(check, _without_null(value), schema, depth)


def _without_null(value: Any) -> Any:
    """Return an object without its null properties, because in an answer null counts as missing."""
    if type(value) is dict and None in value.values():
        return {name: inner for name, inner in value.items() if inner is not None}
    return value


def _one_of_answer(check: _Check, value: Any, schema: Schema, depth: int) -> Problem | None:
    return _any_of(check, value, {"anyOf": schema["oneOf"]}, depth)


_RULES_OF_ANSWERS: Final[dict[str, _Rule]] = {
    keyword: rule for keyword, rule in _RULES.items() if keyword not in ("required", "not", "enum", "const")
} | {"properties": _properties_of_answer, "additionalProperties": _additional_of_answer, "oneOf": _one_of_answer}
"""Rules for the role `answer`, none stricter than in `_RULES`. `not` is left out: it would turn the more tolerant
checks inside it into stricter ones.
"""


# Equality as JSON Schema defines it: 1 equals 1.0, and neither equals true


def _is_same(check: _Check, value: Any, other: Any) -> bool:
    if isinstance(value, list | dict) or isinstance(other, list | dict):
        return (
            type(value) is type(other)
            and len(value) == len(other)
            and _frozen(check, value, 0) == _frozen(check, other, 0)
        )
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def _frozen(check: _Check, value: Any, depth: int) -> Any:
    """Return a hashable copy of a JSON value. Copies of equal values are equal, and copies of true and 1 are not."""
    check.spend(1)
    if depth > MAX_DEPTH:
        raise _TooMuchError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple([_frozen(check, member, depth + 1) for member in value]))
    if isinstance(value, dict):
        return (dict, frozenset([(name, _frozen(check, member, depth + 1)) for name, member in value.items()]))
    return value


# Words


def _listed(allowed: list[Any]) -> str:
    return _bounded(", ".join(map(_as_json, allowed)))


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _shorter(what: str, least: int) -> Problem:
    return Problem((), f"has fewer than {_count(what, least)}")


def _longer(what: str, most: int) -> Problem:
    return Problem((), f"has more than {_count(what, most)}")


def _count(what: str, number: int) -> str:
    plural = "properties" if what == "property" else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
