"""Shares: one session, whatever it starts and however it asks, keeps no other session and no person from running and asking."""

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
from tests.support.home import DaemonHome, daemon_home

pytestmark = pytest.mark.jail

_RUNS: Final = 32
"""Of 64, what a session gets that runs alone."""
_QUESTIONS: Final = 400
"""Of 800, what a session gets that asks alone."""
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
    """A service that keeps whoever asks for `/NAME` waiting until `let_go(NAME)`."""

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
                """Quiet."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that goes away is no news here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def let_go(self, name: str, times: int = 1) -> None:
        """So many that wait there are answered."""
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
    """A process that a session begins with, and what it asks for in its own name and others'."""

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
        """One request of its process; with a token, or with none."""
        return self._told(method=method, path=path, body=body, token=token, operator=operator, leave=False)

    def begin(self, **facts: Any) -> dict[str, Any]:
        """A session that its process opens."""
        answer = self.ask("POST", "/v1/sessions", {"agent": "claude", "folder": "/", **facts}, operator=True)
        assert answer.status == 200, answer.body
        return dict(answer.body)

    def leave(self, *, with_process: bool) -> dict[str, Any]:
        """A session that is opened by a process which the agent started, and which has left its family."""
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
    """A home with `hold` (a run that goes on until its gate is opened), `give-back`, and `ask-first` and `ask-hold` that ask."""
    with Gate() as gate, daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{gate.port}"]\n')
        home.install_probe(f"localhost:{gate.port}", timeout_s=120)
        home.unlock()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")
        home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        home.add_probe_action("fetch", "path:string", name="hold")
        home.add_probe_action("fetch", "path:string", name="ask-hold", gated=True)
        yield home, gate


@pytest.fixture
def held() -> Iterator[tuple[DaemonHome, Gate]]:
    """One of its own for each test: what a test leaves under way would be in the way of the next."""
    with waiting_home() as made:
        yield made


def run(home: DaemonHome, token: str | None, action: str, wait: float = 25.0, **args: Any) -> Answer:
    """A run, by whoever has the token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    path = f"/v1/actions/{action}/run?wait={wait:g}"
    return home.agent.request("POST", path, {"args": args}, wait_s=wait, headers=headers)


def said(answer: Answer) -> str:
    """`share` or `full` for a run that has no place, else what became of it."""
    if answer.is_error and answer.body["error"]["class"] == "busy":
        assert answer.status == 429
        assert answer.body["error"]["retriable"]
        return str(answer.body["error"]["details"]["reason"])
    return "ran" if answer.status == 200 else str(answer.body)


def fill(home: DaemonHome, token: str | None, gate: str, at_once: int = 8) -> int:
    """Begin runs that go on until there is no place for one more; how many there were."""
    begun = 0
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            answers = list(pool.map(lambda _: run(home, token, "hold", wait=0, path=f"/{gate}"), range(at_once)))
            begun += sum(answer.status == 202 for answer in answers)
            if any(answer.status != 202 for answer in answers):
                assert {said(answer) for answer in answers if answer.status != 202} <= {"share", "full"}
                return begun


def small(home: DaemonHome, token: str | None) -> str:
    """What one short run comes to."""
    return said(run(home, token, "give-back", text="x"))


def test_a_session_that_runs_all_it_may_keeps_nobody_else_out(held: tuple[DaemonHome, Gate]) -> None:
    """It is told so, and what to do; another session, callers without a token and the person run; so does it, when one ends."""
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


def test_sessions_that_a_session_starts_share_with_it(held: tuple[DaemonHome, Gate]) -> None:
    """However they are opened, whoever uses their tokens; so do its calls without a token, on each socket. One that the person
    opens has a share of its own.
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


def test_sessions_without_a_process_share_however_many_there_are(held: tuple[DaemonHome, Gate]) -> None:
    """They cost nothing, so they get one share together; also one that names a process which its opener did not start."""
    home, _ = held
    by_hand = [home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/"})["token"] for _ in range(5)]
    by_hand.append(home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/", "pid": 1})["token"])

    assert fill(home, by_hand[0], "hand") == _RUNS
    assert [small(home, token) for token in by_hand] == ["share"] * len(by_hand)
    with Agent(home) as other:
        assert small(home, other.token) == "ran"


def test_a_process_that_left_its_family_gets_what_is_left_and_the_person_keeps_theirs(
    held: tuple[DaemonHome, Gate],
) -> None:
    """The limit of it: an agent that detaches looks like somebody else. Without a process that is once more; with one it is two
    thirds of what is left each time, and neither another session nor the person is kept out.
    """
    home, _ = held
    with Agent(home) as mine, Agent(home) as yours:
        assert fill(home, mine.token, "mine") == _RUNS
        left = [mine.leave(with_process=kind)["token"] for kind in (False, False, True, True)]

        assert [fill(home, token, "mine", 2) for token in left] == [11, 0, 4, 1]
        assert small(home, yours.token) == "ran"
        assert said(home.run("give-back", {"text": "x"})) == "ran"


def test_what_a_session_has_approved_does_not_keep_another_ones_from_beginning(held: tuple[DaemonHome, Gate]) -> None:
    """Twenty of one wait for places, and the one of another begins at once. They begin as places come."""
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


def test_a_place_that_is_free_goes_to_whoever_has_none(held: tuple[DaemonHome, Gate]) -> None:
    """Where twelve have taken all that agents may, one run is waiting for each of two that run already, and for one that does
    not: that one begins with the first place, whoever was approved before, and the person has run all the time.
    """
    home, gate = held
    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(Agent(home)) for _ in range(12)]
        last = stack.enter_context(Agent(home))
        asked = [run(home, one.token, "ask-first", text="x").body for one in (agents[0], agents[1], last)]
        begun = [fill(home, one.token, str(number), 8 if number < 2 else 1) for number, one in enumerate(agents)]
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


def test_a_session_that_asks_without_end_keeps_nobody_from_asking_also_after_a_restart() -> None:
    """What waits is counted by whose it is, as it is on record: of a session that another started, also after that one ended."""
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
        for answer in answers[:3]:  # the others ask now, so its share is smaller
            home.must("POST", f"/v1/action-approvals/{answer.body['approval_id']}/cancel")
        assert run(home, nested, "ask-first", text="x").status == 202


def approve(home: DaemonHome, question: dict[str, Any]) -> dict[str, Any]:
    """Agree to it, as a person does."""
    digest = home.must("GET", f"/v1/action-approvals/{question['approval_id']}")["digest"]
    answer = home.decide({**question, "digest": digest}, "approve")
    assert answer.status == 200, answer.body
    return dict(answer.body)


def _at_last(look: Any) -> str:
    """What it comes to, once the place of a run that ended is free: that is a moment after its result."""
    found = ""
    for _ in range(200):
        found = str(look())
        if found == "ran":
            break
    return found
