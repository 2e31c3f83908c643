"""A transaction whose effects are shown, message by message: whatever a connector says, it commits only a previewed change."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.logins.login_messages import Effects, LoginError, Problem
from aileron.logins.protocol import Passed
from aileron.logins.protocols import postgres_rows as rows
from aileron.logins.protocols import postgres_wire as wire
from aileron.logins.protocols.postgres_effects import Transaction

SEEN: Final = b"UPDATE t SET a = $1 RETURNING *"
OTHER: Final = b"DELETE FROM t RETURNING *"
DESCRIPTION: Final = struct.pack("!h", 1) + b"a\0" + struct.pack("!IhIhih", 99, 1, 23, 4, -1, 0)
SETTINGS: Final = (b"DateStyle", b"TimeZone", b"lc_monetary", b"search_path", b"role")
ROW: Final = struct.pack("!hi", 1, 1)


def query(sql: bytes) -> bytes:
    """Return a simple query."""
    return wire.message(b"Q", sql + b"\0")


def parse(sql: bytes, name: bytes = b"") -> bytes:
    """Return a message that prepares a statement."""
    return wire.message(b"P", name + b"\0" + sql + b"\0\0\0")


def bind(value: bytes, name: bytes = b"") -> bytes:
    """Return a message that binds the statement's only value."""
    values = struct.pack("!hhi", 0, 1, len(value)) + value + struct.pack("!h", 0)
    return wire.message(b"B", b"\0" + name + b"\0" + values)


EXECUTE: Final = wire.message(b"E", b"\0" + bytes(4))
SYNC: Final = wire.message(b"S")
HONEST: Final = (query(b"BEGIN"), parse(SEEN), bind(b"7"), EXECUTE, SYNC, query(b"COMMIT"))
PIECES: Final = (
    *HONEST,
    query(b"ROLLBACK"),
    query(SEEN),
    query(OTHER),
    query(b"COMMIT; BEGIN"),
    query(b"SELECT 1"),
    parse(SEEN, b"s"),
    parse(OTHER, b"s"),
    parse(OTHER),
    parse(b"COMMIT"),
    parse(b"SELECT 1"),
    parse(OTHER, b"aileron_1"),
    bind(b"8"),
    bind(b"7", b"s"),
    bind(b"7", b"aileron_1"),
    wire.message(b"D", b"P\0"),
    wire.message(b"D", b"S\0"),
    wire.message(b"C", b"S\0"),
    wire.message(b"H"),
    wire.message(b"F", b"\0\0\0\0"),
    wire.message(b"X"),
)


class Service:
    """A minimal PostgreSQL. `written` is what it carried out, `committed` the part of that which stays."""

    def __init__(self) -> None:
        self._cutter = wire.Cutter(dict.fromkeys(b"Q P B D C E S X".split(), 1 << 20), "the test")
        self._statements: dict[bytes, bytes] = {}
        self._portals: dict[bytes, tuple[bytes, bytes]] = {}
        self._is_open = False
        self._skips = False
        self.written: list[tuple[bytes, bytes]] = []
        self.committed: list[list[tuple[bytes, bytes]]] = []

    def answer(self, data: bytes) -> bytes:
        """Return the answers to these messages."""
        heads = [part for part in self._cutter.cut(data) if isinstance(part, wire.Head)]
        return b"".join(self._one(head.kind, head.body) for head in heads)

    def _one(self, kind: bytes, body: bytes) -> bytes:
        if kind == b"S":
            self._skips = False
            return wire.ready(b"T" if self._is_open else b"I")
        if self._skips:
            return b""
        first, _, rest = body.partition(b"\0")
        match kind:
            case b"Q":
                self._portals.clear()
                self._statements.pop(b"", None)
                return self._carried_out(first, b"") + wire.ready(b"T" if self._is_open else b"I")
            case b"P":
                self._statements[first] = rest.partition(b"\0")[0]
                return wire.message(b"1")
            case b"B" if (name := rest.partition(b"\0")[0]) in self._statements:
                self._portals[first] = self._statements[name], rest
                return wire.message(b"2")
            case b"E" if first in self._portals:
                return self._carried_out(*self._portals[first])
            case b"D":
                return wire.message(b"T", DESCRIPTION)
            case b"C":
                return wire.message(b"3")
            case _:
                self._skips = True
                return wire.error_response("42000", "no", fatal=False)

    def _carried_out(self, sql: bytes, values: bytes) -> bytes:
        word = sql.split()[0]
        if word == b"BEGIN":
            self._is_open, self.written = True, []
        elif word in (b"COMMIT", b"ROLLBACK"):
            if word == b"COMMIT":
                self.committed.append(self.written)
            self._is_open, self.written = False, []
        elif word in (b"UPDATE", b"DELETE"):
            self.written.append((sql, values))
            return wire.message(b"D", ROW + b"7") + wire.message(b"C", word + b" 1\0")
        return self._found(sql) + wire.message(b"C", word + b"\0")

    def _found(self, sql: bytes) -> bytes:
        if b"txid_current_if_assigned" in sql:
            return _row(b"f" if self.written else b"t", b"on", b"off", b"UTF8")
        if b"pg_settings" in sql:
            return b"".join(_row(name, b"x", b"default") for name in SETTINGS)
        if b"pg_class c JOIN" in sql:
            return _row(b"99", b"public", b"t", b"t")
        if b"pg_stat_xact_all_tables" in sql and self.written:
            return _row(b"99", b"99", b"public", b"t", b"0", b"1", b"0")
        if b"pg_attribute" in sql:
            return _row(b"1", b"a", b"f")
        return b""


