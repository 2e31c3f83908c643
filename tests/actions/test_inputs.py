"""Rules for arguments: how files declare them, how calls are checked against them, and when a rule is wider than another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.inputs import argument_problem, fragment, is_narrower
from aileron.actions.manifest import input_schema, parse_action
from aileron.actions.widening import changes
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import InputSpec
from tests.actions.test_references import planned
from tests.support.refusals import refusal_of
from tests.support.shaped import shaped

Text = Callable[..., str]
COUNT = 'name = "count"\ntype = "integer"\ndescription = "How many."\nrequired = false\n'
STEP = 'count = "${args.count}"'


@pytest.fixture
def declared(action_text: Text) -> Callable[[str], str]:
    """Return a function that builds an action whose second input, `count`, is declared by the given lines."""
    return lambda lines: action_text((COUNT, f'name = "count"\ndescription = "How many."\n{lines}\n'))


def spec_of(text: str) -> InputSpec:
    """Return the second input."""
    return parse_action(text, file="send-email.md").inputs[1]


# As a file says them


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ('type = "string"\nenum = ["a", "b"]', {"type": "string", "enum": ["a", "b"]}),
        ('type = "integer"\nminimum = 1\nmaximum = 9', {"type": "integer", "minimum": 1, "maximum": 9}),
        ('type = "number"\nminimum = 0.5', {"type": "number", "minimum": 0.5}),
        (
            'type = "string"\npattern = "^a+$"\nmin_length = 1\nmax_length = 3',
            {"type": "string", "pattern": "^a+$", "minLength": 1, "maxLength": 3},
        ),
        ('type = "boolean"\ndefault = false', {"type": "boolean", "default": False}),
        (
            'type = "array"\nschema = {items = {type = "string"}, maxItems = 3}',
            {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        ),
        (
            'type = "object"\n[inputs.schema]\nrequired = ["id"]\nadditionalProperties = false\n[inputs.schema.properties.id]\n'
            'type = "integer"\ndescription = "Which."',
            {
                "type": "object",
                "required": ["id"],
                "additionalProperties": False,
                "properties": {"id": {"type": "integer", "description": "Which."}},
            },
        ),
    ],
)
def test_an_input_rule_is_shown_to_the_model_as_json_schema(
    declared: Callable[[str], str], lines: str, shown: dict[str, Any]
) -> None:
    """Type, description and rule are merged; an input with a default is optional."""
    schema = shaped(input_schema(parse_action(declared(lines), file="a.md")))

    assert schema["properties"]["count"] == {**shown, "description": "How many."}
    assert ("count" in schema["required"]) is ("default" not in shown)
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.abuse_case("B9")
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('type = "objekt"', "type 'objekt' is not one of string, integer, number, boolean, array, object"),
        ('type = "array"', 'input \'count\': schema and type = "array" or "object" go together'),
        ('type = "string"\nschema = {}', "schema and type"),
        (
            'type = "array"\nenum = [1]\nschema = {}',
            "enum does not apply to an input of type 'array': put it in its schema",
        ),
        ('type = "array"\nschema = {type = "object"}', "schema.type differs from the input's type, 'array'"),
        (
            'type = "array"\nschema = {itms = {type = "string"}}',
            "schema has 'itms', which is not supported; did you mean 'items'?",
        ),
        (
            'type = "array"\nschema = {items = {"$ref" = "#"}}',
            "schema[items] has '$ref', which is not supported; known: ",
        ),
        (
            'type = "array"\nschema = {items = {}}',
            "schema[items] has no type, enum or const, so it would accept anything",
        ),
        ('type = "array"\nschema = {items = {type = "text"}}', "type[items] is not one of string, integer"),
        ('type = "array"\nschema = {items = "string"}', "items is not a schema"),
        (
            'type = "array"\nschema = {items = {type = "string", minLength = -1}}',
            "minLength[items] is not between 0 and",
        ),
        ('type = "array"\nschema = {minItems = 3, maxItems = 2}', "minItems is above maxItems, so no value fits"),
        ('type = "object"\nschema = {properties = {a = 1}}', "schema.a is not a table"),
        (
            'type = "object"\nschema = {required = ["a"], additionalProperties = false}',
            "required names 'a', which is not in properties",
        ),
        (
            'type = "object"\nschema = {additionalProperties = 1}',
            "additionalProperties is not true, false or a schema",
        ),
        ('type = "boolean"\nenum = [true]', "enum does not apply to an input of type 'boolean'"),
        ('type = "string"\nminimum = 1', "minimum does not apply to an input of type 'string'"),
        ('type = "integer"\nmin_length = 1', "min_length does not apply to an input of type 'integer'"),
        ('type = "string"\nenum = []', "enum is empty; expected 1 to 256"),
        ('type = "string"\nenum = ["a", "a"]', "enum contains a value twice"),
        ('type = "string"\nenum = ["a", 1]', "enum has a value that is not of type 'string'"),
        ('type = "integer"\nminimum = 2\nmaximum = 1', "minimum is above maximum, so no value fits"),
        ('type = "number"\nminimum = nan', "nan, which JSON cannot represent"),
        ('type = "string"\nmin_length = -1', "min_length = -1 is not between 0 and"),
        ('type = "string"\npattern = "("', "pattern is not valid RE2 syntax: missing ): ("),
        ('type = "string"\npattern = "(?=a)"', "pattern is not valid RE2 syntax"),
        ('type = "string"\npattern = ""', "pattern is not a string of 1 to 512 characters"),
        (
            'type = "integer"\ndefault = "3"',
            "the default of input 'count' is not valid: a string; expected an integer",
        ),
        ('type = "integer"\nmaximum = 2\ndefault = 3', "is not valid: it does not fit maximum 2"),
        ('type = "integer"\ndefault = 3\nrequired = true', "a default makes an argument optional"),
        ('type = "array"\nschema = {}\ndefault = 1979-05-27', "'default' holds a date, which JSON cannot represent"),
    ],
)
def test_an_input_rule_that_cannot_be_enforced_is_refused(
    declared: Callable[[str], str], lines: str, problem: str
) -> None:
    """Otherwise a model would see a rule that Aileron does not check. The message has the key and what was expected."""
    with pytest.raises(AileronError) as refused:
        spec_of(declared(lines))

    assert problem in refused.value.failure.message
    assert shaped(refused.value.failure.details)["line"] >= 27


def test_the_size_of_an_input_schema_is_bounded(declared: Callable[[str], str]) -> None:
    """The bounds are on its bytes and on its properties."""
    names = ", ".join(f'p{number} = {{type = "string"}}' for number in range(65))
    with pytest.raises(AileronError, match="properties is not a table of at most 64"):
        spec_of(declared(f'type = "object"\nschema = {{properties = {{{names}}}}}'))
    with pytest.raises(AileronError, match="schema is larger than 16384 bytes"):
        spec_of(declared(f'type = "array"\nschema = {{title = "{"x" * 17000}"}}'))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('type = "array"\nschema = {}', "input 'count' is an array and stands inside a longer text"),
        ('type = "object"\nschema = {}', "input 'count' is an object and stands inside a longer text"),
        ('type = "integer"\nrequired = false', "input 'count' is optional and stands inside a longer text"),
    ],
)
def test_only_scalar_inputs_that_always_have_a_value_can_be_inserted_into_a_text(
    declared: Callable[[str], str], lines: str, problem: str
) -> None:
    """An input without a value would leave a hole, so it must be required or have a default."""
    inside = (STEP, 'count = "x ${args.count}"')
    assert problem in refusal_of(parse_action, declared(lines).replace(*inside), file="a.md").message
    assert planned(declared('type = "integer"\ndefault = 3').replace(*inside)).steps[0].args["count"] == "x 3"


# As a call is held against them


@pytest.mark.parametrize(
    ("lines", "good", "bad", "problem"),
    [
        ('type = "string"\nenum = ["a", "b"]', "a", "c", 'it is not one of ["a","b"]'),
        ('type = "integer"\nminimum = 1\nmaximum = 9', 9, 10, "it does not fit maximum 9"),
        ('type = "integer"', 9, 9.0, "a number with a fraction or exponent; expected an integer"),
        ('type = "string"\npattern = "^a+$"', "aa", "ab", 'it does not fit pattern "^a+$"'),
        ('type = "string"\npattern = "b"', "abc", "ac", 'it does not fit pattern "b"'),
        ('type = "string"\npattern = "^a$"', "a", "a\n", "it does not fit pattern"),
        ('type = "string"\nmax_length = 2', "☃☃", "☃☃☃", "it does not fit maxLength 2"),
        ('type = "array"\nschema = {items = {type = "integer"}}', [1, 2], [1, 2.0], "[1] is not of type integer"),
        ('type = "array"\nschema = {items = {type = "integer"}}', [1], [True], "[0] is not of type integer"),
        ('type = "array"\nschema = {uniqueItems = true}', [1, 2], [1, 1], "it contains a value twice"),
        ('type = "array"\nschema = {maxItems = 1}', [1], {"a": 1}, "an object; expected an array"),
        ('type = "array"\nschema = {}', [0.5], [float("nan")], "a number in it is not finite, or 2**53 or more"),
        ('type = "array"\nschema = {}', [2**53 - 1], [{"a": 2**53}], "a number in it is not finite"),
        ('type = "array"\nschema = {}', ["x"], ["\ud800"], "a string in it is not valid Unicode"),
        ('type = "string"\nmin_length = 1', "x", "\ud800", "a string that is not valid Unicode"),
        (
            'type = "object"\nschema = {properties = {a = {type = "string"}}, required = ["a"], additionalProperties = false}',
            {"a": "x"},
            {"a": "x", "b": 1},
            "it has an unknown key",
        ),
        (
            'type = "object"\nschema = {properties = {a = {type = "object", required = ["b"]}}}',
            {"a": {"b": 1}},
            {"a": {}},
            ".a has no 'b'",
        ),
        (
            'type = "object"\nschema = {additionalProperties = {enum = [1]}}',
            {"x": 1},
            {"secret": 2},
            "secret is not one of [1]",
        ),
    ],
)
def test_an_argument_is_checked_against_its_rule(
    declared: Callable[[str], str], lines: str, good: object, bad: object, problem: str
) -> None:
    """A fitting value passes unchanged; another one is bad_input with the rule and the place inside the value."""
    assert planned(declared(lines), count=good).args["count"] == good
    with pytest.raises(AileronError) as refused:
        planned(declared(lines), count=bad)

    failure = refused.value.failure
    assert failure.failure_class is FailureClass.BAD_INPUT
    assert problem in shaped(failure.details)["arguments"]["count"]


def test_a_pattern_mismatch_is_explained_with_the_description(declared: Callable[[str], str]) -> None:
    """A regular expression says little to a model, so the error quotes the author's description of the input."""
    told = 'type = "string"\npattern = "^[A-Z]{3}$"'
    said = spec_of(declared(told)).description
    for lines, bad, is_told in ((told, "euro", True), ('type = "integer"\nmaximum = 2', 3, False)):
        assert refusal_of(planned, declared(lines), count=bad).message.endswith(f"; expected: {said}") == is_told


