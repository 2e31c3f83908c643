"""Two texts made into one: what both changed is said, and no text takes long."""

from __future__ import annotations

import pytest

from aileron.actions.merging import difference, merged, merged_closely


def test_what_one_side_changed_is_taken() -> None:
    """Where mine is the old text, or theirs is, there is nothing to compare."""
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
def test_changes_beside_each_other_are_both_taken_where_a_line_is_a_fact(
    mine: str, theirs: str, both: str | None
) -> None:
    """Whoever put a label above a description meant the label, whatever the description is now. Otherwise it is a conflict."""
    sides = ("".join(f"{word}\n" for word in text.split()) for text in ("a b c", mine, theirs))
    done = merged_closely(*sides)

    assert (" ".join(done.text.split()) if not done.conflicts else None) == both


def test_a_sentence_that_goes_on_is_changed_by_one_side_only() -> None:
    """In a text that somebody wrote, changes beside each other are a conflict, as for everybody's version control."""
    assert merged("a\nb\n", "A\nb\n", "a\nB\n").conflicts == 1
    assert merged_closely("a\nb\n", "A\nb\n", "a\nB\n") == ("A\nB\n", 0)


def test_very_long_texts_are_one_conflict() -> None:
    """Line by line they could take minutes; both are there whole, for a person to choose."""
    base, mine, theirs = ("".join(f"{name}{number}\n" for number in range(4000)) for name in "bmt")

    text, conflicts = merged(base, mine, theirs)

    assert conflicts == 1
    assert mine in text
    assert theirs in text
    assert merged(base, base, theirs) == (theirs, 0)


def test_the_difference_of_very_long_texts_leaves_nothing_out() -> None:
    """Every line of both, and none where nothing changes."""
    was, would_be = ("".join(f"{name}{number}\n" for number in range(4000)) for name in "ab")

    told = difference(was, would_be, names=("here", "there"))

    assert told.startswith("--- here\n+++ there\n")
    assert all(f"-a{number}\n" in told and f"+b{number}\n" in told for number in (0, 1999, 3999))
    assert difference(was, was, names=("here", "there")) == ""
