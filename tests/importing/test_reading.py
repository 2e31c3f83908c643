"""The named files become plain values, within bounds, whatever is in them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from aileron.importing.reading import MAX_BYTES, MAX_FILES, DocumentError, read, read_all

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(value=VALUES)
def test_any_json_is_read_unchanged(value: Any) -> None:
    """A string with JSON in a YAML file stays a string."""
    text = json.dumps({"a": value})

    assert read(text.encode(), "a.json") == {"a": value}
    assert read(yaml.safe_dump({"a": text}).encode(), "a.yaml") == {"a": text}


@given(data=st.binary(max_size=200) | st.text(alphabet="{}[]:,-?&*!|>'\"%@<#ab1 \n\t~.").map(str.encode))
def test_any_bytes_are_read_as_a_document_or_refused(data: bytes) -> None:
    """DocumentError is the only exception."""
    with contextlib.suppress(DocumentError):
        read(data, "a")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 2024-01-01", "2024-01-01"),
        ("a: 0o17", "0o17"),
        ("a: 0x1f", "0x1f"),
        ("a: 1_000", "1_000"),
        ("a: .inf", ".inf"),
        ("a: .nan", ".nan"),
        ("a: 12", 12),
        ("a: -1.5e3", -1500.0),
        ("a: True", True),
        ("a: ~", None),
        ("a:", None),
        ("a: '12'", "12"),
        ("a: !!str 12", "12"),
        ("a: !!int 12", 12),
        ("a: ! 12", "12"),
        ("a: !!seq [1]", [1]),
        ("a: |\n  b\n  c\n", "b\nc\n"),
        ("x: &x [1]\na: *x", [1]),
        ("x: &x {b: 1, c: 2}\na: {<<: *x, c: 3}", {"b": 1, "c": 3}),
        ("x: &x {b: 1}\ny: &y {b: 2, c: 2}\na: {<<: [*x, *y]}", {"b": 1, "c": 2}),
        ('a: {"<<": 1}', {"<<": 1}),
        ("x: &x 200\na: {*x : 1}", {"200": 1}),
        ("a: {200: 1, true: 2, null: 3}", {"200": 1, "true": 2, "null": 3}),
    ],
)
def test_yaml_is_read_with_the_types_of_json(text: str, value: Any) -> None:
    """The rules are those of YAML 1.2, and keys are strings."""
    assert read(text.encode(), "a.yaml")["a"] == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: !!python/object/apply:os.system [ls]", "line 1: tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
        ("%TAG ! !!python/\n--- !object x", "line 2: tag '!!python/object'"),
        ("a: !!binary aGk=", "tag"),
        ("a: !!set {b}", "tag"),
        ("a: !!int abc", "tag"),
        ("a: !!int [1]", "tag"),
        ("a: !!bool {b: 1}", "tag"),
        ("a: !!map x", "tag"),
        ("a: !own x", "tag '!own'"),
        ("? [1]\n: 2", "a key that is no string"),
        ("? {b: 1}\n: 2", "a key that is no string"),
        ("a: *b", "an alias of nothing"),
        ("--- a\n--- b", "a second document"),
        ("a: {<<: 1}", "only objects can be merged"),
        ("a: {<<: [1]}", "only objects can be merged"),
        ("a: &a [*a]", "nested deeper than 200 levels"),
        ("a: &a {b: *a, <<: *a}", "nested deeper than 200 levels"),
        ("a: " + "[" * 300 + "]" * 300, "nested deeper than 200 levels"),
        ("- " * 300 + "a", "nested deeper than 200 levels"),
        ("- " * 5000 + "a", "nest"),
        ("a: 1e400", "a number that is too large"),
        ("a: " + "9" * 401, "a number of 401 digits"),
        ('a: "\\ud800"', "not YAML"),
        ("a: \0", "not YAML"),
        ("a: [", "not YAML"),
        ('{"a": 1e400}', "a number that is too large"),
        ('{"a": 1', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested deeper than 200 levels"),
    ],
)
def test_unsupported_syntax_is_refused(text: str, words: str) -> None:
    """The message has the line, if there is one."""
    with pytest.raises(DocumentError, match=words.replace("[", r"\[").replace("'", ".").replace("(", ".")):
        read(text.encode(), "a.yaml")


def test_a_document_that_is_not_utf_8_is_refused() -> None:
    """A byte order mark is allowed."""
    assert read(b'\xef\xbb\xbf{"a": 1}', "a.json") == {"a": 1}
    with pytest.raises(DocumentError, match="not UTF-8"):
        read('{"a": 1}'.encode("utf-16"), "a.json")


def _bomb(line: str) -> bytes:
    return "".join(["x0: &a0 {k: v}\n", *(line.format(n=n, m=n - 1) for n in range(1, 30))]).encode()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_bomb("x{n}: &a{n} [*a{m}, *a{m}, *a{m}, *a{m}]\n"), id="aliases of aliases"),
        pytest.param(
            b"a: &a {" + b", ".join(b"k%d: 1" % n for n in range(5000)) + b"}\nb:\n" + b"- <<: *a\n" * 500, id="merges"
        ),
    ],
)
@pytest.mark.computes_for(20)
def test_the_number_of_yaml_values_is_bounded_after_aliases_are_expanded(data: bytes) -> None:
    """A page of YAML with aliases can expand to more than a disk holds."""
    with pytest.raises(DocumentError, match=r"more than [0-9]+ values"):
        read(data, "a.yaml")


def test_nested_yaml_merges_expand_each_key_once() -> None:
    """Expanding them naively would take exponential time."""
    assert read(_bomb("x{n}: &a{n} {{b{n}: 1, <<: [*a{m}, *a{m}, *a{m}, *a{m}]}}\n"), "a.yaml")["x29"]["k"] == "v"


@pytest.mark.computes_for(5)
def test_a_large_file_that_is_nearly_json_is_not_read_as_yaml() -> None:
    """Parsing it as YAML would take 20 seconds, so the JSON error is reported instead."""
    with pytest.raises(DocumentError, match="not JSON"):
        read(b'{"a": [' + b'{"b": "c"}, ' * 500_000, "a.json")


def test_the_number_of_files_and_the_sum_of_their_bytes_are_bounded() -> None:
    """The bounds are on their number, and on the sum of their bytes."""
    assert read_all("0", {str(n): b"1" for n in range(MAX_FILES)}).document == 1
    with pytest.raises(DocumentError, match="files; at most"):
        read_all("0", {str(n): b"1" for n in range(MAX_FILES + 1)})
    with pytest.raises(DocumentError, match="bytes; at most"):
        read_all("0", {"0": b" " * (MAX_BYTES // 2), "1": b" " * (MAX_BYTES // 2 + 1)})


def test_the_digest_of_a_document_covers_all_its_files() -> None:
    """A single file's digest is its own SHA-256; of several files, a change to any of them changes it."""
    single = read_all("a", {"a": b"1"}).digest
    both = read_all("a", {"a": b"1", "b": b"2"}).digest

    assert single == "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    assert (
        len({single, both, read_all("a", {"a": b"1", "b": b"3"}).digest, read_all("a", {"a": b"1", "c": b"2"}).digest})
        == 4
    )


def test_a_file_name_that_is_not_utf_8_is_hashed() -> None:
    """A folder may have such a name."""
    assert read_all("a", {"a": b"1", "\udcff.yaml": b"2"}).digest.startswith("sha256:")
