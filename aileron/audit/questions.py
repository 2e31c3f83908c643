"""Questions to a person: gated runs and consents, the digests that can be decided, and the conversation before the decision.

Runs in the daemon. These methods are part of the audit log's verbs; the class in log.py inherits them. Trusts its
callers to check a signature before they pass a decision, and the ledger to let one of two racing callers win.

Rules
- A decision names a candidate of its question: one of the digests that it can be about. These are the question's own
  digest and, for a run, the digest of each edited plan, and of each plan together with a preview that was shown.
  Candidates are added while the question waits, up to MAX_CANDIDATES, and never removed.
- A decision is used once, before it expires. Once there is a decision, the row's `digest` is the candidate that it names.
- Once the ledger names an approver, every decision needs a signature by the approver's key. The caller verifies the
  signature; this module only closes the race between setting an approver and deciding.
- Runs and consents have separate limits for open questions, so that neither can block the other.
- Each party has a share of the runs that can wait (model/shares.py). The party of a run is recorded with its request,
  so that a restarted daemon counts in the same way.
- A preview's contents are never stored, only its digest.

>>> async def decided(audit, approval_id, digest, signed):                                    # doctest: +SKIP
...     question = await audit.check_decidable(approval_id)        # what the signature must be about
...     ...                                                        # checked
...     return await audit.decide(approval_id, "approve", digest=digest, surface="operator", signed=signed)

Source: docs/reference/audit-events.md, docs/reference/signed-decisions.md. Not here: SQL (ledger/), who signs
(approver_key/), the stored form of subjects (frozen.py), reading for surfaces (query.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

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
    ApproverSet,
    Event,
    HostAsked,
    RunRequested,
    facts_of,
)
from aileron.audit.frozen import Frozen, Question, decision_of, freeze, subject_of, thaw
from aileron.audit.moves import MAX_MESSAGE_CHARACTERS, MAX_NAME_CHARACTERS, bounded, end_unstarted, move, new_id
from aileron.audit.passkeys_on_record import passkeys_on_record
from aileron.audit.watch import Watch
from aileron.ledger import (
    ACTION_KIND,
    ApprovalRow,
    ApprovalState,
    CandidateRow,
    EventFilter,
    Head,
    Ledger,
    Snapshot,
    Transaction,
)
from aileron.model.consent import ConsentKind, HostConsent, Subject, subject_kind
from aileron.model.decision import Signature, digest_with_preview, parse_moment
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.outcome import Failed, RunStatus
from aileron.model.passkey import is_passkey
from aileron.model.plan import Plan
from aileron.model.preview import SeenEffects
from aileron.model.shares import NoPlace, Places, no_place, party_of

__all__ = [
    "MAX_CANDIDATES",
    "MAX_EDITS",
    "MAX_OPEN_CONSENTS",
    "MAX_OPEN_RUNS",
    "MAX_ROUNDS",
    "MAX_SUBJECT_BYTES",
    "Questions",
    "Settlement",
    "cancelled",
    "candidates_of",
    "expire_due",
    "insert_question",
    "plan_digest_of",
]

MAX_OPEN_RUNS: Final = 800
"""Maximum number of runs that can wait for a person; nobody answers a longer list, and an agent must not be able to fill one."""
MAX_OPEN_CONSENTS: Final = 200
"""Maximum number of consents that can wait, in addition to runs: an agent's runs must not block a person's own changes."""
_PLACES: Final = Places(MAX_OPEN_RUNS)
MAX_CANDIDATES: Final = 16
"""Maximum number of digests that a decision about one question can name: some edits, each with a preview or two."""
_MAX_PREVIEWED: Final = 1000
"""Maximum number of `approval.previewed` events that are searched for the preview of a question. The search covers the
newest events, of any question, since this question was asked.
"""
MAX_EDITS: Final = 7
"""Maximum number of changed plans that a person can make for one question.

Every caller on the operator's socket can make one, so half of the candidates stay reserved for previews.
"""
MAX_ROUNDS: Final = 8
"""Maximum number of questions that a person can send to the agent about one run. After that they deny the run, and say why."""
MAX_SUBJECT_BYTES: Final = 2 << 20
"""2 MiB: maximum size of a consent's subject as JSON. An action file has at most 256 KiB, and escapes can multiply that."""
_DECIDE_SOME: Final = "questions are already waiting: decide some first, or let them expire (`aileron approval list`)"
_USE_US: Final = 60 * 1_000_000
"""Microseconds from the end of a hold until the decision expires: a minute to begin the run."""
_OPEN_STATES: Final = (ApprovalState.PENDING, ApprovalState.APPROVED)


