"""Restricts a PostgreSQL stream to one transaction, which makes only the changes that a person saw. This module
computes the effects; the connector does not.

    BEGIN ─► reads ─► one INSERT, UPDATE or DELETE … RETURNING * ─► COMMIT
                                                                      │ rows changed by table, asked of the service
                                                                      ▼
                          a preview: noted, ROLLBACK        a run: COMMIT if the digest is the one that was seen

Runs in the process of one login. Trusts neither end: the connector is third-party code, and its SQL comes from an agent.

Rules
- The transaction is begun, committed and rolled back by this module. The connector's BEGIN, COMMIT and ROLLBACK are requests,
  accepted only as statements of their own. Nothing comes before the BEGIN or after the end.
- Nothing before the write may write: the service must not have given the transaction an id. So no function and no WITH clause
  in a read can make a change that is not shown.
- The write returns all its rows: it ends with RETURNING *, has no WITH and no comment that could contain those words instead,
  and the number of returned rows is equal to the number that the service reports. The first columns are all columns of a
  table, which has no rules and is not a view.
- The rows of the write are text, which the service formats by settings. The settings are fixed first. They and the role must
  be the same directly before and directly after the write is executed, and the connector can execute nothing in between
  (postgres_settings.py). The settings are also checked after a read.
- Further changes that the write causes (foreign keys, triggers), also in its own table, are counted by table. The counts come
  from the service's statistics of this transaction, which are read once deferred constraints were checked. A change that is
  not counted in rows (DDL, TRUNCATE) leaves a lock, and is refused.
- The digest covers the statement, its values, the columns, every row, those counts, and the database's own settings that the
  text of a value depends on. It does not cover columns that an INSERT leaves to their defaults, because a number or a time
  that the database fills in differs each time.
- Effects that do not fit into the text that a person reads cannot be committed.

No rollback undoes changes to sequences and the effects of a function outside this database, and neither is detected here. The
rows that are overwritten may have changed since the preview: the effects show their new values, not the old values.

Source: PostgreSQL's manual, "Message Flow", "Data-Modifying Statements in WITH" (top level only), "Monitoring Database
Activity" (pg_stat_xact_all_tables). Not here: the choice of the role (postgres.py), the frame of other streams
(postgres_frame.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Final, NamedTuple

from aileron.logins.login_messages import MAX_EFFECTS, Effects, LoginError, Problem
from aileron.logins.protocol import Filter, Passed
from aileron.logins.protocols import postgres_wire as wire
from aileron.logins.protocols.postgres_frame import MAX_STATEMENT, Control, control
from aileron.logins.protocols.postgres_rows import (
    MAX_TABLES,
    Column,
    Row,
    Table,
    Target,
    Write,
    changes_rows,
    check_statement,
    columns_of,
    given_columns,
    made,
    not_allowed,
    row_of,
    text_of,
)
from aileron.logins.protocols.postgres_settings import ASK, FIX, MAX_SETTINGS, Settings

__all__ = ["Transaction"]

_MAX_DESCRIPTION: Final = 256 << 10
"""Maximum size of a RowDescription in bytes: PostgreSQL has at most 1,664 columns, with names of up to 63 bytes."""
_MAX_WAITING: Final = 4 * MAX_STATEMENT
"""Maximum number of bytes that a connector can send without waiting for responses."""
_MAX_NAMED: Final = 100
"""Maximum number of prepared statements, and maximum number of portals."""
_UTF8: Final = "client_encoding stays UTF8 in a stream whose effects are shown"
_OURS: Final = b"aileron_"
"""Prefix of the names of this module's statements and portals. This module uses names and no simple query, because an
unnamed statement or portal of its own, or a simple query, would drop the connector's unnamed ones.
"""

_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE"
_ROLLBACK: Final = "ROLLBACK"
_CLEAN: Final = (
    "SELECT pg_catalog.txid_current_if_assigned() IS NULL, pg_catalog.current_setting('track_counts'), "
    "pg_catalog.current_setting('is_superuser'), pg_catalog.current_setting('client_encoding')"
)
_DEFERRED: Final = "SET CONSTRAINTS ALL IMMEDIATE"
_OUR_PATH: Final = "SET LOCAL search_path = pg_catalog, pg_temp"  # if it is not listed, pg_temp comes first
_LOCKS: Final = (
    "SELECT l.relation::regclass FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation WHERE l.pid = pg_backend_pid() "
    "AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' ORDER BY c.relkind = 'r' DESC LIMIT 1"
)
_TABLES: Final = (
    "SELECT relid, coalesce(pg_partition_root(relid)::oid, relid), schemaname, relname, n_tup_ins, n_tup_upd, n_tup_del "
    "FROM pg_stat_xact_all_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname <> 'pg_toast' "
    'ORDER BY schemaname COLLATE "C", relname COLLATE "C" LIMIT 1000'
)
_TARGET: Final = (
    "SELECT coalesce(pg_partition_root(c.oid)::oid, c.oid), n.nspname, c.relname, c.relkind IN ('r', 'p') AND NOT c.relhasrules "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {}"
)
_COLUMNS: Final = (
    "SELECT attnum, attname, (atthasdef AND attgenerated = '') OR attidentity <> '' FROM pg_attribute "
    "WHERE attnum > 0 AND NOT attisdropped AND attrelid = {} ORDER BY attnum"
)
_MAX_ROWS: Final = max(1_700, MAX_SETTINGS)
"""Maximum number of rows that are stored of a response to this module's own queries: a table has at most 1,600 columns."""
_TRIGGERS: Final = (
    "SELECT DISTINCT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgrelid IN ({}) "
    "ORDER BY 1 LIMIT 20"
)


