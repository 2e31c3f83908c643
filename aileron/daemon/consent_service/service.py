"""A person's decision on a question, checked before it takes effect, and the preview that only this person may read.

Runs in the daemon, for the operator's socket, which any process of the same user can reach: a caller has no identity
until a signature proves it. Without an approver, decisions are accepted unsigned, and marked as such.

Rules
- A decision that is not valid changes nothing, and is recorded with the reason, however often it is tried.
- A preview is read with the person's own credential. Its content leaves this process only encrypted for the key that an
  approver named in a signed request; the ledger gets only its digest.
- If a run changes only what its preview showed, an approval without that preview would change nothing, so it is not valid.
- A request for a preview is answered once (`nonce`), and only with the current state. If a later reading found another state,
  an approval of the earlier state is not valid (previews.py).

Source: docs/reference/signed-decisions.md. Not here: showing questions (approval_queue.py), changes that
need consent (consents.py), the run itself (runs/spine.py).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from aileron.api.approvals import Decision, PreviewRequest, SealedPreview, Settled
from aileron.api.failures import ErrorBody
from aileron.approvals.signed import (
    CEREMONY_S,
    CLOCK_S,
    NotCounted,
    Why,
    check_fresh,
    check_head,
    check_signed,
    counted,
)
from aileron.approver_key.box import seal
from aileron.audit.events import RefusedTry
from aileron.audit.frozen import Question
from aileron.audit.log import Audit
from aileron.audit.moves import MAX_MESSAGE_CHARACTERS
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.handler import ToFetch
from aileron.daemon.consent_service.handlers.secret_consent import SecretHandler
from aileron.daemon.consent_service.previews import PreviewRegistry
from aileron.ledger import CandidateRow
from aileron.model.consent import ConsentKind
from aileron.model.decision import PreviewStatement, Signature, held_until
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from aileron.model.timestamp import utc

__all__ = ["DecisionService"]

MAX_NONCES: Final = 1000
"""Maximum number of stored nonces of preview requests. A nonce is stored for the six minutes in which its request could be
replayed; a person makes a handful of requests in that time.
"""


class DecisionService:
    """Service that checks decisions and makes the changes that they approve. One instance per daemon. `changing` is the
    lock held during every change to this home.
    """

    def __init__(
        self,
        approver: ApproverState,
        *,
        audit: Audit,
        readings: PreviewRegistry,
        consents: ConsentService,
        secrets: SecretHandler,
        begin: Callable[[str], object],
        changing: anyio.Lock,
    ) -> None:
        self._approver = approver
        self._audit = audit
        self._readings = readings
        self._consents = consents
        self._secrets = secrets
        self._begin = begin
        self._changing = changing
        self._nonces: dict[str, float] = {}

    async def decide(self, approval_id: str, decision: Decision, surface: str) -> Settled:
        """Record a valid decision, and start the run or make the change that it approves. `surface` is the scope of
        the caller's socket, or `page`.

        Raises AileronError (not_found, already_decided, approval_expired), and (unauthorized, invalid_request,
        vault_locked) for a decision that is not valid.
        """
        async with self._changing:
            settled, to_fetch = await self._decide(approval_id, decision, surface)
        return settled if to_fetch is None else await self._fetched(settled, to_fetch)

    async def _decide(self, approval_id: str, decision: Decision, surface: str) -> tuple[Settled, ToFetch | None]:
        try:
            question = await self._audit.check_decidable(approval_id)
        except AileronError as error:
            if error.failure.failure_class is not FailureClass.NOT_FOUND and self._approver.is_hinted:
                # A slower decision, or a signature that is replayed.
                await self._audit.refuse(approval_id, decision.decision, "decided", surface, decision.key_id)
            raise
        try:
            signed = self._counted(decision, approval_id, question.row.kind)
            candidate = self._check_digest(decision, question)
            if decision.decision == "approve":
                await self._check_seen(question, candidate)
        except AileronError as error:
            await self._refused(approval_id, decision.decision, error, surface, decision.key_id)
            raise
        is_run = question.row.kind == ConsentKind.ACTION
        hold_s = 0.0
        if is_run and decision.decision == "approve":
            hold_s = float((await self._audit.frozen(approval_id)).plan.approval.undo_window_s)
        row = await self._audit.decide(
            approval_id,
            decision.decision,
            digest=decision.digest,
            surface=surface,
            reason=decision.reason,
            signed=signed,
            hold_s=hold_s,
        )
        settled = Settled(status=row.state.status, approval_id=row.id, audit_id=row.run)
        if decision.decision == "deny":
            self._consents.forget(row.digest)
            if not is_run:
                await self._consents.drop_staged(row.id)
            return settled, None
        if not is_run:
            return await self._carried_out(settled)
        self._begin(approval_id)
        if not hold_s:
            return settled, None
        until = held_until((row.decided_us or 0) / 1_000_000, row.signed_at, hold_s)
        return msgspec.structs.replace(settled, held_until=utc(until)), None

    def _check_digest(self, decision: Decision, question: Question) -> CandidateRow:
        """Return the candidate whose digest the decision names. A candidate is the question as asked, an edited version
        of it, or a plan with a preview that was displayed. Raises NotCounted if there is no such candidate, or if an approval
        is not about the newest preview.
        """
        candidate = next((candidate for candidate in question.candidates if candidate.digest == decision.digest), None)
        if candidate is None:
            raise NotCounted(
                "digest",
                f"the decision is about {decision.digest[:80]}, but {question.row.id} has changed: load it again",
                FailureClass.INVALID_REQUEST,
            )
        if decision.decision == "approve" and candidate.preview is not None:
            self._readings.check_newest(question.row.id, candidate.plan_digest, candidate.digest)
        return candidate

    async def _check_seen(self, question: Question, candidate: CandidateRow) -> None:
        """Check that `candidate` includes a preview, which the person then saw, if the run would change only what its
        preview shows. Raises NotCounted otherwise.

        The error does not contain a service's message about a failed preview: only an approver may read that message, and the
        approver's surface shows it.
        """
        name = question.row.id
        if question.row.kind != ConsentKind.ACTION or candidate.preview is not None:
            return
        if not (await self._audit.frozen(name, candidate.plan_digest)).plan.changes_only_seen:
            return
        if self._approver.consents() is None:
            raise NotCounted(
                "preview",
                "only what a preview showed is changed, previews are for the approver, and this home has none: "
                f"aileron approver init, then aileron approve {name}",
                FailureClass.CONSENT_REQUIRED,
            )
        failure = await self._audit.preview_failure(name, candidate.plan_digest)
        problem = (
            f"only what a preview showed is changed, and none was loaded: load it first (aileron approve {name}, or p in the "
            "console), then decide"
            if failure is None
            else f"only what a preview showed is changed, and this one failed ({failure}): load it again, or deny it with a "
            "reason, which tells the agent"
        )
        raise NotCounted("preview", problem, FailureClass.INVALID_REQUEST)

    async def preview(self, approval_id: str, asked: PreviewRequest, scope: Scope) -> SealedPreview:
        """Read the action's preview for the requesting approver, and encrypt it so that only they can read it.

        Raises AileronError (unauthorized), (consent_required) if the home has no approver, (vault_locked), (not_found), or
        (invalid_request) if the action has no preview.
        """
        statement = PreviewStatement(
            approval_id=approval_id, recipient=asked.recipient, nonce=asked.nonce, at=asked.at, key_id=asked.key_id
        )
        try:
            self._check_preview(statement, asked)
        except AileronError as error:
            await self._refused(approval_id, "preview", error, scope.value, asked.key_id)
            raise
        seen = await self._readings.read(approval_id, asked.digest)
        sealed = seal(asked.recipient, msgspec.json.encode(seen), statement.signed_bytes())
        return SealedPreview(sealed=base64.b64encode(sealed).decode())

    async def carry_out_approved(self) -> None:
        """Make the changes that were approved earlier but not made because the vault was locked or the daemon ended. A
        change that is no longer permitted is not made. The caller holds `changing`.

        Nothing is fetched here, because the way to fetch a secret was stored only in memory, with its question. So a person
        must ask again.
        """
        for approval_id in await self._audit.approved_consents():
            await self._carried_out(Settled(status=RunStatus.APPROVED, approval_id=approval_id, audit_id=None))

    async def _carried_out(self, settled: Settled) -> tuple[Settled, ToFetch | None]:
        try:
            result = await self._consents.carry_out(settled.approval_id)
        except AileronError as error:
            return _failed(settled, error), None
        if isinstance(result, ToFetch):
            return settled, result
        return msgspec.structs.replace(settled, status=RunStatus.COMPLETED, result=result), None

    async def _fetched(self, settled: Settled, to_fetch: ToFetch) -> Settled:
        """Fetch the approved secret's value without blocking other changes, then store it. Return `settled` with the
        outcome.
        """
        try:
            value = await to_fetch.value()
            async with self._changing:
                result = await self._secrets.put_fetched(to_fetch, value)
        except AileronError as error:
            return _failed(settled, error)
        return msgspec.structs.replace(settled, status=RunStatus.COMPLETED, result=result)

    def _counted(self, decision: Decision, approval_id: str, kind: str) -> Signature | None:
        """Check a decision, and return its signature for the record; None if the home has no approver. Raises
        AileronError for a decision that is not valid.
        """
        consents = self._approver.consents()
        signed = decision.signed()
        if consents is None:
            if signed is not None:
                raise NotCounted(
                    "key", "decisions are not signed in this home: aileron approver init", FailureClass.INVALID_REQUEST
                )
            return None
        if decision.reason is not None and len(decision.reason) > MAX_MESSAGE_CHARACTERS:  # cut text was not signed
            problem = f"the reason is longer than {MAX_MESSAGE_CHARACTERS} characters"
            raise AileronError(FailureClass.INVALID_REQUEST, problem)
        check_signed(
            consents,
            signed,
            approval_id=approval_id,
            digest=decision.digest,
            decision=decision.decision,
            reason=decision.reason,
            kind=kind,
        )
        if signed is not None:
            check_fresh(signed.at, signed.key_id)
            check_head(consents, signed)
        return signed

    def _check_preview(self, statement: PreviewStatement, asked: PreviewRequest) -> None:
        consents = self._approver.consents()
        if consents is None:
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                "previews are for the approver, and this home has none: aileron approver init",
                boundary=Boundary.USER,
            )
        counted(consents, statement, asked.signature)
        check_fresh(asked.at, asked.key_id)
        self._use(asked.nonce)

    def _use(self, nonce: str) -> None:
        now = time.monotonic()
        self._nonces = {used: at for used, at in self._nonces.items() if now - at <= CLOCK_S + CEREMONY_S}
        if nonce in self._nonces:
            raise NotCounted("signature", "this request was answered before: send a new one")
        if len(self._nonces) >= MAX_NONCES:
            raise AileronError(FailureClass.BUSY, "too many previews were requested: wait a minute", retriable=True)
        self._nonces[nonce] = now

    async def _refused(
        self, approval_id: str, what: RefusedTry, error: AileronError, surface: str, key_id: str | None
    ) -> None:
        why: Why = error.why if isinstance(error, NotCounted) else "locked"
        if error.failure.failure_class is FailureClass.INVALID_REQUEST and not isinstance(error, NotCounted):
            why = "signature"
        await self._audit.refuse(approval_id, what, why, surface, key_id)


def _failed(settled: Settled, error: AileronError) -> Settled:
    return msgspec.structs.replace(settled, status=RunStatus.FAILED, error=ErrorBody.of(error.failure, None))
