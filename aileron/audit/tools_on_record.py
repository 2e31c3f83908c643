"""Which tools are suspended, and what was accepted of them last, as the record has it.

Runs in the daemon when it starts. There is no table of them: the events are the state, as with passkeys. Reads.

Source: docs/reference/audit-events.md, docs/adr/0056-changed-tools.md. Not here: what counts as accepted where decisions are
signed (the vault's seal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aileron.audit.events import ToolResumed, ToolSuspended
from aileron.ledger import Recorded, Snapshot, Transaction
from aileron.model.plan import ConnectorPin

__all__ = ["ToolKey", "ToolState", "after_resumed", "after_suspended", "approvals_used", "tools_on_record"]

ToolKey = tuple[str, str]
"""The pin's hash, and the operation."""


class ToolState(NamedTuple):
    """What is known of one operation of one pin. `accepted`: the definition that a person accepted last; None: none."""

    pin: ConnectorPin
    op: str
    suspended: ToolSuspended | None
    accepted: str | None

    @property
    def key(self) -> ToolKey:
        """What it is found by."""
        return self.pin.hash, self.op


def tools_on_record(look: Snapshot | Transaction) -> Mapping[ToolKey, ToolState]:
    """All that were ever suspended and are not removed. AileronError(hash_mismatch) where a row is not as it was written."""
    states: dict[ToolKey, ToolState] = {}
    every: list[Recorded[ToolSuspended] | Recorded[ToolResumed]] = [
        *look.all_of(ToolSuspended, 0),
        *look.all_of(ToolResumed, 0),
    ]
    for row in sorted(every, key=lambda row: row.seq):
        match row.checked():
            case ToolSuspended() as event:
                states[event.hash, event.op] = after_suspended(states.get((event.hash, event.op)), event)
            case ToolResumed(hash=pin_hash, op=op, reason="removed"):
                states.pop((pin_hash, op), None)
            case ToolResumed() as event if (event.hash, event.op) in states:
                states[event.hash, event.op] = after_resumed(states[event.hash, event.op], event)
    return states


def approvals_used(look: Snapshot | Transaction) -> set[str]:
    """Those by which a changed tool was accepted once. AileronError(hash_mismatch) where a row is not as it was written."""
    events = [row.checked() for row in look.all_of(ToolResumed, 0)]
    return {event.approval for event in events if event.approval is not None}


def after_suspended(before: ToolState | None, event: ToolSuspended) -> ToolState:
    """What is so after it."""
    pin = ConnectorPin(event.connector, event.version, event.hash)
    return ToolState(pin, event.op, event, None if before is None else before.accepted)


def after_resumed(before: ToolState, event: ToolResumed) -> ToolState:
    """What is so after it, unless the connector was removed."""
    if event.reason != "accepted":
        return before._replace(suspended=None)
    if before.suspended is None or before.suspended.digest != event.digest:
        return before  # another change than the one that was accepted
    return before._replace(suspended=None, accepted=before.suspended.now)
