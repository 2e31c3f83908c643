"""Slack's text format: outgoing text stays plain, incoming text becomes readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.libraries import module_of

MARKUP = module_of("slack", "markup")
TEXTS = st.text() | st.lists(
    st.sampled_from(["<", ">", "&", "|", "!", "@", "#", "&amp;", "&lt;", "channel", "U1", "https://x.example/", " "])
).map("".join)


@given(TEXTS)
def test_escaped_text_is_converted_back_unchanged(text: str) -> None:
    """The text may have entities and brackets; the escaped text has nothing that Slack would act on."""
    escaped = MARKUP.escaped(text)

    assert MARKUP.plain(escaped) == text
    assert not set("<>") & set(escaped)
    assert MARKUP.escaped(text + text) == escaped + escaped


@given(TEXTS)
def test_any_slack_text_is_converted_without_an_exception(text: str) -> None:
    """The converted text is never much longer than the original."""
    assert len(MARKUP.plain(text)) <= 2 * len(text) + 8


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!channel> and <!here|come later>", "@channel and @here"),
        ("<@U024BE7LH>", "@U024BE7LH"),
        ("<@U024BE7LH|the boss>", "@the boss (U024BE7LH)"),
        ("<#C024BE7LR|general>", "#general (C024BE7LR)"),
        ("<!subteam^S012|@team> <!subteam^S012>", "@team (S012) @subteam^S012"),
        ("<!date^1392734382^{date}|a day in 2014>", "a day in 2014"),
        ("<https://x.example/>", "https://x.example/"),
        ("<https://x.example/|https://x.example/>", "https://x.example/"),
        (
            "<https://evil.example/?a=1&amp;b=2|https://good.example/>",
            "https://good.example/ <https://evil.example/?a=1&b=2>",
        ),
        ("<mailto:a@b.example|a@b.example>", "a@b.example <mailto:a@b.example>"),
        ("&amp;lt; is &lt;", "&lt; is <"),
        ("1 < 2 and <> and <", "1 < 2 and <> and <"),
        ("<a <b>", "<a b"),
    ],
)
def test_both_parts_of_a_mention_or_link_are_shown(text: str, shown: str) -> None:
    """A mention shows whom it names and as what; a link shows where it leads and its label."""
    assert MARKUP.plain(text) == shown


def test_converting_slack_text_takes_linear_time() -> None:
    """A text with a hundred thousand brackets, which anybody can post, is converted at once."""
    for text in ("<" * 100_000, "<a|" * 50_000, "&amp" * 50_000, "<" + "|" * 100_000 + ">"):
        assert len(MARKUP.plain(text)) <= 2 * len(text)
