"""A check that finds out whether an open vault is older than the record, or belongs to another person. The vault's seal
cannot detect that an older copy was put back.

Runs in the daemon when the vault is opened. Trusts neither file alone: the vault is sealed but can be exchanged for an
older one, the ledger is current but can be edited. If both are replaced by copies from the same moment, this check does
not detect that (docs/explanation/consent.md).

Rules
- An entry of the vault that is not on record yet is newer: the vault is written first, and a daemon can end before it
  records the entry.
- An entry of the vault is older if the record has it, and also a later entry that replaced it.
- A key that is not on record is newer only if the last key on record has signed that the new key replaces it.

Source: docs/reference/consents.md, docs/reference/audit-events.md. Not here: used decisions and grants, which are compared one by
one when they are used (approvals/gate.py, ledger/).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aileron.audit.events import ApproverSet, ConsentAgreed, ConsentEnded
from aileron.ledger import EventFilter, Ledger, Recorded, Snapshot
from aileron.ledger.recorded import E
from aileron.model.consent import Consents
from aileron.model.decision import check_signature
from aileron.model.failure import AileronError

__all__ = ["rolled_back"]

_PAGE: Final = 500


async def rolled_back(ledger: Ledger, consents: Consents) -> str | None:
    """Return a sentence that says how the ledger shows that `consents`, which the open vault holds, are not the newest.
    Return None if the ledger does not show that.

    Reads a row for each consent that was ever given.
    """
    return await ledger.read(lambda snapshot: _older(snapshot, consents))


def _older(snapshot: Snapshot, consents: Consents) -> str | None:
    appointed: dict[str, int] = {}
    newest: ApproverSet | None = None
    for named in _all(snapshot, ApproverSet):
        newest = named.checked()
        appointed[newest.key_id] = named.seq
    if newest is not None and consents.key_id != newest.key_id:
        if consents.key_id in appointed:
            return f"it names the key {consents.key_id}, which {newest.key_id} has replaced"
        if not _was_named_by(newest, consents):
            return (
                f"it names the key {consents.key_id}, but according to the audit trail {newest.key_id} decides, "
                "and that key did not sign the change"
            )
    made: dict[tuple[str, str, str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for agreed in _all(snapshot, ConsentAgreed):
        event = agreed.checked()
        made[event.kind, event.name, event.digest, event.approval] = agreed.seq
        last[event.kind, event.name] = agreed.seq
    for ended in _all(snapshot, ConsentEnded):
        name = (ended.checked().kind, ended.checked().name)
        last[name] = max(ended.seq, last.get(name, 0))
    for consent in consents.agreed:
        kind = consent.kind.value
        seq_or_none = made.get((kind, consent.name, consent.digest, consent.approval), appointed.get(consent.approval))
        if seq_or_none is not None and last.get((kind, consent.name), 0) > seq_or_none:
            return f"the consent for {kind} {consent.name[:80]} has changed since"
    return None


def _was_named_by(known: ApproverSet, consents: Consents) -> bool:
    """Return whether the approver's key on record signed its replacement by the key in `consents`. The ledger does not have
    that replacement itself if a daemon ended before it could record it.
    """
    named, statement = consents.appointed, consents.appointment()
    if named is None or statement is None or named.replaces != known.key_id or named.old_signature is None:
        return False
    try:
        check_signature(bytes.fromhex(known.public_key), statement, named.old_signature)
    except (AileronError, ValueError):
        return False
    return True


def _all(snapshot: Snapshot, kind: type[E]) -> Iterator[Recorded[E]]:
    after = 0
    while page := snapshot.events_of(kind, EventFilter(after=after, oldest_first=True, limit=_PAGE)):
        yield from page
        after = page[-1].seq
