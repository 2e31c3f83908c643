"""Conversion of a packed schema to the rule of an action's input, which has fewer keywords and is never wider.

An input's rule has one type and no references, choices or negations (actions/inputs.py). So a rule accepts only a part of what
the schema accepts: one branch of a choice, a nullable value but not null, only the properties of an object that can be
expressed. If a required part cannot be expressed, there is no rule and the operation is not imported. With a rule wider
than the document, a person could be asked about a call that cannot work. Optional parts that the rule does not accept
are listed.

If the schema leaves a choice, the document's own examples decide: of several branches, the one that accepts the examples is used;
a value without a type gets that of the examples; undescribed or read-only properties are used if the examples have them.

Before sending, the connector checks again that a value fits the complete schema. So one branch of a `oneOf` whose branches
overlap can be used here, because the connector refuses a value that fits two branches.

Pure. Source: docs/reference/action-file.md (Arrays and objects); JSON Schema 2020-12. Not here: inputs and their words
(operations.py), making a rule smaller (shrinking.py).
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from aileron.actions.inputs import MAX_CHOICES, MAX_LENGTH, argument_problem, rule_problem
from aileron.importing.reading import DocumentError
from aileron.importing.schemas import MARK, Packed, UnusableError, kept, words_of_none
from aileron.importing.words import is_visible, line
from aileron.model.document import MAX_NUMBER
from aileron.model.json_value import JSONObject
from aileron.model.manifest import InputSpec, InputType
from aileron_connector.check import Schema

__all__ = [
    "Lost",
    "Rule",
    "Rules",
    "Taken",
    "inner_rule",
    "input_type",
    "is_taken",
    "json_of",
    "offered",
    "size_of",
    "values_by_name",
]

Rule: TypeAlias = Schema
"""The rule of an input: a schema with a single type."""
Values = Sequence[Any]
"""Examples of the value that a rule describes."""

if TYPE_CHECKING:

    class Form(Schema, total=False):
        """A schema without references and choices. `refs` are the names of the references that were followed to reach it."""

        refs: tuple[str, ...]
else:
    Form = Schema

MAX_DEPTH: Final = 6
"""Maximum depth of nested objects; agents seldom need deeper ones, and TOML is read at most 16 brackets deep."""
_MAX_PROPERTIES: Final = 64
_MAX_WORDS: Final = 120
"""Maximum number of characters of a description within an input."""
_MAX_BYTES: Final = 128 << 10
"""128 KiB: maximum size of a rule before it is shrunk, eight times what an action can have."""
_MAX_NESTED: Final = 15
"""Maximum depth of nested tables and lists. TOML is read at most 16 brackets deep, and the input is already in one."""
_MAX_USED: Final = 50
"""Maximum number of examples of one value that are considered."""
_MAX_NAMED: Final = 5
"""Maximum number of properties named in the sentence about alternatives of an object that are not offered."""
_MAX_ALTERNATIVES: Final = 128
"""Maximum number of alternatives of one schema, because nested choices multiply."""
_COMBINING: Final = ("$ref", "allOf", "anyOf", "oneOf")
_MAX_STEPS: Final = 200_000
"""Maximum number of schemas and their members that are processed for one rule, because nested choices multiply."""
_MAX_ALL_STEPS: Final = 5_000_000
"""Maximum number of schemas and members for all rules of an import: about twenty seconds, five times any known document."""
_MAX_TRIED: Final = 1 << 20
"""1 MiB: maximum size of rules and examples that are compared for one rule, about two seconds."""
_MAX_ALL_TRIED: Final = 16 << 20
"""16 MiB: maximum for all rules of an import, several times what known documents take. Beyond it, examples are ignored."""
_MAX_WITHIN: Final = 120
"""Maximum depth of schemas within schemas, including those behind references."""
_PREFERRED: Final[tuple[str, ...]] = ("object", "array", "string", "number", "integer", "boolean")
"""Types in the order of preference: if a schema has several, the one with the most information is used."""
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
    "boolean": (),
}
_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_HINTS: Final[Mapping[str, str]] = {
    "properties": "object",
    "additionalProperties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "pattern": "string",
    "minLength": "string",
    "maxLength": "string",
    "minimum": "number",
    "maximum": "number",
}
"""Keywords from which the type of a schema is inferred if the schema does not state it."""


def size_of(value: Any) -> int:
    """Return the size of a value as JSON in bytes, which is about the amount that a model reads."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def json_of(schema: Schema) -> JSONObject:
    """Return `schema` itself, typed as a JSON object. Nothing is copied or converted."""
    value: Any = schema
    found: JSONObject = value
    return found


