"""Lists of records: a table at a terminal, and unchanged JSON in a pipe or with --json."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cli.records import table_of
from aileron.model.text import hidden_at
from aileron.model.text_width import text_width
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon
from tests.support.hostile_text import EVERYTHING, assert_harmless

MAILS = [
    {"id": 7, "from": "Mira", "unread": True, "at": "2026-11-21T05:29:24Z"},
    {"id": 12, "from": "Jo      12", "unread": False, "folder": None},
]


def result(fake: FakeDaemon, value: Any) -> None:
    """Make `value` the result of a run of `act`."""
    fake.add_action("act")
    fake.script("POST", "/v1/actions/act/run", (200, {"audit_id": "run-1", "result": value}))


def at_terminal(aileron: Command, *more: str) -> str:
    """Return what `run act` shows at a terminal without styles."""
    return aileron.at_terminal("run", "act", *more, TERM="dumb").out


def test_a_list_of_records_is_a_table_at_a_terminal_only(fake: FakeDaemon, aileron: Command) -> None:
    """Numbers are aligned right and columns keep their order; in a pipe and with --json the output is plain JSON."""
    result(fake, MAILS)

    assert at_terminal(aileron).splitlines() == [
        "id  from              unread  at                    folder",
        " 7  Mira              yes     2026-11-21T05:29:24Z       -",
        "12  Jo (6 blanks) 12  no      -                          -",
    ]
    assert aileron("run", "act").out == json.dumps(MAILS) + "\n"
    assert aileron("run", "act", "--json").json["result"] == MAILS
    assert json.loads(at_terminal(aileron, "--json"))["result"] == MAILS


def test_values_beside_a_list_of_records_are_shown_above_its_table(fake: FakeDaemon, aileron: Command) -> None:
    """The example is the token of the next page."""
    result(fake, {"mails": [{"id": 1}], "next": "abc", "more": None})

    assert at_terminal(aileron).splitlines() == ["next  abc", "more  -", "id", " 1"]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        [{}],
        [1, 2],
        [{"a": 1}, 2],
        [{"a": [1]}],
        {"a": []},
        {"a": [{"b": 1}], "c": [{"d": 1}]},
        {"a": [{"b": 1}], "c": {"d": 1}},
        [{f"column {number}": "some words" for number in range(9)}],
        [{str(number): 0 for number in range(13)}],
        [{"prose": "word " * 500}],
    ],
    ids=str,
)
def test_a_value_that_makes_no_readable_table_is_shown_as_json(fake: FakeDaemon, aileron: Command, value: Any) -> None:
    """The result is no list of records, or its table would be unreadable in 80 columns."""
    result(fake, value)

    assert at_terminal(aileron) == json.dumps(value, indent=2) + "\n"


@pytest.mark.abuse_case("R10")
def test_a_table_that_is_too_wide_is_rejected_without_reading_every_character() -> None:
    """A result may have any length: here every column is equally long, and there are as many as allowed."""
    calls = Counter[str]()
    sys.setprofile(lambda _frame, event, _what: calls.update([event]))
    try:
        table = table_of([{str(number): "x" * 80_000 for number in range(12)}], 80)
    finally:
        sys.setprofile(None)

    assert table is None
    assert calls["c_call"] < 1000, "of built-in functions; weighed cell by cell it is some for each character"


def test_table_rows_beyond_fifty_are_counted_and_not_shown(fake: FakeDaemon, aileron: Command) -> None:
    """A line says how many more there are; it is absent if all are shown."""
    result(fake, [{"n": number} for number in range(53)])
    many = at_terminal(aileron).splitlines()
    result(fake, [{"n": number} for number in range(50)])

    assert (many[0], many[1], many[50], many[51:]) == (" n", " 0", "49", ["and 3 more: --json"])
    assert at_terminal(aileron).splitlines()[-1] == "49"


@pytest.mark.abuse_case("T7")
def test_hostile_text_in_a_table_stays_in_its_column(fake: FakeDaemon, aileron: Command) -> None:
    """Control characters are escaped; a line end starts no row, and spaces start no column."""
    result(fake, [{"name\x1b[2J": "a\nerror: no\r\x1b[2K", "b": "x" + " " * 30 + "y"}])
    shown = at_terminal(aileron)

    assert_harmless(shown)
    assert shown.splitlines() == ["name\\x1b[2J            b", "a\\nerror: no\\r\\x1b[2K  x (30 blanks) y"]
    result(fake, [{"text": EVERYTHING}])
    assert_harmless(at_terminal(aileron))


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80)
_RECORDS = st.lists(st.dictionaries(st.text(max_size=12), _SCALARS, max_size=6), max_size=5)


@pytest.mark.abuse_case("T7")
@given(_RECORDS, st.integers(0, 200))
def test_no_line_of_a_table_is_wider_than_the_terminal(records: list[dict[str, Any]], width: int) -> None:
    """Lines have no hidden characters either, and every record has a line or is counted as missing."""
    table = table_of(records, width)

    if table is None:
        return
    for line in table.lines:
        assert text_width(line.text) <= width
        assert hidden_at(line.text) is None
    assert len(table.lines) > len(records) - table.more


def test_long_table_columns_are_wrapped_before_short_columns() -> None:
    """A timestamp is not wrapped to make room for an id that must be wrapped anyway."""
    table = table_of([{"id": "a" * 60, "at": "2026-11-21T05:29:24Z", "what": "the meeting " * 3}], 60)

    assert table is not None
    assert "2026-11-21T05:29:24Z" in table.lines[1].text
