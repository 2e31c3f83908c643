"""Passkeys that decide, as the record has them: all enrolled since the newest approver, minus those that were revoked.

Runs in the daemon, before a decision by a passkey is recorded: a passkey that is not on record yet would sign before its own
enrollment, and nobody could verify it. Only reads. It believes the ledger if that denies; the vault decides the rest.

Source: docs/reference/audit-events.md. Not here: whether the approver's key enrolled it (signatures.py, and the vault's seal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aileron.audit.events import ApproverSet, PasskeyAdded, PasskeyRemoved
from aileron.ledger import Recorded, Snapshot, Transaction

__all__ = ["PasskeysOnRecord", "passkeys_on_record"]


class PasskeysOnRecord(NamedTuple):
    """The passkeys in the ledger since its newest approver."""

    in_force: Mapping[str, str]
    """Passkeys that decide: id to the approval of its enrollment."""
    enrolments: frozenset[str]
    """Approvals that enrolled any of them, including the revoked."""


def passkeys_on_record(look: Snapshot | Transaction) -> PasskeysOnRecord:
    """Return the passkeys enrolled by the current approver's key. A new approver ends all earlier ones.

    AileronError(hash_mismatch) if a row is not as it was written.
    """
    named = look.newest(ApproverSet)
    since = 0 if named is None else named.seq
    added, removed = look.all_of(PasskeyAdded, since), look.all_of(PasskeyRemoved, since)
    in_force: dict[str, str] = {}
    every: list[Recorded[PasskeyAdded] | Recorded[PasskeyRemoved]] = [*added, *removed]
    for row in sorted(every, key=lambda row: row.seq):
        match row.checked():
            case PasskeyAdded(passkey=key_id, approval=approval_id):
                in_force[key_id] = approval_id
            case PasskeyRemoved(passkey=key_id):
                in_force.pop(key_id, None)
    return PasskeysOnRecord(in_force, frozenset(row.event.approval for row in added))
