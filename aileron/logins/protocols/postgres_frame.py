"""Executes all statements of a connector in one transaction, which the connector cannot end.

    greet:  BEGIN [READ ONLY]; SAVEPOINT …
    up:     every statement ──► Parse, whose first word is checked ──► service
    down:   responses, to BEGIN, COMMIT and ROLLBACK as the library expects them
    end:    the connection is closed, and the service rolls back

Runs in the process of one login. Trusts neither end.

Rules
- A statement begins with a word of a closed list, after blanks, comments and semicolons. No word of the list can end a
  transaction block. PREPARE TRANSACTION could, so PREPARE is not on the list.
- Only one statement is executed at a time, and the service ensures that: a simple Query becomes Parse, Bind, Describe,
  Execute, Sync, and Parse takes one statement only. So we need no lexer that knows where a string ends, whatever the session's
  encoding is.
- BEGIN, COMMIT and ROLLBACK from the library are replaced by other statements: a statement without effect, or a rollback to
  the savepoint. If nothing can have been written, the response to COMMIT is "COMMIT"; in a preview it is "ROLLBACK", as in
  PostgreSQL when a commit is impossible.
- A library that had an error outside its own transaction can continue, because the frame is rolled back to its savepoint.
- Messages of our own are inserted between two messages of the connector, never into a message, whose rest would be read as a
  new message.
- If the service reports that no transaction is open, the stream ends. No statement that passes can cause that; this is a
  second check.

Some effects are not undone by any rollback: changes to sequences, the effects of a function outside the database, and advisory
locks until the session ends. A role that only reads has no right to cause these effects (postgres_rights.py).

Source: PostgreSQL's manual, chapters "Message Flow" (extended query), "BEGIN", "SET TRANSACTION". Not here: the choice of the
role (postgres.py).
"""

from __future__ import annotations

import enum
import re
import secrets
import struct
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from aileron.logins.login_messages import LoginError, Problem
from aileron.logins.protocol import Filter, Passed
from aileron.logins.protocols import postgres_wire as wire

__all__ = ["MAX_STATEMENT", "Control", "Frame", "control", "first_word"]

MAX_STATEMENT: Final = 1 << 20
"""Maximum size of a statement in bytes; values belong in its parameters, which have no limit here."""
_MAX_NAMES: Final = 1 << 10
"""Number of bytes that are read from the start of a Bind message, where a portal and a statement are named;
PostgreSQL's own names have at most 63 bytes.
"""
_MAX_WAITING: Final = 10_000
"""Maximum number of responses that the service still owes for messages that a library sent without waiting."""
_MAX_CONTROLS: Final = 1_000
"""Maximum number of prepared statements, and of portals, that are a BEGIN, COMMIT or ROLLBACK."""

_READING: Final = frozenset(
    "CLOSE COPY DECLARE EXPLAIN FETCH MOVE RELEASE RESET ROLLBACK SAVEPOINT SELECT SET SHOW TABLE VALUES WITH".split()
)
"""First words of statements that pass in a read-only transaction, where the service refuses those that write (COPY FROM,
WITH … INSERT).
"""
_WRITING: Final = _READING | frozenset(
    "ALTER ANALYZE CALL COMMENT CREATE DELETE DO DROP GRANT INSERT LOCK MERGE REFRESH REVOKE TRUNCATE UPDATE".split()
)
"""First words of statements whose effects a rollback undoes. DO and CALL cannot commit inside a transaction block."""
_BLANKS: Final = b" \t\n\r\f\v;"
_WORD: Final = re.compile(rb"[A-Za-z]+")
_LINE_COMMENT: Final = re.compile(rb"--[^\r\n]*")
_NESTING: Final = re.compile(rb"/\*|\*/")
_MAX_NESTING: Final = 50

