"""Which passkeys decide, as the record has it: what came after the newest approver, less what was revoked.

Runs in the daemon, before a decision of a passkey is written down: a passkey that is not on record yet would sign before its own
enrolment, and no one could verify it. Reads; it believes the ledger where that closes, and the vault says the rest.

Source: docs/reference/audit-events.md. Not here: whether the approver's key enrolled it (signatures.py, and the vault's seal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aileron.ledger import Snapshot, Transaction

__all__ = ["PasskeysOnRecord", "passkeys_on_record"]


class PasskeysOnRecord(NamedTuple):
    """What the ledger tells since the approver was named last."""

    in_force: Mapping[str, str]
    """The passkeys that decide, by id, with the approval of each."""
    enrolments: frozenset[str]
    """The approvals with which any of them, those that were revoked too, was enrolled."""


def passkeys_on_record(look: Snapshot | Transaction) -> PasskeysOnRecord:
    """Those that the approver's key which decides now has enrolled: another in its place ends them all."""
    named = look.newest("approver.set")
    since = 0 if named is None else int(named["seq"])
    added, removed = look.all_of("passkey.added", since), look.all_of("passkey.removed", since)
    in_force: dict[str, str] = {}
    for facts in sorted([*added, *removed], key=lambda facts: int(facts["seq"])):
        if facts["type"] == "passkey.added":
            in_force[str(facts["passkey"])] = str(facts["approval"])
        else:
            in_force.pop(str(facts["passkey"]), None)
    return PasskeysOnRecord(in_force, frozenset(str(facts["approval"]) for facts in added))
