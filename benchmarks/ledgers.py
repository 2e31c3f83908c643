"""Ledgers of a given size, for benchmarks: made fast by the ledger's own writer, with the rows that long use leaves.

A row takes some 550 bytes with its share of the indexes; 1,000,000 rows take 700 MB and half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aileron.ledger import ApprovalRow, ApprovalState, Ledger, RunRow, Transaction
from aileron.model.invocation import Scope
from aileron.model.json_value import JSON, JSONObject
from aileron.model.outcome import RunStatus

__all__ = ["DIGEST", "EVENT", "ROWS_PER_RUN", "SPACING_US", "START_US", "filled"]

ROWS_PER_RUN: Final = 5
RUNS_PER_COMMIT: Final = 400
RUNS_EACH: Final = 100
"""Runs of a session, or runs with one question among them."""
START_US: Final = 1_700_000_000_000_000
SPACING_US: Final = 5_000_000
DIGEST: Final = "sha256:" + "ab" * 32
EVENT: Final[dict[str, Any]] = {
    "type": "egress.sending",
    "run": "run-20261121T035800-0f7c1dd8f7b7a1ba1d0e",
    "step": "send",
    "connector": "github://acme/connector-3",
    "request": 1,
    "method": "GET",
    "host": "api.example.com",
    "port": 443,
    "path": "/v1/things",
}
"""Event that is appended: some 550 bytes with its chain and columns."""


class _Clock:
    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


def filled(path: Path, home: Path, rows: int, *, are_asked: bool = True) -> Ledger:
    """Make a ledger of `rows` rows: runs of five events, a tenth of them failed, with a key each. In every hundredth run a person
    was asked, and five questions are still pending. Unless `are_asked`, every hundred runs have a session of their own instead.
    """
    clock = _Clock()
    ledger = Ledger.open(path, home, "0.1.0", clock=clock)
    for first in range(0, rows // ROWS_PER_RUN, RUNS_PER_COMMIT):
        numbers = range(first, min(first + RUNS_PER_COMMIT, rows // ROWS_PER_RUN))
        ledger.commit_now(lambda tx, numbers=numbers: _add_runs(tx, clock, numbers, are_asked=are_asked))  # type: ignore[misc]
    return ledger


def _add_runs(tx: Transaction, clock: _Clock, numbers: range, *, are_asked: bool) -> None:
    for number in numbers:
        clock.now_us += SPACING_US
        tx.now_us = clock.now_us
        if are_asked:
            _add_run(tx, number, "local" if number % 3 else f"session-{number % 7}")
            if number % RUNS_EACH == 0:
                _add_question(tx, number)
            continue
        session = f"sess-{number // RUNS_EACH}"
        if number % RUNS_EACH == 0:
            _add_session(tx, session)
        _add_run(tx, number, session)


def _add_run(tx: Transaction, number: int, session: str) -> None:
    run, step = f"run-{number:020d}", {"step": "send", "connector": f"github://acme/connector-{number % 10}"}
    asked = {"session": session, "action": f"action-{number % 20}"}
    failed = {"class": "network_error" if number % 20 else "capability_denied"} if number % 10 == 0 else {}
    tx.claim(asked["session"], f"key-{number}", DIGEST, run)
    tx.insert_run(
        RunRow(
            id=run,
            action=asked["action"],
            session=asked["session"],
            scope=Scope.AGENT,
            status=RunStatus.FAILED if failed else RunStatus.COMPLETED,
            plan_digest=DIGEST,
            outcome=b'{"result": {"sent": true}}',
        )
    )
    plan: list[JSON] = [
        {"id": "send", "connector": step["connector"], "hash": DIGEST, "op": "send", "hosts": ["api.example.com:443"]}
    ]
    tx.append(
        {"type": "run.requested", "run": run, **asked, "plan_digest": DIGEST, "args": {"to": "a@b"}, "steps": plan}
    )
    tx.append(
        {"type": "run.started", "run": run, **step, "op": "send", "attempt": 1, "layers": ["seccomp", "landlock"]}
    )
    tx.append({**EVENT, "run": run, **step})
    tx.append({"type": "egress.finished", "run": run, **step, "request": 1, "status": 200, "bytes_down": 7, "ms": 3})
    tx.append(
        {
            "type": "run.finished",
            "run": run,
            **asked,
            "connector": step["connector"],
            **failed,
            "outcome_digest": DIGEST,
        }
    )


def _add_question(tx: Transaction, number: int) -> None:
    state = ApprovalState.PENDING if number < 500 else ApprovalState.REDEEMED
    question = ApprovalRow(
        id=f"act-{number}",
        kind="action",
        run=f"run-{number:020d}",
        digest=DIGEST,
        state=state,
        created_us=0,
        expires_us=2**52,
    )
    tx.insert_approval(question, b"{}")


def _add_session(tx: Transaction, session: str) -> None:
    told: JSONObject = {
        "agent": "claude",
        "folder": "/work",
        "token_digest": DIGEST,
        "expires_at_us": tx.now_us + SPACING_US,
    }
    tx.append({"type": "session.started", "session": session, **told})
    tx.append({"type": "session.ended", "session": session, "reason": "ended", "exit_code": 0})
