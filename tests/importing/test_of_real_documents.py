"""Features of real services' documents that no other test had; each was a bug once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aileron.importing.cases import example_arguments
from aileron.importing.found import described
from aileron.importing.reading import DocumentError, read_all
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.importing.rules import size_of
from aileron.model.names import Fqn
from aileron_connector.check import Schemas
from aileron_connector.openapi.document import Document
from aileron_connector.openapi.request import Endpoint, prepared
from tests.support.shaped import shaped


def made_of(
    operation: dict[str, Any], *, path: str = "/a", schemas: dict[str, Any] | None = None, version: str = "3.1.0"
) -> Made:
    """Make a connector of one operation, `change_it`."""
    document = {
        "openapi": version,
        "info": {"title": "Things", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {path: {"post": {"operationId": "changeIt", "responses": {}, **operation}}},
        "components": {"schemas": schemas or {}},
    }
    found = described(read_all("a.json", {"a.json": json.dumps(document).encode()}))
    return make(found, found.operations, Fqn.parse("github://me/connector-things"), Choices())


def body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with this body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def test_an_optional_boolean_that_can_only_be_true_is_left_out() -> None:
    """Action inputs support no enum of booleans. The importer once refused the whole action for it."""
    only_true = {"type": "boolean", "enum": [True]}
    made = made_of(body({"type": "object", "properties": {"a": {"type": "string"}, "confirmed": only_true}}))

    assert [given.name for given in made.imported[0].inputs] == ["a"]
    assert made.left_out == {"change_it": ("confirmed: only true, which an input cannot say",)}


def test_the_keyword_required_beside_a_reference_is_respected_in_openapi_3_0() -> None:
    """The specification ignores it there, but services that state it refuse requests without the property."""
    droplets = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "integer"}}}}
    schema = {"$ref": "#/components/schemas/Droplets", "required": ["ids"]}
    made = made_of(body(schema), schemas={"Droplets": droplets}, version="3.0.3")

    assert [(given.name, given.required) for given in made.imported[0].inputs] == [("ids", True)]


def test_a_choice_with_a_discriminator_accepts_a_value_that_matches_two_branches() -> None:
    """Otherwise values that match two branches would be refused, although the service accepts them."""
    kind = {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["reboot", "snapshot"]}}}
    named = {"allOf": [kind, {"properties": {"name": {"type": "string"}}}]}
    choice = {"oneOf": [kind, named], "discriminator": {"propertyName": "type"}}
    sent = [made_of(body(schema)).imported[0].packed.request_body for schema in (choice, {"oneOf": [kind, named]})]

    schemas = [request_body.content["application/json"].schema for request_body in sent if request_body is not None]
    kept = [set(schema) for schema in schemas if isinstance(schema, dict)]
    assert kept == [{"anyOf"}, {"oneOf"}]


def test_an_example_that_contradicts_its_format_is_not_sent() -> None:
    """Dates with a time are the most frequent case."""
    told = {
        "day": {"type": "string", "format": "date", "example": "2026-11-26T10:00:00Z"},
        "at": {"type": "string", "format": "date-time", "example": "2026-11-26T10:00:00Z"},
        "ids": {"type": "array", "items": {"type": "string", "format": "uuid"}},
    }
    made = made_of(body({"type": "object", "required": ["day", "ids"], "properties": told}))

    assert example_arguments(made.imported[0]) == {
        "day": "2026-11-24",
        "at": "2026-11-26T10:00:00Z",
        "ids": ["00000000-0000-4000-8000-000000000000"],
    }


def test_the_default_response_is_not_used_as_the_success_response() -> None:
    """`default` means unlisted errors. The preview of a deletion once showed the fields of an error."""
    error, thing = ({"type": "object", "properties": {name: {"type": "string"}}} for name in ("errno", "title"))
    told = {
        status: {"description": "", "content": {"application/json": {"schema": schema}}}
        for status, schema in (("default", error), ("200", thing))
    }
    made = made_of({"responses": told})

    assert made.imported[0].answer == thing
    assert list(made.imported[0].packed.responses) == ["200"]


THING = {"properties": {"id": {"type": "string", "readOnly": True}, "kind": {"type": "string", "readOnly": True}}}


@pytest.mark.parametrize(
    ("part", "given"),
    [
        ({"required": ["name", "kind"], "properties": {"kind": {"enum": ["crew"]}}}, ["kind", "name"]),
        ({"required": ["name", "kind"]}, ["kind", "name"]),
        ({"required": ["name"]}, ["name"]),
    ],
    ids=["described", "required", "only-marked"],
)
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "inline"])
def test_a_property_that_only_a_base_schema_marks_read_only_is_optional(
    part: dict[str, Any], given: list[str], is_named: bool
) -> None:
    """Such a property was once required and forbidden, so no body of a derived schema was possible."""
    more = {**part, "properties": {**part.get("properties", {}), "name": {"type": "string"}}}
    schemas = {"Thing": THING, "More": more}
    parts = [{"$ref": "#/components/schemas/Thing"}, {"$ref": "#/components/schemas/More"} if is_named else more]
    crew = {"type": "object", "required": ["crew"], "properties": {"crew": {"allOf": parts}}}
    made = made_of(body(crew), schemas=schemas)
    (operation,) = made.imported
    rule = operation.inputs[0].rule

    assert (sorted(rule["properties"]), rule["required"]) == (given, ["name"])
    assert sent_by(made, {"crew": {"name": "n"}}) == {"crew": {"name": "n"}}


def test_an_operation_whose_only_content_is_unsupported_is_not_imported() -> None:
    """An action without the body would send nothing. If there is another input, only the body is left out, and listed."""
    odd = {"content": {"application/json": {"schema": {"properties": {"a": {"not": {}}}, "required": ["a"]}}}}
    query = [{"name": "q", "in": "query", "schema": {"type": "string"}}]

    with pytest.raises(DocumentError, match="change_it: body: a: "):
        made_of({"requestBody": odd})
    assert made_of({"requestBody": odd, "parameters": query}).left_out["change_it"][0].startswith("body: a: ")


def long_bill() -> dict[str, Any]:
    """Return a bill with two long enums and with lines, as accounting services have it."""
    codes = [f"{a}{b}{c}" for a in "ABCDEF" for b in "GHIJKL" for c in "MNOPQR"]
    line = {"text": {"type": "string"}, "account": {"type": "object", "properties": {"id": {"type": "string"}}}}
    more = {
        f"note{n}": {"type": "object", "properties": {f"part{m}": {"type": "string"} for m in range(60)}}
        for n in range(20)
    }
    return {
        "type": "object",
        "properties": {
            **more,
            "lines": {"type": "array", "items": {"type": "object", "properties": line}},
            "currency": {"type": "string", "enum": codes},
            "old_currency": {"type": "string", "enum": codes},
        },
    }


ROLES = {"anyOf": [{"type": "array", "items": {"enum": ["a"]}}, {"enum": ["a", "b"]}]}
FORMS = {"oneOf": [{"required": [name], "properties": {name: {"enum": [1, 2]}}} for name in ("a", "b")]}
NAMED = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def test_optional_parts_without_an_example_are_left_out_first_and_each_is_reported() -> None:
    """Inputs have a size limit. Invoices once lost their lines, because two enums of currencies took the space."""
    operation = body({"type": "object", "properties": {"bills": {"type": "array", "items": long_bill()}}})
    example = {"bills": [{"lines": [{"text": "Tea", "account": {"id": "a"}}], "currency": "AGM"}]}
    operation["requestBody"]["content"]["application/json"]["example"] = example
    made = made_of(operation)
    (given,) = made.imported[0].inputs
    bill = shaped(given.rule)["items"]["properties"]

    assert example_problems(made) == []
    assert size_of(given.rule) <= 16 << 10
    assert bill["currency"] == {"type": "string", "description": "One of 216 values, such as AGM, AGN, AGO"}
    assert (
        "bills[].currency: its 216 values are not listed: an action has no room for them" in made.left_out["change_it"]
    )
    cut = [reason for reason in made.left_out["change_it"] if reason.endswith("no room for it")]
    kept = sum(len(bill[f"note{n}"]["properties"]) for n in range(20) if f"note{n}" in bill)
    assert cut
    assert len(cut) + kept == 20 * 60


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"properties": {"roles": ROLES}}, {"roles": "b"}),
        ({"properties": {"value": {"description": "Any JSON."}}}, {"value": {"a": [1]}}),
        ({"properties": {"value": {"type": ["string", "array"], "items": {"type": "string"}}}}, {"value": "x"}),
        ({"properties": {"name": {"type": "string"}}}, {"name": "a", "undescribed": 3}),
        ({"properties": {"id": {"type": "string", "readOnly": True}, "name": {"type": "string"}}}, {"id": "1", "name": "a"}),
        ({"properties": {"node": {"$ref": "#/components/schemas/Node"}}}, {"node": {"of": {"of": {"of": {"name": "x"}}}}}),
        (FORMS, {"b": 2}),
        ({"properties": {"name": {"type": "string"}}}, '{"name": "a"}'),
        ({"properties": {"name": {"type": "string"}}}, {"body": {"name": "a"}}),
        (NAMED, {"request_body": {"name": "a", "undescribed": 3}}),
        (NAMED, {"request_url": "/a", "request_params": "?b=1", "requestBody": {"name": "a"}}),
        ({"properties": {"name": {"type": ["string", "null"]}, "on": {"type": ["string", "null"]}}}, {"name": "a", "on": None}),
    ],
    ids=[
        "choice", "any", "types", "undescribed", "read-only", "recursive",
        "one-of", "text", "wrapped", "wrapped-more", "request", "null",
    ],
)  # fmt: skip
def test_an_example_in_the_document_is_a_valid_argument_of_the_action(schema: dict[str, Any], example: Any) -> None:
    """An example shows what is meant where a schema allows several readings."""
    node = {"type": "object", "properties": {"name": {"type": "string"}, "of": {"$ref": "#/components/schemas/Node"}}}
    operation = body({"type": "object", **schema})
    operation["requestBody"]["content"]["application/json"]["example"] = example
    made = made_of(operation, schemas={"Node": node})

    assert example_problems(made) == []


@pytest.mark.parametrize(
    ("properties", "given"),
    [({}, ["body"]), ({"request_body": {"type": "object"}, "name": {"type": "string"}}, ["b", "name", "request_body"])],
    ids=["any", "its-own"],
)
def test_an_example_property_named_request_body_is_not_used_as_the_whole_body(
    properties: dict[str, Any], given: list[str]
) -> None:
    """The example's property `request_body` has the name of the input for a whole body."""
    operation = body({"type": "object", "properties": properties})
    operation["requestBody"]["content"]["application/json"]["example"] = {"request_body": {"name": 1}, "b": 2}
    made = made_of(operation)

    assert example_problems(made) == []
    assert sorted(argument.name for argument in made.imported[0].inputs) == given


