"""Reading JSON of an unknown shape: a reader returns the type that it names, or says that the value has another."""

from __future__ import annotations

import msgspec
import pytest

from aileron.model.json_value import (
    JSON,
    JSONMembers,
    JSONObject,
    checked_dict,
    checked_int,
    checked_text,
    maybe_text,
)


class Held(msgspec.Struct):
    """A message whose parts have no closed shape."""

    value: JSON
    whole: JSONObject
    passed_on: JSONMembers = {}


def test_a_field_of_arbitrary_json_is_decoded_unchanged() -> None:
    """The recursive JSON types exist only for the type checker; decoding neither checks nor copies the value."""
    whole = {"a": [1, {"b": None}], "c": 1.5}
    held = msgspec.json.decode(msgspec.json.encode({"value": [whole], "whole": whole, "passed_on": whole}), type=Held)

    assert (held.value, held.whole, held.passed_on) == ([whole], whole, whole)
    assert msgspec.json.schema(Held)["$defs"]["Held"]["properties"]["value"] == {}


def test_a_value_of_another_type_is_refused_without_being_quoted() -> None:
    """The error has the type only, since a value can be a secret."""
    for value in ("text", None, True, 1.0, [1]):
        with pytest.raises(TypeError, match=f"^{type(value).__name__} instead of a whole number$"):
            checked_int(value)
    for other in (7, None, b"text", ["text"]):
        with pytest.raises(TypeError, match=f"^{type(other).__name__} instead of a text$"):
            checked_text(other)
    with pytest.raises(TypeError, match=r"^list instead of an object$"):
        checked_dict([{}])

    assert (checked_int(7), checked_text("text"), checked_dict({"a": 1})) == (7, "text", {"a": 1})


def test_an_optional_text_that_is_not_a_string_is_treated_as_missing() -> None:
    """An optional text of another type is treated like a missing one."""
    assert [maybe_text(value) for value in ("", "text", 7, None, ["text"])] == ["", "text", None, None, None]
