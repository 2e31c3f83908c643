"""The summary of an action file: which texts are valid, and that a valid one comes back as it was written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aileron.actions.manifest import parse_action
from aileron.actions.summary import MAX_SUMMARY, Place, Words, is_same_name, template_of
from aileron.model.failure import AileronError
from aileron.model.manifest import Effect

Text = Callable[..., str]

PREVIEW = (
    ('["send_email"]', '["send_email", "get_draft"]'),
    (
        'expires_in = "10m"\n',
        'expires_in = "10m"\n\n[approval.preview]\nop = "get_draft"\n\n[approval.preview.render]\n"In reply to" = "a.b"\n',
    ),
)


def summary(text: str) -> tuple[str, str]:
    """Return a replacement in the fixture's file that gives it a summary."""
    return ("[[requires", f"summary = '{text}'\n\n[[requires")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Send {to", "unmatched '{' at character 6"),
        ("Send to}", "unmatched '}' at character 8"),
        ("Send {}", "'{' at character 6"),
        ("Send [to {a[b]}]", "'{' at character 10"),
        ("Send [to [{to}]]", "'[' at character 10"),
        ("Send ]", "']' at character 6"),
        ("Send [to {to}", "'[' without ']'"),
        ("Send [now]", "without a {NAME} is never left out"),
        ("Send “{to}”", "“ is not allowed in a summary"),
        ("Send {count}", "input 'count' is optional: put its part in brackets, as in [ to {count}]"),
        ("Send {cc}", "{cc} is not an input or a label of the preview: to, count"),
        ("x" * 121, "121"),
    ],
)
def test_an_invalid_summary_is_refused_with_its_line(action_text: Text, text: str, reason: str) -> None:
    """A valid summary is the positive control of each case."""
    assert parse_action(action_text(summary("Send to {to}[, {count} times]")), file="a.md").summary is not None

    with pytest.raises(AileronError, match=r"a\.md:6: .*summary") as refused:
        parse_action(action_text(summary(text)), file="a.md")
    assert reason in str(refused.value)


def test_a_preview_label_in_a_summary_matches_regardless_of_case_spaces_and_dashes(action_text: Text) -> None:
    """Case, spaces, `_` and `-` are ignored. Without a preview, no label has that name."""
    for name in ("In reply to", "in_reply_to", "IN-REPLY-TO"):
        text = f"Answer {{{name}}}"
        assert parse_action(action_text(*PREVIEW, summary(text)), file="a.md").summary == text
        assert is_same_name(name, "In reply to")
        with pytest.raises(AileronError, match="is not an input or a label"):
            parse_action(action_text(summary(text)), file="a.md")


def test_an_optional_argument_needs_no_brackets_if_the_preview_supplies_its_value(action_text: Text) -> None:
    """The preview supplies the value, and the card says if it was not loaded."""
    named = ('"In reply to" = "a.b"', '"count" = "a.b"')
    assert parse_action(action_text(*PREVIEW, named, summary("Send {count}")), file="a.md").summary == "Send {count}"


@pytest.mark.parametrize(
    ("lines", "does"),
    [
        ("", None),
        ("idempotent = true\n", Effect.READ),
        ('effect = "pay"\n', Effect.PAY),
        ('idempotent = true\neffect = "change"\n', Effect.CHANGE),
    ],
)
def test_the_effect_of_a_step_comes_from_the_file(action_text: Text, lines: str, does: Effect | None) -> None:
    """A repeatable step counts as a read if the file states no effect, and any other step as unknown."""
    step = parse_action(action_text(("idempotent = false\n", lines)), file="a.md").steps[0]

    assert step.does is does


def test_an_unknown_effect_is_refused(action_text: Text) -> None:
    """The message names the nearest one."""
    with pytest.raises(AileronError, match=r"effect 'deletes' is not one of read, create, .*; did you mean 'delete'\?"):
        parse_action(action_text(("idempotent = false\n", 'effect = "deletes"\n')), file="a.md")


WORDS = st.text(st.characters(exclude_characters='{}[]"“”„«»', exclude_categories=["Cs"]), min_size=1, max_size=8)
NAMES = WORDS.map(str.strip).filter(bool)
GROUPS = st.lists(st.one_of(WORDS, NAMES.map(lambda name: f"{{{name}}}")), max_size=3).map("".join)


@given(st.lists(st.one_of(WORDS, NAMES.map(lambda name: f"{{{name}}}"), st.tuples(GROUPS, NAMES)), max_size=6))
def test_the_parts_of_a_summary_join_to_its_text(pieces: list[str | tuple[str, str]]) -> None:
    """Written out again, the parts are the text."""
    text = "".join(piece if isinstance(piece, str) else f"[{piece[0]}{{{piece[1]}}}]" for piece in pieces)
    assume(len(text) <= MAX_SUMMARY)

    written, last = "", None
    for part in (*template_of(text), None):
        group = None if part is None else part.group
        if group != last:
            written += ("]" if last is not None else "") + ("[" if group is not None else "")
        last = group
        written += "" if part is None else part.text if isinstance(part, Words) else f"{{{part.name}}}"
    assert written == text
    assert all(isinstance(part, Words | Place) for part in template_of(text))


@given(st.text('{}[]ab "“', max_size=12))
def test_any_summary_is_parsed_or_refused(text: str) -> None:
    """A refusal is a ValueError, and nothing else."""
    with contextlib.suppress(ValueError):
        assert all(part.group is None or part.group > 0 for part in template_of(text))
