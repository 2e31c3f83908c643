"""Test cases of an imported connector: a call of each operation with the document's examples, and the expected request.

Pure. If the document has an example of the operation's response, the case uses that; otherwise the service's response is 204. A
case is omitted if no valid argument values are known; an author who knows some can write it.

Source: docs/reference/connector-cases.md. Not here: running them (aileron/connector_tests).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from aileron.actions.inputs import argument_problem
from aileron.importing.examples import is_found
from aileron.importing.inputs import Input
from aileron.importing.operations import Imported
from aileron.importing.references import References
from aileron.importing.rules import Rule, inner_rule, json_of, size_of
from aileron.importing.schemas import kept
from aileron.importing.toml import toml_of
from aileron.model.json_value import JSONObject
from aileron.model.manifest import InputSpec
from aileron.model.text import hidden_at
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.failures import ConnectorError
from aileron_connector.openapi.document import Document
from aileron_connector.openapi.request import Endpoint, Request, prepared

__all__ = ["cases_text", "example_arguments", "some_arguments"]

_HEADER: Final = (
    "# A call of each operation with the document's examples. `aileron connector test` runs them in a real jail.\n"
)
_ORIGIN: Final = "https://host.invalid"
_HOSTS: Final = '\nhosts = ["service.example.com:443"]\n'
"""Line of a file of cases that states a made-up host, in place of one that is chosen only when the connector is built."""
_MAX_FILE: Final = 200 << 10
"""Maximum size of a file of cases in bytes; readers accept at most 256 KiB."""
_MAX_EXAMPLE: Final = 4 << 10
"""Maximum size of one response in bytes, so that it is shown in full and a person can read it."""
_MAX_EXAMPLES: Final = 10
"""Maximum number of examples of one response that are tried."""
_MAX_DEPTH: Final = 12
_FORMATTED: Final = {
    "base64": "ZXhhbXBsZQ==",
    "date-time": "2026-11-24T10:00:00Z",
    "date": "2026-11-24",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "ipv4": "192.0.2.1",
}
"""Example value for each format."""
_SHAPES: Final = {
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "uuid": re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
}
"""Pattern for each format that a document's examples must match. Some documents have a date with a time where a date is
expected, or words in place of a UUID.
"""


def cases_text(
    document: Document, operations: Sequence[Imported], references: References, *, is_host_open: bool = False
) -> str | None:
    """Return the text of the file of cases; None if there are no cases.

    `document` is the packed document. `is_host_open` means that hosts are chosen when the connector is built.
    """
    schemas = Schemas(document.components.schemas, search=is_found)
    base = _ORIGIN + document.servers[0].url
    head = f"{_HEADER}{_HOSTS if is_host_open else ''}"
    text = head
    for operation in operations:
        case = "\n".join(_case(operation, base, schemas, references))
        if case and len(text) + len(case) < _MAX_FILE:
            text += f"\n{case}\n"
    return text if text != head else None


def example_arguments(operation: Imported) -> JSONObject | None:
    """Return a call's arguments: the required inputs, and those with an example. None if no valid value is known for a
    required input.
    """
    args = some_arguments(operation)
    return None if any(given.required and given.name not in args for given in operation.inputs) else args


def some_arguments(operation: Imported) -> JSONObject:
    """Return a call's arguments, without the required inputs for which no valid value is known."""
    return dict(_arguments(operation.inputs))


def _case(operation: Imported, base: str, schemas: Schemas, references: References) -> Iterator[str]:
    args = example_arguments(operation)
    if args is None:
        return
    try:
        where = base if operation.origin is None else _ORIGIN + operation.origin.base
        request = prepared(
            Endpoint(operation.found.method.upper(), operation.found.path, operation.packed), args, where, schemas
        )
    except ConnectorError:
        return
    found = _example(operation, references)
    answer = found if found is not None and maybe_problem(found[1], operation.answer, schemas) is None else None
    yield "[[case]]"
    yield f"name = {toml_of(f'{operation.name} sends what the document says')}"
    yield f"op = {toml_of(operation.name)}"
    if args:
        yield f"args = {toml_of(args)}"
    output: Any = {"status": 204}
    if answer is not None:
        output = {"items": answer[1]} if isinstance(answer[1], list) else answer[1]
    if operation.found.method == "head":
        answer, output = None, {"status": 204, "headers": {}}
    yield f"output_json = {toml_of(json.dumps(output, ensure_ascii=False))}"
    yield ""
    yield "[[case.exchange]]"
    yield f"method = {toml_of(request.method)}"
    yield f"path = {toml_of(request.url.removeprefix(_ORIGIN))}"
    if operation.origin is not None:
        yield f"host = {toml_of(str(operation.origin.host))}"
    if (sent := _sent(request)) is not None:
        yield f"sends = {toml_of(sent)}"
    if operation.packed.security:
        yield f"credential = {toml_of(next(iter(operation.packed.security[0])))}"
    yield f"status = {204 if answer is None else answer[0]}"
    if answer is not None:
        yield 'headers = { "Content-Type" = "application/json" }'
        yield f"body = {toml_of(json.dumps(answer[1], ensure_ascii=False))}"


