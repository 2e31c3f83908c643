"""The relay in front of a real daemon: starting it, surviving its death, and serving the SDK's own client."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.home import DaemonHome, daemon_home
from tests.support.relay import Agent, envelope
from tests.support.relay_kills import killed_at_random
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
LIST_CHANGED = "notifications/tools/list_changed"
DEADLINE_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make an empty home."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path
    shutil.rmtree(path)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a tools/call."""
    return {"name": tool, "arguments": arguments}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_client_survives_a_killed_daemon(home: DaemonHome, mode: str) -> None:
    """The client lists and calls; the daemon is killed; the client lists the same tools again."""
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "aileron.mcp.relay"], env={**os.environ, "AILERON_HOME": str(home.path)}
    )

    async def agent() -> tuple[set[str], dict[str, Any] | None, set[str]]:
        with anyio.fail_after(DEADLINE_S):
            async with Client(stdio_client(parameters), mode=mode) as client:
                before = {tool.name for tool in (await client.list_tools()).tools}
                answer = await client.call_tool("give_back", {"text": "hello"})
                await anyio.to_thread.run_sync(home.kill)
                after = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
                return before, answer.structured_content, after

    before, answer, after = anyio.run(agent)

    assert {"give_back", "effect", "fetch", "list_pending"} <= before
    assert answer is not None
    assert answer["result"]["text"] == "hello"
    assert before == after


def test_an_agent_gets_the_daemons_message_about_a_pending_approval_unchanged(home: DaemonHome) -> None:
    """The 202 response, the tool result of the call and a later status check have the same text, except for ids."""
    home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
    asked = home.asked("ask-first", {"text": "x"})
    with Agent(home.path) as agent:
        agent.initialize()
        called = agent.ask("tools/call", call("ask_first", text="x"))["result"]
        waits = called["structuredContent"]["id"]
        looked = agent.ask("tools/call", call("check_action_status", id=waits))["result"]

    message = asked["message"].replace(asked["approval_id"], waits)
    assert f"`aileron open approval {waits}`" in message
    for told in (called, looked):
        assert told["structuredContent"]["message"] == message
        assert told["content"][0]["text"].startswith(f"{message}\n")


