"""A hostile document soon gives a connector or one error, whatever is in it."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron.importing.choosing import wanted
from aileron.importing.found import described
from aileron.importing.reading import DocumentError, read_all
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.model.names import HostPort
from aileron.model.text import hidden_at
from aileron.registry.manifest import parse_connector_manifest
from tests.importing.documents import CONNECTOR, Json, document, imported, one_operation, schema_ref

LIMIT_S = 1.0
"""Processor seconds for one document of some KiB. A busy machine takes up to three times as long."""
PET = {
    "type": "object",
    "required": ["name"],
    "allOf": [{"type": "object"}],
    "properties": {
        "id": {"type": "integer", "readOnly": True, "minimum": 1},
        "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$", "example": "rex"},
        "kind": {"oneOf": [{"enum": ["cat"]}, {"enum": ["dog"]}], "default": "cat"},
        "friends": {"type": "array", "maxItems": 3, "items": schema_ref("Pet")},
        "born": {"type": ["string", "null"], "format": "date"},
    },
}
VALID: Json = document(
    {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {
                "operationId": "getPet",
                "summary": "Get a pet",
                "description": "One of **yours**.",
                "tags": ["pets"],
                "parameters": [
                    {
                        "name": "deep",
                        "in": "query",
                        "style": "deepObject",
                        "explode": True,
                        "schema": {"type": "object"},
                    },
                    {"$ref": "#/components/parameters/Trace"},
                ],
                "responses": {
                    "200": {
                        "description": "ok",
                        "content": {"application/json": {"schema": schema_ref("Pet"), "example": {"id": 1}}},
                    }
                },
            },
            "put": {
                "operationId": "changePet",
                "security": [{"oauth": ["write"]}, {"key": []}],
                "requestBody": {"required": True, "content": {"application/json": {"schema": schema_ref("Pet")}}},
                "responses": {"default": {"description": "?"}},
            },
            "post": {
                "servers": [{"url": "https://{at}.example.com/up", "variables": {"at": {"default": "files"}}}],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "properties": {
                                    "file": {"type": "string", "format": "binary"},
                                    "note": {"type": "string"},
                                }
                            },
                            "encoding": {"note": {"contentType": "text/plain", "style": "form"}},
                        }
                    }
                },
                "responses": {},
            },
        },
    },
    security=[{"key": []}],
    components={
        "schemas": {"Pet": PET},
        "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": {"type": "string"}, "deprecated": True}},
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "oauth": {
                "type": "oauth2",
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://id.example/a",
                        "tokenUrl": "https://id.example/t",
                        "scopes": {"write": "Write"},
                    }
                },
            },
        },
    },
)
SWAGGER: Json = {
    "swagger": "2.0",
    "info": {"title": "Pets", "version": "1"},
    "host": "api.example.com",
    "basePath": "/v1",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "securityDefinitions": {"key": {"type": "apiKey", "in": "query", "name": "key"}},
    "security": [{"key": []}],
    "paths": {
        "/pets": {
            "parameters": [
                {"name": "q", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "multi"}
            ],
            "get": {
                "responses": {
                    "200": {"description": "ok", "schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}}
                }
            },
            "post": {
                "parameters": [
                    {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                ],
                "responses": {"201": {"description": "ok"}},
            },
            "put": {"parameters": [{"name": "f", "in": "formData", "type": "file", "required": True}], "responses": {}},
        }
    },
    "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
ODD: st.SearchStrategy[Any] = (
    st.sampled_from(
        [
            *(
                None,
                True,
                False,
                0,
                -1,
                2**63,
                10**30,
                1.5,
                -0.0,
                1e308,
                "",
                "x",
                " ",
                "\u202e",
                "\x00",
                "\x1b[2J",
                "..",
                "/",
                "$ref",
            ),
            *(
                [],
                {},
                [[]],
                [None],
                [1, "x", {}],
                {"": ""},
                {"$ref": "#"},
                {"$ref": "#/paths"},
                {"$ref": "http://["},
                {"$ref": 1},
            ),
            *(
                {"type": "object"},
                {"allOf": [{"$ref": "#/components/schemas/Pet"}]},
                "+++",
                '"""',
                "a" * 5000,
                "²00",
                "http://[",
                "{a}",
            ),
            *(
                "object",
                "integer",
                "null",
                "query",
                "path",
                "header",
                "cookie",
                "GET",
                "oauth2",
                "https://evil.example@h",
                "(a+)+$",
                "[",
            ),
        ]
    )
    | st.text(max_size=8)
    | st.integers()
)