def test_deeply_nested_arguments_are_refused_without_recursion(declared: Callable[[str], str]) -> None:
    """The bound of 32 levels is far more than any rule describes."""
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(AileronError, match="nested deeper than 32 levels"):
        planned(declared('type = "array"\nschema = {}'), count=deep)


@pytest.mark.abuse_case("B9")
def test_a_pattern_takes_time_in_proportion_to_the_text(declared: Callable[[str], str]) -> None:
    """The pattern would take a backtracking engine exponential time."""
    text = "a" * 40_000 + "!"

    def time_of(pattern: str) -> float:
        spec = spec_of(declared(f'type = "string"\npattern = "{pattern}"'))
        started = time.process_time()
        assert argument_problem(spec, text) is not None
        return time.process_time() - started

    time_of("^b$")  # what is imported is imported
    assert time_of("^(a+)+$") < 100 * time_of("^a+$") + 0.5


def test_the_default_of_an_input_is_used_for_a_missing_argument(declared: Callable[[str], str]) -> None:
    """The plan that a person sees has it, as if it had been given. A given value wins, and null does not count as missing."""
    text = declared('type = "integer"\ndefault = 3')

    assert planned(text).args == {"to": "ann", "count": 3}
    assert planned(text, count=4).args == {"to": "ann", "count": 4}
    with pytest.raises(AileronError, match="null; expected an integer"):
        planned(text, count=None)


