"""Rules for an action's arguments: read from `[[inputs]]`, shown to a model, and used to check a call.

Pure. A rule is a JSON Schema (2020-12) made only of the keywords below. Unknown keywords are refused, so that
everything shown to a model is also enforced. Patterns are RE2's, which take linear time, because rule and text are
untrusted.

Rules
- A scalar's rule is in separate keys (`enum`, `pattern`, `minimum` …); the rule of an array or object is `schema`.
- A default must fit the input's rule; an input with a default always has a value.
- If a value does not fit a pattern, the error has the input's description, which says in words what to write.
- A rule is narrower than another if it accepts nothing that the other refuses. It counts as narrower only if a comparison
  keyword by keyword shows this.

Source: docs/reference/action-file.md; JSON Schema 2020-12, Validation; https://github.com/google/re2/wiki/Syntax. Not here:
which keys a file may have (manifest.py), the consent that a wider rule needs (widening.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aileron.model.canonical import canonical_json
from aileron.model.document import MAX_NUMBER, Table
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of
from aileron.model.manifest import InputSpec
from aileron.model.near import did_you_mean

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = [
    "EXPECTED",
    "MAX_CHOICES",
    "MAX_LENGTH",
    "MAX_PATTERN",
    "SCALAR_KEYS",
    "argument_problem",
    "fragment",
    "is_narrower",
    "rule_problem",
    "scalar_rule",
    "schema_rule",
]

_FITS: Final[dict[str, tuple[str, ...]]] = {
    "enum": ("string", "integer", "number"),
    "pattern": ("string",),
    "minimum": ("integer", "number"),
    "maximum": ("integer", "number"),
    "minLength": ("string",),
    "maxLength": ("string",),
}
"""JSON Schema keywords that the rule of a scalar input can have, each with the input types that can have it."""
_SPELLED: Final = {"minLength": "min_length", "maxLength": "max_length"}
"""JSON Schema keywords that have another name in an action file, each with that name."""
SCALAR_KEYS: Final = tuple(_SPELLED.get(keyword, keyword) for keyword in _FITS)
"""Keys of an `[[inputs]]` entry that state the rule of a scalar input."""
MAX_CHOICES: Final = 256
"""Maximum number of values in an `enum`: enough for all countries or all currencies, the longest lists that people
choose from.
"""
MAX_PATTERN: Final = 512
"""Maximum number of characters in a pattern; the complete pattern of RFC 5322's address has fewer than 450."""
_MAX_RULE_BYTES: Final = 16 << 10
"""16 KiB: maximum size of a rule, because each tool's schema takes space in a model's context."""
_MAX_PROPERTIES: Final = 64
"""Maximum number of properties in an object; forms that people fill in have fewer than half as many."""
MAX_LENGTH: Final = 1 << 20
"""Largest number that a rule can give as a length or a number of items; all arguments of a step together have at most 48 KiB."""
_MAX_DEPTH: Final = 32
"""Maximum number of nested levels in an argument's value: twice what a rule can describe."""
_SHOWN: Final = 200
"""Maximum number of characters that an error message quotes of the path to a refused value. The same limit applies to
the value that the violated keyword has in the rule.
"""
_DESCRIBED: Final = 500
"""Maximum number of characters that an error message about a pattern quotes of the input's description; the inputs of other
tools have shorter descriptions.
"""

EXPECTED: Final = {
    "string": "a string",
    "integer": "an integer below 2**53",
    "number": "a number below 2**53",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
}
"""Text for the expected type, for an error about a missing value or a value of another type."""
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_LOWER: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_WORDS: Final = frozenset({"title", "description"})
_KEYWORDS: Final = frozenset(
    {"type", "enum", "const", "pattern", "properties", "required", "additionalProperties", "items", "uniqueItems"}
    | _LOWER
    | _UPPER
    | _WORDS
)


# Read from a file


def scalar_rule(entry: Table, kind: str) -> JSONObject:
    """Return the rule of a scalar input, from the keys of its `[[inputs]]` entry; empty if the entry has no rule.

    Raises AileronError with file and line if it is invalid.
    """
    rule = {keyword: entry.value(key) for keyword, key in zip(_FITS, SCALAR_KEYS, strict=True) if key in entry}
    for keyword in rule:
        if kind not in _FITS[keyword]:
            raise entry.refuse(_spelled(keyword), f"{_spelled(keyword)} does not apply to an input of type {kind!r}")
    try:
        _check({"type": kind, **rule}, "", _spelled)
    except ValueError as error:
        raise entry.refuse(None, f"input {entry.string('name')!r}: {error}") from None
    return rule


def schema_rule(entry: Table, kind: str) -> JSONObject:
    """Return the rule of an array or object input, from its `schema`. Raises AileronError with file and line if it is invalid."""
    rule = {key: value for key, value in entry.free("schema").items() if key != "type"}
    try:
        if entry.free("schema").get("type", kind) != kind:
            raise ValueError(f"schema.type differs from the input's type, {kind!r}")
        _check({"type": kind, **rule}, "")
        if len(canonical_json(rule)) > _MAX_RULE_BYTES:
            raise ValueError(f"schema is larger than {_MAX_RULE_BYTES} bytes")
    except ValueError as error:
        raise entry.refuse("schema", f"input {entry.string('name')!r}: {error}") from None
    return rule


