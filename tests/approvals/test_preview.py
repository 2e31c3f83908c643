"""Rendering of a preview: the value at the end of a path, and answers of hostile services."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.approvals.preview import MAX_VALUE_BYTES, rendered
from aileron.model.plan import PlannedPreview
from aileron.model.preview import Preview, PreviewField, shown_digest
from tests.approvals.conftest import step

ANSWER = {
    "message": {
        "headers": [
            {"name": "To", "value": "ann@example.com"},
            {"name": "SUBJECT", "value": "Lunch?"},
            {"name": "Received", "value": "one"},
            {"name": "received", "value": "two"},
            {"name": "Empty"},
        ],
        "parts": [{"body": "first"}, {"body": "second"}],
        "2": "by name",
    },
    "size": 12.5,
    "seen": True,
    "nothing": None,
    "labels": ["a", "é"],
    "note": "two\nlines",
}


def shown(output: Any, path: str) -> str | None:
    """Return the only line of a preview with this path."""
    (line,) = rendered(output, PlannedPreview(step=step(), render=(("A label", path),)))
    return line.value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("note", "two\nlines"),
        ("size", "12.5"),
        ("seen", "true"),
        ("nothing", None),
        ("labels", '["a","é"]'),
        ("labels.1", "é"),
        ("message.2", "by name"),
        ("message.parts.1.body", "second"),
        ("message.parts.0", '{"body":"first"}'),
        ("message.headers.To", "ann@example.com"),
        ("message.headers.subject", "Lunch?"),
        ("message.headers.Received", '["one","two"]'),
        ("message.headers.0.value", "ann@example.com"),
        ("...headers.Subject", "Lunch?"),
        ("...parts.1.body", "second"),
        ("...size", "12.5"),
        ("...body", "first"),
    ],
)
def test_a_preview_path_finds_its_value(path: str, value: str | None) -> None:
    """A path has names, indexes, named pairs, and names at any depth; a value that is not text is shown as JSON."""
    assert shown(ANSWER, path) == value


@pytest.mark.parametrize(
    "path",
    [
        "absent",
        "note.length",
        "labels.2",
        "labels.-1",
        "labels.99999999999999999999",
        "labels.١",
        "message.parts.body",
        "message.headers.Bcc",
        "message.headers.Empty",
        "message.headers.To.more",
        "...absent",
        "...headers.Bcc",
        "",
    ],
)
def test_a_preview_path_without_a_value_is_shown_as_missing(path: str) -> None:
    """The preview's other lines are not affected."""
    preview = PlannedPreview(step=step(), render=(("One", path), ("Two", "size")))

    assert rendered(ANSWER, preview) == [
        PreviewField("One", None, multiline=False),
        PreviewField("Two", "12.5", multiline=False),
    ]


def test_preview_lines_are_in_the_order_of_the_action_file() -> None:
    """Each line has its label, and says whether it is a block of several lines."""
    preview = PlannedPreview(step=step(), render=(("Note", "note"), ("A", "size")), multiline=frozenset({"Note"}))

    assert rendered(ANSWER, preview) == [
        PreviewField("Note", "two\nlines", multiline=True),
        PreviewField("A", "12.5", multiline=False),
    ]


def test_a_preview_path_shows_its_shallowest_match() -> None:
    """The author of a mail can write a `headers` of their own deeper inside, which must not be shown instead."""
    planted = {
        "attached": {"inner": {"headers": [{"name": "To", "value": "you"}]}},
        "message": {"headers": [{"name": "To", "value": "eve"}]},
    }

    assert shown(planted, "...headers.To") == "eve"
    assert shown({"a": {"to": "first"}, "b": {"to": "second"}}, "...to") == "first"
    assert shown({"a": [{"b": {"to": 1}}, {"to": 2}]}, "...to") == "2"


