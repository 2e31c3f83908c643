"""What a person sees of a preview: where a path leads, and what hostile answers do."""

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
    """The one line of a preview with this path."""
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
def test_a_path_leads_to_a_value(path: str, value: str | None) -> None:
    """Names, indexes, named pairs, and names at any depth; what is no text as JSON."""
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
def test_a_path_that_leads_nowhere_is_missing(path: str) -> None:
    """And no other line is hurt by it."""
    preview = PlannedPreview(step=step(), render=(("One", path), ("Two", "size")))

    assert rendered(ANSWER, preview) == [
        PreviewField("One", None, multiline=False),
        PreviewField("Two", "12.5", multiline=False),
    ]


def test_lines_come_in_the_order_of_the_file() -> None:
    """With their labels, and which are blocks."""
    preview = PlannedPreview(step=step(), render=(("Note", "note"), ("A", "size")), multiline=frozenset({"Note"}))

    assert rendered(ANSWER, preview) == [
        PreviewField("Note", "two\nlines", multiline=True),
        PreviewField("A", "12.5", multiline=False),
    ]


def test_what_is_nested_deep_does_not_stand_before_what_is_not() -> None:
    """Whoever wrote the mail may write a `headers` into it; the one nearest to the top is shown, whatever comes first."""
    planted = {
        "attached": {"inner": {"headers": [{"name": "To", "value": "you"}]}},
        "message": {"headers": [{"name": "To", "value": "eve"}]},
    }

    assert shown(planted, "...headers.To") == "eve"
    assert shown({"a": {"to": "first"}, "b": {"to": "second"}}, "...to") == "first"
    assert shown({"a": [{"b": {"to": 1}}, {"to": 2}]}, "...to") == "2"


def test_a_second_header_of_one_name_is_not_hidden() -> None:
    """A mail with two `To`: both are shown."""
    headers = [{"name": "To", "value": "you"}, {"name": "to", "value": "eve"}]

    assert shown({"headers": headers}, "headers.To") == '["you","eve"]'


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_long_value_is_cut_with_a_mark(character: str) -> None:
    """At 64 KiB, between two characters, and it says how much is missing."""
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
def test_a_long_table_is_cut_with_a_mark(value: Any) -> None:
    """It is spelled no further than it is shown, so how much is missing is not known."""
    text = shown({"a": value}, "a")

    assert text is not None
    kept, _, mark = text.rpartition("\n")
    assert json.dumps(value, ensure_ascii=False, separators=(",", ":")).startswith(kept)
    assert MAX_VALUE_BYTES - 4 < len(kept.encode()) <= MAX_VALUE_BYTES
    assert mark == f"(cut here: the rest after {MAX_VALUE_BYTES} bytes is not shown)"


def test_an_answer_made_to_be_slow_or_deep_is_shown_as_missing() -> None:
    """A million values, and a thousand levels."""
    wide: Any = [{"a": number} for number in range(300_000)]
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]

    assert shown(wide, "...absent") is None
    assert shown({"a": deep}, "a") == "(a value that cannot be shown)"
    assert shown({"a": deep}, "...b") is None


@pytest.mark.parametrize("output", [None, 1, "text", True, [], {}, [[]]])
def test_an_answer_of_any_shape_is_looked_into(output: Any) -> None:
    """Nothing is there, and nothing breaks."""
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
def test_any_answer_gives_text_that_has_a_digest(output: Any, paths: list[str]) -> None:
    """One line for each path, text or missing, which JSON can say: a decision is bound to it."""
    preview = PlannedPreview(step=step(), render=tuple((f"line {number}", path) for number, path in enumerate(paths)))
    lines = rendered(output, preview)

    assert [line.label for line in lines] == [label for label, _ in preview.render]
    assert all(line.value is None or isinstance(line.value, str) for line in lines)
    assert shown_digest(lines).startswith("sha256:")


def test_what_a_preview_is_on_the_wire_and_under_a_signature_stays_the_same() -> None:
    """Decisions of before are over these digests, and the other end may be another process of the version before."""
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
