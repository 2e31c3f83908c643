"""First answers for agents while the daemon is still starting, with the real relay and a real daemon that is held up.

The process that holds the lock of a home is its daemon. While a test holds the lock, a daemon that is started gives way, and
the relay tries again: a start that takes as long as the test wants.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from aileron import __version__
from aileron.mcp.relay_early import Early
from tests.support.home import DaemonHome
from tests.support.relay import INITIALIZE, INITIALIZED, Agent, envelope
from tests.support.waiting import wait_text, wait_until

pytestmark = pytest.mark.jail
LIST_CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
DEADLINE_S = 30.0


def kept(home: DaemonHome) -> Path:
    """Return the path of the file with the first answers to agents."""
    return home.path / "run" / "mcp-answers.json"


def first_answers(agent: Agent, version: str) -> dict[str, Any]:
    """Return the first answers to an agent of this version, by method."""
    if version in MODERN_PROTOCOL_VERSIONS:
        return {method: agent.ask(method, envelope())["result"] for method in ("server/discover", "tools/list")}
    hello = agent.ask("initialize", {**INITIALIZE, "protocolVersion": version})["result"]
    agent.send(INITIALIZED)
    return {"initialize": hello, "tools/list": agent.ask("tools/list")["result"]}


@pytest.fixture(scope="module")
def answered(made: DaemonHome) -> tuple[dict[str, dict[str, Any]], bytes]:
    """Return the daemon's first answers by version, and the content of the file that it keeps."""
    made.stop()  # the next daemon starts with its vault locked, as every daemon
    kept(made).unlink(missing_ok=True)
    answers = {}
    for version in (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS):
        with Agent(made.path) as agent:
            answers[version] = first_answers(agent, version)
    wait_text(kept(made))
    return answers, kept(made).read_bytes()


@pytest.fixture
def home(made: DaemonHome) -> DaemonHome:
    """Return a home whose daemon may run or not."""
    return made


@pytest.fixture
def told(home: DaemonHome, answered: tuple[dict[str, dict[str, Any]], bytes]) -> dict[str, dict[str, Any]]:
    """Return the daemon's first answers, by version. The file has them too, whatever the test before did to it."""
    answers, file = answered
    home.stop()
    kept(home).unlink(missing_ok=True)
    kept(home).write_bytes(file)
    return answers


@contextlib.contextmanager
def held_up(home: DaemonHome) -> Iterator[None]:
    """Stop the daemon, and keep any other from starting."""
    home.stop()
    with (home.path / "run" / "daemon.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_relay_gives_an_agent_its_tools_before_the_daemon_has_started(
    home: DaemonHome, told: dict[str, dict[str, Any]], version: str
) -> None:
    """The relay answers from a cache that equals the daemon's answers in that version; a call waits for the daemon."""
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    params = {"name": "give_back", "arguments": {"text": "early"}}
    with held_up(home):
        agent = Agent(home.path)
        assert first_answers(agent, version) == told[version]
        number = agent.request("tools/call", {**params, **envelope()} if is_modern else params)
        assert agent.is_quiet(0.5), "nobody can have called it yet"
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            home.operator.ask("GET", "/healthz")
    with agent:
        error = agent.answer(number)["result"]["structuredContent"]["error"]
        assert error["class"] == "vault_locked", "the daemon's own word: as every one, it begins with its vault locked"
        assert agent.others == ([] if is_modern else [{"jsonrpc": "2.0", "method": LIST_CHANGED}])


def test_a_subscription_is_told_that_the_early_list_may_be_outdated(
    home: DaemonHome, told: dict[str, dict[str, Any]]
) -> None:
    """The subscription itself waits for the daemon, but does not block later requests."""
    with held_up(home):
        agent = Agent(home.path)
        number = agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
        assert first_answers(agent, "2026-07-28") == told["2026-07-28"]
    with agent:
        assert agent.receive()["method"] == "notifications/subscriptions/acknowledged"
        changed = agent.receive()
    assert (changed["method"], changed["params"]["_meta"][SUBSCRIPTION]) == (LIST_CHANGED, number)


def test_without_cached_answers_the_agent_waits_for_the_daemon(
    home: DaemonHome, told: dict[str, dict[str, Any]]
) -> None:
    """The relay invents nothing: the answer is the daemon's own."""
    kept(home).unlink()
    with held_up(home):
        agent = Agent(home.path)
        number = agent.request("initialize", INITIALIZE)
        assert agent.is_quiet(1.5)
    with agent:
        assert agent.answer(number)["result"] == told["2025-11-25"]["initialize"]


@pytest.mark.parametrize("only", [["effect"], []], ids=["limited", "not limited"])
def test_an_agent_restricted_to_a_selection_gets_its_tool_list_from_the_daemon(
    home: DaemonHome, told: dict[str, dict[str, Any]], only: list[str]
) -> None:
    """The agent begins at once, and gets its list from the daemon; one that can use everything has the list early."""
    body = {"agent": "claude", "folder": "/", "only": only}
    session = home.must("POST", "/v1/sessions", body)
    with Agent(home.path) as other:  # with the first agent, the daemon begins to keep its answers
        other.ask("initialize", INITIALIZE)
        wait_until(
            lambda: bool(json.loads(kept(home).read_bytes())["limited"]) is bool(only),
            "it is kept whether a session is limited",
        )
    with held_up(home):
        agent = Agent(home.path, AILERON_SESSION_TOKEN=session["token"])
        assert agent.ask("initialize", INITIALIZE)["result"] == told["2025-11-25"]["initialize"]
        agent.send(INITIALIZED)
        number = agent.request("tools/list")
        if only:
            assert agent.is_quiet(2.0), "the kept list is not its own"
        else:
            listed = agent.answer(number)
    with agent:
        if only:
            listed = agent.answer(number)
    names = {tool["name"] for tool in listed["result"]["tools"]}
    home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})

    assert ("effect" in names, "give_back" in names) == (True, not only)


