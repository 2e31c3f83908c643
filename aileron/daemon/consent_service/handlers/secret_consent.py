"""Handles consents to new values of secrets, in the vault or kept elsewhere.

Runs in the daemon. Source: docs/reference/bindings.md. Not here: which change of a secret needs consent
(secrets/secret_store.py), values that wait (held_values.py).
"""

from __future__ import annotations

import anyio.to_thread
from msgspec import UNSET

from aileron.api.secrets import SecretStored
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.daemon.consent_service.handlers.handler import ConsentHandler, ToFetch, out_of_date
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import SecretConsent
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault.vault import Vault

__all__ = ["SecretHandler"]


class SecretHandler(ConsentHandler[SecretConsent]):
    """Handler of consents to secrets' values. No consent is stored: the vault has the value itself."""

    def __init__(self, vault: Vault, held: HeldValues, audit: Audit) -> None:
        self._vault = vault
        self._held = held
        self._audit = audit

    def asked(self, subject: SecretConsent, digest: str) -> None:
        """Bind the secret's new value, which is held in memory, to the question with this digest."""
        self._held.bind(subject.commitment, digest)

    def is_so(self, subject: SecretConsent) -> bool:
        """Return whether the secret is still used only by bindings that the question names."""
        users = {str(binding.name) for binding in self._vault.bindings() if binding.secret == subject.name}
        return users <= set(subject.bindings)

    async def carry_out(self, subject: SecretConsent, row: ApprovalRow) -> SecretStored | ToFetch:
        """Store the secret's new value, which was held in memory, or the reference to it. If the value must be fetched
        first, return a ToFetch; `put_fetched` then stores the fetched value.
        """
        again = f"aileron secret set {subject.name}"
        held = self._held.release(subject.commitment, row.digest, f"the new value of {subject.name}", again)
        if held.elsewhere is None:
            return await self.put(subject.name, held.value)
        to, token = (UNSET, UNSET) if held.fetch is None else (held.elsewhere.place, held.elsewhere.token or UNSET)
        if (subject.reference, subject.token_to, subject.token) != (held.elsewhere.words, to, token):
            raise AileronError(FailureClass.INTERNAL_ERROR, f"{subject.name} is kept elsewhere than was said: {again}")
        if held.fetch is not None:
            return ToFetch(row.id, subject, held.elsewhere, held.fetch)
        return await self.put_reference(subject.name, held.elsewhere, held.value)

    async def put_fetched(self, fetched: ToFetch, value: Secret) -> SecretStored:
        """Store an approved reference to a secret with the value that was fetched for it, if the home still matches the
        question. Raises AileronError as `carry_out` does.
        """
        if not await anyio.to_thread.run_sync(self.is_so, fetched.subject):
            raise out_of_date(fetched.approval_id)
        return await self.put_reference(fetched.subject.name, fetched.elsewhere, value)

    async def put(self, name: str, value: Secret) -> SecretStored:
        """Store a secret, replacing an earlier value. Raises AileronError as Vault.set_secret does."""
        await anyio.to_thread.run_sync(lambda: self._vault.set_secret(name, value))
        await self._audit.note(events.SecretSet(name=name))
        return SecretStored(name=name)

    async def put_reference(self, name: str, elsewhere: Elsewhere, value: Secret) -> SecretStored:
        """Store the reference to a secret in an external store, and record in the vault that `value` was approved as its
        value. Raises AileronError as Vault.set_reference does.
        """
        await anyio.to_thread.run_sync(lambda: self._vault.set_reference(name, elsewhere, value))
        await self._audit.note(events.SecretSet(name=name, reference=elsewhere.reference))
        return SecretStored(name=name)
