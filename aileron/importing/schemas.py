"""Conversion of a document's schemas to those of a packed document: JSON Schema 2020-12, with references only to named schemas.

There are two ways to read a schema, one for requests and one for responses:

    sent      exact. A keyword that a connector cannot check makes the schema unusable; an optional property with such a
              schema gets one that allows no value and states why (REASON). A property that only the service writes
              (`readOnly`) is marked (MARK) and never required. If another part of an `allOf` describes or requires it without
              the mark, a caller may give it.
    answered  lenient. Keywords that a connector does not know are not checked; descriptions are dropped.

So nothing is sent that the document forbids, and a response is refused only if it clearly violates the document.

Pure. The document is untrusted: the number of values and the depth are limited. Source: OpenAPI 3.0.4 section 4.7.24 and 3.1.1
section 4.8.24 (Schema Object); JSON Schema 2020-12. Not here: the rules of an action's inputs (rules.py), checking values
(aileron_connector/check.py).
"""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

from aileron.importing.reading import DocumentError
from aileron.importing.references import References
from aileron.importing.words import is_visible, line
from aileron.model.json_value import JSON, JSONObject, list_of
from aileron_connector.check import Schema

__all__ = ["MARK", "REASON", "Mode", "Packed", "Packer", "UnusableError", "is_marked", "kept", "plain", "words_of_none"]

Mode = Literal["sent", "answered"]
Packed: TypeAlias = Schema | bool
_S = TypeVar("_S", bound=Schema)

REF: Final = "#/components/schemas/"
_MAX_DEPTH: Final = 60
"""Maximum number of nested levels of one schema, with references followed; twice what known schemas have."""
_MAX_SCHEMAS: Final = 3_000_000
"""Maximum number of schemas that one import processes; GitHub's document takes 600,000."""
_MAX_ENUM: Final = 2_000
_MAX_PROPERTIES: Final = 2_000
_MAX_WORDS: Final = 300
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_UNKNOWN: Final = frozenset(
    "if then else dependentRequired dependentSchemas dependencies patternProperties propertyNames contains "
    "minContains maxContains "
    "unevaluatedItems unevaluatedProperties additionalItems $dynamicRef $recursiveRef $anchor $dynamicAnchor $id".split()
)
"""Keywords that constrain a value, but that a connector does not know."""
MARK: Final = "readOnly"
"""Keyword of a property that only the service writes."""
_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {MARK: (MARK, "x-read-only"), "writeOnly": ("writeOnly",)}
"""Spellings of each mark in documents, such as `x-read-only` for `readOnly`.

Documents that were written for Swagger use the second spelling, because Swagger forbids required read-only properties.
"""
REASON: Final = "$comment"
"""Keyword in a schema that matches no value. It holds the reason, for the list of parts that were left out."""
_VALUES: Final = ("default", "example")
_WORDS: Final = ("title", "description", "default", "example", "examples", MARK)
_MAX_PARTS: Final = 64
"""Maximum number of `allOf` parts, including the parts of those parts, that are searched for a mark."""
_PARTS: Final = ("items", "additionalProperties")
_INNER: Final = (*_PARTS, "not")
_CONTENT: Final = ("contentEncoding", "contentMediaType")


class UnusableError(ValueError):
    """Error: the schema cannot be used for a value that is sent; the message says why."""


