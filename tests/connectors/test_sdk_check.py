"""Values against schemas: verdicts as the `jsonschema` library has them, messages that name a place and a rule, and limits."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aileron_connector import ConnectorError
from aileron_connector.check import MAX_DEPTH, Schema, maybe_problem
from tests.connectors.openapi.packed import named

NAMES = ["a", "b", "c", "d"]
NAMED = {
    "Tree": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Trees"}, "b": {"type": "integer"}}},
    "Trees": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}, "maxItems": 2},
    "Word": {"type": ["string", "null"], "minLength": 1},
}


def values() -> st.SearchStrategy[Any]:
    """Return JSON values, small enough that schemas of the same names often fit."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-4, 4)
        | st.sampled_from([0.0, 1.0, 2.5, -3.0, 0.75, 1e300])
        | st.sampled_from(["", "a", "ab", "abc", "ü", "x\ny", "aa"])
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        max_leaves=8,
    )


def schemas() -> st.SearchStrategy[Any]:
    """Return schemas of the dialect. Each keyword is optional, whatever the type is."""
    count = st.integers(0, 3)
    bound = st.integers(-3, 3) | st.sampled_from([0.5, 2.5])
    kinds = st.sampled_from(["string", "boolean", "integer", "number", "null", "array", "object"])
    leaf = st.booleans() | st.fixed_dictionaries(
        {},
        optional={
            "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
            "enum": st.lists(values(), min_size=1, max_size=3),
            "minimum": bound,
            "exclusiveMaximum": bound,
            "minLength": count,
            "pattern": st.sampled_from(["^a", "b$", "a+b", "^$"]),
            "format": st.just("date"),
        },
    )
    reference = st.sampled_from([{"$ref": f"#/components/schemas/{name}"} for name in NAMED])

    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, min_size=1, max_size=3)
        return st.fixed_dictionaries(
            {},
            optional={
                "type": kinds,
                "const": values(),
                "maximum": bound,
                "exclusiveMinimum": bound,
                "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.25]),
                "maxLength": count,
                "items": inner,
                "prefixItems": several,
                "minItems": count,
                "maxItems": count,
                "uniqueItems": st.booleans(),
                "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
                "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
                "additionalProperties": inner,
                "minProperties": count,
                "maxProperties": count,
                "allOf": several,
                "anyOf": several,
                "oneOf": several,
                "not": inner,
                "$ref": reference.map(lambda schema: schema["$ref"]),
            },
        )

    return st.recursive(leaf | reference, around, max_leaves=6)


def problem(value: Any, schema: Any, **more: Any) -> str | None:
    """Return the problem as text, or None."""
    found = maybe_problem(value, schema, named(NAMED), **more)
    return None if found is None else str(found)


def is_valid(value: Any, schema: Any) -> bool:
    """Return the library's verdict."""
    if isinstance(schema, dict):
        schema = {**schema, "components": {"schemas": NAMED}}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@given(values(), schemas())
@settings(max_examples=400)
@example([1, True, 1.0], {"uniqueItems": True})
@example([{"a": 1}, {"a": 1.0}], {"uniqueItems": True})
@example([0, False], {"uniqueItems": True})
@example({"a": [0]}, {"const": {"a": [False]}})
@example(1.0, {"type": "integer"})
@example(True, {"type": "integer"})
@example(True, {"enum": [1, True]})
@example(True, {"enum": [1, False]})
@example(0, {"enum": [False]})
@example(1e300, {"multipleOf": 3})
@example(1e300, {"multipleOf": 2})
@example(2.5, {"multipleOf": 2})
@example(3, {"maximum": 3})
@example(3, {"minimum": 3})
@example(3, {"exclusiveMaximum": 3})
@example(3, {"exclusiveMinimum": 3})
@example([[], {}], {"enum": [[{}, []]]})
@example({"a": [{"a": [{"b": "x"}]}]}, {"$ref": "#/components/schemas/Tree"})
def test_the_result_of_a_schema_check_equals_that_of_the_jsonschema_library(value: Any, schema: Any) -> None:
    """Any schema and any value give the same verdict."""
    assert (problem(value, schema) is None) == is_valid(value, schema)


