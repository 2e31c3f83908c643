"""An input never accepts more than the document does: by a table, and by property tests."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aileron.actions.inputs import argument_problem
from aileron.importing.reading import Files
from aileron.importing.references import References
from aileron.importing.rules import Rules, size_of
from aileron.importing.schemas import Packer, UnusableError, plain
from aileron.importing.shrinking import shrunk
from aileron.model.manifest import InputSpec
from aileron_connector.check import Schemas, maybe_problem
from tests.support.shaped import shaped

MOST = 16 << 10
NODE = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "next": {"$ref": "#/components/schemas/Node"}},
}
DOCUMENT = {
    "components": {
        "schemas": {
            "Node": NODE,
            "Loop": {"$ref": "#/components/schemas/Loop"},
            "Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "Id": {"type": "string", "minLength": 3},
        }
    }
}


def packer(document: dict[str, Any] = DOCUMENT, *, is_3_0: bool = False) -> Packer:
    """Return a packer for a document with these schemas."""
    files = Files("a.json", {"a.json": document}, "sha256:0")
    return Packer(References(files), is_3_0=is_3_0)


def rule_of(schema: Any, *, is_3_0: bool = False) -> Any:
    """Return the rule of a schema in a request."""
    packed = packer(is_3_0=is_3_0)
    return shrunk(Rules(packed.lookup).taken(packed.sent(schema, "a.json")), MOST).rule


PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
TAKEN = [
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 5}),
    ({}, {"type": "string"}),
    ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
    ({"const": 7}, {"type": "integer", "enum": [7]}),
    ({"type": ["string", "null"]}, {"type": "string"}),
    ({"type": ["null", "integer"], "enum": [1, None]}, {"type": "integer", "enum": [1]}),
    ({"$ref": "#/components/schemas/Id"}, {"type": "string", "minLength": 3}),
    ({"$ref": "#/components/schemas/Id", "minLength": 5}, {"type": "string", "minLength": 5}),
    ({"$ref": "#/components/schemas/Pet"}, PET),
    (
        {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"age": {"type": "integer"}}}]},
        {**PET, "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}},
    ),
    (
        {"allOf": [{"minimum": 1, "type": "number"}, {"minimum": 3, "maximum": 9}]},
        {"type": "number", "minimum": 3, "maximum": 9},
    ),
    ({"allOf": [{"type": "string", "maxLength": 9}, {"maxLength": 5}]}, {"type": "string", "maxLength": 5}),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**63}, {"type": "integer"}),
    (
        {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}}]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    ),
    ({"anyOf": [{"enum": ["a"]}, {"enum": ["b", "a"]}]}, {"type": "string", "enum": ["a", "b"]}),
    ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, {"type": "boolean"}),
    ({"type": "array"}, {"type": "array"}),
    (
        {"type": "array", "items": {"type": "string", "format": "uuid"}},
        {"type": "array", "items": {"type": "string", "description": "uuid"}},
    ),
    ({"type": "object"}, {"type": "object"}),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ),
    ({"type": "object", "additionalProperties": {}}, {"type": "object"}),
    ({"type": "array", "items": {}}, {"type": "array"}),
    (
        {"properties": {"a": {"type": "string"}, "b": {"not": {}}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    ),
    (
        {"properties": {"a": {"type": "string"}, "made": {"type": "string", "readOnly": True}}, "required": ["made"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    ),
    ({"$ref": "#/components/schemas/Node"}, PET),
]
"""Pairs of a schema and its rule."""
REFUSED = [
    (False, "no value"),
    ({"type": "null"}, "only be null"),
    ({"not": {"type": "string"}}, "'not' is not supported"),
    ({"type": "number", "multipleOf": 0.01}, "'multipleOf' is not supported"),
    ({"type": "string", "if": {"const": "a"}}, "'if' is not supported"),
    ({"type": "string", "pattern": "^(?!a)"}, "RE2"),
    ({"type": "string", "pattern": "(a"}, "a pattern"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value in common"),
    ({"allOf": [{"enum": ["a"]}, {"enum": ["b"]}]}, "no value in common"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "two rules for 'pattern'"),
    ({"type": "string", "enum": [str(n) for n in range(300)]}, "an enum of 300 values"),
    ({"$ref": "#/components/schemas/Loop"}, "within itself"),
    ({"$ref": "#/components/schemas/None"}, "leads nowhere"),
    ({"$ref": "other.json#/a"}, "was not named"),
    ({"$ref": "http://example.com/a.json"}, "nothing is fetched"),
    (
        {"type": "object", "required": ["b"], "properties": {"b": {"$ref": "#/components/schemas/Loop"}}},
        "within itself",
    ),
    ({"type": "array", "prefixItems": [{"type": "string"}]}, "differ by place"),
    ({"type": "object", "patternProperties": {"a": {"type": "string"}}}, "'patternProperties' is not supported"),
    ({"type": "object", "properties": {"a\u202eb": {"type": "string"}}, "required": ["a\u202eb"]}, "hidden character"),
    ("string", "no object"),
]
"""Schemas of which an input would accept too much or no value, each with the reason."""


@pytest.mark.parametrize(("schema", "rule"), TAKEN, ids=lambda value: json.dumps(value)[:50])
def test_a_json_schema_becomes_an_input_rule(schema: Any, rule: dict[str, Any]) -> None:
    """A rule has one type, no references and no choices."""
    assert rule_of(schema) == rule


@pytest.mark.parametrize(("schema", "why"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_a_schema_whose_rule_would_accept_too_much_has_no_rule(schema: Any, why: str) -> None:
    """The reason appears in the list of what was not imported."""
    with pytest.raises(UnusableError, match=why):
        rule_of(schema)


def test_an_unsupported_property_prevents_an_input_rule_only_if_it_is_required() -> None:
    """An optional one is left out. The test tries the same property both ways."""
    odd = {"type": "object", "properties": {"a": {"type": "string"}, "odd": {"not": {}}}}

    assert rule_of(odd)["properties"] == {"a": {"type": "string"}}
    with pytest.raises(UnusableError, match="odd"):
        rule_of({**odd, "required": ["odd"]})


def test_a_nullable_value_of_openapi_3_0_gets_the_rule_of_its_type_without_null() -> None:
    """An agent never gives null; it leaves an optional input out."""
    assert rule_of({"type": "string", "nullable": True, "enum": ["a"]}, is_3_0=True) == {
        "type": "string",
        "enum": ["a"],
    }
    assert rule_of({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, is_3_0=True) == {
        "type": "integer",
        "exclusiveMinimum": 1,
    }


def test_a_deeply_nested_schema_is_truncated_at_its_optional_parts() -> None:
    """Six objects may be nested, and a rule never has more bytes than the bound."""
    deep: dict[str, Any] = {"type": "string"}
    for level in range(12):
        deep = {"type": "object", "properties": {f"level{level}": deep, "note": {"type": "string"}}}

    rule = rule_of(deep)
    assert json.dumps(rule).count("level") == 5  # six objects, the outermost with them
    packed = packer()
    small = shrunk(Rules(packed.lookup).taken(packed.sent(deep, "a.json")), 300).rule
    assert size_of(small) <= 300
    assert small["properties"]["note"] == {"type": "string"}


def test_nested_choices_are_bounded() -> None:
    """Twenty nested choices of two are a million alternatives, but the rule is found at once."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(20):
        schema = {
            "allOf": [{"anyOf": [schema, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "boolean"}]}]
        }

    assert rule_of(schema) == {"type": "string"}


