"""Verification of a file alone: every change to a row is found, and the report says what cannot be proven."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron.audit.log import Audit, GrantUse
from aileron.audit.verify import Reason, Report, verify
from aileron.egress.journal import RequestDenial
from aileron.ledger import ApprovalState, Head, Ledger
from aileron.ledger.chain import NO_HASH, link, make_record
from aileron.model.consent import ConsentKind
from aileron.model.failure import Boundary, Failure, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Failed, Pending, RunStatus, Succeeded
from aileron.runs.journal import LedgerJournal
from tests.audit.conftest import START_S, Clock, a_grant, a_plan, an_invocation, cut_short, reason_of
from tests.audit.signer import Signer
from tests.cli.questions import SUBJECTS
from tests.support.refusals import refusal_of
from tests.support.waiting import wait_until_async

HOME = Path("/home/somebody/.aileron")


async def _history(audit: Audit) -> None:
    plan = a_plan()
    await audit.daemon_started("0.1.0", ["seccomp"], "sha256:0")
    run_id = await audit.requested(plan, an_invocation(), layers=["seccomp"])
    await audit.finished(run_id, Succeeded(run_id=run_id, result={"sent": True}), 3)
    asked = await audit.pending(plan, an_invocation(), START_S * 2)
    await audit.decide(asked.approval_id, "deny", digest=plan.digest, surface="cli", reason="no")
    await audit.daemon_stopped("0.1.0")


ROWS = 10
LATE_US = 2**53 - 1
"""Time after every other."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a closed ledger of ten rows, with one of each kind of row beside the chain."""
    path = tmp_path_factory.mktemp("original") / "ledger.db"
    with Ledger.open(path, HOME, "0.1.0") as ledger:
        anyio.run(_history, Audit(ledger))
    return path


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """Return the path of a copy to tamper with."""
    path = tmp_path / "ledger.db"
    shutil.copy(original, path)
    return path


def edit(path: Path, *statements: str) -> Report:
    """Change the file by plain SQL, then verify it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return verify(path)


def found(report: Report) -> tuple[Reason, int | None] | None:
    """Return the reason and the row of the finding."""
    return None if report.finding is None else (report.finding.reason, report.finding.seq)


def test_an_unchanged_ledger_verifies(copy: Path) -> None:
    """The report has the rows, the head, and what these do not prove. Verifying needs no daemon and changes no byte."""
    before = copy.read_bytes()
    copy.chmod(0o400)
    report = verify(copy, expected_home=HOME)

    assert report.is_whole
    assert report.rows == ROWS
    assert report.head is not None
    assert re.fullmatch(rf"{ROWS}:[0-9a-f]{{64}}", report.head)
    assert any("removed from the end" in words for words in report.cannot_prove)
    assert any("recomputed the whole chain" in words for words in report.cannot_prove)
    assert copy.read_bytes() == before
    assert [found.name for found in copy.parent.iterdir()] == ["ledger.db"]
    assert report.to_json()["whole"] is True


@pytest.mark.parametrize("seq", range(1, ROWS + 1))
def test_an_altered_record_is_found_in_any_row(copy: Path, seq: int) -> None:
    """The change is in the record's text, without new hashes."""
    report = edit(copy, f"UPDATE events SET record = replace(record, 'at_us', 'at_uz') WHERE seq = {seq}")

    assert found(report) == (Reason.HASH, seq)
    assert report.rows == seq - 1


@pytest.mark.parametrize("seq", range(1, ROWS))
def test_a_deleted_row_is_found(copy: Path, seq: int) -> None:
    """A deleted row shows as a gap; if later rows were renumbered, as a row that follows another one."""
    assert found(edit(copy, f"DELETE FROM events WHERE seq = {seq}")) == (Reason.GAP, seq + 1)

    renumbered = edit(copy, *(f"UPDATE events SET seq = {late} - 1 WHERE seq = {late}" for late in range(seq + 1, 11)))
    assert found(renumbered) == (Reason.PREVIOUS, seq)


