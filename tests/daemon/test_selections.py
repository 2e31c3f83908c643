"""Selections: the actions that a session is limited to are all that exist for it; if there are many, few are listed as tools."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest

from aileron.client import Answer
from tests.daemon.test_protocol import Agent
from tests.daemon.test_sessions import begin
from tests.support.home import DaemonHome, asking_home, probe_action
from tests.support.told import ask_as
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
DEADLINE_S = 30.0
PROBE: Final = "connector:github://aileron-tests/probe"
OWN: Final = {"cancel_action", "check_action_status", "list_pending", "wait_for_action"}
MANY: Final = {"find_action", "run_action"}
_CHILD: Final = """
import http.client, json, os, socket, sys
from pathlib import Path
from aileron.client import Client

def orphaned(path):  # a connection whose maker is gone
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        socket.send_fds(theirs, [b"x"], [made.fileno()])
        os._exit(0)
    (descriptor,) = socket.recv_fds(ours, 1, 1)[1]
    os.wait()
    return socket.socket(fileno=descriptor)

for line in sys.stdin:
    token, operator, method, path, body = json.loads(line)
    if token == "orphaned":
        connection = http.client.HTTPConnection("localhost")
        connection.sock = orphaned(sys.argv[1] + "/run/agent.sock")
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        print(json.dumps([answer.status, json.loads(answer.read())]), flush=True)
        continue
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = Client(Path(sys.argv[1]), operator=operator).ask(method, path, body, wait_s=25, headers=headers)
    print(json.dumps([answer.status, answer.body]), flush=True)
"""


@pytest.fixture(scope="module")
def made() -> Iterator[DaemonHome]:
    """Start a home with two actions without a tag, and one tagged `notes`."""
    with asking_home() as home:
        text = probe_action("give_back", "text:string", name="list-notes")
        text = text.replace('version = "1.0.0"\n', 'version = "1.0.0"\ntags = ["notes"]\n', 1)
        home.must("POST", "/v1/actions", {"text": text, "file": "a test"})
        yield home


@pytest.fixture
def home(made: DaemonHome) -> Iterator[DaemonHome]:
    """Yield that home, and restore its settings afterwards."""
    file = made.path / "config.toml"
    before = file.read_text(encoding="utf-8")
    made.unlock()
    yield made
    file.write_text(before, encoding="utf-8")


def run(home: DaemonHome, token: str | None, name: str, **more: Any) -> Answer:
    """Run an action."""
    return ask_as(home, token, "POST", f"/v1/actions/{name}/run", {"args": {"text": "x"}, **more})


def names(home: DaemonHome, token: str | None) -> list[str]:
    """Return the actions that the API lists."""
    return [action["name"] for action in ask_as(home, token, "GET", "/v1/actions").body["actions"]]


def tools(home: DaemonHome, token: str | None) -> set[str]:
    """Return the tools that the protocol lists, without Aileron's own."""
    with Agent(home.path / "run" / "mcp.sock", token) as agent:
        return listed(agent)


def listed(agent: Agent) -> set[str]:
    """Return the tools of this connection's list, without Aileron's own four."""
    found = {tool["name"] for tool in agent.ask("tools/list", {})["tools"]}
    assert found >= OWN
    return found - OWN


def set_mcp(home: DaemonHome, text: str) -> None:
    """Write settings of `mcp` into the file, and wait until they are in force."""
    file = home.path / "config.toml"
    kept = file.read_text(encoding="utf-8").partition("[mcp]")[0]
    file.write_text(f"{kept}[mcp]\n{text}\n", encoding="utf-8")
    home.must("GET", "/v1/status")


