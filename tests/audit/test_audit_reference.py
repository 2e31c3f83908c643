"""The reference page compared with the code: every event, every fact, and a program that checks a ledger."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from aileron.audit import events
from aileron.audit.events import EVENT_TYPES, ConnectorActedEarlyHyphen
from aileron.audit.verify import verify
from aileron.ledger import FILTERED, Ledger

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "audit-events.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SECTIONS = dict(re.findall(r"^### `([^`]+)`\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_the_audit_events_page_has_every_event_and_no_other() -> None:
    """A new event needs its section, and a removed section would leave old ledgers unexplained."""
    assert list(SECTIONS) == list(EVENT_TYPES)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_audit_events_page_lists_exactly_the_facts_of_each_event(name: str) -> None:
    """Optional facts are listed too."""
    documented = re.findall(r"^\| `([^`]+)` \|", SECTIONS[name], flags=re.MULTILINE)

    assert sorted(documented) == sorted(field.encode_name for field in msgspec.structs.fields(EVENT_TYPES[name]))


def test_event_names_are_spelled_with_underscores() -> None:
    """Users type event names. An event that is only read keeps the spelling that it was written with."""
    read_only = {ConnectorActedEarlyHyphen}

    assert [
        name
        for name, kind in EVENT_TYPES.items()
        if kind not in read_only and not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name)
    ] == []


def test_the_module_exports_every_event() -> None:
    """A new event is added to `__all__` too."""
    assert {kind.__name__ for kind in EVENT_TYPES.values()} - set(events.__all__) == set()


def test_no_fact_has_a_name_that_lists_and_exports_use_for_another_field() -> None:
    """Lists and exports show both in one object, where one would hide the other."""
    beside = {"at", "previous", "hash", "record"}

    assert [
        name for name, kind in EVENT_TYPES.items() if beside & {f.encode_name for f in msgspec.structs.fields(kind)}
    ] == []


def test_the_searchable_facts_are_named_on_the_audit_events_page() -> None:
    """They are the columns of the ledger."""
    (sentence,) = re.findall(r"([^.]*) can be\nsearched for", PAGE)

    assert {"type", *re.findall(r"`(\w+)`", sentence)} == set(FILTERED)


def test_the_program_on_the_audit_events_page_checks_a_ledger(tmp_path: Path) -> None:
    """The program prints the head that `verify` reports, and finds an altered row."""
    program = PROGRAMS[0]
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "0.1.0") as ledger:
        ledger.commit_now(lambda tx: tx.append({"type": "vault.locked", "reason": "asked ü"}))

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

    assert run().stdout == f"head {verify(tmp_path / 'ledger.db').head}\n"
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE events SET record = replace(record, 'asked', 'idle') WHERE seq = 2")
    connection.close()
    assert "row 2 was altered" in run().stderr
