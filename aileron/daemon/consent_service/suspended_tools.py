"""Operations that are suspended because their server changed the tool behind them, and the changes that a person has accepted.

Runs in the daemon. A connector's report can suspend only the connector's own operation, under its own pin, because the executor
determines which step failed. No report lifts a suspension or accepts a change.

Rules
- A suspension is recorded before it takes effect.
- With an approver, the vault authenticates which change was accepted; the ledger, which any process of the same user can write,
  only has the text. Without an approver, only the ledger says which change was accepted.
- An approval takes effect once. Consents of a connector that was removed while the vault was locked are asked for again.
- Lifting a suspension accepts no change: the next call compares the tool again, in the jail.

Source: docs/adr/0056-changed-tools.md. Not here: asking (tool_changes.py), the form of a report (approvals/tool_change.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

import anyio

from aileron.approvals.tool_change import TOOL_CHANGED, ToolReport, tool_changes
from aileron.audit.events import ToolResumed, ToolSuspended
from aileron.audit.log import Audit
from aileron.audit.tools_on_record import ToolKey, ToolState, after_resumed, after_suspended
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ConsentKind, Consents, ToolChangeConsent, tool_consent_name
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.plan import ConnectorPin, Step

__all__ = ["MAX_OF_CONNECTOR", "MAX_SUSPENDED", "Agreed", "SuspendedTools", "uses_of"]

MAX_SUSPENDED: Final = 256
"""Maximum number of operations whose state is stored, at most 60 KiB each. A home's imported servers have some dozens of tools
in use. Beyond this limit, each call of a changed tool fails with the connector's report, and no question is asked.
"""
MAX_OF_CONNECTOR: Final = MAX_SUSPENDED // 2
"""Maximum number of operations of one connector, in all its versions, whose state is stored. So a connector that reports
changes of all its operations, up to 256, leaves room for other connectors.
"""


class Agreed(Protocol):
    """Protocol for the source of the approver's consents."""

    def consents(self) -> Consents | None:
        """Return all verified consents; None if the home has no approver. Raises AileronError (vault_locked, hash_mismatch)."""
        ...