class Packer:
    """A packer for all schemas of one import. `schemas` has the named schemas that were reached so far."""

    def __init__(self, references: References, *, is_3_0: bool) -> None:
        self.schemas: Final[dict[str, Packed]] = {}
        self._references: Final = references
        self._is_3_0: Final = is_3_0
        self._names: Final[dict[tuple[str, Mode], str]] = {}
        self._waiting: Final[list[tuple[str, Any, str]]] = []
        self._broken: Final[dict[str, str]] = {}
        self._numbers: Final[dict[str, int]] = {}
        self._looked_at = 0
        self._inlined: Final[set[str]] = set()
        """Addresses of named schemas that are being packed in place of their reference."""

    def answered(self, schema: Any, file: str) -> Packed:
        """Return the packed schema that a response must fit, without keywords that the connector does not know."""
        packed = self._pack(schema, file, "answered", 0)
        while self._waiting:
            name, value, place = self._waiting.pop()
            self.schemas[name] = self._pack(value, place, "answered", 0)
        return packed

    def sent(self, schema: Any, file: str) -> Packed:
        """Return the packed schema that a sent value must fit exactly, with descriptions and examples for the value's author.

        Raises UnusableError if the schema cannot be used.
        """
        return self._pack(schema, file, "sent", 0)

    def lookup(self, reference: str) -> Packed:
        """Return the packed schema that `reference` names. Raises UnusableError if the schema could not be packed."""
        name = reference.removeprefix(REF)
        if name in self._broken:
            raise UnusableError(self._broken[name])
        return self.schemas[name]

    def reachable(self, schemas: Iterator[Any], *, depth: int | None = None) -> dict[str, Packed]:
        """Return the named schemas that `schemas` refer to, directly or through others, without descriptions.

        `depth` is the number of references that are followed, 1 or more; beyond that, any value is allowed. Use it only for
        responses, because sent values must fit exactly.
        """
        found: dict[str, Packed] = {}
        level, waiting = 1, [name for schema in schemas for name in _referred(schema)]
        while waiting:
            below: list[str] = []
            for name in waiting:
                if name in found:
                    continue
                whole = plain(self.schemas.get(name, False)) if name not in self._broken else False
                found[name] = _opened(whole) if level == depth else whole
                below += _referred(found[name])
            level, waiting = level + 1, below
        return dict(sorted(found.items()))

    def _pack(
        self, schema: Any, file: str, mode: Mode, depth: int, *, unneeded: frozenset[str] = frozenset()
    ) -> Packed:
        """Return the packed form of a schema; `mode` says whether it is for a value that is sent or for a response.

        `unneeded` has properties that are not required, even if this part of an `allOf` requires them.
        """
        self._looked_at += 1
        if self._looked_at > _MAX_SCHEMAS:
            raise DocumentError(f"its schemas expand to more than {_MAX_SCHEMAS}: choose fewer operations")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            if mode == "answered":
                return True
            raise UnusableError("a schema that is no object")
        if depth > _MAX_DEPTH:
            if mode == "answered":
                return True
            raise UnusableError(f"nested deeper than {_MAX_DEPTH} levels")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            packed = self._referred(reference, file, mode, depth, unneeded)
            beside = {
                key: value for key, value in schema.items() if key not in ("$ref", "$defs", "definitions", "$schema")
            }
            if self._is_3_0:  # 3.0 ignores keys beside `$ref`; authors mean a `required`
                beside = {"required": beside["required"]} if mode == "sent" and beside.get("required") else {}
            if beside and mode == "sent":
                unneeded |= self._marked(schema, file)
                packed = self._referred(reference, file, mode, depth, unneeded)
            if not beside:
                if mode == "answered" and schema.get("nullable") is True:  # 3.0 ignores it, but authors mean it
                    return {"anyOf": [packed, {"type": "null"}]}
                return self._with_words(packed, schema, mode)
            inner = self._pack(beside, file, mode, depth + 1, unneeded=unneeded)
            return self._with_words({"allOf": [packed, inner]} if plain(inner) else packed, schema, mode)
        return self._object(schema, file, mode, depth, unneeded)

    def _with_words(self, packed: Packed, schema: Mapping[str, JSON], mode: Mode) -> Packed:
        """Return `packed` with the description next to a reference in `schema`, for the author of a value."""
        if mode == "sent" and isinstance(packed, dict) and (words := _words_of(schema)):
            return {**packed, **words}
        return packed

    def _referred(
        self, reference: str, file: str, mode: Mode, depth: int, unneeded: frozenset[str] = frozenset()
    ) -> Packed:
        try:
            place = self._references.lookup(reference, file)
        except DocumentError as error:
            if mode == "answered":
                return True
            raise UnusableError(str(error)) from None
        if unneeded and place.at not in self._inlined and self._requires(place.value, place.file, unneeded):
            self._inlined.add(place.at)  # the named schema itself keeps its `required`
            try:
                return self._pack(place.value, place.file, mode, depth + 1, unneeded=unneeded)
            finally:
                self._inlined.discard(place.at)
        name = self._names.get((place.at, mode))
        if name is None:
            name = self._names[place.at, mode] = self._new_name(place.at, mode)
            self._begin(name, place.value, place.file, mode, depth)
        if name in self._broken:
            raise UnusableError(self._broken[name])
        return {"$ref": REF + name}

    def _begin(self, name: str, value: Any, file: str, mode: Mode, depth: int) -> None:
        if mode == "answered":
            self.schemas[name] = True
            self._waiting.append((name, value, file))
            return
        self.schemas[name] = False  # a recursive schema is looked up when all are packed
        try:
            self.schemas[name] = self._pack(value, file, mode, depth + 1)
        except UnusableError as error:
            self._broken[name] = str(error)

    def _new_name(self, at: str, mode: Mode) -> str:
        said = _NAME.sub("_", at.rpartition("/")[2].rpartition("#")[2])[:80].strip("_") or "schema"
        base = said if mode == "answered" else f"{said}.sent"
        name, number = base, self._numbers.get(base, 2)
        while name in self.schemas:
            name, number = f"{base}.{number}", number + 1
        self._numbers[base] = number
        return name

    def _object(
        self, schema: JSONObject, file: str, mode: Mode, depth: int, unneeded: frozenset[str] = frozenset()
    ) -> Packed:
        exact = mode == "sent"
        if exact and (unknown := sorted(_UNKNOWN & schema.keys())):
            raise UnusableError(f"the keyword {unknown[0]!r} is not supported")
        made: Schema = {}
        if exact and not schema.keys().isdisjoint(_LISTS):
            unneeded |= self._marked(schema, file)
        for key in _LISTS:
            if members := list_of(schema.get(key)):
                # A discriminator selects one branch, however many would accept the value.
                is_told = key == "oneOf" and isinstance(schema.get("discriminator"), dict) and not schema.get("anyOf")
                made["anyOf" if is_told else key] = self._list(key, members, file, mode, depth, unneeded)
        if isinstance(schema.get("not"), dict):
            made["not"] = self._pack(schema["not"], file, mode, depth + 1)
        for part in _PARTS:
            if isinstance(schema.get(part), dict | bool):
                made[part] = self._pack(schema[part], file, mode, depth + 1)
        self._properties(schema, made, file, mode, depth, unneeded)
        _scalars(schema, made, exact=exact)
        self._typed(schema, made)
        if exact:
            made |= _words_of(schema)
            for content in _CONTENT:
                if isinstance(said := schema.get(content), str):
                    made[content] = said
            if isinstance(form := schema.get("format"), str) and is_visible(form):
                made["format"] = form[:40]
        is_nullable = self._is_3_0 and True in (
            schema.get("nullable"),
            schema.get("x-nullable"),
        )  # Swagger has the second
        return _nullable(made) if is_nullable else made

    def _list(
        self, key: str, members: list[Any], file: str, mode: Mode, depth: int, unneeded: frozenset[str]
    ) -> list[Packed]:
        """Return the packed forms of the schemas in `members`, a list under the keyword `key`.

        Unusable members of `anyOf` are dropped as long as one is left; in other lists they make the schema unusable.
        """
        packed: list[Packed] = []
        problem: UnusableError | None = None
        for member in members:
            try:
                packed.append(self._pack(member, file, mode, depth + 1, unneeded=unneeded))
            except UnusableError as error:
                if key not in ("anyOf", "oneOf"):
                    raise
                # A value could also match this branch, which breaks `oneOf`, unchecked; `anyOf` needs one usable branch.
                problem = error
        if problem is not None and (key == "oneOf" or not packed):
            raise problem
        return packed

    def _properties(
        self,
        schema: JSONObject,
        made: Schema,
        file: str,
        mode: Mode,
        depth: int,
        unneeded: frozenset[str],
    ) -> None:
        properties = schema.get("properties")
        required = dict.fromkeys(name for name in list_of(schema.get("required")) if isinstance(name, str))
        if (most := max(len(required), len(properties) if isinstance(properties, dict) else 0)) > _MAX_PROPERTIES:
            if mode == "answered":
                return
            raise UnusableError(f"an object with {most} properties")
        for name in unneeded:
            required.pop(name, None)
        if isinstance(properties, dict):
            packed: dict[str, Packed] = {}
            hidden = "readOnly" if mode == "sent" else "writeOnly"
            for name, inner in properties.items():
                is_hidden = self._is_marked(inner, hidden, file)
                if is_hidden:
                    required.pop(name, None)
                    if mode == "answered":
                        continue
                packed[name] = self._property(name, inner, file, mode, depth, is_needed=name in required)
                if is_hidden:
                    packed[name] = {**inside, MARK: True} if isinstance(inside := packed[name], dict) else {MARK: True}
            made["properties"] = packed
        if mode == "sent" and (given := unneeded & _required_alone(schema)):
            # Allow a property that this part requires and another part marks as read-only.
            made["properties"] = {**dict.fromkeys(sorted(given), True), **made.get("properties", {})}
        if required:
            made["required"] = list(required)

    def _property(self, name: str, inner: Any, file: str, mode: Mode, depth: int, *, is_needed: bool) -> Packed:
        if mode == "answered":
            return self._pack(inner, file, mode, depth + 1) if isinstance(inner, dict | bool) else True
        try:
            if not is_visible(name):
                raise UnusableError(f"property {line(name, 60)!r} has a hidden character in its name")
            return self._pack(inner, file, mode, depth + 1)
        except UnusableError as error:
            if is_needed:
                raise UnusableError(f"{line(name, 60)}: {error}") from None
            return {"not": {}, REASON: str(error)}

    # Marks in parts of `allOf`

    def _marked(self, schema: JSONObject, file: str) -> frozenset[str]:
        """Return the names of the properties that a schema, a schema that it refers to, or an `allOf` part marks as
        read-only.

        Callers need not give them (OpenAPI requires them only in responses).
        """
        marked: set[str] = set()
        for part, place in self._parts(schema, file):
            own = part.get("properties")
            for name, inner in itertools.islice(own.items() if isinstance(own, dict) else (), _MAX_PROPERTIES):
                if self._is_marked(inner, "readOnly", place):
                    marked.add(name)
        return frozenset(marked)

    def _parts(self, schema: Any, file: str) -> Iterator[tuple[JSONObject, str]]:
        """Yield the schema, the schemas that it refers to, and the parts of its `allOf`, each with its file."""
        waiting = [(schema, file)]
        for _ in range(_MAX_PARTS):
            if not waiting:
                return
            part, place = waiting.pop()
            if not isinstance(part, dict):
                continue
            yield part, place
            waiting += [(inner, place) for inner in reversed(list_of(part.get("allOf")))]
            if isinstance(part.get("$ref"), str):
                with contextlib.suppress(DocumentError):
                    found = self._references.lookup(part["$ref"], place)
                    waiting.append((found.value, found.file))

    def _requires(self, schema: Any, file: str, names: frozenset[str]) -> bool:
        """Return whether a schema, a schema that it refers to, or an `allOf` part requires one of `names`."""
        return any(name in names for part, _ in self._parts(schema, file) for name in _names(part.get("required")))

    def _is_marked(self, inner: Any, mark: str, file: str) -> bool:
        if not isinstance(inner, dict):
            return False
        return is_marked(inner, mark) or is_marked(self._references.maybe(inner, file), mark)

    def _typed(self, schema: Mapping[str, JSON], made: Schema) -> None:
        said = schema.get("type")
        types = [
            kind for kind in (said if isinstance(said, list) else [said]) if isinstance(kind, str) and kind in _TYPES
        ]
        if schema.get("type") == "file":
            types = ["string"]
        if types:
            made["type"] = types[0] if len(types) == 1 else types


