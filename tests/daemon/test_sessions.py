"""Sessions: each has a token, which gives access only to what its own session asked, until the session is over."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.canary import scan
from tests.support.home import DaemonHome, asking_home, daemon_home
from tests.support.told import ask_as
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start a home with an action that runs at once and one that needs approval."""
    with asking_home() as home:
        yield home


def begin(home: DaemonHome, **facts: Any) -> dict[str, Any]:
    """Open a session and return it, with its token."""
    session: dict[str, Any] = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/srv/work", **facts})
    return session


def asked(home: DaemonHome, token: str) -> dict[str, Any]:
    """Make the session ask a question, and return it."""
    answer = ask_as(home, token, "POST", "/v1/actions/ask-first/run", {"args": {"text": "x"}})
    assert answer.status == 202, answer.body
    question: dict[str, Any] = answer.body
    return question


def until_over(home: DaemonHome, session: str) -> dict[str, Any]:
    """Wait until the session is no longer open, and return it."""

    def look() -> dict[str, Any] | None:
        shown: dict[str, Any] = home.must("GET", f"/v1/sessions/{session}")
        return None if shown["status"] == "open" else shown

    return wait_until(look, "the session is over") or {}


def test_a_session_sees_its_own_questions_only(home: DaemonHome) -> None:
    """A question does not exist for another session's token, or for a caller without a token."""
    mine, yours = begin(home), begin(home, agent="codex")
    question = asked(home, mine["token"])
    path = f"/v1/action-approvals/{question['approval_id']}"

    assert ask_as(home, mine["token"], "GET", f"{path}/result").body["status"] == "pending_approval"
    for other in (yours["token"], None):
        for method, route in (
            ("GET", f"{path}/result"),
            ("GET", f"/v1/runs/{question['audit_id']}"),
            ("POST", f"{path}/cancel"),
        ):
            answer = ask_as(home, other, method, route)
            assert answer.status == 404, answer.body
            assert answer.body["error"]["class"] == "not_found"
    assert ask_as(home, mine["token"], "POST", f"{path}/cancel").body["status"] == "cancelled"


def test_a_session_can_list_and_run_actions_but_not_decide_questions(home: DaemonHome) -> None:
    """Operator routes are refused, with the reason, even with a valid token."""
    token = begin(home)["token"]
    question = asked(home, token)
    decision = {"decision": "approve", "digest": "sha256:" + "0" * 64}

    assert ask_as(home, token, "GET", "/v1/actions").status == 200
    ran = ask_as(home, token, "POST", "/v1/actions/give-back/run", {"args": {"text": "x"}})
    assert ran.status == 200, ran.body
    for method, path, body in (
        ("POST", f"/v1/action-approvals/{question['approval_id']}/decide", decision),
        ("GET", "/v1/sessions", None),
        ("POST", "/v1/sessions", {"agent": "x", "folder": "/"}),
        ("GET", "/v1/audit", None),
    ):
        answer = ask_as(home, token, method, path, body)
        assert answer.body["error"]["class"] == "unauthorized", path
        assert "not available on the agent socket" in answer.body["error"]["message"]


@pytest.mark.parametrize(
    "shown",
    ["Bearer ail_" + "A" * 43, "Bearer nonsense", "Bearer ", "Basic bWlyYTp4", "ail_" + "A" * 43],
    ids=["unknown", "no token of ours", "empty", "another scheme", "no scheme"],
)
def test_a_request_with_an_invalid_session_token_is_refused(home: DaemonHome, shown: str) -> None:
    """A request without any token is answered, and so is one with a valid token."""
    good = begin(home)["token"]

    refused = home.agent.request("GET", "/v1/actions", headers={"Authorization": shown})

    assert (refused.status, refused.body["error"]["class"]) == (401, "unauthorized")
    assert ask_as(home, good, "GET", "/v1/actions").status == 200
    assert ask_as(home, None, "GET", "/v1/actions").status == 200


def test_the_token_of_an_ended_session_is_refused(home: DaemonHome) -> None:
    """The session's question stays and can still be decided."""
    session = begin(home)
    question = asked(home, session["token"])

    ended = home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 3})

    assert (ended["status"], ended["exit_code"], ended["reason"], ended["runs"]) == ("ended", 3, "ended", 1)
    assert ask_as(home, session["token"], "GET", "/v1/actions").body["error"]["class"] == "unauthorized"
    assert home.decide({**question, "digest": digest_of(home, question)}, "approve").status == 200
    assert home.result(question)["status"] == "completed"


