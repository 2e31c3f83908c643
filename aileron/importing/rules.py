"""What an action's input may be, of a packed schema: in fewer keywords, and never wider.

An input's rule has one type and no references, choices or negations (actions/inputs.py). So a rule takes some of what the
schema takes: of a choice one branch, of a nullable value the value, of an object the properties that can be said. What is
required and cannot be said makes the whole impossible, and then the operation is not imported: a rule that took more than
the document would have a person asked about a call that cannot work.

Whether a value of a rule fits the whole document is checked once more by the connector, before anything is sent. So of a
`oneOf` whose branches may overlap one can be taken here: a value that fits two is refused there.

Pure. Source: docs/reference/action-file.md (Arrays and objects); JSON Schema 2020-12. Not here: inputs and their words
(operations.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aileron.actions.inputs import MAX_CHOICES, MAX_LENGTH, rule_problem
from aileron.importing.reading import DocumentError
from aileron.importing.schemas import UnusableError
from aileron.importing.words import is_visible, line
from aileron.model.document import MAX_NUMBER

__all__ = ["Rule", "Rules", "size_of"]

Rule = dict[str, Any]

MAX_DEPTH: Final = 6
"""Objects within objects; deeper ones are seldom what an agent needs, and TOML is read 16 brackets deep."""
_MAX_PROPERTIES: Final = 64
_MAX_WORDS: Final = 120
"""Characters of the description of what is inside an input."""
_FEW_WORDS: Final = 40
_MAX_ALTERNATIVES: Final = 32
"""Of one schema: choices within choices multiply."""
_COMBINING: Final = ("$ref", "allOf", "anyOf", "oneOf")
_MAX_STEPS: Final = 200_000
"""Schemas and members of them that are looked at for one rule: choices within choices multiply."""
_MAX_ALL_STEPS: Final = 5_000_000
"""The same for all rules of one import: some twenty seconds, and five times what any known document takes."""
_MAX_WITHIN: Final = 120
"""Schemas within schemas and behind references."""
_PREFERRED: Final = ("object", "array", "string", "number", "integer", "boolean")
"""Of several types, the one that says most."""
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
"""Keywords that tell a type where none is said."""


def size_of(value: Any) -> int:
    """Bytes of it as JSON, which is about what a model reads."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _checked(rule: Rule) -> Rule:
    if (problem := rule_problem(rule)) is not None:
        raise UnusableError(problem)
    return rule


