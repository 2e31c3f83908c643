"""The place in a value of what JSON cannot carry."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aileron.model.misfit import misfit_in


@pytest.mark.parametrize(
    ("value", "is_canonical", "words"),
    [
        ({"a": [1, {"b": math.inf}]}, False, "a[1].b is no number"),
        ([math.nan], False, "[0] is no number"),
        ({"a": "s3cret\ud83d"}, False, "a has half of a character"),
        ({"a": {"s\ude00": 1}}, False, "a has a key with half of a character"),
        ("\ud83d", False, "the value has half of a character"),
        ({"a\x1b[31m": math.inf}, False, r"a\x1b[31m is no number"),
        ({"a": 10**20}, True, "a is an integer of 2**53 or more"),
        ({"a": 10**20}, False, None),
        ({"a": [True, None, 1.5, 2**53 - 1, "\U0001f600"]}, True, None),
    ],
)
def test_the_path_to_a_value_that_json_cannot_represent_is_reported_without_the_value(
    value: Any, is_canonical: bool, words: str | None
) -> None:
    """The path can be shown on a terminal. There is none if JSON can represent the whole value."""
    found = misfit_in(value, is_canonical=is_canonical)
    assert (found is None) is (words is None)
    assert (words or "") in (found or "")
    assert "s3cret" not in (found or "")
