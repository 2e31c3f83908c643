"""Tests of the check that asks a server like an agent does: a program that answers line by line, and every way to fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.launch.agent import AileronServer
from aileron.launch.check import connected
from aileron.model.failure import AileronError

WELL: dict[str, Any] = {
    "initialize": [{"result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"}}}],
    "tools/list": [
        {"result": {"tools": [{"name": "a"}], "nextCursor": "2"}},
        {"result": {"tools": [{"name": "list_pending"}]}},
    ],
    "tools/call": [{"result": {"content": [{"type": "text", "text": "nothing waits"}]}}],
}
SERVER = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    print(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}))
    answer = answers[asked["method"]].pop(0)
    if isinstance(answer, str):
        sys.stderr.write("the last words\\n")
        print(answer, flush=True)
        sys.exit()
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""

Server = Callable[..., AileronServer]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Write a server program that answers with WELL, except for the given answers."""

    def make(**instead: Any) -> AileronServer:
        program = tmp_path / "server.py"
        program.write_text(SERVER, encoding="utf-8")
        answers = {**WELL, **{name.replace("_", "/"): value for name, value in instead.items()}}
        return AileronServer((sys.executable, str(program), json.dumps(answers)), "/nowhere")

    return make


def test_a_working_server_passes_the_check(server: Server) -> None:
    """The check reads its name, the tools of all pages and a result, and ignores other messages."""
    with connected(server(), os.environ) as asked:
        assert asked.initialize() == "s 1, protocol 2025-11-25"
        assert asked.tools() == ["a", "list_pending"]
        assert asked.call("list_pending") == "nothing waits"


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"initialize": ["no JSON"]}, "is not JSON"),
        ({"initialize": [""]}, "is not JSON"),
        ({"initialize": ["{}"]}, "it ended before it answered initialize: the last words"),
        ({"initialize": [{"error": {"code": -32000, "message": "no daemon"}}]}, "initialize: no daemon"),
        ({"tools_list": [{"result": {"nextCursor": "again"}}] * 100}, "more than 100 pages"),
        ({"tools_call": [{"result": {"isError": True, "content": [{"text": "gone"}]}}]}, "list_pending failed: gone"),
    ],
    ids=["no JSON", "empty line", "ended", "error", "endless", "failed"],
)
def test_a_failing_mcp_server_is_reported_with_the_step_that_failed(
    server: Server, instead: dict[str, Any], words: str
) -> None:
    """The error names the step that failed."""

    def converse() -> None:
        with connected(server(**instead), os.environ) as asked:
            asked.initialize()
            asked.tools()
            asked.call("list_pending")

    with pytest.raises(AileronError) as failed:
        converse()

    assert words in str(failed.value)


def test_a_missing_server_is_reported() -> None:
    """The error names its path."""
    with (
        pytest.raises(AileronError, match="/nowhere/aileron-mcp"),
        connected(AileronServer(("/nowhere/aileron-mcp",), "/nowhere"), os.environ),
    ):
        pass
