"""Test cases of an imported connector: they use the document's examples, and take no longer to make than to read."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.connector_tests.cases import parse_cases
from aileron.importing.repository import Made
from tests.importing.documents import Json, document, imported, one_operation

TEXT = {"type": "string"}


def case_of(made: Made) -> Any:
    """Return the first case, or None if there is no file of cases."""
    text = made.files.get("tests/cases.toml")
    return None if text is None else parse_cases(text.decode(), file="cases.toml").cases[0]


def answered(media: Json) -> Made:
    """Import an operation with this response."""
    return imported(one_operation({"responses": {"200": {"content": {"application/json": media}}}}))


def asked(schema: Json, **more: Any) -> Made:
    """Import an operation that requires a value of this schema."""
    return imported(
        one_operation({"parameters": [{"name": "q", "in": "query", "required": True, "schema": schema, **more}]})
    )


def test_generated_cases_name_a_host_only_if_the_manifest_does_not() -> None:
    """A new import without a host in either would fail its own `connector test`."""
    whole = one_operation({})
    hosts = [
        [str(host) for host in parse_cases(made.files["tests/cases.toml"].decode(), file="cases.toml").hosts]
        for made in (imported(whole, is_host_open=True), imported(whole))
    ]
    assert hosts == [["service.example.com:443"], []]


@pytest.mark.parametrize(
    ("media", "output"),
    [
        ({"example": {"a": 1}}, {"a": 1}),
        ({"examples": {"x": {"value": {"a": 2}}}}, {"a": 2}),
        ({"examples": {"x": {"$ref": "#/nowhere"}, "y": {"value": {"a": 3}}}}, {"a": 3}),
        ({"example": [1, 2]}, {"items": [1, 2]}),
        ({"example": {"a": 1}, "schema": {"properties": {"a": TEXT}}}, {"status": 204}),
        ({"example": {"a": "x" * 5000}}, {"status": 204}),
        ({"example": {"a": "\u202e"}}, {"status": 204}),
        ({"example": "text"}, {"status": 204}),
        ({"examples": [1]}, {"status": 204}),
        ({}, {"status": 204}),
    ],
)
def test_a_suitable_example_in_the_document_is_the_response_of_the_case(media: Json, output: Any) -> None:
    """The example counts if it is small, visible, and fits its own schema."""
    assert case_of(answered(media)).output == output


@pytest.mark.parametrize(
    ("schema", "more", "value"),
    [
        (TEXT, {"example": "Rex"}, "Rex"),
        ({"type": "string", "default": "Tom"}, {}, "Tom"),
        ({"type": "string", "enum": ["b", "a"]}, {}, "b"),
        ({"type": "string", "minLength": 10}, {}, "examplexxx"),
        ({"type": "string", "maxLength": 3}, {}, "exa"),
        ({"type": "integer", "minimum": 7}, {}, 7),
        ({"type": "integer", "maximum": -3}, {}, None),
        ({"type": "integer", "exclusiveMinimum": 3.5}, {}, 5),
        ({"type": "boolean"}, {}, True),
        ({"type": "array", "items": TEXT, "minItems": 2}, {}, ["example", "example"]),
        ({"type": "object", "required": ["a"], "properties": {"a": TEXT, "b": TEXT}}, {}, {"a": "example"}),
    ],
)
def test_a_required_argument_gets_an_example_or_a_generated_value(schema: Json, more: Json, value: Any) -> None:
    """The operation has no case if no fitting value is found."""
    case = case_of(asked(schema, **more))

    assert (None if case is None else case.args) == (None if value is None else {"q": value})


def nested(levels: int) -> Json:
    """Return a schema of nested lists, each with a thousand members."""
    schema: Json = TEXT
    for _ in range(levels):
        schema = {"type": "array", "minItems": 1000, "items": schema}
    return schema


@pytest.mark.computes_for(10)
@pytest.mark.parametrize(
    "schema", [nested(1), nested(5), {"type": "string", "minLength": 1 << 20}, {"type": "array", "minItems": 1 << 20}]
)
def test_an_operation_whose_smallest_valid_argument_is_too_large_gets_no_case(schema: Json) -> None:
    """The least fitting value would be a thousand lists of a thousand lists, which do not fit in memory."""
    made = asked(schema)

    assert made.actions
    assert case_of(made) is None


@pytest.mark.computes_for(10)
def test_a_pattern_that_backtracks_is_checked_quickly() -> None:
    """Such a regular expression can take exponential time; a fitting value is still recognized."""
    text = {"type": "string", "pattern": "^(a+)+$"}
    for value, output in (("a" * 40 + "!", {"status": 204}), ("a" * 40, {"a": "a" * 40})):
        assert case_of(answered({"schema": {"properties": {"a": text}}, "example": {"a": value}})).output == output
    assert case_of(asked(text, example="a" * 40 + "!")) is None
    assert case_of(asked(text, example="a" * 40)).args == {"q": "a" * 40}


@pytest.mark.computes_for(10)
def test_a_large_example_is_not_copied_for_each_reference_to_it() -> None:
    """Many references to it would multiply its size, so the importer measures it first."""
    several = {str(n): {"$ref": "#/components/examples/Large"} for n in range(100)}
    answer = {"200": {"content": {"application/json": {"examples": several}}}}
    large = {"value": [{"a": "b" * 50}] * 50_000}
    made = imported(
        document(
            {f"/{n}": {"get": {"responses": answer}} for n in range(200)}, components={"examples": {"Large": large}}
        )
    )

    assert len(made.actions) == 200


def test_a_generated_case_names_the_host_of_its_own_operation() -> None:
    """The operation has a server of its own."""
    made = imported(one_operation({"servers": [{"url": "https://files.example.com/x"}]}))

    assert 'host = "files.example.com:443"' in made.files["tests/cases.toml"].decode()
