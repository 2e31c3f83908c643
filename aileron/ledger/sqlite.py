"""The ledger in SQLite: events, runs, approvals, idempotency keys. The file, its only writer, and its readers.

Runs in the daemon; `open_stored` also in a verifier of its own, without a daemon. Trusts the disk to keep what it reported as
flushed, and nothing about an existing file: owner, mode, application, schema version, triggers and the newest row are checked
before it is used. One file, mode 0600, write-ahead log, synchronous=FULL: a commit is on disk when it returns.

Rules
- Events are only ever added. The hash chain is computed in the writer's thread, which decides the order, from the
  newest row in the file. So a second writer could not fork the chain.
- A state changes by compare-and-set inside one transaction: of two racing callers one wins, the other gets the current state.
- Nothing is half written: if a function fails, its writes alone are undone; if a group fails, the whole group is
  undone, and the next group starts from the contents of the file. So the ledger recovers from a full disk by itself
  once there is room. After a failed flush or a damaged page the contents are uncertain, and every later call is refused
  until the daemon is started again (PostgreSQL has the same rule: data that a failed fsync left in the page cache
  cannot be trusted).
- No sqlite3 exception leaves this module: callers get AileronError, or GroupFailed inside the writer.

Source: https://www.sqlite.org/wal.html, /lang_savepoint.html, /rescode.html. Not here: what the events mean (audit/), which
transitions are legal (runs/states.py), how groups are formed (writer.py), the tables (schema.py), reads of current states
(states.py).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from aileron.ledger.chain import (
    FILTERED,
    NO_HASH,
    Head,
    StoredClaim,
    StoredRow,
    claim_digest,
    columns_of,
    link,
    make_record,
)
from aileron.ledger.recorded import E, Recorded, recorded, tag_of
from aileron.ledger.rows import ApprovalRow, ApprovalState, CandidateRow, EventFilter, EventRow, RecordRow, RunRow
from aileron.ledger.schema import (
    APPLICATION_ID,
    MIGRATIONS,
    SCHEMA_VERSION,
    readable,
    script_of,
    unexpected_objects,
)
from aileron.ledger.states import (
    APPROVAL_COLUMNS,
    IDEMPOTENCY_KEPT_US,
    RUN_COLUMNS,
    States,
    already,
    approval_row,
    run_row,
)
from aileron.ledger.writer import GroupFailed, GroupWriter
from aileron.model.decision import Signature
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.outcome import RunStatus

if TYPE_CHECKING:
    import anyio

__all__ = [
    "MAX_PAGE_BYTES",
    "MAX_ROWS",
    "Ledger",
    "Snapshot",
    "StoredLedger",
    "Transaction",
    "events_query",
    "open_stored",
]

MAX_RECORD_BYTES: Final = 4 << 20
"""4 MiB: maximum size of a record. A run's arguments come in a request of at most 1 MiB, and JSON escapes can multiply it."""
MAX_ROWS: Final = 1000
"""Maximum number of events per page; a caller that needs more events requests further pages by row number."""
MAX_PAGE_BYTES: Final = 8 << 20
"""8 MiB: maximum size of the records in a page of events.

A thousand usual records have 1 MiB; a thousand of the largest must not be in memory at once.
"""
READERS: Final = 4
"""Maximum number of connections for reading, each used by one thread at a time. With several, a slow search does not
delay a status poll; two cores are enough for four.
"""
READ_DEADLINE_S: Final = 10.0
"""Seconds until a read is stopped: a search through a million events takes well under one second."""
_SOME: Final = 500
"""Maximum number of rows that are counted for each of a filter's conditions, to find the condition that the fewest rows
meet.

Counting takes 20 µs, and avoids reading rows that do not match.
"""
BUSY_TIMEOUT_S: Final = 5.0
"""Seconds to wait for a lock that another program holds on the file (a backup, a person with the sqlite3 shell).
Aileron's own processes never hold such a lock.
"""
WAL_PAGES: Final = 1000
"""Number of pages (4 KiB) in the write-ahead log before they are copied into the file: SQLite's default, 4 MiB."""

_RECORD: Final = 2 + len(FILTERED)
"""Index of the column `record` in a row of the table of events."""
_HEAD: Final = "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1"
_LATEST: Final = "SELECT max(at_us) FROM events"
_NEVER_US: Final = 2**62
"""A time in microseconds that is later than every time in the ledger."""
_PAIRS: Final = (("class", "action"), ("class", "connector"), ("action", "connector"))
"""Pairs of columns of the table of events that have a joint index, in order of preference: a query uses the first pair
for which its filter has both conditions.
"""
_IN_TIME: Final = "NOT EXISTS (SELECT 1 FROM set_back WHERE set_back.seq = events.seq)"
_FIRST_SINCE: Final = (
    f"SELECT seq FROM events INDEXED BY events_at WHERE at_us >= ? AND {_IN_TIME} ORDER BY at_us, seq LIMIT 1"  # noqa: S608
)
_LAST_UNTIL: Final = (
    f"SELECT seq FROM events INDEXED BY events_at WHERE at_us < ? AND {_IN_TIME} ORDER BY at_us DESC, seq DESC LIMIT 1"  # noqa: S608
)
_LAST_BEHIND_UNTIL: Final = "SELECT max(seq) FROM set_back WHERE at_us < ?"