class SuspendedTools:
    """The operations that are suspended because a server changed their tool, and the changes that a person accepted.
    One instance per daemon. Call `load` before anything runs.
    """

    def __init__(self, audit: Audit, approver: Agreed) -> None:
        self._audit = audit
        self._approver = approver
        self._states: dict[ToolKey, ToolState] = {}
        self._used: set[str] = set()
        """Ids of approvals that took effect. These approvals do not count a second time, although the vault may still contain
        them.
        """
        self._writing = anyio.Lock()

    async def load(self) -> None:
        """Load the suspended operations and accepted changes from the ledger. Raises AileronError (hash_mismatch)."""
        self._states, self._used = await self._audit.tools()

    def check(self, step: Step, action: str) -> None:
        """Check that the step's operation is not suspended. Raises AileronError (hash_mismatch) if it is; the error contains no
        text from the server.
        """
        state = self._states.get((step.connector.hash, step.op))
        if state is None or state.suspended is None:
            return
        what = "no longer has" if state.suspended.how == "gone" else "has changed"
        raise AileronError(
            FailureClass.HASH_MISMATCH,
            f"action {action!r} is suspended: the server {what} the tool of {step.op!r} ({step.connector}), and nothing ran. "
            f"A person can look at it with `aileron action resume {action}`",
            boundary=Boundary.EXTERNAL,
            details={"reason": TOOL_CHANGED, "connector": str(step.connector), "op": step.op, "step": step.id},
        )

    def accepted(self, pin: ConnectorPin, op: str) -> str | None:
        """Return the digest of the changed tool that a person accepted last, or None. Raises AileronError (vault_locked) if
        this cannot be determined.
        """
        state = self._states.get((pin.hash, op))
        if state is None or state.accepted is None:
            return None
        digest = sha256_digest(state.accepted.encode())
        consents = self._approver.consents()
        name = tool_consent_name(pin.hash, op)
        if consents is not None and consents.consent_digest(ConsentKind.TOOL_CHANGE, name) != digest:
            return None
        return digest

    def _is_accepted(self, step: Step, definition: str) -> bool:
        """Return whether `definition` is the definition of the step's tool that a person accepted last. Return False if
        that is unknown, so that the operation is suspended.
        """
        state = self._states.get((step.connector.hash, step.op))
        if state is None or state.suspended is not None or state.accepted != definition:
            return False
        try:
            return self.accepted(state.pin, state.op) is not None
        except AileronError:
            return False

    def suspended(self, uses: Iterable[ToolKey]) -> list[ToolState]:
        """Return the suspended operations among the given ones, without duplicates."""
        found = (self._states.get(key) for key in dict.fromkeys(uses))
        return [state for state in found if state is not None and state.suspended is not None]

    async def suspend(self, step: Step, run_id: str, action: str, report: ToolReport) -> ToolState | None:
        """Suspend the step's operation for all runs, unless a person accepted exactly this change. Return the operation's
        state; None if the maximum number of states is reached. Raises AileronError if the suspension cannot be recorded.
        """
        async with self._writing:
            before = self._states.get((step.connector.hash, step.op))
            if report.now is not None and self._is_accepted(
                step, report.now
            ):  # checked under the lock: it may have been accepted meanwhile
                return before
            if before is None and not self._has_room(step.connector.name):
                return None
            known = None if before is None else before.suspended
            if before is not None and known is not None and (known.how, known.now) == (report.how, report.now):
                return before
            event = ToolSuspended(
                connector=step.connector.name,
                version=step.connector.version,
                hash=step.connector.hash,
                op=step.op,
                run=run_id,
                action=action,
                how=report.how,
                before=report.before,
                now=report.now,
                digest=None if report.now is None else sha256_digest(report.now.encode()),
            )
            await self._audit.note(event)
            state = self._states[step.connector.hash, step.op] = after_suspended(before, event)
            return state

    def _has_room(self, connector: str) -> bool:
        same = sum(1 for state in self._states.values() if state.pin.name == connector)
        return same < MAX_OF_CONNECTOR and len(self._states) < MAX_SUSPENDED

    def question(self, state: ToolState) -> ToolChangeConsent | None:
        """Return the consent to ask a person for; None if there is no change that could be accepted. Raises AileronError
        (vault_locked).
        """
        event = state.suspended
        if event is None or event.now is None or event.before is None:
            return None
        before = event.before
        if state.accepted is not None and self.accepted(state.pin, state.op) is not None:
            before = state.accepted
        return ToolChangeConsent(
            connector=state.pin.name,
            version=state.pin.version,
            hash=state.pin.hash,
            op=state.op,
            action=event.action,
            before=sha256_digest(before.encode()),
            changes=tool_changes(before, event.now),
            definition=event.now,
            digest=sha256_digest(event.now.encode()),
        )

    def is_asked_now(self, subject: ToolChangeConsent) -> bool:
        """Return whether the question about this changed tool would still be the same if it were asked now."""
        state = self._states.get((subject.hash, subject.op))
        return state is not None and self.question(state) == subject

    def is_used(self, approval_id: str) -> bool:
        """Return whether this approval has already taken effect."""
        return approval_id in self._used

    async def accept(self, subject: ToolChangeConsent, approval_id: str) -> None:
        """Resume the operation with the accepted definition. The caller must have stored the consent in the vault before.

        Raises AileronError (hash_mismatch) if a run has meanwhile reported a different change, which the person was not shown.
        """
        await self._resume((subject.hash, subject.op), "accepted", subject.digest, approval_id)

    async def lift(self, state: ToolState) -> None:
        """Resume the operation with its original definition, or with the definition that was accepted last."""
        await self._resume(state.key, "lifted")

    async def remove(self, pin: ConnectorPin) -> list[str]:
        """Forget the states of the operations of a removed connector. Return the names of these operations."""
        gone = [state for state in self._states.values() if state.pin.hash == pin.hash]
        for state in gone:
            await self._resume(state.key, "removed")
        return [state.op for state in gone]

    async def _resume(
        self,
        key: ToolKey,
        reason: Literal["accepted", "lifted", "removed"],
        digest: str | None = None,
        approval_id: str | None = None,
    ) -> None:
        async with self._writing:
            state = self._states.get(key)
            if reason == "accepted" and (state is None or state.suspended is None or state.suspended.digest != digest):
                raise AileronError(
                    FailureClass.HASH_MISMATCH,
                    f"the tool of {key[1]!r} has changed again, and is still suspended: decide the newest question",
                    boundary=Boundary.USER,
                )
            if state is None:
                return
            event = ToolResumed(
                connector=state.pin.name,
                version=state.pin.version,
                hash=state.pin.hash,
                op=state.op,
                reason=reason,
                digest=digest,
                approval=approval_id,
            )
            await self._audit.note(event)
            if approval_id is not None:
                self._used.add(approval_id)
            if reason == "removed":
                del self._states[key]
            else:
                self._states[key] = after_resumed(state, event)


def uses_of(action: ActionFile) -> list[ToolKey]:
    """Return the operations that an action uses, including the operations of its previews."""
    pins = {connector.name: connector.hash for connector in action.connectors}
    used = [(pins[step.connector], step.op) for step in action.steps]
    return used if action.preview is None else [*used, (pins[action.preview.connector], action.preview.op)]
