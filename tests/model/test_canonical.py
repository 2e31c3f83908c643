"""Canonical JSON has one spelling, whichever encoder wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.canonical import canonical_json

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_KEYS = st.one_of(st.text(st.characters(codec="ascii"), max_size=8), _TEXT)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=20
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(tuple) | st.dictionaries(_KEYS, inner, max_size=5)
    ),
    max_leaves=20,
)
"""Values with tuples, which plans have; they read back as lists."""


@given(_VALUES)
def test_every_value_is_spelled_as_rfc_8785_requires(value: Any) -> None:
    """The fast encoder is only used where it agrees with the reference library, byte for byte."""
    assert canonical_json(value) == rfc8785.dumps(value)


@given(_JSON)
def test_canonical_json_reads_back_as_the_same_value(value: Any) -> None:
    """decode(encode(x)) = x, and encoding that again changes nothing if numbers are read as RFC 8785 does."""
    written = canonical_json(value)
    read = json.loads(written, parse_int=float)

    assert read == value
    assert canonical_json(read) == written


def test_every_latin_1_character_is_escaped_as_rfc_8785_requires() -> None:
    """JSON encoders differ in how they escape control characters. The test has U+0000 to U+00FF in a key and a value."""
    text = "".join(map(chr, range(0x100)))

    assert canonical_json({text[:0x80]: text}) == rfc8785.dumps({text[:0x80]: text})


@pytest.mark.parametrize(
    "value", [2**53, -(2**53), [2**53], {"a": 2**60}, float("nan"), float("inf"), "\ud800", {"\udfff": 1}, {1: 2}, b"x"]
)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    """The encoder does not round, replace or drop them."""
    with pytest.raises(ValueError, match="cannot be written as canonical JSON"):
        canonical_json(value)


def test_deeply_nested_values_are_refused() -> None:
    """Hostile depth raises ValueError and never RecursionError."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(ValueError, match="nested too deeply"):
        canonical_json(value)


def test_digests_equal_those_of_hashlib_and_hashlib_is_not_imported_for_small_values() -> None:
    """Importing hashlib is slow: a fresh interpreter hashes half a MiB without it before it is imported."""
    source = """
import sys
from aileron.model.canonical import sha256_digest
all_data = [bytes(range(256)) * (length // 256) + bytes(length % 256) for length in (0, 1, 63, 64, 4096, 300_000, 300_000, 1)]
print("hashlib" in sys.modules, *map(sha256_digest, all_data[:6]), "hashlib" in sys.modules)
print(*map(sha256_digest, all_data[6:]), "hashlib" in sys.modules)
import hashlib
print(*(f"sha256:{hashlib.sha256(data).hexdigest()}" for data in all_data))
"""

    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30)

    first, then, expected = (line.split(" ") for line in done.stdout.splitlines())
    assert [*first[1:-1], *then[:-1]] == expected
    assert (first[0], first[-1], then[-1]) == ("False", "False", "True")
