"""A `$ref` leads to a value within the named files, or is an error."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.importing.reading import DocumentError, Files
from aileron.importing.references import References

FILES: dict[str, Any] = {
    "api.yaml": {
        "a": {"b/c": 1, "d~e": 2, "f g": 3},
        "to": {"$ref": "#/a"},
        "list": [10, 20],
        "loop": {"$ref": "#/loop"},
    },
    "schemas/pet.yaml": {"name": "pet", "near": {"$ref": "tag.yaml#/name"}, "up": {"$ref": "../api.yaml#/a"}},
    "schemas/tag.yaml": {"name": "tag"},
    "odd #1%20?.yaml": {"a": "odd", "own": {"$ref": "#/a"}},
}


def references() -> References:
    """Return the references of these files."""
    return References(Files("api.yaml", dict(FILES), "sha256:0"))


@pytest.mark.parametrize(
    ("reference", "file", "value"),
    [
        ("#/a/b~1c", "api.yaml", 1),
        ("#/a/d~0e", "api.yaml", 2),
        ("#/a/f%20g", "api.yaml", 3),
        ("#/list/1", "api.yaml", 20),
        ("", "schemas/tag.yaml", FILES["schemas/tag.yaml"]),
        ("#", "schemas/tag.yaml", FILES["schemas/tag.yaml"]),
        ("schemas/pet.yaml#/name", "api.yaml", "pet"),
        ("./schemas/../schemas/pet.yaml#/name", "api.yaml", "pet"),
        ("tag.yaml#/name", "schemas/pet.yaml", "tag"),
        ("../api.yaml#/list/0", "schemas/pet.yaml", 10),
        ("../../../api.yaml#/list/0", "schemas/pet.yaml", 10),
        ("odd%20%231%2520%3F.yaml#/a", "api.yaml", "odd"),
        ("#/a", "odd #1%20?.yaml", "odd"),
    ],
)
def test_a_json_reference_is_resolved_to_its_value(reference: str, file: str, value: Any) -> None:
    """RFC 6901 (JSON Pointer) and RFC 3986 (URIs) define how."""
    assert references().lookup(reference, file).value == value


def test_references_are_followed_from_file_to_file() -> None:
    """Each reference is relative to its own file."""
    there = references()

    assert there.resolved({"$ref": "schemas/pet.yaml#/near"}, "api.yaml").value == "tag"
    assert there.resolved({"$ref": "schemas/pet.yaml#/up"}, "api.yaml").value == FILES["api.yaml"]["a"]
    assert (
        there.resolved({"$ref": "#/to"}, "api.yaml").at
        == there.resolved({"$ref": "../api.yaml#/a"}, "schemas/pet.yaml").at
    )


@pytest.mark.parametrize("reference", ["schemas/tag.yaml#/name", "https://document.invalid/schemas/tag.yaml#/name"])
def test_a_value_has_one_address_however_it_is_referred_to(reference: str) -> None:
    """The reference may be relative, or a full address."""
    assert references().lookup(reference, "api.yaml").at == references().lookup("#/name", "schemas/tag.yaml").at


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("file:///etc/passwd", "nothing is fetched"),
        ("https://evil.example/x", "nothing is fetched"),
        ("gopher://evil.example/x", "nothing is fetched"),
        ("//evil.example/x", "nothing is fetched"),
        ("data:,x", "nothing is fetched"),
        ("/etc/passwd", "which was not named"),
        ("../../../etc/passwd", "which was not named"),
        ("%00", "which was not named"),
        ("other.yaml", "which was not named"),
        ("?x", "which was not named"),
        ("#/nowhere", "leads nowhere"),
        ("#/list/2", "leads nowhere"),
        ("#/list/99999999999999999999", "leads nowhere"),
        ("#/list/x", "cannot be followed"),
        ("#anchor", "leads nowhere"),
        ("#/" + "a/" * 50_000, "leads nowhere"),
        ("http://[", "cannot be followed"),
        ("//[", "cannot be followed"),
    ],
)
def test_a_reference_to_a_file_that_was_not_given_is_an_error(reference: str, words: str) -> None:
    """The message is short."""
    with pytest.raises(DocumentError, match=words) as told:
        references().lookup(reference, "api.yaml")

    assert len(str(told.value)) < 600


def test_a_circular_reference_is_an_error() -> None:
    """The lookup does not loop forever; `maybe` returns an empty object instead."""
    with pytest.raises(DocumentError, match="in a circle"):
        references().resolved({"$ref": "#/loop"}, "api.yaml")
    assert references().maybe({"$ref": "#/loop"}, "api.yaml") == {}


@pytest.mark.parametrize("value", [1, "x", None, [], {"$ref": 1}, {"$ref": None}, {"$ref": ["#/a"]}])
def test_resolving_a_value_that_is_no_reference_returns_it_unchanged(value: Any) -> None:
    """The value may have any type."""
    assert references().resolved(value, "api.yaml").value == value
