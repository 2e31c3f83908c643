"""Operations that are suspended because their server changed the tool behind them, and the changes that a person has accepted.

Runs in the daemon. A connector's report suspends its own operation of its own pin, and nothing else: the executor determines
which step failed. Nothing that a connector says lifts a suspension or accepts anything.

Rules
- A suspension is recorded before it takes effect.
- With an approver, the vault authenticates what was accepted: the ledger, which any process of the same user can write, then
  only has the text. Without an approver, only the record says so.
- An approval takes effect once. Consents of a connector that was removed while the vault was locked are asked for again.
- Lifting a suspension accepts nothing: the next call compares the tool again, in the jail.

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
from aileron.model.consent import ConsentKind, Consents, ToolChangeConsent, tool_agreement
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.plan import ConnectorPin, Step

__all__ = ["MAX_OF_CONNECTOR", "MAX_SUSPENDED", "Agreed", "SuspendedTools", "uses_of"]

MAX_SUSPENDED: Final = 256
"""Most operations with a known state, 60 KiB each at most; a home's imported servers have some dozens of tools that are used.
Beyond it, a changed tool fails with each call, as its connector reports it, and no question is asked.
"""
MAX_OF_CONNECTOR: Final = MAX_SUSPENDED // 2
"""Most operations with a known state of one connector, all its versions together: a connector that reports a change of each of
its operations, of which it may have 256, leaves room for others.
"""


class Agreed(Protocol):
    """The source of the approver's consents."""

    def consents(self) -> Consents | None:
        """Return all consents, verified; None without an approver. AileronError vault_locked, hash_mismatch."""
        ...


class SuspendedTools:
    """Suspended operations and accepted changes. One per daemon. `load` before anything runs."""

    def __init__(self, audit: Audit, approver: Agreed) -> None:
        self._audit = audit
        self._approver = approver
        self._states: dict[ToolKey, ToolState] = {}
        self._used: set[str] = set()
        """Ids of approvals that took effect: these do not count a second time, though the vault may still name them."""
        self._writing = anyio.Lock()

    async def load(self) -> None:
        """Load the states from the record. AileronError(hash_mismatch)."""
        self._states, self._used = await self._audit.tools()

    def check(self, step: Step, action: str) -> None:
        """Check that the step's operation is not suspended. AileronError(hash_mismatch), with no text of the server."""
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
        """Return the digest of the changed tool that a person accepted last. AileronError vault_locked if it cannot be known."""
        state = self._states.get((pin.hash, op))
        if state is None or state.accepted is None:
            return None
        digest = sha256_digest(state.accepted.encode())
        consents = self._approver.consents()
        name = tool_agreement(pin.hash, op)
        if consents is not None and consents.agreed_digest(ConsentKind.TOOL_CHANGE, name) != digest:
            return None
        return digest

    def _is_accepted(self, step: Step, definition: str) -> bool:
        """Return whether a person accepted exactly this definition last; False if unknown, so that the operation is suspended."""
        state = self._states.get((step.connector.hash, step.op))
        if state is None or state.suspended is not None or state.accepted != definition:
            return False
        try:
            return self.accepted(state.pin, state.op) is not None
        except AileronError:
            return False

    def suspended(self, uses: Iterable[ToolKey]) -> list[ToolState]:
        """Return the suspended ones of these operations, each once."""
        found = (self._states.get(key) for key in dict.fromkeys(uses))
        return [state for state in found if state is not None and state.suspended is not None]

    async def suspend(self, step: Step, run_id: str, action: str, report: ToolReport) -> ToolState | None:
        """Suspend the step's operation for all runs, unless a person accepted just this change. Return its state; None if too
        many are known already. AileronError if it cannot be recorded.
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
        """Return the consent to ask a person for; None if there is nothing that could be accepted. AileronError vault_locked."""
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
        """Return whether the same question would be asked now."""
        state = self._states.get((subject.hash, subject.op))
        return state is not None and self.question(state) == subject

    def is_used(self, approval_id: str) -> bool:
        """Return whether this approval has already taken effect."""
        return approval_id in self._used

    async def accept(self, subject: ToolChangeConsent, approval_id: str) -> None:
        """Resume the operation with this definition. The caller has stored the consent in the vault before.

        AileronError(hash_mismatch) if a run has found another change meanwhile, which was not shown.
        """
        await self._resume((subject.hash, subject.op), "accepted", subject.digest, approval_id)

    async def lift(self, state: ToolState) -> None:
        """Resume the operation with its original definition, or the one accepted last."""
        await self._resume(state.key, "lifted")

    async def remove(self, pin: ConnectorPin) -> list[str]:
        """Forget the operations of a connector that is gone. Return their names."""
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
    """Return the operations that an action uses, including its preview's."""
    pins = {connector.name: connector.hash for connector in action.connectors}
    used = [(pins[step.connector], step.op) for step in action.steps]
    return used if action.preview is None else [*used, (pins[action.preview.connector], action.preview.op)]