def _sent(request: Request) -> str | None:
    """Return a request's body as text; None if the request has no body or a case cannot contain it."""
    if request.body is None or any(
        "multipart" in value for name, value in request.headers if name.lower() == "content-type"
    ):
        return None
    try:
        text = request.body.decode()
    except UnicodeDecodeError:
        return None
    return text if hidden_at(text, prose=True) is None and len(text) < _MAX_EXAMPLE else None


def _arguments(inputs: Sequence[Input]) -> Iterator[tuple[str, Any]]:
    """Yield an operation's arguments by name, each with a valid value: the required ones, and those with an example."""
    for given in inputs:
        spec = InputSpec(name=given.name, type=given.kind, description="", rule=json_of(_without_type(given.rule)))  # type: ignore[arg-type]
        has_example = given.example != _NOTHING and argument_problem(spec, given.example) is None
        if has_example and _has_its_shape(given):
            yield given.name, given.example
        elif given.required:
            value: Any = _FORMATTED.get("base64" if given.is_base64 else given.format)
            if given.kind == "array" and value is not None:
                value = [value] * max(1, given.rule.get("minItems", 0))
            elif given.kind != "string":
                value = None
            try:
                if value is None or argument_problem(spec, value) is not None:
                    value = _value(given.rule, _MAX_DEPTH)
            except _NoValueError:
                continue
            if argument_problem(spec, value) is None:
                yield given.name, value


def _has_its_shape(given: Input) -> bool:
    shape = _SHAPES.get(given.format)
    return shape is None or not isinstance(given.example, str) or shape.fullmatch(given.example) is not None


def _without_type(rule: Rule) -> Rule:
    return kept(rule, lambda keyword: keyword != "type")


def _value(rule: Rule, depth: int) -> Any:
    """Return a value that usually fits the rule of an input; patterns are not taken into account."""
    if "enum" in rule:
        return rule["enum"][0]
    if "const" in rule:
        return rule["const"]
    match rule.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return _number(rule)
        case "array":
            items: Rule = inner_rule(rule["items"]) if "items" in rule else {"type": "string"}
            member, members = _value(items, depth - 1) if depth else None, max(1, rule.get("minItems", 0))
            if members * size_of(member) > _MAX_EXAMPLE:
                raise _NoValueError
            return [member] * members if depth else []
        case "object":
            needed = rule.get("required", ())
            return {name: _value(inner_rule(rule["properties"][name]), depth - 1) for name in needed} if depth else {}
        case _:
            if rule.get("minLength", 0) > _MAX_EXAMPLE:
                raise _NoValueError
            text = "example"
            text += "x" * (rule.get("minLength", 0) - len(text))
            return text[: rule.get("maxLength", len(text))]


class _NoValueError(Exception):
    """Error: every valid value of an input is longer than a case should be."""


def _number(rule: Rule) -> int | float:
    least: int | float = rule["minimum"] if "minimum" in rule else rule.get("exclusiveMinimum", -1) + 1
    most: int | float = rule["maximum"] if "maximum" in rule else rule.get("exclusiveMaximum", math.inf)
    value = least if least > 1 or most < 1 else 1
    return math.ceil(value) if rule["type"] == "integer" else value


_NOTHING: Final = Input(name="", rule={}, description="", required=False).example


def _example(operation: Imported, references: References) -> tuple[int, Any] | None:
    """Return the status and body of the first small example of a successful JSON response in the document; None if
    there is none.
    """
    responses = operation.found.raw.get("responses")
    for status, raw in responses.items() if isinstance(responses, dict) else ():
        if not re.fullmatch("2[0-9]{2}", status) or status in ("204", "205"):
            continue
        media = references.maybe(raw, operation.found.file).get("content")
        said = media.get("application/json") if isinstance(media, dict) else None
        for value in itertools.islice(_examples(said, references, operation.found.file), _MAX_EXAMPLES):
            if not isinstance(value, dict | list) or not _is_small(value):
                continue
            text = json.dumps(value, ensure_ascii=False)
            if len(text.encode()) < _MAX_EXAMPLE and hidden_at(text, prose=True) is None:
                return int(status), value
    return None


def _is_small(value: Any) -> bool:
    """Return whether an example is small enough to be written out; some examples are as large as the document."""
    waiting, room = [value], _MAX_EXAMPLE
    while waiting and room > 0:
        part = waiting.pop()
        room -= 1
        if isinstance(part, dict):
            room -= sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part[: _MAX_EXAMPLE + 1]
        elif isinstance(part, str):
            room -= len(part)
    return room > 0


def _examples(media: Any, references: References, file: str) -> Iterator[Any]:
    if not isinstance(media, dict):
        return
    if "example" in media:
        yield media["example"]
    several = media.get("examples")
    for raw in several.values() if isinstance(several, dict) else ():
        example = references.maybe(raw, file)
        if "value" in example:
            yield example["value"]