def _check(rule: Rule) -> None:
    if (problem := rule_problem(json_of(rule), most_bytes=_MAX_BYTES)) is not None:
        raise UnusableError(problem)


class _TooMuchError(Exception):
    """Error: comparing the rules of a value with its examples takes too long."""


class Lost(msgspec.Struct, frozen=True):
    """An optional part that a rule does not accept. `at` is its place in the value, such as `.lines[].account`."""

    at: str
    reason: str


class Taken(msgspec.Struct, frozen=True):
    """A rule, and the optional parts that it does not accept."""

    rule: Rule
    lost: tuple[Lost, ...]


def inner_rule(schema: Packed) -> Rule:
    """Return a nested rule as a mapping; rules, unlike schemas, are never `True` or `False`."""
    assert not isinstance(schema, bool)
    return schema


def input_type(rule: Rule) -> InputType:
    """Return the single type of a rule."""
    found: Any = rule["type"]
    kind: InputType = found
    return kind


def is_taken(rule: Rule, value: Any) -> bool:
    """Return whether the rule of an input allows this value as an argument."""
    spec = InputSpec(name="value", type=input_type(rule), description="", rule=json_of(rule))
    return argument_problem(spec, value) is None


def _nested(value: Any) -> int:
    """Return the nesting depth of tables and lists in a value."""
    if isinstance(value, dict):
        return 1 + max(map(_nested, value.values()), default=0)
    return 1 + max(map(_nested, value), default=0) if isinstance(value, list) else 0


