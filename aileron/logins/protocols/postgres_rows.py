"""Turns the row changes of a PostgreSQL statement into a text for a person and a digest, and checks that all changes can be
shown.

Pure; runs in the process of one login. The input is a service's response to a statement that an agent wrote. The only
assumption is that the service reports its own tables and rows truthfully.

Rules
- `check_statement` knows from the text alone that every row of a write is returned. RETURNING * at the very end of the
  text, where there is no comment, is a part of the statement itself, because a string or a name that contained these
  words would have to end after them. Only after a dot can `returning` be the name of a table (`FROM a.returning *`);
  such a write returns no rows, which its tag shows.
- The rules of `check_statement` for a write's text can also be stated as a regular expression, with which an action refuses
  the same text when an agent requests it (connectors/postgres/actions/postgres-execute).
- The digest is SHA-256 over a line with the version of the digest format, and over parts that are each preceded by their
  length.
- A column that an INSERT does not name, and that has a default or an identity, is in the text and not in the digest.

Source: PostgreSQL's manual, "INSERT", "Lexical Structure", "Message Formats" (RowDescription, DataRow). Not here: the
conversation with the service (postgres_effects.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from aileron.logins.login_messages import MAX_EFFECTS, Effects, LoginError, Problem
from aileron.logins.protocols.postgres_frame import first_word
from aileron.logins.protocols.postgres_settings import Settings

__all__ = [
    "MAX_ROWS",
    "MAX_TABLES",
    "Column",
    "Row",
    "Table",
    "Target",
    "Write",
    "changes_rows",
    "check_statement",
    "columns_of",
    "given_columns",
    "made",
    "not_allowed",
    "row_of",
    "text_of",
]

MAX_ROWS: Final = 500
"""Maximum number of rows of one write: as many as fit into the text that a person reads, at some 50 characters each."""
MAX_TABLES: Final = 50
"""Maximum number of tables that one write can change, including those that its triggers and foreign keys change."""
_MAX_NAME: Final = 63
"""Maximum size of a name in bytes; PostgreSQL truncates longer names."""

Row = list[bytes | None]

_READS: Final = frozenset(("", "SELECT", "SHOW", "TABLE", "VALUES", "WITH"))
_WRITES: Final = {"INSERT": "inserted", "UPDATE": "updated", "DELETE": "deleted"}
_COUNTED: Final = ("inserted", "updated", "deleted")
_SHOWS_ALL: Final = re.compile(rb"\bRETURNING\s+\*\s*;?\s*\Z", re.IGNORECASE)
_BEHIND: Final = b" \t\n\r\f\v;"
_NAME: Final = rb'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\xff][A-Za-z0-9_$\x80-\xff]*)'
_INSERTED: Final = re.compile(
    rb"\s*INSERT\s+INTO\s+" + _NAME + rb"(?:\s*\.\s*" + _NAME + rb")*(?:\s+AS\s+" + _NAME + rb")?"
    rb"\s*\(\s*(" + _NAME + rb"(?:\s*,\s*" + _NAME + rb")*)\s*\)\s*(?:OVERRIDING\b|VALUES\b|SELECT\b|\()",
    re.IGNORECASE,
)
_NAMES: Final = re.compile(_NAME)
_CONFLICT: Final = re.compile(rb"CONFLICT", re.IGNORECASE)
_PLAIN: Final = re.compile(r"(?!NULL\b)[\w.:@+-]+(?: [\w.:@+-]+)*")
_TAG: Final = re.compile(r"(INSERT 0|UPDATE|DELETE) ([0-9]{1,18})")


class Column(NamedTuple):
    """A column of a statement's result: its name, its table's OID, and its position in that table (both 0 if it does not belong
    to a table).
    """

    name: str
    table: int
    number: int


class Table(NamedTuple):
    """A table of the database, and how many of its rows the transaction changed.

    `counts` are the numbers of rows inserted, updated and deleted. `root` is the OID of the partitioned table that this table
    is a partition of, or of the table itself.
    """

    oid: int
    root: int
    name: str
    counts: tuple[int, int, int]


class Target(NamedTuple):
    """The table that a write changes.

    `filled` has the positions of columns that an INSERT leaves to their defaults. `width` is the number of returned columns
    that are the table's own; a statement can add other columns, with any name (FROM, USING).
    """

    root: int
    name: str
    filled: frozenset[int]
    width: int


class Write:
    """The one statement of a transaction that changes rows, with the rows and the command tag that the service returned."""

    def __init__(self, sql: bytes, values: tuple[bytes, ...], settings: Settings) -> None:
        self.sql: Final = sql
        self.values: Final = values
        self.settings: Final = settings
        self.description = b""
        self.rows: list[Row] = []
        self.tag = ""
        self._size = 0
        self._is_too_large = False

    def add(self, body: bytes, size: int) -> None:
        """Add a returned row from the `body` of its DataRow, unless the write's rows are too many or too large. `size`
        is the complete body's size.
        """
        self._size += size
        self._is_too_large |= len(self.rows) >= MAX_ROWS or self._size > MAX_EFFECTS or len(body) != size
        if not self._is_too_large:
            self.rows.append(row_of(body))

    def check_all_shown(self) -> None:
        """Raise LoginError if a row was changed but not returned, or if the rows are too many or too large to be shown."""
        if self._is_too_large:
            raise _too_large()
        tag = _TAG.fullmatch(self.tag)
        if tag is None or int(tag[2]) != len(self.rows):
            raise not_allowed("the statement changed other rows than it returned: end it with RETURNING *")


def not_allowed(message: str) -> LoginError:
    """Return the error for a statement that is not allowed in a stream whose effects are shown."""
    return LoginError(Problem.NOT_ALLOWED, message)


def _too_large() -> LoginError:
    return not_allowed(
        f"the statement changes more than a person can be shown ({MAX_ROWS} rows, {MAX_EFFECTS >> 10} KiB): "
        "change fewer rows at a time"
    )


def changes_rows(sql: bytes) -> bool:
    """Return whether a statement that `check_statement` accepts changes rows."""
    return first_word(sql) in _WRITES


def check_statement(sql: bytes) -> None:
    """Raise LoginError unless the statement is a read, or a write that returns all its rows."""
    try:
        word = first_word(sql)
    except ValueError as error:
        raise not_allowed(f"{error}") from None
    if word in _READS:
        return
    if word not in _WRITES:
        raise not_allowed(
            f"{word[:30]} cannot be shown before it is done: only SELECT, and INSERT, UPDATE or DELETE that end with "
            "RETURNING *, are passed on by this operation"
        )
    if b"--" in sql or b"/*" in sql:
        raise not_allowed(
            "a statement that changes rows has no comments here, and no -- or /* in a string: give it as a value"
        )
    if b";" in sql.rstrip(_BEHIND):
        raise not_allowed(
            "a statement that changes rows stands alone and has a semicolon only at its end here, and none in a string: "
            "give it as a value"
        )
    if not _SHOWS_ALL.search(sql):
        raise not_allowed(
            f"end the {word} with RETURNING *: only what returns all its rows can be shown before it is done"
        )


def given_columns(sql: bytes) -> frozenset[bytes] | None:
    """Return the columns that an INSERT names, or None if its text does not name them.

    >>> sorted(given_columns(b'INSERT INTO a.b (Name, "X""y") VALUES (1, 2) RETURNING *'))
    [b'X"y', b'name']
    """
    found = _INSERTED.match(sql)
    if found is None or _CONFLICT.search(sql):
        return None
    names = [name[1:-1].replace(b'""', b'"') if name[:1] == b'"' else name.lower() for name in _NAMES.findall(found[1])]
    return None if any(len(name) > _MAX_NAME for name in names) else frozenset(names)


def columns_of(description: bytes) -> tuple[Column, ...]:
    """Parse a RowDescription. Raises LoginError if the message is invalid."""
    try:
        (count,) = struct.unpack_from("!h", description)
        found = []
        at = 2
        for _ in range(count):
            end = description.index(b"\0", at)
            table, number, _type, _size, _modifier, is_binary = struct.unpack_from("!IhIhih", description, end + 1)
            if is_binary:
                raise not_allowed("rows come as text in a stream whose effects are shown: ask for result format 0")
            found.append(Column(description[at:end].decode("utf-8", "replace"), table, number))
            at = end + 19
    except (struct.error, ValueError):
        at = -1
    if at != len(description):
        raise LoginError(Problem.PROTOCOL, "the service described rows in a way that is none")
    return tuple(found)


def row_of(body: bytes) -> Row:
    """Parse a DataRow. Raises LoginError if the message is invalid."""
    try:
        (count,) = struct.unpack_from("!h", body)
        values: Row = []
        at = 2
        for _ in range(count):
            (size,) = struct.unpack_from("!i", body, at)
            at += 4
            values.append(None if size < 0 else body[at : at + size])
            at += max(size, 0)
    except struct.error:
        at = -1
    if at != len(body):
        raise LoginError(Problem.PROTOCOL, "the service sent a row that is none")
    return values


def text_of(value: bytes | None) -> str:
    """Return a value of a row as text, as the service formats it; "" for NULL."""
    return "" if value is None else value.decode("utf-8", "replace")


def made(
    write: Write | None,
    columns: Sequence[Column],
    target: Target | None,
    tables: Sequence[Table],
    triggers: Iterable[str],
) -> Effects:
    """Return the effects of a transaction: its write, if it has one, with the changed rows, and the number of changed
    rows in each table. Raises LoginError if the effects exceed the limits.
    """
    return Effects(
        digest=_digest(write, target, tables), text=_bounded(_lines(write, columns, target, tables, triggers))
    )


def _digest(write: Write | None, target: Target | None, tables: Sequence[Table]) -> str:
    hashed = hashlib.sha256(b"aileron-effects-v2\n")

    def add(*parts: bytes | None) -> None:
        hashed.update(struct.pack("!I", len(parts)))
        for part in parts:
            hashed.update(struct.pack("!q", -1) if part is None else struct.pack("!q", len(part)) + part)

    if write is not None and target is not None:
        add(b"write", write.sql, *write.values)
        add(b"settings", *write.settings.digested)
        add(b"columns", write.description)
        add(b"filled", *(str(place).encode() for place in sorted(target.filled)))
        for row in write.rows:
            add(b"row", *(None if place in target.filled else value for place, value in enumerate(row)))
        add(b"tag", write.tag.encode())
    for table in tables:
        add(b"table", table.name.encode(), *(str(count).encode() for count in (table.oid, *table.counts)))
    return f"sha256:{hashed.hexdigest()}"


def _lines(
    write: Write | None,
    columns: Sequence[Column],
    target: Target | None,
    tables: Sequence[Table],
    triggers: Iterable[str],
) -> Iterable[str]:
    if write is None or target is None:
        yield "No row is changed."
        return
    verb = _WRITES[first_word(write.sql)]
    yield f"{_rows(len(write.rows))} of {target.name} {verb}{':' if write.rows else '.'}"
    for row in write.rows:
        cells = [f"{_said(column.name)}: {_value(value)}" for column, value in zip(columns, row, strict=True)]
        own, other = cells[: target.width], cells[target.width :]
        yield "  " + ", ".join(own) + (f" (not in this table: {', '.join(other)})" if other else "")
    if target.filled:
        names = ", ".join(_said(columns[place].name) for place in sorted(target.filled))
        yield f"Filled in anew by the database when it is done: {names}"
    yield from _unlisted(verb, len(write.rows), target, tables)
    if named := ", ".join(_said(trigger) for trigger in triggers):
        yield f"Triggers run, and may do more outside of this database: {named}"


def _unlisted(verb: str, listed: int, target: Target, tables: Sequence[Table]) -> Iterable[str]:
    """Yield lines of text about the changed rows that the service counts in addition to the `listed` rows, which the
    statement returned: in other tables, and in the same table (a trigger, a foreign key to itself, ON CONFLICT).
    """
    own = [
        sum(counts)
        for counts in zip((0, 0, 0), *(table.counts for table in tables if table.root == target.root), strict=True)
    ]
    inserted, updated, deleted = own
    if verb == "updated" and inserted == deleted:  # moved to another partition: such an update counts as both
        own = [0, updated + inserted, 0] if updated + inserted == listed else own
    if any(own) and own != [listed if counted == verb else 0 for counted in _COUNTED]:
        yield f"In all, the database counts {_changed(own)} in {target.name}: not all that changed is listed here"
    for table in tables:
        if table.root != target.root:
            yield f"By rules of the database, and not listed here: {_changed(table.counts)} in {table.name}"


def _changed(counts: Iterable[int]) -> str:
    return ", ".join(f"{_rows(count)} {verb}" for count, verb in zip(counts, _COUNTED, strict=True) if count)


def _bounded(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if len(text.encode()) > MAX_EFFECTS:
        raise _too_large()
    return text


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _said(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: bytes | None) -> str:
    return "NULL" if value is None else _said(value.decode("utf-8", "replace"))
