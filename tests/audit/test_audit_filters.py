"""Filters: each finds exactly the rows that match, alone and with others, and its bounds are exact."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aileron.audit import query
from aileron.ledger import MAX_PAGE_BYTES, Ledger, Transaction
from aileron.model.json_value import JSONObject

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
    """Yield one event for each combination of the two values of each fact, and one without any fact, a second apart."""
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
    """Return the rows that the filter finds, oldest first."""
    return anyio.run(query.events, ledger, {"order": "oldest", "limit": "1000", **wanted})


@pytest.mark.parametrize(
    "names", [names for count in range(1, 7) for names in itertools.combinations(WANTED, count)], ids="+".join
)
def test_combined_filters_find_the_rows_that_match_all(ledger: Ledger, names: tuple[str, ...]) -> None:
    """Each further condition halves the rows; each found row has the values, and none that has them is missing."""
    rows = found(ledger, **{name: WANTED[name] for name in names})

    assert len(rows) == 2 ** (len(WANTED) - len(names))
    assert all(row[name] == WANTED[name] for row in rows for name in names)


@pytest.mark.parametrize("name", ["run", "session", "action", "connector"])
def test_a_filter_with_an_unknown_or_partial_name_finds_no_rows(ledger: Ledger, name: str) -> None:
    """Part of a name, another case, and SQL syntax do not match either."""
    for value in (WANTED[name][:-1], WANTED[name].upper(), "%", "", "' OR 1=1 --"):
        assert found(ledger, **{name: value}) == []


def test_the_since_filter_is_inclusive_and_the_until_filter_exclusive(ledger: Ledger) -> None:
    """Both are exact to the microsecond, together they are a range, and they accept any time zone."""
    second = "2027-01-15T08:00:10"
    at_or_after, before = found(ledger, since=f"{second}Z"), found(ledger, until=f"{second}Z")

    assert [row["seq"] for row in at_or_after][:1] == [12]  # the genesis row is 1, the row of second 0 is 2
    assert [row["seq"] for row in before] == list(range(1, 12))
    assert found(ledger, since=f"{second}.000001Z")[0]["seq"] == 13
    assert found(ledger, until=f"{second}.000001Z")[-1]["seq"] == 12
    assert [row["seq"] for row in found(ledger, since=f"{second}Z", until="2027-01-15T09:00:12+01:00")] == [12, 13]
    assert found(ledger, since=f"{second}Z", until=f"{second}Z") == []


def test_filters_on_times_and_on_facts_can_be_combined(ledger: Ledger) -> None:
    """The rows are those of one run in the first ten seconds."""
    rows = found(ledger, until="2027-01-15T08:00:10Z", run="run-1", **{"class": "busy"})

    assert [row["seq"] for row in rows] == [3, 5, 7, 9, 11]


def test_a_filter_on_a_fact_that_the_event_type_lacks_finds_no_rows(ledger: Ledger) -> None:
    """The query is answered without a search, even in a large ledger. A fact that the type does have finds its rows."""
    assert found(ledger, type="vault.created", session="local") == []
    assert found(ledger, type="run.started", **{"class": "busy"}) == []
    assert found(ledger, type="run.finished", session="local", limit="1") != []


def test_records_can_be_returned_as_their_exact_hashed_text(ledger: Ledger) -> None:
    """This form has the same rows: the record's text, its hash and the previous hash in hex digits."""
    facts, records = found(ledger, run="run-1"), found(ledger, run="run-1", form="record")

    assert [(row["seq"], row["hash"]) for row in facts] == [(row["seq"], row["hash"]) for row in records]
    assert all(row["record"].startswith('{"action":') for row in records)
    assert records[0].keys() == {"seq", "record", "previous", "hash"}


def test_a_page_of_large_records_ends_early_and_no_record_is_lost_between_pages(tmp_path: Path) -> None:
    """A page ends with the record that exceeds eight MiB; the next page continues there, and a run is shown whole."""
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "0.1.0") as ledger:
        large: JSONObject = {"type": "run.requested", "run": "run-1", "args": "x" * (MAX_PAGE_BYTES // 4)}
        for _ in range(6):
            ledger.commit_now(lambda tx: tx.append(large))
        pages, last = [], 1
        while page := found(ledger, after=str(last)):
            pages.append(len(page))
            last = page[-1]["seq"]
        shown = anyio.run(query.run_with_events, ledger, "run-1")

    assert pages == [4, 2]
    assert [row["seq"] for row in shown.events] == [2, 3, 4, 5, 6, 7]