class _Wait(NamedTuple):
    """A request of the generator that handles a session: wait for the next message of the connector if `of_client`,
    else for the next message of the service.
    """

    of_client: bool


_CLIENT: Final = _Wait(True)
_SERVER: Final = _Wait(False)

_Part = wire.Head | wire.Rest
_Step = Passed | _Wait
_Session = Generator[_Step, _Part, None]


class _Cycle(NamedTuple):
    """The messages of a connector up to one Sync. `before` and `after` are the messages before and after the execution of
    `sql`, if the cycle executes a statement.

    `values` is included in the digest together with `sql`; `describes` is the number of descriptions that the service returns
    before the rows.
    """

    before: bytes
    after: bytes
    sql: bytes | None = None
    values: tuple[bytes, ...] = ()
    portal: bytes = b""
    describes: int = 0
    is_simple: bool = False
    is_end: bool = False

    @property
    def wish(self) -> Control | None:
        """The transaction control (BEGIN, COMMIT or ROLLBACK) that this cycle requests, or None."""
        return control(self.sql) if self.is_simple and self.sql is not None else None


class Transaction(Filter):
    """The filter that limits a session, after its start-up, to one transaction. `seen` is the digest of the effects that can be
    committed. If `seen` is None, the stream is a preview, which is rolled back.
    """

    def __init__(self, seen: str | None) -> None:
        self._seen: Final = seen
        kept = dict.fromkeys((b"Q", b"P", b"B", b"D", b"C", b"E", b"S", b"H", b"X"), MAX_STATEMENT)
        self._from_client: Final = wire.Cutter(kept, "the connector")
        self._from_server: Final = wire.Cutter(
            {b"Z": 1, b"C": 256, b"E": wire.MAX_MESSAGE, b"S": 1024, b"T": _MAX_DESCRIPTION, b"D": MAX_EFFECTS},
            "the service",
        )
        self._client: Final[deque[_Part]] = deque()
        self._server: Final[deque[_Part]] = deque()
        self._waiting = 0
        self._statements: dict[bytes, tuple[bytes, bytes]] = {}
        """Mapping from the name of a prepared statement to its SQL and parameter types."""
        self._portals: dict[bytes, tuple[bytes, tuple[bytes, ...]]] = {}
        """Mapping from the name of a portal to its SQL, and to the values that are part of the digest of the effects
        together with the SQL.
        """
        self._has_failed = False
        self._asked = 0
        self._is_committing = False
        self._session: Final = self._run()
        self._step: _Step | None = next(self._session)

    def up(self, data: bytes) -> Iterable[Passed]:
        """Take the connector's bytes, and handle its messages one by one, as responses arrive."""
        self._waiting += len(data)
        if self._waiting > _MAX_WAITING:
            raise not_allowed(f"more than {_MAX_WAITING} bytes were sent without waiting for an answer")
        self._client.extend(self._from_client.cut(data))
        return self._advance()

    def down(self, data: bytes) -> Iterable[Passed]:
        """Take the service's bytes, and return the responses for the connector."""
        self._server.extend(self._from_server.cut(data))
        return self._advance()

    def down_ended(self) -> Iterable[Passed]:
        """Raise LoginError if the service disconnected while it is unknown whether a commit took effect."""
        if self._is_committing:
            raise LoginError(
                Problem.OUTCOME_UNKNOWN,
                "the connection broke while the change was committed: check whether it took effect before you request it again",
            )
        return ()

    def _advance(self) -> Iterable[Passed]:
        while True:
            if isinstance(self._step, Passed):
                yield self._step
                self._resume(None)
            elif self._server and self._is_aside(self._server[0]):
                yield Passed(to_client=_bytes(self._server.popleft()))
            elif self._step is _CLIENT and self._client:
                self._resume(self._client.popleft())
            elif self._step is _SERVER and self._server:
                self._resume(self._server.popleft())
            else:
                break
        if not self._client:
            self._waiting = 0
        if self._server and self._step is not _SERVER:
            raise LoginError(Problem.PROTOCOL, "the service said something that was not asked")

    def _resume(self, heard: wire.Head | wire.Rest | None) -> None:
        try:
            self._step = next(self._session) if heard is None else self._session.send(heard)
        except StopIteration:
            self._step = None

    def _is_aside(self, part: wire.Head | wire.Rest) -> bool:
        """Return whether a part of the service's output is passed to the connector at once, without being handled as a
        response.

        Such a part is a notice, setting or notification, which can arrive at any time, or an error that arrives while no
        response is awaited.
        """
        if isinstance(part, wire.Rest):
            return self._step is not _SERVER
        if part.kind == b"S" and part.body.startswith(b"client_encoding\0") and part.body[16:-1].upper() != b"UTF8":
            raise not_allowed(_UTF8)
        if part.kind == b"E" and self._step is not _SERVER:
            return True
        return part.kind in (b"N", b"S", b"A")

    # The generators below wait for one message after the other.

    def _run(self) -> _Session:
        cycle = yield from self._cycle()
        if not cycle.is_end:
            settings = yield from self._begin(cycle)
            cycle = yield from self._transaction(settings)
        if not cycle.is_end:
            raise not_allowed("the transaction is over, and a stream of this operation has one: open another stream")
        yield Passed(to_server=cycle.after)

    def _begin(self, cycle: _Cycle) -> Generator[_Step, _Part, Settings]:
        if cycle.wish is not Control.BEGIN:
            raise not_allowed("the first statement of this operation is BEGIN, as a simple query without values")
        yield from self._ask(_BEGIN)
        yield from self._check_clean()
        yield from self._ask(FIX)
        settings = Settings((yield from self._ask(ASK)))
        yield Passed(to_client=wire.message(b"C", b"BEGIN\0") + wire.ready(b"T"))
        return settings

    def _transaction(self, settings: Settings) -> Generator[_Step, _Part, _Cycle]:
        """Handle the connector's cycles of messages until the transaction ends; return the first cycle after it."""
        write: Write | None = None
        while True:
            cycle = yield from self._cycle()
            if cycle.is_end:
                return cycle
            if cycle.wish is not None:
                break
            write = (yield from self._statement(cycle, write, settings)) or write
        if cycle.wish is Control.COMMIT and not self._has_failed:
            yield from self._end(write)
        elif cycle.wish is Control.BEGIN:
            raise not_allowed("a transaction is open already")
        else:
            yield from self._back()
            yield Passed(to_client=_done(_ROLLBACK))
        return (yield from self._cycle())

    def _statement(
        self, cycle: _Cycle, write: Write | None, settings: Settings
    ) -> Generator[_Step, _Part, Write | None]:
        if self._has_failed or cycle.sql is None:  # after an error the service executes nothing
            yield from self._pass(cycle, None, settings)
            return None
        if write is not None:
            raise not_allowed("behind the statement that changes rows only COMMIT or ROLLBACK follow")
        if not changes_rows(cycle.sql):
            yield from self._pass(cycle, None, settings)
            return None
        yield from self._check_clean()
        write = Write(cycle.sql, cycle.values, settings)
        yield from self._pass(cycle, write, settings)
        return write

    def _check_clean(self) -> _Session:
        """Check with a query that the transaction has written nothing so far, that the service counts changed rows,
        that the role is not a superuser, which could evade all rules, and that the client's encoding is UTF-8.

        Raises LoginError if one of these checks fails.
        """
        match (yield from self._ask(_CLEAN)):
            case [[b"t", b"on", b"off", b"UTF8"]]:
                return
            case [[b"f", *_]]:
                raise not_allowed(
                    "what only reads has changed something (by a function, WITH, INTO or FOR UPDATE), of which no rows can be "
                    "shown: change rows by INSERT, UPDATE or DELETE … RETURNING *"
                )
            case [[_, b"off", *_]]:
                raise not_allowed(
                    "the service does not count changed rows: set track_counts = on in its postgresql.conf"
                )
            case [[_, _, b"on", _]]:
                raise not_allowed(
                    "the role is a superuser, whose statements can do more than can be shown: bind another one"
                )
            case _:
                raise not_allowed(_UTF8)

    def _pass(self, cycle: _Cycle, write: Write | None, settings: Settings) -> _Session:
        """Pass the messages of a cycle to the service, and the service's responses to the connector.

        The settings are queried after the execution. For a write, the settings and the written table's columns are also
        queried before the execution.
        """
        asks = write is not None and not cycle.is_simple
        portal = cycle.portal + b"\0"
        execute = b"" if cycle.sql is None else wire.message(b"E", portal + bytes(4)) + self._question(ASK)
        ours = wire.message(b"D", b"P" + portal) if asks else b""
        if write is not None:
            ours += self._question(ASK)
        yield Passed(to_server=cycle.before + ours + execute + cycle.after)
        described = 0
        is_passing = True
        while True:
            part = yield _SERVER
            if isinstance(part, wire.Rest):
                if is_passing:
                    yield Passed(to_client=part.data)
                continue
            if part.kind == b"Z":
                yield Passed(to_client=wire.ready(self._still_open(part)))
                return
            if part.kind in (b"G", b"H", b"W"):
                raise not_allowed("COPY is not passed on in a stream whose effects are shown")
            is_description = part.kind in (b"T", b"n")
            is_last_before = is_description and described == cycle.describes
            is_passing = not (cycle.is_simple and part.kind in (b"1", b"2", b"n")) and not (asks and is_last_before)
            described += is_description
            if write is not None:
                _note(write, part)
            if is_passing:
                yield Passed(to_client=_bytes(part))
            if part.kind in (b"C", b"I") or (write is not None and is_last_before):
                yield from self._check_settings(settings)

    def _check_settings(self, settings: Settings) -> _Session:
        """Read and check the service's response to the settings query within a cycle.

        Its rows are read here, so that they do not count as rows of the write. Raises LoginError if the settings have changed.
        """
        rows: list[Row] = []
        while True:
            part = yield _SERVER
            if isinstance(part, wire.Rest) or part.kind not in (b"1", b"2", b"D", b"C") or len(rows) > MAX_SETTINGS:
                raise LoginError(Problem.PROTOCOL, "the service did not say by which settings it writes values")
            if part.kind == b"D":
                rows.append(row_of(part.body))
            elif part.kind == b"C":
                settings.check_same(rows)
                return

    def _still_open(self, ready: wire.Head) -> bytes:
        if ready.body not in (b"T", b"E"):
            raise not_allowed("the service says that the transaction is over, which was to be kept open")
        self._has_failed = ready.body == b"E"
        return ready.body

    def _end(self, write: Write | None) -> _Session:
        """End the transaction: commit if its effects are those that a person saw; roll back in a preview. Raises
        LoginError if the effects have changed.
        """
        if write is None:
            yield from self._check_clean()
        failed = yield from self._ask_or_fail(_DEFERRED)
        if isinstance(failed, wire.Head):
            yield from self._back()
            yield Passed(to_client=_bytes(failed) + wire.ready(b"I"))
            return
        yield from self._ask(_OUR_PATH)
        effects = yield from self._effects(write)
        if self._seen is None:
            yield from self._back()
            yield Passed(note=effects)
            yield Passed(to_client=_done(_ROLLBACK))
        elif effects.digest == self._seen:
            yield Passed(note=effects)
            yield from self._commit()
        else:
            yield from self._back()
            raise LoginError(
                Problem.EFFECTS_CHANGED,
                "nothing was changed: what the statement would do now is not what was shown before it was approved; "
                "run it again, and you are asked again",
            )

    def _commit(self) -> _Session:
        self._is_committing = True
        yield Passed(to_server=wire.message(b"Q", b"COMMIT\0"))
        while True:
            part = yield _SERVER
            if is_over := isinstance(part, wire.Head) and part.kind == b"Z":
                self._is_committing = False
            yield Passed(to_client=_bytes(part))
            if is_over:
                return

    def _back(self) -> _Session:
        yield from self._ask(_ROLLBACK, status=b"I")

    def _effects(self, write: Write | None) -> Generator[_Step, _Part, Effects]:
        if write is not None:
            write.check_all_shown()
        locked = yield from self._ask(_LOCKS)
        if locked:
            raise not_allowed(
                f"{text_of(locked[0][0])[:80]} is changed as a whole (DDL, TRUNCATE), of which no rows can be shown: "
                "such a change is made elsewhere"
            )
        tables = [_table(row) for row in (yield from self._ask(_TABLES))]
        if len(tables) > MAX_TABLES or any(table.name.startswith("pg_catalog.") for table in tables):
            raise not_allowed("the statement changes the database's own catalog, or more tables than can be shown")
        if write is None:
            return made(None, (), None, tables, ())
        columns = columns_of(write.description)
        target = yield from self._target(write, columns)
        if write.rows and not any(table.root == target.root for table in tables):
            raise not_allowed(
                "the rows that came are of a table that was not changed: end the statement with RETURNING *"
            )
        listed = ", ".join(str(table.oid) for table in tables) or "0"
        triggers = yield from self._ask(_TRIGGERS.format(listed))
        return made(write, columns, target, tables, [text_of(row[0]) for row in triggers])

    def _target(self, write: Write, columns: tuple[Column, ...]) -> Generator[_Step, _Part, Target]:
        """Return the table whose rows the write returned. Raise LoginError unless the first of `columns` are all
        columns of that table.
        """
        oid = columns[0].table if columns else 0
        found = yield from self._ask(_TARGET.format(oid))
        own = yield from self._ask(_COLUMNS.format(oid))
        if not found or found[0][3] != b"t":
            raise not_allowed(
                "only rows of a table without rules can be shown as they are: change the table, not a view of it"
            )
        whole = [(oid, int(text_of(row[0]))) for row in own]
        if [(column.table, column.number) for column in columns[: len(own)]] != whole:
            raise not_allowed("the rows that came are not whole rows of one table: end the statement with RETURNING *")
        given = given_columns(write.sql)
        left = (place for place, row in enumerate(own) if given is not None and row[2] == b"t" and row[1] not in given)
        return Target(int(text_of(found[0][0])), _qualified(*found[0][1:3]), frozenset(left), len(own))

    def _ask(self, sql: str, status: bytes = b"T") -> Generator[_Step, _Part, list[Row]]:
        found = yield from self._ask_or_fail(sql, status)
        if isinstance(found, wire.Head):
            said = wire.parse_error(found.body).said[:200]
            raise LoginError(
                Problem.PROTOCOL, "the service did not carry out what shows the effects of a statement", said
            )
        return found

    def _ask_or_fail(self, sql: str, status: bytes = b"T") -> Generator[_Step, _Part, list[Row] | wire.Head]:
        """Send one of this module's queries to the service. Return its rows, or the service's error message."""
        yield Passed(to_server=self._question(sql) + wire.message(b"S"))
        rows: list[Row] = []
        failed: wire.Head | None = None
        while True:
            part = yield _SERVER
            if isinstance(part, wire.Rest):
                continue
            if part.kind == b"D" and len(rows) < _MAX_ROWS:
                rows.append(row_of(part.body))
            elif part.kind == b"E":
                failed = part
            elif part.kind == b"Z":
                if failed is None and part.body != status:
                    raise LoginError(
                        Problem.PROTOCOL, "the service's transaction is not in the state that it should be in"
                    )
                return rows if failed is None else failed

    def _question(self, sql: str) -> bytes:
        """Return the messages (Parse, Bind, Execute) for one of this module's own queries, without a Sync."""
        self._asked += 1
        name = _OURS + str(self._asked).encode() + b"\0"
        return (
            wire.message(b"P", name + wire.text(sql) + b"\0\0")
            + wire.message(b"B", name + name + bytes(6))
            + wire.message(b"E", name + bytes(4))
        )

    def _cycle(self) -> Generator[_Step, _Part, _Cycle]:
        """Collect the connector's messages up to the next Sync, and return them as a cycle."""
        parts = [b"", b""]  # messages before and after the execution
        executed: tuple[bytes, bytes, tuple[bytes, ...]] | None = None
        describes = 0
        while True:
            head = yield _CLIENT
            if isinstance(head, wire.Rest) or not head.is_last:
                raise not_allowed(f"a message has more than {MAX_STATEMENT} bytes, which is what is passed on here")
            place = executed is not None
            match head.kind:
                case b"X":
                    return _Cycle(b"", _bytes(head), is_end=True)
                case b"Q" if not any(parts):
                    return self._simple(head.body.removesuffix(b"\0"))
                case b"S":
                    portal, sql, values = executed or (b"", None, ())
                    return _Cycle(parts[0], parts[1] + _bytes(head), sql, values, portal, describes)
                case b"P":
                    self._parse(head.body)
                case b"B":
                    self._bind(head.body)
                case b"D":
                    describes += not place
                case b"C":
                    pass
                case b"E" if executed is None:
                    executed = self._executed(head.body)
                    continue
                case b"H":
                    continue  # not passed on: the Sync has the same effect
                case _:
                    raise not_allowed(
                        f"a message {head.kind!a} is not passed on there in a stream whose effects are shown"
                    )
            parts[place] += _bytes(head)

    def _simple(self, sql: bytes) -> _Cycle:
        if b"\0" in sql:
            raise not_allowed("a statement has no end, or something behind it")
        try:
            wish = control(sql)
        except ValueError as error:
            raise not_allowed(f"{error}") from None
        if wish is None:
            check_statement(sql)
        self._statements.pop(b"", None)
        self._portals.pop(b"", None)
        before = (
            wire.message(b"P", b"\0" + sql + b"\0\0\0")
            + wire.message(b"B", b"\0\0" + bytes(6))
            + wire.message(b"D", b"P\0")
        )
        return _Cycle(before, wire.message(b"S"), sql, is_simple=True)

    def _parse(self, body: bytes) -> None:
        name, _, rest = body.partition(b"\0")
        sql, end, types = rest.partition(b"\0")
        self._check_name(name, self._statements)
        if not end:
            raise not_allowed("a statement has no end")
        check_statement(sql)
        self._statements[name] = sql, types

    def _bind(self, body: bytes) -> None:
        portal, _, rest = body.partition(b"\0")
        name, _, values = rest.partition(b"\0")
        self._check_name(portal, self._portals)
        if name not in self._statements:
            raise not_allowed("a statement is used that was not prepared")
        sql, types = self._statements[name]
        self._portals[portal] = sql, (types, values)

    def _check_name(self, name: bytes, taken: Mapping[bytes, object]) -> None:
        if name.startswith(_OURS) or len(taken) >= _MAX_NAMED:
            raise not_allowed(
                f"a name begins with {_OURS.decode()}, or there are more than {_MAX_NAMED} statements or portals"
            )

    def _executed(self, body: bytes) -> tuple[bytes, bytes, tuple[bytes, ...]]:
        portal, _, limit = body.partition(b"\0")
        if portal not in self._portals or limit != bytes(4):
            raise not_allowed("a portal is not open, or is asked for some of its rows: ask for all of them")
        sql, values = self._portals[portal]
        return portal, sql, values


def _note(write: Write, part: wire.Head) -> None:
    match part.kind:
        case b"T" if part.is_last and not write.tag:  # after the tag, the connector may describe another portal
            write.description = part.body  # the last description before the rows
        case b"D":
            write.add(part.body, part.size)
        case b"C":
            write.tag = part.body.rstrip(b"\0").decode("ascii", "replace")
        case _:
            pass


def _table(row: Row) -> Table:
    oid, root, schema, name, *counts = row
    inserted, updated, deleted = (int(text_of(count)) for count in counts)
    return Table(int(text_of(oid)), int(text_of(root)), _qualified(schema, name), (inserted, updated, deleted))


def _qualified(schema: bytes | None, name: bytes | None) -> str:
    return f"{text_of(schema)}.{text_of(name)}"


def _bytes(part: _Part) -> bytes:
    return part.data if isinstance(part, wire.Rest) else part.header + part.body


def _done(tag: str) -> bytes:
    return wire.message(b"C", wire.text(tag)) + wire.ready(b"I")