class Child:
    """A process that sends requests of its own."""

    def __init__(self, home: DaemonHome) -> None:
        words = [sys.executable, "-c", _CHILD, str(home.path)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=DEADLINE_S)

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "", operator: bool = False) -> Any:
        """Send a request and return status and body."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([token, operator, method, path, body]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.mark.abuse_case("A43")
def test_an_action_outside_the_selection_is_reported_as_not_installed(home: DaemonHome) -> None:
    """The API and MCP neither list, show, plan nor run it, with the error of an action that does not exist."""
    token = begin(home, only=["tag:notes"])["token"]

    assert names(home, token) == ["list-notes"]
    assert tools(home, token) == {"list_notes"}
    assert run(home, token, "list-notes").status == 200
    told = {}
    for name in ("give-back", "no-such-action"):
        assert ask_as(home, token, "GET", f"/v1/actions/{name}").body["error"]["class"] == "not_found"
        assert run(home, token, name, dry_run=True).body["error"]["class"] == "not_found"
        refused = run(home, token, name).body["error"]
        assert refused["class"] == "not_found"
        told[name] = refused["message"].replace(name, "NAME")
        with Agent(home.path / "run" / "mcp.sock", token) as agent:
            found = agent.call("find_action", words="give back")
            by_name = agent.call("run_action", name=name, arguments={"text": "x"})
        assert [action["name"] for action in found["actions"]] in ([], ["list_notes"])
        assert by_name["error"]["class"] == "not_found"
    assert told["give-back"] == told["no-such-action"]
    assert "limited it to tag:notes" in told["give-back"]
    assert names(home, None) == ["ask-first", "give-back", "list-notes"]
    assert run(home, begin(home)["token"], "give-back").status == 200


def test_a_refused_run_of_an_action_outside_the_selection_is_recorded(home: DaemonHome) -> None:
    """The record has the session, its selection and the action."""
    session = begin(home, only=["list-*"])
    run(home, session["token"], "give-back")
    events = home.must("GET", f"/v1/audit?session={session['id']}")["events"]

    assert [(event["type"], event.get("action")) for event in events if event["type"].startswith("run.")] == [
        ("run.refused", "give-back")
    ]
    (started,) = [event for event in events if event["type"] == "session.started"]
    assert started["only"] == ["list-*"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["tag:notes", "ask-first"], ["ask-first", "list-notes"]),
        ([PROBE], ["ask-first", "give-back", "list-notes"]),
        (["connector:github://aileron-tests/other"], []),
        (["*-*"], ["ask-first", "give-back", "list-notes"]),
        ([], ["ask-first", "give-back", "list-notes"]),
    ],
)
def test_an_action_that_matches_any_selector_is_selected(
    home: DaemonHome, only: list[str], expected: list[str]
) -> None:
    """A session without a selector can use every action."""
    session = begin(home, only=only)

    assert names(home, session["token"]) == expected
    assert session["only"] == home.must("GET", f"/v1/sessions/{session['id']}")["only"] == only


@pytest.mark.parametrize("only", [["Tag:x"], ["tag:"], ["a b"], ["x"] * 65])
def test_an_invalid_selector_opens_no_session(home: DaemonHome, only: list[str]) -> None:
    """A mistake must not open a session that can use everything."""
    answer = home.ask("POST", "/v1/sessions", {"agent": "claude", "folder": "/", "only": only})

    assert (answer.status, answer.body["error"]["class"]) == (400, "invalid_request")
    assert "only: " in answer.body["error"]["message"]


@pytest.mark.abuse_case("A43")
def test_a_sessions_selection_also_limits_its_descendants(home: DaemonHome) -> None:
    """The limits hold without the token, with another's, on the operator socket, and in a child's own session."""
    with Child(home) as child:
        free = begin(home)["token"]
        before = child.ask("POST", "/v1/actions/give-back/run", {"args": {"text": "x"}})
        session = begin(home, pid=child.pid, only=["tag:notes"])
        status, own = child.ask("POST", "/v1/sessions", {"agent": "codex", "folder": "/", "only": ["*"]}, operator=True)
        assert status == 200, own
        asked = {
            "its own token": {"token": session["token"]},
            "no token": {},
            "another's token": {"token": free},
            "the person's socket": {"operator": True},
            "a session that it opened": {"token": own["token"]},
            "a connection whose maker is gone": {"token": "orphaned"},
        }
        for what, how in asked.items():
            refused = child.ask("POST", "/v1/actions/give-back/run", {"args": {"text": "x"}}, **how)
            allowed = child.ask("POST", "/v1/actions/list-notes/run", {"args": {"text": "x"}}, **how)
            assert (refused[0], allowed[0]) == (404, 200), (what, refused, allowed)
        assert before[0] == 200
        assert run(home, own["token"], "give-back").status == 404, "also where its process does not descend"
        assert run(home, free, "give-back").status == 200


def test_a_nested_session_is_limited_by_its_own_selection(home: DaemonHome) -> None:
    """An agent that was started in another agent's session has the limits of its own session, however it asks."""
    outer = begin(home, pid=os.getpid())
    with Child(home) as child:
        inner = begin(home, pid=child.pid, only=["tag:notes"])
        status, own = child.ask("POST", "/v1/sessions", {"agent": "codex", "folder": "/"}, operator=True)
        assert status == 200, own
        for how in (
            {"token": inner["token"]},
            {},
            {"token": outer["token"]},
            {"operator": True},
            {"token": own["token"]},
        ):
            refused = child.ask("POST", "/v1/actions/give-back/run", {"args": {"text": "x"}}, **how)
            allowed = child.ask("POST", "/v1/actions/list-notes/run", {"args": {"text": "x"}}, **how)
            assert (refused[0], allowed[0]) == (404, 200), (how, refused, allowed)
    assert run(home, outer["token"], "give-back").status == 200
    home.must("POST", f"/v1/sessions/{outer['id']}/end", {})


