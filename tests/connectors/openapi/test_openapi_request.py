"""Tests for arguments becoming a request: what is sent, and which arguments are refused with which words."""

from __future__ import annotations

import base64
import email.parser
import email.policy
import urllib.parse
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aileron.egress.refusal import RefusedError
from aileron.egress.url import parse_url
from aileron_connector import BadInput
from tests.connectors.openapi.packed import BASE, endpoint, parameter, request

FORM = "application/x-www-form-urlencoded"


def refusal(of: Any, schemas: dict[str, Any] | None = None, /, **arguments: Any) -> tuple[str, Any]:
    """Return the message, and the argument that it names."""
    with pytest.raises(BadInput) as caught:
        request(of, schemas, **arguments)
    return caught.value.message, caught.value.details.get("argument")


def body(content: str, schema: Any = True, **more: Any) -> dict[str, Any]:
    """Return a request body of one media type; its properties are arguments of their names."""
    encoding = more.pop("encoding", {})
    names = {} if "argument" in more else {name: name for name in schema.get("properties", {})}
    whole = {"x-aileron-argument": more.pop("argument")} if not names else {"x-aileron-arguments": names}
    return {"content": {content: {"schema": schema, "encoding": encoding}}, **whole, **more}


# Arguments


LIMIT = parameter("per_page", schema={"type": "integer", "maximum": 100}, **{"x-aileron-argument": "limit"})


def test_an_argument_may_have_another_name_than_its_parameter() -> None:
    """The document says which argument goes to which parameter."""
    assert request(endpoint(parameters=[LIMIT]), limit=5).url == f"{BASE}/items?per_page=5"


@pytest.mark.parametrize(
    ("arguments", "words", "argument"),
    [
        ({"limit": 101}, "argument 'limit' is more than 100", "limit"),
        ({"limit": 1.0}, "argument 'limit' is not an integer", "limit"),
        ({"per_page": 1}, "unknown argument 'per_page'; expected limit, tags, fields", "per_page"),
        ({"tags": ["a", 1]}, "argument 'tags', at [1], is not a string", "tags"),
        ({"fields": "id"}, None, "fields"),
        ({"fields": []}, None, "fields"),
        ({"fields": [""]}, None, "fields"),
    ],
)
def test_the_refusal_of_an_invalid_argument_uses_the_caller_s_name_for_it(
    arguments: dict[str, Any], words: str | None, argument: str
) -> None:
    """The error names the argument as the caller knows it."""
    tags = parameter("tags", schema={"type": "array", "items": {"$ref": "#/components/schemas/Tag"}})
    operation: dict[str, Any] = {"parameters": [LIMIT, tags], "x-aileron-list": {"argument": "fields"}}
    of = endpoint(**operation)

    said, named = refusal(of, {"Tag": {"type": "string"}}, **arguments)

    assert named == argument
    assert words is None or said == words


def test_a_missing_required_argument_is_named() -> None:
    """The cases are an argument of a path, of a query, and of a body."""
    of = endpoint(
        "POST",
        "/items/{id}",
        parameters=[parameter("id", "path"), parameter("q", required=True)],
        requestBody=body("application/json", {"required": ["text"], "properties": {"text": {}}}, required=True),
    )
    assert refusal(of, q=1, text="") == ("argument 'id' is missing", "id")
    assert refusal(of, id=1, text="") == ("argument 'q' is missing", "q")
    assert refusal(of, id=1, q=1) == ("argument 'text' is missing", "text")


def test_the_argument_that_chooses_fields_of_the_answer_is_not_sent_to_the_service() -> None:
    """The argument only selects which fields of the answer are returned."""
    operation: dict[str, Any] = {"x-aileron-list": {"fields": ["id"], "argument": "fields"}}
    of = endpoint(**operation)
    assert request(of, fields=["id", "a.b"]).url == f"{BASE}/items"


# Paths


@pytest.mark.parametrize(
    "value",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../b",
        "..\\x",
        "%2e%2e",
        "a%2F..",
        "%2E",
        "./a",
        "a/.",
        "..;x",
        [],
        ["", ".."],
        {"a": ".."},
    ],
)
def test_an_argument_cannot_escape_its_path_segment(value: Any) -> None:
    """Some servers decode twice, or cut parameters off a segment before they look at it."""
    said, argument = refusal(endpoint(path="/items/{id}/x", parameters=[parameter("id", "path")]), id=value)
    assert argument == "id"
    assert "path" in said