_FATAL: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
_FATAL_PRIMARY: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""SQLite errors after which no content of the file can be relied on."""
_INACCESSIBLE: Final = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
    }
)
"""SQLite errors that mean only that the file could not be accessed, and nothing about its contents."""
_DATABASE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of the sqlite3 module. A message about a damaged page may quote its bytes, which are then not valid text."""
_ALONE: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
"""SQLite errors that fail only one statement. Any other error may have rolled back the whole transaction
(lang_transaction.html, section 3).
"""

T = TypeVar("T")


class Snapshot(States):
    """A view of the ledger for reading, which stays the same for all calls of one function. Only the ledger creates it."""

    def head(self) -> Head:
        """Return the number and hash of the newest event. Every ledger has at least the genesis row."""
        return Head(*self._db.execute(_HEAD).fetchone())

    def approved_before(self, action: str, before_run: str, limit: int) -> list[ApprovalRow]:
        """Return at most `limit` used approvals of runs of this action other than `before_run`, the newest first.

        If `before_run` itself was decided, return only approvals that were decided until then.
        """
        rows = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals INDEXED BY approvals_used"  # noqa: S608 - constants
            " WHERE state = 'redeemed' AND kind = 'action' AND name = ? AND run <> ? AND decided_us <="
            " coalesce((SELECT a.decided_us FROM runs r JOIN approvals a ON a.id = r.approval WHERE r.id = ?), ?)"
            " ORDER BY decided_us DESC LIMIT ?",
            (action, before_run, before_run, _NEVER_US, limit),
        )
        return [approval_row(row) for row in rows]

    def count_asked(self, session: str, since_us: int = 0) -> int:
        """Return the number of runs that a session requested since `since_us`."""
        counted = "SELECT count(*) FROM runs INDEXED BY runs_session WHERE session = ? AND created_us >= ?"
        count: int = self._db.execute(counted, (session, since_us)).fetchone()[0]
        return count

    def events(self, wanted: EventFilter) -> list[EventRow]:
        """Return one page of the events that match a filter, with the limits of `records`."""
        return [EventRow(row.seq, msgspec.json.decode(row.record), row.hash) for row in self.records(wanted)]

    def events_of(self, kind: type[E], wanted: EventFilter) -> list[Recorded[E]]:
        """Return one page of the matching events of one type, read as that type."""
        of_kind = msgspec.structs.replace(wanted, type=tag_of(kind))
        return [recorded(row.facts, kind) for row in self.events(of_kind)]

    def records(self, wanted: EventFilter) -> list[RecordRow]:
        """Return one page of the events that match a filter, with their hashes: at most MAX_ROWS, and none after
        MAX_PAGE_BYTES are reached.

        So a page can be shorter than `limit` before the end; only an empty page means the end.
        """
        sql, values = events_query(wanted, self._rarest(wanted))
        page: list[RecordRow] = []
        size = 0
        for row in self._db.execute(sql, values):
            page.append(RecordRow(*row))
            size += len(row[1])
            if size >= MAX_PAGE_BYTES:
                break
        return page

    def _rarest(self, wanted: EventFilter) -> str | None:
        """Return the column of the filter's condition that the fewest rows meet, estimated by counting at most _SOME
        rows for each; None if no choice is needed.
        """
        given = {column: value for column, value in _equal(wanted).items() if value is not None}
        if len(given) < 2 or "run" in given or _index_of_two(given):
            return None
        return min(given, key=lambda column: self._count_some(column, given[column]))

    def _count_some(self, column: str, value: str) -> int:
        found = self._db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY events_{column} WHERE {column} = ? LIMIT {_SOME})",  # noqa: S608
            (value,),
        )
        count: int = found.fetchone()[0]
        return count