class Rules:
    """The rules for all schemas of one import. `lookup` returns a named schema, or raises UnusableError."""

    def __init__(self, lookup: Callable[[str], Packed]) -> None:
        self._lookup: Final = lookup
        self._known: Final[dict[int, tuple[Any, Taken | str]]] = {}
        """The rule of each schema, or why there is none; cached, because many operations share a schema."""
        self._lost: list[Lost] = []
        self._least_depth = 0
        self._steps = 0
        self._all_steps = 0
        self._within = 0
        self._tried = 0
        self._all_tried = 0

    def taken(self, schema: Packed, used: Values = ()) -> Taken:
        """Return the widest rule for an input that is not wider than the schema, and the parts of the schema that the
        rule leaves out. `used` has the document's examples of the value. If the rule is too large, its deepest parts
        are left out. Raises UnusableError if there is no such rule.
        """
        if used and self._all_tried < _MAX_ALL_TRIED:
            self._tried = 0
            return self._made(schema, used[:_MAX_USED])
        known = self._known.get(id(schema))
        if known is None:
            try:
                made: Taken | str = self._made(schema, ())
            except UnusableError as error:
                made = str(error)
            # The entry keeps the schema itself: while that exists, no other object has its id.
            known = self._known[id(schema)] = (schema, made)
        if isinstance(known[1], str):
            raise UnusableError(known[1])
        return known[1]

    def _made(self, schema: Packed, used: Values) -> Taken:
        problem: UnusableError | None = None
        smallest: Taken | None = None
        for depth in range(MAX_DEPTH, -1, -1):
            self._steps, self._lost, self._least_depth = 0, [], depth - MAX_DEPTH
            try:
                made = self._rule(schema, depth, (), used, "")
            except UnusableError as error:
                problem = problem or error
                continue
            except _TooMuchError:
                break
            smallest = Taken(made, tuple(self._lost))
            if size_of(made) <= _MAX_BYTES and _nested(made) <= _MAX_NESTED:
                _check(made)
                return smallest
        if used:  # the examples take too long to try, or are nested too deep: ignore them
            return self._made(schema, ())
        if smallest is None:
            raise problem or UnusableError("it has no value")
        _check(smallest.rule)
        return smallest

    def object_of(self, schema: Packed, used: Values) -> tuple[Form | None, str]:
        """Return the alternative of a request body's schema that is an object, so that its properties can be given one
        by one, and text about the other alternatives.

        References in the alternative are resolved. The first item of the result is None if the body is not an object
        with properties, or its examples are not objects.
        """
        self._steps, self._lost, self._least_depth, self._tried = 0, [], 0, 0
        used = used if self._all_tried < _MAX_ALL_TRIED else ()
        found = self._possible(schema, (), used)
        chosen = next((form for form in found if _type_of(form) == "object" and form.get("properties")), None)
        if used and len(found) > 1:
            with contextlib.suppress(UnusableError, _TooMuchError):
                _, chosen = self._best(found, MAX_DEPTH, (), used[:_MAX_USED], "")
            if chosen is not None and not (_type_of(chosen) == "object" and chosen.get("properties")):
                chosen = None
        self._lost = []
        return chosen, "" if chosen is None else _others(found, chosen)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        self._all_steps += steps
        if self._all_steps > _MAX_ALL_STEPS:
            raise DocumentError("its schemas have too many alternatives in all: choose fewer operations")
        if self._steps > _MAX_STEPS:
            raise UnusableError("its schema has too many alternatives")

    def _try(self, size: int) -> None:
        self._tried += size
        self._all_tried += size
        if self._tried > _MAX_TRIED:
            raise _TooMuchError

    def _deeper(self) -> None:
        if self._within == _MAX_WITHIN:
            raise UnusableError(f"more than {_MAX_WITHIN} schemas within each other")
        self._within += 1

    def _rule(self, schema: Packed, depth: int, within: tuple[str, ...], used: Values, path: str) -> Rule:
        """Return the rule that is made from one alternative of a schema: the one that accepts the most examples, or the
        first of several that accept equally many.

        Raises UnusableError if no alternative has a rule.
        """
        self._deeper()
        try:
            if (why := words_of_none(schema)) is not None:
                raise UnusableError(why)
            found = self._possible(schema, () if used else within, used)
            rule, chosen = self._best(found, depth, within, used, path)
        finally:
            self._within -= 1
        if told := _others(found, chosen):
            self._lose(path, told)
        return rule

    def _best(
        self, found: Sequence[Form], depth: int, within: tuple[str, ...], used: Values, path: str
    ) -> tuple[Rule, Form]:
        """Return the rule that accepts the most examples in `used` (the first of several), and the alternative in
        `found` from which that rule is made.

        Raises UnusableError if no alternative has a rule.
        """
        problem = UnusableError("it can only be null")
        best: tuple[int, Rule, Form, list[Lost]] | None = None
        before = len(self._lost)
        for form in found:
            try:
                rule = self._rule_of(form, depth, (*within, *form.get("refs", ())), used, path)
            except UnusableError as error:
                problem = error
                continue
            finally:
                lost = self._lost[before:]
                del self._lost[before:]
            fitting = 0
            for value in used:
                self._try(size_of(rule) + size_of(value))
                fitting += is_taken(rule, value)
            if best is None or fitting > best[0]:
                best = (fitting, rule, form, lost)
            if fitting == len(used):
                break
        if best is None:
            raise problem
        self._lost += best[3]
        return best[1], best[2]

    def _lose(self, path: str, reason: str) -> None:
        self._lost.append(Lost(path, reason))

    def _rule_of(self, found: Form, depth: int, within: tuple[str, ...], used: Values, path: str) -> Rule:
        kind = _type_of(found)
        rule: Rule = {"type": kind}
        if told := found.get("description") or found.get("title") or found.get("format"):
            rule["description"] = line(told, _MAX_WORDS)
        choices = _choices(found, kind)
        if choices is not None and not (kind == "boolean" and len(choices) == 2):
            rule["enum"] = choices
        _take_bounds(found, kind, rule)
        if kind == "array":
            self._take_items(found, rule, depth, within, used, path)
        elif kind == "object":
            self._take_properties(found, rule, depth, within, used, path)
        return rule

    def _take_items(
        self, found: Rule, rule: Rule, depth: int, within: tuple[str, ...], used: Values, path: str
    ) -> None:
        if "prefixItems" in found:
            raise UnusableError("an array whose members differ by place")
        items = found.get("items", True)
        if items is False:
            rule["maxItems"] = 0
        elif items not in (True, {}):
            members = [member for value in used if isinstance(value, list) for member in value][:_MAX_USED]
            rule["items"] = self._rule(items, depth, within, members, f"{path}[]")

    def _take_properties(
        self, found: Rule, rule: Rule, depth: int, within: tuple[str, ...], used: Values, path: str
    ) -> None:
        required = dict.fromkeys(found.get("required", ()))
        named = values_by_name(used)
        known: dict[str, Packed] = found.get("properties", {})
        if known and depth <= (self._least_depth if named else 0):
            raise UnusableError(f"nested deeper than {MAX_DEPTH} levels")
        more = found.get("additionalProperties", not known)
        if more == {}:
            more = True
        may_be = offered(found, named)
        properties: dict[str, Packed] = {}
        is_crowded = len(may_be) > _MAX_PROPERTIES  # if so, properties in examples come first
        for name in sorted(may_be, key=lambda name: (name not in required, is_crowded and name not in named)):
            inner = may_be[name]
            try:
                if len(properties) == _MAX_PROPERTIES:
                    raise UnusableError(f"an input has at most {_MAX_PROPERTIES} properties")
                if depth <= 0 and name not in required and name not in named:
                    raise UnusableError(f"nested deeper than {MAX_DEPTH} levels")
                properties[name] = self._rule(inner, depth - 1, within, named.get(name, ()), f"{path}.{name}")
            except UnusableError as error:
                if name in required:
                    raise UnusableError(f"{line(name, 60)}: {error}") from None
                self._lose(f"{path}.{name}", str(error))
        for name in required:
            if name not in properties:
                if more is False:
                    raise UnusableError(f"{line(name, 60)}: required, and not described")
                given = named.get(name, ())
                properties[name] = self._rule(more, depth - 1, within, given, f"{path}.{name}")
        if known and not properties:
            raise UnusableError("none of its properties can be given")
        if properties:
            rule["properties"] = properties
        if required:
            rule["required"] = list(required)
        if isinstance(more, dict):
            values = [value for name, some in named.items() if name not in properties for value in some][:_MAX_USED]
            try:
                rule["additionalProperties"] = self._rule(more, max(depth - 1, 0), within, values, f"{path}.*")
            except UnusableError as error:
                rule["additionalProperties"] = False
                self._lose(f"{path}.*", str(error))
        elif not more or properties:
            rule["additionalProperties"] = False

    def _possible(self, schema: Packed, within: tuple[str, ...], used: Values) -> list[Form]:
        """Return the alternatives of a schema, each of one type, the one with the most information first."""
        found = [form for whole in self._alternatives(schema, within) for form in _of_one_type(whole, used)]
        if len(found) > 1 and all(counts := [self._choices_in(form) for form in found]):
            return [found[place] for place in sorted(range(len(found)), key=lambda place: -counts[place])]
        return found

    def _choices_in(self, found: Form) -> int:
        """Return the number of enum values of a schema or of an array's members; 0 if values are not enumerated."""
        items = found.get("items")
        if isinstance(items, dict) and isinstance(items.get("$ref"), str):
            items = self._lookup(items["$ref"])
        for schema in (found, items if isinstance(items, dict) else {}):
            if "enum" in schema or "const" in schema:
                return len(schema.get("enum", [0]))
        return 0

    # References, allOf, anyOf, oneOf

    def _alternatives(self, schema: Packed, within: tuple[str, ...]) -> list[Form]:
        """Return the alternatives of a schema as schemas without references and choices, none wider than `schema`; the
        one with the most information comes first.

        The `refs` of a result are the names that led to it, so that a recursive schema is not followed again. Raises
        UnusableError if there are no alternatives.
        """
        self._deeper()
        try:
            return self._found_alternatives(schema, within)
        finally:
            self._within -= 1

    def _found_alternatives(self, schema: Packed, within: tuple[str, ...]) -> list[Form]:
        self._step(1 if isinstance(schema, bool) else _weight(schema))
        if schema is False:
            raise UnusableError("it can have no value")
        if schema is True:
            return [{}]
        if "not" in schema:
            raise UnusableError("the keyword 'not' is not supported")
        if schema.get("multipleOf", 1) != 1:
            raise UnusableError("the keyword 'multipleOf' is not supported")
        beside: Any = kept(schema, lambda keyword: keyword not in _COMBINING)
        found: list[Form] = [beside]
        if (reference := schema.get("$ref")) is not None:
            if reference in within:
                raise UnusableError("a schema within itself")
            target = self._alternatives(self._lookup(reference), (*within, reference))
            named: list[Form] = [
                {**alternative, "refs": (*alternative.get("refs", ()), reference)} for alternative in target
            ]
            found = self._product(named, found)
        for part in schema.get("allOf", ()):
            found = self._product(found, self._alternatives(part, within))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                found = self._product(found, self._branches(schema[key], within))
        found = [alternative for alternative in found if not _is_null(alternative)]
        self._step(len(found))
        if not found:
            raise UnusableError("it can only be null")
        return sorted(found, key=_rank)

    def _branches(self, branches: Sequence[Packed], within: tuple[str, ...]) -> list[Form]:
        possible: list[Form] = []
        problem = UnusableError("none of its alternatives can be given")
        for branch in branches:
            try:
                possible += self._alternatives(branch, within)
            except UnusableError as error:
                problem = error
        if not possible:
            raise problem
        self._step(sum(map(_weight, possible)))
        whole = _all_enums(possible)
        return possible if whole is None else [whole]

    def _product(self, ones: Sequence[Form], others: Sequence[Form]) -> list[Form]:
        """Return every compatible combination of a schema in `ones` with one in `others`.

        Raises UnusableError if there is none.
        """
        made: list[Form] = []
        problem: UnusableError | None = None
        for schema, other in itertools.product(ones, others):
            if len(made) == _MAX_ALTERNATIVES:  # a rule from fewer combinations is only narrower
                break
            self._step(_weight(schema) + _weight(other))
            try:
                made.append(_both(schema, other))
            except UnusableError as error:
                problem = error
        if not made and problem is not None:
            raise problem
        return made