@pytest.mark.parametrize("arguments", [{"a": ".", "b": "x"}, {"a": "x", "b": "."}])
def test_two_arguments_together_cannot_escape_their_path_segment(arguments: dict[str, str]) -> None:
    """`{a}{b}` could get two dots, one from each half; a label adds one of its own."""
    of = endpoint(path="/items/{a}{b}", parameters=[parameter("a", "path"), parameter("b", "path", style="label")])
    refusal(of, **arguments)


def test_a_path_segment_that_a_server_would_shorten_to_a_dot_is_refused() -> None:
    """The dot is in the document's path, followed by parameters of the segment."""
    said, _ = refusal(endpoint(path="/items/.{id}", parameters=[parameter("id", "path", style="matrix")]), id=7)
    assert said == "argument 'id' would change the path"


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("%2f", "%252f"),
        ("...", "..."),
        ("a..b", "a..b"),
        (".git", ".git"),
        ("ü \n", "%C3%BC%20%0A"),
        (7, "7"),
        (True, "true"),
        (["a", "b/c"], "a,b%2Fc"),
        ("a//b", "a%2F%2Fb"),
    ],
)
def test_an_accepted_path_argument_is_percent_encoded_into_one_segment(value: Any, segment: str) -> None:
    """The value is percent-encoded."""
    of = endpoint(path="/items/{id}/x", parameters=[parameter("id", "path")])
    assert request(of, id=value).url == f"{BASE}/items/{segment}/x"


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.text(st.sampled_from("./\\%2eEfF5cC;?#"), max_size=8)
    | st.lists(st.text(st.sampled_from("./%2ef;,"), max_size=4), max_size=3),
    st.sampled_from(["simple", "label", "matrix"]),
    st.booleans(),
    st.sampled_from(["/items/{id}/x", "/items/{id}", "/items/a.{id}.b/x", "/items/{id}{id}"]),
)
@example("..", "simple", False, "/items/{id}")
def test_no_argument_changes_the_number_of_path_segments(value: Any, style: str, explode: bool, path: str) -> None:
    """The argument is refused, or the URL is valid for the host, has as many segments as the document's path, and
    decodes to the value.
    """
    of = endpoint(path=path, parameters=[parameter("id", "path", style=style, explode=explode)])
    try:
        url = request(of, id=value).url
    except BadInput:
        return
    parsed = parse_url(url)
    assert (parsed.host, parsed.query) == ("api.example.com", None)
    assert len(parsed.path.split("/")) == len(f"/v1{path}".split("/"))
    if isinstance(value, str) and style == "simple":
        assert urllib.parse.unquote(parsed.path, errors="strict") == f"/v1{path}".replace("{id}", value)


def test_a_documented_path_with_a_query_keeps_its_query() -> None:
    """Some documents distinguish operations by such a query."""
    assert (
        request(endpoint(path="/x?action=list", parameters=[parameter("q")]), q="a").url == f"{BASE}/x?action=list&q=a"
    )


def test_a_fragment_in_a_documented_path_is_not_sent() -> None:
    """Some documents distinguish operations of one path by it, and the query comes before it."""
    assert request(endpoint(path="/x#add", parameters=[parameter("q")]), q="a").url == f"{BASE}/x?q=a"
    assert request(endpoint(path="/x?b=c#add", parameters=[parameter("q")]), q="a").url == f"{BASE}/x?b=c&q=a"


def test_a_parameter_declared_with_content_is_sent_as_json() -> None:
    """This holds in a query, in a path, and in a header."""
    content: dict[str, Any] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    of = endpoint(path="/x/{p}", parameters=[parameter("q", **content), parameter("p", "path", **content)])
    assert request(of, q={"a": 1}, p={}).url == f"{BASE}/x/%7B%7D?q=%7B%22a%22%3A1%7D"
    assert refusal(of, q=1, p={}) == ("argument 'q' is not an object", "q")
    of = endpoint(parameters=[parameter("h", "header", **content)])
    assert dict(request(of, h={"a": [1]}).headers)["h"] == '{"a":[1]}'


# Header fields


def test_header_parameters_are_sent_as_header_fields() -> None:
    """Ours are added if the document has none of the same name."""
    of = endpoint(
        parameters=[parameter("X-Ids", "header"), parameter("accept", "header"), parameter("Authorization", "header")],
        responses={"200": {"content": {"application/json": {}}}},
    )
    assert dict(request(of, **{"X-Ids": [1, 2]}).headers) == {
        "X-Ids": "1,2",
        "Accept": "application/json",
        "User-Agent": "aileron",
    }
    sent = dict(request(of, accept="text/csv", Authorization="Bearer x").headers)
    assert sent == {"accept": "text/csv", "User-Agent": "aileron"}


