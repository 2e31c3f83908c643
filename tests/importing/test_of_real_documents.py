"""What documents of real services have that no table of ours had thought of; each was a fault once."""

from __future__ import annotations

import json
from typing import Any

from aileron.importing.cases import example_arguments
from aileron.importing.found import described
from aileron.importing.reading import read_all
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.model.names import Fqn


def made_of(
    operation: dict[str, Any], *, path: str = "/a", schemas: dict[str, Any] | None = None, version: str = "3.1.0"
) -> Made:
    """A repository of one operation, `change_it`."""
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
    """An operation with this body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def test_a_boolean_that_can_only_be_true_is_left_out_where_it_is_optional() -> None:
    """An input has no enum of booleans: the action was refused whole."""
    only_true = {"type": "boolean", "enum": [True]}
    made = made_of(body({"type": "object", "properties": {"a": {"type": "string"}, "confirmed": only_true}}))

    assert [given.name for given in made.imported[0].inputs] == ["a"]
    assert made.left_out == {"change_it": ("confirmed: only true, which an input cannot say",)}


def test_what_is_required_beside_a_reference_is_required_in_3_0_too() -> None:
    """By the letter it is ignored there. A service that says so refuses a call without it."""
    droplets = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "integer"}}}}
    schema = {"$ref": "#/components/schemas/Droplets", "required": ["ids"]}
    made = made_of(body(schema), schemas={"Droplets": droplets}, version="3.0.3")

    assert [(given.name, given.required) for given in made.imported[0].inputs] == [("ids", True)]


def test_of_a_choice_with_a_discriminator_one_branch_is_meant() -> None:
    """Branches that overlap would otherwise refuse what the service takes."""
    kind = {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["reboot", "snapshot"]}}}
    named = {"allOf": [kind, {"properties": {"name": {"type": "string"}}}]}
    choice = {"oneOf": [kind, named], "discriminator": {"propertyName": "type"}}
    sent = [made_of(body(one)).imported[0].packed.request_body for one in (choice, {"oneOf": [kind, named]})]

    kept = [set(one.content["application/json"].schema) for one in sent if one is not None]
    assert kept == [{"anyOf"}, {"oneOf"}]


def test_an_example_that_does_not_have_its_format_is_not_sent() -> None:
    """Dates with a time, above all."""
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


def test_the_response_for_errors_is_not_the_answer_though_it_stands_first() -> None:
    """`default` is what is not listed. A preview of a deletion showed the fields of an error."""
    error, thing = ({"type": "object", "properties": {name: {"type": "string"}}} for name in ("errno", "title"))
    told = {
        status: {"description": "", "content": {"application/json": {"schema": schema}}}
        for status, schema in (("default", error), ("200", thing))
    }
    made = made_of({"responses": told})

    assert made.imported[0].answer == thing
    assert list(made.imported[0].packed.responses) == ["200"]
