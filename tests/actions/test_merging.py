"""Three-way merges of texts: changes on both sides are reported, and no text takes long."""

from __future__ import annotations

import pytest

from aileron.actions.merging import difference, merged, merged_closely


def test_a_change_on_only_one_side_is_the_result_of_the_merge() -> None:
    """A side that equals the old text has no changes, so the other side is the result."""
    assert merged("a\n", "a\n", "b\n") == ("b\n", 0)
    assert merged("a\n", "b\n", "a\n") == ("b\n", 0)
    assert merged("a\n", "b\n", "b\n") == ("b\n", 0)


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ("a label b c", "a B c", "a label B c"),
        ("a b label c", "a B c", "a B label c"),
        ("a c", "a b C", "a C"),
        ("A b c", "a B c", "A B c"),
        ("A b c", "A B c", None),
        ("a", "A b c", "A"),
        ("a label b c", "a b C", "a label b C"),
        ("a 1 b c", "a 2 b c", None),
        ("a c", "a B c", None),
        ("a 1 c", "a b 2 C", "a 1 2 C"),
        ("A 1 b c", "2 b c", None),
    ],
)
def test_adjacent_changes_are_merged_if_each_line_is_independent(mine: str, theirs: str, both: str | None) -> None:
    """An author's label and the changed description below it are separate facts of an action file."""
    sides = ("".join(f"{word}\n" for word in text.split()) for text in ("a b c", mine, theirs))
    done = merged_closely(*sides)

    assert (" ".join(done.text.split()) if not done.conflicts else None) == both


def test_adjacent_changes_in_prose_are_a_conflict() -> None:
    """Prose is merged as version control systems do."""
    assert merged("a\nb\n", "A\nb\n", "a\nB\n").conflicts == 1
    assert merged_closely("a\nb\n", "A\nb\n", "a\nB\n") == ("A\nB\n", 0)


def test_two_very_long_texts_are_merged_as_one_conflict() -> None:
    """A line-by-line comparison could take minutes, so both texts are kept whole for a person to choose."""
    base, mine, theirs = ("".join(f"{name}{number}\n" for number in range(4000)) for name in "bmt")

    text, conflicts = merged(base, mine, theirs)

    assert conflicts == 1
    assert mine in text
    assert theirs in text
    assert merged(base, base, theirs) == (theirs, 0)


def test_the_difference_of_very_long_texts_is_complete() -> None:
    """The difference has every line of both texts, and is empty if nothing changes."""
    was, would_be = ("".join(f"{name}{number}\n" for number in range(4000)) for name in "ab")

    told = difference(was, would_be, names=("here", "there"))

    assert told.startswith("--- here\n+++ there\n")
    assert all(f"-a{number}\n" in told and f"+b{number}\n" in told for number in (0, 1999, 3999))
    assert difference(was, was, names=("here", "there")) == ""
