"""Text as a person sees it: invisible characters are spelled out, and emoji of several characters are shown."""

from __future__ import annotations

import pytest

from aileron.model.visible import visible, visible_json, visible_lines

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
SCOTLAND = "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct\x7f")
IGNORABLE = (
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
)
"""Default_Ignorable_Code_Point, of DerivedCoreProperties.txt 17.0."""
BLANK = (0x2800, 0x11D45, 0x11D97, 0x16FE4, 0x1D159)
"""Characters that every measured font, or their code chart, draws as nothing."""


def test_invisible_characters_are_spelled_out() -> None:
    """This holds for every category, in one line, in several lines, and in JSON."""
    for code in (*IGNORABLE, *BLANK):
        escape = rf"\x{code:02x}" if code < 0x100 else rf"\u{code:04x}" if code < 0x10000 else rf"\U{code:08x}"
        assert visible(f"pay{chr(code)}1") == f"pay{escape}1"
        assert visible_lines(f"pay{chr(code)}1") == [f"pay{escape}1"]
        assert chr(code) not in visible_json(f'"{chr(code)}"')


@pytest.mark.parametrize(
    "emoji",
    [
        FAMILY,
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",  # a woman at a computer, with a skin tone
        "\U0001f469\u200d\u2764\ufe0f\u200d\U0001f48b\u200d\U0001f468",  # a kiss
        "\U0001f9d1\U0001f3fb\u200d\U0001f91d\u200d\U0001f9d1\U0001f3ff",  # two people holding hands
        "\U0001f937\U0001f3fd\u200d\u2640\ufe0f",
        "\U0001f642\u200d\u2194\ufe0f",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\U0001f3f4\u200d\u2620\ufe0f",
        SCOTLAND,
        "\U0001f1e9\U0001f1ea",
        "1\ufe0f\u20e3",
        "\u2764\ufe0f",
        "\u260e\ufe0e",
        "\u00a9\ufe0f",
        "\U0001f44d\U0001f3ff",
    ],
    ids=ascii,
)
def test_a_valid_emoji_sequence_is_shown_unescaped(emoji: str) -> None:
    """Families, flags, skin tones, keycaps, and signs with a style are shown unescaped."""
    assert visible(f"Lunch {emoji}{emoji}!") == f"Lunch {emoji}{emoji}!"
    assert visible_lines(f"one\n{emoji}") == ["one", emoji]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200db", r"a\u200db"),
        ("\U0001f468\u200d", "\U0001f468\\u200d"),
        ("\u200d\U0001f468", "\\u200d\U0001f468"),
        ("\U0001f468\u200d\u200d\U0001f469", "\U0001f468\\u200d\\u200d\U0001f469"),
        ("\U0001f468\u200dx", "\U0001f468\\u200dx"),
        ("1\u200d\U0001f468", "1\\u200d\U0001f468"),
        ("\u00a9\u200d\u00ae", "\u00a9\\u200d\u00ae"),
        (FAMILY + "\u200d\U0001f466" * 2, FAMILY + "\u200d\U0001f466\\u200d\U0001f466"),
        ("x\ufe0f", r"x\ufe0f"),
        ("1\ufe0f", r"1\ufe0f"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f"),
        ("\U0001f3f4\U000e0061\U000e007f", "\U0001f3f4\\U000e0061\\U000e007f"),
        ("\U0001f44d" + SCOTLAND[1:], "\U0001f44d" + "".join(rf"\U{ord(tag):08x}" for tag in SCOTLAND[1:])),
    ],
    ids=ascii,
)
def test_emoji_control_characters_outside_of_an_emoji_are_shown_escaped(text: str, shown: str) -> None:
    """The cases are a joiner that joins nothing, a style of a letter, and tags that are no region."""
    assert visible(text) == shown
