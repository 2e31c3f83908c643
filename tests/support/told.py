"""Answers of a home's daemon, read for a test: how a request ended, what is on record, and how a question stands.

assert word(home.ask("POST", f"/v1/action-approvals/{question}/decide", body)) == "unauthorized"
assert refusals(home, question) == ["unsigned"]
"""

from __future__ import annotations

from typing import Any

from aileron.client import Answer
from tests.support.home import DaemonHome

__all__ = ["ask_as", "begun_session", "error_of", "of_kind", "refusals", "state", "word"]


def word(answer: Answer) -> str:
    """Return the class of a failure, or the status."""
    return str(answer.body["error"]["class"] if answer.is_error else answer.body["status"])


def error_of(answer: Answer) -> dict[str, Any]:
    """Return the failure in a response."""
    assert answer.is_error, answer.body
    error: dict[str, Any] = answer.body["error"]
    return error


def of_kind(home: DaemonHome, kind: str) -> list[dict[str, Any]]:
    """Return the events of one type, oldest first."""
    found: list[dict[str, Any]] = home.must("GET", f"/v1/audit?type={kind}&order=oldest&limit=1000")["events"]
    return found


def refusals(home: DaemonHome, about: str) -> list[str]:
    """Return the recorded reasons why tries to decide a question did not count, oldest first."""
    return [event["reason"] for event in of_kind(home, "approval.refused") if event["approval"] == about]


def state(home: DaemonHome, asked: dict[str, Any]) -> str:
    """Return the status of a question."""
    return str(home.result(asked, wait=0)["status"])


def begun_session(home: DaemonHome) -> dict[str, Any]:
    """Open a session of an agent and return it, with its token."""
    begun: dict[str, Any] = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})
    return begun


def ask_as(home: DaemonHome, token: str | None, method: str, path: str, body: Any = None) -> Answer:
    """Send a request on the agent socket, with a session's token or without one."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return home.agent.request(method, path, body, headers=headers)
