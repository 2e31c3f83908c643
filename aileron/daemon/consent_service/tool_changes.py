"""Handles a tool that its server has changed: suspends its operation and asks the person, the first time or again.

Runs in the daemon, behind the spine and the operator's socket. The message for the model does not contain the new tool's own
text, which a person must read first.

Source: docs/adr/0056-changed-tools.md. Not here: the suspensions (suspended_tools.py), carrying out an approval
(handlers/tool_change_consent.py).
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.api.actions import ActionResumed
from aileron.api.approvals import ConsentAnswer, ConsentsAnswer
from aileron.approvals.tool_change import TOOL_CHANGED, ToolReport, reported
from aileron.audit.tools_on_record import ToolState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.tool_change_consent import ToolChangeHandler
from aileron.daemon.consent_service.suspended_tools import SuspendedTools, uses_of
from aileron.daemon.foundation import Foundation
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ConsentKind
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.plan import Plan, Step

__all__ = ["MAX_TOOLS_ASKED", "ToolChanges"]

MAX_TOOLS_ASKED: Final = 32
"""Maximum number of waiting questions about changed tools that runs have found. It is a sixth of the queue's capacity, because
connectors determine how many such questions there are, and each waits a day.
"""
_ACCEPTED_MEANWHILE: Final = "the change was accepted meanwhile: request the run again"
_STILL_REFUSED: Final = "the change was accepted, and its connector refuses it all the same: update the connector"
"""Message for a connector that was given the digest of the accepted change and still reports the same change. Asking again
would not help, and no suspension is recorded: otherwise each run would suspend the operation, and the existing approval
would resume it.
"""
_log = logging.getLogger(__name__)


class ToolChanges:
    """Service that suspends operations whose tool a server changed, and asks a person about the changes. One instance per
    daemon.
    """

    def __init__(
        self,
        base: Foundation,
        tools: SuspendedTools,
        consents: ConsentService,
        handler: ToolChangeHandler,
    ) -> None:
        self._base = base
        self._tools = tools
        self._consents = consents
        self._handler = handler

    async def found(self, run_id: str, plan: Plan, failure: Failure) -> Failure:
        """Return a run's failure in the form for its caller. If the run's connector reports a changed tool, first suspend the
        operation and ask the person, unless too many such questions wait. Return any other failure unchanged.
        """
        report = reported(failure)
        step = next((step for step in plan.steps if step.id == failure.details.get("step")), None)
        if report is None or step is None:
            return failure
        try:
            state = await self._tools.suspend(step, run_id, plan.action, report)
        except AileronError as error:
            _log.error("%s: %s of %s could not be suspended: %s", run_id, step.op, step.connector, error)
            state = None
        if state is None:
            return _told(failure, step, report, "it fails like this until its connector is updated")
        if state.suspended is None and report.now is not None:
            digest = sha256_digest(report.now.encode())
            return _told(failure, step, report, _ACCEPTED_MEANWHILE if step.accepted != digest else _STILL_REFUSED)
        try:
            if await self._has_room():
                await self._ask(state)
        except AileronError as error:  # queue full, or vault locked meanwhile: `action resume` asks again
            _log.warning("%s: nobody was asked about %s of %s: %s", run_id, step.op, step.connector, error)
        return _told(
            failure,
            step,
            report,
            f"it is suspended: a person can look at it with `aileron action resume {plan.action}`",
        )

    async def _ask(self, state: ToolState) -> ConsentAnswer | None:
        """Ask whether to accept a tool that its server changed. Return None if there is nothing to accept, or if it was
        accepted before. Raises AileronError (busy, vault_locked).
        """
        subject = await self._handler.question(state)
        return None if subject is None else await self._consents.ask(subject)

    async def _has_room(self) -> bool:
        """Return whether a run may ask about another changed tool now. A person's own request for such a question is always
        allowed.
        """
        waiting = [
            row for row, _ in await self._base.audit.open_consents() if row.kind == ConsentKind.TOOL_CHANGE.value
        ]
        return len(waiting) < MAX_TOOLS_ASKED

    async def resume(self, name: str, *, unchanged: bool) -> ActionResumed | ConsentsAnswer:
        """Ask the person again whether they accept the changed tools that the action calls.

        With `unchanged`, ask nothing: resume the operations, because their tools are again as approved.

        Raises AileronError (not_found), or (invalid_request) if there is no change that could be accepted.
        """
        async with self._base.changing:
            action = await anyio.to_thread.run_sync(self._base.actions.load, name)
            states = self._tools.suspended(uses_of(action))
            if unchanged:
                for state in states:
                    await self._tools.lift(state)
                return ActionResumed(name=name, operations=[state.op for state in states])
            for state in states:
                self._check_askable(state, name)
            asked = [await self._ask(state) for state in states]
            waiting = tuple(answer for answer in asked if answer is not None)
            if waiting:
                return ConsentsAnswer(approvals=waiting)
            return ActionResumed(name=name, operations=[state.op for state in states])

    def _check_askable(self, state: ToolState, name: str) -> None:
        if self._tools.question(state) is not None or state.suspended is None:
            return
        why = (
            "the server no longer has its tool"
            if state.suspended.how == "gone"
            else "the connector did not tell how its tool is now, or it is too long to be shown"
        )
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"{state.op} of {state.pin} cannot be accepted: {why}. Update the connector; or, if the server has undone the "
            f"change, run `aileron action resume {name} --unchanged`",
            boundary=Boundary.EXTERNAL,
        )


def _told(failure: Failure, step: Step, report: ToolReport, what_now: str) -> Failure:
    """Return the failure of a changed tool with our own message, which contains no text from the server. `what_now` is the
    end of the message and says what follows.
    """
    how = "no longer has" if report.how == "gone" else "has changed"
    return msgspec.structs.replace(
        failure,
        message=f"the server {how} the tool of {step.op!r} ({step.connector}), and it was not called; {what_now}",
        retriable=False,
        details={"reason": TOOL_CHANGED, "connector": str(step.connector), "op": step.op, "step": step.id},
    )
