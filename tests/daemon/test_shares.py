"""Shares: a session, whatever it starts and however it asks, keeps no other session and no person from running and asking."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import pytest

from aileron.client import Answer
from tests.support.home import DaemonHome
from tests.support.probed import probed_home

pytestmark = pytest.mark.jail

_RUNS: Final = 32
"""Runs of 64 that a session gets if it runs alone."""
_QUESTIONS: Final = 400
"""Questions of 800 that a session gets if it asks alone."""
_DEADLINE_S: Final = 60.0
_AGENT: Final = """
import json, os, sys
from pathlib import Path
from aileron.client import Client

home = Path(sys.argv[1])
until_over, over = os.pipe()
for line in sys.stdin:
    asked = json.loads(line)
    if asked["leave"] and os.fork() == 0:  # two forks: nobody of its family is its parent any more
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            pass
        asked["body"]["pid"] = os.getpid() if asked["pid"] else None
        answer = Client(home).ask("POST", "/v1/sessions", asked["body"])
        print(json.dumps([answer.status, answer.body]), flush=True)
        os.close(over)
        os.read(until_over, 1)
        os._exit(0)
    if asked["leave"]:
        os.wait()
        continue
    headers = {"Authorization": f"Bearer {asked['token']}"} if asked["token"] else {}
    client = Client(home, operator=asked["operator"])
    answer = client.ask(asked["method"], asked["path"], asked["body"], wait_s=25, headers=headers)
    print(json.dumps([answer.status, answer.body]), flush=True)
"""


class Gate:
    """A service that keeps requests for `/NAME` waiting until `let_go(NAME)`."""

    def __init__(self) -> None:
        self.waiting: dict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self._open = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if not outer._open:
                    outer.waiting[self.path].acquire(timeout=_DEADLINE_S * 2)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                """Write no log."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Ignore a client that disconnects."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def let_go(self, name: str, times: int = 1) -> None:
        """Answer this many of the requests that wait under a name."""
        self.waiting[f"/{name}"].release(times)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = True
        for semaphore in list(self.waiting.values()):
            semaphore.release(1000)
        self._server.shutdown()
        self._server.server_close()