def outcome(whole: Any) -> Made | DocumentError:
    """Import a document, and return the result or its error. Other exceptions pass."""
    began = time.process_time()
    try:
        there = described(read_all("api.json", {"api.json": json.dumps(whole).encode()}))
        operations = wanted(there, everything=True)
        wanted(there, grep="x", ops=[there.operations[0].name])
        try:
            return make(there, operations, CONNECTOR, Choices())
        except DocumentError:
            return make(there, operations, CONNECTOR, Choices(host=HostPort.parse("mine.example:443"), auth="bearer"))
    except DocumentError as error:
        return error
    finally:
        assert time.process_time() - began < LIMIT_S


def check(done: Made | DocumentError) -> None:
    """Check that the result is a connector that will be accepted, or an error that can be shown."""
    if isinstance(done, DocumentError):
        assert 0 < len(str(done)) < 3000
        return
    assert parse_connector_manifest(done.files["manifest.toml"], file="manifest.toml", allow_unbound=True).operations
    assert all(action.asks for action in done.actions if action.effect != "read")
    for path, data in done.files.items():
        if path.endswith((".md", "manifest.toml")):
            assert hidden_at(data.decode(), prose=True) is None


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to every value of a document."""
    members = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [at, *(place for key, inner in members for place in places(inner, (*at, key)))]


def changed(whole: Json, place: tuple[Any, ...], value: Any, how: str) -> Any:
    """Return the document with one value replaced, removed, or under another key."""
    made = copy.deepcopy(whole)
    if not place:
        return value
    parent: Any = made
    for key in place[:-1]:
        parent = parent[key]
    if how == "removed":
        del parent[place[-1]]
    elif how == "renamed" and isinstance(parent, dict):
        parent[str(value)] = parent.pop(place[-1])
    else:
        parent[place[-1]] = value
    return made


def test_the_unchanged_documents_are_imported() -> None:
    """This positive control shows that the changes below start from valid documents."""
    cut = {"change_pet": ("friends[].friends: a schema within itself",)}
    for whole, left_out in ((VALID, cut), (SWAGGER, {})):
        done = outcome(whole)
        assert isinstance(done, Made)
        assert (len(done.actions), done.unimported, done.left_out) == (3, (), left_out)


@pytest.mark.parametrize("whole", [VALID, SWAGGER], ids=["3.1", "2.0"])
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_any_change_of_a_sample_document_gives_a_connector_or_an_error(whole: Json, data: st.DataObject) -> None:
    """The change replaces, removes or renames one or two places."""
    made: Any = whole
    for _ in range(data.draw(st.integers(1, 2))):
        if not isinstance(made, dict):
            break
        place = data.draw(st.sampled_from(places(made)))
        how = data.draw(st.sampled_from(["replaced", "replaced", "removed", "renamed"]))
        made = changed(made, place, data.draw(ODD), how)
    check(outcome(made))


@pytest.mark.parametrize(
    ("whole", "value"),
    [(VALID, None), (VALID, "x"), (VALID, []), (VALID, {}), (SWAGGER, 1), (SWAGGER, []), (SWAGGER, {})],
)
def test_a_value_of_any_type_at_any_place_of_a_document_is_imported_or_an_error(whole: Json, value: Any) -> None:
    """Each place gets the value, one after the other."""
    for place in places(whole):
        check(outcome(changed(whole, place, value, "replaced")))


@settings(max_examples=60, deadline=None)
@given(
    whole=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["openapi", "paths", "/a", "get", "$ref", "parameters", "schema", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=15,
    )
)
def test_any_json_value_as_a_document_is_imported_or_an_error(whole: Any) -> None:
    """The JSON is tried as a whole document, as its `paths`, and as one operation."""
    check(outcome(whole))
    check(outcome({"openapi": "3.0.0", "servers": [{"url": "https://h.example"}], "paths": whole}))
    check(outcome({"openapi": "3.1.0", "servers": [{"url": "https://h.example"}], "paths": {"/a": {"get": whole}}}))


@pytest.mark.computes_for(5)
@pytest.mark.parametrize(
    "text",
    [
        *(
            "A. " * 6600,
            "e.g. X " * 2800,
            "<a" * 10_000,
            "[" * 20_000,
            "![a](" + "b" * 19_000,
            "[a](" * 5000,
            "#" * 20_000,
        ),
        *(
            "*_" * 10_000,
            "`" * 20_000,
            "\n" * 20_000,
            "\n \t" * 6000,
            "&lt;" * 5000,
            "\u202e" * 20_000,
            "[a](b " + " " * 19_000,
        ),
        *("&#" + "9" * 19_000 + ";", "&#x" + "1" * 19_000, "€" * 20_000, "a" * 1_000_000),
    ],
    ids=lambda text: repr(text[:8]),
)
def test_texts_built_to_slow_down_regular_expressions_are_processed_quickly(text: str) -> None:
    """A backtracking expression would take minutes for them."""
    whole = copy.deepcopy(VALID)
    for operation in whole["paths"]["/pets/{id}"].values():
        if isinstance(operation, dict):
            operation |= {"summary": text, "description": text, "tags": [text], "operationId": text}
    whole["components"]["schemas"]["Pet"]["properties"]["name"]["description"] = text

    check(outcome(whole))


@pytest.mark.parametrize(
    "pattern",
    ["[a--b]", "[a||b]", "[a~~b]", "[[a]]", "a++", "(?i)a", "\\N{DIGIT ONE}", "(" * 300, "a{1000}{1000}", "("],
)
def test_a_pattern_with_another_meaning_in_python_is_left_out(pattern: str) -> None:
    """Python would warn about it, and the test suite turns warnings into errors."""
    whole = copy.deepcopy(VALID)
    whole["components"]["parameters"]["Trace"]["schema"] = {"type": "string", "pattern": pattern}
    done = outcome(whole)

    assert isinstance(done, Made)
    assert len(done.actions) == 3


@pytest.mark.computes_for(20)
def test_comparing_a_large_example_with_many_alternatives_is_bounded() -> None:
    """The example fits none of a hundred branches within a hundred. It is left out, and the arguments that fit remain."""
    schemas: Json = {"L0": {"type": "string"}}
    for level in range(1, 5):
        of = schema_ref(f"L{level - 1}")
        forms = [{"type": "object", "properties": {"of": of, f"p{level}_{n}": {"type": "integer"}}} for n in range(100)]
        schemas[f"L{level}"] = {"oneOf": forms}
    value: Any = ["x" * 100] * 350
    for _ in range(4):
        value = {"of": value}
    media = {
        "schema": {"type": "object", "properties": {"a": schema_ref("L4"), "b": {"type": "string"}}},
        "example": {"a": value},
    }
    operation = {"operationId": "one", "requestBody": {"content": {"application/json": media}}}
    made = imported(one_operation(operation, method="post", components={"schemas": schemas}))

    assert {"a", "b"} <= {given.name for given in made.imported[0].inputs}
    assert "the document's example cannot be given" in made.left_out["one"][-1] + made.left_out["one"][0]
