"""The relay with a real daemon behind it: started by it, killed under it, and the SDK's own client in front of it."""

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
    """An empty home."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path
    shutil.rmtree(path)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Parameters of a tools/call."""
    return {"name": tool, "arguments": arguments}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_goes_on_after_a_kill(home: DaemonHome, mode: str):
    """Its client lists and calls; the daemon is killed; it lists again and hears that the tools may be others."""
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


def test_an_agent_is_told_the_message_of_the_202_word_for_word(home: DaemonHome):
    """In the text and as a fact, at the call and when it asks again; but for the id, it is what the route answers."""
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


def test_a_kill_in_the_middle_of_a_call_is_told(home: DaemonHome, upstream: CountingServer):
    """The call is answered, not repeated; the handshake is made again, and the connection is of use."""
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
        # Once for the new daemon; and once before, where the old one has only now seen what the test before this one added.
        assert 1 <= len(agent.others) <= 2
        assert all(told == {"jsonrpc": "2.0", "method": LIST_CHANGED} for told in agent.others)
        assert [seen[1] for seen in upstream.requests].count("/slow") == 1


def test_a_subscription_hears_of_a_new_action_after_a_kill(home: DaemonHome):
    """The era of 2026: the stream is opened again under its own id, and what comes on it comes from the new daemon."""
    with Agent(home.path) as agent:
        number = agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
        assert agent.receive()["method"] == "notifications/subscriptions/acknowledged"
        home.kill()
        home.unlock()
        for _ in range(2):
            changed = agent.receive()
            assert changed["method"] == LIST_CHANGED
            assert changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
            home.add_probe_action("give_back", name=f"new-{time.monotonic_ns()}")  # the second is of this one


def test_a_stopped_daemon_is_started_when_somebody_asks(home: DaemonHome):
    """And not before: a person may have stopped it to change something."""
    with Agent(home.path) as agent:
        agent.initialize()
        home.stop()
        assert agent.is_quiet(1.5)
        assert home.daemon_pid is None

        assert "result" in agent.ask("ping")
        assert home.daemon_pid is not None


def test_a_call_goes_on_when_its_agent_has_gone(home: DaemonHome, upstream: CountingServer):
    """Closing standard input ends the relay, and takes back nothing that has begun."""
    with Agent(home.path) as agent:
        agent.initialize()
        agent.request("tools/call", call("fetch", path="/slow?gone"))
        wait_until(lambda: ("GET", "/slow?gone") in [seen[:2] for seen in upstream.requests], "the service is asked")
        agent.close()
        assert agent.wait() == (0, "")


def test_a_kill_of_the_protocols_process_costs_an_answer_and_nothing_else(home: DaemonHome, upstream: CountingServer):
    """The agent hears that nobody knows, and goes on; what had begun goes on, too, and is on record."""
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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_kills_at_random_double_nothing(home: DaemonHome, upstream: CountingServer):
    """Each call has at most one effect, and one that was told has one; both happened, else it proves nothing."""
    with Agent(home.path) as agent:
        told, lost = killed_at_random(agent, home, upstream)

    assert told
    assert lost


def test_an_ended_session_is_nobody(home: DaemonHome):
    """Its token presents nobody: what the agent asks is refused, and not done as somebody else."""
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


def test_the_relay_starts_the_daemon():
    """Nobody has to do it before; what is asked meanwhile waits."""
    with daemon_home() as home, Agent(home.path) as agent:
        assert "result" in agent.ask("server/discover", envelope())
        assert home.daemon_pid is not None


def test_a_daemon_that_does_not_start_is_told_to_who_asks(folder: Path):
    """An agent shows its person the answer to `initialize`; the next try is when somebody asks again, after a moment."""
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


def test_a_home_of_too_long_a_name_is_told(folder: Path):
    """A socket's path has at most 107 bytes."""
    with Agent(folder / ("x" * 100)) as agent:
        assert "set AILERON_HOME to a shorter path" in agent.ask("initialize")["error"]["message"]


def test_an_agent_that_leaves_while_the_daemon_starts_leaves_it_whole():
    """Whoever asked for it is not there to be told that it is ready."""
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
def test_a_client_that_asks_for_progress_hears_the_connectors(home: DaemonHome, way: str):
    """With its own token, only rising, with total and message; and one that does not ask hears nothing."""
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
        heard = [one for one in agent.others if one["method"] != LIST_CHANGED]
        told = agent.ask("tools/call", {**work, "_meta": {"progressToken": "mine"}})["result"]["structuredContent"]
        reports = [one["params"] for one in agent.others if one["method"] == "notifications/progress"]

    assert (silent["status"], silent["result"], heard) == ("completed", 10, [])
    assert (told["status"], told["result"]) == ("completed", 10)
    said = [report["progress"] for report in reports]
    assert len(said) >= 2
    assert said == sorted(set(said))
    assert {(one["progressToken"], one["total"], one["message"]) for one in reports} == {("mine", 10, "reading")}
