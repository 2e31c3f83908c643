"""The width of a text is never below what the system's terminal library, wcwidth(3), says of every character."""

from __future__ import annotations

import ctypes
import locale
import sys
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cli import output
from aileron.model.text_width import narrowed, text_width, widened
from aileron.model.visible import BAR, visible

_LIBRARY = ctypes.CDLL(None)
WIDE = "日本語テキスト☁\ufe0f🏖\ufe0fस\u0903한\u302e"
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(WIDE), st.just(" ")), max_size=300)


@pytest.fixture(scope="module", autouse=True)
def _utf8() -> Iterator[None]:
    """Set a UTF-8 locale: in the C locale, wcwidth(3) knows no character outside of ASCII."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


def in_terminal(text: str) -> int:
    """Return the text's terminal cells as the C library counts them; an unknown character counts none."""
    return sum(max(_LIBRARY.wcwidth(ctypes.c_wchar(char)), 0) for char in text)


def test_no_character_is_wider_in_a_terminal_than_aileron_computes() -> None:
    """The test covers every character that is shown unescaped."""
    shown = (char for code in range(sys.maxunicode + 1) if (char := chr(code)) == visible(char))

    assert [f"U+{ord(char):04X}" for char in shown if in_terminal(char) > text_width(char)] == []


def test_every_wide_character_of_the_interpreters_unicode_version_counts_as_two_columns() -> None:
    """Characters that newer versions of Unicode widened are wide with an older interpreter too."""
    assigned = (
        char for code in range(0x80, sys.maxunicode + 1) if unicodedata.category(char := chr(code)) not in ("Cn", "Co")
    )
    wide = [char for char in assigned if unicodedata.east_asian_width(char) in ("W", "F")]

    assert len(wide) > 100_000
    assert [f"U+{ord(char):04X}" for char in wide if text_width(char) < 2] == []
    assert [text_width(char) for char in "\u2630\u268a\u4dc0\U0001d300"] == [2] * 4, "wide since Unicode 16.0"
    assert [text_width(char) for char in "a\u0301é☁\u262f\u2638\U0001f322"] == [1] * 7


@given(TEXTS, st.integers(0, 30))
def test_no_folded_line_is_wrapped_by_the_terminal(text: str, indent: int) -> None:
    """A wrapped rest at the left margin could imitate a line of Aileron's. Folding loses no character."""
    said = f"{BAR}{visible(text)}"
    lines = output.folded(said, indent)

    if not said.removeprefix(BAR).isascii():
        assert all(indent + in_terminal(line) <= 80 for line in lines)
    assert "".join("".join(lines).replace(BAR, "").split()) == "".join(said.removeprefix(BAR).replace(BAR, "").split())


@given(TEXTS)
def test_a_text_padded_for_wide_characters_has_as_many_characters_as_columns(text: str) -> None:
    """Removing the padding characters gives back the text."""
    shown = visible(text)

    assert len(widened(shown)) == text_width(shown)
    assert narrowed(widened(shown)) == shown
