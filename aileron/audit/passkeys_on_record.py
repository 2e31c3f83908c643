"""Which passkeys decide, as the record has it: what came after the newest approver, less what was revoked.

Runs in the daemon, before a decision of a passkey is written down: a passkey that is not on record yet would sign before its own
enrolment, and no one could verify it. Reads; it believes the ledger where that closes, and the vault says the rest.

Source: docs/reference/audit-events.md. Not here: whether the approver's key enrolled it (signatures.py, and the vault's seal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aileron.audit.events import ApproverSet, PasskeyAdded, PasskeyRemoved
from aileron.ledger import Recorded, Snapshot, Transaction

__all__ = ["PasskeysOnRecord", "passkeys_on_record"]


class PasskeysOnRecord(NamedTuple):
    """What the ledger tells since the approver was named last."""

    in_force: Mapping[str, str]
    """The passkeys that decide, by id, with the approval of each."""
    enrolments: frozenset[str]
    """The approvals with which any of them, those that were revoked too, was enrolled."""


def passkeys_on_record(look: Snapshot | Transaction) -> PasskeysOnRecord:
    """Those that the approver's key which decides now has enrolled: another in its place ends them all.

    AileronError(hash_mismatch) where a row is not as it was written.
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
