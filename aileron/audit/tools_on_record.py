"""The suspended tools and the last accepted definitions, according to the record.

Runs in the daemon when it starts. No table stores them; they are computed from the events, as for passkeys. This module
only reads.

Source: docs/reference/audit-events.md, docs/adr/0056-changed-tools.md. Not here: which approvals are valid if decisions
are signed (the vault's seal).
"""

from __future__ import annotations

from typing import NamedTuple

from aileron.audit.events import ToolResumed, ToolSuspended
from aileron.ledger import Recorded, Snapshot, Transaction
from aileron.model.plan import ConnectorPin

__all__ = ["ToolKey", "ToolState", "ToolsOnRecord", "after_resumed", "after_suspended", "tools_on_record"]

ToolKey = tuple[str, str]
"""Type of the key of a tool: the hash of the connector's pin, and the name of the operation."""


class ToolState(NamedTuple):
    """The state, according to the record, of one tool: an operation of one pinned connector.

    `accepted` is the definition that a person accepted last; None if there is none.
    """

    pin: ConnectorPin
    op: str
    suspended: ToolSuspended | None
    accepted: str | None

    @property
    def key(self) -> ToolKey:
        """Key of this tool in `ToolsOnRecord.states`."""
        return self.pin.hash, self.op


class ToolsOnRecord(NamedTuple):
    """The tools that were ever suspended and not removed since, and the ids of approvals that accepted a change. Each
    approval can be used only once.
    """

    states: dict[ToolKey, ToolState]
    used: set[str]


def tools_on_record(look: Snapshot | Transaction) -> ToolsOnRecord:
    """Return the states of all tools, and the approvals that accepted a change, as they result from the ledger's
    events. Raises AileronError(hash_mismatch) if a row was altered.
    """
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
    """Return the state of a tool after `event` suspended it."""
    pin = ConnectorPin(event.connector, event.version, event.hash)
    return ToolState(pin, event.op, event, None if before is None else before.accepted)


def after_resumed(before: ToolState, event: ToolResumed) -> ToolState:
    """Return the state of a tool after this event resumed it. The event must not have the reason `removed`, which ends
    the tool.
    """
    if event.reason != "accepted":
        return before._replace(suspended=None)
    if before.suspended is None or before.suspended.digest != event.digest:
        return before  # another change than the one that was accepted
    return before._replace(suspended=None, accepted=before.suspended.now)
