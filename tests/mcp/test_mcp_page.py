"""docs/reference/mcp.md matches the code: the tools, the facts of a result, the bounds."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from aileron.mcp import bodies, calls, lines, results, server, tools
from aileron.mcp.finding import MAX_FOUND, MAX_WORDS_CHARACTERS, USUAL_FOUND
from aileron.model.outcome import RunStatus
from benchmarks.tool_lists import many, table
from tests.mcp.test_results import STATES, facts, state
from tests.support.shaped import shaped

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "mcp.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the rows of every table below a heading, up to the next heading."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    table = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|-")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def test_the_mcp_reference_page_lists_every_built_in_tool_with_its_arguments() -> None:
    """Each tool has a row of its own, with every argument."""
    shown = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows("Tools") if len(row) == 3}

    for tool in (*tools.OWN, tools.FIND_ACTION, tools.RUN_ACTION):
        assert shown[tool.name] == set(shaped(tool.input_schema)["properties"])
    assert f"at most {tools.MAX_WAIT_S}" in PAGE
    assert f"at most {tools.MAX_DESCRIPTION:,} characters" in PAGE
    assert f"a page has at most {tools.PAGE_TOOLS}" in PAGE


def test_the_mcp_reference_page_lists_the_hints_of_every_built_in_tool() -> None:
    """All four hints of each tool are compared."""
    shown = {}
    for names, *hints in rows("Hints"):
        for name in re.findall(r"`(\w+)`", names):
            shown[name] = hints
    for tool in (*tools.OWN, tools.FIND_ACTION, tools.RUN_ACTION):
        values = msgspec.to_builtins(tool.annotations)
        keys = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
        assert shown[tool.name] == [str(values[key]).lower() for key in keys]


def test_the_mcp_reference_page_has_the_current_sizes_of_tool_lists() -> None:
    """The table covers ten, a hundred and a thousand actions, all listed or found by words."""
    assert [row for row in rows("Many actions") if row[0][0].isdigit()] == table(), "python -m benchmarks.tool_lists"
    assert f"at most {MAX_WORDS_CHARACTERS} characters; `limit`, default {USUAL_FOUND}, at most {MAX_FOUND}" in PAGE


@pytest.mark.parametrize("status", RunStatus)
def test_the_mcp_reference_page_lists_every_fact_that_a_tool_result_can_contain(status: RunStatus) -> None:
    """This holds for every state and every optional fact."""
    known = {name for row in rows("Results") for name in re.findall(r"`(\w+)`", row[0])}
    more = {"question": "?", "executed_arguments": {}, "error": {"class": "outcome_unknown", "message": "m"}}
    told = facts(results.state_result(state(status, **more, action="a")))
    paged = facts(results.state_result({"status": "completed", "audit_id": "r", "result": "x" * 100_000}))

    found = facts(results.found_list(many(20), 20))
    assert (set(told) | set(paged) | set(found) | set(facts(results.pending_list([])))) - known == set()
    assert set(found) >= {"actions", "more"}
    assert STATES.keys() == set(RunStatus)


def test_the_mcp_reference_page_states_the_same_bounds_as_the_code() -> None:
    """The page and the code name the same numbers."""
    shown = " ".join(cell for row in rows("Bounds") for cell in row)

    assert (lines.MAX_LINE_BYTES, results.PAGE_BYTES) == (1 << 20, 8 << 10)
    assert f"{lines.MAX_CALLS} on a connection, {server.MAX_HTTP_REQUESTS} of a session over HTTP" in shown
    assert f"of {lines.MAX_CALLS_BYTES >> 20} MiB together" in shown
    assert f"{lines.WRITE_S:g} s, then the connection ends" in shown
    assert f"{bodies.BODY_S:g} s" in shown
    assert f"{server.MAX_HTTP_SESSIONS}, of one session of ours {server.MAX_HTTP_SESSIONS_EACH}; each" in shown
    assert f"each ends after {server.HTTP_IDLE_S / 60:g} minutes" in shown
    assert f"{server.MAX_LISTENERS_EACH} on a connection, or of a session" in shown
    assert f"{server.MAX_LISTENERS} together; one that is {server.MAX_EVENTS} changes behind" in shown
    assert (calls.CALL_S, calls.PROGRESS_S, server.TTL_MS) == (25, 4, 1000)
    assert all(version in PAGE for version in (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))