class Settlement(NamedTuple):
    """The result of an attempt to use or decide an approval: its new state, and the error for the caller, if any.

    `refusal` is returned and not raised, because an exception would undo the written state.
    """

    row: ApprovalRow
    refusal: AileronError | None = None


class Questions:
    """Methods to record and read questions to a person in a ledger. Audit (log.py) inherits them and adds all others."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.watch = Watch()
        self._parties: dict[str, str] = {}
        """Party (whose share is counted) of each run that waits for a person, as read from the record. Only the
        writer's thread uses this.
        """

    # Asking

    async def ask(self, name: str, subject: Subject, *, expires_at: float) -> tuple[ApprovalRow, bool]:
        """Record a question to a person: whether they consent to `subject`, which is called `name`. It expires at
        `expires_at` (seconds since the epoch). Return the question, and True if it is new, or False if the same
        question was already open.

        An open question about exactly this subject is returned instead of a second one. Raises AileronError(busy) if too many
        consents wait, (invalid_request) if the subject has no canonical form, or has more than MAX_SUBJECT_BYTES.
        """
        kind = subject_kind(subject)
        stored, digest = _frozen_subject(subject)
        expires_us = int(expires_at * 1_000_000)

        def write(tx: Transaction) -> tuple[ApprovalRow, bool]:
            found = tx.open_consent(kind.value, name, digest)
            if found is not None and found.expires_us > tx.now_us:
                return found, False
            if found is not None:
                _expire(tx, found)
            _check_room_for_consent(tx)
            row = ApprovalRow(
                id=new_id("act", tx.now_us),
                kind=kind.value,
                name=name,
                run=None,
                digest=digest,
                state=ApprovalState.PENDING,
                created_us=tx.now_us,
                expires_us=expires_us,
            )
            insert_question(tx, row, stored)
            if isinstance(subject, HostConsent):
                tx.append(facts_of(_host_asked(subject, row.id)))
            return row, True

        row, is_new = await self._ledger.commit(write)
        if is_new:
            self.watch.asked()
        return row, is_new

    async def consent(self, approval_id: str) -> tuple[ApprovalRow, Subject]:
        """Return the question about a consent, and its subject as it is shown. The digest covers the stored bytes, not
        the values parsed from them.

        Raises AileronError (not_found, hash_mismatch). Raises msgspec.ValidationError for a subject that only another version
        of Aileron knows.
        """
        row, subject = await self._ledger.read(lambda look: (look.approval(approval_id), look.subject(approval_id)))
        if row is None or subject is None or row.kind == ACTION_KIND:
            raise _no_approval(approval_id)
        return row, msgspec.convert(subject_of(subject, row.digest, row.id), Subject)

    async def open_consents(self) -> list[tuple[ApprovalRow, Subject]]:
        """Return the questions about consents that wait for a person, or that a person approved and that were not
        executed yet, with their subjects; the first to expire first. Omits a question that has expired, whose subject
        was altered, or that only another version of Aileron knows.
        """

        def look(snapshot: Snapshot) -> list[tuple[ApprovalRow, bytes | None]]:
            rows = [row for row in snapshot.open_approvals() if row.kind != ACTION_KIND]
            return [(row, snapshot.subject(row.id)) for row in rows]

        now_us = self._ledger.now_us()
        found: list[tuple[ApprovalRow, Subject]] = []
        for row, stored in await self._ledger.read(look):
            with contextlib.suppress(AileronError, msgspec.ValidationError):
                if stored is not None and row.expires_us > now_us:
                    found.append((row, msgspec.convert(subject_of(stored, row.digest, row.id), Subject)))
        return found

    async def approved_consents(self) -> list[str]:
        """Return the approval ids of consents that a person approved and that were not executed yet, the first to
        expire first.
        """
        rows = await self._ledger.read(lambda look: look.open_approvals())
        return [row.id for row in rows if row.state is ApprovalState.APPROVED and row.kind != ACTION_KIND]

    async def waiting(self, kind: ConsentKind) -> frozenset[str]:
        """Return the approval ids of the questions about consents of this kind that wait for a person."""
        now_us = self._ledger.now_us()
        rows = await self._ledger.read(lambda look: look.open_approvals())
        return frozenset(
            row.id
            for row in rows
            if row.kind == kind.value and row.state is ApprovalState.PENDING and row.expires_us > now_us
        )

    async def state_of(self, approval_id: str) -> tuple[ApprovalState, str | None]:
        """Return the state of a question to a person, and the reason that they gave with their decision, or None.

        Raises AileronError(not_found) if there is none.
        """
        row = await self._ledger.read(lambda look: look.approval(approval_id))
        if row is None:
            raise _no_approval(approval_id)
        is_late = row.state is ApprovalState.PENDING and row.expires_us <= self._ledger.now_us()
        return (ApprovalState.EXPIRED if is_late else row.state), row.reason

    async def frozen(self, approval_id: str, plan_digest: str | None = None) -> Frozen:
        """Return the stored plan of the run that waits for this question: the edited plan with the digest `plan_digest`
        if it is given, else the plan that was decided, else the requested one.

        Raises AileronError: not_found; invalid_request if `plan_digest` is not a plan of the question; hash_mismatch if
        the stored plan is not the plan that the approval is bound to, or was made by a version of Aileron with another
        form of plans.
        """

        def look(snapshot: Snapshot) -> tuple[ApprovalRow, bytes | None, str, SeenEffects | None]:
            row = snapshot.approval(approval_id)
            if row is None or row.run is None or row.kind != ACTION_KIND:
                raise _no_approval(approval_id)
            digest = plan_digest_of(snapshot, row) if plan_digest is None else plan_digest
            stored = snapshot.plan_of(row, digest)
            if stored is None and plan_digest is not None:
                raise _invalid(f"{_shown(plan_digest)} is not a plan of {row.id}: load it again")
            return row, stored, digest, _maybe_effects(snapshot, row)

        row, subject, digest, effects = await self._ledger.read(look)
        return Frozen(
            run_id=row.run or "",
            plan=thaw(subject or b"", digest, row.id),
            asked_at=_asked_at(row),
            digest=row.digest,
            asked_digest=row.asked_digest,
            decision=decision_of(row),
            effects=effects,
        )

    async def party(self, approval_id: str) -> str:
        """Return the party of this question's run, which counts against that party's share. Raises
        AileronError(not_found).
        """

        def look(snapshot: Snapshot) -> str:
            row = _approval(snapshot, approval_id)
            if row.run is None:
                raise _no_approval(approval_id)
            return _party_on_record(snapshot, row.run)

        return await self._ledger.read(look)

    # Candidates

    async def add_edit(self, approval_id: str, plan: Plan) -> None:
        """Record that a person can approve `plan`, which differs in its arguments, in place of the requested plan.

        Writes nothing if that plan can already be decided. Raises AileronError as `check_decidable`; busy beyond MAX_EDITS;
        invalid_request if the question is not about a run.
        """
        stored, digest = freeze(plan)

        def write(tx: Transaction) -> Settlement:
            row, late = _waiting(tx, approval_id)
            if late is not None:
                return Settlement(row, late)
            if row.run is None:
                raise _invalid(f"{row.id} is not a run and has no arguments to edit")
            if _add_candidate(tx, row, digest, digest, None, stored):
                tx.append(facts_of(ApprovalEdited(approval=row.id, digest=digest, args=plan.args, run=row.run)))
            return Settlement(row)

        await self._settle(write)

    async def add_preview(
        self,
        approval_id: str,
        plan_digest: str,
        preview_digest: str | None,
        *,
        run_id: str,
        failure_class: FailureClass | None = None,
        effects: SeenEffects | None = None,
    ) -> str | None:
        """Record that a preview of one of the question's plans was read under the audit id `run_id`; return the digest
        of plan and preview together, which a decision can name.

        Without a `preview_digest`, record that the preview failed with `failure_class`, and return None. Raises AileronError as
        `check_decidable`; busy beyond MAX_CANDIDATES; invalid_request for a plan that is not one of the question's candidates.
        """
        both = None if preview_digest is None else digest_with_preview(plan_digest, preview_digest)

        def write(tx: Transaction) -> Settlement:
            row, late = _waiting(tx, approval_id)
            if late is not None:
                return Settlement(row, late)
            if not any(
                candidate.digest == candidate.plan_digest == plan_digest for candidate in candidates_of(tx, row)
            ):
                raise _invalid(f"{_shown(plan_digest)} is not a plan of {row.id}: load it again")
            if both is not None:
                _add_candidate(tx, row, both, plan_digest, preview_digest, None)
            previewed = ApprovalPreviewed(
                approval=row.id,
                plan_digest=plan_digest,
                run=run_id,
                digest=both,
                preview=preview_digest,
                effects=None if effects is None else effects.effects,
                fields=None if effects is None else effects.fields,
                failure_class=failure_class,
            )
            tx.append(facts_of(previewed))
            return Settlement(row)

        await self._settle(write)
        return both

    async def preview_failure(self, approval_id: str, plan_digest: str) -> FailureClass | None:
        """Return the failure class of the newest preview of this plan; None if that preview succeeded, or no preview was read.

        Raises AileronError(not_found) if the question does not exist.
        """

        def look(snapshot: Snapshot) -> FailureClass | None:
            since = EventFilter(since_us=_approval(snapshot, approval_id).created_us, limit=_MAX_PREVIEWED)
            read = (found.event for found in snapshot.events_of(ApprovalPreviewed, since))
            newest = next(
                (event for event in read if (event.approval, event.plan_digest) == (approval_id, plan_digest)), None
            )
            return None if newest is None else newest.failure_class

        return await self._ledger.read(look)

    async def check_decidable(self, approval_id: str) -> Question:
        """Return a question that waits for a person, with the digests that a decision about it can name, so that a
        decision can be checked.

        Writes nothing. Raises AileronError: not_found; approval_expired; already_decided with `details.status`.
        """
        now_us = self._ledger.now_us()

        def look(snapshot: Snapshot) -> Question:
            row = _approval(snapshot, approval_id)
            if row.state is ApprovalState.EXPIRED or (row.state in _OPEN_STATES and row.expires_us <= now_us):
                raise _expired(row.id)
            if row.state is not ApprovalState.PENDING:
                raise snapshot.already(row)
            return Question(row, candidates_of(snapshot, row))

        return await self._ledger.read(look)

    # The conversation before a decision

    async def put_question(self, approval_id: str, text: str) -> None:
        """Record the person's question to the agent, which receives it with its next poll.

        Raises AileronError as `check_decidable`; busy after MAX_ROUNDS; invalid_request if a question already waits, no agent
        can answer, or the text is empty or longer than MAX_MESSAGE_CHARACTERS.
        """
        text = _said("a question", text)

        def write(tx: Transaction) -> Settlement:
            row, late = _waiting(tx, approval_id)
            if late is not None:
                return Settlement(row, late)
            if row.run is None:
                raise _invalid(f"{row.id} is not a run, so no agent can answer")
            rounds = tx.conversation(row.id)
            if rounds and rounds[-1].answer is None:
                raise _invalid(f"{row.id} is already waiting for an answer")
            if len(rounds) >= MAX_ROUNDS:
                raise AileronError(
                    FailureClass.BUSY,
                    f"{MAX_ROUNDS} questions about {row.id} have been asked, which is the limit: decide it",
                )
            number = len(rounds) + 1
            tx.insert_round(row.id, number, text)
            tx.append(facts_of(ApprovalAsked(approval=row.id, number=number, text=text, run=row.run)))
            return Settlement(row)

        await self._settle(write)

    async def put_answer(self, approval_id: str, text: str, session: str | None) -> None:
        """Record the agent's answer to the person's question; it is hostile text.

        The caller makes sure that `session` is the one that requested the run.

        Raises AileronError as `put_question`; invalid_request if no question waits.
        """
        text = _said("an answer", text)

        def write(tx: Transaction) -> Settlement:
            row, late = _waiting(tx, approval_id)
            if late is not None:
                return Settlement(row, late)
            rounds = tx.conversation(row.id)
            if not rounds or rounds[-1].answer is not None:
                raise _invalid(f"no question about {row.id} is waiting for an answer")
            number = rounds[-1].number
            tx.answer_round(row.id, number, text)
            tx.append(
                facts_of(ApprovalAnswered(approval=row.id, number=number, text=text, run=row.run, session=session))
            )
            return Settlement(row)

        await self._settle(write)

    # Decisions and their use

    async def decide(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"],
        *,
        digest: str,
        surface: str,
        reason: str | None = None,
        signed: Signature | None = None,
        hold_s: float = 0.0,
    ) -> ApprovalRow:
        """Record a person's decision about the plan or consent with this `digest`, at most once per question; return
        the updated approval.

        `signed` is stored unchanged: the caller has checked it against the candidates of `check_decidable`. With `hold_s`, an
        approval can be used for a minute after the hold. Raises AileronError: not_found; approval_expired; already_decided with
        `details.status`; invalid_request if `digest` is not a candidate of the question, or a signed `reason` is too long to
        store; unauthorized without a signature of the approver that the ledger names; hash_mismatch if a signed head is not a
        row of this ledger.
        """
        kept = None if reason is None else bounded(reason, MAX_MESSAGE_CHARACTERS)
        if signed is not None and kept != reason:
            raise _invalid(f"a reason has at most {MAX_MESSAGE_CHARACTERS} characters")
        state = ApprovalState.APPROVED if decision == "approve" else ApprovalState.DENIED

        def write(tx: Transaction) -> Settlement:
            row = _approval(tx, approval_id)
            if row.state is ApprovalState.PENDING and row.expires_us <= tx.now_us:
                return Settlement(row, _expire(tx, row))
            if row.state is ApprovalState.EXPIRED:
                raise _expired(row.id)
            candidate = next((option for option in candidates_of(tx, row) if option.digest == digest), None)
            if candidate is None:
                raise _invalid(
                    f"the decision is about {_shown(digest)}, but {row.id} is about {row.digest}: load it again"
                )
            _check_signer(tx, signed)
            expires_us = _held_until(tx, row, hold_s) if decision == "approve" else row.expires_us
            moved_us = None if expires_us == row.expires_us else expires_us
            row = tx.decide_approval(
                row.id,
                state,
                digest=digest,
                preview=candidate.preview,
                reason=kept,
                surface=surface,
                signed=signed,
                expires_us=expires_us,
            )
            tx.append(facts_of(_decided(row, decision, moved_us)))
            if row.run is not None and decision == "approve":
                move(tx, "approve", row.run, RunStatus.APPROVED)
            elif row.run is not None:
                end_unstarted(tx, "deny", row.run, RunStatus.DENIED, _denied(row))
            return Settlement(row)

        return await self._settle(write)

    async def redeem(self, approval_id: str, digest: str, now: float | None = None) -> None:
        """Use the approval of the plan or consent with this `digest`, which is possible only once. The run that waited
        for it has the status `running` when this returns.

        `now` is in seconds since the epoch.

        `digest` is the decided digest. For a plan that was decided together with a preview, the plan's own digest is accepted
        too. Raises AileronError: not_found, approval_denied, approval_expired, cancelled, hash_mismatch, already_decided (not
        decided yet, or used before).
        """

        def write(tx: Transaction) -> Settlement:
            row, late = _usable(tx, approval_id, tx.now_us if now is None else int(now * 1_000_000))
            if late is not None:
                return Settlement(row, late)
            if digest not in (row.digest, plan_digest_of(tx, row)):
                raise AileronError(FailureClass.HASH_MISMATCH, f"{row.id} approves other bytes than these")
            _use(tx, row)
            if row.run is not None:
                move(tx, "redeem", row.run, RunStatus.RUNNING)
            return Settlement(row)

        await self._settle(write)

    async def give_up(self, approval_id: str, failure: Failure) -> Failed:
        """Record that an approved run or change will not begin, and why. The decision is used up. Return the run's
        outcome.

        Raises AileronError as `redeem`: only an approved question that was not used yet can be given up.
        """

        def write(tx: Transaction) -> Settlement:
            row, late = _usable(tx, approval_id, tx.now_us)
            if late is not None:
                return Settlement(row, late)
            _use(tx, row)
            if row.run is not None:
                end_unstarted(tx, "fail", row.run, RunStatus.FAILED, failure)
            return Settlement(row)

        row = await self._settle(write)
        return Failed(run_id=row.run or row.id, failure=failure)

    async def cancel(self, approval_id: str, *, surface: str) -> ApprovalRow:
        """Record that the question was withdrawn, so that nothing will run. Return the updated approval.

        Raises AileronError: not_found, approval_expired, already_decided with `details.status`.
        """

        def write(tx: Transaction) -> Settlement:
            row = _approval(tx, approval_id)
            if row.state is ApprovalState.EXPIRED:
                raise _expired(row.id)
            if row.state in _OPEN_STATES and row.expires_us <= tx.now_us:
                return Settlement(row, _expire(tx, row))
            row = tx.move_approval(approval_id, _OPEN_STATES, ApprovalState.CANCELLED, surface=surface)
            tx.append(facts_of(ApprovalCancelled(approval=row.id, surface=surface, run=row.run)))
            if row.run is not None:
                end_unstarted(tx, "cancel", row.run, RunStatus.CANCELLED, cancelled(row.id))
            return Settlement(row)

        return await self._settle(write)

    async def expire_due(self) -> list[str]:
        """Record as expired every question whose time is over, and return their approval ids."""
        expired = await self._ledger.commit(expire_due)
        for row in expired:
            self.watch.changed(row.run or row.id)
        return [row.id for row in expired]

    def _take_place(self, tx: Transaction, run_id: str, party: str) -> None:
        """Count one more run of `party` that waits for a person. Raises AileronError(busy) if the party has too many.

        Runs in the writer's thread. The recorded request of a waiting run is read at most once. It is never read for a
        run that this daemon recorded, because that request may not be on disk yet.
        """
        waiting = {run: self._parties.get(run) or _party_on_record(tx, run) for run in tx.open_runs()}
        held = Counter(waiting.values())
        why_not = _PLACES.why_not(party, held)
        if why_not is not None:
            raise _no_place(why_not, held[party])
        self._parties = {**waiting, run_id: party}

    async def _settle(self, write: Callable[[Transaction], Settlement]) -> ApprovalRow:
        settled = await self._ledger.commit(write)
        self.watch.changed(settled.row.run or settled.row.id)
        if settled.refusal is not None:
            raise settled.refusal
        return settled.row

    async def _append(self, event: Event) -> int:
        return await self._ledger.commit(lambda tx: tx.append(facts_of(event)))


# Reads, inside a transaction or from a snapshot


def candidates_of(states: Transaction | Snapshot, row: ApprovalRow) -> tuple[CandidateRow, ...]:
    """Return every digest that a decision about this question can name, with that of the question itself first."""
    asked = row.asked_digest
    first = CandidateRow(digest=asked, plan_digest=asked, preview=None, made_us=row.created_us)
    return (first, *states.candidates(row.id))


def plan_digest_of(states: Transaction | Snapshot, row: ApprovalRow) -> str:
    """Return the digest of a question's plan. The question's own digest covers the plan alone, or the plan with a preview.

    Raises AileronError(hash_mismatch) if no candidate of the question has the question's digest.
    """
    for candidate in candidates_of(states, row):
        if candidate.digest == row.digest:
            return candidate.plan_digest
    raise AileronError(
        FailureClass.HASH_MISMATCH,
        f"{row.id} has a decision about something that was never shown: run `aileron audit verify`",
    )


def _approval(states: Transaction | Snapshot, approval_id: str) -> ApprovalRow:
    row = states.approval(approval_id)
    if row is None:
        raise _no_approval(approval_id)
    return row


# Parts of transactions. Each runs in the writer's thread.


def insert_question(tx: Transaction, row: ApprovalRow, subject: bytes) -> None:
    """Store a pending question to a person with its subject, and record that it was asked."""
    tx.insert_approval(row, subject)
    requested = ApprovalRequested(
        approval=row.id, kind=row.kind, digest=row.digest, expires_at_us=row.expires_us, name=row.name, run=row.run
    )
    tx.append(facts_of(requested))


def _host_asked(subject: HostConsent, approval_id: str) -> HostAsked:
    return HostAsked(session=subject.session, host=subject.host, port=subject.port, approval=approval_id)


def _check_room_for_consent(tx: Transaction) -> None:
    if tx.count_open_approvals(consents=True) >= MAX_OPEN_CONSENTS:
        raise AileronError(
            FailureClass.BUSY,
            f"{MAX_OPEN_CONSENTS} {_DECIDE_SOME}",
        )


def _party_on_record(states: Transaction | Snapshot, run_id: str) -> str:
    """Return the party of a run, which counts against that party's share. If none is recorded, the party is the run's
    session, or the person.
    """
    found = states.first_of(RunRequested, run_id)
    row = states.run(run_id)
    if row is None:
        raise AileronError(FailureClass.NOT_FOUND, f"no run {_shown(run_id)!r}")
    said = None if found is None else found.event.party
    return party_of(row.scope, row.session, said if isinstance(said, str) else None)


def expire_due(tx: Transaction) -> list[ApprovalRow]:
    """Record as expired every question whose time is over, and return their rows as they were before."""
    due = tx.open_approvals(due_us=tx.now_us)
    for row in due:
        _expire(tx, row)
    return due


def _expire(tx: Transaction, row: ApprovalRow) -> AileronError:
    """Record that an open approval has expired, and return the error for the caller that wanted to use it.

    The error is returned and not raised, because an error raised in a transaction undoes it, and the expiry must stay.
    """
    tx.move_approval(row.id, _OPEN_STATES, ApprovalState.EXPIRED)
    was: Literal["pending_approval", "approved"] = (
        "pending_approval" if row.state is ApprovalState.PENDING else "approved"
    )
    tx.append(facts_of(ApprovalExpired(approval=row.id, was=was, run=row.run)))
    error = _expired(row.id)
    if row.run is not None:
        end_unstarted(tx, "expire", row.run, RunStatus.EXPIRED, error.failure)
    return error


def _waiting(tx: Transaction, approval_id: str) -> tuple[ApprovalRow, AileronError | None]:
    """Return a question that waits for a person, and None. If the question has expired, record that, and return the
    question and the error to raise. Raise AileronError if the question is no longer open.
    """
    row = _approval(tx, approval_id)
    if row.state in _OPEN_STATES and row.expires_us <= tx.now_us:
        return row, _expire(tx, row)
    if row.state is ApprovalState.EXPIRED:
        raise _expired(row.id)
    if row.state is not ApprovalState.PENDING:
        raise tx.already(row)
    return row, None


def _usable(tx: Transaction, approval_id: str, now_us: int) -> tuple[ApprovalRow, AileronError | None]:
    """Return an approval that can be used, and None. If the approval has expired, record that, and return the approval
    and the error to raise.

    Raises AileronError for every other state, except `pending` and `redeemed`, which `_use` refuses.
    """
    row = _approval(tx, approval_id)
    match row.state:
        case ApprovalState.PENDING | ApprovalState.APPROVED if row.expires_us <= now_us:
            return row, _expire(tx, row)
        case ApprovalState.DENIED:
            raise AileronError.of(_denied(row))
        case ApprovalState.EXPIRED:
            raise _expired(row.id)
        case ApprovalState.CANCELLED:
            raise AileronError.of(cancelled(row.id))
    return row, None


def _use(tx: Transaction, row: ApprovalRow) -> None:
    tx.move_approval(row.id, (ApprovalState.APPROVED,), ApprovalState.REDEEMED)
    tx.append(facts_of(ApprovalRedeemed(approval=row.id, digest=row.digest, run=row.run)))


def _add_candidate(
    tx: Transaction, row: ApprovalRow, digest: str, plan_digest: str, preview: str | None, subject: bytes | None
) -> bool:
    """Add a candidate, a digest that a decision of the question can name; return False if it was added before."""
    known = candidates_of(tx, row)
    if any(candidate.digest == digest for candidate in known):
        return False
    edits = [candidate for candidate in known[1:] if candidate.preview is None]
    if len(known) >= MAX_CANDIDATES or (preview is None and len(edits) >= MAX_EDITS):
        raise AileronError(
            FailureClass.BUSY,
            f"{row.id} has the maximum number of edits and previews: decide it as one of them, or deny it",
        )
    candidate = CandidateRow(digest=digest, plan_digest=plan_digest, preview=preview, made_us=tx.now_us)
    tx.insert_candidate(row.id, candidate, subject)
    return True


def _held_until(tx: Transaction, row: ApprovalRow, hold_s: float) -> int:
    """Return the time at which an approval expires, in microseconds since the epoch. If its run is first held for
    `hold_s` seconds, this leaves time to begin the run after the hold.
    """
    return max(row.expires_us, tx.now_us + int(hold_s * 1_000_000) + _USE_US) if hold_s > 0 else row.expires_us


def _check_signer(tx: Transaction, signed: Signature | None) -> None:
    """Check that `signed` is by the approver or by a passkey on record, if the ledger names an approver, and that the
    head in it, if any, is a row of this ledger.

    The approver or the passkeys may have changed since the caller checked, and a passkey not yet on record would sign
    before its own enrollment.
    """
    known = tx.newest(ApproverSet)
    is_theirs = signed is not None and (
        known is None
        or signed.key_id == known.event.key_id
        or (is_passkey(signed.key_id) and signed.key_id in passkeys_on_record(tx).in_force)
    )
    if known is not None and not is_theirs:
        raise AileronError(
            FailureClass.UNAUTHORIZED,
            f"decisions must be signed by {known.event.key_id}, and this one is not: nothing was decided",
            boundary=Boundary.USER,
        )
    if signed is None or signed.head is None:
        return
    try:
        head = Head.parse(signed.head)
    except ValueError as error:
        raise _invalid(f"head {error}") from error
    if head.seq > tx.head().seq or tx.hash_of(head.seq) != head.hash:
        raise AileronError(
            FailureClass.HASH_MISMATCH,
            f"this ledger has no row {_shown(signed.head)}: what was shown came from elsewhere, so nothing was decided",
        )


def _decided(row: ApprovalRow, decision: Literal["approve", "deny"], moved_us: int | None) -> ApprovalDecided:
    return ApprovalDecided(
        approval=row.id,
        kind=row.kind,
        digest=row.digest,
        decision=decision,
        surface=row.surface or "",
        reason=row.reason,
        run=row.run,
        key_id=row.key_id,
        signed_at=row.signed_at,
        signature=row.signature,
        head=row.head,
        head_signature=row.head_signature,
        preview=row.preview,
        until_us=moved_us,
    )


# Values


def _asked_at(row: ApprovalRow) -> float:
    """Return the time at which the question was asked, or the time at which the decision was signed if that is earlier.
    The row can be edited while no daemon runs; the signed time cannot.
    """
    asked_at = row.created_us / 1_000_000
    try:
        return asked_at if row.signed_at is None else min(asked_at, parse_moment(row.signed_at))
    except ValueError:  # an altered time, which the signature check detects
        return asked_at


def _frozen_subject(subject: Subject) -> tuple[bytes, str]:
    try:
        stored, digest = freeze(msgspec.to_builtins(subject))
    except (TypeError, ValueError) as error:
        raise _invalid(f"the subject of the question has {error}") from error
    if len(stored) > MAX_SUBJECT_BYTES:
        raise _invalid(
            f"the subject of the question has {len(stored)} bytes; at most {MAX_SUBJECT_BYTES} can be stored"
        )
    return stored, digest


def _said(name: str, text: str) -> str:
    if not text.strip() or bounded(text, MAX_MESSAGE_CHARACTERS) != text:
        raise _invalid(
            f"{name} must have 1 to {MAX_MESSAGE_CHARACTERS} characters and not be blank; this one has {len(text)}"
        )
    return text


def _no_place(why: NoPlace, held: int) -> AileronError:
    share = (
        f"{held} questions of this session are already waiting, which is its share (sessions that it started count as "
        "well): try again when some have been decided, withdrawn or have expired"
    )
    return no_place(why, share=share, full=f"{MAX_OPEN_RUNS} {_DECIDE_SOME}")


def _denied(row: ApprovalRow) -> Failure:
    said = f": {row.reason}" if row.reason else ""
    return Failure(
        failure_class=FailureClass.APPROVAL_DENIED,
        message=f"a person denied it{said}",
        boundary=Boundary.USER,
        details={"reason": row.reason} if row.reason else {},
    )


def cancelled(name: str) -> Failure:
    """Return the failure of a run or question that was withdrawn."""
    return Failure(
        failure_class=FailureClass.CANCELLED,
        message=f"{name} was cancelled before anything ran",
        boundary=Boundary.USER,
    )


def _expired(approval_id: str) -> AileronError:
    return AileronError(
        FailureClass.APPROVAL_EXPIRED,
        f"{approval_id} expired and nothing ran: request the action again",
        boundary=Boundary.USER,
    )


def _no_approval(approval_id: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, f"no approval {_shown(approval_id)}")


def _invalid(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message)


def _shown(text: str) -> str:
    return bounded(text, MAX_NAME_CHARACTERS)


def _maybe_effects(snapshot: Snapshot, row: ApprovalRow) -> SeenEffects | None:
    """Return the effects (changes) in the preview that the decision was about; None if it has none."""
    if row.preview is None:
        return None
    since = EventFilter(since_us=row.created_us, limit=_MAX_PREVIEWED)
    for found in snapshot.events_of(ApprovalPreviewed, since):
        event = found.event
        if (event.approval, event.preview) == (row.id, row.preview) and event.effects and event.fields:
            return SeenEffects(event.effects, event.fields)
    return None
