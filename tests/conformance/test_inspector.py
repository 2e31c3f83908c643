"""Tests with the Inspector, a client of another maker: it lists and calls tools, over stdio and over HTTP, in both eras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.inspector import Inspector
from tests.conformance.install import Tools
from tests.support.home import DaemonHome

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(600)]
"""Ten minutes: if nothing is cached, the first test installs the Inspector."""

OWN = ["cancel_action", "check_action_status", "list_pending", "wait_for_action"]
WAYS = ("stdio", "http")
OVER = [(way, era) for way in WAYS for era in ("legacy", "modern", "auto")]
_Asking = Callable[[str, str], Inspector]


@pytest.fixture
def asking(tools: Tools, home: DaemonHome, session: dict[str, Any], tmp_path: Path) -> _Asking:
    """Return a function that makes the Inspector for a transport and an era; `auto` finds out which the server speaks."""
    inspector = Inspector(tools, tmp_path)

    def over(way: str, era: str) -> Inspector:
        if way == "stdio":
            return inspector.over_stdio(home.path, session["token"], era)
        return inspector.over_http(home.must("GET", "/v1/status")["web"], session["token"], era)

    return over


@pytest.mark.parametrize(("way", "era"), OVER)
def test_the_inspector_lists_every_tool_and_accepts_the_schemas(asking: _Asking, way: str, era: str) -> None:
    """The Inspector's `--strict` exits with 6 for a schema that some client cannot read, and says which."""
    ask = asking(way, era)
    listed = ask("tools/list", "--strict")

    assert (listed.code, listed.err) == (0, "")
    tools = {tool["name"]: tool for tool in listed.result["tools"]}
    assert [*OWN, "greet", "test_simple_text"] == [
        name for name in tools if name in (*OWN, "greet", "test_simple_text")
    ]
    assert tools["give_back"]["inputSchema"]["properties"].keys() == {"text", "number", "flag", "share"}
    assert all(tool["title"] and len(tool["annotations"]) == 5 for tool in tools.values())


@pytest.mark.parametrize(("way", "era"), OVER)
def test_an_action_is_called_with_arguments_of_the_types_in_its_schema(
    asking: _Asking, way: str, era: str, home: DaemonHome, session: dict[str, Any]
) -> None:
    """The Inspector converts words to the schema's types; the run is recorded for the session."""
    ask = asking(way, era)
    called = ask(
        "tools/call", "--tool-name", "give_back", "--tool-arg", "text=a b", "number=7", "flag=true", "share=0.5"
    )

    assert called.code == 0, called.err
    answer = called.result["structuredContent"]
    assert answer["status"] == "completed"
    assert answer["result"] == {"text": "a b", "number": 7, "flag": True, "share": 0.5}
    assert home.events(answer["audit_id"])[0]["session"] == session["id"]


@pytest.mark.parametrize("way", WAYS)
def test_a_gated_action_waits_and_runs_after_approval(asking: _Asking, way: str, home: DaemonHome) -> None:
    """The call answers at once; a later process of the same session gets the result."""
    ask = asking(way, "auto")
    asked = ask("tools/call", "--tool-name", "test_streaming_elicitation").result["structuredContent"]
    waits = ask("tools/call", "--tool-name", "list_pending").result["structuredContent"]
    question = home.must("GET", f"/v1/action-approvals/{asked['approval_id']}")
    home.decide({"approval_id": asked["approval_id"], "digest": question["digest"]}, "approve")
    ended = ask("tools/call", "--tool-name", "wait_for_action", "--tool-arg", f"id={asked['approval_id']}")

    assert asked["status"] == "pending_approval"
    assert [each["approval_id"] for each in waits["pending"]] == [asked["approval_id"]]
    assert ended.result["structuredContent"]["status"] == "completed"
    assert "simple text response" in ended.result["structuredContent"]["result"]


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_action_is_a_tool_error(asking: _Asking, way: str) -> None:
    """The Inspector exits with 5 for `isError`."""
    ask = asking(way, "auto")
    failed = ask("tools/call", "--tool-name", "test_error_handling")

    assert (failed.code, failed.result["isError"]) == (5, True)
    assert failed.result["structuredContent"]["error"]["class"] == "external_api_error"


def test_an_ended_session_is_told_that_it_is_unauthorized(tools: Tools, home: DaemonHome, tmp_path: Path) -> None:
    """The positive control: the same question was answered before the session ended."""
    begun = home.must("POST", "/v1/sessions", {"agent": "inspector", "folder": "/"})
    ask = Inspector(tools, tmp_path).over_stdio(home.path, begun["token"])

    before = ask("tools/call", "--tool-name", "list_pending").result
    home.must("POST", f"/v1/sessions/{begun['id']}/end", {})
    after = ask("tools/call", "--tool-name", "list_pending").result

    assert before["isError"] is False
    assert (after["isError"], after["structuredContent"]["error"]["class"]) == (True, "unauthorized")