def _weight(schema: Schema) -> int:
    """Return an estimate of the time that processing a schema takes: the number of its keywords and of their members."""
    return len(schema) + sum(len(value) for value in schema.values() if isinstance(value, dict | list))


def _rank(found: Form) -> tuple[bool, int]:
    """Return the rank of a schema by its type. Undescribed objects and arrays, and strings that can only be empty, come last."""
    kind = _type_of(found)
    says_nothing = {
        "object": not (found.get("properties") or isinstance(found.get("additionalProperties"), dict)),
        "array": found.get("items", True) in (True, {}),
        "string": found.get("enum") == [""],
    }
    return says_nothing.get(kind, False), _PREFERRED.index(kind)


def _all_enums(possible: Sequence[Form]) -> Form | None:
    """Merge several enums of one type into one; None if the schemas are not all enums of one type."""
    if len(possible) < 2 or not all("enum" in schema or "const" in schema for schema in possible):
        return None
    kinds = {_type_of(schema) for schema in possible}
    if len(kinds) != 1:
        return None
    values = [value for schema in possible for value in schema.get("enum", [schema.get("const")])]
    first = kept(possible[0], lambda keyword: keyword != "const")
    return {**first, "type": kinds.pop(), "enum": _once(values)}


def _is_null(found: Form) -> bool:
    return found.get("type") == "null" or found.get("enum") == [None] or found.get("const", 0) is None


