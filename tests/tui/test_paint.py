"""How a sheet is laid out in rows: which names stand beside what is said of them."""

from __future__ import annotations

import pytest

from aileron.review.sheet import Fact, Line, Section
from aileron.tui.paint import body_rows


def rows(width: int, *names: str) -> list[str]:
    """The rows of a section whose facts have these names."""
    section = Section("arguments", tuple(Fact(name, (Line("a value"),)) for name in names))
    return [row.plain.rstrip() for row in body_rows([section], width, is_whole=True)[0] if row.plain.strip()][1:]


@pytest.mark.parametrize(
    ("width", "names", "shown"),
    [
        (80, ("to", "subject"), ["to        a value", "subject   a value"]),
        (
            80,
            ("title", "Starts (start_time)"),
            ["title               a value", "Starts (start_time) a value"],
        ),
        (40, ("to", "Starts (start_time)"), ["to        a value", "Starts (start_time)", "          a value"]),
        (80, ("日本語日本語日", "to"), ["日本語日本語日 a value", "to             a value"]),
    ],
)
def test_the_column_of_names_is_as_wide_as_leaves_room_for_values(
    width: int, names: tuple[str, ...], shown: list[str]
) -> None:
    """A third of the width at most, in cells; what is longer has a row of its own."""
    assert rows(width, *names) == shown
