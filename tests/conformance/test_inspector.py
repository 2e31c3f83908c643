"""The Inspector, a client nobody here wrote: it lists, and calls, over stdio and over HTTP, in both eras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.inspector import Inspector
from tests.conformance.install import Tools
from tests.support.home import DaemonHome

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(600)]
"""Ten minutes: where nothing is cached, the first of them installs."""

OWN = ["cancel_action", "check_action_status", "list_pending", "wait_for_action"]
WAYS = ("stdio", "http")
OVER = [(way, era) for way in WAYS for era in ("legacy", "modern", "auto")]
_Asking = Callable[[str, str], Inspector]


@pytest.fixture
def asking(tools: Tools, home: DaemonHome, session: dict[str, Any], tmp_path: Path) -> _Asking:
    """The Inspector over a transport, in an era; `auto` finds out which the server speaks."""
    inspector = Inspector(tools, tmp_path)

    def over(way: str, era: str) -> Inspector:
        if way == "stdio":
            return inspector.over_stdio(home.path, session["token"], era)
        return inspector.over_http(home.must("GET", "/v1/status")["web"], session["token"], era)

    return over


@pytest.mark.parametrize(("way", "era"), OVER)
def test_it_lists_every_tool_and_has_nothing_to_say_about_the_schemas(asking: _Asking, way: str, era: str) -> None:
    """`--strict` ends with 6 for a schema that some client cannot read, and says which."""
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
def test_it_calls_an_action(asking: _Asking, way: str, era: str, home: DaemonHome, session: dict[str, Any]) -> None:
    """Words become the types of the schema; the run is on record as the session's."""
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
def test_a_gated_action_waits_and_runs_once_a_person_said_yes(asking: _Asking, way: str, home: DaemonHome) -> None:
    """The call answers at once; processes later the same session is told the result."""
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
def test_what_fails_is_an_error_of_the_tool(asking: _Asking, way: str) -> None:
    """Its exit code for `isError` is 5."""
    ask = asking(way, "auto")
    failed = ask("tools/call", "--tool-name", "test_error_handling")

    assert (failed.code, failed.result["isError"]) == (5, True)
    assert failed.result["structuredContent"]["error"]["class"] == "external_api_error"


def test_a_session_that_has_ended_is_told_so(tools: Tools, home: DaemonHome, tmp_path: Path) -> None:
    """The same question was answered a moment ago."""
    begun = home.must("POST", "/v1/sessions", {"agent": "inspector", "folder": "/"})
    ask = Inspector(tools, tmp_path).over_stdio(home.path, begun["token"])

    before = ask("tools/call", "--tool-name", "list_pending").result
    home.must("POST", f"/v1/sessions/{begun['id']}/end", {})
    after = ask("tools/call", "--tool-name", "list_pending").result

    assert before["isError"] is False
    assert (after["isError"], after["structuredContent"]["error"]["class"]) == (True, "unauthorized")