def _type_of(found: Form) -> str:
    said = found.get("type")
    types = [kind for kind in ([said] if isinstance(said, str) else said or ()) if kind != "null"]
    values = found["enum"] if "enum" in found else [found["const"]] if "const" in found else None
    if values is not None:
        present = {kind for value in values if (kind := _kind(value)) is not None}
        allowed = [kind for kind in present if not types or kind in types or (kind == "integer" and "number" in types)]
        types = ["number"] if {"integer", "number"} <= set(allowed) else allowed
    if not types and said:
        raise UnusableError("it can only be null")
    if not types:
        if values is not None:
            raise UnusableError("its choices are of no type that an input has")
        types = list(dict.fromkeys(kind for key, kind in _HINTS.items() if key in found)) or ["string"]
    return min(types, key=_PREFERRED.index)


def _kind(value: object) -> str | None:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return None


def _choices(found: Form, kind: str) -> list[Any] | None:
    """Return the values of type `kind` that a schema enumerates, in order; None if it enumerates none."""
    if "enum" not in found and "const" not in found:
        return None
    values = found["enum"] if "enum" in found else [found["const"]]
    if "enum" in found and "const" in found:
        values = [value for value in values if _is_same(value, found["const"])]
    allowed = {"number": ("integer", "number")}.get(kind, (kind,))
    fitting = _once(value for value in values if _kind(value) in allowed)
    fitting = [value for value in fitting if not isinstance(value, str) or is_visible(value)]
    fitting = [value for value in fitting if isinstance(value, str) or abs(value) <= MAX_NUMBER]
    if not fitting:
        raise UnusableError("its choices are of no type that an input has")
    if len(fitting) > MAX_CHOICES:
        raise UnusableError(f"an enum of {len(fitting)} values; an input has at most {MAX_CHOICES}")
    return fitting