@given(values(), schemas())
@example({"a": 1}, {"not": {"required": ["b"]}})
@example({"a": 1}, {"anyOf": [{"not": {"additionalProperties": False}}, {"required": ["b"]}]})
def test_a_value_that_is_valid_as_an_argument_is_valid_as_an_answer(value: Any, schema: Any) -> None:
    """Answers are checked with fewer rules than arguments, so more values pass."""
    if problem(value, schema) is None:
        assert problem(value, schema, reading="answer") is None


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"id": 1}, True),
        ({}, True),
        ({"id": 1, "new": 1}, True),
        ({"id": 1, "owner": {"login": "a", "name": "b"}}, True),
        ({"id": "1"}, False),
        ({"id": 1, "owner": {"login": 1}}, False),
        ({"id": 1, "state": "new"}, True),
        ({"id": None, "owner": {"login": None, "more": None}}, True),
        (None, False),
        ([], False),
    ],
)
def test_an_answer_may_lack_fields_and_have_additional_ones(value: Any, fits: bool) -> None:
    """A value of another type is refused, because code that uses it would fail."""
    owner = {"type": "object", "properties": {"login": {"type": "string"}}, "required": ["login"]}
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "state": {"enum": ["open"]}, "owner": {"oneOf": [owner, {**owner}]}},
        "required": ["id", "state"],
        "additionalProperties": False,
    }
    assert (problem(value, schema, reading="answer") is None) is fits
    assert problem(value, schema) is not None


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        ("x", {"type": "integer"}, "the value is not an integer"),
        (None, {"type": ["string", "array"]}, "the value is not a string or an array"),
        ({"items": [{"state": "opne"}]}, None, '.items[0].state is not one of "open", "closed"'),
        ({"items": [{}]}, None, '.items[0] has no "state"'),
        ({"items": [{"state": "open", "x-y": 1}]}, None, '.items[0]["x-y"] is not allowed here'),
        ([1, 2, 1], {"uniqueItems": True}, "the value has the same member twice"),
        (["a"], {"minItems": 2}, "the value has fewer than 2 members"),
        ({}, {"minProperties": 1}, "the value has fewer than 1 property"),
        ("abc", {"maxLength": 2}, "the value has more than 2 characters"),
        ("abc", {"pattern": "^b"}, "the value does not match the pattern ^b"),
        ("abc", {"pattern": "("}, "the value has a pattern that cannot be read"),
        (7, {"exclusiveMaximum": 7}, "the value is not less than 7"),
        (7, {"multipleOf": 2}, "the value is not a multiple of 2"),
        (7, {"not": {"type": "integer"}}, "the value is what the schema excludes"),
        (7, {"oneOf": [True, True, False]}, "the value fits 2 of 3 alternatives, of which it must fit one"),
        (7, {"anyOf": []}, "the value has no alternative to fit"),
        (7, {"const": {"a": 1}}, 'the value is not {"a":1}'),
    ],
)
def test_the_report_of_a_schema_violation_names_its_place_and_the_rule(value: Any, schema: Any, words: str) -> None:
    """The message does not quote the value, which may be confidential."""
    items = {
        "type": "object",
        "properties": {"state": {"enum": ["open", "closed"]}},
        "required": ["state"],
        "additionalProperties": False,
    }
    assert problem(value, schema or {"properties": {"items": {"items": items}}}) == words


CARD = {"properties": {"type": {"const": "card"}, "number": {"type": "string"}}, "required": ["type", "number"]}
BANK = {"properties": {"type": {"const": "bank"}, "iban": {"type": "string"}}, "required": ["type", "iban"]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"type": "card", "number": 7}, ".number is not a string (closest of 3 alternatives)"),
        ({"type": "bank"}, 'the value has no "iban" (closest of 3 alternatives)'),
        (7, "the value is not null (closest of 3 alternatives)"),
    ],
)
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_reported_schema_violation_is_that_of_the_closest_alternative(keyword: str, value: Any, words: str) -> None:
    """An alternative for another type of value was not meant."""
    typed = [{"type": "object", **alternative} for alternative in (CARD, BANK)]
    assert problem(value, {keyword: [{"type": "null"}, *typed]}) == words