@pytest.mark.parametrize(
    ("mark", "given"),
    [({"x-read-only": True}, ["name"]), ({"readOnly": True}, ["name"]), ({"x-read-only": "no"}, ["name", "score"])],
)
@pytest.mark.parametrize("is_named", [True, False], ids=["beside-a-reference", "inline"])
def test_a_read_only_property_never_becomes_an_input(mark: dict[str, Any], given: list[str], is_named: bool) -> None:
    """The schema also describes responses, so its example may contain the property, even as required."""
    score = {"$ref": "#/components/schemas/Score"} if is_named else {"type": "object"}
    properties = {"name": {"type": "string"}, "score": {**score, **mark}}
    schema = {"type": "object", "properties": properties, "required": ["name", "score"]}
    made = made_of(body({**schema, "example": {"name": "a", "score": [1]}}), schemas={"Score": {"type": "object"}})

    assert sorted(argument.name for argument in made.imported[0].inputs) == given
    assert bool(example_problems(made)) == ("score" in given)


def test_an_example_that_the_action_does_not_accept_is_listed_with_the_reason() -> None:
    """The reason says whether the document contradicts itself, or the action offers less than the document."""
    properties = {
        "a": {"type": "integer"},
        "b": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
    }
    operation = body({"type": "object", "properties": properties})
    media = operation["requestBody"]["content"]["application/json"]
    media["examples"] = {"one": {"value": {"a": "x"}}, "two": {"value": {"b": ["x", 1]}}, "three": {"value": {"a": 1}}}

    assert example_problems(made_of(operation)) == [
        "body: example 1 of the document cannot be given: the document's own schema refuses it: .a is not an integer",
        "body: example 2 of the document cannot be given: b: [1] is not of type string",
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (TEXTS, "in.of: it is given as array; the service also takes string"),
        (FORMS, "in.of: one of 2 forms is offered; the service also takes others, with b"),
        ({"type": "string", "if": {}}, "in.of: the keyword 'if' is not supported"),
        ({"not": {"type": "string"}}, "in.of: the keyword 'not' is not supported"),
    ],
)  # fmt: skip
def test_parts_left_out_of_an_input_are_listed_with_their_place(schema: dict[str, Any], told: str) -> None:
    """The import once listed only parts that were left out of a body."""
    within = {"type": "object", "properties": {"of": schema, "b": {"type": "string"}}}

    assert made_of(body({"type": "object", "properties": {"in": within}})).left_out["change_it"] == (told,)


