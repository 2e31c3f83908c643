"""A replay of the events, which gives the states that must be stored: runs, approvals, keys, uses of grants, row for row.

Pure. For verify.py, which reads the chain and compares: states are stored beside the chain, and decide what runs next. Holds
open runs and approvals, and no history: a run or approval that ended is returned at once, to be compared and forgotten.

Rules
- Only events that are known to change a state change one here; a newer kind of event is ignored.
- An event that does not fit its type is followed nevertheless, with the values it has: the result is compared like the rest,
  and a fact may therefore be of any type, whatever is declared.
- The chain is trusted, its contents are not: events in an order that no daemon writes raise `OutOfOrderError`. A run begins
  only if the gate let it through, or it was approved and the approval used; a decision is about what was asked or shown;
  uses count up.

Source: docs/reference/audit-events.md; the verbs of log.py, each of which writes its events and states in one transaction.
Not here: outcomes and frozen plans, whose digests the events have (verify.py), signatures (signatures.py).
"""

from __future__ import annotations

import heapq
from typing import Final, assert_never

import msgspec

from aileron.audit.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalCancelled,
    ApprovalDecided,
    ApprovalEdited,
    ApprovalExpired,
    ApprovalPreviewed,
    ApprovalRedeemed,
    ApprovalRequested,
    GrantRevoked,
    GrantUsed,
    RunFinished,
    RunRequested,
    RunStarted,
    RunUnknown,
)
from aileron.audit.moves import MOVES
from aileron.ledger import IDEMPOTENCY_KEPT_US, ApprovalState, Recorded
from aileron.model.decision import digest_with_preview
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus

__all__ = ["Moving", "OutOfOrderError", "Replay", "ToldApproval", "ToldCandidate", "ToldGrant", "ToldRound", "ToldRun"]


class OutOfOrderError(Exception):
    """An event is about something that never began, or that began twice."""


Moving = (
    RunRequested
    | RunStarted
    | RunFinished
    | RunUnknown
    | ApprovalRequested
    | ApprovalEdited
    | ApprovalPreviewed
    | ApprovalAsked
    | ApprovalAnswered
    | ApprovalDecided
    | ApprovalRedeemed
    | ApprovalExpired
    | ApprovalCancelled
    | GrantUsed
    | GrantRevoked
)
"""Events that change the state of a run, an approval or a grant."""


class ToldRun(msgspec.Struct, kw_only=True):
    """A run according to the events: the columns of its row, except the outcome."""

    id: str
    action: str
    session: str
    scope: Scope
    status: RunStatus
    plan_digest: str
    approval: str | None = None
    connector: str | None = None
    created_us: int
    changed_us: int


class ToldCandidate(msgspec.Struct, kw_only=True):
    """An additional digest that could be decided, according to the events."""

    digest: str
    plan_digest: str
    preview: str | None
    made_us: int


class ToldRound(msgspec.Struct, kw_only=True):
    """A question to the agent, and its answer, according to the events."""

    number: int
    question: str
    answer: str | None = None


class ToldGrant(msgspec.Struct, kw_only=True):
    """A grant's number of uses, and the time of its revocation in µs, according to the events."""

    used: int = 0
    revoked_us: int | None = None


class ToldApproval(msgspec.Struct, kw_only=True):
    """An approval according to the events: the columns of its row, except its subject, and the rows that belong to it."""

    id: str
    kind: str
    run: str | None
    digest: str
    state: ApprovalState
    created_us: int
    expires_us: int
    decided_us: int | None = None
    reason: str | None = None
    surface: str | None = None
    name: str | None = None
    asked: str | None = None
    preview: str | None = None
    key_id: str | None = None
    signed_at: str | None = None
    signature: str | None = None
    head: str | None = None
    head_signature: str | None = None
    candidates: list[ToldCandidate] = []
    conversation: list[ToldRound] = []

    def candidate(self, digest: str) -> ToldCandidate | None:
        """Return the candidate with this digest, which may be the question itself; None if no candidate has it."""
        if digest == self.digest:
            return ToldCandidate(digest=digest, plan_digest=digest, preview=None, made_us=self.created_us)
        return next((candidate for candidate in self.candidates if candidate.digest == digest), None)


