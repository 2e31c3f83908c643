"""An operation of a document: imported whole, or left out with the reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.actions.manifest import parse_action
from aileron.importing.reading import DocumentError
from aileron.importing.repository import Made
from aileron.model.manifest import InputSpec
from tests.importing.documents import Json, action_of, document, imported, one_operation, reason_of, schema_ref

TEXT = {"type": "string"}


def made_of(operation: Json, *, method: str = "get", path: str = "/pets", **more: Any) -> Made:
    """Import a document with this operation, `one`."""
    return imported(one_operation({"operationId": "one", **operation}, method=method, path=path, **more))


def inputs_of(made: Made) -> dict[str, InputSpec]:
    """Return the inputs of its action."""
    action = parse_action(action_of(made, "x-one"), file="action.md", allow_placeholder=True)
    return {spec.name: spec for spec in action.inputs}


def packed_of(made: Made) -> Json:
    """Return the operation as it is packed."""
    (methods,) = msgspec.json.decode(made.files["service/document.json"])["paths"].values()
    (operation,) = methods.values()
    assert isinstance(operation, dict)
    return operation


def parameter(name: str = "q", where: str = "query", **more: Any) -> Json:
    """Return a string parameter."""
    return {"name": name, "in": where, "schema": TEXT, **more}


def body(schema: Any, kind: str = "application/json", *, required: bool = True, **media: Any) -> Json:
    """Return an operation with a body."""
    return {"requestBody": {"required": required, "content": {kind: {"schema": schema, **media}}}}


# Parameters


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ([parameter("petId"), parameter("X-Trace", "header")], ["pet_id", "x_trace"]),
        ([parameter("id"), parameter("id", "header")], ["id", "id_header"]),
        ([parameter("a-b"), parameter("a_b"), parameter("a.b")], ["a_b", "a_b_query", "a_b_2"]),
        ([parameter("日本"), parameter("名前")], ["query", "query_query"]),
        ([parameter("1st")], ["arg_1st"]),
        ([parameter("a"), parameter("b", required=True)], ["b", "a"]),
        ([parameter("a", schema={"type": "integer"}), parameter("a")], ["a"]),
        ([parameter("a" * 100)], ["a" * 60]),
        ([parameter("q", "cookie")], []),
        ([parameter("Cookie", "header"), parameter("Host", "header"), parameter("Accept", "header")], []),
        ([parameter("a b", "header")], []),
        ([parameter("", "query"), parameter("\u202e", "query"), parameter("a\nb", "query")], []),
    ],
)
def test_each_argument_has_a_unique_name(parameters: list[Json], names: list[str]) -> None:
    """Names are in snake case, with the parameter's place added if two are equal. Unsendable ones are left out."""
    assert list(inputs_of(made_of({"parameters": parameters}))) == names


@pytest.mark.parametrize(
    "odd",
    [
        {"in": []},
        {"in": {}},
        {"in": None},
        {"in": "body"},
        {"schema": 1},
        {"schema": None},
        {"schema": []},
        {"style": "odd"},
        {"style": []},
        {"content": {"text/csv": {}}},
    ],
)
def test_an_unsupported_optional_parameter_is_left_out(odd: Json) -> None:
    """The parameter is listed. If it is required, the operation is not imported."""
    made = made_of({"parameters": [{**parameter(), **odd}, parameter("r")]})

    assert list(inputs_of(made)) == ["r"]
    assert made.left_out["one"][0].startswith("q: ")
    with pytest.raises(DocumentError, match="one: q: "):
        made_of({"parameters": [{**parameter(required=True), **odd}]})


@pytest.mark.parametrize(
    "raw", [None, 1, "x", [], {}, {"name": 1}, {"name": []}, {"$ref": "#/nowhere"}, {"$ref": "http://["}]
)
def test_an_unreadable_parameter_excludes_the_operation(raw: Any) -> None:
    """The importer cannot know whether the parameter was required."""
    with pytest.raises(DocumentError, match="none of the 1 operations can be imported; one: "):
        made_of({"parameters": [raw]})


def test_operations_with_more_than_500_parameters_are_refused() -> None:
    """The bound holds even if many operations share them. An action has at most 60 inputs."""
    with pytest.raises(DocumentError, match="more than 500 parameters"):
        made_of({"parameters": [parameter(f"q{n}") for n in range(501)]})
    assert len(inputs_of(made_of({"parameters": [parameter(f"q{n}") for n in range(500)]}))) == 60


