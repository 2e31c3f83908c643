"""The secrets that a person stored by name: listed, set, removed. Each change is made and recorded, or a person is asked first.

Runs in the daemon, behind the operator's socket. The value of a secret is never returned.

Rules
- With an approver, a secret is not replaced without a question if it is bound, or if a setting or a waiting question about a
  binding names it. The new value would not be the approved credential.
- With an approver, no secret leaves the vault as a token before a person has approved its receiver: a caller that adds a
  reference names both the token and the receiver.

Source: docs/reference/bindings.md. Not here: their use (credentials.py, lending.py), their file (vault/).
"""

from __future__ import annotations

import anyio
import anyio.to_thread
from msgspec import UNSET

from aileron.api.approvals import ConsentAnswer
from aileron.api.secrets import SecretEntry, SecretStored
from aileron.audit import events
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.secret_consent import SecretHandler
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.secrets.kept_in_stores import SecretsInStores
from aileron.model.consent import BindingConsent, SecretConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.model.timestamp import utc

__all__ = ["SecretStore"]


class SecretStore:
    """Service for stored secrets. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        approver: ApproverState,
        consent_checks: ConsentChecks,
        consents: ConsentService,
        approved: SecretHandler,
        held: HeldValues,
        elsewhere: SecretsInStores,
    ) -> None:
        self._base = base
        self._approver = approver
        self._consent_checks = consent_checks
        self._consents = consents
        self._approved = approved
        self._held = held
        self._elsewhere = elsewhere

    def listed(self) -> list[SecretEntry]:
        """Return the names and dates of all secrets, and the locations of those that are stored outside the vault, but never
        their values.
        """
        return [
            SecretEntry(
                name=info.name,
                created_at=utc(info.created_at),
                updated_at=utc(info.updated_at),
                elsewhere=info.elsewhere or UNSET,
            )
            for info in self._base.vault.secrets()
        ]

    async def set(self, name: str, value: Secret) -> SecretStored | ConsentAnswer:
        """Store a secret, replacing an earlier value. If a binding or a setting names the secret, ask a person to approve that
        first.
        """
        async with self._base.changing:
            used_by = await self._used_by(name)
            if used_by and self._approver.consents() is not None:
                if not self._base.vault.is_locked:  # do not ask about a value that cannot be stored anyway
                    await anyio.to_thread.run_sync(
                        self._base.vault.check_change, lambda opened, now_ms: opened.with_secret(name, value, now_ms)
                    )
                commitment = self._held.hold(value)
                return await self._consents.ask(SecretConsent(name=name, bindings=used_by, commitment=commitment))
            return await self._approved.put(name, value)

    async def set_reference(self, name: str, reference: str, token: str | None) -> SecretStored | ConsentAnswer:
        """Store a reference to a secret that is kept outside the vault, replacing an earlier value. The secret's current value
        becomes the approved value.

        The value is fetched first. If `set` would ask a person, this asks too. If the fetch would send `token` to a new receiver,
        the person is asked before anything is fetched. Raises AileronError as SecretsInStores.found does.
        """
        if named := self._consent_checks.settings_naming(name):
            message = f"{', '.join(named)} uses the secret {name!r}, and settings cannot use one that is kept elsewhere"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        elsewhere = await self._elsewhere.pinned(reference, token)
        is_new = self._base.vault.read(lambda opened: opened.gives_token_anew(name, elsewhere))
        if is_new and self._approver.consents() is not None:
            async with self._base.changing:
                return await self._ask_first(name, elsewhere)
        value = await self._elsewhere.found(name, elsewhere)
        async with self._base.changing:
            await anyio.to_thread.run_sync(
                self._base.vault.check_change,
                lambda opened, now_ms: opened.with_reference(name, elsewhere, value, now_ms),
            )
            if self._base.vault.read(lambda opened: opened.is_approved(name, elsewhere, value)):
                self._base.vault.keep_fetched(self._base.vault.read(lambda opened: opened.secret_entry(name)), value)
                return SecretStored(name=name)
            used_by = await self._used_by(name)
            if not used_by or self._approver.consents() is None:
                return await self._approved.put_reference(name, elsewhere, value)
            commitment = self._held.hold(value, elsewhere=elsewhere)
            return await self._consents.ask(
                SecretConsent(name=name, bindings=used_by, commitment=commitment, reference=elsewhere.words)
            )

    async def _ask_first(self, name: str, elsewhere: Elsewhere) -> ConsentAnswer:
        """Ask a person whether the token that fetches the secret may be sent to `elsewhere`. The fetch follows the approval."""
        commitment = self._held.hold(
            Secret(elsewhere.words.encode()), elsewhere=elsewhere, fetch=lambda: self._elsewhere.found(name, elsewhere)
        )
        return await self._consents.ask(
            SecretConsent(
                name=name,
                bindings=await self._used_by(name),
                commitment=commitment,
                reference=elsewhere.words,
                token_to=elsewhere.place,
                token=elsewhere.token or UNSET,
            )
        )

    async def _used_by(self, name: str) -> tuple[str, ...]:
        """Return the names of the bindings that use the secret, including bindings in waiting questions, and of the
        settings that name it.
        """
        bindings = {str(binding.name) for binding in self._base.vault.bindings() if binding.secret == name}
        waiting = (subject for _, subject in await self._base.audit.open_consents())
        bindings |= {
            subject.name for subject in waiting if isinstance(subject, BindingConsent) and subject.secret == name
        }
        return (*sorted(bindings), *self._consent_checks.settings_naming(name))

    async def remove(self, name: str) -> None:
        """Remove a secret."""
        async with self._base.changing:
            await anyio.to_thread.run_sync(self._base.vault.remove_secret, name)
            await self._base.audit.note(events.SecretRemoved(name=name))