_BEGIN: Final = re.compile(
    r"(?:BEGIN(?: WORK| TRANSACTION)?|START TRANSACTION)"
    r"(?:,? (?:ISOLATION LEVEL READ (?:COMMITTED|UNCOMMITTED)|READ ONLY|READ WRITE|NOT DEFERRABLE))*"
)
_END: Final = re.compile(r"(COMMIT|END|ROLLBACK|ABORT)(?: WORK| TRANSACTION)?(?: AND NO CHAIN)?")
_ROLLBACK_TO: Final = re.compile(r"ROLLBACK(?: WORK| TRANSACTION)? TO\b")
_REFUSED: Final = b"aileron_refused_this_statement"
"""SQL that is sent in place of a refused statement. It is a syntax error, so that the service's error arrives where the response
to the refused statement would.
"""


class Control(enum.Enum):
    """A statement with which a library begins or ends what it regards as its transaction."""

    BEGIN = b"BEGIN"
    COMMIT = b"COMMIT"
    ROLLBACK = b"ROLLBACK"


def _skip(sql: bytes, at: int) -> int:
    """Return the position of the first character, from `at` on, that is not part of a blank, semicolon or comment.
    Raises ValueError for a comment that does not end, or that has too many comments nested in it.

    None of these characters can be part of a multibyte character in any client encoding, because the later bytes of a
    multibyte character are 0x30 or higher.
    """
    while at < len(sql):
        if sql[at] in _BLANKS:
            at += 1
        elif (line := _LINE_COMMENT.match(sql, at)) is not None:
            at = line.end()
        elif sql.startswith(b"/*", at):
            at = _behind_comment(sql, at)
        else:
            break
    return at


def _behind_comment(sql: bytes, at: int) -> int:
    depth = 0
    for found in _NESTING.finditer(sql, at):
        depth += 1 if found[0] == b"/*" else -1
        if not depth:
            return found.end()
        if depth > _MAX_NESTING:
            break
    raise ValueError("a comment has no end, or is nested too deep")


def first_word(sql: bytes) -> str:
    r"""Return the first word of a statement in capitals, or `""` if it has only blanks and comments. Raises ValueError
    if the statement does not start with a word.

    >>> first_word(b"; /* a /* b */ */ -- c\ncommit")
    'COMMIT'
    """
    at = _skip(sql, 0)
    if at == len(sql):
        return ""
    if sql.startswith(b"(", at):
        return "SELECT"
    found = _WORD.match(sql, at)
    if found is None:
        raise ValueError("the statement does not begin with a word")
    end = found.end()
    if end < len(sql) and (sql[end] >= 0x80 or sql[end : end + 1] in (b"_", b"$") or sql[end : end + 1].isdigit()):
        raise ValueError("the statement begins with a name")
    if sql[end : end + 1] in (b"'", b'"', b"&"):
        raise ValueError("the statement begins with a constant or a quoted name")
    return found[0].decode("ascii").upper()


def _words(sql: bytes) -> str:
    """Return the complete statement in capitals, with a blank between its words. Raises ValueError if the statement has
    anything but words and commas.
    """
    found: list[str] = []
    at = _skip(sql, 0)
    while at < len(sql):
        if sql.startswith(b",", at) and found:
            found[-1] += ","
            at += 1
        elif (word := _WORD.match(sql, at)) is not None:
            found.append(word[0].decode("ascii").upper())
            at = word.end()
        else:
            raise ValueError("more than words")
        at = _skip(sql, at)
    return " ".join(found)


def control(sql: bytes) -> Control | None:
    """Return the transaction control (BEGIN, COMMIT or ROLLBACK) that a statement is, or None. Raises ValueError if the
    statement controls transactions in a way that is not supported here.

    >>> control(b"begin transaction")
    <Control.BEGIN: b'BEGIN'>
    """
    word = first_word(sql)
    if word not in ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"):
        return None
    try:
        words = _words(sql)
    except ValueError:
        words = ""
    if _BEGIN.fullmatch(words):
        return Control.BEGIN
    if (ended := _END.fullmatch(words)) is not None:
        return Control.COMMIT if ended[1] in ("COMMIT", "END") else Control.ROLLBACK
    if word == "ROLLBACK" and _is_rollback_to(sql):
        return None
    raise ValueError("only BEGIN, COMMIT and ROLLBACK, READ COMMITTED and without a chain, are answered in this stream")