class Replay:
    """The replayed states: pass every event in order, and read at the end which runs and approvals must still be open."""

    def __init__(self) -> None:
        self.runs: Final[dict[str, ToldRun]] = {}
        """Runs that have not ended."""
        self.approvals: Final[dict[str, ToldApproval]] = {}
        """Approvals that have not ended."""
        self.claims: Final[dict[str, tuple[int, str]]] = {}
        """Idempotency keys that must still be stored, by run: the time at which each was taken in µs, and its digest in the event
        (`claim`)."""
        self.grants: Final[dict[str, ToldGrant]] = {}
        """Grants that were used or revoked. A person signed each grant, so there are few."""
        self._by_age: Final[list[tuple[int, str]]] = []
        self.counts: Final = dict.fromkeys(("runs", "approvals", "candidates", "conversation"), 0)
        """Number of rows that each table must have."""

    def follow(self, told: Recorded[Moving]) -> list[ToldRun | ToldApproval]:
        """Apply the next event; return the runs and approvals that it ended, whose rows must stay unchanged."""
        at_us = told.at_us
        match told.event:
            case RunRequested() as event:
                self._begin_run(event, at_us)
            case RunStarted() as event:
                self._start(event, at_us)
            case RunFinished() as event:
                return [self._end_run(event, event.status, at_us)]
            case RunUnknown() as event:
                return [self._end_run(event, RunStatus.UNKNOWN, at_us)]
            case ApprovalRequested() as event:
                self._begin_approval(event, at_us)
            case ApprovalEdited() as event:
                self._edit(event, at_us)
            case ApprovalPreviewed() as event:
                self._preview(event, at_us)
            case ApprovalAsked() as event:
                self._ask(event)
            case ApprovalAnswered() as event:
                self._answer(event)
            case ApprovalDecided() as event:
                return self._decide(event, at_us)
            case ApprovalRedeemed() as event:
                return self._redeem(event, at_us)
            case ApprovalExpired() as event:
                return [self._end_approval(self._approval(event), ApprovalState.EXPIRED, at_us)]
            case ApprovalCancelled() as event:
                return [self._end_approval(self._approval(event), ApprovalState.CANCELLED, at_us, event.surface)]
            case GrantUsed() as event:
                self._use_grant(event)
            case GrantRevoked() as event:
                grant = self._grant(event)
                grant.revoked_us = at_us if grant.revoked_us is None else grant.revoked_us
            case impossible:
                assert_never(impossible)
        return []

    def _begin_run(self, event: RunRequested, at_us: int) -> None:
        run_id = str(event.run)
        if run_id in self.runs:
            raise OutOfOrderError(f"{run_id} begins a second time")
        self.counts["runs"] += 1
        self.runs[run_id] = ToldRun(
            id=run_id,
            action=event.action,
            session=event.session,
            scope=event.scope,
            status=RunStatus.APPROVED,
            plan_digest=event.plan_digest,
            created_us=at_us,
            changed_us=at_us,
        )
        if event.claim is not None:
            self._claim(run_id, at_us, event.claim)

    def _claim(self, run_id: str, at_us: int, digest: str) -> None:
        """Add the idempotency key that a run took, and forget expired keys: the ledger does both in the same transaction."""
        while self._by_age and self._by_age[0][0] <= at_us - IDEMPOTENCY_KEPT_US:
            del self.claims[heapq.heappop(self._by_age)[1]]
        self.claims[run_id] = (at_us, digest)
        heapq.heappush(self._by_age, (at_us, run_id))  # not a queue: the clock may have been set back in between

    def _begin_approval(self, event: ApprovalRequested, at_us: int) -> None:
        approval_id = str(event.approval)
        if approval_id in self.approvals:
            raise OutOfOrderError(f"{approval_id} begins a second time")
        self.counts["approvals"] += 1
        self.approvals[approval_id] = ToldApproval(
            id=approval_id,
            kind=event.kind,
            run=event.run,
            digest=event.digest,
            state=ApprovalState.PENDING,
            created_us=at_us,
            expires_us=event.expires_at_us,
            name=event.name,
        )
        if event.run is None:
            return
        run = self._run(event.run)
        if (run.status, run.changed_us, run.approval) != (RunStatus.APPROVED, run.created_us, None):
            raise OutOfOrderError(f"{run.id} is running, but a question about it is asked")
        run.status, run.changed_us, run.approval = RunStatus.PENDING_APPROVAL, at_us, approval_id
        if event.name is None:  # rows from before questions had names: the ledger gave them this name
            self.approvals[approval_id].name = run.action

    def _edit(self, event: ApprovalEdited, at_us: int) -> None:
        approval, digest = self._waiting(event), event.digest
        if approval.candidate(digest) is not None:
            raise OutOfOrderError(f"{approval.id} is edited to a plan that it already has")
        self._add(approval, ToldCandidate(digest=digest, plan_digest=digest, preview=None, made_us=at_us))

    def _preview(self, event: ApprovalPreviewed, at_us: int) -> None:
        approval, digest, plan_digest, preview = self._waiting(event), event.digest, event.plan_digest, event.preview
        known = approval.candidate(plan_digest)
        if known is None or known.preview is not None:
            raise OutOfOrderError(f"{approval.id} has a preview of a plan that is not its own")
        if digest is None:
            return
        if digest != digest_with_preview(str(plan_digest), str(preview)):
            raise OutOfOrderError(f"{approval.id} has a preview whose digest is not that of plan and preview")
        if approval.candidate(digest) is None:
            self._add(approval, ToldCandidate(digest=digest, plan_digest=plan_digest, preview=preview, made_us=at_us))

    def _add(self, approval: ToldApproval, candidate: ToldCandidate) -> None:
        approval.candidates.append(candidate)
        self.counts["candidates"] += 1

    def _ask(self, event: ApprovalAsked) -> None:
        approval = self._waiting(event)
        rounds = approval.conversation
        if event.number != len(rounds) + 1 or (rounds and rounds[-1].answer is None):
            raise OutOfOrderError(f"{approval.id} has a question before the last one is answered")
        rounds.append(ToldRound(number=len(rounds) + 1, question=event.text))
        self.counts["conversation"] += 1

    def _answer(self, event: ApprovalAnswered) -> None:
        approval = self._waiting(event)
        rounds = approval.conversation
        if event.number != len(rounds) or not rounds or rounds[-1].answer is not None:
            raise OutOfOrderError(f"{approval.id} has an answer without a question")
        rounds[-1].answer = event.text

    def _decide(self, event: ApprovalDecided, at_us: int) -> list[ToldRun | ToldApproval]:
        approval, digest = self._waiting(event), event.digest
        candidate = approval.candidate(digest)
        if candidate is None or candidate.preview != event.preview:
            raise OutOfOrderError(f"{approval.id} has a decision about something that was never asked")
        if digest != approval.digest:
            approval.asked, approval.digest = approval.digest, digest
        approval.preview = candidate.preview
        if event.kind != approval.kind:  # the kind decides which signatures count
            raise OutOfOrderError(f"{approval.id} has a decision about another kind")
        for name in _SIGNED:
            setattr(approval, name, getattr(event, name))
        approval.expires_us = approval.expires_us if event.until_us is None else event.until_us
        approval.reason = event.reason
        if event.decision != "approve":
            return [self._end_approval(approval, ApprovalState.DENIED, at_us, event.surface)]
        approval.surface = event.surface
        approval.state = ApprovalState.APPROVED
        approval.decided_us = at_us
        if event.run is not None:
            self._move(event.run, RunStatus.APPROVED, at_us)
        return []

    def _redeem(self, event: ApprovalRedeemed, at_us: int) -> list[ToldRun | ToldApproval]:
        approval = self._approval(event)
        if approval.state is not ApprovalState.APPROVED or event.digest != approval.digest:
            raise OutOfOrderError(f"{approval.id} is used without a decision that covers it")
        if approval.run is not None:
            self._move(event.run, RunStatus.RUNNING, at_us)
        return [self._end_approval(approval, ApprovalState.REDEEMED, at_us)]

    def _start(self, event: RunStarted, at_us: int) -> None:
        run = self._run(event.run)
        if run.approval is not None and run.status is not RunStatus.RUNNING:
            raise OutOfOrderError(f"{run.id} begins without the decision it waits for")
        self._move(event.run, RunStatus.RUNNING, at_us).connector = event.connector

    def _use_grant(self, event: GrantUsed) -> None:
        self._run(event.run)
        grant, use, of = self._grant(event), event.use, event.of
        if use != grant.used + 1 or not isinstance(of, int) or use > of or grant.revoked_us is not None:
            raise OutOfOrderError(f"grant {event.grant!r:.100} is used more often than it allows")
        grant.used = use

    def _grant(self, event: GrantUsed | GrantRevoked) -> ToldGrant:
        return self.grants.setdefault(str(event.grant), ToldGrant())

    def _move(self, run_id: str | None, status: RunStatus, at_us: int) -> ToldRun:
        run = self._run(run_id)
        _check_move(run, status)
        run.status = status
        run.changed_us = at_us
        return run

    def _end_run(self, event: RunFinished | RunUnknown, status: RunStatus, at_us: int) -> ToldRun:
        run = self._move(event.run, status, at_us)
        del self.runs[run.id]
        return run

    def _end_approval(
        self, approval: ToldApproval, state: ApprovalState, at_us: int, surface: str | None = None
    ) -> ToldApproval:
        del self.approvals[approval.id]
        approval.state = state
        approval.decided_us = at_us if approval.decided_us is None else approval.decided_us
        approval.surface = approval.surface if surface is None else surface
        return approval

    def _run(self, run_id: str | None) -> ToldRun:
        try:
            return self.runs[str(run_id)]
        except KeyError:
            raise OutOfOrderError(f"{run_id!r} was not running") from None

    def _approval(self, event: _OfApproval) -> ToldApproval:
        try:
            return self.approvals[str(event.approval)]
        except KeyError:
            raise OutOfOrderError(f"{event.approval!r} was not open") from None

    def _waiting(self, event: _OfApproval) -> ToldApproval:
        approval = self._approval(event)
        if approval.state is not ApprovalState.PENDING:
            raise OutOfOrderError(f"{approval.id} was already decided")
        return approval


_OfApproval = (
    ApprovalEdited
    | ApprovalPreviewed
    | ApprovalAsked
    | ApprovalAnswered
    | ApprovalDecided
    | ApprovalRedeemed
    | ApprovalExpired
    | ApprovalCancelled
)
_SIGNED: Final = ("key_id", "signed_at", "signature", "head", "head_signature")


def _check_move(run: ToldRun, status: RunStatus) -> None:
    """Raise OutOfOrderError unless MOVES, which the ledger's writers follow too, has a change from the run's status to
    `status`.
    """
    if not isinstance(status, str) or not any(
        run.status in expected and status in reached for expected, reached in MOVES.values()
    ):
        raise OutOfOrderError(f"{run.id} goes from {run.status} to {status}")
