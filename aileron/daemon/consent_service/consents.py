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
- The questions about an action and its new connectors form one group: no change of the group is made before all are approved,
  and one denial ends all of its questions.

Source: docs/reference/consents.md. Not here: signatures (service.py), differences from the consents (consent_checks.py), values
that wait (held_values.py).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio.to_thread

from aileron.api.approvals import ConsentAnswer
from aileron.approvals.signed import NotCounted
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.handlers.every_kind import ConsentHandlers
from aileron.daemon.consent_service.handlers.handler import LONG_WAIT_S, CarriedOut, ToFetch, out_of_date
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.views import review_url, where_to_decide
from aileron.ledger.rows import ApprovalRow, ApprovalState
from aileron.model.consent import (
    ActionFileConsent,
    ConnectorConsent,
    Subject,
    group_of,
    subject_kind,
    subject_name,
)
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
        consents = self._approver.consents()
        if consents is None:
            return None
        subject = await anyio.to_thread.run_sync(about)
        return None if self._handlers.of(subject).is_agreed(consents, subject) else await self.ask(subject)

    async def maybe_ask_all(self, subjects: Sequence[Subject]) -> list[ConsentAnswer]:
        """Ask the person about each change that is not yet approved. Changes that form a group (an action and its new
        connectors) are asked about together: if one of them is not approved, the person is asked about all of them. Return an
        empty list if the home has no approver, or if all changes are approved. Raises AileronError as `maybe_ask` does.
        """
        consents = self._approver.consents()
        if consents is None:
            return []
        missing = [subject for subject in subjects if not self._handlers.of(subject).is_agreed(consents, subject)]
        groups = {group_of(subject) for subject in missing} - {None}
        return [await self.ask(subject) for subject in subjects if subject in missing or group_of(subject) in groups]

    async def ask(self, subject: Subject) -> ConsentAnswer:
        """Ask a person about the change that `subject` describes, unless the same question already waits. Return the id of
        the question and where to decide it. Raises AileronError (busy) if too many questions wait.
        """
        kind, name, handler = subject_kind(subject), subject_name(subject), self._handlers.of(subject)
        row, is_new = await self._base.audit.ask(name, subject, expires_at=time.time() + handler.wait_s)
        if is_new:
            self._asked(row.id, name, kind.value)
        handler.asked(subject)
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

    async def carry_out(self, approval_id: str) -> CarriedOut | ToFetch | None:
        """Make an approved change once. The decision is marked as used before anything changes. Return None while other
        questions of its group are not approved. If a value must be fetched first, return a ToFetch. Raises AileronError that
        says why the change was not made.
        """
        row, subject = await self._base.audit.consent(approval_id)
        if (group := group_of(subject)) is not None:
            return await self._carry_out_group(group)
        await self._use(row, subject)
        handler = self._handlers.of(subject)
        if not await anyio.to_thread.run_sync(handler.is_so, subject):
            raise out_of_date(row.id)
        result = await handler.carry_out(subject, row)
        await self._drop([subject])
        return result

    async def _carry_out_group(self, group: str) -> CarriedOut | None:
        """Install an action together with its new connectors once all questions of the group are approved."""
        members = await self._members(group)
        whole = _complete(members)
        if whole is None:
            return None
        head, connectors = whole
        all_of_it: list[tuple[ApprovalRow, Subject]] = [head, *connectors]
        for row, subject in all_of_it:  # before one is used up, check that all of them count
            self._check_decided(row, subject)
        for row, subject in all_of_it:
            await self._use(row, subject)
        result = await self._handlers.action_files.carry_out_group(head, connectors)
        for row, _ in await self._members(group):  # duplicate questions about the same change: it is made
            await self._take_back(row, "operator", self._approver.spend_decision)
        await self._drop(subject for _, subject in members)
        return result

    async def _members(self, group: str) -> list[tuple[ApprovalRow, Subject]]:
        """Return the questions of a group that still wait, or that are approved and whose change has not been made."""
        return [(row, subject) for row, subject in await self._base.audit.open_consents() if group_of(subject) == group]

    def forget(self, digest: str) -> None:
        """Forget the secret value that is held in memory for the question with this digest, because the question was denied
        or withdrawn.
        """
        self._held.forget(digest)

    async def end_group(
        self, approval_id: str, surface: str, take_back: Callable[[str, float], Awaitable[None]]
    ) -> None:
        """Withdraw the other questions of the group that `approval_id` belongs to, because that question was denied or
        withdrawn. Delete the files that were fetched for the group. `surface` is where this was done, for the record.

        `take_back` invalidates the decision about a question that was already approved, until the given time.
        """
        _, subject = await self._base.audit.consent(approval_id)
        group = group_of(subject)
        members = [] if group is None else await self._members(group)
        for row, _ in members:
            await self._take_back(row, surface, take_back)
        await self._drop([subject, *(other for _, other in members)])

    async def _take_back(
        self, row: ApprovalRow, surface: str, take_back: Callable[[str, float], Awaitable[None]]
    ) -> None:
        await self._base.audit.cancel(row.id, surface=surface)
        if row.signed is not None:
            await take_back(row.id, parse_moment(row.signed.at) + LONG_WAIT_S)

    async def fetched(self) -> set[str]:
        """Return the digests of the fetched files that are in staging for an open question."""
        return self._fetched_for(subject for _, subject in await self._base.audit.open_consents())

    def _fetched_for(self, subjects: Iterable[Subject]) -> set[str]:
        found = (self._handlers.of(subject).fetched(subject) for subject in subjects)
        return {digest for digest in found if digest is not None}

    async def _drop(self, subjects: Iterable[Subject]) -> None:
        """Delete the files that were fetched for these subjects, except files that another question needs."""
        for digest in self._fetched_for(subjects) - await self.fetched():
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


def _complete(
    members: Sequence[tuple[ApprovalRow, Subject]],
) -> tuple[tuple[ApprovalRow, ActionFileConsent], list[tuple[ApprovalRow, ConnectorConsent]]] | None:
    """Return the action of a group and its new connectors, each with its question, if all of them are approved; otherwise
    None. `members` are the group's questions.

    Several callers may have asked about the same change in different ways: the latest approved question counts.
    """
    agreed = [(row, subject) for row, subject in members if row.state is ApprovalState.APPROVED]
    agreed.sort(key=lambda member: member[0].decided_us or 0)
    connectors = {subject.hash: (row, subject) for row, subject in agreed if isinstance(subject, ConnectorConsent)}
    heads = [(row, subject) for row, subject in agreed if isinstance(subject, ActionFileConsent)]
    if not heads or set(heads[-1][1].installs) != set(connectors):
        return None
    return heads[-1], list(connectors.values())
