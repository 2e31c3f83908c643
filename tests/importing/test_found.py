"""The operations that a document describes, each with a name of its own; Swagger 2.0 as well."""

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
def test_an_operation_is_called_by_its_id_or_its_path(operation_id: Any, path: str, name: str) -> None:
    """In snake case, at most 64 characters."""
    assert found(document({path: {"get": {"operationId": operation_id}}})).operations[0].name == name


@given(ids=st.lists(st.text(alphabet="aA-_1/é.", max_size=4) | st.just("x" * 80), min_size=1, max_size=12))
def test_names_are_unique_and_names(ids: list[str]) -> None:
    """Whatever collides."""
    there = found(document({f"/a{'/' * n}": {"get": {"operationId": one}} for n, one in enumerate(ids)}))
    names = [one.name for one in there.operations]

    assert len(set(names)) == len(ids)
    assert all(OP_NAME.fullmatch(name) for name in names)


@pytest.mark.computes_for(10)
def test_twenty_thousand_names_that_collide_take_no_time() -> None:
    """And one more operation is too many."""
    paths = {f"/{'x' * 80}/{n}": {"get": {"operationId": "y" * 80}} for n in range(20_000)}

    assert len({one.name for one in found(document(paths)).operations}) == 20_000
    with pytest.raises(DocumentError, match="more than 20000 operations"):
        found(document({**paths, "/one": {"get": {}}}))


@pytest.mark.computes_for(10)
def test_a_path_that_thousands_refer_to_is_there_once() -> None:
    """What it has is not copied for each."""
    item = {"parameters": [1] * 100_000, "get": {"tags": ["<b>tag</b>" * 20] * 5000, "summary": "<a " * 7000}}
    there = found(document({f"/{n}": {"$ref": "#/x-item"} for n in range(3000)}, **{"x-item": item}))

    assert len(there.operations) == 3000
    assert len({id(one.shared) for one in there.operations}) == 1
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
def test_what_describes_no_operation_is_an_error(change: Json, words: str) -> None:
    """That says what is missing."""
    with pytest.raises(DocumentError, match=words.replace("[", "").replace("`", ".")):
        found({**document({"/a": {"get": {}}}), **change})


@pytest.mark.parametrize("whole", [None, 1, "x", [], [{}], True])
def test_what_is_no_object_is_no_document(whole: Any) -> None:
    """Of whatever type."""
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
def test_operations_are_chosen_by_words(how: dict[str, Any], names: list[str]) -> None:
    """Several add up."""
    assert [one.name for one in wanted(found(document(PATHS)), **how)] == names


def test_a_word_that_is_nothing_is_told() -> None:
    """With the one that is near."""
    there = found(document(PATHS))

    with pytest.raises(DocumentError, match=r"no operation 'lstPets'; did you mean 'listPets'"):
        wanted(there, ops=["lstPets"])
    with pytest.raises(DocumentError, match="no tag 'nope'"):
        wanted(there, tags=["nope"])
    assert [one.name for one in by_words(there, ["reads", "pets", "old"])] == ["list_pets", "add_pet", "old"]
    assert tags_of(there)[0] == ("Pets", 1, 1)


# Swagger 2.0


def swagger(operation: Json, *, method: str = "post", **more: Any) -> Json:
    """A document of 2.0 with one operation."""
    whole = {"swagger": "2.0", "info": {"title": "Pets"}, "host": "api.example.com", "basePath": "/v1"}
    return {**whole, "paths": {"/a": {method: {"operationId": "one", "responses": {}, **operation}}}, **more}


def packed(whole: Json) -> Json:
    """The operation as it is packed."""
    made = imported(whole)
    (methods,) = msgspec.json.decode(made.files["service/document.json"])["paths"].values()
    (operation,) = methods.values()
    assert isinstance(operation, dict)
    return operation


def test_a_body_of_swagger_is_a_body() -> None:
    """As JSON, property by property."""
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
def test_fields_of_swagger_are_a_form(fields: list[Json], consumes: Any, kind: str) -> None:
    """With a file, in parts."""
    operation = {"parameters": [{"in": "formData", "required": True, **one} for one in fields], "consumes": consumes}
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
def test_lists_of_swagger_are_written_as_it_says(said: Any, style: str, explode: bool) -> None:
    """As CSV where it says nothing that is known."""
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
def test_a_list_of_swagger_that_cannot_be_written_is_left_out_and_listed(place: str, more: Json, told: str) -> None:
    """A list in another form is not written as CSV. A required one takes the operation with it."""
    parameter = {"in": place, "name": "a", "type": "array", "items": {"type": "string"}, **more}
    other = {"in": place, "name": "b", "type": "string"}
    made = imported(swagger({"parameters": [parameter, other]}))
    (one,) = made.imported

    assert [given.name for given in one.inputs] == ["b"]
    assert one.left_out == (told,)
    with pytest.raises(DocumentError, match="is not supported"):
        imported(swagger({"parameters": [{**parameter, "required": True}, other]}))


def test_a_file_that_swagger_answers_is_no_json() -> None:
    """Whatever the document produces, which is JSON where it says nothing."""
    answers = {
        "200": {"schema": {"type": "file"}, "description": ""},
        "201": {"schema": {"type": "string"}, "description": ""},
    }
    made = packed(swagger({"responses": answers}))["responses"]

    assert {status: list(one["content"]) for status, one in made.items()} == {
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
def test_a_path_that_is_none_says_what_to_do(path: str, told: str) -> None:
    """The error names what is wrong with the path, which is not its characters."""
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
def test_the_host_of_swagger_is_three_keys(change: Json, origin: str) -> None:
    """With TLS where there is a choice."""
    assert [one.url for one in imported(swagger({}, **change)).origins] == [origin]


@pytest.mark.parametrize("host", [1, [], "a@b", "a/b?c", "", "a b", "good.example\\@evil.example"])
def test_a_host_of_swagger_that_is_none_is_an_error(host: Any) -> None:
    """Of whatever type."""
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
def test_security_of_swagger_is_read(scheme: Json, kind: str) -> None:
    """In the shape of 3.0."""
    assert (
        imported(swagger({}, securityDefinitions={"it": scheme}, security=[{"it": ["read"]}])).credential.kind == kind
    )


def test_parameters_of_a_path_of_swagger_are_each_operation_s() -> None:
    """Bodies too."""
    whole = swagger({})
    whole["paths"]["/a"]["parameters"] = [
        {"in": "query", "name": "q", "type": "string"},
        {"in": "formData", "name": "f", "type": "string"},
    ]
    operation = packed(whole)

    assert [one["name"] for one in operation["parameters"]] == ["q"]
    assert operation["requestBody"]["x-aileron-arguments"] == {"f": "f"}


@pytest.mark.computes_for(5)
def test_bodies_of_a_path_of_swagger_go_to_its_methods_only() -> None:
    """A path has as many other keys as it likes."""
    fields = [{"in": "formData", "name": f"f{n}", "type": "string"} for n in range(5000)]
    whole = swagger({})
    whole["paths"]["/a"] |= {"parameters": fields, **{f"x-{n}": {} for n in range(5000)}}

    with pytest.raises(DocumentError, match="an object with 5000 properties"):
        imported(whole)
