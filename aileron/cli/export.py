r"""Export of events to files, as lines of JSON that can be verified elsewhere or as a table for a spreadsheet; and atomic
writing of a file.

Runs in commands. The events contain text of agents, connectors and services: hostile text.

Rules
- A line of JSON is the record as it is chained, byte for byte, followed by `at`, `previous` and `hash`.
- A cell of a table is never a formula, however it starts, and a row is one line: invisible characters are spelled out.
- Columns keep their names and order; new ones would come after the last.
- A file gets its name when all of it is on disk. Until then it is `.NAME.….part`, private, and removed if the command is ended.

>>> line({"seq": 1, "record": '{"at_us":0,"seq":1,"type":"genesis"}', "previous": "00", "hash": "ff"})
'{"at_us":0,"seq":1,"type":"genesis","at":"1970-01-01T00:00:00.000000Z","previous":"00","hash":"ff"}'
>>> harmless("=1+1")
"'=1+1"

Source: docs/reference/audit-events.md; OWASP, "CSV injection". Not here: which events (commands/audit.py).
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from aileron.model.json_value import JSONObject
from aileron.model.timestamp import utc_of_us
from aileron.model.visible import visible, visible_json

__all__ = ["COLUMNS", "harmless", "line", "new_file", "table"]

COLUMNS: Final = ("seq", "at", "type", "run", "session", "action", "connector", "class", "facts", "hash")
"""Columns of the table of exported events. `facts` is JSON: all facts of an event that have no column of their own."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Prefixes of text that a spreadsheet would evaluate.

The last four are full-width forms, which some programs treat in the same way.
"""


def line(event: JSONObject) -> str:
    """Return an event, in the API's form `record`, as one line of JSON without a line end."""
    record = str(event["record"])
    at = utc_of_us(json.loads(record)["at_us"])
    return f'{record[:-1]},"at":"{at}","previous":"{event["previous"]}","hash":"{event["hash"]}"}}'


def table(events: Iterable[JSONObject], *, with_titles: bool) -> str:
    """Return events, in the API's form `facts`, as lines of comma-separated values, each with its line end."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    if with_titles:
        writer.writerow(COLUMNS)
    writer.writerows([harmless(cell) for cell in _cells(event)] for event in events)
    return written.getvalue()


def harmless(text: str) -> str:
    """Return a cell that every spreadsheet takes as text on one line.

    An apostrophe is put before text that would be evaluated.
    """
    return ("'" if text.startswith(_FORMULA) else "") + visible(text)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file, with mode 0600, that gets its name only when the block ends and all data is on disk. It replaces a file of
    that name.

    Raises OSError if the file cannot be written, FileExistsError if something other than a file has the name. If the block
    fails, the old file stays.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise FileExistsError(None, "it exists and is not a regular file")
    part = path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            yield file
            file.flush()
            os.fsync(descriptor)
        part.rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Flush the directory to disk, so that the file's new name is stored too, rename(2)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cells(event: JSONObject) -> Iterator[str]:
    for name in COLUMNS:
        if name == "facts":
            rest = {fact: value for fact, value in event.items() if fact not in COLUMNS}
            yield visible_json(json.dumps(rest, ensure_ascii=False))
        else:
            value = event.get(name)
            yield "" if value is None else str(value)
