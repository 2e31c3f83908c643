"""Output of commands: data on standard output, everything else on standard error.

A terminal gets tables and readable text with hostile characters spelled out. A pipe gets tab-separated lines without a title,
in which the same characters are spelled out, as are tabs and line ends inside a value. `--json` is ASCII everywhere. Runs in
commands. rich is imported only for a table on a terminal.

Rules
- A reader that disconnects (`| head`) ends the output, not the command: the rest of its work is still done, with its exit code.
- Colour is never the only sign, and NO_COLOR or TERM=dumb turns it off.

Not here: what is shown (commands/).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TextIO

from aileron.model.text_width import narrowed, text_width, widened
from aileron.model.visible import BAR, as_text, visible, visible_json, visible_lines

__all__ = [
    "BAR",
    "GUTTER",
    "WHOLE_ID",
    "UnwritableError",
    "as_text",
    "columns",
    "day_or_time",
    "fitted",
    "folded",
    "is_read",
    "is_terminal",
    "labelled",
    "local_time",
    "note",
    "prepare",
    "print_block",
    "print_done",
    "print_facts",
    "print_json",
    "print_list",
    "print_object",
    "print_result",
    "print_table",
    "short_hash",
    "short_id",
    "short_ids",
    "styled",
    "time_left",
    "time_since",
    "write",
    "write_bytes",
]

GUTTER = "  │ "
"""Prefix of each line of another party's text, so that no such line looks like Aileron's own text."""
_LONGEST_WORD = 200
"""Maximum number of characters of a word that may overflow a line: a hash has 71, a link not many more."""
_LEAST_INDENT = 2
_NO_TERMINAL = 80
"""Number of columns that is assumed without a terminal."""
_BETWEEN = 2
"""Number of terminal cells between the columns of a table."""
_TO_COPY = ("fix: ", "then: ", "look: ", "approve: ", "deny: ", "cancel: ", "review: ", "undo: ", "aileron ")
"""Prefixes of lines that are never folded, because a person copies the rest of the line."""
WHOLE_ID: Final = re.compile(r"[a-z]{2,12}-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}")
"""Pattern of a complete id of a run, a session, an approval or a grant (audit/moves.py)."""
_SHORTENED: Final = re.compile(r"\b(?:run|ses)-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}\b")
_SHORT_ID: Final = 8
_COMMANDS = ("aileron ", "sudo ", "systemd-run ")
_nobody_reads = False
_RED, _BOLD, _DIM = "31;1", "1", "2"


class UnwritableError(Exception):
    """Standard output cannot be written although it still has a reader, for example because the disk is full."""


def prepare() -> None:
    """Set the output streams to spell out characters that their encoding lacks, instead of failing.

    Call this once, before any output.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def is_terminal(name: str = "stdout") -> bool:
    """Return whether `stdin`, `stdout` or `stderr` is a terminal."""
    try:
        return bool(getattr(sys, name).isatty())
    except (AttributeError, ValueError):  # it was closed when the process started, or has been closed since
        return False


def write(text: str, stream: str = "stdout") -> None:
    """Write text and a line end to `stream`. The caller must make sure that the text is harmless."""
    _write(getattr(sys, stream), text + "\n")