def test_two_swapped_rows_are_found(copy: Path) -> None:
    """The row that comes first now does not follow its predecessor."""
    swap = (
        "UPDATE events SET seq = 100 WHERE seq = 4",
        "UPDATE events SET seq = 4 WHERE seq = 5",
        "UPDATE events SET seq = 5 WHERE seq = 100",
    )

    assert found(edit(copy, *swap)) == (Reason.PREVIOUS, 4)


def test_an_inserted_row_is_found(copy: Path) -> None:
    """The row has a correct hash of its own, but the next row names another predecessor."""
    connection = sqlite3.connect(copy, isolation_level=None)
    (previous,) = connection.execute("SELECT hash FROM events WHERE seq = 5").fetchone()
    record = make_record(6, LATE_US, {"type": "vault.created"})
    connection.execute("UPDATE events SET seq = seq + 1000 WHERE seq > 5")
    connection.execute("UPDATE events SET seq = seq - 999 WHERE seq > 1000")
    connection.execute(
        "INSERT INTO events VALUES (6, ?, 'vault.created', NULL, NULL, NULL, NULL, NULL, ?, ?, ?)",
        (LATE_US, record.decode(), previous, link(previous, record)),
    )
    connection.close()

    assert found(verify(copy)) == (Reason.PREVIOUS, 7)


def test_a_row_changed_together_with_its_hash_is_found_at_the_next_row(copy: Path) -> None:
    """The next row contains the old hash, so a forger must recompute all later rows."""
    connection = sqlite3.connect(copy, isolation_level=None)
    record, previous = connection.execute("SELECT record, previous FROM events WHERE seq = 5").fetchone()
    record = record.replace('"ms":3', '"ms":4')
    connection.execute(
        "UPDATE events SET record = ?, hash = ? WHERE seq = 5", (record, link(previous, record.encode()))
    )
    connection.close()

    assert found(verify(copy)) == (Reason.PREVIOUS, 6)


@pytest.mark.parametrize("record", ["not JSON", "[]", "{}"])
def test_a_correctly_hashed_row_without_a_valid_record_is_found(copy: Path, record: str) -> None:
    """A correct hash proves that the bytes are unchanged, not that they are a record."""
    connection = sqlite3.connect(copy, isolation_level=None)
    (previous,) = connection.execute("SELECT previous FROM events WHERE seq = 10").fetchone()
    digest = link(previous, record.encode())
    connection.execute("UPDATE events SET record = ?, hash = ? WHERE seq = 10", (record, digest))
    connection.close()

    assert found(verify(copy)) == (Reason.COLUMNS if record == "{}" else Reason.HASH, 10)


@pytest.mark.parametrize(
    "change",
    ["type = 'vault.locked'", "run = 'run-other'", "session = NULL", "action = 'other'", "at_us = 5", "class = 'busy'"],
)
def test_a_column_that_differs_from_its_record_is_found(copy: Path, change: str) -> None:
    """Searches use columns, which must not hide what the record says."""
    assert found(edit(copy, f"UPDATE events SET {change} WHERE seq = 5")) == (Reason.COLUMNS, 5)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE runs SET outcome = CAST(replace(outcome, 'true', 'null') AS BLOB)", Reason.OUTCOME),
        ("UPDATE runs SET outcome = NULL", Reason.OUTCOME),
        ("DELETE FROM runs", Reason.OUTCOME),
        ("UPDATE approvals SET subject = CAST(replace(subject, 'a@ex', 'b@ex') AS BLOB)", Reason.PLAN),
        ("UPDATE approvals SET subject = x'00'", Reason.PLAN),
        ("DELETE FROM approvals", Reason.PLAN),
    ],
)
def test_verification_finds_altered_results_and_plans_stored_outside_of_the_chain(
    copy: Path, statement: str, reason: Reason
) -> None:
    """Both are too large for a row, which has their digests."""
    report = edit(copy, statement)

    assert reason_of(report) is reason


def test_verification_finds_a_ledger_of_another_aileron_home(copy: Path) -> None:
    """The caller has to say which home it should be."""
    assert found(verify(copy, expected_home=Path("/home/other/.aileron"))) == (Reason.GENESIS, 1)