@pytest.mark.parametrize(
    "spoilt",
    ["not at all", "not JSON", "a list", "of another version of Aileron", "without who is limited", "a link", "a pipe"],
)
def test_a_cache_file_that_the_daemon_did_not_write_is_ignored(tmp_path: Path, spoilt: str) -> None:
    """Only a regular file written by the same version of Aileron counts."""
    file = tmp_path / "run" / "mcp-answers.json"
    file.parent.mkdir()
    whole = {
        "aileron": __version__,
        "limited": [],
        "results": {"2025-11-25": {"initialize": {"protocolVersion": "2025-11-25"}}},
    }
    bad = {
        "not JSON": "{",
        "a list": "[]",
        "of another version of Aileron": json.dumps({**whole, "aileron": "0.0.0"}),
        "without who is limited": json.dumps({**whole, "limited": None}),
    }
    written = tmp_path / "elsewhere" if spoilt == "a link" else file
    if spoilt == "a pipe":
        os.mkfifo(file)
    else:
        written.write_text(bad.get(spoilt, json.dumps(whole)))
    if spoilt == "a link":
        file.symlink_to(written)
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()

    assert (Early(str(tmp_path)).answer(asked) != b"") == (spoilt == "not at all")


def test_a_session_restricted_to_a_selection_gets_no_cached_tool_list(tmp_path: Path) -> None:
    """The cached list has all actions, so it serves unrestricted sessions only; the cached handshake serves all."""
    file = tmp_path / "run" / "mcp-answers.json"
    file.parent.mkdir()
    results = {"2025-11-25": {"initialize": {"protocolVersion": "2025-11-25"}, "tools/list": {"tools": []}}}
    limited = [hashlib.sha256(b"ail_limited").hexdigest()]
    file.write_text(json.dumps({"aileron": __version__, "limited": limited, "results": results}))

    def answered(token: str) -> list[bool]:
        early = Early(str(tmp_path), token)
        asked = [{"method": "initialize", "params": INITIALIZE}, {"method": "tools/list", "params": {}}]
        return [early.answer(json.dumps({"jsonrpc": "2.0", "id": 1, **request}).encode()) != b"" for request in asked]

    assert answered("ail_limited") == [True, False]
    assert answered("ail_another") == answered("") == [True, True]


def test_a_client_with_an_unsupported_protocol_version_waits_for_the_daemon(
    home: DaemonHome, told: dict[str, dict[str, Any]]
) -> None:
    """The daemon negotiates the version; the relay does not."""
    with held_up(home):
        agent = Agent(home.path)
        number = agent.request("initialize", {**INITIALIZE, "protocolVersion": "1999-01-01"})
        assert agent.is_quiet(1.5)
    with agent:
        assert agent.answer(number)["result"]["protocolVersion"] in told


def test_an_agent_with_early_tools_is_told_why_no_daemon_starts(
    home: DaemonHome, told: dict[str, dict[str, Any]]
) -> None:
    """The call is answered with the reason for which the daemon does not start."""
    home.stop()
    config = home.path / "config.toml"
    whole = config.read_text()
    config.write_text("[egress]\nnonsense = 1\n")
    try:
        with Agent(home.path) as agent:
            assert agent.ask("initialize", INITIALIZE)["result"] == told["2025-11-25"]["initialize"]
            agent.send(INITIALIZED)
            error = agent.ask("tools/call", {"name": "give_back", "arguments": {"text": "x"}})["error"]
    finally:
        config.write_text(whole)

    assert "nonsense" in error["message"]


def test_a_cache_that_cannot_be_written_does_not_affect_agents(home: DaemonHome) -> None:
    """A directory has the cache file's name: agents are still served, and notified of a new action."""
    home.stop()
    kept(home).unlink(missing_ok=True)
    kept(home).mkdir()
    try:
        with Agent(home.path) as agent:
            agent.initialize()
            agent.ask("tools/list")
            home.add_probe_action("give_back", name=f"heard-{time.monotonic_ns()}")
            assert agent.receive() == {"jsonrpc": "2.0", "method": LIST_CHANGED}
    finally:
        kept(home).rmdir()


def test_the_cached_answers_are_those_of_the_daemon(home: DaemonHome, told: dict[str, dict[str, Any]]) -> None:
    """They are equal in every version of the protocol, and are rewritten when an action is added."""
    assert json.loads(kept(home).read_bytes())["results"] == told

    with Agent(home.path) as agent:
        agent.ask("ping")  # without an agent no process knows the new answers
    name = f"early-{time.monotonic_ns()}"
    home.add_probe_action("give_back", name=name)
    wait_text(kept(home), name.replace("-", "_"))
