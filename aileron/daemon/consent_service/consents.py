"""Changes that need a person's consent. Without an approver they are made at once; otherwise the person is asked, and they are
made after approval.

Runs in the daemon. One subject (model/consent.py) describes one change completely, so that the value shown, the value signed
and the change made are the same. After approval, nothing is looked up again except the bytes that the subject identifies by
hash. The handler of the subject's kind (handlers/) knows which conditions must still hold, and makes the change.

Rules
- A question changes nothing. After approval, the decision is first durably marked as used, and then the change is made. If the
  daemon ends in between, nothing has changed, and the person is asked again.
- A question is read from a file that other processes can write. So its hosts, credentials and differences are determined again
  before the change is made. A question that would read differently by now fails, signed or not.

Source: docs/reference/consents.md. Not here: signatures (service.py), differences from the consents (consent_checks.py), values
that wait (held_values.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio.to_thread

from aileron.api.approvals import ConsentAnswer
from aileron.approvals.signed import NotCounted
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.handlers.every_kind import ConsentHandlers
from aileron.daemon.consent_service.handlers.handler import LONG_WAIT_S, CarriedOut, ToFetch, out_of_date
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.views import review_url, where_to_decide
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ActionFileConsent, Subject, subject_kind, subject_name
from aileron.model.decision import parse_moment
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.timestamp import utc

__all__ = ["ConsentService"]


class ConsentService:
    """Service that asks a person about changes, and makes them after approval. One instance per daemon. The caller holds
    the lock `changing` during each change. `asked` is called for each new question.
    """

    def __init__(
        self,
        base: Foundation,
        approver: ApproverState,
        handlers: ConsentHandlers,
        *,
        held: HeldValues,
        asked: Callable[[str, str, str], None],
    ) -> None:
        self._base = base
        self._approver = approver
        self._handlers = handlers
        self._asked = asked
        self._held = held

    async def maybe_ask(self, about: Callable[[], Subject]) -> ConsentAnswer | None:
        """Ask the person about a change. Return None if the home has no approver, or if the change was already approved.
        `about` returns the subject that describes the change, and may read files. Raises AileronError (vault_locked, busy),
        and the errors of `about`.
        """
        if self._approver.consents() is None:
            return None
        return await self.maybe_ask_about(await anyio.to_thread.run_sync(about))

    async def maybe_ask_about(self, subject: Subject) -> ConsentAnswer | None:
        """Ask the person about the change that `subject` describes, as `maybe_ask` does."""
        consents = self._approver.consents()
        if consents is None or self._handlers.of(subject).is_agreed(consents, subject):
            return None
        return await self.ask(subject)

    async def ask(self, subject: Subject) -> ConsentAnswer:
        """Ask a person about the change that `subject` describes, unless the same question already waits. Return the id of
        the question and where to decide it. Raises AileronError (busy) if too many questions wait.
        """
        kind, name, handler = subject_kind(subject), subject_name(subject), self._handlers.of(subject)
        row, is_new = await self._base.audit.ask(name, subject, expires_at=time.time() + handler.wait_s)
        if is_new:
            self._asked(row.id, name, kind.value)
        handler.asked(subject, row.digest)
        return ConsentAnswer(
            approval_id=row.id,
            kind=kind,
            digest=row.digest,
            review_url=review_url(self._base.review, row.id),
            message=f"Nothing has changed yet: a person must approve it first, {where_to_decide(self._base.review, row.id)}.",
            expires_at=utc(row.expires_us / 1_000_000),
        )

    async def ask_for_file(self, subject: ActionFileConsent) -> str:
        """Ask about an action file that allows more than was approved, as the start of a run has found. Return the
        question's id.
        """
        return (await self.ask(subject)).approval_id

    async def ask_about_settings(self) -> None:
        """Ask about settings of config.toml that go beyond the approved ones, if any. Raises AileronError (vault_locked)."""
        if (subject := self._handlers.settings.question()) is not None:
            await self.ask(subject)

    async def carry_out(self, approval_id: str) -> CarriedOut | ToFetch:
        """Make an approved change once. The decision is marked as used before anything changes. If a value must be fetched
        first, return a ToFetch. Raises AileronError that says why the change was not made.
        """
        row, subject = await self._base.audit.consent(approval_id)
        await self._use(row, subject)
        handler = self._handlers.of(subject)
        if not await anyio.to_thread.run_sync(handler.is_so, subject):
            raise out_of_date(row.id)
        result = await handler.carry_out(subject, row)
        await self._drop(subject)
        return result

    def forget(self, digest: str) -> None:
        """Forget the secret value that is held in memory for the question with this digest, because the question was denied
        or withdrawn.
        """
        self._held.forget(digest)

    async def drop_staged(self, approval_id: str) -> None:
        """Delete the files that were fetched for this question, because it was denied or withdrawn."""
        _, subject = await self._base.audit.consent(approval_id)
        await self._drop(subject)

    async def staged(self) -> frozenset[str]:
        """Return the digests of the fetched files that are in staging for an open question."""
        waiting = await self._base.audit.open_consents()
        return frozenset().union(*(self._handlers.of(subject).staged(subject) for _, subject in waiting))

    async def _drop(self, subject: Subject) -> None:
        """Delete the files that were fetched for this subject, except files that another question needs."""
        for digest in self._handlers.of(subject).staged(subject) - await self.staged():
            await anyio.to_thread.run_sync(self._base.staging.drop, digest)

    async def _use(self, row: ApprovalRow, subject: Subject) -> None:
        """Mark the decision about this question as used. Raises AileronError if the decision is not valid."""
        signed_at = self._check_decided(row, subject)
        await self._base.audit.redeem(row.id, row.digest)
        if signed_at is not None:
            await self._approver.spend_decision(row.id, signed_at + LONG_WAIT_S)

    def _check_decided(self, row: ApprovalRow, subject: Subject) -> float | None:
        """Check the approver's signature of the decision in the ledger's row, and return the time at which it was signed;
        None if it needs no signature. The ledger's file could have been written by another process while no daemon ran.

        A decision needs no signature if the home has no approver and this kind of question is asked in every home.
        """
        has_approver = self._approver.consents() is not None
        if not has_approver and row.signed is None and self._handlers.of(subject).is_asked_in_every_home:
            return None
        if not has_approver or row.signed is None:
            raise NotCounted("unsigned", f"{row.id} was not approved with a signature; nothing changed")
        self._approver.check_approved(row, subject_kind(subject))
        signed_at = parse_moment(row.signed.at)
        if time.time() > signed_at + LONG_WAIT_S:
            raise AileronError(
                FailureClass.APPROVAL_EXPIRED, f"{row.id} was approved too long ago", boundary=Boundary.USER
            )
        return signed_at