def test_a_ledger_without_its_genesis_row_is_found(copy: Path) -> None:
    """The cases are no row at all, and another first row."""
    assert found(edit(copy, "DELETE FROM events")) == (Reason.GENESIS, None)
    record = make_record(1, 1, {"type": "vault.created"})
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute(
        "INSERT INTO events VALUES (1, 1, 'vault.created', NULL, NULL, NULL, NULL, NULL, ?, ?, ?)",
        (record.decode(), NO_HASH, link(NO_HASH, record)),
    )
    connection.close()

    assert found(verify(copy)) == (Reason.GENESIS, 1)


def test_removed_last_rows_are_found_only_with_a_head_kept_elsewhere(copy: Path) -> None:
    """The report without such a head says that it cannot know."""
    whole = verify(copy)
    assert whole.head is not None
    head = Head.parse(whole.head)
    assert found(edit(copy, "DELETE FROM events WHERE seq > 5")) == (
        Reason.STATE,
        None,
    )  # what became of it is still there
    cut = edit(copy, "DELETE FROM approvals", "DELETE FROM runs WHERE approval IS NOT NULL")

    assert cut.is_whole
    assert any("removed from the end" in words for words in cut.cannot_prove)
    assert found(verify(copy, known_head=head)) == (Reason.HEAD, 5)


def test_a_known_head_of_an_earlier_row_is_recognized_in_a_longer_ledger(copy: Path, original: Path) -> None:
    """The head of any row can be compared; a recomputed chain does not contain it."""
    with sqlite3.connect(copy) as connection:
        (digest,) = connection.execute("SELECT hash FROM events WHERE seq = 5").fetchone()
    connection.close()

    report = verify(copy, known_head=Head(5, digest))
    assert report.is_whole
    assert any("after row 5" in words for words in report.cannot_prove)
    assert found(verify(copy, known_head=Head(5, bytes(32)))) == (Reason.HEAD, 5)
    assert verify(original).is_whole


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END", "trigger 't'"),
        ("CREATE VIEW v AS SELECT 1", "view 'v'"),
        ("PRAGMA user_version = 99", "schema 99"),
        ("PRAGMA application_id = 7", "not a ledger of aileron"),
        ("CREATE TABLE more (x)", "table 'more'"),
        ("DROP INDEX events_run", "index 'events_run' is missing"),
        ("CREATE UNIQUE INDEX one ON events (class)", "index 'one'"),
    ],
)
def test_a_file_with_a_foreign_schema_object_or_version_is_found(copy: Path, statement: str, words: str) -> None:
    """An index could refuse rows, and a table or a view hide some; so could the lack of an index that was there."""
    report = edit(copy, statement)

    assert report.finding is not None
    assert report.finding.reason is Reason.FILE
    assert words in report.finding.message


def test_a_missing_file_is_an_error_and_a_file_that_is_no_database_a_finding(tmp_path: Path) -> None:
    """The first is the caller's mistake, the second damage."""
    assert refusal_of(verify, tmp_path / "none.db").failure_class is FailureClass.NOT_FOUND

    (tmp_path / "ledger.db").write_bytes(b"not a database, and long enough to be read as one" * 100)
    assert found(verify(tmp_path / "ledger.db")) == (Reason.FILE, None)


def _bytes_of_rows(path: Path) -> list[int]:
    """Return the offsets of the rows in the file: record, previous hash and hash are the end of each, in one piece."""
    content = path.read_bytes()
    places: list[int] = []
    with sqlite3.connect(path) as connection:
        for parts in connection.execute("SELECT CAST(record AS BLOB), previous, hash FROM events").fetchall():
            value = b"".join(parts)
            assert content.count(value) == 1
            places.extend(range(content.find(value), content.find(value) + len(value)))
    connection.close()
    return places


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_of_any_row_on_disk_is_found(original: Path, tmp_path: Path, data: st.DataObject) -> None:
    """The test flips bits in the file itself, in every record and hash, without the database."""
    place = data.draw(st.sampled_from(_bytes_of_rows(original)))
    content = bytearray(original.read_bytes())
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "flipped.db"
    path.write_bytes(content)

    assert verify(path).finding is not None


