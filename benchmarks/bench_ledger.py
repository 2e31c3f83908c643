"""Measure whether the ledger stays fast as it grows, and what durability costs: against itself small, a bare flush, and SQLite.

Three questions, each interleaved in one run:
- Do appending and every search take at 1,000,000 rows what they take at 10,000? Goal: at most 1.5 times.
- What does one caller pay for a durable event, against a flush of the same bytes? Goal: at most 3 times.
- How many events a second do 32 callers get, against an SQLite transaction of its own for each event? Goals:
  at least 15 times if each caller has a connection, and 6 times if all share one.

The ledgers are made by the ledger's own writer in a directory on a real disk (`AILERON_BENCH_DIR`, /var/tmp unless set), take
about 700 MB, and are removed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sqlite3
import statistics
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aileron.ledger import EventFilter, Ledger
from benchmarks.ledgers import DIGEST, EVENT, ROWS_PER_RUN, SPACING_US, START_US, filled
from benchmarks.measure import Question, answer, at_least, at_most, interleave, rates

SMALL, LARGE = 10_000, 1_000_000
ROUNDS = 60
CALLERS, PER_CALLER = 32, 20


def _ledger(directory: Path, rows: int) -> Ledger:
    directory.mkdir()
    return filled(directory / "ledger.db", directory, rows)


def _searches(rows: int) -> dict[str, EventFilter]:
    """Return searches by each condition alone, by all together, and by pairs that match no row, which cost the most."""
    runs, span = rows // ROWS_PER_RUN, rows // ROWS_PER_RUN * SPACING_US

    def at(share: float) -> int:
        return START_US + int(span * share)

    together = {"session": "local", "action": "action-10", "connector": "github://acme/connector-0"}
    wanted: dict[str, dict[str, Any]] = {
        "newest": {},
        "run": {"run": f"run-{runs // 2:020d}"},
        "session": {"session": "local"},
        "action": {"action": "action-7"},
        "connector": {"connector": "github://acme/connector-7"},
        "type": {"type": "run.finished"},
        "class": {"failure_class": "network_error"},
        "since": {"since_us": at(0.5)},
        "until": {"until_us": at(0.5)},
        "since, until": {"since_us": at(0.25), "until_us": at(0.5)},
        "after, oldest first": {"after": rows // 2, "oldest_first": True},
        "session, type": {"session": "local", "type": "run.finished"},
        "connector, type": {"connector": "github://acme/connector-7", "type": "egress.sending"},
        "class, action": {"failure_class": "network_error", "action": "action-10"},
        "all": {**together, "type": "run.finished", "failure_class": "network_error"},
        "all, in time": {**together, "type": "run.finished", "since_us": at(0.2), "until_us": at(0.8)},
        "class, action: never": {"failure_class": "network_error", "action": "action-3"},
        "action, connector: never": {"action": "action-3", "connector": "github://acme/connector-4"},
        "session: never": {"session": "nobody"},
    }
    return {name: EventFilter(**conditions, limit=20) for name, conditions in wanted.items()}


def _uses(ledger: Ledger, rows: int) -> dict[str, Callable[[], object]]:
    keys = itertools.count()
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: ledger.commit_now(lambda tx: tx.append(EVENT)),
        "claim a key": lambda: ledger.commit_now(lambda tx: tx.claim("bench", str(next(keys)), DIGEST, "run-x")),
        "open approvals": lambda: ledger.read_now(lambda snapshot: snapshot.open_approvals()),
        "key taken?": lambda: ledger.read_now(lambda snapshot: snapshot.claimed("local", "key-1", DIGEST, START_US)),
    }
    for name, wanted in _searches(rows).items():
        uses[name] = lambda wanted=wanted: ledger.read_now(lambda snapshot: snapshot.events(wanted))  # type: ignore[misc]
    return uses


def _measure_size(directory: Path) -> None:
    ledgers = {rows: _ledger(directory / str(rows), rows) for rows in (SMALL, LARGE)}
    sizes = {rows: (directory / str(rows) / "ledger.db").stat().st_size for rows in ledgers}
    print(
        f"{LARGE:,} rows take {sizes[LARGE] / 1e6:.0f} MB, {sizes[LARGE] / LARGE:.0f} bytes each with what lies beside them"
    )
    variants = {
        f"{name}, {rows:,}": use for rows, ledger in ledgers.items() for name, use in _uses(ledger, rows).items()
    }
    ordered = dict(
        sorted(variants.items(), key=lambda entry: entry[0].rpartition(", ")[0].replace(f" {SMALL // 1000}", ""))
    )
    taken = interleave(ordered, ROUNDS)
    names = list(_uses(ledgers[SMALL], SMALL))
    ratios = {
        name: statistics.median(taken[f"{name}, {LARGE:,}"]) / statistics.median(taken[f"{name}, {SMALL:,}"])
        for name in names
    }
    for name, ratio in ratios.items():
        print(f"  {name:<30} {ratio:6.2f}  {'' if ratio <= 1.5 else 'over the goal of 1.5'}")
    worst = max(ratios, key=lambda name: ratios[name])
    asked = [
        Question(what, f"{name}, {LARGE:,}", f"{name}, {SMALL:,}", at_most(1.5))
        for what, name in (
            ("ledger: an append at a million rows", "append"),
            ("ledger: the slowest use, by ratio, at a million rows", worst),
        )
    ]
    answer("ledger-size.json", taken, asked)
    for ledger in ledgers.values():
        ledger.close()


def _flush(directory: Path) -> Callable[[], None]:
    """Return the peer at its best: write and flush in place, in a file that need not grow."""
    size, at = 4 << 20, itertools.count()
    descriptor = os.open(directory / "flushed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.pwrite(descriptor, bytes(size), 0)
    os.fsync(descriptor)
    row = b"x" * 550

    def once() -> None:
        os.pwrite(descriptor, row, next(at) * len(row) % (size - len(row)))
        os.fdatasync(descriptor)

    return once


def _one_connection(directory: Path) -> Callable[[], None]:
    """Return a peer of 32 threads, one connection behind a lock, and a transaction for each event: the fastest simple way."""
    connection = _peer(directory / "one.db")
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, record TEXT NOT NULL) STRICT")
    lock = threading.Lock()

    def call() -> None:
        for _ in range(PER_CALLER):
            with lock:
                connection.execute("INSERT INTO events (record) VALUES (?)", ("x" * 450,))

    return lambda: _in_threads(call)


def _connection_each(directory: Path) -> Callable[[], None]:
    """Return a peer of 32 threads, each with a connection, and a transaction for each event: the most obvious way."""
    path = directory / "each.db"
    with contextlib.closing(_peer(path)) as connection:
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, record TEXT NOT NULL) STRICT")

    def call() -> None:
        with contextlib.closing(_peer(path)) as own:
            for _ in range(PER_CALLER):
                own.execute("INSERT INTO events (record) VALUES (?)", ("x" * 450,))

    return lambda: _in_threads(call)


def _peer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _in_threads(call: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _measure_durable(directory: Path, runner: asyncio.Runner) -> None:
    with Ledger.open(directory / "ledger.db", directory, "0.1.0") as ledger:

        async def call(times: int) -> None:
            for _ in range(times):
                await ledger.commit(lambda tx: tx.append(EVENT))

        async def together() -> None:
            await asyncio.gather(*(call(PER_CALLER) for _ in range(CALLERS)))

        single = {"one caller": lambda: runner.run(call(10)), "ten flushes": _ten(_flush(directory))}
        answer(
            "ledger-one.json",
            interleave(single, 200),
            [Question("ledger: ten durable events", "one caller", "ten flushes", at_most(3))],
        )
        many = {
            "32 callers": lambda: runner.run(together()),
            "a transaction each, one connection": _one_connection(directory),
            "a transaction each, a connection each": _connection_each(directory),
        }
        taken = rates(interleave(many, 20, warm_ups=1), CALLERS * PER_CALLER)
        asked = [
            Question("ledger: events a second, 32 callers", "32 callers", peer, at_least(goal))
            for peer, goal in zip(list(many)[1:], (6, 15), strict=True)
        ]
        answer("ledger-many.json", taken, asked, "per s")


def _ten(once: Callable[[], None]) -> Callable[[], None]:
    def ten() -> None:
        for _ in range(10):
            once()

    return ten


def main() -> None:
    """Measure and report."""
    directory = Path(tempfile.mkdtemp(prefix="aileron-bench-", dir=os.environ.get("AILERON_BENCH_DIR", "/var/tmp")))
    try:
        with asyncio.Runner() as runner:
            _measure_durable(directory, runner)
        _measure_size(directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
