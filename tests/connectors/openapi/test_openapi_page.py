"""docs/reference/packed-openapi.md says what the code does: extensions, keywords, styles, limits, and its program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec

from aileron_connector import check
from aileron_connector.check import Schema, Schemas, maybe_problem
from aileron_connector.openapi import answer, document, saying
from tests.connectors.openapi.packed import PROGRAM

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "packed-openapi.md").read_text(encoding="utf-8")

# A schema for each keyword, and a value that does not fit it. A checker that ignores the keyword accepts the value.
REFUSES: dict[str, tuple[Schema, Any]] = {
    "type": ({"type": "string"}, 1),
    "enum": ({"enum": [1]}, 2),
    "const": ({"const": 1}, 2),
    "$ref": ({"$ref": "#/components/schemas/No"}, 1),
    "minimum": ({"minimum": 2}, 1),
    "maximum": ({"maximum": 0}, 1),
    "exclusiveMinimum": ({"exclusiveMinimum": 1}, 1),
    "exclusiveMaximum": ({"exclusiveMaximum": 1}, 1),
    "multipleOf": ({"multipleOf": 2}, 1),
    "minLength": ({"minLength": 2}, "a"),
    "maxLength": ({"maxLength": 0}, "a"),
    "pattern": ({"pattern": "b"}, "a"),
    "items": ({"items": False}, [1]),
    "prefixItems": ({"prefixItems": [False]}, [1]),
    "minItems": ({"minItems": 2}, [1]),
    "maxItems": ({"maxItems": 0}, [1]),
    "uniqueItems": ({"uniqueItems": True}, [1, 1]),
    "properties": ({"properties": {"a": False}}, {"a": 1}),
    "required": ({"required": ["b"]}, {"a": 1}),
    "additionalProperties": ({"additionalProperties": False}, {"a": 1}),
    "minProperties": ({"minProperties": 2}, {"a": 1}),
    "maxProperties": ({"maxProperties": 0}, {"a": 1}),
    "allOf": ({"allOf": [False]}, 1),
    "anyOf": ({"anyOf": [False]}, 1),
    "oneOf": ({"oneOf": [False]}, 1),
    "not": ({"not": True}, 1),
}


def section(title: str) -> str:
    """Return the text below a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_schema_keyword_on_the_reference_page_is_checked_by_the_code() -> None:
    """The checker refuses a wrong value for each keyword of the table, and its docstring names the same keywords."""
    rows = re.findall(r"^\| [a-z ]+ \| (`.+) \|$", section("Schemas"), re.MULTILINE)
    named = {keyword for row in rows for keyword in re.findall(r"`([^`]+)`", row)}
    assert named == {*REFUSES}
    assert {keyword for keyword in REFUSES if f"`{keyword}`" not in (check.__doc__ or "")} == set()
    schemas = Schemas({"No": msgspec.Raw(b"false")})
    assert [keyword for keyword, (schema, value) in REFUSES.items() if not maybe_problem(value, schema, schemas)] == []


def test_the_reference_page_lists_exactly_the_extensions_of_the_document_types() -> None:
    """An extension that is only in the table would be one that no code reads."""
    structs = [getattr(document, name) for name in document.__all__ if isinstance(getattr(document, name), type)]
    read = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
    assert {name for name in read if name.startswith("x-")} == set(re.findall(r"`(x-aileron-[a-z]+)` \|", PAGE))


def test_the_documented_styles_limits_and_program_are_those_of_the_code() -> None:
    """The page has numbers as people write them."""
    assert [style for style in get_args(document.Style) if f"`{style}`" not in section("Arguments")] == []
    for number in (check.MAX_CHECKS, check.MAX_DEPTH):
        assert f"{number:,}" in section("Schemas")
    assert f"{answer.PAGE_BYTES >> 10} KiB" in section("Answers")
    assert f"{saying.MAX_WORDS} characters" in section("Errors of the service")
    assert f"{saying.MAX_FACTS_BYTES >> 10} KiB" in section("Errors of the service")
    assert PROGRAM in PAGE