def test_damage_that_makes_the_database_error_undecodable_is_a_finding(copy: Path) -> None:
    """The schema has a byte that is not text, and Python cannot decode the error message that quotes it."""
    content = bytearray(copy.read_bytes())
    content[content.index(b"CREATE TABLE runs")] = 0x80
    copy.write_bytes(content)

    assert found(verify(copy)) == (Reason.FILE, None)


def test_an_unknown_database_file_format_is_a_finding(copy: Path) -> None:
    """Bytes 18 and 19 of the header are the format's version: the database refuses to read, and that is reported."""
    content = bytearray(copy.read_bytes())
    content[18:20] = b"\x05\x05"
    copy.write_bytes(content)

    assert found(verify(copy)) == (Reason.FILE, None)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gives_a_report_and_no_exception(original: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Any bytes are changed, cut or added anywhere."""
    content = bytearray(original.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    content[start : start + data.draw(st.integers(0, 64))] = data.draw(st.binary(max_size=64))
    path = tmp_path / "damaged.db"
    path.write_bytes(content)

    report = verify(path)

    assert report.is_whole == (report.finding is None)


# What lies beside the chain: runs, approvals, idempotency keys


async def _every_state(audit: Audit, clock: Clock) -> None:
    """Record a run and a question in every state, with keys that are kept and that are forgotten."""
    plan, number = a_plan(), iter(range(100))

    def asked(**more: Any) -> Invocation:
        return an_invocation(idempotency_key=f"key-{next(number)}", **more)

    async def approved() -> Pending:
        waiting = await audit.pending(plan, asked(), clock.now_us / 1_000_000 + 900)
        await audit.decide(waiting.approval_id, "approve", digest=plan.digest, surface="operator")
        return waiting

    await audit.requested(plan, asked(), layers=["seccomp"])
    clock.advance(25 * 3600)
    running = await audit.requested(plan, asked(), layers=["seccomp"])
    failure = Failure(failure_class=FailureClass.NETWORK_ERROR, message="no", boundary=Boundary.EXTERNAL)
    await audit.retried(running, plan.steps[0], 1, failure, 1.0)
    await audit.started(running, plan.steps[0], 2, ["seccomp"])
    await LedgerJournal(audit, running).of_step(plan.steps[0]).denied(RequestDenial(1, "GET", "x:1", "url_host"))
    await audit.requested(plan, asked(session="other"))
    over = await audit.requested(plan, an_invocation(), layers=["seccomp"])
    await audit.finished(over, Succeeded(run_id=over, result={"sent": [1.5, "ü"]}), 3)
    failed = await audit.requested(plan, asked(), layers=["seccomp"])
    await audit.finished(failed, Failed(run_id=failed, failure=failure), 1)
    lost = await audit.requested(plan, asked(), layers=["seccomp"])
    await cut_short(audit, lost, plan)
    clock.advance(1)
    await audit.refused(asked(), failure)
    await audit.pending(plan, asked(again=lost), clock.now_us / 1_000_000 + 900)
    await approved()
    await audit.redeem((await approved()).approval_id, plan.digest)
    done = await approved()
    await audit.redeem(done.approval_id, plan.digest)
    await audit.finished(done.run_id, Succeeded(run_id=done.run_id, result=None), 1)
    denied = await audit.pending(plan, asked(), clock.now_us / 1_000_000 + 900)
    await audit.decide(denied.approval_id, "deny", digest=plan.digest, surface="operator", reason="not today")
    await audit.cancel((await approved()).approval_id, surface="agent")
    await audit.pending(plan, asked(), clock.now_us / 1_000_000 + 1)
    clock.advance(2)
    assert len(await audit.expire_due()) == 1


async def _decided(audit: Audit, clock: Clock, ledger: Ledger) -> None:
    """Record every way to decide, and all rows of questions: edits, previews, conversations, consents, keys, grants."""
    plan, first, second = a_plan(), Signer(), Signer()
    edited = msgspec.structs.replace(plan, args={"to": "b@example.com"})

    async def ask() -> str:
        return (await audit.pending(plan, an_invocation(), clock.now_us / 1_000_000 + 900)).approval_id

    open_one = await ask()
    await audit.add_edit(open_one, edited)
    await audit.put_question(open_one, "who is that?")
    await first.appoint(audit)
    signed = await ask()
    head = str(ledger.read_now(lambda snapshot: snapshot.head()))
    both = await audit.add_preview(signed, plan.digest, "sha256:" + "aa" * 32, run_id="run-preview")
    assert both is not None
    signature = first.signed(signed, both, head=head)
    await audit.decide(signed, "approve", digest=both, surface="operator", signed=signature, hold_s=3600)
    await second.appoint(audit, replaces=first)
    talked = await ask()
    await audit.put_question(talked, "why?")
    await audit.put_answer(talked, "because", "local")
    await audit.put_question(talked, "and then?")
    await audit.add_edit(talked, edited)
    await audit.add_preview(talked, edited.digest, None, run_id="run-failed", failure_class=FailureClass.NETWORK_ERROR)
    signature = second.signed(talked, edited.digest, "approve", reason="to b")
    await audit.decide(talked, "approve", digest=edited.digest, surface="operator", reason="to b", signed=signature)
    await audit.redeem(talked, edited.digest)
    denied = await ask()
    signature = second.signed(denied, plan.digest, "deny", reason="no")
    await audit.decide(denied, "deny", digest=plan.digest, surface="operator", reason="no", signed=signature)
    consent, _ = await audit.ask("basic/a/b", SUBJECTS["binding"], expires_at=clock.now_us / 1_000_000 + 900)
    given = second.signed(consent.id, consent.digest)
    await audit.decide(consent.id, "approve", digest=consent.digest, surface="operator", signed=given)
    await audit.redeem(consent.id, consent.digest)
    await audit.agreed(ConsentKind.BINDING, "basic/a/b", consent.digest, consent.id)
    await audit.ask("send-email", a_grant(1e17), expires_at=clock.now_us / 1_000_000 + 900)
    await audit.ended(ConsentKind.BINDING, "basic/a/b", "revoked")
    for _ in range(2):
        await audit.requested(plan, an_invocation(), layers=["seccomp"], grant=GrantUse("act-grant", 3))
    await audit.requested(plan, an_invocation(), layers=["seccomp"], grant=GrantUse("act-other", 1))
    await audit.grant_revoked("act-grant")
    await audit.refuse(denied, "approve", "unsigned", "operator")
    await audit.caller_refused("agent", "POST /v1/action-approvals/x/decide", "local")


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a closed ledger in which every kind of event has happened."""
    path, clock = tmp_path_factory.mktemp("eventful") / "ledger.db", Clock()
    with Ledger.open(path, HOME, "0.1.0", clock=clock) as ledger:
        anyio.run(_every_state, Audit(ledger), clock)
        anyio.run(_decided, Audit(ledger), clock, ledger)
    return path


TABLES = {
    "events": "seq",
    "runs": "id",
    "approvals": "id",
    "idempotency": "run",
    "set_back": "seq",
    "candidates": "made_us",
    "conversation": "question",
    "grant_uses": "id",
}
"""Every table, and a column with a different value in each of its rows."""


def _cells(path: Path) -> list[tuple[str, Any, str, Any]]:
    """Return every column of every row of every table: table, value of the identifying column, column, value."""
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert set(tables) <= set(TABLES), "a table that nothing here looks at"
    cells = []
    for table in tables:
        cursor = connection.execute(f"SELECT * FROM {table}")
        columns = [name for name, *_ in cursor.description]
        for row in cursor.fetchall():
            values = dict(zip(columns, row, strict=True))
            cells += [(table, values[TABLES[table]], column, value) for column, value in values.items()]
    connection.close()
    return cells


def _set(path: Path, cell: tuple[str, Any, str, Any], value: bytes | int | None) -> bool:
    """Write another value of the same type into one column of one row. Return whether the database accepted it."""
    table, name, column, before = cell
    mark = "CAST(? AS TEXT)" if isinstance(value, bytes) and not isinstance(before, bytes) else "?"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    try:
        connection.execute(f"UPDATE {table} SET {column} = {mark} WHERE {TABLES[table]} = ?", (value, name))
    except sqlite3.IntegrityError:  # a rule of the schema forbids it
        return False
    finally:
        connection.close()
    return True


def _others(value: Any) -> list[bytes | int | None]:
    """Return different values of the same type, and None."""
    match value:
        case None:
            return [b"x", 1]
        case int():
            return [value + 1, -value, value ^ 1 << 40, None]
        case str():
            return [value.encode() + b" ", value[:-1].encode(), value.swapcase().encode() or b"X", b"\xff", None]
        case _:
            return [value + b" ", value[:-1], b"", None]


def test_a_ledger_with_every_state_verifies(eventful: Path) -> None:
    """This is the positive control of the tests below, which change that ledger."""
    connection = sqlite3.connect(eventful)
    statuses = {status for (status,) in connection.execute("SELECT status FROM runs")}
    states = {state for (state,) in connection.execute("SELECT state FROM approvals")}
    keys = connection.execute("SELECT count(*) FROM idempotency").fetchone()[0]
    connection.close()

    assert statuses == set(RunStatus)
    assert states == set(ApprovalState)
    assert keys == 11  # of twelve, one is forgotten
    assert verify(eventful).finding is None


@pytest.mark.computes_for(60)
def test_another_value_in_any_column_of_any_row_is_found(eventful: Path, tmp_path: Path) -> None:
    """The test changes every column of every row of every table."""
    path, content, missed, changed = tmp_path / "ledger.db", eventful.read_bytes(), [], 0
    for number, cell in enumerate(_cells(eventful)):
        values = _others(cell[3])
        both = dict.fromkeys(
            values[step % len(values)] for step in (number, number + 1)
        )  # in turn, two; of an event one
        for value in list(both)[: 1 if cell[0] == "events" else 2]:
            path.write_bytes(content)
            if value != cell[3] and _set(path, cell, value):
                changed += 1
                if verify(path).finding is None:
                    missed.append((cell, value))

    assert missed == []
    assert changed > 1500, "the database took nearly all of them"


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_of_any_column_is_found(eventful: Path, tmp_path: Path, data: st.DataObject) -> None:
    """The change is made through the database, which keeps its own indexes right."""
    cell = data.draw(st.sampled_from([cell for cell in _cells(eventful) if cell[3] not in (None, "", b"")]))
    value = cell[3]
    flipped: bytes | int
    if isinstance(value, int):
        flipped = value ^ 1 << data.draw(st.integers(0, 62))
    else:
        content = bytearray(value.encode() if isinstance(value, str) else value)
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        flipped = bytes(content)
    path = tmp_path / "ledger.db"
    shutil.copy(eventful, path)
    if _set(path, cell, flipped):
        assert verify(path).finding is not None


@pytest.mark.parametrize("table", ["runs", "approvals", "idempotency", "candidates", "conversation", "grant_uses"])
def test_a_state_without_its_event_is_found(eventful: Path, tmp_path: Path, table: str) -> None:
    """An added row is an approval that nobody gave; a removed one is an idempotency key that can be used again."""
    with contextlib.closing(sqlite3.connect(eventful)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    for number in range(count):
        path = tmp_path / "ledger.db"
        shutil.copy(eventful, path)
        name = f"(SELECT {TABLES[table]} FROM {table} LIMIT 1 OFFSET {number})"
        assert edit(path, f"DELETE FROM {table} WHERE {TABLES[table]} = {name}").finding is not None
    shutil.copy(eventful, path)
    names = {"idempotency": "key", "candidates": "digest", "conversation": "number"}
    columns = [column for found_in, _, column, _ in _cells(eventful) if found_in == table]
    listed = ", ".join(dict.fromkeys(columns))
    value = "99" if table == "conversation" else "'added'"
    added = listed.replace(f"{names.get(table, 'id')},", f"{value},", 1)
    report = edit(path, f"INSERT INTO {table} ({listed}) SELECT {added} FROM {table} LIMIT 1")
    assert reason_of(report) is Reason.STATE


def test_events_in_an_impossible_order_are_found(copy: Path) -> None:
    """A run that was never requested ends: the row is well chained, but contradicts the earlier rows."""
    connection = sqlite3.connect(copy, isolation_level=None)
    (previous,) = connection.execute("SELECT hash FROM events WHERE seq = 10").fetchone()
    record = make_record(11, LATE_US, {"type": "run.finished", "run": "run-none", "status": "completed"})
    connection.execute(
        "INSERT INTO events VALUES (11, ?, 'run.finished', 'run-none', NULL, NULL, NULL, NULL, ?, ?, ?)",
        (LATE_US, record.decode(), previous, link(previous, record)),
    )
    connection.close()

    assert found(verify(copy)) == (Reason.STATE, 11)


def test_a_duplicate_row_is_found(copy: Path) -> None:
    """The row under another number is not the row that was chained."""
    report = edit(
        copy,
        "INSERT INTO events SELECT 11, at_us, type, run, session, action, connector, class, record, previous, hash"
        " FROM events WHERE seq = 10",
    )

    assert found(report) == (Reason.PREVIOUS, 11)


def test_another_ledger_of_the_same_home_is_found_by_a_head(copy: Path, tmp_path: Path) -> None:
    """The other ledger is consistent, but does not contain the head that was kept elsewhere."""
    head = Head.parse(str(verify(copy).head))
    copy.unlink()
    with Ledger.open(copy, HOME, "0.1.0") as ledger:
        anyio.run(_history, Audit(ledger))

    assert verify(copy, expected_home=HOME).is_whole
    assert found(verify(copy, expected_home=HOME, known_head=head)) == (Reason.HEAD, ROWS)


def test_a_ledger_can_be_verified_while_it_is_written(copy: Path) -> None:
    """The report is of a single moment: chain, states and keys are of the same one."""
    copy.chmod(0o600)
    stop = threading.Event()
    reports: list[Report] = []

    def check() -> None:
        until = time.monotonic() + 30  # the writer may be slow to begin, not that slow
        while time.monotonic() < until and (len(reports) < 20 or reports[-1].rows == reports[0].rows):
            reports.append(verify(copy))
        stop.set()

    def is_checked(rows: int) -> bool:
        return rows < 30 * (len(reports) + 1) or stop.is_set()

    async def write() -> None:
        plan = a_plan()
        with Ledger.open(copy, HOME, "0.1.0") as ledger:
            audit, number = Audit(ledger), 0
            while not stop.is_set():
                number += 1
                run_id = await audit.requested(plan, an_invocation(idempotency_key=str(number)), layers=["seccomp"])
                await audit.finished(run_id, Succeeded(run_id=run_id, result=number), 1)
                # A disk that costs nothing (tmpfs) would take more rows during each check than the check before had read.
                await wait_until_async(functools.partial(is_checked, number), "a check is done")

    thread = threading.Thread(target=check)
    thread.start()
    anyio.run(write)
    thread.join(60)

    assert {report.finding for report in reports} == {None}
    assert reports[-1].rows > reports[0].rows


def test_a_ledger_can_be_verified_while_a_daemon_has_it_open(copy: Path) -> None:
    """The report includes the newest rows, and no file of another owner is left behind."""
    copy.chmod(0o600)
    with Ledger.open(copy, HOME, "0.1.0") as ledger:
        ledger.commit_now(lambda tx: tx.append({"type": "vault.created"}))
        report = verify(copy)

        assert report.is_whole
        assert report.rows == ROWS + 1
        assert {stat.S_IMODE(found.stat().st_mode) for found in copy.parent.iterdir()} == {0o600}
        assert {found.stat().st_uid for found in copy.parent.iterdir()} == {os.getuid()}


def test_every_reason_for_a_finding_occurs_in_a_test(copy: Path) -> None:
    """The closed list of reasons has no member that no test can cause."""
    source = Path(__file__).read_text() + Path(__file__).with_name("test_audit_signatures.py").read_text()

    assert [reason for reason in Reason if f"Reason.{reason.name}" not in source] == []
