"""Handles consents to passkeys that can decide.

Runs in the daemon. Source: docs/adr/0028-passkeys.md. Not here: creating, using and revoking passkeys (passkeys.py).
"""

from __future__ import annotations

from aileron.api.approvals import PasskeyEnrolled
from aileron.approvals.passkey_rules import check_enrollable
from aileron.approvals.signed import NotCounted
from aileron.audit.log import Audit
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import Passkey, PasskeyConsent

__all__ = ["PasskeyHandler"]


class PasskeyHandler(ConsentHandler[PasskeyConsent]):
    """Handler of consents to passkeys. `origin` is the page on which a passkey can decide."""

    def __init__(self, store: ConsentStore, audit: Audit, origin: str) -> None:
        self._store = store
        self._audit = audit
        self._origin = origin

    def is_so(self, subject: PasskeyConsent) -> bool:
        """Return whether the home still has an approver. Raises AileronError if the passkey cannot be enrolled now."""
        consents = self._store.consents()
        if consents is not None:
            check_enrollable(consents, subject, self._origin)
        return consents is not None

    async def carry_out(self, subject: PasskeyConsent, row: ApprovalRow) -> PasskeyEnrolled:
        """Store the passkey with the approver's signed decision."""
        signed = row.signed
        if signed is None:
            raise NotCounted("unsigned", f"{row.id} was not approved with a signature; nothing changed")
        passkey = Passkey(
            id=subject.key_id,
            approval=row.id,
            subject=subject,
            at=signed.at,
            reason=row.reason,
            signature=signed.signature,
        )
        await self._store.change(lambda consents: consents.with_passkey(passkey))
        await self._audit.passkey_added(passkey)
        return PasskeyEnrolled(id=passkey.id, name=subject.name, origin=subject.origin)