def test_a_schema_alternative_that_fails_only_deep_inside_is_the_closest() -> None:
    """Even a wrong type deep inside does not rule out an alternative; only a wrong type near the top does."""
    deep = {"properties": {"a": {"properties": {"b": {"type": "string"}}}}}
    assert (
        problem({"a": {"b": 1}}, {"anyOf": [{"required": ["x"]}, deep]})
        == ".a.b is not a string (closest of 2 alternatives)"
    )


def test_a_whole_float_is_accepted_as_an_integer_in_an_answer_but_not_in_an_argument() -> None:
    """JSON Schema says that 1.0 is an integer; many services do not."""
    assert problem(1.0, {"type": "integer"}) is None
    assert problem(1.0, {"type": "integer"}, reading="argument") == "the value is not an integer"
    assert problem(1.0, {"type": "number"}, reading="argument") is None


def test_multiple_of_tolerates_rounding_of_binary_fractions() -> None:
    """The example is 19.99 / 0.01, which is 1998.9999999999998."""
    assert problem(19.99, {"multipleOf": 0.01}) is None
    assert problem(19.995, {"multipleOf": 0.01}) is not None
    assert problem(1e308, {"multipleOf": 1e-5}) is not None
    assert problem(10**400, {"multipleOf": 0.5}) is not None
    assert problem(0, {"multipleOf": 0}) is not None


def test_the_time_and_depth_of_a_schema_check_are_bounded() -> None:
    """The cases are schemas that lead to themselves, alternatives that double with each level, and very deep values."""
    round_and_round = named({"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}})
    doubling = named({"A": {"anyOf": [{"items": {"$ref": "#/components/schemas/A"}, "minItems": 1}] * 2}})
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    nested: Any = []
    for _ in range(40):
        nested = [nested]
    a: Schema = {"$ref": "#/components/schemas/A"}

    assert str(maybe_problem(1, a, round_and_round)) == f"the value is nested deeper than {MAX_DEPTH} levels"
    assert str(maybe_problem(nested, a, doubling)) == "the value takes more than 1000000 checks"
    assert "deeper" in str(
        maybe_problem(
            deep, {"$ref": "#/components/schemas/L"}, named({"L": {"items": {"$ref": "#/components/schemas/L"}}})
        )
    )
    for keyword in "anyOf", "oneOf", "allOf":
        around = named({"L": {keyword: [{"items": {"$ref": "#/components/schemas/L"}}]}})
        assert "deeper" in str(maybe_problem(deep, {"$ref": "#/components/schemas/L"}, around))
    assert "deeper" in str(maybe_problem([deep], {"const": [deep]}, named({})))
    assert "deeper" in str(maybe_problem(deep, {"uniqueItems": True}, named({})))


def test_a_schema_check_that_reaches_its_limit_reports_a_problem() -> None:
    """A value that could not be checked does not fit, not even by `not`."""
    round_and_round = named({"A": {"$ref": "#/components/schemas/A"}})
    a: Schema = {"$ref": "#/components/schemas/A"}

    assert maybe_problem(1, {"not": a}, round_and_round) is not None
    assert maybe_problem(1, {"anyOf": [a, True]}, round_and_round) is not None


def test_a_dangling_reference_is_reported_as_an_error_of_the_document() -> None:
    """The error is not a problem of the value."""
    with pytest.raises(ConnectorError, match="the document has no schema '#/components/schemas/Gone'"):
        maybe_problem(1, {"$ref": "#/components/schemas/Gone"}, named({}))


def test_a_chain_of_schema_references_is_resolved() -> None:
    """The reference leads to a schema, to `true`, or in a circle."""
    schemas = named({"A": {"$ref": "#/components/schemas/B"}, "B": {"type": "string"}, "C": True, "D": {"$ref": D}})
    assert schemas.resolved({"$ref": "#/components/schemas/A"}) == {"type": "string"}
    assert schemas.resolved({"$ref": "#/components/schemas/C"}) == {}
    assert schemas.resolved({"$ref": D}) == {}


D = "#/components/schemas/D"