def test_a_call_interrupted_by_a_kill_is_answered_with_outcome_unknown(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The daemon is killed during the call: the relay does not repeat it, and the agent's connection remains usable."""
    upstream.requests.clear()
    with Agent(home.path) as agent:
        agent.initialize()
        number = agent.request("tools/call", call("fetch", path="/slow"))
        wait_until(lambda: ("GET", "/slow") in [seen[:2] for seen in upstream.requests], "the service is asked")
        home.kill()
        answer = agent.answer(number)
        listed = agent.ask("tools/list")

        assert "error" in answer, answer
        assert answer["error"]["data"]["class"] == "outcome_unknown"
        assert "give_back" in [tool["name"] for tool in listed["result"]["tools"]]
        # Once for the new daemon; maybe once before, if the old one has only now seen the action of the test before.
        assert 1 <= len(agent.others) <= 2
        assert all(told == {"jsonrpc": "2.0", "method": LIST_CHANGED} for told in agent.others)
        assert [seen[1] for seen in upstream.requests].count("/slow") == 1


def test_a_subscription_reports_a_new_action_after_a_kill(home: DaemonHome) -> None:
    """The relay reopens the stream of the 2026 protocol under its id, and the new daemon sends notifications on it."""
    with Agent(home.path) as agent:
        number = agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
        assert agent.receive()["method"] == "notifications/subscriptions/acknowledged"
        home.kill()
        home.unlock()
        for _ in range(2):
            changed = agent.receive()
            assert changed["method"] == LIST_CHANGED
            assert changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
            home.add_probe_action("give_back", name=f"new-{time.monotonic_ns()}")  # causes the second notification


def test_a_stopped_daemon_is_started_by_a_request_but_not_by_a_connection(home: DaemonHome) -> None:
    """The relay does not start it for the connection alone: a person may have stopped it to change something."""
    with Agent(home.path) as agent:
        agent.initialize()
        home.stop()
        assert agent.is_quiet(1.5)
        assert home.daemon_pid is None

        assert "result" in agent.ask("ping")
        assert home.daemon_pid is not None


@pytest.mark.abuse_case("A27")
def test_a_relay_whose_agent_leaves_during_a_call_exits_quietly(home: DaemonHome, upstream: CountingServer) -> None:
    """Closing standard input ends the relay with code 0 and no message; the call goes on, and its result is on record."""
    upstream.requests.clear()
    with Agent(home.path) as agent, upstream.holding():
        agent.initialize()
        agent.request("tools/call", call("fetch", path="/held"))
        wait_until(lambda: ("GET", "/held") in [seen[:2] for seen in upstream.requests], "the service is asked")
        agent.close()
        assert agent.wait() == (0, "")
        (run,) = home.must("GET", "/v1/audit?type=run.requested&action=fetch&limit=1")["events"]
        assert finished(home, run["run"]) == []

    ended = wait_until(lambda: finished(home, run["run"]), "the run ends")
    assert (run["args"], ended[0]["status"]) == ({"path": "/held"}, "completed")


def finished(home: DaemonHome, run_id: str) -> list[dict[str, Any]]:
    """Return the event that a run has ended; nothing while it goes on."""
    return [event for event in home.events(run_id) if event["type"] == "run.finished"]


def test_killing_the_protocol_process_loses_one_answer_but_not_the_run(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The agent is told that the outcome is unknown, and continues; the run itself finishes and is recorded."""
    with Agent(home.path) as agent:
        agent.initialize()
        number = agent.request("tools/call", call("fetch", path="/slow?killed"))
        wait_until(lambda: ("GET", "/slow?killed") in [seen[:2] for seen in upstream.requests], "the service is asked")
        children = psutil.Process(home.daemon_pid).children()
        (process,) = [child for child in children if "aileron.mcp" in child.cmdline()]
        process.kill()
        lost = agent.answer(number)
        after = agent.ask("tools/call", call("give_back", text="x"))

    assert "whether it was carried out is not known" in lost["error"]["message"]
    assert after["result"]["structuredContent"]["result"]["text"] == "x"
    (run,) = home.must("GET", "/v1/audit?type=run.requested&action=fetch&limit=1")["events"]
    assert run["args"] == {"path": "/slow?killed"}
    assert "run.finished" not in [event["type"] for event in home.events(run["run"])]


@pytest.mark.abuse_case("A26")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_randomly_killing_the_daemon_never_causes_a_second_effect_of_a_call(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """Each call has at most one effect, an answered one exactly one. As a control, some were answered and some lost."""
    with Agent(home.path) as agent:
        told, lost = killed_at_random(agent, home, upstream)

    assert told
    assert lost


def test_a_token_of_an_ended_session_is_refused(home: DaemonHome) -> None:
    """The request is not carried out under another session either."""
    session = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})
    with Agent(home.path, AILERON_SESSION_TOKEN=session["token"]) as agent:
        agent.initialize()
        good = agent.ask("tools/call", call("give_back", text="x"))
        home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})
        refused = agent.ask("tools/call", call("give_back", text="x"))
        agent.close()
        assert agent.wait() == (0, "")

    assert good["result"]["structuredContent"]["status"] == "completed"
    assert refused.get("error") or refused["result"]["isError"]
    assert session["token"] not in json.dumps([good, refused])


# The start


def test_the_relay_starts_the_daemon_if_it_is_not_running() -> None:
    """The person need not start it; the request waits until it is ready."""
    with daemon_home() as home, Agent(home.path) as agent:
        assert "result" in agent.ask("server/discover", envelope())
        assert home.daemon_pid is not None


def test_the_client_is_told_why_the_daemon_does_not_start(folder: Path) -> None:
    """An agent shows its person the answer to `initialize`; a later request tries again, after a moment."""
    (folder / "config.toml").write_text("this is no configuration\n")
    with Agent(folder) as agent:
        answers = [agent.ask(method) for method in ("server/discover", "initialize", "tools/list")]
        agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        agent.close()
        code, said = agent.wait()

    assert code == 69
    assert {answer["error"]["code"] for answer in answers} == {-32000}
    for answer in answers:
        assert answer["error"]["message"].startswith("aileron: the daemon cannot be started: ")
        assert "config.toml" in answer["error"]["message"]
    assert said.count("\n") == 1
    assert said.startswith("aileron-mcp: the daemon cannot be started: ")


def test_a_home_with_too_long_a_path_is_reported(folder: Path) -> None:
    """A socket's path has at most 107 bytes."""
    with Agent(folder / ("x" * 100)) as agent:
        assert "set AILERON_HOME to a shorter path" in agent.ask("initialize")["error"]["message"]


def test_the_daemon_starts_even_if_the_agent_disconnects_meanwhile() -> None:
    """The agent's request caused the start, and the daemon becomes ready all the same."""
    with daemon_home() as home:
        with Agent(home.path) as agent:
            wait_until(
                lambda: (home.path / "run" / "daemon.lock").exists() or agent.process.poll() is not None,
                "a daemon begins, or the agent ends",
            )
            agent.close()
            assert agent.wait() == (69, "") or agent.process.returncode == 0
        wait_until(lambda: (home.path / "run" / "operator.sock").exists(), "the daemon listens")
        pid = home.daemon_pid
        assert home.must("GET", "/v1/status")
        assert home.daemon_pid == pid


@pytest.mark.parametrize("way", ["socket", "http"])
def test_progress_reaches_only_a_client_that_asks_for_it(home: DaemonHome, way: str) -> None:
    """The client asks by a progress token. The reported progress never decreases, and has a total and a message."""
    if "report" not in {action["name"] for action in home.must("GET", "/v1/actions")["actions"]}:
        home.add_probe_action("report", "times:integer", "seconds:number", "message:string")
    elsewhere = {}
    if way == "http":
        token = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"]
        elsewhere = {"AILERON_URL": home.must("GET", "/v1/status")["web"], "AILERON_SESSION_TOKEN": token}
    shortly, work = (call("report", times=10, seconds=seconds, message="reading") for seconds in (0.2, 3.0))
    with Agent(home.path, **elsewhere) as agent:
        agent.initialize()
        silent = agent.ask("tools/call", shortly)["result"]["structuredContent"]
        heard = [message for message in agent.others if message["method"] != LIST_CHANGED]
        told = agent.ask("tools/call", {**work, "_meta": {"progressToken": "mine"}})["result"]["structuredContent"]
        reports = [message["params"] for message in agent.others if message["method"] == "notifications/progress"]

    assert (silent["status"], silent["result"], heard) == ("completed", 10, [])
    assert (told["status"], told["result"]) == ("completed", 10)
    said = [report["progress"] for report in reports]
    assert len(said) >= 2
    assert said == sorted(set(said))
    assert {(report["progressToken"], report["total"], report["message"]) for report in reports} == {
        ("mine", 10, "reading")
    }
