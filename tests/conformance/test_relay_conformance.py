"""`aileron-mcp` over HTTP, against servers of the conformance suite: it puts on the wire what the protocol requires."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.install import Tools
from tests.conformance.page import PAGE, cell, table_of
from tests.conformance.suite import EXPECTED_OF_RELAY, RELAYED, relayed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
"""Ten minutes: if nothing is cached, the first test installs the suite."""


@pytest.mark.parametrize(("scenario", "revision"), RELAYED)
def test_the_suites_servers_find_only_expected_failures_in_the_relay(
    tools: Tools, tmp_path: Path, scenario: str, revision: str
) -> None:
    """The page says which failures are expected, and why."""
    code, said, found = relayed(tools, tmp_path, scenario, revision)

    assert code == 0, said
    assert found.failed == [check for check in EXPECTED_OF_RELAY if check.partition(":")[0] == scenario]
    row = f"| `{scenario}` | {revision} | {cell(found, EXPECTED_OF_RELAY)} |\n"
    assert row in table_of(PAGE.read_text(encoding="utf-8"), "The relay")


def test_the_conformance_page_lists_exactly_the_client_scenarios_of_the_relay() -> None:
    """The table has these scenarios in this order, and no others."""
    table = table_of(PAGE.read_text(encoding="utf-8"), "The relay")

    rows = [row.split("|")[1:3] for row in table.splitlines()[2:]]
    assert [(name.strip(" `"), revision.strip()) for name, revision in rows] == list(RELAYED)
