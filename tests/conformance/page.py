"""The tables of docs/reference/mcp-conformance.md, from the suite's results; the words around them are written by hand.

    $ python -m tests.conformance.page          # runs the suite and writes the tables

Not here: the test that compares (test_conformance.py).
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.conformance.home import conformance_home, served
from tests.conformance.install import Tools, installed
from tests.conformance.suite import EXPECTED, EXPECTED_OF_RELAY, RELAYED, REVISIONS, WHY, Run, Scenario, judged, relayed

__all__ = ["PAGE", "cell", "reasons", "table_of", "tables"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mcp-conformance.md"
_ABSENT: Final = "–"


def tables(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return heading → the table below it, in Markdown, from one run for each revision."""
    return {"In numbers": _numbers(runs), "Scenarios": _scenarios(runs), "Reasons": reasons()}


def reasons() -> str:
    """Return the table of the reasons why checks fail."""
    return _table(["reason", "because"], [[word, why] for word, why in WHY.items()])


def table_of(page: str, heading: str) -> str:
    """Return the first table below a heading of the page."""
    return _found(page, heading)["table"]


def cell(scenario: Scenario, expected: Mapping[str, str]) -> str:
    """Return the cell of a scenario: `3 passed`, or how many of how many passed and the reasons for the failures."""
    words = dict.fromkeys(expected.get(check, "unexpected") for check in scenario.failed)
    passed = scenario.count("SUCCESS")
    if not words:
        return f"{passed} passed" if passed else "nothing to check"
    return f"{passed} of {passed + len(scenario.failed)}: {', '.join(words)}"


def _found(page: str, heading: str) -> re.Match[str]:
    found = re.search(rf"^## {heading}\n(?:(?!\|).*\n)*(?P<table>(?:\|.*\n)+)", page, re.MULTILINE)
    assert found, f"{PAGE.name} has no table below {heading!r}"
    return found


def _numbers(runs: Mapping[str, Run]) -> str:
    rows = []
    for revision, run in runs.items():
        for counts, what in ((True, "required"), (False, "not scored")):
            scenarios = [each for each in run.scenarios.values() if bool(each.unscored) != counts]
            row = [
                f"{revision}, {what}",
                len(scenarios),
                sum(not each.failed for each in scenarios),
                *(sum(each.count(status) for each in scenarios) for status in ("SUCCESS", "FAILURE", "WARNING")),
                sum(check not in EXPECTED for each in scenarios for check in each.failed),
            ]
            rows.append([str(cell) for cell in row])
    return _table(["", "scenarios", "passed", "checks passed", "failed", "warnings", "unexpected"], rows)


def _scenarios(runs: Mapping[str, Run]) -> str:
    names = sorted({name for run in runs.values() for name in run.scenarios})
    rows = []
    for name in names:
        found = [run.scenarios.get(name) for run in runs.values()]
        unscored = next((each.unscored for each in found if each is not None and each.unscored), "")
        rows.append([f"`{name}`", *(cell(each, EXPECTED) if each else _ABSENT for each in found), unscored])
    return _table(["scenario", *runs, "not scored"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(cells) for cells in (head, *rows)]
    lines.insert(1, "|".join(["---"] * len(head)))
    return "".join(f"|{line}|\n" if number == 1 else f"| {line} |\n" for number, line in enumerate(lines)).replace(
        "|  |", "| |"
    )


def _relay(tools: Tools) -> str:
    rows = []
    for scenario, revision in RELAYED:
        with tempfile.TemporaryDirectory() as folder:
            code, said, found = relayed(tools, Path(folder), scenario, revision)
            if code:
                sys.exit(said)
        rows.append([f"`{scenario}`", revision, cell(found, EXPECTED_OF_RELAY)])
    return _table(["scenario", "over the wire of", "checks"], rows)


def _main() -> None:
    tools = installed()
    runs = {}
    with conformance_home() as home, served(home) as url:
        for revision in REVISIONS:
            with tempfile.TemporaryDirectory() as folder:
                runs[revision] = judged(tools, url, Path(folder), revision)
                if runs[revision].code:
                    sys.exit(runs[revision].said)
    page = PAGE.read_text(encoding="utf-8")
    for heading, table in {**tables(runs), "The relay": _relay(tools)}.items():
        found = _found(page, heading)
        page = page[: found.start("table")] + table + page[found.end("table") :]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    _main()