# By law

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "yy"]), st.just(1.5))
LEAVES = st.one_of(
    st.just({}),
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])}),
    st.fixed_dictionaries({"type": st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True)}),
    st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=4, unique_by=repr)}),
    st.fixed_dictionaries({"type": st.just("string"), "minLength": st.integers(0, 2), "maxLength": st.integers(0, 3)}),
    st.fixed_dictionaries({"minimum": st.integers(-2, 2), "exclusiveMaximum": st.integers(-1, 3)}),
    st.sampled_from([{"$ref": f"#/components/schemas/{name}"} for name in ("Node", "Pet", "Id")]),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for schemas made of schemas."""
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 2)}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, unique=True), "additionalProperties": inner},
        ),
        st.fixed_dictionaries({"allOf": some}),
        st.fixed_dictionaries({"anyOf": some}),
        st.fixed_dictionaries({"oneOf": some}),
    )


SCHEMAS = st.recursive(LEAVES, nested, max_leaves=8)


def values(rule: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for values that mostly fit a rule."""
    if "enum" in rule:
        return st.sampled_from(rule["enum"])
    match rule["type"]:
        case "string":
            return st.text("xy", min_size=rule.get("minLength", 0), max_size=max(rule.get("minLength", 0), 3))
        case "integer":
            return st.integers(-4, 4)
        case "number":
            return st.one_of(st.integers(-4, 4), st.just(0.5))
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(rule["items"]) if "items" in rule else SCALARS, max_size=3)
        case _:
            known = rule.get("properties", {})
            needed = {name: values(known[name]) for name in rule.get("required", ())}
            may = {name: values(member) for name, member in known.items() if name not in needed}
            return st.fixed_dictionaries(needed, optional=may)


def without_one_of(schema: Any) -> Any:
    """Return the schema with `anyOf` in place of `oneOf`: only the connector checks that no second branch fits."""
    if isinstance(schema, dict):
        return {("anyOf" if key == "oneOf" else key): without_one_of(value) for key, value in schema.items()}
    return [without_one_of(item) for item in schema] if isinstance(schema, list) else schema


@settings(max_examples=400, deadline=None)
@given(st.data(), SCHEMAS)
def test_a_value_that_fits_the_input_rule_fits_the_documents_schema(data: st.DataObject, schema: Any) -> None:
    """jsonschema checks every schema with a rule, with `oneOf` as `anyOf`: the connector checks that itself."""
    packed = packer()
    try:
        sent = packed.sent(schema, "a.json")
        rule = shaped(shrunk(Rules(packed.lookup).taken(sent), MOST).rule)
    except UnusableError:
        assume(False)
    value = data.draw(values(rule))
    spec = InputSpec(name="x", type=rule["type"], description="", rule={k: v for k, v in rule.items() if k != "type"})
    assume(argument_problem(spec, value) is None)

    whole = without_one_of({**DOCUMENT, "$ref": "#/schema", "schema": schema})
    assert jsonschema.Draft202012Validator(whole).is_valid(value), (schema, rule, value)
    import msgspec

    raw = {name: msgspec.Raw(msgspec.json.encode(plain(definition))) for name, definition in packed.schemas.items()}
    is_sent = maybe_problem(value, plain(sent), Schemas(raw), reading="argument") is None
    exact = jsonschema.Draft202012Validator({**DOCUMENT, "$ref": "#/schema", "schema": schema}).is_valid(value)
    assert not is_sent or exact, (schema, sent, value)