@pytest.mark.parametrize(
    ("path", "is_imported"),
    [
        ("/a/{b}", True),
        ("/a/{b}{c}", True),
        ("/a/{b}/{b}", True),
        ("/a/{b}.json", True),
        ("/a/", True),
        ("/", True),
        ("/a:b;c@d", True),
        ("/a?x=1", True),
        ("/a#b", True),
        ("/../a", False),
        ("/a/..", False),
        ("/a/.", False),
        ("/a/./b", False),
        ("//evil.example/x", False),
        ("/a//b", False),
        ("/%2e%2e/a", False),
        ("/a b", False),
        ("/a\\b", False),
        ("/a\n+++\n", False),
        ("/\u202e", False),
        ("/{}", False),
        ("/{b", False),
        ("/{d}", False),
        ("/a?x={b}", False),
        ("a", False),
        ("", False),
        ("https://evil.example/", False),
        ("/" + "a" * 1000, False),
    ],
)
def test_an_operation_is_imported_only_if_its_path_is_plain_and_its_parameters_described(
    path: str, is_imported: bool
) -> None:
    """Other operations are not imported, and the reason names the path."""
    shared = [parameter("b", "path"), parameter("c", "path"), parameter("x y", "path")]
    made = imported(document({path: {"parameters": shared, "get": {"operationId": "one"}}, "/good": {"get": {}}}))

    assert ("one" in [action.op for action in made.actions]) is is_imported
    assert is_imported or "path" in reason_of(made, "one")


# Bodies


@pytest.mark.parametrize(
    ("operation", "inputs", "arguments"),
    [
        (body({"properties": {"a": TEXT, "bC": TEXT}, "required": ["bC"]}), ["b_c", "a"], {"a": "a", "bC": "b_c"}),
        (body({"properties": {"a": TEXT}}, "application/merge-patch+json"), ["a"], {"a": "a"}),
        (body({"properties": {"a": TEXT}}, "application/x-www-form-urlencoded"), ["a"], {"a": "a"}),
        (body({"properties": {"a": {"type": "string", "format": "binary"}}}, "multipart/form-data"), ["a"], {"a": "a"}),
        (body({"type": "array", "items": TEXT}), ["body"], None),
        (body(TEXT, "text/plain"), ["body"], None),
        (body({}, "application/octet-stream"), ["body"], None),
        (body({"type": "object", "additionalProperties": TEXT}), ["body"], None),
        (body(True), ["body"], None),
        (body({"properties": {"a": {"type": "string", "readOnly": True}, "b": TEXT}}), ["b"], {"b": "b"}),
        (body({"properties": {"a": False, "b": TEXT}}), ["b"], {"b": "b"}),
    ],
)
def test_a_body_becomes_one_input_for_each_property_or_one_for_all(
    operation: Json, inputs: list[str], arguments: Json | None
) -> None:
    """The body's media type and schema decide."""
    made = made_of(operation, method="post")

    assert list(inputs_of(made)) == inputs
    assert packed_of(made)["requestBody"].get("x-aileron-arguments") == arguments


def test_parameters_and_properties_of_one_name_get_different_names() -> None:
    """The later one gets its place appended."""
    operation = {
        **body({"properties": {"id": TEXT, "q": TEXT}}),
        "parameters": [parameter("id", "path"), parameter("q")],
    }

    assert list(inputs_of(made_of(operation, method="post", path="/pets/{id}"))) == ["id", "q", "id_body", "q_body"]


def test_a_body_is_sent_as_the_most_structured_media_type_in_the_document() -> None:
    """The order is JSON, a form, text."""
    kinds = [
        "text/plain",
        "image/png",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "application/vnd.x+json",
        "*/*",
    ]
    chosen = []
    while kinds:
        content = {kind: {"schema": {"properties": {"a": TEXT}}} for kind in kinds}
        made = made_of({"requestBody": {"required": True, "content": content}}, method="post")
        chosen += list(packed_of(made)["requestBody"]["content"])
        kinds.pop()

    assert chosen == [
        "application/json",
        "application/vnd.x+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain",
        "text/plain",
    ]


