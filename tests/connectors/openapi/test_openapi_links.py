"""RFC 8288 links, and the arguments that lead to the next page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector.openapi.document import Link
from aileron_connector.openapi.links import Next, next_page, page_in, targets
from tests.connectors.openapi.packed import BASE, endpoint, named, parameter

PAGE = parameter("page", schema={"type": "integer"})


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('<a>; rel="next"', ["a"]),
        ("<a>; rel=next", ["a"]),
        ("<a>;REL=NEXT", ["a"]),
        ('<a>; rel="prev next"', ["a"]),
        ('<a?x=1,2>; rel="prev", <b>; rel="next"', ["b"]),
        ('<a>; title="x, <c>; rel=\\"next\\""; rel="next", <b>; rel="next"', ["a", "b"]),
        ('<a>; title="a;b"; rel="next"', ["a"]),
        ('<a>; rel="prev"; rel="next"', []),
        ("<a>; rel*=utf-8''next", []),
        ("<a>; flag; rel=next", ["a"]),
        ("<a>;; rel=next;", ["a"]),
        (",, <a> ; rel = next ,", ["a"]),
        ("<a>, <b>; rel=next", ["b"]),
        ("<a>; rel=next junk, <b>; rel=next", ["a"]),
        ("junk <a>; rel=next", []),
        ('<a>; rel="next', []),
        ("<a; rel=next", []),
        ("", []),
    ],
)
def test_link_headers_are_parsed_as_rfc_8288_writes_them(header: str, found: list[str]) -> None:
    """The cases have quotes, commas inside quotes, several links, and upper case."""
    assert targets(header, "next") == found


tokens = st.text("abcXYZ09-_", min_size=1, max_size=6)
quoted = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10)
uris = st.text("abc/?&=,;%:. ", max_size=10)


def spelled(text: str) -> str:
    """Return the text as a quoted string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(
    st.lists(
        st.tuples(uris, st.lists(st.tuples(tokens, quoted), max_size=3), st.sampled_from(["next", "prev", "x next"])),
        max_size=4,
    ),
    st.sampled_from([", ", ",", " ,\t", ",,"]),
)
def test_any_written_link_header_is_parsed_back(
    links: list[tuple[str, list[tuple[str, str]], str]], comma: str
) -> None:
    """The links have any targets, and any parameters beside `rel`."""
    header = comma.join(
        f"<{uri}>" + "".join(f"; {name}={spelled(value)}" for name, value in extra if name.lower() != "rel") + f'; rel="{rel}"'
        for uri, extra, rel in links
    )  # fmt: skip
    assert targets(header, "next") == [uri.strip() for uri, _, rel in links if "next" in rel]


@given(st.text() | st.text('<>;,="\\ relnxt?&/', max_size=60))
def test_any_link_header_is_parsed_without_an_exception(header: str) -> None:
    """The result is arguments, or the note that there is more, or None."""
    assert all(target in header for target in targets(header, "next"))
    found = next_page([header, f"<{header}>; rel=next"], f"{BASE}/items?q=1", endpoint(parameters=[PAGE]), named({}))
    assert found is None or isinstance(found, Next)


def test_parsing_link_headers_takes_linear_time() -> None:
    """A pattern that backtracks would take quadratic time on these headers."""
    for piece in ('<a>; x="', "<a>;", "; ", ' "\\', "<", "<a>;x ", "\t"):
        targets(piece * 20_000, "next")


def arguments(
    link: str, url: str = f"{BASE}/items?q=1&page=1", *parameters: Any, path: str = "/items", **schemas: Any
) -> Any:
    """Return the arguments of the next page; None for a page that they cannot name."""
    of = endpoint(path=path, parameters=[*(parameters or (PAGE,)), parameter("q", schema={"type": "string"})])
    found = next_page([f'<{link}>; rel="next"'], url, of, named(schemas))
    assert found is not None
    return found.arguments


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (f"{BASE}/items?q=1&page=2", {"page": 2}),
        ("?q=1&page=2", {"page": 2}),
        ("/v1/items?page=2", {"page": 2}),
        ("items?page=2&q=a%20b", {"page": 2, "q": "a b"}),
        ("http://api.example.com/v1/items?page=2", {"page": 2}),
        ("https://api.example.com:443/v1/items?page=2", {"page": 2}),
        (f"{BASE}/items?page=2&cursor=x", None),
        (f"{BASE}/items?page=x", None),
        (f"{BASE}/items?page=2&page=3", None),
        (f"{BASE}/items?q=1&page=1", None),
        (f"{BASE}/others?page=2", None),
        ("https://evil.example.com/v1/items?page=2", None),
        ("https://api.example.com:8443/v1/items?page=2", None),
        ("https://[/v1/items?page=2", None),
        ("https://api.example.com:x/v1/items?page=2", None),
        ("?" + "&".join(["a"] * 300), None),
    ],
)
def test_a_link_to_the_next_page_becomes_arguments_or_only_a_report_that_there_is_more(
    link: str, expected: Any
) -> None:
    """The link becomes the arguments that differ, if the operation has them all and the link leads to the same place."""
    assert arguments(link) == expected