def test_a_session_end_that_could_not_be_recorded_is_recorded_later(home: DaemonHome) -> None:
    """The token is refused from the first try on; the later event tells the next daemon that the session ended."""
    session, other = begin(home), begin(home)
    pid = home.daemon_pid
    assert pid is not None
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, usual[1]))  # as a full disk: nothing is written
    try:
        failed = home.ask("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 3})
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
    refused = ask_as(home, session["token"], "GET", "/v1/actions")
    ended = home.must("POST", f"/v1/sessions/{session['id']}/end", {})

    assert failed.body["error"]["class"] == "internal_error"
    assert (refused.status, ask_as(home, other["token"], "GET", "/v1/actions").status) == (401, 200)
    assert (ended["status"], ended["reason"], ended["exit_code"]) == ("ended", "ended", 3)


def digest_of(home: DaemonHome, question: dict[str, Any]) -> str:
    """Return the digest of a question, as a person would be shown it."""
    return str(home.must("GET", f"/v1/action-approvals/{question['approval_id']}")["digest"])


def test_a_session_ends_with_its_process(home: DaemonHome) -> None:
    """A launcher that is killed leaves no valid token behind."""
    launcher = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        session = begin(home, pid=launcher.pid)
        assert ask_as(home, session["token"], "GET", "/v1/actions").status == 200
    finally:
        launcher.kill()
        launcher.communicate()

    over = until_over(home, session["id"])

    assert (over["status"], over["reason"], over["exit_code"]) == ("ended", "process gone", None)
    assert ask_as(home, session["token"], "GET", "/v1/actions").body["error"]["class"] == "unauthorized"


def test_the_session_that_started_a_process_can_be_looked_up(home: DaemonHome) -> None:
    """The session may have started an ancestor; a process of no session gives an empty list, a bad number an error."""

    def of_process(pid: object) -> list[str]:
        return [entry["id"] for entry in home.must("GET", f"/v1/sessions?pid={pid}")["sessions"]]

    with subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        session = begin(home, pid=launcher.pid)["id"]
        begin(home)
        assert (of_process(child), of_process(launcher.pid)) == ([session], [session])
        assert of_process(os.getpid()) == of_process(2**22) == []
        os.kill(child, signal.SIGKILL)
    for wrong in ("", "-1", "x", "1" * 8, "%C2%B2"):
        assert home.ask("GET", f"/v1/sessions?pid={wrong}").body["error"]["class"] == "invalid_request"


def test_a_session_survives_a_restart() -> None:
    """The record has no token and still recognizes it; a session that ended stays ended."""
    with daemon_home() as home:
        stays, ended = begin(home, pid=os.getpid()), begin(home)
        home.must("POST", f"/v1/sessions/{ended['id']}/end", {})
        home.kill()

        assert ask_as(home, stays["token"], "GET", "/v1/actions").status == 200
        assert ask_as(home, ended["token"], "GET", "/v1/actions").body["error"]["class"] == "unauthorized"
        listed = home.must("GET", "/v1/sessions")["sessions"]
        assert [session["id"] for session in listed] == [ended["id"], stays["id"]]
        assert home.must("GET", "/v1/audit/verify")["ok"]
        home.stop()
        assert scan([home.path], *(session["token"].removeprefix("ail_").encode() for session in (stays, ended))) == {}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"agent": "Not A Name"}, "not a name"),
        ({"folder": "here"}, "not an absolute path"),
        ({"for_s": 59}, "expected 60 to"),
        ({"for_s": 8 * 24 * 3600}, "expected 60 to"),
        ({"pid": 2**22 + 1}, "does not exist"),
    ],
    ids=["agent", "folder", "too short", "too long", "process"],
)
def test_opening_a_session_with_invalid_values_is_refused(home: DaemonHome, facts: dict[str, Any], why: str) -> None:
    """Each error says what was expected; with valid values the session opens."""
    answer = home.ask("POST", "/v1/sessions", {"agent": "claude", "folder": "/srv/work", **facts})

    assert (answer.status, answer.body["error"]["class"]) == (400, "invalid_request")
    assert why in answer.body["error"]["message"]
    assert begin(home)["status"] == "open"