@pytest.mark.parametrize("raw", [1, "x", [], {}, {"content": []}, {"content": {}}, {"content": None}])
def test_an_unreadable_body_is_ignored(raw: Any) -> None:
    """The value in place of a body may have any type."""
    assert "requestBody" not in packed_of(made_of({"requestBody": raw}, method="post"))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "contains": {}}}, "required": ["a"], "if": {}},
        {"type": "object", "required": ["a"], "properties": {"a": {"not": {}}}},
        {"properties": {"a": TEXT}, "required": ["a", "b"], "additionalProperties": False},
        schema_ref("Nowhere"),
        {"allOf": [1]},
        1,
    ],
)
def test_an_unsupported_required_body_excludes_the_operation(schema: Any) -> None:
    """An optional body without any other input does too; beside another input, it is left out and listed."""
    for is_required in (True, False):
        with pytest.raises(DocumentError, match="one: body: "):
            made_of(body(schema, required=is_required), method="post")
    beside = {**body(schema, required=False), "parameters": [{"name": "q", "in": "query", "schema": TEXT}]}
    assert made_of(beside, method="post").left_out["one"][0].startswith("body: ")


def test_body_properties_with_similar_names_get_unique_input_names() -> None:
    """A hundred properties get unique names. An action has at most 60 inputs, so the others are listed."""
    properties = {chr(0x4E00 + n): TEXT for n in range(150)}
    made = made_of(body({"properties": properties}), method="post")

    assert len(inputs_of(made)) == 60
    assert len(made.left_out["one"]) == 90


def test_a_content_type_with_a_line_end_is_dropped_from_a_multipart_body() -> None:
    """The line end could inject another header into the multipart body."""
    encoding = {"a": {"contentType": "text/plain\r\nX-Evil: 1"}, "b": {"contentType": "text/csv"}}
    made = made_of(
        body({"properties": {"a": TEXT, "b": TEXT}}, "multipart/form-data", encoding=encoding), method="post"
    )
    (media,) = packed_of(made)["requestBody"]["content"].values()

    assert media["encoding"] == {"a": {}, "b": {"contentType": "text/csv"}}


# Answers


@pytest.mark.parametrize(
    ("schema", "at", "fields"),
    [
        ({"type": "array", "items": {"properties": {"id": {}, "blob": {}, "name": {}}}}, [], ["id", "name"]),
        ({"properties": {"data": {"type": "array", "items": {"properties": {"id": {}}}}, "n": {}}}, ["data"], ["id"]),
        (
            {"properties": {"pets": {"items": {"properties": {"user": {"properties": {"login": {}}}, "id": {}}}}}},
            ["pets"],
            ["id"],
        ),
        ({"allOf": [schema_ref("List")]}, ["items"], ["id"]),
        (
            {"properties": {"a": {"items": {"properties": {"id": {}}}}, "b": {"items": {"properties": {"id": {}}}}}},
            None,
            None,
        ),
        ({"type": "object"}, None, None),
        (True, None, None),
        (schema_ref("Nowhere"), None, None),
    ],
)
def test_a_list_in_a_response_is_found_with_its_most_informative_fields(
    schema: Any, at: list[str] | None, fields: list[str] | None
) -> None:
    """The record names the most telling fields of the list's members."""
    schemas = {"List": {"properties": {"items": {"type": "array", "items": {"properties": {"id": {}}}}}}}
    answer = {"200": {"content": {"application/json": {"schema": schema}}}}
    shape = packed_of(made_of({"responses": answer}, components={"schemas": schemas})).get("x-aileron-list")

    assert shape == (None if at is None else {"argument": "fields", **({"at": at} if at else {}), "fields": fields})


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [
        ("200", True),
        ("2XX", True),
        ("default", True),
        ("²00", False),
        ("２00", False),
        ("9" * 5000, False),
        ("404", False),
        ("", False),
    ],
)
def test_error_responses_are_not_recorded(status: str, is_kept: bool) -> None:
    """A `default` without other responses is recorded. Digits of other scripts are no status code."""
    media = {"schema": {"type": "object"}, "example": {"a": 1}}
    made = made_of({"responses": {status: {"content": {"application/json": media}}}})

    assert (status in packed_of(made).get("responses", {})) is is_kept