def _with_words(rule: Rule, characters: int) -> Rule:
    """With descriptions of at most so many characters."""
    made: Rule = {}
    for key, value in rule.items():
        if key == "description":
            if characters:
                made[key] = line(value, characters)
        elif key == "properties":
            made[key] = {name: _with_words(one, characters) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = _with_words(value, characters)
        else:
            made[key] = value
    return made


def _pruned(rule: Rule, most_bytes: int) -> Rule:
    """Without the optional properties for which there is no room. UnusableError if what is left is still too large."""
    if "items" in rule:
        around = size_of({**rule, "items": {}})
        return {**rule, "items": _pruned(rule["items"], most_bytes - around)}
    kept = dict(rule.get("properties", {}))
    required = rule.get("required", ())
    for name in [name for name in reversed(kept) if name not in required]:
        if size_of({**rule, "properties": kept}) <= most_bytes:
            break
        del kept[name]
    if not kept or size_of(pruned := {**rule, "properties": kept}) > most_bytes:
        raise UnusableError(f"its schema has more than {most_bytes} bytes")
    return pruned


class Rules:
    """Rules of the schemas of one import; `lookup` gives a named schema, or UnusableError."""

    def __init__(self, lookup: Callable[[str], dict[str, Any] | bool]) -> None:
        self._lookup: Final = lookup
        self._known: Final[dict[tuple[int, int], tuple[Any, Rule | str]]] = {}
        """What was made of a schema, or why nothing could be: many operations have the same."""
        self._steps = 0
        self._all_steps = 0
        self._within = 0

    def rule(self, schema: dict[str, Any] | bool, most_bytes: int) -> Rule:
        """The widest rule that is not wider than the schema and not larger than so many bytes. UnusableError.

        For room, words are cut first, then what is deep, then optional properties, the last first.
        """
        known = self._known.get((id(schema), most_bytes))
        if known is None:
            try:
                made: Rule | str = self._made(schema, most_bytes)
            except UnusableError as error:
                made = str(error)
            # With the schema itself: as long as it is there, its id is nobody else's.
            known = self._known[id(schema), most_bytes] = (schema, made)
        if isinstance(known[1], str):
            raise UnusableError(known[1])
        return dict(known[1])

    def _made(self, schema: dict[str, Any] | bool, most_bytes: int) -> Rule:
        problem: UnusableError | None = None
        smallest: Rule | None = None
        for depth in range(MAX_DEPTH, -1, -1):
            self._steps = 0
            try:
                made = self._rule(schema, depth, ())
            except UnusableError as error:
                problem = problem or error
                continue
            for characters in (_MAX_WORDS, _FEW_WORDS, 0):
                smallest = _with_words(made, characters)
                if size_of(smallest) <= most_bytes:
                    return _checked(smallest)
        if smallest is None:
            raise problem or UnusableError("it has no value")
        return _checked(_pruned(smallest, most_bytes))

    def objects(self, schema: dict[str, Any] | bool) -> dict[str, Any] | None:
        """The schema's first alternative that is an object with properties, references resolved; None if it is no object."""
        self._steps = 0
        for found in self._alternatives(schema, ()):
            if _type_of(found) == "object" and found.get("properties"):
                return found
        return None

    def kinds(self, schema: dict[str, Any] | bool) -> list[str]:
        """The types of all its alternatives, the one that a rule has first."""
        self._steps = 0
        return list(dict.fromkeys(map(_type_of, self._alternatives(schema, ()))))

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        self._all_steps += steps
        if self._all_steps > _MAX_ALL_STEPS:
            raise DocumentError("its schemas have too many alternatives in all: choose fewer operations")
        if self._steps > _MAX_STEPS:
            raise UnusableError("its schema has too many alternatives")

    def _deeper(self) -> None:
        if self._within == _MAX_WITHIN:
            raise UnusableError(f"more than {_MAX_WITHIN} schemas within each other")
        self._within += 1

    def _rule(self, schema: dict[str, Any] | bool, depth: int, within: tuple[str, ...]) -> Rule:
        """That of the first alternative that has one."""
        problem = UnusableError("it can only be null")
        self._deeper()
        try:
            for found in self._alternatives(schema, within):
                try:
                    return self._rule_of(found, depth, (*within, *found.get("$refs", ())))
                except UnusableError as error:
                    problem = error
        finally:
            self._within -= 1
        raise problem

    def _rule_of(self, found: dict[str, Any], depth: int, within: tuple[str, ...]) -> Rule:
        kind = _type_of(found)
        rule: Rule = {"type": kind}
        if told := found.get("description") or found.get("title") or found.get("format"):
            rule["description"] = line(told, _MAX_WORDS)
        choices = _choices(found, kind)
        if choices is not None and not (kind == "boolean" and len(choices) == 2):
            rule["enum"] = choices
        _take_bounds(found, kind, rule)
        if kind == "array":
            self._take_items(found, rule, depth, within)
        elif kind == "object":
            self._take_properties(found, rule, depth, within)
        return rule

    def _take_items(self, found: Rule, rule: Rule, depth: int, within: tuple[str, ...]) -> None:
        if "prefixItems" in found:
            raise UnusableError("an array whose members differ by place")
        items = found.get("items", True)
        if items is False:
            rule["maxItems"] = 0
        elif items not in (True, {}):
            rule["items"] = self._rule(items, depth, within)

    def _take_properties(self, found: Rule, rule: Rule, depth: int, within: tuple[str, ...]) -> None:
        required = dict.fromkeys(found.get("required", ()))
        properties: dict[str, Rule] = {}
        if found.get("properties") and depth == 0:
            raise UnusableError(f"nested deeper than {MAX_DEPTH} levels")
        for name, inner in sorted(found.get("properties", {}).items(), key=lambda one: one[0] not in required):
            if inner is False and name not in required:
                continue
            try:
                if len(properties) == _MAX_PROPERTIES:
                    raise UnusableError(f"more than {_MAX_PROPERTIES} properties")
                properties[name] = self._rule(inner, depth - 1, within)
            except UnusableError as error:
                if name in required:
                    raise UnusableError(f"{line(name, 60)}: {error}") from None
        more = found.get("additionalProperties", not found.get("properties"))
        if more == {}:
            more = True
        for name in required:
            if name not in properties:
                if more is False:
                    raise UnusableError(f"{line(name, 60)}: required, and not described")
                properties[name] = self._rule({"type": "string"} if more is True else more, depth - 1, within)
        if found.get("properties") and not properties:
            raise UnusableError("none of its properties can be given")
        if properties:
            rule["properties"] = properties
        if required:
            rule["required"] = list(required)
        if isinstance(more, dict):
            try:
                rule["additionalProperties"] = self._rule(more, max(depth - 1, 0), within)
            except UnusableError:
                rule["additionalProperties"] = False
        elif not more or properties:
            rule["additionalProperties"] = False

    # References, allOf, anyOf, oneOf

    def _alternatives(self, schema: dict[str, Any] | bool, within: tuple[str, ...]) -> list[dict[str, Any]]:
        """Schemas without references and choices, each of which takes no more than this one; the one that says most comes first.

        UnusableError where there is none. `$refs` of one are the names that led to it: a schema within itself is not followed.
        """
        self._deeper()
        try:
            return self._found_alternatives(schema, within)
        finally:
            self._within -= 1

    def _found_alternatives(self, schema: dict[str, Any] | bool, within: tuple[str, ...]) -> list[dict[str, Any]]:
        self._step(1 if isinstance(schema, bool) else _weight(schema))
        if schema is False:
            raise UnusableError("it can have no value")
        if schema is True:
            return [{}]
        if "not" in schema:
            raise UnusableError("the keyword 'not' is not supported")
        if schema.get("multipleOf", 1) != 1:
            raise UnusableError("the keyword 'multipleOf' is not supported")
        beside = {key: value for key, value in schema.items() if key not in _COMBINING}
        found = [beside]
        if (reference := schema.get("$ref")) is not None:
            if reference in within:
                raise UnusableError("a schema within itself")
            target = self._alternatives(self._lookup(reference), (*within, reference))
            found = self._product([{**one, "$refs": (*one.get("$refs", ()), reference)} for one in target], found)
        for part in schema.get("allOf", ()):
            found = self._product(found, self._alternatives(part, within))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                found = self._product(found, self._branches(schema[key], within))
        found = [one for one in found if not _is_null(one)]
        if not found:
            raise UnusableError("it can only be null")
        return sorted(found, key=_rank)

    def _branches(self, branches: Sequence[Any], within: tuple[str, ...]) -> list[dict[str, Any]]:
        possible: list[dict[str, Any]] = []
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

    def _product(self, ones: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each of one with each of the other, as far as they go together. UnusableError if none do."""
        made: list[dict[str, Any]] = []
        problem: UnusableError | None = None
        for one, other in itertools.product(ones, others):
            if len(made) == _MAX_ALTERNATIVES:  # fewer is narrower
                break
            self._step(_weight(one) + _weight(other))
            try:
                made.append(_both(one, other))
            except UnusableError as error:
                problem = error
        if not made and problem is not None:
            raise problem
        return made


def _weight(schema: Mapping[str, Any]) -> int:
    """About how long it takes to look at one: its keywords, and the members of those."""
    return len(schema) + sum(len(value) for value in schema.values() if isinstance(value, dict | list))


def _rank(found: Mapping[str, Any]) -> tuple[bool, int]:
    """By type. What says nothing is last: objects and arrays of which nothing is described, a string that can only be empty."""
    kind = _type_of(found)
    says_nothing = {
        "object": not (found.get("properties") or isinstance(found.get("additionalProperties"), dict)),
        "array": found.get("items", True) in (True, {}),
        "string": found.get("enum") == [""],
    }
    return says_nothing.get(kind, False), _PREFERRED.index(kind)


def _all_enums(possible: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Several enums of one type are one enum."""
    if len(possible) < 2 or not all("enum" in one or "const" in one for one in possible):
        return None
    kinds = {_type_of(one) for one in possible}
    if len(kinds) != 1:
        return None
    values = [value for one in possible for value in one.get("enum", [one.get("const")])]
    first = {key: value for key, value in possible[0].items() if key != "const"}
    return {**first, "type": kinds.pop(), "enum": _once(values)}


def _is_null(found: Mapping[str, Any]) -> bool:
    return found.get("type") == "null" or found.get("enum") == [None] or found.get("const", 0) is None


def _type_of(found: Mapping[str, Any]) -> str:
    said = found.get("type")
    types = [kind for kind in ([said] if isinstance(said, str) else said or ()) if kind != "null"]
    values = found["enum"] if "enum" in found else [found["const"]] if "const" in found else None
    if values is not None:
        present = {_kind(value) for value in values} - {None}
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


def _choices(found: Mapping[str, Any], kind: str) -> list[Any] | None:
    """The values of that type, in order; None: any."""
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


def _take_bounds(found: Mapping[str, Any], kind: str, rule: Rule) -> None:
    for key in _KEYWORDS[kind]:
        if key not in found:
            continue
        value = found[key]
        if key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            if abs(value) > MAX_NUMBER:
                if (value > 0) == (key in _LEAST):
                    raise UnusableError("a bound beyond 2**53")
                continue  # an argument has no such number anyway
        elif isinstance(value, int) and not isinstance(value, bool) and value > MAX_LENGTH:
            if key in _LEAST:
                raise UnusableError("longer than an argument can be")
            continue
        rule[key] = value


def _once(values: Iterable[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What fits both: each keyword of either, and where both have one, the narrower. UnusableError where that cannot be said."""
    made = dict(one)
    for key, value in other.items():
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
        elif key == "$refs":
            made[key] = (*made[key], *value)
        elif key in _LEAST:
            made[key] = max(made[key], value)
        elif key in _MOST:
            made[key] = min(made[key], value)
        elif not _is_same(made[key], value):
            made[key] = _narrower(key, made[key], value)
    _close(one, other, made)
    return made


def _narrower(key: str, one: Any, other: Any) -> Any:
    match key:
        case "type":
            return _types(one, other)
        case "enum":
            theirs = {json.dumps(value, sort_keys=True) for value in other}
            shared = [value for value in one if json.dumps(value, sort_keys=True) in theirs]
            if not shared:
                raise UnusableError("choices that have no value in common")
            return shared
        case "required":
            return list(dict.fromkeys([*one, *other]))
        case "properties":
            names = dict.fromkeys([*one, *other])
            return {name: _all_of(one.get(name, True), other.get(name, True)) for name in names}
        case "items":
            return _all_of(one, other)
        case "additionalProperties":
            return _all_of(one, other)
        case "uniqueItems":
            return True
        case _:
            raise UnusableError(f"two rules for {key!r} at once")


def _close(one: Mapping[str, Any], other: Mapping[str, Any], made: dict[str, Any]) -> None:
    """What a part of `allOf` says of further properties goes for those of the others."""
    for closed, open_one in ((one, other), (other, one)):
        more = closed.get("additionalProperties", True)
        for name in open_one.get("properties", {}) if more is not True else ():
            if name not in closed.get("properties", {}):
                made["properties"] = {**made["properties"], name: _all_of(made["properties"][name], more)}


def _types(one: Any, other: Any) -> Any:
    mine, theirs = [set([kinds] if isinstance(kinds, str) else kinds) for kinds in (one, other)]
    for wide, narrow in ((mine, theirs), (theirs, mine)):
        if "number" in wide and "integer" in narrow:
            wide.add("integer")
    shared = [kind for kind in (*_PREFERRED, "null") if kind in mine & theirs]
    if not shared:
        raise UnusableError("types that have no value in common")
    return shared[0] if len(shared) == 1 else shared


def _is_same(one: Any, other: Any) -> bool:
    """As JSON: false is not 0. 1 and 1.0 pass for two, which is narrower."""
    if one is other or one != other:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _all_of(one: Any, other: Any) -> Any:
    if one is True or _is_same(one, other):
        return other
    if other is True:
        return one
    if one is False or other is False:
        return False
    return {"allOf": [one, other]}