def test_the_alternative_with_the_longer_enum_is_used() -> None:
    """The schema allows a list of one choice, or one of six roles. The import once took the list."""
    roles = {"anyOf": [{"type": "array", "items": {"enum": ["all"]}}, {"enum": [f"role{n}" for n in range(6)]}]}
    made = made_of(body({"type": "object", "properties": {"roles": roles}}))

    assert made.imported[0].inputs[0].rule == {"type": "string", "enum": [f"role{n}" for n in range(6)]}
    assert made.left_out["change_it"] == ("roles: it is given as string; the service also takes array",)


def test_the_unsupported_alternatives_of_a_body_are_listed() -> None:
    """The first alternative is given property by property."""
    forms = [{"properties": {"card": {"type": "string"}}}, {"properties": {"iban": {"type": "string"}}}]

    told = "body: one of 2 forms is offered; the service also takes others, with iban"
    assert made_of(body({"type": "object", "oneOf": forms})).left_out["change_it"] == (told,)


def example_problems(made: Made) -> list[str]:
    """Return the reasons that are listed for the document's own examples."""
    return [reason for reason in made.left_out.get("change_it", ()) if "cannot be given: " in reason]


def sent_by(made: Made, arguments: dict[str, Any]) -> Any:
    """Return the JSON that the packed document makes of these arguments."""
    document = msgspec.json.decode(made.files["service/document.json"], type=Document)
    endpoint = Endpoint("POST", "/a", made.imported[0].packed)
    schemas = Schemas(document.components.schemas)
    return json.loads(prepared(endpoint, arguments, "https://a.invalid", schemas).body or b"")