def test_the_accept_field_names_only_json_if_the_document_has_json() -> None:
    """Other media types have other schemas. Without JSON, every documented type is accepted."""
    media: dict[str, Any] = {
        "application/vnd.github.object": {},
        "application/json": {},
        "application/problem+json": {},
    }
    others: dict[str, Any] = {"text/csv": {}, "image/png": {}}
    of_both, of_none = (endpoint(responses={"200": {"content": content}}) for content in (media, others))

    assert dict(request(of_both).headers)["Accept"] == "application/json, application/problem+json"
    assert dict(request(of_none).headers)["Accept"] == "text/csv, image/png"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\0", "ü", " a", "a\t", "a\x7f"])
def test_an_argument_cannot_end_a_header_field(value: str) -> None:
    """Characters that the host would refuse or strip are refused, too."""
    said, argument = refusal(endpoint(parameters=[parameter("x", "header")]), x=value)
    assert (argument, "visible ASCII" in said) == ("x", True)


# Bodies


ITEM = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}, "meta": {}},
    "additionalProperties": False,
}


def test_a_json_body_has_the_given_arguments() -> None:
    """Arguments that are not given are left out."""
    sent = request(endpoint("POST", requestBody=body("application/vnd.x+json", ITEM)), text="ü", meta=None)

    assert sent.body == '{"text":"ü","meta":null}'.encode()
    assert dict(sent.headers)["Content-Type"] == "application/vnd.x+json"


def test_an_optional_body_without_arguments_is_not_sent() -> None:
    """A required body is sent empty."""
    assert request(endpoint("POST", requestBody=body("application/json", ITEM))).body is None
    assert "Content-Type" not in dict(request(endpoint("POST", requestBody=body("application/json", ITEM))).headers)
    assert request(endpoint("POST", requestBody=body("application/json", ITEM, required=True))).body == b"{}"
    assert request(endpoint("POST", requestBody=body("application/json", ITEM, argument="all"))).body is None


def test_a_request_body_can_be_given_as_a_single_argument() -> None:
    """The example is a list."""
    of = endpoint("POST", requestBody=body("application/json", {"type": "array"}, argument="all", required=True))
    assert request(of, all=[1]).body == b"[1]"
    assert refusal(of, all={}) == ("argument 'all' is not an array", "all")
    assert refusal(of) == ("argument 'all' is missing", "all")


def test_the_error_for_a_problem_in_a_request_body_names_the_argument() -> None:
    """The message has the place in it. A problem of the whole body names no argument."""
    whole = {**ITEM, "maxProperties": 2}
    of = endpoint("POST", requestBody=body("application/json", whole))
    assert refusal(of, tags=["a", 1]) == ("argument 'tags', at [1], is not a string", "tags")
    assert refusal(of, text="", tags=[], meta=1) == (
        "the arguments do not fit together: the body has more than 2 properties",
        None,
    )