def _scalars(schema: Mapping[str, JSON], made: Schema, *, exact: bool) -> None:
    for key in _NUMBERS:
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            made[key] = value
    if schema.get("exclusiveMinimum") is True and "minimum" in made:  # as 3.0 spells it
        made["exclusiveMinimum"] = made.pop("minimum")
    if schema.get("exclusiveMaximum") is True and "maximum" in made:
        made["exclusiveMaximum"] = made.pop("maximum")
    for count in _COUNTS:
        value = schema.get(count)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value) and value >= 0:
            made[count] = int(value)
    if schema.get("uniqueItems") is True:
        made["uniqueItems"] = True
    if "const" in schema:
        made["const"] = schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        if len(choices) <= _MAX_ENUM:
            made["enum"] = choices
        elif exact:
            raise UnusableError(f"an enum of {len(choices)} values")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        if _is_pattern(pattern):
            made["pattern"] = pattern
        elif exact:
            raise UnusableError("a pattern that is too long, or that Python reads otherwise than JavaScript")


def _is_pattern(pattern: str) -> bool:
    """Return whether a pattern means the same to Python's `re` as to ECMA 262, for which documents are written."""
    if len(pattern) > 1000 or re.search(r"\\[pPuxckAZzGKN]|\(\?[<P]|\[\[|&&|\\[0-9]", pattern):
        return False
    try:
        with warnings.catch_warnings(action="error"):  # warns of what a later Python will read as set operations
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError, ValueError, FutureWarning, DeprecationWarning):
        return False
    return True


