"""The consents of this home's approver: stored in the vault, which seals them, and recorded.

Runs in the daemon. The caller holds the lock `changing` during each change, and has checked the decision that the consent
comes from.

Source: docs/reference/consents.md. Not here: which change needs which consent (handlers/), decisions (consents.py).
"""

from __future__ import annotations

from collections.abc import Callable

import anyio.to_thread

from aileron.audit.log import Audit
from aileron.daemon.consent_service.approver import ApproverState
from aileron.model.consent import Consent, ConsentKind, Consents
from aileron.model.plan import ConnectorPin
from aileron.vault.vault import Vault

__all__ = ["ConsentStore"]


class ConsentStore:
    """Access to the approver's consents in the vault: it reads, stores and ends them. One instance per daemon."""

    def __init__(self, approver: ApproverState, vault: Vault, audit: Audit) -> None:
        self._vault = vault
        self._audit = audit
        self.consents = approver.consents

    def latest(self, kind: ConsentKind, name: str) -> Consent | None:
        """Return the latest consent of this kind under this name; None if there is none, or no approver. Raises AileronError as
        ApproverState.consents does.
        """
        consents = self.consents()
        return None if consents is None else consents.latest(kind, name)

    def is_installed(self, pin: ConnectorPin) -> bool:
        """Return whether the stored connector with this pin was approved; always True without an approver."""
        consents = self.consents()
        return consents is None or consents.has_connector_consent(pin.hash)

    async def put(self, kind: ConsentKind, name: str, digest: str, approval_id: str) -> None:
        """Store and record a consent, in place of the previous one of its kind and name."""
        consent = Consent(kind=kind, name=name, digest=digest, approval=approval_id)
        await self.change(lambda consents: consents.with_consent(consent))
        await self._audit.agreed(kind, name, digest, approval_id)

    async def change(self, how: Callable[[Consents], Consents]) -> None:
        """Replace the current consents in the vault with the consents that `how` makes from them. The caller records
        the change.
        """
        await anyio.to_thread.run_sync(self._vault.change_consents, how)

    async def end(self, kind: ConsentKind, name: str) -> None:
        """End the consent under this name, because its subject was removed. If the subject is added again, the person is asked
        again.

        While the vault is locked, the consent cannot be ended; the subject is removed nevertheless.
        """
        if not self._vault.is_locked and self.latest(kind, name) is not None:
            await self.change(lambda now: now.without_consent(kind, name))
            await self._audit.ended(kind, name, "removed")

    async def end_bytes(self, kind: ConsentKind, digest: str) -> None:
        """End each consent of this kind to the bytes with this digest, under any name, as `end` does."""
        consents = None if self._vault.is_locked else self.consents()
        agreed = () if consents is None else consents.agreed
        for consent in agreed:
            if consent.kind is kind and consent.digest == digest:
                await self.end(kind, consent.name)
