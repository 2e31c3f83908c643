"""Handles consents to tools that their server changed.

Runs in the daemon. A changed tool is asked about in every home, because its server changed it without a person's request.

Source: docs/adr/0056-changed-tools.md. Not here: the suspensions (suspended_tools.py), asking (tool_changes.py).
"""

from __future__ import annotations

from typing import ClassVar

from aileron.api.approvals import ToolAccepted
from aileron.audit.tools_on_record import ToolState
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import LONG_WAIT_S, ConsentHandler
from aileron.daemon.consent_service.suspended_tools import SuspendedTools
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ConsentKind, ToolChangeConsent, tool_consent_name
from aileron.model.plan import ConnectorPin

__all__ = ["ToolChangeHandler"]


class ToolChangeHandler(ConsentHandler[ToolChangeConsent]):
    """Handler of consents to tools that their server changed."""

    wait_s: ClassVar = LONG_WAIT_S
    is_asked_in_every_home: ClassVar = True

    def __init__(self, store: ConsentStore, tools: SuspendedTools) -> None:
        self._store = store
        self._tools = tools

    def is_so(self, subject: ToolChangeConsent) -> bool:
        """Return whether the suspended tool would be asked about in the same words now."""
        return self._tools.is_asked_now(subject)

    async def carry_out(self, subject: ToolChangeConsent, row: ApprovalRow) -> ToolAccepted:
        """Store the consent, if there is an approver, and resume the operation."""
        if self._store.consents() is not None:
            await self._store.put(ConsentKind.TOOL_CHANGE, subject.consent_name, subject.digest, row.id)
        await self._tools.accept(subject, row.id)
        return ToolAccepted(
            connector=f"{subject.connector}@{subject.version}",
            op=subject.op,
            action=subject.action,
            digest=subject.digest,
        )

    async def question(self, state: ToolState) -> ToolChangeConsent | None:
        """Return the consent to ask a person for; None if there is nothing to accept. Also return None if the change was
        already accepted and the daemon ended before it resumed the tool; this method then resumes the tool.

        Raises AileronError (vault_locked).
        """
        subject = self._tools.question(state)
        if subject is None:
            return None
        accepted = self._store.latest(ConsentKind.TOOL_CHANGE, subject.consent_name)
        if accepted is None or accepted.digest != subject.digest or self._tools.is_used(accepted.approval):
            return subject
        await self._tools.accept(subject, accepted.approval)
        return None

    async def end(self, pin: ConnectorPin) -> None:
        """End the consents to the changed tools of a removed connector."""
        for op in await self._tools.remove(pin):
            await self._store.end(ConsentKind.TOOL_CHANGE, tool_consent_name(pin.hash, op))