def _take_bounds(found: Form, kind: str, rule: Rule) -> None:
    taken: Any = rule
    for key in _KEYWORDS[kind]:
        if key not in found:
            continue
        value: Any = found.get(key)
        if key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            if abs(value) > MAX_NUMBER:
                if (value > 0) == (key in _LEAST):
                    raise UnusableError("a bound beyond 2**53")
                continue  # an argument has no such number anyway
        elif isinstance(value, int) and not isinstance(value, bool) and value > MAX_LENGTH:
            if key in _LEAST:
                raise UnusableError("longer than an argument can be")
            continue
        taken[key] = value
    if "pattern" in rule:
        _check({"type": kind, "pattern": rule["pattern"]})


def _once(values: Iterable[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _both(schema: Form, other: Form) -> Form:
    """Combine two schemas: take each keyword that either has, and the narrower value if both have the keyword.

    Raises UnusableError if the combination cannot be expressed.
    """
    made: Any = {**schema}  # keyword by keyword: both values of one have the same type
    theirs: Any = other
    for key, value in theirs.items():
        if key not in made or key in (
            "title",
            "description",
            "default",
            "example",
            "format",
            "contentEncoding",
            "contentMediaType",
        ):
            made[key] = value
        elif key == "refs":
            made[key] = (*made[key], *value)
        elif key in _LEAST:
            made[key] = max(made[key], value)
        elif key in _MOST:
            made[key] = min(made[key], value)
        elif not _is_same(made[key], value):
            made[key] = _narrower(key, made[key], value)
    combined: Form = made
    _close(schema, other, combined)
    return combined


def _narrower(key: str, rule: Any, other: Any) -> Any:
    match key:
        case "type":
            return _types(rule, other)
        case "enum":
            theirs = {json.dumps(value, sort_keys=True) for value in other}
            shared = [value for value in rule if json.dumps(value, sort_keys=True) in theirs]
            if not shared:
                raise UnusableError("choices that have no value in common")
            return shared
        case "required":
            return list(dict.fromkeys([*rule, *other]))
        case "properties":
            return {name: _property_of_both(rule, other, name) for name in dict.fromkeys([*rule, *other])}
        case "items":
            return _all_of(rule, other)
        case "additionalProperties":
            return _all_of(rule, other)
        case "uniqueItems":
            return True
        case _:
            raise UnusableError(f"two rules for {key!r} at once")


def _property_of_both(properties: Mapping[str, Packed], other: Mapping[str, Packed], name: str) -> Packed:
    """Combine a property from two parts of an `allOf`. It is read-only if every part that describes it marks it so."""
    if name not in properties or name not in other:
        return properties[name] if name in properties else other[name]
    both = _all_of(*(_unmarked(part[name]) for part in (properties, other)))
    if both is False or not (_is_marked(properties[name]) and _is_marked(other[name])):
        return both
    return {**both, MARK: True} if isinstance(both, dict) else {MARK: True}


def _is_marked(schema: Packed) -> bool:
    return isinstance(schema, dict) and schema.get(MARK) is True


def _unmarked(schema: Packed) -> Packed:
    if isinstance(schema, bool) or not _is_marked(schema):
        return schema
    return kept(schema, lambda keyword: keyword != MARK) or True


def offered(found: Schema, used: Mapping[str, Sequence[Any]]) -> dict[str, Packed]:
    """Return the properties of an object that a caller can be offered. `used` is the result of `values_by_name` for its examples.

    A property that only the service writes is excluded, unless it is required or in an example. A property that is only in an
    example is included if the object allows further properties.
    """
    known: dict[str, Packed] = found.get("properties", {})
    required = found.get("required", ())
    made = {
        name: inner
        for name, inner in known.items()
        if name in required or (inner is not False and (name in used or not _is_marked(inner)))
    }
    if known and found.get("additionalProperties", True) in (True, {}):
        made |= {name: True for name in used if name not in known and is_visible(name)}
    return made


def values_by_name(used: Values) -> dict[str, list[Any]]:
    """Return the values of each property in the examples. Null values are left out, as in a call."""
    found: dict[str, list[Any]] = {}
    for value in used:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if inner is not None:
                found.setdefault(name, []).append(inner)
    return found


def _of_one_type(found: Form, used: Values) -> list[Form]:
    """Split a schema with several types into one for each type; a schema without a type gets the types of its examples."""
    said = found.get("type")
    if isinstance(said, list):
        kinds = [kind for kind in _PREFERRED if kind in said and not (kind == "integer" and "number" in said)]
        return [{**found, "type": kind} for kind in kinds] or [found]
    if said is None and not (_HINTS.keys() | {"enum", "const"}) & found.keys():
        values = used or [found[key] for key in ("example", "default") if key in found]
        kinds = list(dict.fromkeys(kind for value in values if (kind := _kind_of_any(value)) is not None))
        return [{**found, "type": kind} for kind in kinds] or [found]
    return [found]


def _kind_of_any(value: object) -> str | None:
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else _kind(value)


def _others(found: Sequence[Form], chosen: Form) -> str:
    """Return a sentence about the alternatives in `found` that are not offered, for the report; empty if there is
    nothing to say.
    """
    kind = _type_of(chosen)
    kinds = list(dict.fromkeys(_type_of(form) for form in found))
    kinds.remove(kind)
    if kinds and {kind, *kinds} != {"integer", "number"}:
        return f"it is given as {kind}; the service also takes {' and '.join(kinds)}"
    forms = [form for form in found if form is not chosen and _type_of(form) == kind]
    if kind != "object" or not forms:
        return ""
    here = chosen.get("properties", {})
    names = list(dict.fromkeys(name for form in forms for name in form.get("properties", {}) if name not in here))
    if not names and all(form.get("properties", {}) == here for form in forms):
        return ""
    told = f", with {', '.join(line(name, 60) for name in names[:_MAX_NAMED])}" if names else ""
    return f"one of {len(forms) + 1} forms is offered; the service also takes others{told}"


def _close(schema: Form, other: Form, made: Form) -> None:
    """Apply `additionalProperties` of each of two `allOf` parts to the properties that only the other part describes."""
    for closed, open_one in ((schema, other), (other, schema)):
        more = closed.get("additionalProperties", True)
        for name in open_one.get("properties", {}) if more is not True else ():
            if name not in closed.get("properties", {}):
                made["properties"] = {**made["properties"], name: _all_of(made["properties"][name], more)}


def _types(types: str | list[str], other: str | list[str]) -> str | list[str]:
    mine, theirs = [set([kinds] if isinstance(kinds, str) else kinds) for kinds in (types, other)]
    for wide, narrow in ((mine, theirs), (theirs, mine)):
        if "number" in wide and "integer" in narrow:
            wide.add("integer")
    shared = [kind for kind in (*_PREFERRED, "null") if kind in mine & theirs]
    if not shared:
        raise UnusableError("types that have no value in common")
    return shared[0] if len(shared) == 1 else shared


def _is_same(value: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: `false` does not equal 0. Numbers such as 1 and 1.0 count as
    different, which is stricter.
    """
    if value is other or value != other:
        return value is other
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _all_of(schema: Packed, other: Packed) -> Packed:
    if schema is True or _is_same(schema, other):
        return other
    if other is True:
        return schema
    if schema is False or other is False:
        return False
    return {"allOf": [schema, other]}
