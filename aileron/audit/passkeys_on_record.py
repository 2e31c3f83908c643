"""The passkeys that can decide according to the record: they were enrolled since the newest approver was set, and not
revoked.

Runs in the daemon, before a decision by a passkey is recorded: a passkey that is not on record yet would sign before
its own enrollment, and nobody could verify it. This module only reads. A passkey that is not on record is refused; for
any other, the vault decides.

Source: docs/reference/audit-events.md. Not here: whether the approver's key enrolled a passkey (signatures.py, and the
vault's seal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aileron.audit.events import ApproverSet, PasskeyAdded, PasskeyRemoved
from aileron.ledger import Recorded, Snapshot, Transaction

__all__ = ["PasskeysOnRecord", "passkeys_on_record"]


class PasskeysOnRecord(NamedTuple):
    """The passkeys that were enrolled since the ledger's newest change of the approver's key."""

    in_force: Mapping[str, str]
    """Ids of the passkeys that can decide, each with the id of the approval that enrolled the passkey."""
    enrolments: frozenset[str]
    """Ids of the approvals that enrolled a passkey on record, including passkeys that were revoked later."""


def passkeys_on_record(look: Snapshot | Transaction) -> PasskeysOnRecord:
    """Return the passkeys enrolled by the current approver's key. A new approver ends all earlier passkeys.

    Raises AileronError(hash_mismatch) if a row was altered.
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
