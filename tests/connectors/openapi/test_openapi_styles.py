"""Values as OpenAPI writes them: its own table of styles, and laws that hold for every value."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_connector.openapi.styles import Way, encoded, field, query, segment
from tests.connectors.openapi.packed import endpoint, parameter, request

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}

# OpenAPI Specification 3.1.1, section 4.8.12.6, "Style Examples": style, explode, then empty, string, array and object.
TABLE = [
    ("matrix", False, ";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
    ("matrix", True, ";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
    ("label", False, ".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
    ("label", True, ".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
    ("simple", False, "", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("simple", True, "", "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ("form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("form", True, "color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
    ("spaceDelimited", False, None, None, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
    ("pipeDelimited", False, None, None, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
    ("deepObject", True, None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
]


@pytest.mark.parametrize(("style", "explode", "empty", "string", "array", "object_"), TABLE)
def test_values_are_written_as_in_openapi_s_table_of_styles(
    style: Any, explode: bool, empty: Any, string: Any, array: Any, object_: Any
) -> None:
    """Each cell of the table matches; None stands for a cell that it does not have."""
    for value, expected in ("", empty), ("blue", string), (ARRAY, array), (OBJECT, object_):
        if expected is not None:
            assert written(value, style, explode) == expected


def written(value: Any, style: Any, explode: bool) -> str:
    """Return the value written as the style's place has it."""
    if style in ("matrix", "label", "simple"):
        return segment("color", value, Way(style, explode))
    return "&".join(f"{name}={text}" for name, text in query("color", value, Way(style, explode)))


@pytest.mark.parametrize(
    ("value", "way", "expected"),
    [
        (True, Way("form", True), "color=true"),
        (None, Way("form", True), ""),
        ([], Way("form", True), ""),
        ([], Way("form", False), ""),
        ({}, Way("deepObject", True), ""),
        ([None, 1, False], Way("form", False), "color=1,false"),
        (3.0, Way("form", True), "color=3"),
        (0.5, Way("form", True), "color=0.5"),
        (["a,b", "c"], Way("form", False), "color=a%2Cb,c"),
        (["a b"], Way("spaceDelimited", True), "color=a%20b"),
        ([{"a": 1}], Way("form", True), "color=%7B%22a%22%3A1%7D"),
        ("a/b?c&d=e#f+g%", Way("form", True, True), "color=a/b?c%26d=e%23f%2Bg%25"),
        (["a/b", "c,d"], Way("form", False, True), "color=a/b,c%2Cd"),
        ({"a": {"b": 1}}, Way("deepObject", True), "color%5Ba%5D%5Bb%5D=1"),
        ({"a": [1, 2]}, Way("deepObject", True), "color%5Ba%5D%5B%5D=1&color%5Ba%5D%5B%5D=2"),
        ([{"a": 1}, {"a": 2}], Way("deepObject", True), "color%5B0%5D%5Ba%5D=1&color%5B1%5D%5Ba%5D=2"),
        (["x"], Way("deepObject", True), "color%5B%5D=x"),
        ("x", Way("deepObject", True), "color=x"),
    ],
)  # fmt: skip
def test_values_outside_openapi_s_table_of_styles_are_written_as_documented(
    value: Any, way: Way, expected: str
) -> None:
    """The docstring of the module under test has these rules."""
    assert "&".join(f"{name}={text}" for name, text in query("color", value, way)) == expected


def test_the_value_of_a_header_field_is_not_percent_encoded() -> None:
    """Percent-encoding is for URLs (OpenAPI 3.1.1, section 4.8.12.2)."""
    assert field(["a b", "c"], False) == "a b,c"
    assert field(OBJECT, True) == "R=100,G=200,B=150"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(texts)
def test_percent_encoded_text_decodes_to_the_original_text(text: str) -> None:
    """The encoded text contains no delimiter."""
    assert urllib.parse.unquote(encoded(text), errors="strict") == text
    assert not set(encoded(text)) & set("/?#&=+;,:@[]{}!$'()* \\\"")


@given(st.dictionaries(texts.filter(bool), texts, max_size=4), st.booleans())
def test_a_query_string_decodes_to_the_given_names_and_values(values: dict[str, str], allow_reserved: bool) -> None:
    """Names and values may be any text."""
    of = endpoint(parameters=[parameter(name, allowReserved=allow_reserved) for name in values])

    url = urllib.parse.urlsplit(request(of, **values).url)

    assert dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(values))) == values
    assert (url.netloc, url.path, url.fragment) == ("api.example.com", "/v1/items", "")


@given(
    st.lists(texts, min_size=1, max_size=4), st.sampled_from(["form", "spaceDelimited", "pipeDelimited"]), st.booleans()
)
def test_the_encoded_members_of_a_list_decode_to_the_given_members(
    values: list[str], style: Any, allow_reserved: bool
) -> None:
    """A delimiter in a member does not separate."""
    ((_, text),) = query("x", values, Way(style, False, allow_reserved))
    delimiter = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}[style]
    if style == "form":
        assert [urllib.parse.unquote(member) for member in text.split(delimiter)] == values
    assert urllib.parse.unquote(text) == urllib.parse.unquote(delimiter).join(values)


@given(st.dictionaries(texts, st.text("abc", min_size=1), min_size=1, max_size=3))
def test_an_encoded_deep_object_decodes_to_its_keys(value: dict[str, str]) -> None:
    """Brackets of the style and of a key look the same: that is a limit of the style."""
    pairs = query("x", value, Way("deepObject", True))

    assert {urllib.parse.unquote(name): urllib.parse.unquote(text) for name, text in pairs} == {
        f"x[{key}]": text for key, text in value.items()
    }
