"""Searches for events: they find exactly the requested rows, without reading the whole ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.ledger import MAX_ROWS, EventFilter, Ledger, Snapshot
from aileron.model.failure import AileronError, FailureClass
from tests.support.shaped import shaped

TYPES = ("run.requested", "egress.sending", "run.finished")
MANY = 60_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Yield a ledger of a hundred events of few kinds, written by a clock that is set back in the middle."""
    path = tmp_path_factory.mktemp("small") / "ledger.db"
    moments = iter([*range(1000, 1060), *range(1020, 1080)])
    with Ledger.open(path, path.parent, "0.1.0", clock=lambda: next(moments)) as ledger:

        def fill(tx: Any) -> None:
            for number in range(100):
                tx.now_us = next(moments)
                tx.append(
                    {
                        "type": TYPES[number % 3],
                        "run": f"run-{number // 10}",
                        "connector": f"c{number % 4}",
                        **({"session": f"s{number % 5}", "action": f"a{number % 2}"} if number % 3 == 0 else {}),
                        **({"class": "network_error"} if number % 7 == 0 else {}),
                    }
                )

        ledger.commit_now(fill)
        yield ledger


def optional(*values: str) -> st.SearchStrategy[str | None]:
    """Return a strategy for a condition: one of these values, one that no row has, or none."""
    return st.sampled_from([None, "nowhere", *values])


FILTERS = st.builds(
    EventFilter,
    run=optional("run-0", "run-4"),
    session=optional("s0", "s3"),
    type=optional(*TYPES),
    action=optional("a0", "a1"),
    connector=optional("c0", "c3"),
    failure_class=optional("network_error"),
    since_us=st.none() | st.integers(990, 1090),
    until_us=st.none() | st.integers(990, 1090),
    after=st.none() | st.integers(0, 110),
    before=st.none() | st.integers(0, 110),
    oldest_first=st.booleans(),
    limit=st.integers(0, 120),
)


@given(FILTERS)
def test_a_search_finds_exactly_the_rows_that_match(small: Ledger, wanted: EventFilter) -> None:
    """The result is compared with reading all rows and checking each, for any combination, with a clock that went back."""
    everything = small.read_now(lambda s: s.events(EventFilter(oldest_first=True, limit=MAX_ROWS)))
    equal = {
        "run": wanted.run,
        "session": wanted.session,
        "type": wanted.type,
        "action": wanted.action,
        "connector": wanted.connector,
        "class": wanted.failure_class,
    }
    expected = [
        row
        for row in everything
        if all(value is None or row.facts.get(name) == value for name, value in equal.items())
        and (wanted.since_us is None or shaped(row.facts)["at_us"] >= wanted.since_us)
        and (wanted.until_us is None or shaped(row.facts)["at_us"] < wanted.until_us)
        and (wanted.after is None or row.seq > wanted.after)
        and (wanted.before is None or row.seq < wanted.before)
    ]
    if not wanted.oldest_first:
        expected.reverse()

    assert small.read_now(lambda s: s.events(wanted)) == expected[: wanted.limit]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Yield many events, of which the interesting ones are few and old; SQL writes them, since only the search is tested."""
    path = tmp_path_factory.mktemp("large") / "ledger.db"
    Ledger.open(path, path.parent, "0.1.0", clock=lambda: 1).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= ?)"
        " INSERT INTO events SELECT i, i, iif(i = 77, 'vault.locked', 'egress.sending'), 'run-' || (i / 10),"
        " iif(i = 70, 'rare', 's'), iif(i = 71, 'rare', 'a'), iif(i = 72, 'rare', 'c'), iif(i = 73, 'rare', NULL),"
        " '{}', x'', x'' FROM n",
        (MANY,),
    )
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "wanted",
    [
        EventFilter(),
        EventFilter(oldest_first=True, after=MANY // 2),
        EventFilter(before=MANY // 2),
        EventFilter(run="run-7"),
        EventFilter(session="rare"),
        EventFilter(action="rare"),
        EventFilter(connector="rare"),
        EventFilter(failure_class="rare"),
        EventFilter(type="vault.locked"),
        EventFilter(type="egress.sending", connector="rare"),
        EventFilter(session="s", failure_class="rare"),
        EventFilter(since_us=MANY - 100),
        EventFilter(since_us=MANY - 100, type="vault.locked"),
        EventFilter(until_us=100),
        EventFilter(since_us=MANY * 2),
        EventFilter(since_us=5),
        EventFilter(until_us=MANY - 5),
        EventFilter(since_us=MANY // 4, until_us=MANY // 2),
        EventFilter(since_us=MANY // 4, until_us=MANY // 2, session="s"),
        EventFilter(session="s", type="vault.locked"),
        EventFilter(action="a", connector="rare"),
        EventFilter(action="rare", connector="c"),
        EventFilter(action="never", connector="c", session="s"),
    ],
    ids=lambda wanted: str({k: v for k, v in msgspec.structs.asdict(wanted).items() if v != getattr(EventFilter(), k)}),
)
def test_a_search_does_not_read_the_whole_ledger(large: sqlite3.Connection, wanted: EventFilter) -> None:
    """The test counts the steps of SQLite's virtual machine: a few dozen for each row that is returned."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    large.set_progress_handler(count, 100)
    found = Snapshot(large).records(wanted)
    large.set_progress_handler(None, 0)

    assert len(found) in (0, 1, 9, 10, 98, 99, 100, 101)
    assert steps <= 10_000 < MANY


def test_a_search_that_takes_too_long_is_ended(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is busy, and the connection serves the next search."""
    monkeypatch.setattr("aileron.ledger.sqlite.READ_DEADLINE_S", -1.0)

    def look(snapshot: Any) -> None:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        snapshot._db.execute(endless).fetchone()

    with pytest.raises(AileronError, match="narrow it") as caught:
        ledger.read_now(look)

    monkeypatch.undo()
    assert caught.value.failure.failure_class is FailureClass.BUSY
    assert ledger.read_now(lambda snapshot: snapshot.head()).seq == 1


def test_a_read_connection_of_the_ledger_cannot_write(ledger: Ledger) -> None:
    """The connection itself refuses, whatever a function tries."""
    with pytest.raises(AileronError, match="readonly"):
        ledger.read_now(lambda snapshot: snapshot._db.execute("DELETE FROM events"))

    assert ledger.read_now(lambda snapshot: snapshot.head()).seq == 1