class Transaction(States):
    """The transaction of a group of functions, which the writer runs one after the other and which read and write the
    ledger. Only the ledger creates a transaction.

    Events are chained at once and written together in one statement when the group ends. A function's first write other
    than an event sets a savepoint, with which the function can be undone. A function that only appends events needs no
    savepoint, because its rows can be dropped.
    """

    def __init__(self, connection: sqlite3.Connection, head: Head, latest_us: int, clock: Callable[[], int]) -> None:
        super().__init__(connection)
        self._head = head
        self._latest_us = latest_us
        self._behind: list[tuple[int, int]] = []
        self._clock = clock
        self._rows: list[tuple[Any, ...]] = []
        self._claims: dict[str, str] = {}
        self._has_savepoint = False
        self.now_us = clock()
        """Time of the running function in microseconds since the epoch, constant throughout that function."""

    def head(self) -> Head:
        """Return the number and hash of the newest event, including events of this transaction."""
        return self._head

    def append(self, facts: JSONObject) -> int:
        """Add one event to the chain; return its number. `facts` are JSON values that include `type`.

        If the function took an idempotency key for a run, its first event about that run names the key (`claim`).
        Raises AileronError(invalid_request) if the facts have no canonical form or make more than MAX_RECORD_BYTES.
        """
        seq = self._head.seq + 1
        if self._claims and (claim := self._claims.pop(str(facts.get("run")), None)) is not None:
            facts = {**facts, "claim": claim}
        try:
            record = make_record(seq, self.now_us, facts)
        except ValueError as error:
            raise AileronError(FailureClass.INVALID_REQUEST, f"cannot be recorded: {error}") from error
        if len(record) > MAX_RECORD_BYTES:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"cannot be recorded: {len(record)} bytes, at most {MAX_RECORD_BYTES} fit one record",
            )
        digest = link(self._head.hash, record)
        self._rows.append((seq, self.now_us, *columns_of(facts), record.decode(), self._head.hash, digest))
        self._head = Head(seq, digest)
        if self.now_us < self._latest_us:
            self._behind.append((seq, self.now_us))
        else:
            self._latest_us = self.now_us
        return seq

    def insert_run(self, row: RunRow) -> None:
        """Insert a run with the current time as its time of creation."""
        self._write(
            "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(row.id, row.action, row.session, row.scope.value, row.status.value, row.plan_digest),
                *(row.approval, row.connector, self.now_us, self.now_us, row.outcome),
            ),
        )

    def move_run(
        self,
        run_id: str,
        expected: Collection[RunStatus],
        new: RunStatus,
        *,
        connector: str | None = None,
        outcome: bytes | None = None,
    ) -> RunRow:
        """Set a run's status to `new`, with `connector` and `outcome` if given, if its current status is in `expected`.
        Return the updated run.

        Raises AileronError(not_found), or (already_decided) with `details.status` if its status is not in `expected`.
        """
        row = self._write(
            f"UPDATE runs SET status = ?, changed_us = ?, connector = coalesce(?, connector),"  # noqa: S608 - constants
            f" outcome = coalesce(?, outcome) WHERE id = ? AND status IN ({_marks(expected)}) RETURNING {RUN_COLUMNS}",
            (new.value, self.now_us, connector, outcome, run_id, *expected),
        ).fetchone()
        if row is not None:
            return run_row(row)
        found = self._db.execute("SELECT status FROM runs WHERE id = ?", (run_id,)).fetchone()
        raise _not_found("run", run_id) if found is None else already("run", run_id, found[0])

    def insert_approval(self, row: ApprovalRow, subject: bytes) -> None:
        """Insert a question to a person with the current time as its time of creation. `subject` has the exact bytes of
        the question's subject, such as the frozen plan.
        """
        values = {
            **msgspec.structs.asdict(row),
            "state": row.state.value,
            "created_us": self.now_us,
            "subject": subject,
        }
        self._write(f"INSERT INTO approvals ({', '.join(values)}) VALUES ({_marks(values)})", tuple(values.values()))  # noqa: S608

    def decide_approval(
        self,
        approval_id: str,
        new: ApprovalState,
        *,
        digest: str,
        preview: str | None,
        reason: str | None,
        surface: str,
        signed: Signature | None,
        expires_us: int,
    ) -> ApprovalRow:
        """Store a person's decision on a question that is still pending, with the current time. `digest` is the digest
        of the question or candidate that was decided. Return the updated approval.

        Raises AileronError as `move_approval`.
        """
        key_id, at, signature, head, head_signature = (None,) * 5 if signed is None else msgspec.structs.astuple(signed)
        row = self._write(
            "UPDATE approvals SET state = ?, decided_us = ?, asked = CASE WHEN digest = ? THEN NULL ELSE digest END,"  # noqa: S608
            " digest = ?, preview = ?, reason = ?, surface = ?, key_id = ?, signed_at = ?, signature = ?, head = ?,"
            f" head_signature = ?, expires_us = ? WHERE id = ? AND state = 'pending_approval' RETURNING {APPROVAL_COLUMNS}",
            (
                *(new.value, self.now_us, digest, digest, preview, reason, surface),
                *(key_id, at, signature, head, head_signature, expires_us, approval_id),
            ),
        ).fetchone()
        if row is not None:
            return approval_row(row)
        raise self._lost_approval(approval_id)

    def insert_candidate(self, approval_id: str, candidate: CandidateRow, subject: bytes | None) -> None:
        """Insert a candidate: an additional digest that a decision on a question can be about. `subject` is the
        candidate's frozen plan, or None if the plan is already stored under another digest of the question.
        """
        self._write(
            "INSERT INTO candidates VALUES (?,?,?,?,?,?)",
            (approval_id, candidate.digest, candidate.plan_digest, candidate.preview, self.now_us, subject),
        )

    def insert_round(self, approval_id: str, number: int, question: str) -> None:
        """Insert a person's question to the agent about the run that waits for this approval."""
        self._write("INSERT INTO conversation VALUES (?,?,?,NULL)", (approval_id, number, question))

    def answer_round(self, approval_id: str, number: int, answer: str) -> None:
        """Store the agent's answer to the person's question with this number, which must be open."""
        self._write(
            "UPDATE conversation SET answer = ? WHERE approval = ? AND number = ? AND answer IS NULL",
            (answer, approval_id, number),
        )

    def use_grant(self, grant_id: str, uses: int) -> int | None:
        """Count one use of a standing grant that allows `uses` in all. Return the number of this use, from 1.

        Return None if no use is left, or the grant was revoked.
        """
        row = self._write(
            "INSERT INTO grant_uses VALUES (?, 1, NULL) ON CONFLICT (id) DO UPDATE SET used = used + 1"
            " WHERE used < ? AND revoked_us IS NULL RETURNING used",
            (grant_id, uses),
        ).fetchone()
        return row[0] if row is not None else None

    def revoke_grant(self, grant_id: str) -> None:
        """Record that a standing grant is revoked and allows no further use."""
        self._write(
            "INSERT INTO grant_uses VALUES (?, 0, ?) ON CONFLICT (id)"
            " DO UPDATE SET revoked_us = coalesce(revoked_us, excluded.revoked_us)",
            (grant_id, self.now_us),
        )

    def newest(self, kind: type[E]) -> Recorded[E] | None:
        """Return the newest event of a type, including events of this transaction; None if there is none."""
        tag = tag_of(kind)
        for row in reversed(self._rows):
            if row[2] == tag:
                return recorded(msgspec.json.decode(row[_RECORD]), kind)
        return super().newest(kind)

    def all_of(self, kind: type[E], after: int) -> list[Recorded[E]]:
        """Return every event of a type after row `after`, including events of this transaction, oldest first."""
        tag = tag_of(kind)
        here = [msgspec.json.decode(row[_RECORD]) for row in self._rows if row[2] == tag and row[0] > after]
        return [*super().all_of(kind, after), *(recorded(facts, kind) for facts in here)]

    def move_approval(
        self,
        approval_id: str,
        expected: Collection[ApprovalState],
        new: ApprovalState,
        *,
        reason: str | None = None,
        surface: str | None = None,
    ) -> ApprovalRow:
        """Set an approval's state to `new` if its current state is in `expected`; `decided_us` is set only the first
        time. Return the updated approval.

        Raises AileronError(not_found), or (already_decided) with `details.status` if its state is not in `expected`.
        """
        row = self._write(
            f"UPDATE approvals SET state = ?, decided_us = coalesce(decided_us, ?), reason = coalesce(?, reason),"  # noqa: S608
            f" surface = coalesce(?, surface) WHERE id = ? AND state IN ({_marks(expected)}) RETURNING {APPROVAL_COLUMNS}",
            (new.value, self.now_us, reason, surface, approval_id, *expected),
        ).fetchone()
        if row is not None:
            return approval_row(row)
        raise self._lost_approval(approval_id)

    def _lost_approval(self, approval_id: str) -> AileronError:
        found = self.approval(approval_id)
        return _not_found("approval", approval_id) if found is None else self.already(found)

    def claim(self, session: str, key: str, digest: str, run_id: str) -> str | None:
        """Store that the run `run_id` has this idempotency key of the session, and return None. If another run already
        has the key, store nothing and return that run's id.

        Deletes keys older than IDEMPOTENCY_KEPT_US.

        Raises AileronError(idempotency_conflict) if the key was used with another `digest`.
        """
        self._write("DELETE FROM idempotency WHERE claimed_us <= ?", (self.now_us - IDEMPOTENCY_KEPT_US,))
        holder = self.claimed(session, key, digest, self.now_us)
        if holder is None:
            self._write("INSERT INTO idempotency VALUES (?,?,?,?,?)", (session, key, digest, run_id, self.now_us))
            self._claims[run_id] = claim_digest(session, key, digest)
        return holder

    def _write(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        if not self._has_savepoint:
            self._db.execute("SAVEPOINT work")
            self._has_savepoint = True
        return self._db.execute(sql, values)

    # For _Store, which runs one function after another in the same transaction.

    def _begin_work(self) -> tuple[Head, int, int, int]:
        self.now_us = self._clock()
        self._claims.clear()
        return self._head, self._latest_us, len(self._rows), len(self._behind)

    def _keep_work(self) -> None:
        if self._has_savepoint:
            self._db.execute("RELEASE work")
            self._has_savepoint = False

    def _undo_work(self, mark: tuple[Head, int, int, int]) -> None:
        self._head, self._latest_us, rows, behind = mark
        del self._rows[rows:]
        del self._behind[behind:]
        if self._has_savepoint:
            self._db.execute("ROLLBACK TO work")
            self._keep_work()

    def _write_events(self) -> None:
        self._db.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?)", self._rows)
        self._rows.clear()
        if self._behind:
            self._db.executemany("INSERT INTO set_back VALUES (?,?)", self._behind)
            self._behind.clear()


