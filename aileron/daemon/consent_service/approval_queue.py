"""The questions that wait for a person: shown, edited, discussed with the agent, and withdrawn.

Runs in the daemon, for both sockets. An agent's `session` cannot see the requests of other sessions. A caller with `session`
None sees all requests.

Source: docs/reference/http-api.md. Not here: the decision itself, and the preview (service.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, UnsetType

from aileron.actions.resolve import with_args
from aileron.api.approvals import Answered, ApprovalEntry, Asked, Difference, Edited, Question, Settled
from aileron.api.runs import RunState
from aileron.approvals.difference import differences, most_similar
from aileron.approvals.signed import NotCounted
from aileron.audit import query
from aileron.cards.listed import listed
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.foundation import Foundation
from aileron.ledger import ApprovalRow
from aileron.model.consent import ConsentKind
from aileron.model.failure import AileronError
from aileron.model.plan import Plan
from aileron.model.timestamp import utc

__all__ = ["ApprovalQueue"]

_LONGEST_HOLD_S: Final = 3700.0
"""Seconds after a question's expiry during which its decision can still be used: an undo window of one hour, plus differences
between clocks.
"""
_MOST_COMPARED: Final = 10
"""Maximum number of earlier approved runs that are searched for the one most similar to a waiting run. Reading each and
checking its signature takes about 5 ms.
"""


class ApprovalQueue:
    """The service for waiting questions: it shows, edits and withdraws them, but decides none. One instance per daemon.
    `take_back` invalidates a signed decision, given its question's id and the time until which it could be used.
    """

    def __init__(
        self,
        base: Foundation,
        approver: ApproverState,
        *,
        consents: ConsentService,
        take_back: Callable[[str, float], Awaitable[None]],
    ) -> None:
        self._base = base
        self._approver = approver
        self._consents = consents
        self._take_back = take_back

    async def listed(self) -> list[ApprovalEntry]:
        """Return the questions that wait for a person, the first to expire first."""
        return await query.open_approvals(self._base.ledger, lambda rows: listed(rows, self._action_text))

    async def show(self, approval_id: str) -> Question:
        """Return the complete question: for a run, with the differences from the most similar approved run of its action;
        for a grant, with the action's file.
        """
        question = await query.approval(self._base.ledger, approval_id)
        if question.kind == ConsentKind.GRANT:
            return msgspec.structs.replace(question, granted_text=await self._granted_text(question))
        if question.kind != ConsentKind.ACTION:
            return question
        return msgspec.structs.replace(question, difference=await self._difference(approval_id, question))

    def _action_text(self, name: str) -> str | None:
        """Return the current file of an action; None if it cannot be read."""
        try:
            return self._base.actions.load(name).text
        except AileronError:
            return None

    async def _granted_text(self, question: Question) -> str | UnsetType:
        """Return the text of the action file that a grant is bound to; UNSET if the file is gone or changed. The file
        tells the person what the grant does not limit.
        """
        subject = question.subject or {}
        try:
            action = await anyio.to_thread.run_sync(self._base.actions.load, str(subject.get("action")))
        except AileronError:
            return UNSET
        return action.text if action.digest == subject.get("action_digest") else UNSET

    async def _difference(self, approval_id: str, question: Question) -> Difference | None:
        run_id, action = str(question.audit_id), str(question.action)
        rows = await self._base.ledger.read(lambda snapshot: snapshot.approved_before(action, run_id, _MOST_COMPARED))
        if not rows:
            return None
        try:
            now = (await self._base.audit.frozen(approval_id)).plan
            newest, *older = rows
            approved = [(newest, await self._approved_plan(newest)), *await self._comparable(older)]
        except AileronError as error:  # not reported as no earlier approval: an earlier approval calls for more care
            problem = "that approval was not signed" if _is_unsigned(error) else error.failure.message
            return msgspec.structs.replace(_difference_to(rows[0]), problem=problem)
        row, before = approved[most_similar((plan for _, plan in approved), now)]
        return msgspec.structs.replace(_difference_to(row), changes=list(differences(before, now)))

    async def _comparable(self, rows: list[ApprovalRow]) -> list[tuple[ApprovalRow, Plan]]:
        """Return those approved runs whose plan can be read and whose decision is valid, each with its plan. Leaving
        out a run can only add to the differences that a person is shown.
        """
        found = []
        for row in rows:
            with contextlib.suppress(AileronError):
                found.append((row, await self._approved_plan(row)))
        return found

    async def _approved_plan(self, row: ApprovalRow) -> Plan:
        """Return the plan of an approved run. Raises AileronError if the plan can no longer be read, or the signature of its
        decision is invalid.
        """
        plan = (await self._base.audit.frozen(row.id)).plan
        self._approver.check_approved(row, ConsentKind.ACTION)
        return plan

    async def edit(self, approval_id: str, args: dict[str, Any]) -> Edited:
        """Record and return the question's plan, made again with the arguments `args`. A person can approve the new plan in
        place of the original; this method decides nothing. Raises AileronError (bad_input, busy, not_found,
        already_decided).
        """
        frozen = await self._base.audit.frozen(approval_id)
        plan = await anyio.to_thread.run_sync(lambda: with_args(frozen.plan, args, connectors=self._base.connectors))
        changes = differences(frozen.plan, plan)
        await self._base.audit.add_edit(approval_id, plan)
        return Edited(digest=plan.digest, plan=plan.to_json(), changes=list(changes))

    async def result(self, approval_id: str, session: str | None) -> RunState:
        """Return the state of the run or change that the question is about. Raises AileronError (not_found) if the question
        belongs to another session.
        """
        return await query.approval_result(self._base.ledger, approval_id, session)

    async def ask_back(self, approval_id: str, question: str) -> Asked:
        """Pass a person's question about a waiting run to the agent that requested the run."""
        await self._base.audit.put_question(approval_id, question)
        return Asked(approval_id=approval_id, question=question)

    async def answer(self, approval_id: str, answer: str, session: str | None) -> Answered:
        """Record the requester's answer to a person's question. Raises AileronError (not_found) if the question belongs to
        another session.
        """
        await self.result(approval_id, session)
        await self._base.audit.put_answer(approval_id, answer, session or "operator")
        return Answered(approval_id=approval_id, answer=answer)

    async def cancel(self, approval_id: str, surface: str, session: str | None) -> Settled:
        """Withdraw a waiting question or an approval that was not used yet, and record where (`surface`) that was done.
        Raises AileronError (not_found) if the question belongs to another session.
        """
        await self.result(approval_id, session)
        row = await self._base.audit.cancel(approval_id, surface=surface)
        self._consents.forget(row.digest)
        if row.signed is not None:  # it was approved: it must stay withdrawn
            await self._take_back(row.id, time.time() + (row.expires_us - row.created_us) / 1_000_000 + _LONGEST_HOLD_S)
        if row.kind != ConsentKind.ACTION:
            async with self._base.changing:  # not while another question that needs the same files is carried out
                await self._consents.drop_staged(row.id)
        return Settled(status=row.state.status, approval_id=row.id, audit_id=row.run)


def _is_unsigned(error: AileronError) -> bool:
    """Return whether the error says that a decision was not signed. The error's own message fits only new decisions, so
    the caller rewords the message for an earlier decision.
    """
    return isinstance(error, NotCounted) and error.why == "unsigned"


def _difference_to(row: ApprovalRow) -> Difference:
    decided_at = None if row.decided_us is None else utc(row.decided_us / 1_000_000)
    return Difference(approval_id=row.id, decided_at=decided_at, changes=[], problem=None)
