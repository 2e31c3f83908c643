"""Which tools are suspended, and what was accepted of them last, as the record has it.

Runs in the daemon when it starts. There is no table of them: the events are the state, as with passkeys. Reads.

Source: docs/reference/audit-events.md, docs/adr/0056-changed-tools.md. Not here: what counts as accepted where decisions are
signed (the vault's seal).
"""

from __future__ import annotations

from typing import NamedTuple

from aileron.audit.events import ToolResumed, ToolSuspended
from aileron.ledger import Recorded, Snapshot, Transaction
from aileron.model.plan import ConnectorPin

__all__ = ["ToolKey", "ToolState", "ToolsOnRecord", "after_resumed", "after_suspended", "tools_on_record"]

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


class ToolsOnRecord(NamedTuple):
    """All that were ever suspended and are not removed; and the approvals by which a change was accepted once."""

    states: dict[ToolKey, ToolState]
    used: set[str]


def tools_on_record(look: Snapshot | Transaction) -> ToolsOnRecord:
    """What the events come to. AileronError(hash_mismatch) where a row is not as it was written."""
    states: dict[ToolKey, ToolState] = {}
    used: set[str] = set()
    every: list[Recorded[ToolSuspended] | Recorded[ToolResumed]] = [
        *look.all_of(ToolSuspended, 0),
        *look.all_of(ToolResumed, 0),
    ]
    for row in sorted(every, key=lambda row: row.seq):
        event = row.checked()
        key = (event.hash, event.op)
        if isinstance(event, ToolSuspended):
            states[key] = after_suspended(states.get(key), event)
            continue
        if event.approval is not None:
            used.add(event.approval)
        if event.reason == "removed":
            states.pop(key, None)
        elif key in states:
            states[key] = after_resumed(states[key], event)
    return ToolsOnRecord(states, used)


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
