"""Filters: each one finds what it names and leaves out the rest, alone and with others, and its bounds are where it says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aileron.audit import query
from aileron.ledger import MAX_PAGE_BYTES, Ledger, Transaction

MOMENT_US = 1_800_000_000_000_000  # 2027-01-15T08:00:00Z
WANTED = {
    "run": "run-1",
    "session": "local",
    "action": "send",
    "connector": "github://a/b",
    "type": "run.finished",
    "class": "network_error",
}
OTHERS = {
    "run": "run-2",
    "session": "other",
    "action": "read",
    "connector": "github://a/c",
    "type": "run.retried",
    "class": "busy",
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One event for each combination of the two values of each fact, and one without any fact, a second apart."""
    path = tmp_path_factory.mktemp("filters") / "ledger.db"
    now = iter(range(10**6))
    with Ledger.open(path, path.parent, "0.1.0", clock=lambda: MOMENT_US + next(now)) as opened:

        def fill(tx: Transaction) -> None:
            for number, values in enumerate(itertools.product(*zip(WANTED.values(), OTHERS.values(), strict=True))):
                tx.now_us = MOMENT_US + number * 1_000_000
                tx.append(dict(zip(WANTED, values, strict=True)))
            tx.append({"type": "vault.created"})

        opened.commit_now(fill)
        yield opened


def found(ledger: Ledger, **wanted: str) -> list[dict[str, Any]]:
    """What the filter finds, oldest first."""
    return anyio.run(query.events, ledger, {"order": "oldest", "limit": "1000", **wanted})


@pytest.mark.parametrize(
    "names", [names for count in range(1, 7) for names in itertools.combinations(WANTED, count)], ids="+".join
)
def test_filters_find_what_all_of_them_name(ledger: Ledger, names: tuple[str, ...]) -> None:
    """Half of the rows for each condition more; each row that is found has the values, and none that has them is left out."""
    rows = found(ledger, **{name: WANTED[name] for name in names})

    assert len(rows) == 2 ** (len(WANTED) - len(names))
    assert all(row[name] == WANTED[name] for row in rows for name in names)


@pytest.mark.parametrize("name", ["run", "session", "action", "connector"])
def test_a_name_that_nothing_has_finds_nothing(ledger: Ledger, name: str) -> None:
    """Not a part of one, not one in other letters, not what SQL would make of it."""
    for value in (WANTED[name][:-1], WANTED[name].upper(), "%", "", "' OR 1=1 --"):
        assert found(ledger, **{name: value}) == []


def test_since_is_from_that_moment_and_until_before_it(ledger: Ledger) -> None:
    """To the microsecond; both together are what lies between; written as text with any zone."""
    second = "2027-01-15T08:00:10"
    at_or_after, before = found(ledger, since=f"{second}Z"), found(ledger, until=f"{second}Z")

    assert [row["seq"] for row in at_or_after][:1] == [12]  # the genesis row is 1, the row of second 0 is 2
    assert [row["seq"] for row in before] == list(range(1, 12))
    assert found(ledger, since=f"{second}.000001Z")[0]["seq"] == 13
    assert found(ledger, until=f"{second}.000001Z")[-1]["seq"] == 12
    assert [row["seq"] for row in found(ledger, since=f"{second}Z", until="2027-01-15T09:00:12+01:00")] == [12, 13]
    assert found(ledger, since=f"{second}Z", until=f"{second}Z") == []


def test_times_and_facts_go_together(ledger: Ledger) -> None:
    """The rows of the first ten seconds that are of one run."""
    rows = found(ledger, until="2027-01-15T08:00:10Z", run="run-1", **{"class": "busy"})

    assert [row["seq"] for row in rows] == [3, 5, 7, 9, 11]


def test_a_type_and_a_fact_that_it_never_has_find_nothing(ledger: Ledger) -> None:
    """Also where the ledger is large: the answer is known without looking. The same with a fact that it has."""
    assert found(ledger, type="vault.created", session="local") == []
    assert found(ledger, type="run.started", **{"class": "busy"}) == []
    assert found(ledger, type="run.finished", session="local", limit="1") != []


def test_records_come_as_they_are_chained(ledger: Ledger) -> None:
    """The same rows in the other form: text, and two hashes in hex digits."""
    facts, records = found(ledger, run="run-1"), found(ledger, run="run-1", form="record")

    assert [(row["seq"], row["hash"]) for row in facts] == [(row["seq"], row["hash"]) for row in records]
    assert all(row["record"].startswith('{"action":') for row in records)
    assert records[0].keys() == {"seq", "record", "previous", "hash"}


def test_a_page_of_large_records_ends_early_and_pages_together_have_all(tmp_path: Path) -> None:
    """Eight mebibytes and the record that went over it; the next page goes on there, and one run is shown whole."""
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "0.1.0") as ledger:
        large = {"type": "run.requested", "run": "run-1", "args": "x" * (MAX_PAGE_BYTES // 4)}
        for _ in range(6):
            ledger.commit_now(lambda tx: tx.append(large))
        pages, last = [], 1
        while page := found(ledger, after=str(last)):
            pages.append(len(page))
            last = page[-1]["seq"]
        shown = anyio.run(query.run_with_events, ledger, "run-1")

    assert pages == [4, 2]
    assert [row["seq"] for row in shown.events] == [2, 3, 4, 5, 6, 7]