class Agent:
    """A process with a session, which sends requests for itself and for sessions that it opens."""

    def __init__(self, home: DaemonHome) -> None:
        self._home = home
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AGENT, str(home.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        session = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/", "pid": self.pid})
        self.id, self.token = str(session["id"]), str(session["token"])

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, operator: bool = False
    ) -> Answer:
        """Send a request from the process, with a token or without."""
        return self._told(method=method, path=path, body=body, token=token, operator=operator, leave=False)

    def begin(self, **facts: Any) -> dict[str, Any]:
        """Open a session from the process."""
        answer = self.ask("POST", "/v1/sessions", {"agent": "claude", "folder": "/", **facts}, operator=True)
        assert answer.status == 200, answer.body
        return dict(answer.body)

    def leave(self, *, with_process: bool) -> dict[str, Any]:
        """Open a session from a process that the agent started and that has left its family."""
        answer = self._told(leave=True, pid=with_process, body={"agent": "claude", "folder": "/"})
        assert answer.status == 200, answer.body
        return dict(answer.body)

    def _told(self, **asked: Any) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Answer(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.communicate(timeout=_DEADLINE_S)


@contextlib.contextmanager
def waiting_home() -> Iterator[tuple[DaemonHome, Gate]]:
    """Yield a home with `hold`, whose run goes on until its gate opens, `give-back`, and the gated `ask-first` and `ask-hold`."""
    with Gate() as gate, probed_home(gate.port, timeout_s=120) as home:
        home.add_probe_action("give_back", "text:string")
        home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        home.add_probe_action("fetch", "path:string", name="hold")
        home.add_probe_action("fetch", "path:string", name="ask-hold", gated=True)
        yield home, gate


@pytest.fixture
def held() -> Iterator[tuple[DaemonHome, Gate]]:
    """Start a home for one test, because its runs in progress would hinder the next."""
    with waiting_home() as made:
        yield made


def run(home: DaemonHome, token: str | None, action: str, wait: float = 25.0, **args: Any) -> Answer:
    """Run an action with a token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    path = f"/v1/actions/{action}/run?wait={wait:g}"
    return home.agent.request("POST", path, {"args": args}, wait_s=wait, headers=headers)


def said(answer: Answer) -> str:
    """Return `share` or `full` for a run that got no place, and otherwise what became of it."""
    if answer.is_error and answer.body["error"]["class"] == "busy":
        assert answer.status == 429
        assert answer.body["error"]["retriable"]
        return str(answer.body["error"]["details"]["reason"])
    return "ran" if answer.status == 200 else str(answer.body)


def fill(home: DaemonHome, token: str | None, gate: str, at_once: int = 8) -> int:
    """Begin runs that stay in progress until there is no place for another, and return their number."""
    begun = 0
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            answers = list(pool.map(lambda _: run(home, token, "hold", wait=0, path=f"/{gate}"), range(at_once)))
            begun += sum(answer.status == 202 for answer in answers)
            if any(answer.status != 202 for answer in answers):
                assert {said(answer) for answer in answers if answer.status != 202} <= {"share", "full"}
                return begun


def small(home: DaemonHome, token: str | None) -> str:
    """Return the result of a short run."""
    return said(run(home, token, "give-back", text="x"))


@pytest.mark.abuse_case("A40")
def test_a_session_with_a_full_share_of_runs_blocks_no_other_caller(held: tuple[DaemonHome, Gate]) -> None:
    """The refusal says what to do. Other sessions, callers without a token and the person can run, and the session
    itself once a run of its own ends.
    """
    home, gate = held
    with Agent(home) as mine, Agent(home) as yours:
        assert fill(home, mine.token, "mine") == _RUNS
        refused = run(home, mine.token, "give-back", text="x")

        assert said(refused) == "share"
        message = refused.body["error"]["message"]
        assert message.startswith(f"{_RUNS} runs of this session are in progress, which is its share")
        assert message.endswith("try again when one has finished")
        assert [small(home, token) for token in (yours.token, None)] == ["ran", "ran"]
        assert said(home.run("give-back", {"text": "x"})) == "ran"

        gate.let_go("mine")
        assert _at_last(lambda: small(home, mine.token)) == "ran"


@pytest.mark.abuse_case("A41")
def test_nested_sessions_count_against_the_share_of_their_outer_session(held: tuple[DaemonHome, Gate]) -> None:
    """This holds however they are opened and whoever uses their tokens, and for calls of the process without a token. A
    session that the person opens has a share of its own.
    """
    home, _ = held
    with Agent(home) as mine, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as person:
        tokens = [str(mine.begin(**facts)["token"]) for facts in ({}, {"pid": mine.pid}, {"pid": person.pid}, {})]
        home.must("POST", f"/v1/sessions/{mine.id}/end", {})
        tokens.append(str(mine.begin(pid=mine.pid)["token"]))

        assert fill(home, tokens[0], "mine") == _RUNS
        assert [small(home, token) for token in tokens] == ["share"] * len(tokens)
        path, body = "/v1/actions/give-back/run", {"args": {"text": "x"}}
        assert said(mine.ask("POST", path, body)) == "share"
        assert said(mine.ask("POST", path, body, operator=True)) == "share"
        opened = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/", "pid": person.pid})
        assert said(mine.ask("POST", path, body, token=opened["token"])) == "share"
        assert small(home, opened["token"]) == "ran"
        assert small(home, None) == said(home.run("give-back", {"text": "x"})) == "ran"
        person.communicate()


@pytest.mark.abuse_case("A41")
def test_sessions_without_a_process_have_one_share_together(held: tuple[DaemonHome, Gate]) -> None:
    """They cost nothing to open. A session that names a process which its opener did not start counts as one of them."""
    home, _ = held
    by_hand = [home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/"})["token"] for _ in range(5)]
    by_hand.append(home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/", "pid": 1})["token"])

    assert fill(home, by_hand[0], "hand") == _RUNS
    assert [small(home, token) for token in by_hand] == ["share"] * len(by_hand)
    with Agent(home) as other:
        assert small(home, other.token) == "ran"


@pytest.mark.abuse_case("A42")
def test_a_detached_agent_cannot_take_every_free_place_for_runs(
    held: tuple[DaemonHome, Gate],
) -> None:
    """This is the limit of shares: an agent that detaches looks like another caller, and gets two thirds of the free
    places. Sessions without a process get that once, together; each session with a process gets it again. Neither
    another session nor the person is kept out.
    """
    home, _ = held
    with Agent(home) as mine, Agent(home) as yours:
        assert fill(home, mine.token, "mine") == _RUNS
        left = [mine.leave(with_process=kind)["token"] for kind in (False, False, True, True)]

        assert [fill(home, token, "mine", 2) for token in left] == [11, 0, 4, 1]
        assert small(home, yours.token) == "ran"
        assert said(home.run("give-back", {"text": "x"})) == "ran"


@pytest.mark.abuse_case("A40")
def test_approved_runs_of_one_session_do_not_delay_runs_of_another_session(held: tuple[DaemonHome, Gate]) -> None:
    """Twenty approved runs of one session are queued, and another session's begins at once. The queued runs begin as
    places become free.
    """
    home, gate = held
    with Agent(home) as mine, Agent(home) as yours:
        asked = [run(home, mine.token, "ask-hold", path="/asked").body for _ in range(20)]
        asked_too = run(home, yours.token, "ask-first", text="x").body
        assert fill(home, mine.token, "mine") == _RUNS
        for question in asked:
            assert approve(home, question)["status"] == "approved"
        waiting = home.result(asked[0], wait=0)
        assert (waiting["status"], waiting["error"]["class"]) == ("approved", "busy")

        approve(home, asked_too)
        assert home.result(asked_too)["status"] == "completed"
        gate.let_go("mine", _RUNS)
        gate.let_go("asked", len(asked))
        assert {home.result(question)["status"] for question in asked} == {"completed"}


def test_a_free_place_goes_first_to_a_session_without_a_running_action(held: tuple[DaemonHome, Gate]) -> None:
    """Twelve sessions have taken all places for agents. Three approved runs wait, two for sessions that already have
    places and one for a session that has none: that one gets the first place, although it was approved last. The
    person can run all the time.
    """
    home, gate = held
    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(Agent(home)) for _ in range(12)]
        last = stack.enter_context(Agent(home))
        asked = [run(home, agent.token, "ask-first", text="x").body for agent in (agents[0], agents[1], last)]
        begun = [fill(home, agent.token, str(number), 8 if number < 2 else 1) for number, agent in enumerate(agents)]
        assert begun == [32, 11, 4, *[1] * 9]
        assert small(home, last.token) == "full"
        assert said(home.run("give-back", {"text": "x"})) == "ran"
        for question in asked:
            approve(home, question)

        gate.let_go("0")
        assert home.result(asked[2])["status"] == "completed"
        assert [home.result(question, wait=0)["status"] for question in asked[:2]] == ["approved", "approved"]
        gate.let_go("0", 31)
        gate.let_go("1", 11)
        assert [home.result(question)["status"] for question in asked[:2]] == ["completed", "completed"]


@pytest.mark.abuse_case("A40")
def test_a_session_with_a_full_share_of_questions_blocks_no_other_caller() -> None:
    """Nested sessions count with their outer session: from the record, after it ended and after a restart."""
    with waiting_home() as (home, _), Agent(home) as mine, Agent(home) as yours:
        nested = mine.begin()["token"]
        answers = [run(home, nested, "ask-first", text="x") for _ in range(_QUESTIONS)]
        assert {answer.status for answer in answers} == {202}
        assert said(run(home, mine.token, "ask-first", text="x")) == "share"
        home.must("POST", f"/v1/sessions/{mine.id}/end", {})

        home.kill()
        home.unlock()

        refused = run(home, nested, "ask-first", text="x")
        assert said(refused) == "share"
        assert refused.body["error"]["message"].startswith(
            f"{_QUESTIONS} questions of this session are already waiting"
        )
        again = mine.begin(pid=mine.pid)["token"]
        assert said(run(home, again, "ask-first", text="x")) == "share"
        path, body = "/v1/actions/ask-first/run", {"args": {"text": "x"}}
        assert said(mine.ask("POST", path, body)) == "share"
        for token in (yours.token, None):
            assert run(home, token, "ask-first", text="x").status == 202
        for answer in answers[:3]:  # other parties have questions now, so its share is smaller
            home.must("POST", f"/v1/action-approvals/{answer.body['approval_id']}/cancel")
        assert run(home, nested, "ask-first", text="x").status == 202


def approve(home: DaemonHome, question: dict[str, Any]) -> dict[str, Any]:
    """Approve a question, as a person does."""
    digest = home.must("GET", f"/v1/action-approvals/{question['approval_id']}")["digest"]
    answer = home.decide({**question, "digest": digest}, "approve")
    assert answer.status == 200, answer.body
    return dict(answer.body)


def _at_last(look: Any) -> str:
    """Return the last result of tries that go on until a run's place is free, a moment after the run's result."""
    found = ""
    for _ in range(200):
        found = str(look())
        if found == "ran":
            break
    return found
