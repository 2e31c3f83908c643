"""What the states must be, told by the events alone: runs, approvals and what belongs to them, keys, uses of grants, row for row.

Pure. For verify.py, which goes through the chain and compares: states lie beside it, and decide what runs next. It holds what is
open, and no history: what is over is given back at once, to be compared and forgotten.

Rules
- Only events that are known to change a state change one here; a newer kind of event is passed over.
- The chain is trusted, its words are not: what no daemon would have written in that order is `OutOfOrderError`. A run begins
  only where it was let through, or approved and that used; a decision is about what was asked or shown; uses count up.

Source: docs/reference/audit-events.md; the verbs of log.py, each of which writes its events and states in one transaction.
Not here: outcomes and frozen plans, of which the events have digests (verify.py), signatures (signatures.py).
"""

from __future__ import annotations

import heapq
from typing import Any, Final

import msgspec

from aileron.audit.moves import MOVES
from aileron.ledger import IDEMPOTENCY_KEPT_US, ApprovalState
from aileron.model.decision import digest_with_preview
from aileron.model.outcome import RunStatus

__all__ = ["OutOfOrderError", "Replay", "ToldApproval", "ToldCandidate", "ToldGrant", "ToldRound", "ToldRun"]


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


class ToldCandidate(msgspec.Struct, kw_only=True):
    """One more digest that could be decided, as the events tell it."""

    digest: Any
    plan_digest: Any
    preview: Any
    made_us: int


class ToldRound(msgspec.Struct, kw_only=True):
    """One question asked back, as the events tell it."""

    number: int
    question: Any
    answer: Any = None


class ToldGrant(msgspec.Struct, kw_only=True):
    """The uses of a grant, as the events tell them."""

    used: int = 0
    revoked_us: int | None = None


class ToldApproval(msgspec.Struct, kw_only=True):
    """An approval as the events tell it: the columns of its row, but for its subject, and what belongs to it."""

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
    name: Any = None
    asked: Any = None
    preview: Any = None
    key_id: Any = None
    signed_at: Any = None
    signature: Any = None
    head: Any = None
    head_signature: Any = None
    candidates: list[ToldCandidate] = []
    conversation: list[ToldRound] = []

    def candidate(self, digest: Any) -> ToldCandidate | None:
        """What could be decided under this digest while it waits, the question itself among it."""
        if digest == self.digest:
            return ToldCandidate(digest=digest, plan_digest=digest, preview=None, made_us=self.created_us)
        return next((one for one in self.candidates if one.digest == digest), None)


