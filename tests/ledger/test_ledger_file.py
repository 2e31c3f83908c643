"""The ledger's file: private, ours, of a known version, and never continued from a row that was altered."""

from __future__ import annotations

import itertools
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.ledger import EventFilter, Head, Ledger
from aileron.ledger.schema import APPLICATION_ID, SCHEMA_VERSION, script_of
from aileron.model.failure import AileronError
from tests.audit.conftest import a_plan, an_invocation


def open_at(path: Path) -> Ledger:
    """Open the ledger as the daemon does."""
    return Ledger.open(path, path.parent, "0.1.0")


def made(path: Path, rows: int = 3) -> Path:
    """Make a closed ledger with this number of notes, and return its path."""
    with open_at(path) as ledger:
        for _ in range(rows):
            ledger.commit_now(lambda tx: tx.append({"type": "note"}))
    return path


def edit(path: Path, *statements: str) -> None:
    """Change the file without Aileron's knowledge."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_the_ledger_file_and_its_write_ahead_log_are_private_to_their_owner(path: Path) -> None:
    """The database, its write-ahead log and its shared memory have mode 0600, whatever the umask is."""
    before = os.umask(0)
    try:
        with open_at(path) as ledger:
            ledger.commit_now(lambda tx: tx.append({"type": "note"}))
            modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    finally:
        os.umask(before)

    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


def test_the_first_row_of_the_ledger_contains_the_home_path_the_version_and_the_ledger_id(path: Path) -> None:
    """The genesis row also identifies the ledger: no two ledgers have the same name."""
    names = []
    for folder in ("one", "two"):
        (path.parent / folder).mkdir()
        with open_at(path.parent / folder / "ledger.db") as ledger:
            (genesis,) = ledger.read_now(lambda snapshot: snapshot.events(EventFilter()))
        assert genesis.facts["home"] == str(path.parent / folder)
        assert genesis.facts["version"] == "0.1.0"
        names.append(genesis.facts["ledger"])

    assert len(set(names)) == 2


def test_reopening_continues_the_chain(path: Path) -> None:
    """The ledger has a single genesis row and a single chain."""
    made(path)
    with open_at(path) as ledger:
        assert ledger.commit_now(lambda tx: tx.append({"type": "note"})) == 5

    assert verify(path).rows == 5


def test_a_ledger_path_with_special_characters_works(tmp_path: Path) -> None:
    """The path must never be parsed as a database URI."""
    home = tmp_path / "a?mode=ro&b #%41 ü"
    home.mkdir()

    made(home / "ledger.db")

    assert (home / "ledger.db").is_file()
    assert verify(home / "ledger.db").is_whole


def _wider(path: Path) -> None:
    path.chmod(0o640)


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))
    path.symlink_to("elsewhere.db")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _garbage(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


def _foreign(path: Path) -> None:
    path.unlink()
    edit(path, "CREATE TABLE t (x)")
    path.chmod(0o600)


def _newer(path: Path) -> None:
    edit(path, "PRAGMA user_version = 99")


def _trigger(path: Path) -> None:
    edit(path, "CREATE TRIGGER drop_it BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END")


def _altered_head(path: Path) -> None:
    edit(path, "UPDATE events SET record = replace(record, 'note', 'nose') WHERE seq = 4")


def _no_rows(path: Path) -> None:
    edit(path, "DELETE FROM events")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_wider, "chmod 600"),
        (_linked, "not a regular file"),
        (_folder, "not a regular file"),
        (_garbage, "file is not a database"),
        (_foreign, "not a ledger of aileron"),
        (_newer, "schema 99, this aileron knows 4"),
        (_trigger, "trigger 'drop_it'"),
        (_altered_head, "row 4, the newest, is not what was written"),
        (_no_rows, "the genesis row is missing"),
    ],
)
def test_an_unsuitable_ledger_file_is_refused_with_the_reason(
    path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    """Each refusal has its reason; the unchanged file opens."""
    made(path)
    open_at(path).close()
    spoil(path)

    with pytest.raises(AileronError, match=why):
        open_at(path)


def test_a_refused_ledger_file_is_not_changed(path: Path) -> None:
    """A foreign file is not written to, not even its journal mode."""
    edit(path, "CREATE TABLE t (x)")
    path.chmod(0o600)
    before = path.read_bytes()

    with pytest.raises(AileronError):
        open_at(path)

    assert path.read_bytes() == before


def test_a_missing_home_is_reported(tmp_path: Path) -> None:
    """The message has the system's reason, as our error."""
    with pytest.raises(AileronError, match="No such file or directory"):
        open_at(tmp_path / "missing" / "ledger.db")


