"""A replay of the events, which gives the states that must be stored: runs, approvals, keys, uses of grants, row for row.

Pure. For verify.py, which reads the chain and compares: states are stored beside the chain, and decide what runs next. Holds
open runs and approvals, and no history: a run or approval that ended is returned at once, to be compared and forgotten.

Rules
- Only events that are known to change a state are applied; a newer kind of event is ignored.
- An event that deviates from its type is applied nevertheless, with the values that it has, because the result is
  compared anyway. So a fact here may have any type, whatever its declaration says.
- The chain is trusted, its contents are not: events in an order that no daemon writes raise `OutOfOrderError`. A run begins
  only if the gate admitted it, or it was approved and the approval used; a decision is about a digest that was asked or shown;
  the uses of a grant are numbered consecutively from 1.

Source: docs/reference/audit-events.md; the verbs of log.py, each of which writes its events and states in one transaction.
Not here: outcomes and frozen plans, whose digests the events have (verify.py), signatures (signatures.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

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
from aileron.ledger import IDEMPOTENCY_KEPT_US, ApprovalRow, ApprovalState, CandidateRow, Recorded, RoundRow, RunRow
from aileron.model.decision import digest_with_preview
from aileron.model.outcome import RunStatus

__all__ = ["Moving", "OutOfOrderError", "Replay", "ToldApproval", "ToldGrant"]


class OutOfOrderError(Exception):
    """Error: an event does not fit the events before it, for example because it is about a run that never began or
    began twice.
    """


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


class ToldGrant(msgspec.Struct, kw_only=True):
    """The state of a standing grant according to the events: its number of uses, and the time of its revocation in
    microseconds since the epoch, if any.
    """

    used: int = 0
    revoked_us: int | None = None


class ToldApproval(msgspec.Struct):
    """An approval according to the events: its row, and the rows of its candidates and conversation."""

    row: ApprovalRow
    candidates: list[CandidateRow] = []
    conversation: list[RoundRow] = []

    def candidate(self, digest: str) -> CandidateRow | None:
        """Return the candidate with this digest, which may be the question itself; None if no candidate has it."""
        if digest == self.row.digest:
            return CandidateRow(digest=digest, plan_digest=digest, preview=None, made_us=self.row.created_us)
        return next((candidate for candidate in self.candidates if candidate.digest == digest), None)


class Replay:
    """The replayed states: pass every event in order, and read at the end which runs and approvals must still be open."""

    def __init__(self) -> None:
        self.runs: Final[dict[str, RunRow]] = {}
        """Runs that have not ended: the row of each, without the outcome."""
        self.approvals: Final[dict[str, ToldApproval]] = {}
        """Approvals that have not ended, by id."""
        self.claims: Final[dict[str, tuple[int, str]]] = {}
        """Idempotency keys that must still be stored, by run: the time at which each was taken in µs, and its digest in the event
        (`claim`)."""
        self.grants: Final[dict[str, ToldGrant]] = {}
        """Standing grants that were used or revoked, by id. A person signed each grant, so there are few."""
        self._by_age: Final[list[tuple[int, str]]] = []
        self.counts: Final = dict.fromkeys(("runs", "approvals", "candidates", "conversation"), 0)
        """Number of rows that the ledger file must have in each of these tables, by the table's name."""

    def follow(self, told: Recorded[Moving]) -> list[RunRow | ToldApproval]:
        """Apply the next event; return the runs and approvals that it ended, whose stored rows no later event changes."""
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
        self._count("runs", run_id, self.runs)
        self.runs[run_id] = RunRow(
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

    def _count(self, kind: str, begun: str, open_ones: Container[str]) -> None:
        if begun in open_ones:
            raise OutOfOrderError(f"{begun} begins a second time")
        self.counts[kind] += 1

    def _claim(self, run_id: str, at_us: int, digest: str) -> None:
        """Add the idempotency key that a run took, and forget expired keys: the ledger does both in the same transaction."""
        while self._by_age and self._by_age[0][0] <= at_us - IDEMPOTENCY_KEPT_US:
            del self.claims[heapq.heappop(self._by_age)[1]]
        self.claims[run_id] = (at_us, digest)
        heapq.heappush(self._by_age, (at_us, run_id))  # a heap: times can go back with the clock

    def _begin_approval(self, event: ApprovalRequested, at_us: int) -> None:
        approval_id, name = str(event.approval), event.name
        self._count("approvals", approval_id, self.approvals)
        if event.run is not None:
            run = self._run(event.run)
            if (run.status, run.changed_us, run.approval) != (RunStatus.APPROVED, run.created_us, None):
                raise OutOfOrderError(f"{run.id} is running, but a question about it is asked")
            self.runs[run.id] = replace(run, status=RunStatus.PENDING_APPROVAL, changed_us=at_us, approval=approval_id)
            name = run.action if name is None else name  # of a row from before questions had names
        row = ApprovalRow(
            id=approval_id,
            kind=event.kind,
            run=event.run,
            digest=event.digest,
            state=ApprovalState.PENDING,
            created_us=at_us,
            expires_us=event.expires_at_us,
            name=name,
        )
        self.approvals[approval_id] = ToldApproval(row)

    def _edit(self, event: ApprovalEdited, at_us: int) -> None:
        approval, digest = self._waiting(event), event.digest
        if approval.candidate(digest) is not None:
            raise OutOfOrderError(f"{approval.row.id} is edited to a plan that it already has")
        self._add(approval, CandidateRow(digest=digest, plan_digest=digest, preview=None, made_us=at_us))

    def _preview(self, event: ApprovalPreviewed, at_us: int) -> None:
        approval, digest, plan_digest, preview = self._waiting(event), event.digest, event.plan_digest, event.preview
        known = approval.candidate(plan_digest)
        if known is None or known.preview is not None:
            raise OutOfOrderError(f"{approval.row.id} has a preview of a plan that is not its own")
        if digest is None:
            return
        if digest != digest_with_preview(str(plan_digest), str(preview)):
            raise OutOfOrderError(f"{approval.row.id} has a preview whose digest is not that of plan and preview")
        if approval.candidate(digest) is None:
            self._add(approval, CandidateRow(digest=digest, plan_digest=plan_digest, preview=preview, made_us=at_us))

    def _add(self, approval: ToldApproval, candidate: CandidateRow) -> None:
        approval.candidates.append(candidate)
        self.counts["candidates"] += 1

    def _ask(self, event: ApprovalAsked) -> None:
        approval = self._waiting(event)
        rounds = approval.conversation
        if event.number != len(rounds) + 1 or (rounds and rounds[-1].answer is None):
            raise OutOfOrderError(f"{approval.row.id} has a question before the last one is answered")
        rounds.append(RoundRow(number=len(rounds) + 1, question=event.text, answer=None))
        self.counts["conversation"] += 1

    def _answer(self, event: ApprovalAnswered) -> None:
        approval = self._waiting(event)
        rounds = approval.conversation
        if event.number != len(rounds) or not rounds or rounds[-1].answer is not None:
            raise OutOfOrderError(f"{approval.row.id} has an answer without a question")
        rounds[-1] = replace(rounds[-1], answer=event.text)

    def _decide(self, event: ApprovalDecided, at_us: int) -> list[RunRow | ToldApproval]:
        approval, digest = self._waiting(event), event.digest
        candidate, asked = approval.candidate(digest), approval.row
        if candidate is None or candidate.preview != event.preview:
            raise OutOfOrderError(f"{asked.id} has a decision about something that was never asked")
        if event.kind != asked.kind:  # the kind decides which signatures are valid
            raise OutOfOrderError(f"{asked.id} has a decision about another kind")
        approval.row = replace(
            asked,
            asked=asked.asked if digest == asked.digest else asked.digest,
            digest=digest,
            preview=candidate.preview,
            key_id=event.key_id,
            signed_at=event.signed_at,
            signature=event.signature,
            head=event.head,
            head_signature=event.head_signature,
            expires_us=asked.expires_us if event.until_us is None else event.until_us,
            reason=event.reason,
        )
        if event.decision != "approve":
            return [self._end_approval(approval, ApprovalState.DENIED, at_us, event.surface)]
        approval.row = replace(approval.row, surface=event.surface, state=ApprovalState.APPROVED, decided_us=at_us)
        if event.run is not None:
            self._move(event.run, RunStatus.APPROVED, at_us)
        return []

    def _redeem(self, event: ApprovalRedeemed, at_us: int) -> list[RunRow | ToldApproval]:
        approval = self._approval(event)
        if approval.row.state is not ApprovalState.APPROVED or event.digest != approval.row.digest:
            raise OutOfOrderError(f"{approval.row.id} is used without a decision that covers it")
        if approval.row.run is not None:
            self._move(event.run, RunStatus.RUNNING, at_us)
        return [self._end_approval(approval, ApprovalState.REDEEMED, at_us)]

    def _start(self, event: RunStarted, at_us: int) -> None:
        run = self._run(event.run)
        if run.approval is not None and run.status is not RunStatus.RUNNING:
            raise OutOfOrderError(f"{run.id} begins without the decision it waits for")
        self.runs[run.id] = replace(self._move(event.run, RunStatus.RUNNING, at_us), connector=event.connector)

    def _use_grant(self, event: GrantUsed) -> None:
        self._run(event.run)
        grant, use, of = self._grant(event), event.use, event.of
        if use != grant.used + 1 or not isinstance(of, int) or use > of or grant.revoked_us is not None:
            raise OutOfOrderError(f"grant {event.grant!r:.100} is used more often than it allows")
        grant.used = use

    def _grant(self, event: GrantUsed | GrantRevoked) -> ToldGrant:
        return self.grants.setdefault(str(event.grant), ToldGrant())

    def _move(self, run_id: str | None, status: RunStatus, at_us: int) -> RunRow:
        run = self._run(run_id)
        _check_move(run, status)
        moved = self.runs[run.id] = replace(run, status=status, changed_us=at_us)
        return moved

    def _end_run(self, event: RunFinished | RunUnknown, status: RunStatus, at_us: int) -> RunRow:
        run = self._move(event.run, status, at_us)
        del self.runs[run.id]
        return run

    def _end_approval(
        self, approval: ToldApproval, state: ApprovalState, at_us: int, surface: str | None = None
    ) -> ToldApproval:
        row = approval.row
        del self.approvals[row.id]
        approval.row = replace(
            row,
            state=state,
            decided_us=at_us if row.decided_us is None else row.decided_us,
            surface=row.surface if surface is None else surface,
        )
        return approval

    def _run(self, run_id: str | None) -> RunRow:
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
        if approval.row.state is not ApprovalState.PENDING:
            raise OutOfOrderError(f"{approval.row.id} was already decided")
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


def _check_move(run: RunRow, status: RunStatus) -> None:
    """Raise OutOfOrderError unless MOVES, which the ledger's writers follow too, has a change from the run's status to
    `status`.
    """
    if not isinstance(status, str) or not any(
        run.status in expected and status in reached for expected, reached in MOVES.values()
    ):
        raise OutOfOrderError(f"{run.id} goes from {run.status} to {status}")