@pytest.mark.parametrize(
    "schema", [{"allOf": [1, None, {"type": "object"}]}, {"anyOf": ["x"]}, {"properties": {"a": 1}}, {"items": 1}]
)
def test_unreadable_parts_of_a_response_schema_are_ignored(schema: Json) -> None:
    """The operation is imported all the same."""
    assert made_of({"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}).actions


@pytest.mark.computes_for(10)
@pytest.mark.parametrize(
    "schemas",
    [
        {"A39": {"properties": {"id": {}}, "allOf": [schema_ref("A39"), {"properties": {"x": {}}}]}},
        {"A0": {"properties": {"id": {}}}, **{f"A{n}": {"allOf": [schema_ref(f"A{n - 1}")] * 2} for n in range(1, 40)}},
        {"A0": {}, **{f"A{n}": {"properties": {"id": {}}, "allOf": [schema_ref(f"A{n - 1}")]} for n in range(1, 40)}},
    ],
)
def test_a_recursive_response_schema_is_searched_within_bounds(schemas: Json) -> None:
    """The search for its fields stops after a while."""
    media = {"schema": schema_ref("A39"), "example": {"id": 1}}
    answer = {"200": {"content": {"application/json": media}}}

    assert made_of({"responses": answer}, components={"schemas": schemas}).actions


@pytest.mark.computes_for(20)
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(
            {"required": [f"r{n}" for n in range(200_000)], "properties": {f"p{n}": TEXT for n in range(1900)}},
            id="required",
        ),
        pytest.param(
            {"allOf": [{"enum": [f"a{n}" for n in range(2000)]}, {"enum": [f"b{n}" for n in range(2000)]}]}, id="enums"
        ),
        pytest.param({"properties": {f"p{n}": schema_ref(f"A{n}") for n in range(300)}}, id="a chain"),
        pytest.param({"properties": {f"p{n}": schema_ref("Alternatives") for n in range(10)}}, id="alternatives"),
    ],
)
def test_a_schema_that_takes_too_long_is_left_out(schema: Json) -> None:
    """The other operation is imported, and the recursion stays within bounds."""
    one_of = {"oneOf": [{"required": [f"r{n}"], "properties": {f"r{m}": TEXT for m in range(20)}} for n in range(20)]}
    chain = {f"A{n}": {"allOf": [schema_ref(f"A{n - 1}")]} for n in range(1, 300)}
    schemas = {"A0": {"properties": {"id": TEXT}}, **chain, "Alternatives": {"allOf": [one_of, one_of, one_of]}}
    whole = document({"/a": {"post": body(schema)}, "/b": {"get": {}}}, components={"schemas": schemas})

    assert imported(whole).actions


@pytest.mark.computes_for(20)
def test_properties_beyond_the_limit_are_not_examined_for_each_operation() -> None:
    """Twenty operations share a schema of a thousand properties, many of which are too large for an optional input."""
    small = {"type": "object", "properties": {f"q{n}": TEXT for n in range(5)}}
    large = {"type": "object", "properties": {f"q{n}": {"type": "string", "title": "x" * 100} for n in range(20)}}
    schemas = {"Body": {"properties": {f"p{n}": large if n < 100 else small for n in range(1000)}}}
    whole = document({f"/{n}": {"post": body(schema_ref("Body"))} for n in range(20)}, components={"schemas": schemas})
    made = imported(whole)

    assert len(made.actions) == 20
    assert len(set(made.left_out.values())) == 1
    assert {f"p{n}: an action has no room for it" for n in range(60, 1000)} < set(made.left_out[made.imported[0].name])


# Links


def linked(**link: Any) -> Any:
    """Return the packed links of an operation whose response has this link as `next`."""
    said = {"operationId": "one", "parameters": {"from": "$response.body#/end"}, **link}
    responses = {"200": {"description": "", "links": {"next": said, "other": said}}}
    made = made_of({"parameters": [parameter("from"), parameter("dir")], "responses": responses})
    return packed_of(made)["responses"]["200"].get("links")


def test_the_link_to_the_next_page_is_imported() -> None:
    """The link has the operation's name and its parameters' names without their places; links of other names are dropped."""
    expected = {"next": {"operationId": "one", "parameters": {"from": "$response.body#/end"}}}
    assert linked() == linked(parameters={"query.from": "$response.body#/end"}) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"operationId": "other"},
        {"operationId": None},
        {"parameters": {}},
        {"parameters": []},
        {"parameters": {"gone": "$response.body#/end"}},
        {"parameters": {"from": "$response.header.X-Next"}},
        {"parameters": {"from": "$request.query.from"}},
        {"parameters": {"from": "$response.body#/~2"}},
        {"parameters": {"from": "a{$response.body#/end}"}},
        {"parameters": {"from": 7}},
        {"parameters": dict.fromkeys("abcde", "$response.body#/end")},
        {"requestBody": "$response.body"},
        {"$ref": "#/gone"},
    ],
)
def test_a_link_that_does_not_lead_to_the_next_page_is_not_imported(odd: Json) -> None:
    """The operation is imported all the same, because callers can do without the link."""
    assert linked(**odd) is None
