"""Commits: on disk when they return, isolated from each other, bounded, and atomic whatever happens to the caller or the disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from aileron.audit.verify import verify
from aileron.ledger import EventFilter, Ledger, RunRow, Transaction
from aileron.ledger.writer import MAX_WAITING
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from tests.support.refusals import refusal
from tests.support.shaped import shaped

pytestmark = pytest.mark.anyio


def note(word: str) -> dict[str, Any]:
    """Return an event with one word."""
    return {"type": "note", "word": word}


def words(ledger: Ledger) -> list[str]:
    """Return the words of the notes, in order."""
    rows = ledger.read_now(lambda snapshot: snapshot.events(EventFilter(type="note", oldest_first=True)))
    return [shaped(row.facts)["word"] for row in rows]


def a_run() -> RunRow:
    """Return a run that does not wait for a person."""
    return RunRow(
        id="run-1", action="a", session="s", scope=Scope.AGENT, status=RunStatus.APPROVED, plan_digest="sha256:x"
    )


async def test_a_committed_row_is_visible_to_another_process(ledger: Ledger, path: Path) -> None:
    """The row is in the file when the call returns, not only when the ledger is closed."""
    await ledger.commit(lambda tx: tx.append(note("a")))

    script = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT max(seq) FROM events').fetchone()[0])"
    )
    seen = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == "2"


async def test_a_failing_commit_does_not_undo_the_other_commits_of_its_group(ledger: Ledger, path: Path) -> None:
    """The failed commit's rows are gone, its caller gets the reason, and the chain continues as if they had never been there."""
    failed: list[str] = []

    def work(tx: Transaction, name: str) -> None:
        tx.append(note(name))
        tx.claim("s", name, "sha256:x", name)
        tx.insert_run(msgspec.structs.replace(a_run(), id=name))
        facts = {"run": name, "action": "a", "session": "s", "scope": "agent", "plan_digest": "sha256:x"}
        tx.append({"type": "run.requested", **facts})
        if name.startswith("bad"):
            raise AileronError(FailureClass.BAD_INPUT, name)

    async def commit(name: str) -> None:
        try:
            await ledger.commit(lambda tx: work(tx, name))
        except AileronError as error:
            failed.append(str(error))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(commit, f"good{number}")
            tasks.start_soon(commit, f"bad{number}")

    assert sorted(failed) == sorted(f"bad{number}" for number in range(50))
    assert sorted(words(ledger)) == sorted(f"good{number}" for number in range(50))
    now_us = ledger.now_us()
    assert ledger.read_now(lambda s: s.claimed("s", "good7", "sha256:x", now_us)) == "good7"
    assert ledger.read_now(lambda s: s.claimed("s", "bad7", "sha256:x", now_us)) is None
    assert verify(path).is_whole


async def test_a_row_that_the_database_refuses_fails_only_its_own_commit_and_with_an_aileron_error(
    ledger: Ledger,
) -> None:
    """A violated rule of the schema affects no other commit, and no sqlite3 exception escapes."""

    def twice(tx: Transaction) -> None:
        for _ in range(2):
            tx.insert_run(a_run())

    assert (await refusal(ledger.commit(twice), match="refused a row")).failure_class is FailureClass.INTERNAL_ERROR
    assert await ledger.commit(lambda tx: tx.append(note("next"))) == 2


async def test_a_cancelled_caller_loses_its_result_but_not_its_commit(ledger: Ledger, path: Path) -> None:
    """The caller cannot know whether the rows were committed; the ledger commits them."""
    entered, leave = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        entered.set()
        assert leave.wait(10)
        return tx.append(note("cancelled"))

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.commit, slow)
            await anyio.to_thread.run_sync(entered.wait, 10)
            scope.cancel()
    leave.set()
    await ledger.commit(lambda tx: tx.append(note("after")))

    assert words(ledger) == ["cancelled", "after"]
    assert verify(path).is_whole


async def test_the_commit_queue_is_bounded(ledger: Ledger) -> None:
    """A commit beyond the bound is told to retry; those in the queue are all served."""
    entered, leave = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(_: Transaction) -> None:
        entered.set()
        assert leave.wait(10)

    async def commit(work: Any) -> None:
        done.append(await ledger.commit(work))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, slow)
        await anyio.to_thread.run_sync(entered.wait, 10)
        for _ in range(MAX_WAITING):
            tasks.start_soon(commit, lambda _: 1)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(AileronError) as caught:
            await ledger.commit(lambda _: 1)
        leave.set()

    assert caught.value.failure.failure_class is FailureClass.BUSY
    assert caught.value.failure.retriable
    assert len(done) == MAX_WAITING + 1


async def test_closing_the_ledger_finishes_queued_commits_and_refuses_new_ones(path: Path) -> None:
    """A late caller cannot reopen the ledger."""
    ledger = Ledger.open(path, path.parent, "0.1.0")
    committed: list[int] = []

    async def commit() -> None:
        committed.append(await ledger.commit(lambda tx: tx.append(note("x"))))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(commit)
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(ledger.close)
    ledger.close()

    assert len(committed) == 20
    for refused in (ledger.commit(lambda _: 1), ledger.read(lambda _: 1)):
        with pytest.raises(AileronError, match="closed"):
            await refused
    assert not path.with_name("ledger.db-wal").exists()
    assert verify(path).rows == 21


async def test_the_rows_of_one_caller_keep_its_order(ledger: Ledger) -> None:
    """Numbers count up without gaps, and each is given once."""
    numbers = [await ledger.commit(lambda tx: tx.append(note("x"))) for _ in range(5)]

    assert numbers == [2, 3, 4, 5, 6]


