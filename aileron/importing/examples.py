"""The document's own examples of a body that can be sent.

Pure. Examples show the intended form if a schema leaves a choice (rules.py). Each is also tried on the generated action, so
that an import can report examples that cannot be given as arguments.

Rules
- Examples of the body are used. If there are none, the examples of its schema are used, without read-only values,
  because they also show responses.
- An example that only wraps the body in an object with one name, or shows a complete request, is replaced by the body itself;
  an example that is written as JSON text is parsed.
- Null values are left out, as in a call, and reported.

Source: OpenAPI Specification 3.1.1, sections 4.8.14 (Media Type Object), 4.8.19 (Example Object), 4.8.24 (Schema Object).
Not here: examples of parameters and of responses (cases.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aileron.importing.inputs import Input
from aileron.importing.references import References
from aileron.importing.rules import Rule, input_type, is_taken, json_of, size_of
from aileron.importing.schemas import is_marked
from aileron.importing.words import line
from aileron.model.json_value import JSON, JSONObject, list_of
from aileron_connector.openapi.document import RequestBody

__all__ = ["Example", "bodies_of", "is_found", "problem_of"]

_MAX_EXAMPLES: Final = 10
"""Maximum number of examples of one body."""
_MAX_BYTES: Final = 48 << 10
"""48 KiB: maximum size of an example of a body; the same as the limit for all arguments of a step together."""
_MAX_DEPTH: Final = 32
_BODY: Final = ("request_body", "requestBody", "body")
"""Names of members that can contain the request's body, in an example that shows a complete request with address and
parameters.
"""


def is_found(pattern: str, value: str) -> bool:
    """Return whether RE2 finds `pattern` in `value`. With an untrusted pattern and an untrusted example, `re` might
    never finish.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options).search(value) is not None
    except re2.error:
        return False


class Example(NamedTuple):
    """An example of a request body, without its null members, because a call leaves them out. `nulls` are the paths of
    these members.
    """

    value: Any
    nulls: tuple[str, ...]


def bodies_of(media: Mapping[str, JSON], references: References, file: str) -> list[Example]:
    """Return the examples of a Media Type Object in their order, without those that are null or too large."""
    found = itertools.islice(_said(media, references, file), _MAX_EXAMPLES)
    return [_without_null(value) for value in found if value is not None and _is_small(value)]


def _properties(schema: Mapping[str, JSON], references: References, file: str) -> JSONObject:
    """Return the properties of an object schema, including those of its `allOf` parts."""
    found: JSONObject = {}
    for part in [*(references.maybe(inner, file) for inner in list_of(schema.get("allOf"))), schema]:
        own = part.get("properties")
        found |= own if isinstance(own, dict) else {}
    return found


def _without_null(value: Any) -> Example:
    nulls: list[str] = []

    def kept(inner: Any, at: str) -> Any:
        if isinstance(inner, list):
            return [kept(member, f"{at}[]") for member in inner]
        if not isinstance(inner, dict):
            return inner
        nulls.extend(f"{at}.{name}".lstrip(".") for name in inner if inner[name] is None)
        return {name: kept(field, f"{at}.{name}") for name, field in inner.items() if field is not None}

    return Example(kept(value, ""), tuple(dict.fromkeys(nulls)))


def _said(media: Mapping[str, JSON], references: References, file: str) -> Iterator[Any]:
    told = False
    schema = references.maybe(media.get("schema", {}), file)
    known = schema.get("properties")
    names = known.keys() if isinstance(known, dict) else set()
    if "example" in media:
        told = True
        yield _unwrapped(media["example"], names)
    several = media.get("examples")
    for raw in several.values() if isinstance(several, dict) else ():
        example = references.maybe(raw, file)
        if "value" in example:
            told = True
            yield _unwrapped(example["value"], names)
    if told:
        return
    of_schema = [schema["example"]] if "example" in schema else schema.get("examples")
    for value in of_schema if isinstance(of_schema, list) else ():
        yield _written(_unwrapped(value, names), media.get("schema", {}), references, file, _MAX_DEPTH)


def _unwrapped(value: Any, names: Any) -> Any:
    """Return the body that an example contains: some documents write it within a complete request, as the only member
    of an object, or as a JSON string. `names` are the body's properties.
    """
    if isinstance(value, str) and names and value.lstrip().startswith("{") and len(value) <= _MAX_BYTES:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if not isinstance(value, dict) or not names or value.keys() & names:
        return value
    for inner in (value[name] for name in _BODY if name in value):
        if isinstance(inner, dict) and inner.keys() & names:
            return inner
    if len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, dict) and inner.keys() <= names:
            return inner
    return value


def _written(value: Any, raw: Any, references: References, file: str, depth: int) -> Any:
    """Return `value`, an example of the schema `raw`, without the properties that the schema, or one that it refers to,
    marks as read-only.

    Values nested deeper than `depth` levels stay unchanged.
    """
    schema = references.maybe(raw, file)
    if depth == 0:
        return value
    if isinstance(value, list):
        return [_written(member, schema.get("items", {}), references, file, depth - 1) for member in value]
    if not isinstance(value, dict):
        return value
    properties = _properties(schema, references, file)
    return {
        name: _written(inner, properties.get(name, {}), references, file, depth - 1)
        for name, inner in value.items()
        if not _is_read_only(properties.get(name), references, file)
    }


def _is_read_only(schema: Any, references: References, file: str) -> bool:
    return isinstance(schema, dict) and (is_marked(schema) or is_marked(references.maybe(schema, file)))


def _is_small(value: Any) -> bool:
    try:
        return size_of(value) <= _MAX_BYTES
    except (TypeError, ValueError, RecursionError):  # a date of YAML, or nested without end
        return False


def problem_of(value: Any, body: RequestBody | None, inputs: Sequence[Input]) -> str | None:
    """Return why an example of the body cannot be given as the arguments of an action; None if it can."""
    if body is None:
        return "the action has no body"
    by_name = {spec.name: spec for spec in inputs}
    if not body.arguments:
        return _problem(by_name[body.argument], value, body.argument)
    if not isinstance(value, dict):
        return "the example is no object"
    for name, inner in value.items():
        if name not in body.arguments:
            return f"{line(name, 60)} cannot be given"
        if (problem := _problem(by_name[body.arguments[name]], inner, name)) is not None:
            return problem
    missing = [name for name, given in body.arguments.items() if by_name[given].required and name not in value]
    return f"{line(missing[0], 60)} is required, and not in the example" if missing else None


def _problem(given: Input, value: Any, name: str) -> str | None:
    rule: Rule = given.rule
    if is_taken(rule, value):
        return None
    return f"{line(name, 60)}: {_why(rule, value)}"


def _why(rule: Rule, value: Any) -> str:
    from aileron.actions.inputs import argument_problem
    from aileron.model.manifest import InputSpec

    spec = InputSpec(name="value", type=input_type(rule), description="", rule=json_of(rule))
    return line(argument_problem(spec, value) or "", 160)