def test_an_argument_that_has_an_alternative_is_not_called_missing() -> None:
    """Another argument would satisfy the schema as well."""
    either = {"properties": {"a": {}, "b": {}, "c": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    of = endpoint("POST", requestBody=body("application/json", either))
    words = 'the arguments do not fit together: the body has no "a" (closest of 2 alternatives)'
    assert refusal(of, c=1) == (words, None)


STRIPE: dict[str, Any] = {
    "properties": {name: {} for name in ("amount", "metadata", "expand", "items", "plain", "list", "json")}
}
DEEP = {"style": "deepObject", "explode": True}


def test_a_form_body_is_written_as_the_document_s_encoding_says() -> None:
    """Deep objects are written as Stripe has them. Without an encoding, fields are as in HTML forms, and objects are JSON."""
    encoding = {"metadata": DEEP, "expand": DEEP, "items": DEEP, "json": {"contentType": "application/json"}}
    of = endpoint("POST", requestBody=body(FORM, STRIPE, encoding=encoding))
    sent = request(
        of,
        amount=10,
        metadata={"a b": "c&d"},
        expand=["x", "y"],
        items=[{"price": "p"}],
        plain={"a": 1},
        list=["1", "2"],
        json=["3"],
    )
    assert sent.body is not None
    assert urllib.parse.parse_qsl(sent.body.decode(), strict_parsing=True) == [
        ("amount", "10"),
        ("metadata[a b]", "c&d"),
        ("expand[]", "x"),
        ("expand[]", "y"),
        ("items[0][price]", "p"),
        ("plain", '{"a":1}'),
        ("list", "1"),
        ("list", "2"),
        ("json", '["3"]'),
    ]


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_form_body_decodes_to_the_given_values(values: dict[str, str]) -> None:
    """The values are any text."""
    assume(values)
    sent = request(endpoint("POST", requestBody=body(FORM, {"properties": {"a": {}, "b": {}}})), **values)
    assert dict(urllib.parse.parse_qsl((sent.body or b"").decode(), keep_blank_values=True)) == values


UPLOAD = {
    "properties": {
        'na"me\r\n': {"type": "string"},
        "file": {"$ref": "#/components/schemas/File"},
        "files": {"type": "array", "items": {"type": "string", "contentMediaType": "image/png"}},
        "meta": {"type": "object"},
        "photo": {"type": "string"},
        "csv": {"type": "string"},
        "none": {},
    }
}


def parts(sent: Any) -> list[Any]:
    """Return the parts of a multipart body as the standard library reads it."""
    head = f"Content-Type: {dict(sent.headers)['Content-Type']}\r\n\r\n".encode()
    return email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + sent.body).get_payload()  # type: ignore[return-value]


def test_a_multipart_body_has_files_text_and_json() -> None:
    """Files are given as base64, and have the name of their property."""
    encoding = {"photo": {"contentType": "image/jpeg, image/png"}, "csv": {"contentType": "text/csv"}}
    of = endpoint("POST", requestBody=body("multipart/form-data", UPLOAD, encoding=encoding))
    png = base64.b64encode(b"\x89PNG\r\n--aileron").decode()
    given_ = {
        'na"me\r\n': "ü",
        "file": png,
        "files": [png, png],
        "meta": {"a": 1},
        "photo": png,
        "csv": "a,b",
        "none": None,
    }

    found = parts(request(of, {"File": {"type": "string", "format": "binary"}}, **given_))

    def shown(part: Any) -> tuple[Any, ...]:
        name = part.get_param("name", header="content-disposition")
        return name, part.get_filename(), part.get("Content-Type"), part.get_payload(decode=True)

    assert [shown(part) for part in found] == [
        ("na%22me%0D%0A", None, None, "ü".encode()),
        ("file", "file", "application/octet-stream", b"\x89PNG\r\n--aileron"),
        ("files", "files", "image/png", b"\x89PNG\r\n--aileron"),
        ("files", "files", "image/png", b"\x89PNG\r\n--aileron"),
        ("meta", None, "application/json", b'{"a":1}'),
        ("photo", "photo", "image/jpeg", b"\x89PNG\r\n--aileron"),
        ("csv", None, "text/csv", b"a,b"),
    ]
    assert refusal(of, {"File": {"type": "string", "format": "binary"}}, file="no!")[1] == "file"


def test_each_multipart_request_has_a_boundary_of_its_own() -> None:
    """A caller therefore cannot write a part that contains it."""
    of = endpoint("POST", requestBody=body("multipart/form-data", UPLOAD))
    assert len({dict(request(of, csv="x").headers)["Content-Type"] for _ in range(8)}) == 8


@pytest.mark.parametrize(
    ("content", "given_", "content_type", "sent"),
    [
        ("text/plain", "ü", "text/plain; charset=utf-8", "ü".encode()),
        ("application/xml", "<a/>", "application/xml; charset=utf-8", b"<a/>"),
        ("application/octet-stream", "AAE=", "application/octet-stream", b"\0\1"),
        ("image/png", "AAE=", "image/png", b"\0\1"),
        ("*/*", "AAE=", "application/octet-stream", b"\0\1"),
    ],
)
def test_a_body_argument_is_text_or_base64_depending_on_its_media_type(
    content: str, given_: str, content_type: str, sent: bytes
) -> None:
    """Callers cannot put raw bytes into JSON arguments."""
    made = request(endpoint("PUT", requestBody=body(content, argument="content")), content=given_)
    assert (dict(made.headers)["Content-Type"], made.body) == (content_type, sent)


@pytest.mark.parametrize(("content", "value"), [("text/plain", 1), ("image/png", "no!"), ("image/png", 1), (FORM, 1)])
def test_an_error_about_a_wrong_kind_of_body_names_the_argument(content: str, value: Any) -> None:
    """The argument is checked even if the document has no schema for it."""
    assert refusal(endpoint("PUT", requestBody=body(content, argument="content")), content=value)[1] == "content"


def test_the_host_s_parser_accepts_the_urls_of_requests() -> None:
    """The parser of the host decides about requests. The arguments have brackets and spaces."""
    made = request(
        endpoint(parameters=[parameter("a[b]", style="deepObject"), parameter("c")]), **{"a[b]": {"x y": 1}, "c": "[]"}
    )
    try:
        parse_url(made.url)
    except RefusedError as error:
        pytest.fail(str(error))