def _row(*values: bytes) -> bytes:
    parts = b"".join(struct.pack("!i", len(value)) + value for value in values)
    return wire.message(b"D", struct.pack("!h", len(values)) + parts)


def talk(seen: str | None, said: bytes, cut: int) -> tuple[Service, list[Effects]]:
    """Pass a connector's bytes on in pieces of `cut` bytes; return the service and the notes."""
    service = Service()
    notes: list[Effects] = []
    transaction = Transaction(seen)

    def heard(passed: Iterable[Passed]) -> None:
        answers = b""
        for to_server, _to_client, note in passed:
            if isinstance(note, Effects):
                notes.append(note)
            answers += service.answer(to_server)
        if answers:
            heard(transaction.down(answers))

    with contextlib.suppress(LoginError):
        for at in range(0, len(said), cut):
            heard(transaction.up(said[at : at + cut]))
    return service, notes


def shown() -> str:
    """Return the digest of the honest statement, from its preview."""
    service, [noted] = talk(None, b"".join(HONEST), 1 << 20)
    assert service.committed == []
    return noted.digest


@pytest.mark.abuse_case("LC2")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.integers(1, 80))
@example(b"".join(HONEST), 1)
@example(b"".join(HONEST[:-1]) + query(SEEN) + HONEST[-1], 7)
@example(
    b"".join(
        (HONEST[0], parse(SEEN), parse(OTHER, b"s"), bind(b"7"), EXECUTE, bind(b"7", b"s"), EXECUTE, SYNC, HONEST[-1])
    ),
    9,
)
@example(b"".join((*HONEST, *HONEST)), 80)
def test_no_sequence_of_connector_messages_commits_anything_but_the_previewed_change(said: bytes, cut: int) -> None:
    """The change is committed at most once, and only after it was noted, for any split of the bytes."""
    digest = shown()
    service, notes = talk(digest, said, cut)
    for written in service.committed:
        assert [sql for sql, _ in written] in ([SEEN], [])
        assert all(bind(b"7").endswith(values) or b"7" in values for _, values in written)
    assert len(service.committed) <= 1
    assert [note.digest for note in notes] == [digest] * len(service.committed)


def test_a_service_that_ends_before_answering_a_commit_leaves_the_outcome_unknown() -> None:
    """An end of the connection before the commit, or after its answer, leaves the outcome known."""
    transaction, service = Transaction(shown()), Service()
    said = [b"".join(HONEST)]
    while said:
        transaction.down_ended()
        answers = service.answer(b"".join(passed.to_server for passed in list(transaction.up(said.pop()))))
        while answers and not service.committed:
            transaction.down_ended()
            answers = service.answer(b"".join(passed.to_server for passed in list(transaction.down(answers))))
    assert [[sql for sql, _ in written] for written in service.committed] == [[SEEN]]
    with pytest.raises(LoginError) as caught:
        transaction.down_ended()
    assert caught.value.problem is Problem.OUTCOME_UNKNOWN
    assert any(passed.to_client for passed in list(transaction.down(answers)))
    assert transaction.down_ended() == ()


def test_the_previewed_change_is_committed_for_any_split_of_the_bytes() -> None:
    """This is the positive control of the property above."""
    digest = shown()
    for cut in (1, 5, 64, 1 << 20):
        service, _ = talk(digest, b"".join(HONEST), cut)
        assert [[sql for sql, _ in written] for written in service.committed] == [[SEEN]]


@given(st.lists(st.binary(max_size=60), max_size=8), st.lists(st.binary(max_size=60), max_size=8))
def test_arbitrary_bytes_of_service_or_connector_raise_only_login_errors(up: list[bytes], down: list[bytes]) -> None:
    """The bytes may come from the service or from the connector."""
    transaction = Transaction(None)
    with contextlib.suppress(LoginError):
        for piece in up:
            list(transaction.up(piece))
        for piece in down:
            list(transaction.down(piece))


@given(st.binary(max_size=200))
def test_an_arbitrary_row_description_is_parsed_or_refused(body: bytes) -> None:
    """Rows and their columns are parsed."""
    for read in (rows.columns_of, rows.row_of):
        with contextlib.suppress(LoginError):
            read(body)


@given(st.binary(max_size=120))
@example(b'INSERT INTO "a""b".c AS d ("X", y) VALUES (1, 2) RETURNING *')
def test_an_arbitrary_statement_is_classified_or_refused(sql: bytes) -> None:
    """A write that is accepted ends with `*`, and has no comment."""
    with contextlib.suppress(LoginError):
        rows.check_statement(sql)
        if rows.changes_rows(sql):
            assert b"--" not in sql
            assert sql.rstrip(b" \t\n\r\f\v;").endswith(b"*")
    rows.given_columns(sql)