def _is_rollback_to(sql: bytes) -> bool:
    at = _skip(sql, 0)
    found: list[str] = []
    while len(found) < 3 and (word := _WORD.match(sql, at)) is not None:
        found.append(word[0].decode("ascii").upper())
        at = _skip(sql, word.end())
    return _ROLLBACK_TO.match(" ".join(found)) is not None


class _Checked(NamedTuple):
    sql: bytes
    control: Control | None = None
    refusal: str = ""


class _Cycle:
    """A cycle: the messages from the connector (or of our own) that the service answers with one ReadyForQuery."""

    def __init__(self, kind: str) -> None:
        self.kind: Final = kind
        """Kind of the messages: `query` (simple Query), `extended`, `call` of a function, or `ours` for our own messages,
        which the library never sees.
        """
        self.waits_for_sync = False
        """True for a COPY that came as a simple Query, until the COPY has ended. A Sync sent during the COPY would be
        lost, so it is sent afterwards; until then a Flush makes the service send its responses.
        """
        self.is_copying = False
        """True once a COPY into the service has begun. The service ignores a Sync before the end of the data (COPY
        Operations).
        """
        self.executes: deque[Control | None] = deque()
        self.refusal = ""


class Frame(Filter):
    """The filter that keeps a session, after its start-up, in one transaction. The caller executes the SQL in `begin`
    before the filter gets any bytes.
    """

    def __init__(self, *, only_reads: bool) -> None:
        self._allowed: Final = _READING if only_reads else _WRITING
        self._only_reads: Final = only_reads
        savepoint = f"aileron_{secrets.token_hex(8)}"
        mode = " READ ONLY" if only_reads else ""
        # After a query no transaction can be switched to writing, not even by a client that reads the savepoint's name in
        # pg_stat_activity and releases it.
        self.begin: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED{mode}; SELECT 1; SAVEPOINT {savepoint}"
        self._back: Final = f"ROLLBACK TO SAVEPOINT {savepoint}".encode()
        self._from_client: Final = wire.Cutter(
            {b"Q": MAX_STATEMENT, b"P": MAX_STATEMENT, b"B": _MAX_NAMES, b"E": _MAX_NAMES}, "the connector"
        )
        self._from_server: Final = wire.Cutter({b"Z": 1, b"C": 256, b"E": wire.MAX_MESSAGE}, "the service", runs=b"Dd")
        self._cycles: Final[deque[_Cycle]] = deque()
        self._statements: Final[dict[bytes, Control]] = {}
        self._portals: Final[dict[bytes, Control]] = {}
        self._in_transaction = False
        """True while the library believes that it is in a transaction."""
        self._open: _Cycle | None = None
        """Cycle of the extended query protocol whose Sync the connector has not sent yet; None if there is no such
        cycle.
        """
        self._drops_rest = False
        self._is_inside = False
        """True while the connector has sent the beginning of a message but not its end."""
        self._besides: Final = bytearray()

    def up(self, data: bytes) -> Iterable[Passed]:
        """Check the connector's statements, and pass them or their replacements; pass other messages unchanged."""
        said = bytearray()
        for part in self._from_client.cut(data):
            said += self._of_client(part) if isinstance(part, wire.Head) else part.data
            self._is_inside = not part.is_last
            said += self._due()
        return (Passed(to_server=bytes(said)),)  # as one piece: TCP can delay small pieces

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the service's responses to the library, except those to messages that the library did not send."""
        said = bytearray()
        for part in self._from_server.cut(data):
            if isinstance(part, wire.Head):
                said += self._of_server(part)
            elif not self._drops_rest:
                said += part.data
            self._drops_rest = self._drops_rest and not part.is_last
        return (Passed(to_client=bytes(said), to_server=self._due()),)

    def _due(self) -> bytes:
        """Return our own messages that can be sent to the service now. They are inserted only between two messages of
        the connector, and not before a Sync that the connector still has to send.
        """
        if self._is_inside or self._open is not None:
            return b""
        due = bytes(self._besides)
        self._besides.clear()
        return due

    def _of_client(self, head: wire.Head) -> bytes:
        match head.kind:
            case b"Q":
                return self._simple(_whole(head))
            case b"P":
                return self._parse(_whole(head))
            case b"B":
                self._bind(head)
            case b"E":
                self._execute(head)
            case b"D" | b"C":
                self._extended()
            case b"S":
                self._extended()
                self._open = None
            case b"F":
                self._begin_cycle("call")
            case b"c" | b"f":
                self._copied()
            case b"H" | b"d" | b"X":
                pass
            case _:
                raise _not_allowed(f"a message {head.kind!a} is not passed on in a transaction that is kept open")
        return head.header + head.body

    def _copied(self) -> None:
        """Handle the end of the data that the connector copies into a table."""
        cycle = self._cycles[-1] if self._cycles else None
        if cycle is None or self._open is not None:
            return
        if cycle.waits_for_sync:
            self._besides.extend(wire.message(b"H"))
        elif cycle.is_copying and cycle.kind == "extended":
            self._open = cycle

    def _simple(self, body: bytes) -> bytes:
        sql, end, more = body.partition(b"\0")
        if not end or more:
            raise _not_allowed("a statement has no end, or something behind it")
        checked = self._check(sql)
        cycle = self._begin_cycle("query")
        cycle.executes.append(checked.control)
        cycle.refusal = checked.refusal
        cycle.waits_for_sync = not checked.refusal and first_word(sql) == "COPY"
        self._statements.pop(b"", None)
        self._portals.pop(b"", None)
        return (
            wire.message(b"P", b"\0" + checked.sql + b"\0\0\0")
            + wire.message(b"B", b"\0\0" + struct.pack("!hhh", 0, 0, 0))
            + wire.message(b"D", b"P\0")
            + wire.message(b"E", b"\0" + struct.pack("!i", 0))
            + wire.message(b"H" if cycle.waits_for_sync else b"S")
        )

    def _parse(self, body: bytes) -> bytes:
        cycle = self._extended()
        name, _, rest = body.partition(b"\0")
        sql, end, types = rest.partition(b"\0")
        if not end:
            raise _not_allowed("a statement has no end")
        checked = self._check(sql)
        cycle.refusal = cycle.refusal or checked.refusal
        if checked.control is not None:
            if len(self._statements) >= _MAX_CONTROLS:
                raise _not_allowed(f"more than {_MAX_CONTROLS} prepared statements control transactions")
            self._statements[name] = checked.control
            types = b"\0\0"
        else:
            self._statements.pop(name, None)
        return wire.message(b"P", name + b"\0" + checked.sql + b"\0" + types)

    def _bind(self, head: wire.Head) -> None:
        self._extended()
        parts = head.body.split(b"\0", 2)
        if len(parts) < 3:
            raise _not_allowed(f"the names of a portal and a statement have more than {_MAX_NAMES} bytes")
        portal, statement = parts[:2]
        found = self._statements.get(statement)
        self._portals.pop(portal, None)
        if found is not None:
            if len(self._portals) >= _MAX_CONTROLS:
                raise _not_allowed(f"more than {_MAX_CONTROLS} portals control transactions")
            self._portals[portal] = found

    def _execute(self, head: wire.Head) -> None:
        cycle = self._extended()
        if len(cycle.executes) >= _MAX_WAITING:
            raise _too_much()
        cycle.executes.append(self._portals.get(_whole(head).partition(b"\0")[0]))

    def _check(self, sql: bytes) -> _Checked:
        """Return the statement to send to the service: `sql`, or a replacement if `sql` is refused, or begins or ends a
        transaction.
        """
        try:
            word = first_word(sql)
            found = control(sql)
        except ValueError as error:
            return _Checked(_REFUSED, refusal=f"{error}")
        if found is Control.BEGIN:
            return _Checked(b"CLOSE ALL", found)  # has no effect: no cursor outlives the previous transaction
        if found is not None:
            return _Checked(self._back, found)
        if word and word not in self._allowed:
            kept = "only reads" if self._only_reads else "is rolled back"
            return _Checked(_REFUSED, refusal=f"{word[:30]} is not passed on in a transaction that {kept}")
        return _Checked(sql)

    def _begin_cycle(self, kind: str) -> _Cycle:
        if self._open is not None:
            raise _not_allowed("a simple query came before the Sync of an extended one")
        return self._push(kind)

    def _push(self, kind: str) -> _Cycle:
        if len(self._cycles) >= _MAX_WAITING:
            raise _too_much()
        cycle = _Cycle(kind)
        self._cycles.append(cycle)
        return cycle

    def _extended(self) -> _Cycle:
        if self._open is None:
            self._open = self._push("extended")
        return self._open

    def _of_server(self, head: wire.Head) -> bytes:
        self._drops_rest = False
        cycle = self._cycles[0] if self._cycles else None
        if head.kind == b"Z":
            return self._ready(head.body)
        if head.kind in (b"N", b"S", b"A") or cycle is None:
            return head.header + head.body
        if cycle.kind == "ours" or (cycle.kind == "query" and head.kind in (b"1", b"2", b"n")):
            self._drops_rest = True
            return b""
        if cycle.waits_for_sync and head.kind in (b"C", b"E"):
            cycle.waits_for_sync = False
            self._besides.extend(wire.message(b"S"))
        cycle.is_copying = cycle.is_copying or head.kind in (b"G", b"W")
        return self._answer(cycle, head)

    def _answer(self, cycle: _Cycle, head: wire.Head) -> bytes:
        """Return a message of the service as the library gets it: unchanged, or replaced if the statement was replaced."""
        as_it_is = head.header + head.body
        if head.kind == b"E":
            cycle.executes.clear()  # the service skips all messages up to the Sync
            if not cycle.refusal:
                return as_it_is
            self._drops_rest = True
            return wire.error_response("0A000", f"aileron: {cycle.refusal}", fatal=False)
        if head.kind not in (b"C", b"I", b"s") or not cycle.executes:
            return as_it_is
        done = cycle.executes.popleft()
        if head.kind != b"C" or done is None:
            return as_it_is
        self._in_transaction = done is Control.BEGIN
        self._drops_rest = True
        can_have_written = done is Control.COMMIT and not self._only_reads
        return wire.message(b"C", (Control.ROLLBACK if can_have_written else done).value + b"\0")

    def _ready(self, status: bytes) -> bytes:
        if status not in (b"T", b"E"):
            raise _not_allowed("the service says that the transaction is over, which was to be kept open")
        cycle = self._cycles.popleft() if self._cycles else None
        if cycle is None:
            raise LoginError(Problem.PROTOCOL, "the service is ready again without having been asked")
        if cycle.kind == "ours":
            if status == b"E":
                raise LoginError(Problem.CLOSED, "the transaction could not be rolled back to its beginning")
            return b""
        if self._in_transaction:
            return wire.ready(status)
        if status == b"E":
            self._push("ours")
            self._besides.extend(wire.message(b"Q", self._back + b"\0"))
        return wire.ready(b"I")


def _whole(head: wire.Head) -> bytes:
    if not head.is_last:
        raise _not_allowed(f"a statement has {head.size} bytes; at most {MAX_STATEMENT} are passed on here")
    return head.body


def _not_allowed(message: str) -> LoginError:
    return LoginError(Problem.NOT_ALLOWED, message)


def _too_much() -> LoginError:
    return _not_allowed(f"more than {_MAX_WAITING} answers of the service were not waited for")
