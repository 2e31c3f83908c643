"""run/mcp.sock and /mcp: which session a connection belongs to, and that changes are reported."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.home import DaemonHome, asking_home, probe_action
from tests.support.told import begun_session

pytestmark = pytest.mark.jail
DEADLINE_S = 30.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Agent:
    """An agent of the protocol's older era on the socket, with lines of JSON."""

    def __init__(self, path: Path, token: str | None = None) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rwb")
        self._number = 0
        if token is not None:
            self.say("notifications/aileron/session", {"token": token})

    def __enter__(self) -> Self:
        self.ask("initialize", HELLO)
        self.say("notifications/initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def say(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result; ignore notifications meanwhile."""
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while (said := self.read()).get("id") != self._number:
            pass
        assert "error" not in said, said
        return said["result"]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content."""
        answer: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["structuredContent"]
        return answer

    def call_and_cancel(self, tool: str, **arguments: Any) -> None:
        """Send a call and its cancellation in one write."""
        self._number += 1
        call = {
            "jsonrpc": "2.0",
            "id": self._number,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": self._number}}
        self._file.write(json.dumps(call).encode() + b"\n" + json.dumps(cancel).encode() + b"\n")
        self._file.flush()

    def read(self) -> dict[str, Any]:
        """Return the next message."""
        message: dict[str, Any] = json.loads(self._file.readline())
        return message

    def _write(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with an action that runs at once and one that needs approval."""
    with asking_home() as home:
        yield home


def agent(home: DaemonHome, token: str | None = None) -> Agent:
    """Open a connection."""
    return Agent(home.path / "run" / "mcp.sock", token)


def test_a_tool_call_over_mcp_runs_like_any_other_request(home: DaemonHome) -> None:
    """The run takes place in a jail and is recorded for the session whose token opened the connection."""
    begun = begun_session(home)
    with agent(home, begun["token"]) as mine, agent(home) as local:
        for connection, expected in ((mine, begun["id"]), (local, "local")):
            answer = connection.call("give_back", text="x")

            assert (answer["status"], answer["result"]["text"]) == ("completed", "x")
            asked = home.events(answer["audit_id"])[0]
            assert (asked["type"], asked["session"], asked["scope"]) == ("run.requested", expected, "agent")


@pytest.mark.abuse_case("A1")
def test_an_mcp_connection_sees_only_the_questions_of_its_own_session(home: DaemonHome) -> None:
    """Another session's question does not exist for it; a second connection of the same session sees it."""
    first, second = begun_session(home), begun_session(home)
    with (
        agent(home, first["token"]) as mine,
        agent(home, second["token"]) as other,
        agent(home, first["token"]) as again,
    ):
        waits = mine.call("ask_first", text="x")["approval_id"]

        assert [question["approval_id"] for question in again.call("list_pending")["pending"]] == [waits]
        assert other.call("list_pending")["pending"] == []
        assert other.call("check_action_status", id=waits)["error"]["class"] == "not_found"
        assert other.call("cancel_action", id=waits)["error"]["class"] == "not_found"
        assert again.call("cancel_action", id=waits)["status"] == "cancelled"


@pytest.mark.abuse_case("A1")
def test_an_open_mcp_connection_is_refused_after_its_session_ended(home: DaemonHome) -> None:
    """A call before the end is answered on the same connection."""
    begun = begun_session(home)
    with agent(home, begun["token"]) as mine:
        assert mine.call("give_back", text="x")["status"] == "completed"

        home.must("POST", f"/v1/sessions/{begun['id']}/end", {})

        for tool, arguments in (
            ("give_back", {"text": "x"}),
            ("list_pending", {}),
            ("check_action_status", {"id": "x"}),
        ):
            assert mine.call(tool, **arguments)["error"]["class"] == "unauthorized", tool


def test_every_call_on_an_mcp_connection_with_an_invalid_token_gets_an_error(home: DaemonHome) -> None:
    """The agent can report the error; its calls must not count as those of the local user."""
    with agent(home, "ail_" + "A" * 43) as nobody, agent(home) as local:
        refused = nobody.call("give_back", text="x")

        assert refused["error"]["class"] == "unauthorized"
        assert "aileron launch" in refused["error"]["message"]
        assert local.call("give_back", text="x")["status"] == "completed"


@pytest.mark.abuse_case("A27")
def test_a_tool_call_cancelled_at_once_either_never_begins_or_completes(home: DaemonHome) -> None:
    """Twenty calls are cancelled in the line after them. A call that is not cancelled runs."""
    before = len(asked_for(home))
    with agent(home) as connection:
        for number in range(20):
            os.utime(home.path / "actions" / "give-back.md")  # so that it is read again, in a thread
            connection.call_and_cancel("give_back", text=str(number))
        assert connection.call("give_back", text="kept")["status"] == "completed"

    runs = asked_for(home)[before:]
    assert runs[-1]["args"] == {"text": "kept"}
    for run in runs:
        last = home.events(run["run"])[-1]
        assert (last["type"], last["status"]) == ("run.finished", "completed")
    taken_back = home.must("GET", "/v1/audit?type=run.refused&class=cancelled&limit=1000")["events"]
    assert len(taken_back) + len(runs) <= 21  # a call that was cancelled before the door has no record
    assert len(runs) < 21


def asked_for(home: DaemonHome) -> list[dict[str, Any]]:
    """Return the recorded runs of `give-back`, oldest first."""
    found = home.must("GET", "/v1/audit?type=run.requested&action=give-back&order=oldest&limit=1000")["events"]
    return [event for event in found if event["session"] == "local"]


def test_an_open_mcp_connection_is_notified_when_an_action_file_changes(home: DaemonHome) -> None:
    """The file is added and removed by hand, and the action disabled and enabled: the tool list changes each time."""

    def told() -> set[str]:
        while connection.read().get("method") != "notifications/tools/list_changed":
            pass
        return {tool["name"] for tool in connection.ask("tools/list", {})["tools"]}

    text = probe_action("give_back", "text:string", name="by-hand")
    text = text.replace("sha256:bound-at-release", home.must("GET", "/v1/connectors")["connectors"][0]["hash"])
    with agent(home) as connection:
        connection.ask("tools/list", {})  # only now is the handshake over: what is told before it reaches nobody
        (home.path / "actions" / "by-hand.md").write_text(text)
        assert "by_hand" in told()
        assert connection.call("by_hand", text="x")["status"] == "completed"

        home.must("PATCH", "/v1/actions/by-hand", {"enabled": False})
        assert "by_hand" not in told()
        home.must("PATCH", "/v1/actions/by-hand", {"enabled": True})
        assert "by_hand" in told()
        (home.path / "actions" / "by-hand.md").unlink()
        assert "by_hand" not in told()


def test_an_mcp_call_over_http_belongs_to_the_session_of_its_token(home: DaemonHome) -> None:
    """The protocol's newer version has no handshake, so this takes a single request."""
    begun = begun_session(home)
    port = int(home.must("GET", "/v1/status")["web"].rpartition(":")[2])
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"name": "give_back", "arguments": {"text": "x"}, "_meta": envelope}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(
            "POST",
            "/mcp",
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
            {
                "Host": f"localhost:{port}",
                "Authorization": f"Bearer {begun['token']}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/call",
                "Mcp-Name": "give_back",
            },
        )
        said = connection.getresponse().read().decode()
    finally:
        connection.close()

    data = said.partition("data: ")[2] or said
    answer = json.loads(data)["result"]["structuredContent"]
    assert answer["status"] == "completed"
    assert home.events(answer["audit_id"])[0]["session"] == begun["id"]
