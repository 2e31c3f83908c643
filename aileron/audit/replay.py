"""What the states must be, told by the events alone: runs, approvals and idempotency keys, row for row.

Pure. For verify.py, which goes through the chain and compares: states lie beside it, and decide what runs next. It holds what is
open, and no history: what is over is given back at once, to be compared and forgotten.

Rules
- Only events that are known to change a state change one here; a newer kind of event is passed over.
- The chain is trusted, its words are not: what no daemon would have written in that order is `OutOfOrderError`.

Source: docs/reference/audit-events.md; the verbs of log.py, each of which writes its events and states in one transaction.
Not here: outcomes and frozen plans, of which the events have digests (verify.py).
"""

from __future__ import annotations

import heapq
from typing import Any, Final

import msgspec

from aileron.ledger import IDEMPOTENCY_KEPT_US, ApprovalState
from aileron.model.outcome import RunStatus

__all__ = ["OutOfOrderError", "Replay", "ToldApproval", "ToldRun"]


class OutOfOrderError(Exception):
    """An event about something that never began, or that began twice."""


class ToldRun(msgspec.Struct, kw_only=True):
    """A run as the events tell it: the columns of its row, but for the outcome."""

    id: str
    action: Any
    session: Any
    scope: Any
    status: Any
    plan_digest: Any
    approval: Any = None
    connector: Any = None
    created_us: int
    changed_us: int


class ToldApproval(msgspec.Struct, kw_only=True):
    """An approval as the events tell it: the columns of its row, but for its subject."""

    id: str
    kind: Any
    run: Any
    digest: Any
    state: Any
    created_us: int
    expires_us: Any
    decided_us: int | None = None
    reason: Any = None
    surface: Any = None


class Replay:
    """Give it every event in order; ask it in the end for what must still be open."""

    def __init__(self) -> None:
        self.runs: Final[dict[str, ToldRun]] = {}
        """Those that are not over."""
        self.approvals: Final[dict[str, ToldApproval]] = {}
        """Those that are not over."""
        self.claims: Final[dict[str, tuple[int, str]]] = {}
        """Keys that are kept, by the run that has each: when it was taken, and the digest of its row."""
        self._by_age: Final[list[tuple[int, str]]] = []
        self.count_runs = 0
        self.count_approvals = 0

    def follow(self, facts: dict[str, Any]) -> list[ToldRun | ToldApproval]:
        """Take the next event; returns what is over with it, as its row must be for good."""
        match facts["type"]:
            case "run.requested":
                self._begin_run(facts)
            case "approval.requested":
                self._begin_approval(facts)
            case "run.started":
                self._move(facts, RunStatus.RUNNING).connector = facts.get("connector")
            case "approval.decided":
                return self._decide(facts)
            case "approval.redeemed":
                if facts.get("run") is not None:
                    self._move(facts, RunStatus.RUNNING)
                return [self._end_approval(facts, ApprovalState.REDEEMED)]
            case "approval.expired":
                return [self._end_approval(facts, ApprovalState.EXPIRED)]
            case "approval.cancelled":
                return [self._end_approval(facts, ApprovalState.CANCELLED)]
            case "run.finished":
                return [self._end_run(facts, facts.get("status"))]
            case "run.unknown":
                return [self._end_run(facts, RunStatus.UNKNOWN)]
        return []

    def _begin_run(self, facts: dict[str, Any]) -> None:
        run_id, at_us = str(facts.get("run")), facts["at_us"]
        if run_id in self.runs:
            raise OutOfOrderError(f"{run_id} begins a second time")
        self.count_runs += 1
        self.runs[run_id] = ToldRun(
            id=run_id,
            action=facts.get("action"),
            session=facts.get("session"),
            scope=facts.get("scope"),
            status=RunStatus.APPROVED,
            plan_digest=facts.get("plan_digest"),
            created_us=at_us,
            changed_us=at_us,
        )
        if "claim" in facts:
            self._claim(run_id, at_us, facts["claim"])

    def _claim(self, run_id: str, at_us: int, digest: str) -> None:
        """Whoever takes a key forgets those that are kept no longer: the ledger does it in the same transaction."""
        while self._by_age and self._by_age[0][0] <= at_us - IDEMPOTENCY_KEPT_US:
            del self.claims[heapq.heappop(self._by_age)[1]]
        self.claims[run_id] = (at_us, digest)
        heapq.heappush(self._by_age, (at_us, run_id))  # not a queue: the clock may have been set back in between

    def _begin_approval(self, facts: dict[str, Any]) -> None:
        approval_id = str(facts.get("approval"))
        if approval_id in self.approvals:
            raise OutOfOrderError(f"{approval_id} begins a second time")
        self.count_approvals += 1
        self.approvals[approval_id] = ToldApproval(
            id=approval_id,
            kind=facts.get("kind"),
            run=facts.get("run"),
            digest=facts.get("digest"),
            state=ApprovalState.PENDING,
            created_us=facts["at_us"],
            expires_us=facts.get("expires_at_us"),
        )
        if facts.get("run") is not None:
            self._move(facts, RunStatus.PENDING_APPROVAL).approval = approval_id

    def _decide(self, facts: dict[str, Any]) -> list[ToldRun | ToldApproval]:
        approval = self._approval(facts)
        approval.reason = facts.get("reason")
        if facts.get("decision") != "approve":
            return [self._end_approval(facts, ApprovalState.DENIED)]
        approval.surface = facts.get("surface")
        approval.state = ApprovalState.APPROVED
        approval.decided_us = facts["at_us"]
        if facts.get("run") is not None:
            self._move(facts, RunStatus.APPROVED)
        return []

    def _move(self, facts: dict[str, Any], status: RunStatus) -> ToldRun:
        run = self._run(facts)
        run.status = status
        run.changed_us = facts["at_us"]
        return run

    def _end_run(self, facts: dict[str, Any], status: Any) -> ToldRun:
        run = self._run(facts)
        del self.runs[run.id]
        run.status = status
        run.changed_us = facts["at_us"]
        return run

    def _end_approval(self, facts: dict[str, Any], state: ApprovalState) -> ToldApproval:
        approval = self._approval(facts)
        del self.approvals[approval.id]
        approval.state = state
        approval.decided_us = facts["at_us"] if approval.decided_us is None else approval.decided_us
        approval.surface = facts.get("surface", approval.surface)
        return approval

    def _run(self, facts: dict[str, Any]) -> ToldRun:
        try:
            return self.runs[str(facts.get("run"))]
        except KeyError:
            raise OutOfOrderError(f"{facts.get('run')!r} was not under way") from None

    def _approval(self, facts: dict[str, Any]) -> ToldApproval:
        try:
            return self.approvals[str(facts.get("approval"))]
        except KeyError:
            raise OutOfOrderError(f"{facts.get('approval')!r} was not open") from None
