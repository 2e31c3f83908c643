"""Tables of records for a person: decides which results can be shown as a table, and how wide the columns are.

Runs in commands, only at a terminal; in a pipe and with `--json`, a result keeps its usual form. Another party wrote the result,
so every cell is made harmless and stays in its own column. A sequence of blanks is replaced by its count, so that no cell can
imitate the next column.

Rules
- A table is a list of objects whose values are text, numbers, true, false or null; or an object whose fields are such values
  and exactly one such list. Everything else stays JSON.
- It must fit. Columns fold, the widest first; if one would be too narrow to read, or a cell too tall, the result stays JSON.
- Only as many rows are shown as a person can read; the number of further rows is always printed.

Source: docs/reference/cli.md, "Lists of records". Not here: printing (output.py). Pure.

>>> table = table_of([{"id": 7, "name": "Mira"}, {"id": 12, "name": None}], 80)
>>> [line.text for line in table.lines]
['id  name', ' 7  Mira', '12  -']
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from aileron.model.json_value import JSONObject
from aileron.model.text_width import narrowed, text_width, widened
from aileron.model.visible import as_text, without_gaps

__all__ = ["Table", "TableLine", "table_of"]

_MOST_ROWS = 50
"""Maximum number of rows: two screens. A longer list is better read in a file."""
_MOST_COLUMNS = 12
"""Maximum number of columns. On a terminal of 80 cells, each column then has four cells, with two cells between columns."""
_LEAST_CELLS = 12
"""Minimum number of cells of a folded column: a date fits, and most words."""
_WHOLE_CELLS = 25
"""Width in cells of columns that are folded only if folding the wider ones is not sufficient. A time in RFC 3339 with
an offset fits.
"""
_MOST_LINES = 4
"""Maximum number of lines of a cell. Taller cells contain prose, which is unreadable in a column."""
_BETWEEN = "  "

_Record = JSONObject


class TableLine(NamedTuple):
    """A line of a terminal, harmless and no wider than the terminal."""

    text: str
    is_title: bool = False


class Table(NamedTuple):
    """A result with a list of records, laid out as a table.

    `facts` are the result's other fields, `lines` the lines of the table, and `more` is the number of records not shown.
    """

    facts: tuple[tuple[str, Any], ...]
    lines: tuple[TableLine, ...]
    more: int


def table_of(value: Any, width: int) -> Table | None:
    """Return a table of at most `width` cells. None if the value is not a list of records, or does not fit."""
    found = _records_in(value)
    if found is None:
        return None
    facts, records = found
    names = tuple(dict.fromkeys(name for record in records for name in record))
    if not 1 <= len(names) <= _MOST_COLUMNS:
        return None
    rows = [[record.get(name) for name in names] for record in records[:_MOST_ROWS]]
    texts = [[_cell(name) for name in names], *([_cell(cell) for cell in row] for row in rows)]
    widths = _widths(texts, width)
    if widths is None:
        return None
    if any(text_width(text) > room * _MOST_LINES for row in texts for text, room in zip(row, widths, strict=True)):
        return None  # known before anything long is folded
    cells = [[_folded(text, room) for text, room in zip(row, widths, strict=True)] for row in texts]
    if any(len(lines) > _MOST_LINES for row in cells for lines in row):
        return None
    is_right = [all(_is_number(row[column]) for row in rows) for column in range(len(names))]
    lines = [
        TableLine(text, is_title=number == 0)
        for number, row in enumerate(cells)
        for text in _lines(row, widths, is_right)
    ]
    return Table(facts, tuple(lines), len(records) - len(rows))


def _records_in(value: Any) -> tuple[tuple[tuple[str, Any], ...], list[_Record]] | None:
    """Return the fields that a result has in addition to its list of records, and that list.

    None if the result has any other form.
    """
    if isinstance(value, list):
        return ((), value) if _are_records(value) else None
    if not isinstance(value, dict):
        return None
    lists = [name for name, field in value.items() if _are_records(field)]
    facts = tuple((name, field) for name, field in value.items() if name not in lists)
    if len(lists) != 1 or not all(_is_scalar(field) for _, field in facts):
        return None
    return facts, value[lists[0]]


def _are_records(value: Any) -> bool:
    """Return whether the value is a list of at least one object, each with plain values only."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(record, dict) and all(map(_is_scalar, record.values())) for record in value)
    )


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _is_number(value: Any) -> bool:
    """Return whether the value is a number or missing. A column of such values is right-aligned, so that digits stand
    below digits.
    """
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    return without_gaps(as_text(value))


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return a width for each column, so that a line fits into `width` cells. None if a column would be too narrow.

    Columns of short values keep their width as long as the others can shrink, because half a timestamp is harder to read than
    half a line.
    """
    natural = [max(text_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    if max(natural) > width * _MOST_LINES:
        return None  # known before widths are weighed, cell by cell
    room = width - len(_BETWEEN) * (len(natural) - 1)
    for most in (_WHOLE_CELLS, _LEAST_CELLS):
        fitting = _shrunk(natural, room, [column for column, cells in enumerate(natural) if cells > most])
        if fitting is not None:
            return fitting
    return None


def _shrunk(natural: Sequence[int], room: int, folds: Sequence[int]) -> list[int] | None:
    """Return the column widths `natural`, narrowed in the columns `folds`, the widest first, until they fit into
    `room`. None if that is not sufficient.
    """
    widths = list(natural)
    while (over := sum(widths) - room) > 0:
        widest = max(folds, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST_CELLS:
            return None
        next_widest = max((widths[column] for column in folds if column != widest), default=0)
        widths[widest] = max(widths[widest] - over, next_widest - 1, _LEAST_CELLS)
    return widths


def _folded(text: str, room: int) -> list[str]:
    """Fold the text of a table cell into lines of at most `room` terminal cells.

    A long word is cut, so that no text reaches into the next column.
    """
    if text_width(text) <= room:
        return [text]
    room = room if text.isascii() else room - 1  # a wide character's filler may end up in the line before it
    return [narrowed(line) for line in textwrap.wrap(widened(text), room, break_on_hyphens=False)]


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int], is_right: Sequence[bool]) -> list[str]:
    """Return the lines of one row, with its cells side by side."""
    return [
        _BETWEEN.join(
            _padded(cell, width, right) for cell, width, right in zip(beside, widths, is_right, strict=True)
        ).rstrip()
        for beside in itertools.zip_longest(*row, fillvalue="")
    ]


def _padded(cell: str, width: int, is_right: bool) -> str:
    blanks = " " * (width - text_width(cell))
    return blanks + cell if is_right else cell + blanks