def test_a_preview_shows_all_headers_of_the_same_name() -> None:
    """A mail with two `To` headers has both values."""
    headers = [{"name": "To", "value": "you"}, {"name": "to", "value": "eve"}]

    assert shown({"headers": headers}, "headers.To") == '["you","eve"]'


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_long_preview_value_is_truncated_with_a_mark(character: str) -> None:
    """The cut is at 64 KiB, between two characters, and the mark says how much is missing."""
    whole = character * (MAX_VALUE_BYTES // len(character.encode()))
    longer = shown({"a": whole + "tail"}, "a")

    assert shown({"a": whole}, "a") == whole
    assert longer is not None
    kept, _, mark = longer.rpartition("\n")
    total = len((whole + "tail").encode())
    assert whole.startswith(kept[:-4])
    assert mark == f"(cut here: {total - len(kept.encode())} of {total} bytes are not shown)"
    assert len(kept.encode()) <= MAX_VALUE_BYTES


@pytest.mark.parametrize("value", [["é" * 9, 12345] * 10_000, {"a": ["x" * 300_000]}])
def test_a_long_table_in_a_preview_is_truncated_with_a_mark(value: Any) -> None:
    """The value is serialized no further than it is shown, so how much is missing is not known."""
    text = shown({"a": value}, "a")

    assert text is not None
    kept, _, mark = text.rpartition("\n")
    assert json.dumps(value, ensure_ascii=False, separators=(",", ":")).startswith(kept)
    assert MAX_VALUE_BYTES - 4 < len(kept.encode()) <= MAX_VALUE_BYTES
    assert mark == f"(cut here: the rest after {MAX_VALUE_BYTES} bytes is not shown)"


def test_a_huge_or_deeply_nested_response_can_be_previewed() -> None:
    """The responses have 300,000 values, or 5,000 levels."""
    wide: Any = [{"a": number} for number in range(300_000)]
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]

    assert shown(wide, "...absent") is None
    assert shown({"a": deep}, "a") == "(a value that cannot be shown)"
    assert shown({"a": deep}, "...b") is None


@pytest.mark.parametrize("output", [None, 1, "text", True, [], {}, [[]]])
def test_a_missing_path_is_shown_as_missing_in_a_response_of_any_shape(output: Any) -> None:
    """Every path is missing, and none of them raises."""
    for path in ("a", "0.a", "...a", "...a.b"):
        assert shown(output, path) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "name", "value", "0"]), inner, max_size=4)
    ),
    max_leaves=20,
)
_parts = st.sampled_from(["a", "b", "name", "value", "0", "1"])
_paths = st.builds(
    lambda any_depth, parts: ("..." if any_depth else "") + ".".join(parts),
    st.booleans(),
    st.lists(_parts, min_size=1, max_size=4),
)


@given(_json, st.lists(_paths, min_size=1, max_size=5))
def test_a_preview_of_any_response_has_lines_that_can_be_hashed(output: Any, paths: list[str]) -> None:
    """A decision is bound to the digest, so each path must give one line that JSON can represent."""
    preview = PlannedPreview(step=step(), render=tuple((f"line {number}", path) for number, path in enumerate(paths)))
    lines = rendered(output, preview)

    assert [line.label for line in lines] == [label for label, _ in preview.render]
    assert all(line.value is None or isinstance(line.value, str) for line in lines)
    assert shown_digest(lines).startswith("sha256:")


def test_the_encoding_and_digest_of_a_preview_are_those_of_earlier_versions() -> None:
    """Earlier decisions are over these digests, and the other end can be a process of the previous version."""
    fields = [PreviewField("To", "mira@example.com", multiline=False), PreviewField("Note", None, multiline=True)]
    seen = Preview(fields[:1], None, "2026-11-21T04:00:01Z", "sha256:1")
    failed = Preview(None, "it timed out", "2026-11-21T04:00:01Z")

    assert shown_digest(fields) == "sha256:b81ce891a4a61192e2a219ae334df1541c1a9e93036488123d6416ae48a7b8ea"
    assert msgspec.json.encode(seen) == (
        b'{"fields":[{"label":"To","value":"mira@example.com","multiline":false}],"problem":null,'
        b'"taken_at":"2026-11-21T04:00:01Z","digest":"sha256:1"}'
    )
    assert msgspec.json.encode(failed) == (
        b'{"fields":null,"problem":"it timed out","taken_at":"2026-11-21T04:00:01Z"}'
    )