def rule_problem(rule: JSONObject, *, most_bytes: int = _MAX_RULE_BYTES) -> str | None:
    """Return why `rule`, which includes the type, cannot be the rule of an input; None if it can.

    `most_bytes` is the size limit. It can be larger than that of an action file if the rule is made smaller later.
    """
    try:
        _check(rule, "")
    except ValueError as error:
        return str(error)
    size = len(canonical_json(rule))
    return f"its schema is larger than {most_bytes} bytes" if size > most_bytes else None


def _spelled(keyword: str) -> str:
    return _SPELLED.get(keyword, keyword)


def _check(schema: Any, at: str, spelled: Callable[[str], str] = str) -> None:
    """Raise ValueError unless `schema` has only known keywords with valid values.
    The reader of the document has limited the schema's depth.

    `spelled` returns the file's spelling of a keyword.
    """
    if not isinstance(schema, dict):
        raise ValueError(f"schema{at} is not a table")
    for keyword, value in schema.items():
        if keyword not in _KEYWORDS:
            hint = did_you_mean(keyword, _KEYWORDS, f"known: {', '.join(sorted(_KEYWORDS))}")
            raise ValueError(f"schema{at} has {keyword!r}, which is not supported; {hint}")
        if problem := _keyword_problem(keyword, value):
            raise ValueError(f"{spelled(keyword)}{at} {problem}")
    if "type" not in schema and not {"enum", "const"} & schema.keys():
        raise ValueError(f"schema{at} has no type, enum or const, so it would accept anything")
    _check_order(schema, at, spelled)
    for name, inner in schema.get("properties", {}).items():
        _check(inner, f"{at}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            _check(schema[keyword], f"{at}[{keyword}]")


def _keyword_problem(keyword: str, value: Any) -> str | None:
    match keyword:
        case "type":
            return None if value in _TYPES else f"is not one of {', '.join(_TYPES)}"
        case "enum":
            return _enum_problem(value)
        case "pattern":
            return _pattern_problem(value)
        case "required":
            is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
            return None if is_list and len(set(value)) == len(value) else "is not a list of unique names"
        case "properties":
            is_fine = isinstance(value, dict) and len(value) <= _MAX_PROPERTIES
            return None if is_fine else f"is not a table of at most {_MAX_PROPERTIES} entries"
        case "items":
            return None if isinstance(value, dict) else "is not a schema"
        case "additionalProperties":
            return None if isinstance(value, bool | dict) else "is not true, false or a schema"
        case "uniqueItems":
            return None if isinstance(value, bool) else "is not true or false"
        case "title" | "description":
            return None if isinstance(value, str) else "is not a string"
        case "const":
            return None
        case _ if keyword in _COUNTS:
            return None if _is_integer(value) and 0 <= value <= MAX_LENGTH else f"is not between 0 and {MAX_LENGTH}"
        case _:
            return None if _is_number(value) else "is not a number"


def _enum_problem(value: Any) -> str | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHOICES:
        return f"is not a list of 1 to {MAX_CHOICES} values"
    return None if len({canonical_json(choice) for choice in value}) == len(value) else "contains a value twice"


def _pattern_problem(value: Any) -> str | None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_PATTERN:
        return f"is not a string of 1 to {MAX_PATTERN} characters"
    import re2

    try:
        _compiled(value)
    except re2.error as error:
        return f"is not valid RE2 syntax: {_told(error)}"
    return None


def _told(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _number_of(value: JSON) -> float:
    """Return `value` unchanged, typed as a number for the type checker. `_keyword_problem` has already checked its type."""
    assert isinstance(value, int | float)
    return value


def _check_order(schema: JSONObject, at: str, spelled: Callable[[str], str]) -> None:
    """Raise ValueError if no value could fit `schema`: if a lower bound is above the upper bound, an enum value has
    another type, or a required property is not described.
    """
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
        if low in schema and high in schema and _number_of(schema[low]) > _number_of(schema[high]):
            raise ValueError(f"{spelled(low)}{at} is above {spelled(high)}, so no value fits")
    if "type" in schema:
        is_of_type = _IS_OF_TYPE[str(schema["type"])]
        for value in list_of(schema.get("enum")):
            if not is_of_type(value):
                raise ValueError(f"enum{at} has a value that is not of type {schema['type']!r}")
    properties = dict_of(schema.get("properties"))
    missing = [name for name in list_of(schema.get("required")) if name not in properties]
    if missing and schema.get("additionalProperties") is False:
        raise ValueError(f"required{at} names {missing[0]!r}, which is not in properties")


# Checked against a call


def fragment(kind: str, rule: Mapping[str, JSON]) -> JSONObject:
    """Return an input's rule and type as a JSON Schema, which is shown to a model and used to check values."""
    return {"type": kind, **rule}


def argument_problem(spec: InputSpec, value: object) -> str | None:
    """Return the error text for a value that does not fit the input, or None. It states the expected and the actual
    form, but not the value.

    The value is not quoted because it may be long or private.
    """
    if not _IS_OF_TYPE[spec.type](value):
        hint = "; leave an optional input out" if value is None and not spec.required else ""
        return f"{_found(value)}; expected {EXPECTED[spec.type]}{hint}"
    problem = _rule_problem(spec.type, spec.rule, value)
    if problem is not None and "pattern" in spec.rule:  # a pattern says what is wrong, but hardly what to write instead
        return f"{problem}; expected: {spec.description[:_DESCRIBED]}"
    return problem


def _found(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string that is not valid Unicode" if not _is_text(value) else "a string"
        case int():
            return "an integer" if abs(value) <= MAX_NUMBER else "an integer of 2**53 or more"
        case float():
            return "a number with a fraction or exponent" if _is_number(value) else "not finite, or 2**53 or more"
        case list():
            return "an array"
        case _:
            return "an object"


def _rule_problem(kind: str, rule: Mapping[str, JSON], value: Any) -> str | None:
    """Return why a value of the right type breaks `rule`, or None. The text names the keyword and the place, never the
    value.
    """
    if not rule and kind not in ("array", "object"):
        return None
    if (unsayable := next(_unsayable(value), None)) is not None:
        return unsayable
    error = next(_validator(canonical_json(fragment(kind, rule))).iter_errors(value), None)
    if error is None:
        return None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{where[:_SHOWN] or 'it'} {_words(str(error.validator), error.validator_value, error.instance)}"


def _words(keyword: str, rule: Any, value: Any) -> str:
    said = canonical_json(rule).decode()[:_SHOWN]
    match keyword:
        case "type":
            return f"is not of type {rule}"
        case "enum":
            return f"is not one of {said}"
        case "required":
            missing = [name for name in rule if name not in value]
            return f"has no {missing[0]!r}"
        case "additionalProperties":
            return "has an unknown key"
        case "uniqueItems":
            return "contains a value twice"
        case _:
            return f"does not fit {keyword} {said}"  # in the spelling that the model was shown


def _unsayable(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the problems of a value that canonical JSON cannot express: numbers out of range, text that is not valid Unicode, or
    nesting deeper than _MAX_DEPTH.
    """
    match value:
        case dict() | list() if depth == _MAX_DEPTH:
            yield f"it is nested deeper than {_MAX_DEPTH} levels"
        case dict():
            for name, member in value.items():
                yield from _unsayable(name)
                yield from _unsayable(member, depth + 1)
        case list():
            for member in value:
                yield from _unsayable(member, depth + 1)
        case str():
            if not _is_text(value):
                yield "a string in it is not valid Unicode"
        case bool() | None:
            return
        case _:
            if not _is_number(value):
                yield "a number in it is not finite, or 2**53 or more"


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Validator:
    """Return the validator for a schema, which is given as canonical JSON."""
    import msgspec

    return _dialect()(msgspec.json.decode(schema))


@functools.cache
def _dialect() -> Any:
    """Return jsonschema's validator class with two changes: patterns are RE2's, and 1.0 is not an integer."""
    import jsonschema

    return jsonschema.validators.extend(
        jsonschema.Draft202012Validator,
        {"pattern": _hold_pattern},
        type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
            {"integer": lambda _, value: _is_integer(value), "number": lambda _, value: _is_number(value)}
        ),
    )


def _hold_pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Exception]:
    import jsonschema

    if isinstance(value, str) and _compiled(pattern).search(value) is None:
        yield jsonschema.ValidationError("pattern")


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False  # else it writes to the standard error of the daemon
    options.max_mem = 1 << 20
    return re2.compile(pattern, options)


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON's \u escapes can spell
        return False
    return True


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_NUMBER  # false for NaN


_IS_OF_TYPE: Final[dict[str, Callable[[object], bool]]] = {
    "string": _is_text,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


# Compared with another


def is_narrower(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> bool:
    """Return whether every value that the rule `after` accepts was accepted by the rule `before`. Keywords are compared one by
    one, so the result can be False although no further value is accepted.
    """
    return all(_holds_as_much(keyword, before, after) for keyword in before)


def _holds_as_much(keyword: str, before: Mapping[str, JSON], after: Mapping[str, JSON]) -> bool:
    if keyword in _WORDS:
        return True
    if keyword not in after:
        return False
    value, now = before[keyword], after[keyword]
    if keyword in _LOWER:
        return _number_of(now) >= _number_of(value)
    if keyword in _UPPER:
        return _number_of(now) <= _number_of(value)
    if keyword == "enum":
        return set(map(canonical_json, list_of(now))) <= set(map(canonical_json, list_of(value)))
    if keyword == "required":
        return set(map(str, list_of(value))) <= set(map(str, list_of(now)))
    if keyword == "uniqueItems":
        return bool(now or not value)
    if keyword == "additionalProperties" and value is not True:  # the additional ones depend on `properties`
        return _is_same(now, value) and _is_same(after.get("properties"), before.get("properties"))
    return _is_same(now, value)


def _is_same(value: Any, other: Any) -> bool:
    return canonical_json(value) == canonical_json(other)
