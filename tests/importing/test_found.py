"""The operations that an OpenAPI or Swagger 2.0 document describes, each with a unique name."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.importing.choosing import by_words, tags_of, wanted
from aileron.importing.reading import DocumentError
from aileron.model.names import OP_NAME
from tests.importing.documents import Json, document, found, imported


@pytest.mark.parametrize(
    ("operation_id", "path", "name"),
    [
        ("listPets", "/pets", "list_pets"),
        ("HTTPServer2List", "/x", "http_server2_list"),
        ("orgs/list-members", "/x", "orgs_list_members"),
        ("read_item_items__item_id__get", "/items/{item_id}", "read_item"),
        ("2fast", "/x", "op_2fast"),
        (None, "/pets/{petId}/tags", "get_pets_pet_id_tags"),
        ("", "/pets", "get_pets"),
        ("日本", "/pets", "get_pets"),
        ("\u202e\x1b[31m", "/pets", "op_31m"),
        ("__", "/pets", "get_pets"),
        ([], "/pets", "get_pets"),
        ({}, "/pets", "get_pets"),
        (1, "/pets", "get_pets"),
        ("a" * 100, "/pets", "a" * 64),
    ],
)
def test_an_operation_is_named_after_its_id_or_its_path(operation_id: Any, path: str, name: str) -> None:
    """The name is in snake case and has at most 64 characters."""
    assert found(document({path: {"get": {"operationId": operation_id}}})).operations[0].name == name


@given(ids=st.lists(st.text(alphabet="aA-_1/é.", max_size=4) | st.just("x" * 80), min_size=1, max_size=12))
def test_operation_names_are_unique_and_valid(ids: list[str]) -> None:
    """Many ids become the same name at first."""
    there = found(
        document({f"/a{'/' * n}": {"get": {"operationId": operation_id}} for n, operation_id in enumerate(ids)})
    )
    names = [operation.name for operation in there.operations]

    assert len(set(names)) == len(ids)
    assert all(OP_NAME.fullmatch(name) for name in names)


@pytest.mark.computes_for(10)
def test_twenty_thousand_colliding_names_are_made_quickly() -> None:
    """A document with one more operation is refused."""
    paths = {f"/{'x' * 80}/{n}": {"get": {"operationId": "y" * 80}} for n in range(20_000)}

    assert len({operation.name for operation in found(document(paths)).operations}) == 20_000
    with pytest.raises(DocumentError, match="more than 20000 operations"):
        found(document({**paths, "/one": {"get": {}}}))


@pytest.mark.computes_for(10)
def test_a_path_that_is_referenced_thousands_of_times_is_stored_once() -> None:
    """The contents of the path are not copied for each reference."""
    item = {"parameters": [1] * 100_000, "get": {"tags": ["<b>tag</b>" * 20] * 5000, "summary": "<a " * 7000}}
    there = found({**document({f"/{n}": {"$ref": "#/x-item"} for n in range(3000)}), "x-item": item})

    assert len(there.operations) == 3000
    assert len({id(operation.shared) for operation in there.operations}) == 1
    assert len(there.operations[0].tags) == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"openapi": None}, "no `openapi` key"),
        ({"openapi": "2.0"}, "openapi: 2.0"),
        ({"openapi": "4.0.0"}, "openapi: 4.0.0"),
        ({"openapi": 3.1}, "openapi: 3.1"),
        ({"paths": None}, "no operations"),
        ({"paths": []}, "no operations"),
        ({"paths": {"/a": {"trace": {}, "options": {}, "x-get": {}}}}, "no operations"),
        ({"paths": {"/a": {"$ref": "#/nowhere"}}}, "no operations"),
        ({"paths": {"/a": {"get": [], "put": None, "post": 1}}}, "no operations"),
        ({"swagger": "1.2"}, "swagger: 1.2"),
        ({"swagger": []}, "swagger: "),
    ],
)
def test_a_document_without_operations_is_an_error(change: Json, words: str) -> None:
    """The error says what is missing."""
    with pytest.raises(DocumentError, match=words.replace("[", "").replace("`", ".")):
        found({**document({"/a": {"get": {}}}), **change})


@pytest.mark.parametrize("whole", [None, 1, "x", [], [{}], True])
def test_a_json_value_other_than_an_object_is_refused_as_a_document(whole: Any) -> None:
    """Every other JSON type is refused."""
    with pytest.raises(DocumentError, match="not an OpenAPI document"):
        found(whole)


PATHS = {
    "/pets": {
        "get": {"operationId": "listPets", "tags": ["Pets"]},
        "post": {"operationId": "addPet", "tags": ["pets", "Write"]},
    },
    "/old": {"get": {"operationId": "old", "deprecated": True, "description": "A relic."}},
    "/x": {"delete": {"operationId": ["x"], "description": {"a": 1}}},
}


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ({}, ["list_pets"]),
        ({"everything": True}, ["list_pets", "add_pet", "old", "delete_x"]),
        ({"ops": ["listPets", "old"]}, ["list_pets", "old"]),
        ({"ops": ["list_pets"]}, ["list_pets"]),
        ({"tags": ["PETS"]}, ["list_pets", "add_pet"]),
        ({"tags": ["(untagged)"], "ops": ["addPet"]}, ["add_pet", "old", "delete_x"]),
        ({"grep": "RELIC"}, ["old"]),
        ({"grep": "delete"}, ["delete_x"]),
        ({"grep": "nothing"}, []),
    ],
)
def test_operations_are_chosen_by_name_tag_or_text(how: dict[str, Any], names: list[str]) -> None:
    """The result of several options is their union."""
    assert [operation.name for operation in wanted(found(document(PATHS)), **how)] == names


def test_an_unknown_operation_or_tag_is_reported() -> None:
    """The error suggests the closest name."""
    there = found(document(PATHS))

    with pytest.raises(DocumentError, match=r"no operation 'lstPets'; did you mean 'listPets'"):
        wanted(there, ops=["lstPets"])
    with pytest.raises(DocumentError, match="no tag 'nope'"):
        wanted(there, tags=["nope"])
    assert [operation.name for operation in by_words(there, ["reads", "pets", "old"])] == [
        "list_pets",
        "add_pet",
        "old",
    ]
    assert tags_of(there)[0] == ("Pets", 1, 1)


# Swagger 2.0


def swagger(operation: Json, *, method: str = "post", **more: Any) -> Json:
    """Return a Swagger 2.0 document with one operation."""
    whole = {"swagger": "2.0", "info": {"title": "Pets"}, "host": "api.example.com", "basePath": "/v1"}
    return {**whole, "paths": {"/a": {method: {"operationId": "one", "responses": {}, **operation}}}, **more}


def packed(whole: Json) -> Json:
    """Return the operation as it is packed."""
    made = imported(whole)
    (methods,) = msgspec.json.decode(made.files["service/document.json"])["paths"].values()
    (operation,) = methods.values()
    assert isinstance(operation, dict)
    return operation


def test_a_body_of_swagger_is_imported_as_a_json_body() -> None:
    """Each of its properties is an argument."""
    schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    body = packed(swagger({"parameters": [{"in": "body", "name": "pet", "required": True, "schema": schema}]}))[
        "requestBody"
    ]

    assert body["x-aileron-arguments"] == {"name": "name"}
    assert list(body["content"]) == ["application/json"]


@pytest.mark.parametrize(
    ("fields", "consumes", "kind"),
    [
        ([{"name": "a", "type": "string"}], None, "application/x-www-form-urlencoded"),
        ([{"name": "a", "type": "file"}], None, "multipart/form-data"),
        ([{"name": "a", "type": "string"}], ["multipart/form-data"], "multipart/form-data"),
    ],
)
def test_form_fields_of_swagger_become_a_form(fields: list[Json], consumes: Any, kind: str) -> None:
    """A form with a file is sent in parts."""
    operation = {
        "parameters": [{"in": "formData", "required": True, **field} for field in fields],
        "consumes": consumes,
    }
    body = packed(swagger(operation))["requestBody"]

    assert list(body["content"]) == [kind]
    assert body["x-aileron-arguments"] == {"a": "a"}


@pytest.mark.parametrize(
    ("said", "style", "explode"),
    [
        ("csv", "form", False),
        ("multi", "form", True),
        ("pipes", "pipeDelimited", False),
        ("ssv", "spaceDelimited", False),
        (None, "form", False),
        ([], "form", False),
        ({}, "form", False),
    ],
)
def test_lists_of_swagger_keep_their_collection_format(said: Any, style: str, explode: bool) -> None:
    """A missing or unknown format means CSV."""
    parameter = {"in": "query", "name": "a", "type": "array", "items": {"type": "string"}, "collectionFormat": said}
    found_one = packed(swagger({"parameters": [parameter]}))["parameters"][0]

    assert (found_one["style"], found_one["explode"]) == (style, explode)
    assert found_one["schema"] == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("place", "more", "told"),
    [
        ("query", {"collectionFormat": "tsv"}, "a: the style 'collectionFormat: tsv' is not supported"),
        ("header", {"collectionFormat": "pipes"}, "a: the style 'collectionFormat: pipes' is not supported"),
        ("formData", {"collectionFormat": "tsv"}, "a: the style 'collectionFormat: tsv' is not supported"),
        ("query", {"items": {"type": "array", "items": {"type": "string"}}}, "a: the style 'a list of lists' is not supported"),
    ],
)  # fmt: skip
def test_a_swagger_list_in_an_unsupported_format_is_left_out_and_reported(place: str, more: Json, told: str) -> None:
    """The list is not silently written as CSV. If the parameter is required, the operation is not imported."""
    parameter = {"in": place, "name": "a", "type": "array", "items": {"type": "string"}, **more}
    other = {"in": place, "name": "b", "type": "string"}
    made = imported(swagger({"parameters": [parameter, other]}))
    (operation,) = made.imported

    assert [given.name for given in operation.inputs] == ["b"]
    assert operation.left_out == (told,)
    with pytest.raises(DocumentError, match="is not supported"):
        imported(swagger({"parameters": [{**parameter, "required": True}, other]}))


def test_a_file_in_a_swagger_response_is_not_described_as_json() -> None:
    """This holds whatever the document produces; other responses are JSON if it does not say."""
    answers = {
        "200": {"schema": {"type": "file"}, "description": ""},
        "201": {"schema": {"type": "string"}, "description": ""},
    }
    made = packed(swagger({"responses": answers}))["responses"]

    assert {status: list(response["content"]) for status, response in made.items()} == {
        "200": ["*/*"],
        "201": ["application/json"],
    }


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("{href}", "begins with an argument, with which an agent would choose the host"),
        ("pets", "does not begin with /"),
        ("/pets?name={name}", "has parameters behind its ?"),
    ],
)
def test_an_invalid_path_is_reported_with_what_to_do(path: str, told: str) -> None:
    """The error names the fault of the path, which is not in its characters."""
    with pytest.raises(DocumentError, match=f"its path .*{re.escape(told)}.* in a copy of the document"):
        imported(document({path: {"get": {"operationId": "one", "responses": {}}}}))


@pytest.mark.parametrize(
    ("change", "origin"),
    [
        ({}, "https://api.example.com/v1"),
        ({"schemes": ["http"]}, "http://api.example.com/v1"),
        ({"schemes": ["http", "https"]}, "https://api.example.com/v1"),
        ({"schemes": [[], {}]}, "https://api.example.com/v1"),
        ({"basePath": "/"}, "https://api.example.com"),
        ({"basePath": []}, "https://api.example.com"),
        ({"host": "api.example.com:8443"}, "https://api.example.com:8443/v1"),
    ],
)
def test_the_server_of_a_swagger_document_comes_from_its_schemes_host_and_base_path(change: Json, origin: str) -> None:
    """TLS is preferred if there is a choice."""
    assert [server.url for server in imported(swagger({}, **change)).origins] == [origin]


@pytest.mark.parametrize("host", [1, [], "a@b", "a/b?c", "", "a b", "good.example\\@evil.example"])
def test_an_invalid_host_in_a_swagger_document_is_an_error(host: Any) -> None:
    """Hosts of other types and unusual hosts are refused."""
    with pytest.raises(DocumentError):
        imported(swagger({}, host=host))


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        ({"type": "basic"}, "basic"),
        ({"type": "apiKey", "in": "header", "name": "X-Key"}, "api_key"),
        (
            {
                "type": "oauth2",
                "flow": "accessCode",
                "authorizationUrl": "https://a.example/a",
                "tokenUrl": "https://a.example/t",
            },
            "oauth2",
        ),
        ({"type": "oauth2", "flow": [], "scopes": []}, "api_key"),
        ({"type": "oauth2", "flow": "implicit"}, "api_key"),
    ],
)
def test_a_swagger_security_definition_becomes_a_credential(scheme: Json, kind: str) -> None:
    """A security definition is read in the shape of OpenAPI 3.0."""
    assert (
        imported(swagger({}, securityDefinitions={"it": scheme}, security=[{"it": ["read"]}])).credential.kind == kind
    )


def test_parameters_of_a_swagger_path_belong_to_each_operation() -> None:
    """Form fields are among them."""
    whole = swagger({})
    whole["paths"]["/a"]["parameters"] = [
        {"in": "query", "name": "q", "type": "string"},
        {"in": "formData", "name": "f", "type": "string"},
    ]
    operation = packed(whole)

    assert [parameter["name"] for parameter in operation["parameters"]] == ["q"]
    assert operation["requestBody"]["x-aileron-arguments"] == {"f": "f"}


@pytest.mark.computes_for(5)
def test_form_fields_of_a_swagger_path_are_copied_to_its_methods_and_not_to_its_other_keys() -> None:
    """A path may have thousands of other keys, so copying to each would be slow."""
    fields = [{"in": "formData", "name": f"f{n}", "type": "string"} for n in range(5000)]
    whole = swagger({})
    whole["paths"]["/a"] |= {"parameters": fields, **{f"x-{n}": {} for n in range(5000)}}

    with pytest.raises(DocumentError, match="an object with 5000 properties"):
        imported(whole)