class Replay:
    """Give it every event in order; ask it in the end for what must still be open."""

    def __init__(self) -> None:
        self.runs: Final[dict[str, ToldRun]] = {}
        """Those that are not over."""
        self.approvals: Final[dict[str, ToldApproval]] = {}
        """Those that are not over."""
        self.claims: Final[dict[str, tuple[int, str]]] = {}
        """Keys that are kept, by the run that has each: when it was taken, and the digest of its row."""
        self.grants: Final[dict[str, ToldGrant]] = {}
        """All that were used or revoked: each was signed for by a person, so they are few."""
        self._by_age: Final[list[tuple[int, str]]] = []
        self.counts: Final = dict.fromkeys(("runs", "approvals", "candidates", "conversation"), 0)
        """How many rows there are of each."""

    def follow(self, facts: dict[str, Any]) -> list[ToldRun | ToldApproval]:
        """Take the next event; returns what is over with it, as its row must be for good."""
        match facts["type"]:
            case "run.requested":
                self._begin_run(facts)
            case "approval.requested":
                self._begin_approval(facts)
            case "run.started":
                self._start(facts)
            case "approval.edited" | "approval.previewed" | "approval.asked" | "approval.answered":
                self._add(self._waiting(facts), facts)
            case "approval.decided":
                return self._decide(facts)
            case "approval.redeemed":
                return self._redeem(facts)
            case "grant.used":
                self._use_grant(facts)
            case "grant.revoked":
                grant = self.grants.setdefault(str(facts.get("grant")), ToldGrant())
                grant.revoked_us = facts["at_us"] if grant.revoked_us is None else grant.revoked_us
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
        self.counts["runs"] += 1
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
        self.counts["approvals"] += 1
        self.approvals[approval_id] = ToldApproval(
            id=approval_id,
            kind=facts.get("kind"),
            run=facts.get("run"),
            digest=facts.get("digest"),
            state=ApprovalState.PENDING,
            created_us=facts["at_us"],
            expires_us=facts.get("expires_at_us"),
            name=facts.get("name"),
        )
        if facts.get("run") is None:
            return
        run = self._run(facts)
        if (run.status, run.changed_us, run.approval) != (RunStatus.APPROVED, run.created_us, None):
            raise OutOfOrderError(f"{run.id} is under way, and asked about")
        run.status, run.changed_us, run.approval = RunStatus.PENDING_APPROVAL, facts["at_us"], approval_id
        if "name" not in facts:  # as rows were written before questions had names: the ledger gave them this one
            self.approvals[approval_id].name = run.action

    def _add(self, approval: ToldApproval, facts: dict[str, Any]) -> None:
        """What belongs to a question that waits."""
        digest, text, rounds = facts.get("digest"), facts.get("text"), approval.conversation
        match facts["type"]:
            case "approval.edited":
                if approval.candidate(digest) is not None:
                    raise OutOfOrderError(f"{approval.id} is edited to what it could be already")
                self._add_candidate(
                    approval, ToldCandidate(digest=digest, plan_digest=digest, preview=None, made_us=0), facts
                )
            case "approval.previewed":
                self._preview(approval, facts)
            case "approval.asked":
                if facts.get("number") != len(rounds) + 1 or (rounds and rounds[-1].answer is None):
                    raise OutOfOrderError(f"{approval.id} is asked about before the last answer")
                rounds.append(ToldRound(number=len(rounds) + 1, question=text))
                self.counts["conversation"] += 1
            case "approval.answered":
                if facts.get("number") != len(rounds) or not rounds or rounds[-1].answer is not None:
                    raise OutOfOrderError(f"{approval.id} is answered without a question")
                rounds[-1].answer = text

    def _preview(self, approval: ToldApproval, facts: dict[str, Any]) -> None:
        digest, plan_digest, preview = facts.get("digest"), facts.get("plan_digest"), facts.get("preview")
        known = approval.candidate(plan_digest)
        if known is None or known.preview is not None:
            raise OutOfOrderError(f"{approval.id} is previewed with a plan that is none of its own")
        if digest is None:
            return
        if digest != digest_with_preview(str(plan_digest), str(preview)):
            raise OutOfOrderError(f"{approval.id} is previewed under a digest that is not of plan and preview")
        if approval.candidate(digest) is None:
            shown = ToldCandidate(digest=digest, plan_digest=plan_digest, preview=preview, made_us=0)
            self._add_candidate(approval, shown, facts)

    def _add_candidate(self, approval: ToldApproval, candidate: ToldCandidate, facts: dict[str, Any]) -> None:
        candidate.made_us = facts["at_us"]
        approval.candidates.append(candidate)
        self.counts["candidates"] += 1

    def _decide(self, facts: dict[str, Any]) -> list[ToldRun | ToldApproval]:
        approval, digest = self._waiting(facts), facts.get("digest")
        candidate = approval.candidate(digest)
        if candidate is None or candidate.preview != facts.get("preview"):
            raise OutOfOrderError(f"{approval.id} is decided about something that nobody was asked about")
        if digest != approval.digest:
            approval.asked, approval.digest = approval.digest, digest
        approval.preview = candidate.preview
        if facts.get("kind") != approval.kind:  # by which it is judged whose signature counts
            raise OutOfOrderError(f"{approval.id} is decided as if it were of another kind")
        for name in _SIGNED:
            setattr(approval, name, facts.get(name))
        approval.expires_us = facts.get("until_us", approval.expires_us)
        approval.reason = facts.get("reason")
        if facts.get("decision") != "approve":
            return [self._end_approval(facts, ApprovalState.DENIED)]
        approval.surface = facts.get("surface")
        approval.state = ApprovalState.APPROVED
        approval.decided_us = facts["at_us"]
        if facts.get("run") is not None:
            self._move(facts, RunStatus.APPROVED)
        return []

    def _redeem(self, facts: dict[str, Any]) -> list[ToldRun | ToldApproval]:
        approval = self._approval(facts)
        if approval.state is not ApprovalState.APPROVED or facts.get("digest") != approval.digest:
            raise OutOfOrderError(f"{approval.id} is used without a decision about that")
        if approval.run is not None:
            self._move(facts, RunStatus.RUNNING)
        return [self._end_approval(facts, ApprovalState.REDEEMED)]

    def _start(self, facts: dict[str, Any]) -> None:
        run = self._run(facts)
        if run.approval is not None and run.status is not RunStatus.RUNNING:
            raise OutOfOrderError(f"{run.id} begins without the decision it waits for")
        self._move(facts, RunStatus.RUNNING).connector = facts.get("connector")

    def _use_grant(self, facts: dict[str, Any]) -> None:
        self._run(facts)
        grant = self.grants.setdefault(str(facts.get("grant")), ToldGrant())
        use, of = facts.get("use"), facts.get("of")
        if use != grant.used + 1 or not isinstance(of, int) or use > of or grant.revoked_us is not None:
            raise OutOfOrderError(f"grant {facts.get('grant')!r:.100} is used once more than it can be")
        grant.used = use

    def _move(self, facts: dict[str, Any], status: RunStatus) -> ToldRun:
        run = self._run(facts)
        _check_move(run, status)
        run.status = status
        run.changed_us = facts["at_us"]
        return run

    def _end_run(self, facts: dict[str, Any], status: Any) -> ToldRun:
        run = self._run(facts)
        _check_move(run, status)
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

    def _waiting(self, facts: dict[str, Any]) -> ToldApproval:
        approval = self._approval(facts)
        if approval.state is not ApprovalState.PENDING:
            raise OutOfOrderError(f"{approval.id} was decided before")
        return approval


_SIGNED: Final = ("key_id", "signed_at", "signature", "head", "head_signature")


def _check_move(run: ToldRun, status: Any) -> None:
    """As the table has it, which the ledger's verbs follow."""
    if not isinstance(status, str) or not any(
        run.status in expected and status in reached for expected, reached in MOVES.values()
    ):
        raise OutOfOrderError(f"{run.id} goes from {run.status} to {status}")