def test_a_session_keeps_the_limits_of_the_session_that_opened_it(home: DaemonHome) -> None:
    """The limits stay after the outer session's process is gone and after a restart of the daemon."""
    with Child(home) as child:
        begin(home, pid=child.pid, only=["tag:notes"])
        _, own = child.ask("POST", "/v1/sessions", {"agent": "codex", "folder": "/", "only": ["*"]}, operator=True)
        free = begin(home)

    def sessions() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = home.must("GET", "/v1/sessions")["sessions"]
        return [session for session in listed if session["pid"] == child.pid and session["status"] == "open"]

    wait_until(lambda: not sessions(), "its session ends", seen=sessions)

    assert (names(home, own["token"]), run(home, own["token"], "give-back").status) == (["list-notes"], 404)
    home.stop()
    home.unlock()
    assert (names(home, own["token"]), run(home, own["token"], "give-back").status) == (["list-notes"], 404)
    assert run(home, free["token"], "give-back").status == 200


@pytest.mark.abuse_case("A43")
def test_a_selection_survives_a_restart(home: DaemonHome) -> None:
    """The daemon restores it from the record."""
    token = begin(home, only=["tag:notes"])["token"]
    home.stop()
    home.unlock()

    assert names(home, token) == ["list-notes"]
    assert run(home, token, "give-back").body["error"]["class"] == "not_found"


def test_a_folders_selection_limits_its_sessions(home: DaemonHome, tmp_path: Path) -> None:
    """The setting applies to open sessions at once, together with their own selection. The innermost folder wins."""
    inside, below = begin(home, folder=str(tmp_path)), begin(home, folder=str(tmp_path / "a" / "b"))
    outside, both = begin(home, folder=f"{tmp_path}-x"), begin(home, folder=str(tmp_path), only=["*-notes", "give-*"])
    told = {"inside": inside, "below": below, "outside": outside, "both": both}
    before = {name: names(home, session["token"]) for name, session in told.items()}
    set_mcp(home, f'folders = ["{tmp_path}=tag:notes", "{tmp_path}=ask-*", "{tmp_path}/a=give-back"]')
    after = {name: names(home, session["token"]) for name, session in told.items()}
    shown = home.must("GET", f"/v1/sessions/{both['id']}")

    everything = ["ask-first", "give-back", "list-notes"]
    assert before == {"inside": everything, "below": everything, "outside": everything, "both": everything[1:]}
    assert after == {
        "inside": ["ask-first", "list-notes"],
        "below": ["give-back"],
        "outside": everything,
        "both": ["list-notes"],
    }
    assert run(home, inside["token"], "give-back").body["error"]["class"] == "not_found"
    assert (shown["only"], shown["folder_only"]) == (["*-notes", "give-*"], ["ask-*", "tag:notes"])
    assert names(home, None) == everything, "nobody knows where a caller without a session works"


def test_mcp_offers_a_find_tool_and_a_run_tool_in_place_of_too_many_actions(home: DaemonHome) -> None:
    """A setting or a new action causes the switch, and its removal the switch back; open connections are notified."""
    with Agent(home.path / "run" / "mcp.sock") as agent:

        def changed() -> set[str]:
            while agent.read().get("method") != "notifications/tools/list_changed":
                pass
            return listed(agent)

        seen = [listed(agent)]
        set_mcp(home, "find_above = 3")
        seen.append(changed())
        home.add_probe_action("give_back", "text:string", name="one-more")
        seen.append(changed())
        set_mcp(home, 'find_above = 3\nkeep_listed = ["tag:notes"]')
        seen.append(changed())
        limited = tools(home, begin(home, only=["one-*", "list-*"])["token"])
        home.must("DELETE", "/v1/actions/one-more")
        seen.append(changed())

    everything = {"ask_first", "give_back", "list_notes"}
    assert seen == [everything, everything, MANY, MANY | {"list_notes"}, everything]
    assert limited == {"one_more", "list_notes"}, "of two actions there are not too many"


def test_the_relays_cache_file_lists_the_open_sessions_with_a_selection(home: DaemonHome) -> None:
    """The cache file names these sessions by the digests of their tokens, as long as they are open."""
    session = begin(home, only=["tag:notes"])
    begin(home)
    digest = hashlib.sha256(session["token"].encode()).hexdigest()
    tools(home, None)

    def limited() -> list[str]:
        with contextlib.suppress(OSError):
            found: list[str] = json.loads((home.path / "run" / "mcp-answers.json").read_text())["limited"]
            return found
        return []

    wait_until(lambda: digest in limited(), "it is limited", seen=limited)
    home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})
    wait_until(lambda: digest not in limited(), "it is over", seen=limited)
    assert os.stat(home.path / "run" / "mcp-answers.json").st_mode & 0o077 == 0