def test_two_writers_of_one_file_make_one_chain(path: Path) -> None:
    """The home's lock prevents two daemons. If it failed, no row would be lost and the chain would not fork."""
    with open_at(path) as writer, open_at(path) as other:

        def write(ledger: Ledger) -> None:
            for _ in range(50):
                ledger.commit_now(lambda tx: tx.append({"type": "note"}))

        threads = [threading.Thread(target=write, args=(ledger,)) for ledger in (writer, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    report = verify(path)
    assert report.is_whole
    assert report.rows == 101


def test_the_ledger_refuses_commits_after_its_rows_were_deleted(path: Path) -> None:
    """An empty table gives the chain nothing to continue from, and it is not started anew."""
    with open_at(path) as ledger:
        ledger.commit_now(lambda tx: tx.append({"type": "note"}))
        edit(path, "DELETE FROM events")

        for _ in range(2):
            with pytest.raises(AileronError, match="every row is gone"):
                ledger.commit_now(lambda tx: tx.append({"type": "note"}))


def test_a_head_is_parsed_from_its_text() -> None:
    """A person notes the text down, and later compares it with the ledger."""
    head = Head(12, bytes(range(32)))

    assert Head.parse(str(head)) == head
    for wrong in ("", "12", "x:" + "0" * 64, "12:00", "12:" + "g" * 64, "\u0661:" + "0" * 64):
        with pytest.raises(ValueError, match=r"not SEQ:HASH|hexadecimal"):
            Head.parse(wrong)


def test_every_indexed_column_equals_the_field_of_its_record(path: Path) -> None:
    """Searches use the columns, and the chain covers the record."""
    made(path)
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT seq, at_us, type, run, session, action, connector, class, record FROM events")

    for seq, at_us, kind, *others, record in rows.fetchall():
        facts = msgspec.json.decode(record)
        assert (facts["seq"], facts["at_us"], facts["type"]) == (seq, at_us, kind)
        assert others == [facts.get(name) for name in ("run", "session", "action", "connector", "class")]
    connection.close()


def as_schema(path: Path, version: int) -> None:
    """Convert the ledger to what an older Aileron had: the tables and columns of that schema, and nothing else."""
    old = path.with_name("old.db")
    connection = sqlite3.connect(old, isolation_level=None)
    for statement in script_of(version).split(";"):
        connection.execute(statement)
    connection.execute("ATTACH ? AS new", (str(path),))
    for (table,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    old.chmod(0o600)
    old.rename(path)


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    connection.close()
    return found


async def _some_history(ledger: Ledger) -> None:
    audit, plan = Audit(ledger), a_plan()
    for decision in ("approve", "deny"):
        asked = await audit.pending(plan, an_invocation(), 2e9)
        await audit.decide(asked.approval_id, decision, digest=plan.digest, surface="operator")
    await audit.pending(plan, an_invocation(), 2e9)


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_ledger_of_an_older_schema_is_migrated_in_place(path: Path, version: int) -> None:
    """Events are not rewritten; the chain verifies before and after, and added tables have the rows that they would have had."""
    start = 1_900_000_000_000_000
    moments = itertools.chain(
        (start + step for step in (100, 101, 90, 95, 102, 90, 95, 101, 103, 102)), itertools.count(start + 200)
    )
    with Ledger.open(path, path.parent, "0.1.0", clock=lambda: next(moments)) as ledger:
        for _ in range(5):
            ledger.commit_now(lambda tx: tx.append({"type": "note"}))
        anyio.run(_some_history, ledger)
    new = tables(path)
    as_schema(path, version)
    assert verify(path).is_whole

    open_at(path).close()

    assert tables(path) == new
    assert new["set_back"] != []
    assert [row[11] for row in new["approvals"]] == ["send-email"] * 3
    assert verify(path).is_whole


def test_a_failed_migration_leaves_the_older_schema(path: Path) -> None:
    """The migration is atomic: here the new table's name is taken, and that is reported as damage."""
    made(path)
    as_schema(path, 1)
    edit(path, "CREATE TABLE set_back (x)")

    with pytest.raises(AileronError, match="set_back"):
        open_at(path)

    edit(path, "DROP TABLE set_back")
    assert verify(path).is_whole
    open_at(path).close()
