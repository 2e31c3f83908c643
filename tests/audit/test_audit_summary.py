"""What a list shows of what was asked with: a line, whatever the arguments are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.audit.summary import summaries_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


def line_of(args: dict[str, Any]) -> str | None:
    """Of a plan with these arguments."""
    return lines_of(args).get("0")


def lines_of(*each: dict[str, Any]) -> dict[str, str]:
    """Of plans of one action with these arguments, by their number."""
    plans = [msgspec.json.encode({"action": "send-mail", "args": args, "steps": []}) for args in each]
    return summaries_of((str(number), "send-mail", plan) for number, plan in enumerate(plans))


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ({}, None),
        ({"to": "mira@example.com"}, "to=mira@example.com"),
        ({"count": 7, "force": False, "at": None}, "at=null count=7 force=false"),
        ({"labels": ["bug", "ui"]}, 'labels=["bug","ui"]'),
        ({"body": "x" * 25, "to": "mira"}, f"to=mira body={'x' * 23}…"),
    ],
)
def test_names_and_values_stand_in_a_line_the_short_ones_first(args: dict[str, Any], line: str | None) -> None:
    """In the order of their names, among those that are short and among those that are not."""
    assert line_of(args) == line


def test_what_tells_two_of_one_action_apart_stands_first() -> None:
    """Of those that are listed together, and of a long value the part in which it differs."""
    lunch = {"end": "13:00", "start": "12:00", "title": "Lunch", "notes": "x" * 30}
    sailing = {**lunch, "title": "Sailing"}

    assert [line.split()[0] for line in lines_of(lunch, sailing).values()] == ["title=Lunch", "title=Sailing"]
    assert lines_of(lunch, lunch)["0"] == lines_of(lunch)["0"] == f"end=13:00 start=12:00 title=Lunch notes={'x' * 23}…"
    assert lines_of(lunch, {})["0"] == lines_of(lunch)["0"]
    other = [("a", "send", b'{"args": {"a": 1, "b": 1}}'), ("b", "read", b'{"args": {"a": 1, "b": 2}}')]
    assert summaries_of(other) == {"a": "a=1 b=1", "b": "a=1 b=2"}
    mine, theirs = ({"a": 1, "to": f"mira.johansson@example.{end}"} for end in ("com", "evil"))
    assert list(lines_of(mine, theirs).values()) == ["to=…ample.com a=1", "to=…ample.evil a=1"]


def test_no_value_passes_for_another_argument() -> None:
    """What has a space in it is quoted, and so is what has a quote."""
    assert line_of({"subject": "x to=mallory"}) == 'subject="x to=mallory"'
    assert line_of({"subject": '" to="m'}) == r'subject="\" to=\"m"'


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,40}", fullmatch=True), JSON, max_size=12))
def test_it_is_a_line_of_at_most_160_characters(args: dict[str, Any]) -> None:
    """Whatever they are."""
    line = line_of(args)

    assert (line is None) is (not args)
    assert line is None or (len(line) <= 160 and "\n" not in line and "\x1b" not in line)


@pytest.mark.parametrize("stored", [None, b"", b"{", b"[]", b'{"args": 7}', b"{}"])
def test_what_is_no_plan_has_none(stored: bytes | None) -> None:
    """A list is shown all the same; the question itself says what is wrong with it."""
    assert summaries_of([("one", "send-mail", stored)]) == {}