def write_bytes(data: bytes) -> None:
    """Write exactly these bytes to standard output. They are data for programs, in UTF-8 whatever the locale is."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
    except OSError as error:
        _silence(sys.stdout)
        raise UnwritableError(f"standard output cannot be written: {error.strerror}") from None


def is_read(wait_s: float = 0.0) -> bool:
    """Return whether standard output still has a reader. Wait up to `wait_s` for the reader to disconnect."""
    if _nobody_reads or sys.stdout is None:
        return False
    watched = select.poll()
    try:
        watched.register(sys.stdout.fileno(), 0)  # POLLERR and POLLHUP are always reported, poll(2)
    except (OSError, ValueError):
        return False
    return not watched.poll(wait_s * 1000)


def note(text: str) -> None:
    """Write text for people to standard error, with a line end.

    For a terminal the text is folded, except commands to be copied.
    """
    _write(sys.stderr, (_in_terminal(text) if is_terminal("stderr") else text) + "\n")


def styled(text: str, style: str, stream: str = "stdout") -> str:
    """Return `text` in red, bold or dim if the stream shows colour."""
    code = {"red": _RED, "bold": _BOLD, "dim": _DIM}[style]
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not is_terminal(stream) else f"\x1b[{code}m{text}\x1b[0m"


def print_json(value: Any) -> None:
    """Print a value, which may contain responses of the daemon, as ASCII JSON: indented on a terminal, on one line in a pipe."""
    import json

    write(json.dumps(value, indent=2 if is_terminal() else None, default=_as_json))


def _as_json(value: Any) -> Any:
    """Convert a response of the daemon to plain values."""
    import msgspec  # `aileron run` does not need it

    return msgspec.to_builtins(value)


def print_list(
    answer: Any,
    titles: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    as_json: bool,
    empty: str,
    folds: Sequence[str] = (),
    below: int = 1,
) -> None:
    """Print a response of the daemon: as JSON, or its rows as `print_table` does. For JSON, `rows` is not read, so that
    a generator does no work.
    """
    if as_json:
        print_json(answer)
    else:
        print_table(titles, rows, empty=empty, folds=folds, below=below)


def print_object(answer: Any, facts: Iterable[tuple[str, Any]], *, as_json: bool) -> None:
    """Print an object: as JSON, or its facts as `print_facts` does."""
    if as_json:
        print_json(answer)
    else:
        print_facts(facts)


def print_done(answer: Any, words: str, *, as_json: bool) -> None:
    """Print that a change was made: the daemon's response as JSON, or the words for a person."""
    if as_json:
        print_json(answer)
    else:
        note(words)


def print_result(value: Any) -> None:
    """Print an action's result: text unchanged, all other values as JSON.

    On a terminal, the text is made harmless and a list of records is printed as a table.
    """
    import json

    if not is_terminal():
        write(value if isinstance(value, str) else json.dumps(value))
    elif isinstance(value, str):
        write("\n".join(visible_lines(value)))
    elif not _print_records(value):
        write(visible_json(json.dumps(value, indent=2, ensure_ascii=False)))


def _print_records(value: Any) -> bool:
    """Print a list of records as a table if it fits. Return whether it was printed."""
    from aileron.cli.records import table_of  # only for a terminal

    table = table_of(value, columns())
    if table is None:
        return False
    print_facts([(visible(name), as_text(fact)) for name, fact in table.facts])
    for line in table.lines:
        write(styled(line.text, "bold") if line.is_title else line.text)
    if table.more:
        note(f"and {table.more} more: --json")
    return True


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, folds: Sequence[str] = (), below: int = 1
) -> None:
    """Print rows under titles on a terminal, tab-separated in a pipe. If there are no rows, print the message `empty` for a
    person.

    The columns in `folds` and the last column use more lines if the terminal is narrow; the other columns are never folded. If
    `below` is over 1 and not every row fits on one line, that many of the last columns are printed in full on separate lines.
    """
    cells = [[as_text(cell) for cell in row] for row in rows]
    if not is_terminal():
        for row in cells:
            write("\t".join(row))
    elif cells and below > 1 and _width([titles, *cells]) > columns():
        _stacked(titles, cells, below)
    elif cells and not folds and below == 1 and _is_too_narrow(titles, cells):
        _stacked(titles, cells)
    elif cells:
        _rich_table(titles, cells, {*folds, titles[-1]})
    else:
        note(empty)


def print_facts(facts: Iterable[tuple[str, Any]], stream: str = "stdout", *, column: int = 0) -> None:
    """Print each fact's name and value on one line. A list takes a line for each entry; a fact with the value None is omitted.

    Facts of a question go to `stderr`, because they are not data. On a terminal, values start in `column` or to the right of it.
    """
    kept = [(name, value) for name, value in facts if value is not None]
    width = max(max((len(name) for name, _ in kept), default=0) + 2, column)
    for name, value in kept:
        values = [as_text(entry) for entry in value] if isinstance(value, (list, tuple)) else [as_text(value)]
        if not is_terminal(stream):
            write("\t".join([name, *values]), stream)
            continue
        lines = [line for entry in values for line in folded(entry, width)] or ["-"]
        if _indent_of(lines[0], width) < width:
            lines.insert(0, "")
        write(styled(name.ljust(width) if lines[0] else name, "dim", stream) + lines[0], stream)
        for line in lines[1:]:
            write(" " * _indent_of(line, width) + line, stream)