@pytest.mark.parametrize(
    ("schema", "more", "query", "expected"),
    [
        ({"type": "string"}, {}, "x=2", "2"),
        ({"type": ["string", "null"]}, {}, "x=2", "2"),
        ({"type": "boolean"}, {}, "x=true", True),
        ({"type": "number"}, {}, "x=0.5", 0.5),
        ({"type": ["integer", "null"]}, {}, "x=7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {}, "x=7", 7),
        ({"$ref": "#/components/schemas/Id"}, {}, "x=7", 7),
        ({"type": "array", "items": {"type": "integer"}}, {}, "x=1&x=2", [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, {}, "x=1", [1]),
        ({"type": "array", "items": {"type": "string"}}, {"explode": False}, "x=1,b", ["1", "b"]),
        ({"type": "integer", "maximum": 5}, {}, "x=7", None),
        ({"type": "object"}, {"style": "deepObject"}, "x=7", None),
        ({"type": "integer"}, {}, "x=9999999999999999999999", None),
    ],
)
def test_values_from_a_link_have_the_types_of_the_operation_s_arguments(
    schema: Any, more: Any, query: str, expected: Any
) -> None:
    """A caller can pass the values on as they are."""
    found = arguments(f"?{query}", f"{BASE}/items", parameter("x", schema=schema, **more), Id={"type": "integer"})
    assert found == (None if expected is None else {"x": expected})


def test_an_argument_of_the_next_page_has_the_name_that_callers_know() -> None:
    """The name is the argument's, not the parameter's."""
    page = parameter("page[number]", schema={"type": "integer"}, **{"x-aileron-argument": "page_number"})
    assert arguments("?page%5Bnumber%5D=2", f"{BASE}/items", page) == {"page_number": 2}


def test_a_link_to_the_next_page_may_name_the_same_resource_by_its_numeric_id() -> None:
    """GitHub answers for /repos/o/r/issues with a link to /repositories/7/issues."""
    of = "/repos/{owner}/{repo}/issues"
    owner, repo = parameter("owner", "path"), parameter("repo", "path")
    url = f"{BASE}/repos/o/r/issues"

    assert arguments(f"{BASE}/repositories/7/issues?page=2", url, PAGE, owner, repo, path=of) == {"page": 2}
    assert arguments(f"{BASE}/repositories/7/pulls?page=2", url, PAGE, owner, repo, path=of) is None
    assert arguments(f"{BASE}/x/8?page=2", f"{BASE}/x/7", PAGE, path="/x/{id}") is None


def test_an_answer_without_a_link_to_the_next_page_has_no_next_page() -> None:
    """A link of another relation does not count either."""
    assert next_page(['<?page=9>; rel="last"'], BASE, endpoint(), named({})) is None


# A link of the document

FROM = parameter("from", schema={"type": "string", "maxLength": 5}, **{"x-aileron-argument": "page_from"})
SINCE = {"from": "$response.body#/search/a~1b/end"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"search": {"a/b": {"end": "t7"}}}, Next({"page_from": "t7"})),
        ({"search": {"a/b": {"end": 7}}}, Next(None)),
        ({"search": {"a/b": {"end": "longer"}}}, Next(None)),
        ({"search": {"a/b": {"end": "t6"}}}, None),
        ({"search": {"a/b": {"end": ""}}}, None),
        ({"search": {"a/b": {"end": None}}}, None),
        ({"search": {"a/b": []}}, None),
        ({"search": "a/b"}, None),
        ([], None),
    ],
)
def test_a_link_object_of_the_document_takes_its_values_from_the_answer(body: Any, expected: Any) -> None:
    """An answer without a value has no next page, and neither has one with the value that was sent."""
    of = endpoint(parameters=[FROM])
    assert page_in(Link("x", SINCE), body, {"page_from": "t6"}, of, named({})) == expected


def test_a_link_object_for_a_missing_parameter_only_reports_that_there_is_more() -> None:
    """A link in a header that names a missing parameter does the same."""
    assert page_in(Link("x", {"gone": "$response.body#/a"}), {"a": "b"}, {}, endpoint(), named({})) == Next(None)
