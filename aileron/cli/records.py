"""A list of records as a table for a person: which results are one, and how wide its columns are.

Runs in commands, at a terminal only: in a pipe, and with `--json`, a result is what it always was. The result is somebody else's,
so every cell is harmless, on lines of its own column, and blanks in a row are counted: none can pass for the next column.

Rules
- A table is a list of objects whose values are text, numbers, true, false or null; or an object with one such list among such
  values. All else stays JSON.
- It has to fit. Columns fold, the widest first; where one would be too narrow to read, or a cell too tall, it stays JSON.
- So many rows are shown as can be read; how many more there are is said, never hidden.

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

from aileron.model.text_width import narrowed, text_width, widened
from aileron.model.visible import as_text, without_gaps

__all__ = ["Table", "TableLine", "table_of"]

_MOST_ROWS = 50
"""Two screens: who reads on wants a file."""
_MOST_COLUMNS = 12
"""Of 80 cells each has four then, and two between."""
_LEAST_CELLS = 12
"""A column is not folded to less: a date fits, and most words."""
_WHOLE_CELLS = 25
"""A column of at most so much is the last to be folded: RFC 3339 with an offset."""
_MOST_LINES = 4
"""Of a cell: taller ones are prose, which nobody reads in a column."""
_BETWEEN = "  "

_Record = dict[str, Any]


class TableLine(NamedTuple):
    """One line of a terminal, harmless and no wider than it."""

    text: str
    is_title: bool = False


class Table(NamedTuple):
    """What stands beside the list, its lines, and how many rows are not among them."""

    facts: tuple[tuple[str, Any], ...]
    lines: tuple[TableLine, ...]
    more: int


def table_of(value: Any, width: int) -> Table | None:
    """A table of at most `width` cells; None for what is no list of records, or does not fit."""
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
    """The records of a result and what stands beside them; None where it is not just that."""
    if isinstance(value, list):
        return ((), value) if _are_records(value) else None
    if not isinstance(value, dict):
        return None
    lists = [name for name, one in value.items() if _are_records(one)]
    facts = tuple((name, one) for name, one in value.items() if name not in lists)
    if len(lists) != 1 or not all(_is_scalar(one) for _, one in facts):
        return None
    return facts, value[lists[0]]


def _are_records(value: Any) -> bool:
    """Whether it is a list of at least one object, of plain values all of them."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and all(map(_is_scalar, one.values())) for one in value)
    )


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _is_number(value: Any) -> bool:
    """Whether it stands on the right, so that digits stand below digits."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    return without_gaps(as_text(value))


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Of each column, so that a line fits; None where one had to be too narrow for it.

    Columns of short values stay whole while the long ones can give way: half a moment is harder to read than half a line.
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
    """The widths with the columns in `folds` made narrower, the widest first; None where that is not enough."""
    widths = list(natural)
    while (over := sum(widths) - room) > 0:
        widest = max(folds, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST_CELLS:
            return None
        next_widest = max((widths[column] for column in folds if column != widest), default=0)
        widths[widest] = max(widths[widest] - over, next_widest - 1, _LEAST_CELLS)
    return widths


def _folded(text: str, room: int) -> list[str]:
    """A cell in lines of at most `room` cells; a long word is cut, because nothing may stand in the next column."""
    if text_width(text) <= room:
        return [text]
    room = room if text.isascii() else room - 1  # a filler may stand in the line before its character
    return [narrowed(line) for line in textwrap.wrap(widened(text), room, break_on_hyphens=False)]


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int], is_right: Sequence[bool]) -> list[str]:
    """The lines of one row, its cells beside each other."""
    return [
        _BETWEEN.join(
            _padded(cell, width, right) for cell, width, right in zip(beside, widths, is_right, strict=True)
        ).rstrip()
        for beside in itertools.zip_longest(*row, fillvalue="")
    ]


def _padded(cell: str, width: int, is_right: bool) -> str:
    blanks = " " * (width - text_width(cell))
    return blanks + cell if is_right else cell + blanks