def print_block(text: str) -> None:
    """Print text of another party. On a terminal, each row begins with GUTTER."""
    for line in visible_lines(text.rstrip("\n")):
        for row in _folded_inside(line, len(GUTTER)) if is_terminal() else [line]:
            write(styled(GUTTER, "dim") + row if is_terminal() else row)


def local_time(moment: Any, stream: str = "stdout") -> str:
    """Return a moment, given in RFC 3339: unchanged for a pipe; for a terminal as local time, to the second."""
    text = as_text(moment)
    if not is_terminal(stream):
        return text
    import datetime

    try:
        return datetime.datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):  # not a moment; or one in year 1, in a zone west of Greenwich
        return text


def day_or_time(moment: Any) -> str:
    """Return a moment for a list: unchanged for a pipe; for a terminal the local time if the moment is today, else the day."""
    if not is_terminal():
        return as_text(moment)
    import datetime

    day, _, time = local_time(moment).partition(" ")
    return time if time and day == datetime.datetime.now().astimezone().strftime("%Y-%m-%d") else day


def time_left(moment: Any, stream: str = "stdout") -> str:
    """Return the time until a moment, such as `in 14 min`, for a terminal; for a pipe the moment unchanged."""
    text = as_text(moment)
    if not is_terminal(stream):
        return text
    left_s = _seconds_until(text)
    if left_s is None:
        return text
    return "over" if left_s < 0 else f"in {_span(left_s)}"


def time_since(moment: Any) -> str:
    """Return the time since a moment, for a terminal, such as `3 min`."""
    left_s = _seconds_until(as_text(moment))
    return as_text(moment) if left_s is None else _span(max(-left_s, 0.0))


def _seconds_until(text: str) -> float | None:
    """Return the seconds until a moment, negative for a past moment. None if the text is not a moment."""
    import datetime

    try:
        return (datetime.datetime.fromisoformat(text) - datetime.datetime.now(datetime.UTC)).total_seconds()
    except (ValueError, TypeError):
        return None


def _span(seconds: float) -> str:
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.0f} d"
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def folded(text: str, indent: int) -> list[str]:
    """Fold harmless text into lines that leave room for an indent. All spaces stay except at the end of a line, so that no text
    can hide behind spaces.

    A word of plain ASCII may be longer than a line, so that a person can copy it. Any other word is cut, so that text at the
    left margin is always Aileron's own.
    """
    room = max(columns() - indent, 20)
    if text_width(text) <= room:
        return [text]
    if text.startswith("aileron ") and text.isascii() and _indent_of(text, indent) < indent:
        return [text]  # stays whole, to be copied
    if text.startswith(BAR):
        return [BAR + line for line in folded(text.removeprefix(BAR), indent + len(BAR))]
    import textwrap

    may_overflow = text.isascii() and max(map(len, text.split(" "))) <= _LONGEST_WORD
    first, *rest = textwrap.wrap(
        widened(text),
        room if text.isascii() else room - 1,  # a wide character's filler may end up in the line before it
        break_long_words=not may_overflow,
        break_on_hyphens=False,
        drop_whitespace=False,
        replace_whitespace=False,
        expand_tabs=False,
    )
    return [narrowed(first), *(narrowed(line).removeprefix(" ") for line in rest)]


def fitted(text: str) -> str:
    """Cut a line of a list to the terminal's width. A line that was cut ends with an ellipsis."""
    width = columns()
    return text if text_width(text) <= width else narrowed(widened(text)[: width - 1]) + "…"


def short_ids(names: Sequence[str]) -> dict[str, str]:
    """Return a short form of each id, by the complete id.

    For a terminal it is an end of the id that is unique in `names` and that every command accepts; for a pipe it is the complete
    id.
    """
    if not is_terminal():
        return {name: name for name in names}
    return {
        name: next(end for end in _ends(name) if sum(other.endswith(end) for other in names) == 1) for name in names
    }


def _ends(name: str) -> Iterator[str]:
    yield from (name[-size:] for size in range(_SHORT_ID, len(name)))
    yield name


def short_hash(pin: Any) -> str:
    """Return the first 12 digits of a hash for a terminal, enough to distinguish two hashes and to type one; for a pipe the
    complete hash.
    """
    text = as_text(pin)
    return text.removeprefix("sha256:")[:12] if is_terminal() else text