class Ledger:
    """An open ledger, one per daemon. The owner must `close` the ledger, or use it in a `with`."""

    def __init__(self, path: Path, store: _Store, clock: Callable[[], int]) -> None:
        self.path: Final = path
        self.now_us: Final = clock
        """The clock of this ledger, as a function: microseconds since the epoch, UTC."""
        self._store = store
        self._writer: GroupWriter[Transaction] = GroupWriter(store)
        self._readers = _Readers(path)
        self._news: anyio.Event | None = None

    @classmethod
    def open(cls, path: Path, home: Path, version: str, *, clock: Callable[[], int] | None = None) -> Self:
        """Open the ledger at `path`. If the file is missing, create it with a genesis row that names `home` and `version`.

        `clock` gives microseconds since the epoch. Raises AileronError with the reason if the file is refused.
        """
        _check_file(path)
        clock = clock or _wall_clock_us
        with _translated(path):
            connection = _connect(path)
        try:
            with _translated(path):
                _prepare(connection, path, home, version, clock)
            return cls(path, _Store(connection, path, clock), clock)
        except BaseException:
            connection.close()
            raise

    async def commit(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which reads and writes the ledger, in the writer's thread, separately from other callers'
        functions. Return its result when its writes are on disk.

        Raises the error of `work`, whose writes are then undone. Raises AileronError(busy) if too many functions wait,
        and AileronError(internal_error) if the disk is full or fails: then nothing is written, and the caller must not
        continue. A cancelled caller's work is committed nevertheless.
        """
        try:
            return await self._writer.commit(work)
        finally:
            if self._news is not None:
                self._news.set()
                self._news = None

    def commit_later(self, work: Callable[[Transaction], object]) -> None:
        """Run `work` before the next function that any caller commits, in the same commit. If no function is committed
        within 20 ms, run `work` by itself then.

        No other work may depend on `work`.

        Raises AileronError(busy), (internal_error) as `commit`; if `work` could not be written, the next caller gets
        the error.
        """
        self._writer.commit_later(work)

    def news(self) -> anyio.Event:
        """Return an event that is set when the ledger is written after this call.

        Get the event, then read, then wait for the event.

        In this order no write is missed. The event does not tell which rows were written, and may be set without a write.
        """
        if self._news is None:
            import anyio

            self._news = anyio.Event()
        return self._news

    def commit_now(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` and return its result when its writes are on disk, for a caller without an event loop. Blocks the
        thread.
        """
        return self._writer.commit_now(work)

    async def read(self, look: Callable[[Snapshot], T]) -> T:
        """Run `look` in a separate thread with one consistent view of the ledger, and return its result. Raises
        AileronError(busy) after READ_DEADLINE_S.
        """
        return await self._readers.read(look)

    def read_now(self, look: Callable[[Snapshot], T]) -> T:
        """Run `look` with one consistent view of the ledger, and return its result, for a caller without an event loop.
        Blocks the thread.
        """
        return self._readers.read_now(look)

    def close(self) -> None:
        """Run all waiting functions, then close the ledger. Later calls are refused. Blocks until the last write is on
        disk. Calling it again does nothing.
        """
        self._readers.close()  # first: the last connection to close empties the write-ahead log, and must be able to write
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Store:
    """The writer's side of the database. Only the writer's thread uses it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Callable[[], int]) -> None:
        self._db = connection
        self._path = path
        self._clock = clock
        self._broken: Failure | None = None

    def begin(self) -> Transaction:
        if self._broken is not None:
            raise GroupFailed(self._broken)
        with self._group_fails():
            self._db.execute("BEGIN IMMEDIATE")
            newest = self._db.execute(_HEAD).fetchone()
            latest = self._db.execute(_LATEST).fetchone()
        if newest is None:
            raise GroupFailed(_damaged(self._path, "every row is gone").failure)
        return Transaction(self._db, Head(*newest), latest[0], self._clock)

    def attempt(self, transaction: Transaction, work: Callable[[Transaction], T]) -> T:
        mark = transaction._begin_work()
        try:
            value = work(transaction)
            transaction._keep_work()
        except Exception as error:
            alone = isinstance(error, _ALONE) or not isinstance(error, _DATABASE_ERRORS)
            if not alone or not self._db.in_transaction:
                raise GroupFailed(self._failure(error)) from error
            with self._group_fails():
                transaction._undo_work(mark)
            if isinstance(error, sqlite3.Error):
                raise AileronError(FailureClass.INTERNAL_ERROR, f"the ledger refused a row: {error}") from error
            raise
        return value

    def commit(self, transaction: Transaction) -> None:
        with self._group_fails():
            transaction._write_events()
            self._db.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _group_fails(self) -> Iterator[None]:
        try:
            yield
        except _DATABASE_ERRORS as error:
            raise GroupFailed(self._failure(error)) from error

    def _failure(self, error: Exception) -> Failure:
        failure = _failure_of(error, self._path)
        if failure.details.get("cause") == "damaged":
            self._broken = failure
        return failure


class _Readers:
    """Pool of at most READERS read-only connections, which are opened when first needed. Each thread borrows one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # guards _idle and _closed, so that no connection is left behind by `close`
        self._idle: list[_Reader] = []
        self._closed = False
        import anyio  # not needed to read a stored ledger: `aileron audit verify`

        self._threads = anyio.CapacityLimiter(READERS)

    async def read(self, look: Callable[[Snapshot], T]) -> T:
        from aileron.threads import in_thread

        try:
            return await in_thread(self.read_now, look, limiter=self._threads)
        except OSError as error:
            message = f"{self._path} cannot be read now ({error.strerror}): try again"
            raise AileronError(FailureClass.BUSY, message, retriable=True) from error

    def read_now(self, look: Callable[[Snapshot], T]) -> T:
        reader = self._borrow()
        try:
            with _translated(self._path):
                return reader.read(look)
        finally:
            self._give_back(reader)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def _borrow(self) -> _Reader:
        with self._lock:
            if self._closed:
                raise AileronError(FailureClass.INTERNAL_ERROR, "the ledger is closed: the daemon is stopping")
            if self._idle:
                return self._idle.pop()
        with _translated(self._path):
            return _Reader(self._path)

    def _give_back(self, reader: _Reader) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(reader)
                return
        reader.close()


class _Reader:
    """A read-only connection whose reads have a deadline."""

    def __init__(self, path: Path) -> None:
        self._db = _connect(path, query="mode=ro")
        self._db.execute("PRAGMA query_only = ON")
        self._deadline = 0.0
        # Called every 20,000 steps of SQLite's machine, some hundred microseconds; a non-zero result interrupts it.
        self._db.set_progress_handler(lambda: time.monotonic() > self._deadline, 20_000)

    def read(self, look: Callable[[Snapshot], T]) -> T:
        self._deadline = time.monotonic() + READ_DEADLINE_S
        self._db.execute("BEGIN")
        try:
            return look(Snapshot(self._db))
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()


class StoredLedger:
    """A stored ledger file for a verifier, with nothing verified yet. Created by `open_stored`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, version: int, is_immutable: bool) -> None:
        self._db = connection
        self._path = path
        self._version = version
        self._is_immutable = is_immutable

    def is_stale(self) -> bool:
        """Return whether a process has begun to write to the file, which had no writer when it was opened. Reads may
        then be inconsistent.
        """
        return self._is_immutable and _has_log(self._path)

    def rows(self) -> Iterator[StoredRow]:
        """Yield every event in order of its number, whatever its fields hold."""
        with _translated(self._path):
            for seq, at_us, *columns, record, previous, digest in self._db.execute(
                "SELECT seq, at_us, type, run, session, action, connector, class, record, previous, hash"
                " FROM events ORDER BY seq"
            ):
                yield StoredRow(
                    seq, at_us, tuple(map(readable, columns)), _bytes(record), _bytes(previous), _bytes(digest)
                )

    def outcome(self, run_id: str) -> bytes | None:
        """Return the stored outcome of a run; None if none is stored."""
        return self._one("SELECT outcome FROM runs WHERE id = ?", run_id)

    def subject(self, approval_id: str) -> bytes | None:
        """Return the stored subject of an approval; None if none is stored."""
        return self._one("SELECT subject FROM approvals WHERE id = ?", approval_id)

    def run(self, run_id: str) -> dict[str, object] | None:
        """Return the row of a run as a dictionary by column, without the outcome."""
        return self._row(RUN_COLUMNS.removesuffix(", outcome"), "runs", run_id)

    def approval(self, approval_id: str) -> dict[str, object] | None:
        """Return the row of an approval as a dictionary of the columns in its schema, without the subject."""
        columns = APPROVAL_COLUMNS if self._version >= 3 else APPROVAL_COLUMNS.partition(", name")[0]
        return self._row(columns, "approvals", approval_id)

    def candidates(self, approval_id: str) -> list[dict[str, object]]:
        """Return the rows of the candidates, which are the additional digests that a decision on this question can be
        about, with their subjects, in the order of insertion.
        """
        return self._belonging("digest, plan_digest, preview, made_us, subject", "candidates", "rowid", approval_id)

    def conversation(self, approval_id: str) -> list[dict[str, object]]:
        """Return the rows of the person's questions to the agent about an approval, with the agent's answers, in order."""
        return self._belonging("number, question, answer", "conversation", "number", approval_id)

    def grant_uses(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the id of every used or revoked standing grant, its number of uses, and the time of its revocation, if
        any.
        """
        if self._version < 3:
            return
        with _translated(self._path):
            for row in self._db.execute("SELECT id, used, revoked_us FROM grant_uses"):
                yield readable(row[0]), row[1], row[2]

    def hash_of(self, seq: int) -> bytes | None:
        """Return the stored hash of the event with this number; None if there is no such event."""
        with _translated(self._path):
            row = self._db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else _bytes(row[0])

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table, by the table's name: runs and approvals, and from schema 3 on also
        candidates and conversations.
        """
        tables = ("runs", "approvals") if self._version < 3 else ("runs", "approvals", "candidates", "conversation")
        with _translated(self._path):
            return {name: self._db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}  # noqa: S608

    def claims(self) -> Iterator[StoredClaim]:
        """Yield every stored idempotency key."""
        with _translated(self._path):
            for row in self._db.execute(
                "SELECT i.session, i.key, i.digest, i.run, i.claimed_us, r.session, r.created_us"
                " FROM idempotency i LEFT JOIN runs r ON r.id = i.run"
            ):
                yield StoredClaim(*map(readable, row))

    def set_back(self) -> Iterator[tuple[Any, Any]] | None:
        """Return the number and time of each row that was made while the clock was set back, in order; None if the
        schema is too old to record this.
        """
        if self._version < 2:
            return None
        with _translated(self._path):
            return self._db.execute("SELECT seq, at_us FROM set_back ORDER BY seq")

    def damage(self) -> str | None:
        """Return a description of damage to the file as a database (pages, and indexes that differ from their tables),
        or None.
        """
        with _translated(self._path):
            first = readable(self._db.execute("PRAGMA integrity_check(1)").fetchone()[0])
            return None if first == "ok" else str(first)

    def _row(self, columns: str, table: str, name: str) -> dict[str, object] | None:
        with _translated(self._path):
            row = self._db.execute(f"SELECT {columns} FROM {table} WHERE id = ?", (name,)).fetchone()  # noqa: S608
        return None if row is None else dict(zip(columns.split(", "), map(readable, row), strict=True))

    def _belonging(self, columns: str, table: str, order: str, approval_id: str) -> list[dict[str, object]]:
        if self._version < 3:
            return []
        sql = f"SELECT {columns} FROM {table} WHERE approval = ? ORDER BY {order}"  # noqa: S608
        names = columns.split(", ")
        with _translated(self._path):
            rows = self._db.execute(sql, (approval_id,)).fetchall()
        return [
            {name: value if name == "subject" else readable(value) for name, value in zip(names, row, strict=True)}
            for row in rows
        ]

    def _one(self, sql: str, value: str) -> bytes | None:
        with _translated(self._path):
            row = self._db.execute(sql, (value,)).fetchone()
        return None if row is None or row[0] is None else _bytes(row[0])


@contextlib.contextmanager
def open_stored(path: Path) -> Iterator[StoredLedger]:
    """Open a ledger file for verification: read-only, with one consistent view, and with or without a running daemon.

    Raises AileronError(not_found) if the file is missing; otherwise `details.cause` is `inaccessible` or `locked` if it could
    not be accessed, and another word if it is not a valid ledger.
    """
    if not path.is_file():
        raise AileronError(FailureClass.NOT_FOUND, f"{path}: no such file")
    # Without a write-ahead log no process writes, and `immutable` then reads a file on any medium, leaving nothing beside it.
    is_immutable = not _has_log(path)
    with _translated(path):
        connection = _connect(path, query="immutable=1" if is_immutable else "mode=ro")
    try:
        connection.text_factory = bytes
        with _translated(path):
            connection.execute("BEGIN")
            version = _check_format(connection, path)
        yield StoredLedger(connection, path, version, is_immutable)
    finally:
        connection.close()


def events_query(wanted: EventFilter, rarest: str | None = None) -> tuple[str, list[object]]:
    """Return the SQL statement and its values that select a filter's events.

    The statement names one index, and checks all other conditions in the rows that the index returns, so that the query
    plan never depends on statistics. The index is the one for two of the conditions together, if there is one,
    otherwise that of `rarest`. Bounds in time are converted to bounds in row numbers with the index on time. Rows made
    while the clock was set back are left out of that search; in all other rows, times and row numbers have the same
    order.
    """
    equal = {column: value for column, value in _equal(wanted).items() if value is not None}
    index = _index_of_two(equal)
    if "run" in equal or (index is None and equal):
        index = f"events_{'run' if 'run' in equal else rarest or next(iter(equal))}"
    conditions = [f"{column} = ?" for column in equal]
    values: list[object] = list(equal.values())
    if wanted.since_us is not None:
        conditions += [f"seq >= ({_FIRST_SINCE})", "+at_us >= ?"]
        values += [wanted.since_us] * 2
    if wanted.until_us is not None:
        conditions += [f"seq <= max(coalesce(({_LAST_UNTIL}), 0), coalesce(({_LAST_BEHIND_UNTIL}), 0))", "+at_us < ?"]
        values += [wanted.until_us] * 3
    if wanted.after is not None:
        conditions.append("seq > ?")
        values.append(wanted.after)
    if wanted.before is not None:
        conditions.append("seq < ?")
        values.append(wanted.before)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ASC" if wanted.oldest_first else "DESC"
    values.append(max(0, min(wanted.limit, MAX_ROWS)))
    by = f" INDEXED BY {index}" if index else ""
    return f"SELECT seq, record, previous, hash FROM events{by}{where} ORDER BY seq {order} LIMIT ?", values  # noqa: S608 - constants


def _index_of_two(equal: Collection[str]) -> str | None:
    return next((f"events_{column}_{other}" for column, other in _PAIRS if column in equal and other in equal), None)


def _equal(wanted: EventFilter) -> dict[str, str | None]:
    """Return the value that a filter requires of each column that has an index of its own; None for a column that the
    filter does not restrict.
    """
    return {
        "run": wanted.run,
        "class": wanted.failure_class,
        "connector": wanted.connector,
        "action": wanted.action,
        "session": wanted.session,
        "type": wanted.type,
    }


def _connect(path: Path, *, query: str = "mode=rw") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{urllib.parse.quote(str(path))}?{query}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # this module begins transactions itself
        check_same_thread=False,  # made by the caller of `open`, used by one thread at a time
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # write nothing of the ledger to temporary files
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(path: Path) -> None:
    """Check that the ledger's file is a regular file that belongs to this user and that no other user can access;
    create it if it is missing. An existing file is not opened.

    Closing any descriptor of a file drops all POSIX locks this process holds on it, those of SQLite included
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            _sync_directory(path.parent)
        found = path.lstat()
    except OSError as error:
        raise _refused(path, f"cannot be made or opened: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "is not a regular file")
    if found.st_uid != os.geteuid():
        raise _refused(path, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise _refused(path, f"others can open it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}")


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _prepare(db: sqlite3.Connection, path: Path, home: Path, version: str, clock: Callable[[], int]) -> None:
    """Create the tables and the genesis row of a new ledger, or check those of an existing one and migrate it."""
    if not _is_empty(db):
        _check_format(db, path)  # before anything is written, the journal mode included
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise _refused(path, "its file system cannot hold a write-ahead log: put the home on a local disk")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    db.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(db):  # checked again: another process may have been first
            _make(db, home, version, clock)
        _migrate(db, _check_format(db, path))
        _check_format(db, path)
        _check_head(db, path)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_empty(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def _make(db: sqlite3.Connection, home: Path, version: str, clock: Callable[[], int]) -> None:
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for statement in script_of(SCHEMA_VERSION).split(";"):
        db.execute(statement)
    genesis = {"type": "genesis", "home": os.fsencode(home).decode("utf-8", "replace"), "version": version}
    # The random name distinguishes this ledger from another that was created in its place.
    transaction = Transaction(db, Head(0, NO_HASH), 0, clock)
    transaction.append({**genesis, "ledger": os.urandom(16).hex()})
    transaction._write_events()


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Migrate an older schema to the current one in the open transaction: completely or not at all."""
    for newer in range(version + 1, SCHEMA_VERSION + 1):
        for statement in MIGRATIONS[newer].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {newer}")


def _check_format(db: sqlite3.Connection, path: Path) -> int:
    """Check that the file is a ledger of Aileron with a known schema; return the schema's version."""
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise _refused(path, "is not a ledger of aileron")
    if not 1 <= version <= SCHEMA_VERSION:
        raise _refused(
            path,
            f"has schema {version}, this aileron knows {SCHEMA_VERSION}: use the version that wrote it, or a newer one",
        )
    if (found := unexpected_objects(db, version)) is not None:
        raise _damaged(path, found)
    return int(version)


def _check_head(db: sqlite3.Connection, path: Path) -> None:
    """Check that the newest row follows from its predecessor, so that the chain is not continued from an altered row."""
    rows = db.execute("SELECT seq, at_us, record, previous, hash FROM events ORDER BY seq DESC LIMIT 2").fetchall()
    if not rows:
        raise _damaged(path, "the genesis row is missing")
    seq, _at_us, record, previous, digest = rows[0]
    before = NO_HASH if len(rows) == 1 else rows[1][4]
    if previous != before or link(previous, record.encode()) != digest:
        raise _damaged(path, f"row {seq}, the newest, is not what was written")


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except _DATABASE_ERRORS as error:
        raise AileronError.of(_failure_of(error, path)) from error


def _failure_of(error: Exception, path: Path) -> Failure:
    """Return the failure that reports an error of the database to a caller. Its `details.cause`, for programs, names
    the state of the machine or the file.
    """
    if isinstance(error, UnicodeDecodeError):
        return _damaged(path, "it holds bytes that are no text").failure
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    primary = code & 0xFF
    if code in _FATAL or primary in _FATAL_PRIMARY:
        return _damaged(path, str(error)).failure
    if primary == sqlite3.SQLITE_FULL:
        return _failure(
            "disk_full",
            f"{path} cannot grow, its disk is full: what cannot be recorded does not begin; free some space, then see what is"
            " on record",
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _failure("locked", f"another program holds {path}: close it and try again", FailureClass.BUSY)
    if primary == sqlite3.SQLITE_INTERRUPT:
        return _failure("too_slow", "the search took too long: narrow it", FailureClass.BUSY)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return _failure(
            "inaccessible",
            f"{path} cannot be written ({error}): what cannot be recorded does not begin; make the file and its directory"
            " yours and writable, and see that their disk is not mounted read-only",
        )
    cause = "inaccessible" if primary in _INACCESSIBLE else "unexpected"
    return _failure(cause, f"{path} cannot be used ({error}): what cannot be recorded does not begin")


def _failure(cause: str, message: str, failure_class: FailureClass = FailureClass.INTERNAL_ERROR) -> Failure:
    return Failure(
        failure_class=failure_class,
        message=message,
        boundary=Boundary.RUNTIME,
        retriable=True,
        details={"cause": cause},
    )


def _damaged(path: Path, problem: str) -> AileronError:
    return AileronError(
        FailureClass.INTERNAL_ERROR,
        f"{path} is damaged: {problem}; see what is left with `aileron audit verify`, then move it and {path}-wal away",
        details={"cause": "damaged"},
    )


def _refused(path: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INTERNAL_ERROR, f"{path} {why}", details={"cause": "refused"})


def _not_found(kind: str, name: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, f"no {kind} {name}")


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _bytes(value: object) -> bytes:
    """Return a field of an untrusted file; anything but bytes becomes empty bytes."""
    return value if isinstance(value, bytes) else b""


def _wall_clock_us() -> int:
    return time.time_ns() // 1000