SCHEMAS = st.recursive(
    st.one_of(
        st.builds(
            lambda low, high: {"type": "integer", "minimum": low, "maximum": low + high},
            st.integers(-5, 5),
            st.integers(0, 5),
        ),
        st.builds(lambda length: {"type": "string", "maxLength": length}, st.integers(0, 5)),
        st.builds(lambda values: {"enum": values}, st.lists(st.integers(0, 9), min_size=1, unique=True)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(
            lambda properties, extra: {"type": "object", "properties": properties, "additionalProperties": extra},
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            st.booleans(),
        ),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(st.integers(-9, 15), st.text("ab", max_size=6), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_input_rules_are_enforced_as_json_schema_defines(schema: dict[str, Any], value: Any) -> None:
    """Exactly the values that jsonschema's own validator accepts are accepted (these schemas have no pattern and no
    fractional number).
    """
    spec = InputSpec(name="x", type="array", description="x", rule={"items": schema})
    expected = jsonschema.Draft202012Validator(fragment("array", spec.rule)).is_valid([value])

    assert (argument_problem(spec, [value]) is None) is expected


# Wider or narrower


@pytest.mark.parametrize(
    ("before", "after", "is_so"),
    [
        ({}, {}, True),
        ({}, {"maximum": 1}, True),
        ({"maximum": 2}, {"maximum": 1}, True),
        ({"maximum": 2}, {"maximum": 3}, False),
        ({"maximum": 2}, {}, False),
        ({"minLength": 2}, {"minLength": 3, "pattern": "a"}, True),
        ({"minLength": 2}, {"minLength": 1}, False),
        ({"enum": [1, 2]}, {"enum": [2]}, True),
        ({"enum": [1, 2]}, {"enum": [2, 3]}, False),
        ({"pattern": "a"}, {"pattern": "a*"}, False),
        ({"required": ["a"]}, {"required": ["b", "a"]}, True),
        ({"required": ["a"]}, {"required": ["b"]}, False),
        ({"uniqueItems": True}, {"uniqueItems": False}, False),
        ({"description": "x"}, {}, True),
        (
            {"additionalProperties": False},
            {"additionalProperties": False, "properties": {"a": {"type": "null"}}},
            False,
        ),
        ({"additionalProperties": False}, {"additionalProperties": True}, False),
        ({"items": {"type": "string"}}, {"items": {"type": "string", "maxLength": 1}}, False),
    ],
)
def test_an_input_rule_is_narrower_only_if_every_keyword_is_narrower(
    before: dict[str, Any], after: dict[str, Any], is_so: bool
) -> None:
    """The comparison is keyword by keyword; an undecidable case counts as wider."""
    assert is_narrower(before, after) is is_so


@given(SCHEMAS, SCHEMAS, VALUES)
def test_every_value_that_a_narrower_input_rule_accepts_fits_the_wider_rule(
    before: dict[str, Any], after: dict[str, Any], value: Any
) -> None:
    """This holds for any two rules of one type, and any value."""
    if before.get("type") == after.get("type") and is_narrower(before, after):
        assert not jsonschema.Draft202012Validator(after).is_valid(value) or jsonschema.Draft202012Validator(
            before
        ).is_valid(value)


@pytest.mark.parametrize(
    ("before", "after", "widens"),
    [
        ('type = "integer"\nmaximum = 5', 'type = "integer"\nmaximum = 4', False),
        ('type = "integer"\nmaximum = 4', 'type = "integer"\nmaximum = 5', True),
        ('type = "integer"\nmaximum = 4', 'type = "integer"', True),
        ('type = "integer"\nrequired = false', 'type = "integer"\ndefault = 4', True),
        ('type = "integer"\ndefault = 4', 'type = "integer"\ndefault = 5', True),
        ('type = "array"\nschema = {maxItems = 3}', 'type = "array"\nschema = {maxItems = 2}', False),
        ('type = "array"\nschema = {maxItems = 2}', 'type = "array"\nschema = {}', True),
    ],
)
def test_a_loosened_rule_needs_consent(declared: Callable[[str], str], before: str, after: str, widens: bool) -> None:
    """A new or changed default needs consent too; an agent can tighten a rule by itself."""
    old, new = (parse_action(declared(lines), file="a.md") for lines in (before, after))

    found = changes(old, new)

    assert [change.widens for change in found if change.where.startswith("inputs count")] == [widens]