def short_id(name: Any, stream: str = "stdout") -> str:
    """Return the end of an id, which every command accepts (ids.py), for a terminal; for a pipe the complete id."""
    text = as_text(name)
    return text[-_SHORT_ID:] if is_terminal(stream) and WHOLE_ID.fullmatch(text) else text


def _with_short_ids(line: str) -> str:
    """Shorten the ids of runs and sessions in a line. The id of an approval stays complete, because it is needed to decide."""
    return _SHORTENED.sub(lambda found: found[0][-_SHORT_ID:], line)


def labelled(label: str, command: str) -> list[str]:
    """Return `label` and a command as lines. A command to copy gets a separate line if it does not fit beside the label."""
    command = _with_short_ids(command)
    indent = _indent_of(command, len(label))
    if indent < len(label):
        return [label.rstrip(), " " * indent + command]
    if command.startswith(_COMMANDS):
        return [label + command]
    first, *rest = folded(command, indent)
    return [label + first, *(" " * indent + line for line in rest)]


def _indent_of(line: str, indent: int) -> int:
    """Return the number of spaces before a line: `indent`, or fewer if a line that cannot be folded would not fit
    otherwise. The result is at least _LEAST_INDENT.
    """
    room = columns() - text_width(line)
    return indent if room >= indent or room < _LEAST_INDENT else room


def _in_terminal(text: str) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        words = _with_short_ids(words) if "aileron " in words else words
        indent = len(line) - len(line.lstrip(" "))
        if "\x1b" in words:  # styled, so its writer has laid it out
            lines.append(line)
        elif words.startswith(_TO_COPY):
            name, colon, value = words.partition(": ")
            lines += labelled(" " * indent + name + colon, value) if colon else [line]
        else:
            lines += [" " * indent + part for part in folded(words, indent)]
    return "\n".join(lines)


def _folded_inside(line: str, column: int) -> list[str]:
    """Return the rows of a line that follows a vertical bar, each with the line's own indent."""
    words = line.lstrip(" ")
    indent = min(len(line) - len(words), columns() // 2)
    return [" " * indent + part for part in folded(words, column + indent)]


def _is_too_narrow(titles: Sequence[str], rows: list[list[str]]) -> bool:
    """Return whether a word of the last column is too long for that column, but would fit on a separate line.

    A name must stay in one piece.
    """
    others = sum(max(len(row[column]) for row in [titles, *rows]) + 2 for column in range(len(titles) - 1))
    longest = max(len(word) for row in [titles, *rows] for word in row[-1].split(" ") or [""])
    return columns() - others < longest <= columns() - _LEAST_INDENT


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of terminal cells that the rows need as a table with one line per row."""
    return sum(max(text_width(row[column]) for row in rows) + _BETWEEN for column in range(len(rows[0]))) - _BETWEEN


def _stacked(titles: Sequence[str], rows: list[list[str]], below: int = 1) -> None:
    """Print each row with its last `below` columns on separate lines below the others."""
    beside = len(titles) - below
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(beside)]
    for number, row in enumerate([list(titles), *rows]):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        write(line if number else styled(line, "bold"))
        for part in [part for cell in row[beside:] for part in folded(cell, _LEAST_INDENT)]:
            write(" " * _LEAST_INDENT + (part if number else styled(part, "bold")))


def _rich_table(titles: Sequence[str], rows: list[list[str]], folds: set[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title not in folds)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, not str: brackets are no markup here
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(table)
    _write(sys.stdout, "\n".join(line.rstrip() for line in capture.get().split("\n")))


def columns() -> int:
    """Return the width of the terminal, or 80 without one.

    The result is that of shutil.get_terminal_size, but importing shutil takes 3 ms.
    """
    with contextlib.suppress(KeyError, ValueError):
        if (said := int(os.environ["COLUMNS"])) > 0:
            return said
    try:
        return os.get_terminal_size(1 if sys.__stdout__ is None else sys.__stdout__.fileno()).columns or _NO_TERMINAL
    except (ValueError, OSError):
        return _NO_TERMINAL


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # no reader is left
        _silence(stream)
    except OSError as error:
        _silence(stream)
        if stream is not sys.stderr:
            raise UnwritableError(f"standard output cannot be written: {error.strerror}") from None


def _silence(stream: TextIO) -> None:
    """Redirect the stream to /dev/null, so that neither later writes nor the interpreter's final flush fail again."""
    global _nobody_reads
    _nobody_reads = _nobody_reads or stream is sys.stdout
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