def test_a_caller_without_an_event_loop_can_commit_and_read(ledger: Ledger) -> None:
    """The blocking functions do the same as the asynchronous ones."""
    assert ledger.commit_now(lambda tx: tx.append(note("a"))) == 2
    assert ledger.read_now(lambda snapshot: snapshot.head()).seq == 2


@pytest.mark.parametrize("value", [2**53, float("nan"), "\ud800", b"x"])
def test_an_event_without_a_canonical_form_is_not_recorded(ledger: Ledger, value: object) -> None:
    """The caller gets an error, and the chain is unchanged."""
    with pytest.raises(AileronError, match="cannot be recorded") as caught:
        ledger.commit_now(lambda tx: tx.append({"type": "note", "value": shaped(value)}))

    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert ledger.read_now(lambda snapshot: snapshot.head()).seq == 1


def test_the_size_of_a_record_is_bounded(ledger: Ledger) -> None:
    """Four mebibytes are recorded, and a byte more is refused."""
    limit = 4 << 20
    overhead = len(b'{"at_us":1800000000000000,"seq":2,"type":"note","word":""}')
    ledger.commit_now(lambda tx: tx.append(note("x" * (limit - overhead))))

    with pytest.raises(AileronError, match=f"at most {limit} fit"):
        ledger.commit_now(lambda tx: tx.append(note("x" * (limit - overhead + 1))))


_FILL = """
import os, pathlib, resource, signal, sys
from aileron.audit.verify import verify
from aileron.ledger import Ledger
from aileron.model.failure import AileronError

path, how = pathlib.Path(sys.argv[1]), sys.argv[2]
ledger = Ledger.open(path, path.parent, "0.1.0")
last = 1
def append():
    return ledger.commit_now(lambda tx: tx.append({"type": "note", "word": "x" * 20_000}))
last = append()
before = resource.getrlimit(resource.RLIMIT_FSIZE)
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
try:
    for _ in range(10_000):
        last = append()
    sys.exit("the disk did not fill up")
except AileronError as error:
    print(error.failure.failure_class, error.failure.details["cause"], error.failure.retriable)
head = ledger.read_now(lambda snapshot: snapshot.head())
print("kept" if head.seq == last else f"{last} was answered, {head.seq} is there")
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
else:
    (path.parent / "ballast").unlink()
print("next" if append() == last + 1 else "a number was lost")
ledger.close()
print("whole" if verify(path).is_whole else "broken")
"""


def test_a_commit_fails_while_the_ledger_file_cannot_grow_and_works_afterwards(path: Path) -> None:
    """The write fails: no row is half written, and commits work again when there is room."""
    filled = subprocess.run(
        [sys.executable, "-c", _FILL, str(path), "limit"], capture_output=True, text=True, timeout=60
    )

    assert filled.stdout.split("\n")[:4] == ["internal_error inaccessible True", "kept", "next", "whole"], filled.stderr


def test_a_commit_fails_while_the_disk_is_full_and_works_afterwards(tmp_path: Path) -> None:
    """A file system of four megabytes is filled to its last block; no restart is needed afterwards."""
    unshare = shutil.which("unshare")
    inside = f'mount -t tmpfs -o size=4m none {tmp_path} && head -c 1000000 /dev/zero > {tmp_path}/ballast && exec "$@"'
    command = [unshare or "", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    if unshare is None or subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        if os.environ.get("AILERON_MUST_JAIL") == "1":
            pytest.fail("user namespaces are needed here")
        pytest.skip("no user namespaces here")

    filled = subprocess.run(
        [*command, sys.executable, "-c", _FILL, str(tmp_path / "ledger.db"), "disk"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert filled.stdout.split("\n")[:4] == ["internal_error disk_full True", "kept", "next", "whole"], filled.stderr


def test_a_commit_fails_as_busy_while_another_program_locks_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other program is in a write transaction; the next commit works."""
    monkeypatch.setattr("aileron.ledger.sqlite.BUSY_TIMEOUT_S", 0.05)
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AileronError, match="another program") as caught:
            ledger.commit_now(lambda tx: tx.append(note("a")))
        other.close()

        assert caught.value.failure.failure_class is FailureClass.BUSY
        assert ledger.commit_now(lambda tx: tx.append(note("b"))) == 2


_FAIL_FSYNC = textwrap.dedent(
    """
    import pathlib, sys
    from aileron.ledger import Ledger
    from aileron.model.failure import AileronError

    path = pathlib.Path(sys.argv[1])
    ledger = Ledger.open(path, path.parent, "0.1.0")
    for _ in range(20):
        try:
            ledger.commit_now(lambda tx: tx.append({"type": "note"}))
        except AileronError as error:
            print(error.failure.details["cause"])
    """
)


def test_every_call_after_a_failed_flush_is_refused(path: Path) -> None:
    """The kernel may have dropped data that it could not write, so the ledger accepts nothing until a restart."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not here")
    inject = "inject=fdatasync:error=EIO:when=12"
    command = [strace, "-f", "-qq", "-e", "trace=fdatasync", "-e", inject, "-o", os.devnull]

    told = subprocess.run(
        [*command, sys.executable, "-c", _FAIL_FSYNC, str(path)], capture_output=True, text=True, timeout=60
    )

    causes = told.stdout.split()
    assert 5 < len(causes) < 20, told.stderr
    assert set(causes) == {"damaged"}
    assert verify(path).is_whole
