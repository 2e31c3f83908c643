"""Two texts made into one: what both changed is said, and no text takes long."""

from __future__ import annotations

from aileron.actions.merging import difference, merged


def test_what_one_side_changed_is_taken() -> None:
    """Where mine is the old text, or theirs is, there is nothing to compare."""
    assert merged("a\n", "a\n", "b\n") == ("b\n", 0)
    assert merged("a\n", "b\n", "a\n") == ("b\n", 0)
    assert merged("a\n", "b\n", "b\n") == ("b\n", 0)


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