def _nullable(made: Schema) -> Schema:
    """Convert OpenAPI 3.0's `nullable` to the form of 3.1."""
    words = kept(made, lambda keyword: keyword in _WORDS)
    made = kept(made, lambda keyword: keyword not in _WORDS)
    if isinstance(kind := made.get("type"), str) and not any(
        key in made for key in ("allOf", "anyOf", "oneOf", "not", "const")
    ):
        made["type"] = [kind, "null"]
        if "enum" in made and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return {**made, **words}
    return {"anyOf": [made, {"type": "null"}], **words} if made else words


def _words_of(schema: Mapping[str, JSON]) -> Schema:
    words: Schema = {}
    if isinstance(title := schema.get("title"), str) and (told := line(title, _MAX_WORDS)):
        words["title"] = told
    if isinstance(description := schema.get("description"), str) and (told := line(description, _MAX_WORDS)):
        words["description"] = told
    for key in _VALUES:
        value = schema.get(key)
        if isinstance(value, str | int | float | bool):
            words[key] = value
    examples = schema.get("examples")
    if isinstance(examples, list) and examples and isinstance(examples[0], str | int | float | bool):
        words["example"] = examples[0]
    return words


def kept(schema: _S, is_kept: Callable[[str], bool]) -> _S:
    """Return the schema with only the keywords that `is_kept` accepts."""
    made: Any = {keyword: value for keyword, value in schema.items() if is_kept(keyword)}
    found: _S = made
    return found


