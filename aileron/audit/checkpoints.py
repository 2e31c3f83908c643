"""The vault's generations as recorded in the ledger, to detect that the vault file was replaced by an older copy of
itself.

The vault's seal detects every change but one: replacement by an older complete file. So the vault's id and generation
are recorded after each change, and whenever the vault is opened. Runs in the daemon when the vault is opened. The
ledger is a file of the same user: if vault and ledger are both replaced by copies from the same moment, this is not
detected.

Rules
- The newest event that names a generation is decisive. A newer vault is accepted, because the vault is written before
  the event, and a daemon can end in between.
- A copy that was about to be restored may be in place instead, until another checkpoint is on record.

Source: docs/reference/vault-format.md (an older file). Not here: consents, which are compared one by one (rollback.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

from aileron.audit.events import (
    VaultChanged,
    VaultCreated,
    VaultRestored,
    VaultRestoring,
    VaultRotated,
    VaultUnlocked,
)
from aileron.ledger import Ledger, Snapshot

__all__ = ["VaultCheckpoint", "vault_checkpoints"]

_Checked = VaultCreated | VaultUnlocked | VaultChanged | VaultRotated | VaultRestored | VaultRestoring
_FIRM: Final[tuple[type[_Checked], ...]] = (VaultCreated, VaultUnlocked, VaultChanged, VaultRotated, VaultRestored)


class VaultCheckpoint(msgspec.Struct, frozen=True):
    """A vault's id, and the lowest generation (number of writes) that the vault can have according to the record."""

    vault: str
    generation: int

    def allows(self, vault: str, generation: int) -> bool:
        """Return whether an opened vault with this id and generation is the checkpoint's vault, and no older copy of
        it.
        """
        return self.vault == vault and self.generation <= generation


async def vault_checkpoints(ledger: Ledger) -> tuple[VaultCheckpoint, ...]:
    """Return the checkpoints of the vaults that this home can have: the recorded vault, and a copy that may be
    replacing it. Empty if no vault is on record.
    """
    return await ledger.read(_marks)


def _marks(snapshot: Snapshot) -> tuple[VaultCheckpoint, ...]:
    firm = sorted((found for kind in _FIRM if (found := _newest(snapshot, kind))), key=lambda found: found[0])[-1:]
    intent = _newest(snapshot, VaultRestoring)
    if intent is not None and (not firm or intent[0] > firm[0][0]):
        firm.append(intent)
    return tuple(mark for _, mark in firm)


def _newest(snapshot: Snapshot, kind: type[_Checked]) -> tuple[int, VaultCheckpoint] | None:
    found = snapshot.newest(kind)
    vault, generation = (None, None) if found is None else (found.event.vault, found.event.generation)
    if found is None or not isinstance(vault, str) or not isinstance(generation, int):  # older events name neither
        return None
    return found.seq, VaultCheckpoint(vault, generation)