def is_marked(schema: Mapping[str, JSON], mark: str = MARK) -> bool:
    """Return whether the schema of a property has the mark (`readOnly`, `writeOnly`), in any of its spellings."""
    return any(schema.get(name) is True for name in _SPELLINGS[mark])


def words_of_none(schema: Packed) -> str | None:
    """Return why no value can be given for a packed schema, if the packer recorded a reason; else None."""
    return str(schema[REASON]) if isinstance(schema, dict) and REASON in schema else None


def plain(schema: Packed) -> Packed:
    """Return a schema with only the keywords that constrain a value."""
    if isinstance(schema, bool):
        return schema
    if REASON in schema:
        return False
    made = kept(schema, lambda keyword: keyword not in _WORDS)
    for key in _LISTS:
        if key in made:
            made[key] = [plain(part) for part in made[key]]
    if "properties" in made:
        made["properties"] = {name: plain(field) for name, field in made["properties"].items()}
    for part in _INNER:
        if part in made:
            made[part] = plain(made[part])
    return made


def _referred(schema: Any) -> list[str]:
    """Return the names of the schemas that a schema refers to."""
    if isinstance(schema, bool) or not isinstance(schema, dict):
        return []
    found = [schema["$ref"].removeprefix(REF)] if isinstance(schema.get("$ref"), str) else []
    for key, value in schema.items():
        if key in _LISTS:
            found += [name for part in value for name in _referred(part)]
        elif key == "properties":
            found += [name for field in value.values() for name in _referred(field)]
        elif key in ("items", "additionalProperties", "not"):
            found += _referred(value)
    return found


def _opened(schema: Packed) -> Packed:
    """Return a schema in which each reference is replaced by `true`, which allows any value."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return True
    made = schema.copy()
    for key in _LISTS:
        if key in made:
            made[key] = [_opened(part) for part in made[key]]
    if True in made.get("anyOf", ()):  # nothing is left to choose
        del made["anyOf"]
    if True in made.get("oneOf", ()):
        del made["oneOf"]
    if "properties" in made:
        made["properties"] = {name: _opened(field) for name, field in made["properties"].items()}
    for part in _PARTS:
        if part in made:
            made[part] = _opened(made[part])
    if _referred(made.get("not", True)):
        del made["not"]
    return made


def _required_alone(schema: Mapping[str, JSON]) -> set[str]:
    """Return the names that an `allOf` part lists in `required`, but does not describe in `properties`."""
    own = schema.get("properties")
    required = set(_names(schema.get("required")))
    return required - (own.keys() if isinstance(own, dict) else set())


def _names(value: Any) -> list[str]:
    return [name for name in list_of(value)[:_MAX_PROPERTIES] if isinstance(name, str)]
